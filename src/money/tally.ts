// What one attempt used: what its provider said, and a count of what went to the client. One per attempt, so that the usage of
// an attempt that failed can never be charged. Decides what each ending costs (design.md part 6).
import { after } from '../after.ts'
import { GatewayError } from '../errors.ts'
import type { Awaitable } from '../plugin.ts'
import type { SseEvent } from '../sse.ts'
import { Produced } from './produced.ts'
import type { Tokens } from './tokens.ts'
import { extraOf, isGuessed, isInputGuessed, isInputReported, noUsage, nothingReported, readUsage, reportedInput, type ReportedUsage, type Usage, type UsageSource } from './usage.ts'
import { fieldOf } from '../json-value.ts'

export type Ending = 'completed' | 'cut by client' | 'cut by upstream' | 'cut by gateway'

/** What is to be charged for. */
export interface Counted {
  readonly usage: Usage
  readonly source: UsageSource
}

/** An estimate that is rather too large, of text that nobody has counted: 3 characters of ASCII a token, and about one for each other character. */
function weigh (text: string): number {
  return text.length / 3 + (Buffer.byteLength(text) - text.length) * 0.4
}

export class Tally {
  #reported: ReportedUsage = nothingReported
  /** tokens of input, where the upstream says nothing of them before its end */
  #guessedInput = 0
  readonly #produced: Produced
  #reply: unknown
  #weight = 0
  /** uses of what has a price of its own, as they were seen to begin */
  #uses: Usage['extras'] = noUsage.extras
  /** what an event that is not JSON is: a failed attempt until content came, a broken stream after it (protocol.md K 6.3b) */
  #malformed: Malformed = 'upstream_error'

  constructor (tokens: Tokens) {
    this.#produced = new Produced(tokens)
  }

  /** Each event of the upstream, delivered or not. @throws {GatewayError} one that holds usage is not JSON */
  see (event: SseEvent): void {
    const type = typeOf(event, this.#malformed)
    if (type === 'content_block_delta') this.#malformed = 'upstream_stream_interrupted'
    else if (type === 'message_delta') this.#readUsage(fieldOf(readJson(event, this.#malformed), 'usage'))
    else if (type === 'message_start') this.#readUsage(fieldOf(fieldOf(readJson(event, this.#malformed), 'message'), 'usage'))
  }

  /**
   * Each event that goes to the client: after the commit, and never before (lesson 2).
   * @param most tokens, by `soFar`, that the answer may have
   * @returns false: it would have more with this event, which must not go out and is not counted
   * @throws {GatewayError} not JSON
   */
  deliver (event: SseEvent, most = Infinity): boolean {
    const type = typeOf(event, 'upstream_stream_interrupted')
    if (type === 'content_block_delta') return this.#add(fieldOf(readJson(event, 'upstream_stream_interrupted'), 'delta'), most)
    if (type !== 'content_block_start') return true
    const block = fieldOf(readJson(event, 'upstream_stream_interrupted'), 'content_block')
    if (fieldOf(block, 'type') === 'server_tool_use') this.#noteUse(extraOf(fieldOf(block, 'name')))
    return this.#add(block, most)                             // empty, but for odd upstreams
  }

  #noteUse (name: string | undefined): void {
    if (name !== undefined) this.#uses = { ...this.#uses, [name]: (this.#uses[name] ?? 0) + 1 }
  }

  /** Tokens of output until now, rather too many: what the upstream has reported or what was delivered. */
  get soFar (): number {
    return Math.max(this.#weight, this.#reported.output ?? 0)
  }

  /** What a kill is charged for: as a cut that is not the client's doing, but where nobody can count it now, only what was reported. */
  async countSoFar (): Promise<Usage> {
    const { output = 0 } = this.#reported
    return { ...noUsage, output: Math.max(output, await this.#produced.peek() ?? 0) }
  }

  /** The whole JSON answer of the upstream. */
  readReply (body: unknown): void {
    this.#reply = body
    this.#readUsage(fieldOf(body, 'usage'))
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
    const { extras, output: reported = 0 } = this.#reported
    const source = (isCounted: boolean): UsageSource => isCounted && reported >= produced ? 'provider' : 'estimated'
    const output = Math.max(reported, produced)
    // Spec 7.4 rule 2, literally: a cut that is not the client's doing costs the tokens produced and nothing else. A client
    // that cuts it itself pays for its input and its searches too, or whoever leaves before the end had them for free (lesson 1).
    if (ending !== 'cut by client') return { usage: { ...noUsage, output }, source: source(true) }
    const isCounted = isInputReported(this.#reported) && (extras !== undefined || this.#uses === noUsage.extras)
    return { usage: { ...this.#inputSoFar, output, extras: extras ?? this.#uses }, source: source(isCounted) }
  }

  /** Of an upstream that reports its input at the end, our guess: prompts would be read for free by all who leave before it. */
  get #inputSoFar (): Usage {
    return isInputReported(this.#reported) ? reportedInput(this.#reported) : { ...noUsage, input: this.#guessedInput }
  }

  #readUsage (usage: unknown): void {
    if (!isGuessed(usage)) this.#reported = readUsage(usage, this.#reported)
    if (isInputGuessed(usage)) this.#guessedInput = fieldOf(usage, 'input_tokens') as number
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
  #add (piece: unknown, most = Infinity): boolean {
    const text = fieldOf(piece, 'text') ?? fieldOf(piece, 'partial_json') ?? fieldOf(piece, 'thinking')
    if (typeof text === 'string') return this.#addText(text, most)
    return fieldOf(piece, 'type') !== 'tool_use' || this.#addInput(fieldOf(piece, 'input'), most)
  }

  #addText (text: string, most: number): boolean {
    const weight = this.#weight + weigh(text)
    if (weight > most) return false
    this.#weight = weight
    this.#produced.add(text)
    return true
  }

  /** Whole in a JSON answer; empty at the start of a streamed block, whose input comes in deltas. */
  #addInput (input: unknown, most: number): boolean {
    return typeof input !== 'object' || input === null || Object.keys(input).length === 0 || this.#addText(JSON.stringify(input), most)
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
