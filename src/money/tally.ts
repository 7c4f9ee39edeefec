// What one attempt used: what its provider said, and a count of what went to the client. One per attempt, so that the usage of
// an attempt that failed can never be charged. Decides what each ending costs (design.md part 6).
import { after } from '../after.ts'
import { GatewayError } from '../errors.ts'
import type { Awaitable } from '../plugin.ts'
import type { SseEvent } from '../sse.ts'
import { Produced } from './produced.ts'
import type { Tokens } from './tokens.ts'
import { type Believed, extraOf, isGuessed, isInputGuessed, isInputReported, noUsage, nothingReported, readUsage, reportedInput, type ReportedUsage, type Usage, type UsageSource } from './usage.ts'
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
  /** the last event that was not estimated but counted, and the whole count with it */
  #measured: { readonly event: SseEvent, readonly tokens: number } | undefined
  /** uses of what has a price of its own, as they were seen to begin */
  #uses: Usage['extras'] = noUsage.extras
  /** what an event that is not JSON is: a failed attempt until content came, a broken stream after it (protocol.md K 6.3b) */
  #malformed: Malformed = 'upstream_error'

  readonly #believed: Believed | undefined

  constructor (tokens: Tokens, believed?: Believed) {
    this.#produced = new Produced(tokens)
    this.#believed = believed
  }

  /** Each event of the upstream, delivered or not. @returns whether it may hold usage @throws {GatewayError} one that holds usage is not JSON */
  see (event: SseEvent): boolean {
    const type = typeOf(event, this.#malformed)
    if (type === 'content_block_delta') this.#malformed = 'upstream_stream_interrupted'
    else if (type === 'message_delta') this.#readUsage(fieldOf(readJson(event, this.#malformed), 'usage'))
    else if (type === 'message_start') this.#readUsage(fieldOf(fieldOf(readJson(event, this.#malformed), 'message'), 'usage'))
    return type === 'message_delta' || type === 'message_start'
  }

  /**
   * Each event that goes to the client: after the commit, and never before (lesson 2).
   * @param most tokens, by `soFar`, that the answer may have
   * @returns false: it would have more with this event, which must not go out and is not counted
   * @throws {GatewayError} not JSON
   */
  deliver (event: SseEvent, most = Infinity): boolean {
    const piece = pieceOf(event)
    if (piece === undefined) return true
    const text = textOf(piece)
    const weight = text === '' ? this.#weight : this.#weightWith(event, text)
    if (text !== '' && weight > most) return false
    if (fieldOf(piece, 'type') === 'server_tool_use') this.#noteUse(extraOf(fieldOf(piece, 'name')))
    this.#weight = weight
    if (text !== '') this.#produced.add(text)
    return true
  }

  /** Whether `deliver` would take it. */
  isWithin (event: SseEvent, most: number): boolean {
    const text = textOf(pieceOf(event))
    return text === '' || this.#weightWith(event, text) <= most
  }

  /**
   * Counts what was delivered and this event as a bill would, so that `soFar` is no estimate any more when it is delivered too. It goes to
   * the thread that counts and back: to be asked where an estimate is not good enough.
   */
  async measure (event: SseEvent): Promise<void> {
    this.#measured = { event, tokens: await this.#produced.with(textOf(pieceOf(event))) }
  }

  #weightWith (event: SseEvent, text: string): number {
    return this.#measured?.event === event ? this.#measured.tokens : this.#weight + weigh(text)
  }

  /** Input as it was reported until now. Undefined: nothing was said of it, or only zeros, which some say at first. */
  get reportedInput (): Usage | undefined {
    const usage = reportedInput(this.#reported)
    return inputTokens(usage) === 0 ? undefined : usage
  }

  /** It was told numbers that nobody can believe: what it says was not taken from them. */
  get isAbsurd (): boolean {
    return this.#reported.isAbsurd === true
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
    this.#reply = undefined                                   // megabytes, maybe, that its client takes a minute to read
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
    if (!isGuessed(usage)) this.#reported = readUsage(usage, this.#reported, this.#believed)
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
      for (const block of content) {
        const text = textOf(block)
        if (text !== '') this.#produced.add(text)
      }
    }
    return this.#produced.count()
  }
}

/** What an event brings of the answer: a delta, or a content block, which is empty but for odd upstreams. @throws {GatewayError} not JSON */
function pieceOf (event: SseEvent): unknown {
  const type = typeOf(event, 'upstream_stream_interrupted')
  if (type === 'content_block_delta') return fieldOf(readJson(event, 'upstream_stream_interrupted'), 'delta')
  if (type === 'content_block_start') return fieldOf(readJson(event, 'upstream_stream_interrupted'), 'content_block')
  return undefined
}

/** The words of a piece that count as produced. The input of a tool is whole in a JSON answer, and empty at the start of a streamed block. */
function textOf (piece: unknown): string {
  const text = fieldOf(piece, 'text') ?? fieldOf(piece, 'partial_json') ?? fieldOf(piece, 'thinking')
  if (typeof text === 'string') return text
  const input = fieldOf(piece, 'type') === 'tool_use' ? fieldOf(piece, 'input') : undefined
  return typeof input !== 'object' || input === null || Object.keys(input).length === 0 ? '' : JSON.stringify(input)
}

/** Of input, whatever their class. */
export function inputTokens ({ input, cache_read: read, cache_write_5m: write5m, cache_write_1h: write1h }: Usage): number {
  return input + read + write5m + write1h
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
