// What one attempt used: what its provider said, and a count of what went to the client. One per attempt, so that the usage of
// an attempt that failed can never be charged. Decides what each ending costs (design.md part 6).
import { after } from '../after.ts'
import { GatewayError } from '../errors.ts'
import type { Awaitable } from '../plugin.ts'
import type { SseEvent } from '../sse.ts'
import { Produced } from './produced.ts'
import type { Tokens } from './tokens.ts'
import { isInputReported, noUsage, nothingReported, readUsage, reportedInput, type ReportedUsage, type Usage, type UsageSource } from './usage.ts'

export type Ending = 'completed' | 'cut by client' | 'cut by upstream' | 'cut by gateway'

/** What is to be charged for. */
export interface Counted {
  readonly usage: Usage
  readonly source: UsageSource
}

export class Tally {
  #reported: ReportedUsage = nothingReported
  readonly #produced: Produced
  #reply: unknown
  /** what an event that is not JSON is: a failed attempt until content came, a broken stream after it (protocol.md K 6.3b) */
  #malformed: Malformed = 'upstream_error'

  constructor (tokens: Tokens) {
    this.#produced = new Produced(tokens)
  }

  /** Each event of the upstream, delivered or not. @throws {GatewayError} one that holds usage is not JSON */
  see (event: SseEvent): void {
    const type = typeOf(event, this.#malformed)
    if (type === 'content_block_delta') this.#malformed = 'upstream_stream_interrupted'
    else if (type === 'message_delta') this.#reported = readUsage(fieldOf(readJson(event, this.#malformed), 'usage'), this.#reported)
    else if (type === 'message_start') {
      this.#reported = readUsage(fieldOf(fieldOf(readJson(event, this.#malformed), 'message'), 'usage'), this.#reported)
    }
  }

  /** Each event that goes to the client: after the commit, and never before (lesson 2). @throws {GatewayError} not JSON */
  deliver (event: SseEvent): void {
    const type = typeOf(event, 'upstream_stream_interrupted')
    if (type === 'content_block_delta') this.#add(fieldOf(readJson(event, 'upstream_stream_interrupted'), 'delta'))
    else if (type === 'content_block_start') {
      this.#add(fieldOf(readJson(event, 'upstream_stream_interrupted'), 'content_block'))     // empty, but for odd upstreams
    }
  }

  /** The whole JSON answer of the upstream. */
  readReply (body: unknown): void {
    this.#reply = body
    this.#reported = readUsage(fieldOf(body, 'usage'), this.#reported)
  }

  /**
   * Returns a promise only where tokens must be counted. Ask when it has ended: what comes later is not counted.
   * @param estimateInput asked only where the provider said nothing about a completed answer's input
   */
  count (ending: Ending, estimateInput: () => number): Awaitable<Counted> {
    const { output } = this.#reported
    if (ending !== 'completed') return after(this.#countProduced(), (produced) => this.#cut(ending, produced))
    if (output === undefined) return after(this.#countProduced(), (produced) => this.#whole(produced, estimateInput))
    this.drop()
    return this.#whole(output, estimateInput)
  }

  /** It costs nothing: nobody will ask. */
  drop (): void {
    this.#produced.drop()
  }

  #cut (ending: Ending, produced: number): Counted {
    const reported = this.#reported.output ?? 0
    // Spec 7.4 rule 2, literally: a cut that is not the client's doing costs the tokens produced and nothing else. A client
    // that cuts it itself pays for its input too, or prompts would be read for free (lesson 1).
    const input = ending === 'cut by client' ? reportedInput(this.#reported) : noUsage
    return { usage: { ...input, output: Math.max(reported, produced) }, source: reported >= produced ? 'provider' : 'estimated' }
  }

  #whole (output: number, estimateInput: () => number): Counted {
    const reported = this.#reported
    const hasInput = isInputReported(reported)
    return {
      usage: {
        ...reportedInput(reported),
        ...(!hasInput && { input: estimateInput() }),
        output,
        extras: reported.extras ?? noUsage.extras
      },
      source: hasInput && reported.output !== undefined ? 'provider' : 'estimated'
    }
  }

  #countProduced (): Promise<number> {
    const content = fieldOf(this.#reply, 'content')
    if (Array.isArray(content)) {
      this.#reply = undefined
      content.forEach((block) => this.#add(block))
    }
    return this.#produced.count()
  }

  /** A delta, or a content block. */
  #add (piece: unknown): void {
    const text = fieldOf(piece, 'text') ?? fieldOf(piece, 'partial_json') ?? fieldOf(piece, 'thinking')
    if (typeof text === 'string') this.#produced.add(text)
    else if (fieldOf(piece, 'type') === 'tool_use') this.#addInput(fieldOf(piece, 'input'))
  }

  /** Whole in a JSON answer; empty at the start of a streamed block, whose input comes in deltas. */
  #addInput (input: unknown): void {
    if (typeof input === 'object' && input !== null && Object.keys(input).length > 0) this.#produced.add(JSON.stringify(input))
  }
}

type Malformed = 'upstream_error' | 'upstream_stream_interrupted'

function typeOf (event: SseEvent, malformed: Malformed): unknown {
  return event.event === '' ? fieldOf(readJson(event, malformed), 'type') : event.event
}

function readJson (event: SseEvent, malformed: Malformed): unknown {
  try {
    return event.json
  } catch (cause) {
    throw new GatewayError(malformed, { cause })
  }
}

function fieldOf (value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>)[name] : undefined
}
