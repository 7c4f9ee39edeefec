// What one attempt used: what its provider said, and an estimate of what went to the client. One per attempt, so that
// the usage of an attempt that failed can never be charged. Decides what each ending costs.
import { GatewayError } from '../../src/errors.ts'
import type { SseEvent } from '../../src/core/sse.ts'
import { writtenIn } from '../../src/protocols/messages.ts'
import { MOST_RATE, type Rates, TextCount } from '../../src/tokens/text-count.ts'
import { type Believed, extraOf, isGuessed, isInputGuessed, isInputReported, noUsage, nothingReported, readUsage,
  reportedInput, type ReportedUsage, type Usage, type UsageSource } from '../../src/money/usage.ts'
import { fieldOf } from '../../src/base/json.ts'

export type Ending = 'completed' | 'cut by client' | 'cut by upstream' | 'cut by gateway'

/** What is to be charged for. */
export interface Counted {
  readonly usage: Usage
  readonly source: UsageSource
}

/**
 * What an answer is made of where its provider counts no more than was seen: of thoughts a client may be shown a part.
 */
const WRITTEN: ReadonlySet<unknown> = new Set(['text', 'tool_use', 'text_delta', 'input_json_delta'])

export class Tally {
  #reported: ReportedUsage = nothingReported
  /** tokens of input, where the upstream says nothing of them before its end */
  #guessedInput = 0
  /** what went to the client */
  readonly #text = new TextCount()
  readonly #rates: Rates
  /** the same in tokens */
  #estimate = 0
  /** the provider counts more than the text that was seen */
  #hasUnseen = false
  /** tokens of output, reported behind what went to the client: what is said at the start is no count yet */
  reportedBehind = 0
  /** uses of what has a price of its own, as they were seen to begin */
  #uses: Usage['extras'] = noUsage.extras
  /**
   * what an event that is not JSON is: a failed attempt until content came, a broken stream after it
   * (src/README.md#error-in-stream)
   */
  #malformed: Malformed = 'upstream_error'

  readonly #believed: Believed | undefined

  /** @param rates of the model that answers: the same from the first event to the bill */
  constructor (rates: Rates, believed?: Believed) {
    this.#rates = rates
    this.#believed = believed
  }

  /**
   * Each event of the upstream, delivered or not.
   * @returns whether it may hold usage
   * @throws {GatewayError} one that holds usage is not JSON
   */
  see (event: SseEvent): boolean {
    const type = typeOf(event, this.#malformed)
    if (type === 'content_block_delta') { this.#malformed = 'upstream_stream_interrupted' }
    else if (type === 'message_delta') { this.#readUsage(fieldOf(readJson(event, this.#malformed), 'usage')) }
    else if (type === 'message_start') {
      this.#readUsage(fieldOf(fieldOf(readJson(event, this.#malformed), 'message'), 'usage'))
    }
    return type === 'message_delta' || type === 'message_start'
  }

  /**
   * Each event that goes to the client: after the commit, and never before (src/README.md#charge-delivered).
   * @param most tokens that the answer may have
   * @returns false: it would have more with this event, which must not go out and is not counted
   * @throws {GatewayError} not JSON
   */
  deliver (event: SseEvent, most = Infinity): boolean {
    const piece = pieceOf(event)
    if (piece === undefined) {
      if (typeOf(event, this.#malformed) === 'message_delta') this.#noteReport(readJson(event, this.#malformed))
      return true
    }
    const text = writtenIn(piece)
    if (!this.#hasRoom(text, most)) return false
    if (fieldOf(piece, 'type') === 'server_tool_use') this.#noteUse(extraOf(fieldOf(piece, 'name')))
    this.#add(piece, text)
    return true
  }

  /** What was delivered, with this event. */
  tokensWith (event: SseEvent): number {
    return this.#text.tokensWith(writtenIn(pieceOf(event)), this.#rates)
  }

  #hasRoom (text: string, most: number): boolean {
    if (text === '' || this.#estimate + MOST_RATE * text.length <= most) return true
    return this.#text.tokensWith(text, this.#rates) <= most
  }

  #noteReport (end: unknown): void {
    const usage = fieldOf(end, 'usage')
    if (isGuessed(usage)) return
    this.reportedBehind = readUsage(usage, nothingReported, this.#believed).output ?? this.reportedBehind
  }

  #add (piece: unknown, text: string): void {
    if (!WRITTEN.has(fieldOf(piece, 'type'))) this.#hasUnseen = true
    if (text === '') return
    this.#text.add(text)
    this.#estimate = this.#text.tokens(this.#rates)
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

  /** Tokens of output until now: what the upstream has reported or what was delivered. */
  get soFar (): number {
    return Math.max(this.#estimate, this.#reported.output ?? 0)
  }

  /** What a kill is charged for: as a cut that is not the client's doing. */
  countSoFar (): Usage {
    return { ...noUsage, output: this.soFar }
  }

  /** Of a whole answer: its text, and what was reported of it. Undefined: more than that was, or nothing. */
  get lesson (): { readonly text: TextCount, readonly reported: number } | undefined {
    const { output } = this.#reported
    return this.#hasUnseen || output === undefined ? undefined : { text: this.#text, reported: output }
  }

  /** The whole JSON answer of the upstream. */
  readReply (body: unknown): void {
    this.#readUsage(fieldOf(body, 'usage'))
    const content = fieldOf(body, 'content')
    if (Array.isArray(content)) for (const block of content) this.#add(block, writtenIn(block))
  }

  /** @param estimateInput asked only where the provider said nothing about a completed answer's input */
  count (ending: Ending, estimateInput: () => number): Counted {
    if (ending !== 'completed') return this.#cut(ending)
    const { output = this.#estimate, extras = noUsage.extras } = this.#reported
    const hasInput = isInputReported(this.#reported)
    return {
      usage: { ...reportedInput(this.#reported), ...(!hasInput && { input: estimateInput() }), output, extras },
      source: hasInput && this.#reported.output !== undefined ? 'provider' : 'estimated'
    }
  }

  #cut (ending: Ending): Counted {
    const { extras, output: reported = 0 } = this.#reported
    const output = this.soFar
    const source = (isCounted: boolean): UsageSource => isCounted && reported === output ? 'provider' : 'estimated'
    // Spec 7.4 rule 2, literally: a cut that is not the client's doing costs the tokens produced and nothing else. A
    // client that cuts it itself pays for its input and its searches too, or whoever leaves before the end had them for
    // free (src/README.md#charge-delivered).
    if (ending !== 'cut by client') return { usage: { ...noUsage, output }, source: source(true) }
    const isCounted = isInputReported(this.#reported) && (extras !== undefined || this.#uses === noUsage.extras)
    return { usage: { ...this.#inputSoFar, output, extras: extras ?? this.#uses }, source: source(isCounted) }
  }

  /**
   * Of an upstream that reports its input at the end, our guess: prompts would be read for free by all who leave before
   * it.
   */
  get #inputSoFar (): Usage {
    return isInputReported(this.#reported) ? reportedInput(this.#reported) : { ...noUsage, input: this.#guessedInput }
  }

  #readUsage (usage: unknown): void {
    if (!isGuessed(usage)) this.#reported = readUsage(usage, this.#reported, this.#believed)
    const thought = fieldOf(fieldOf(usage, 'output_tokens_details'), 'thinking_tokens')
    if (typeof thought === 'number' && thought > 0) this.#hasUnseen = true
    if (isInputGuessed(usage)) this.#guessedInput = fieldOf(usage, 'input_tokens') as number
  }
}

/**
 * What an event brings of the answer: a delta, or a content block, which is empty but for odd upstreams.
 * @throws {GatewayError} not JSON
 */
function pieceOf (event: SseEvent): unknown {
  const type = typeOf(event, 'upstream_stream_interrupted')
  if (type === 'content_block_delta') return fieldOf(readJson(event, 'upstream_stream_interrupted'), 'delta')
  if (type === 'content_block_start') return fieldOf(readJson(event, 'upstream_stream_interrupted'), 'content_block')
  return undefined
}

/** Of input, whatever their class. */
export function inputTokens (
  { input, cache_read: read, cache_write_5m: write5m, cache_write_1h: write1h }: Usage
): number {
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
