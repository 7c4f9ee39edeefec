// The usage of one attempt: its provider's reports, and an estimate of the output sent to the client. One per attempt,
// so that the usage of a failed one can never be charged. Decides the charge of each ending.
import { GatewayError } from '../../src/errors.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import type { SseEvent } from '../../src/core/sse.ts'
import { CHAT_DELTA, chatFields } from '../../src/protocols/chat.ts'
import { type Piece, saysSomething, writtenIn } from '../../src/protocols/messages.ts'
import { inputEstimate } from '../../src/tokens/bound.ts'
import { type Counts, MOST_RATE, type Rates, TextCount } from '../../src/tokens/text-count.ts'
import { type Believed, countedBefore, extraOf, isInputReported, laterUsage, noUsage, nothingReported, readUsage,
  reportedInput, type ReportedUsage, reportedTokens, shownIn, type Usage, type UsageSource } from '../../src/money/usage.ts'
import { asRecord, fieldOf, isRecord } from '../../src/base/json.ts'

export type Ending = 'completed' | 'cut by client' | 'cut by upstream' | 'cut by gateway'

/** The usage to be charged. */
export interface Counted {
  readonly usage: Usage
  readonly source: UsageSource
}

/** What a whole answer tells; it can be copied between threads. */
export interface Told {
  readonly reported: ReportedUsage
  readonly text: Counts
  readonly hasUnseen: boolean
  /** tokens of thoughts, shown or not, if the provider counts them */
  readonly thoughts: number | undefined
  readonly hasContent: boolean
  /** content came behind the last count of the output */
  readonly isBehind: boolean
  /** what a client would read in it; undefined: it has to be completed */
  readonly shown: ReportedUsage | undefined
}

/** Reads the whole JSON answer of an upstream. */
export function readReply (body: unknown, believed: Believed | undefined): Told {
  const { usage, content } = asRecord(body)
  const text = new TextCount()
  const thoughts = thoughtsIn(usage)
  let hasUnseen = (thoughts ?? 0) > 0
  let hasContent = isRecord(body) && chatFields in body
  if (Array.isArray(content)) {
    for (const block of content) {
      const piece: Piece = asRecord(block)
      if (!isWritten(piece.type)) hasUnseen = true
      hasContent ||= saysSomething(piece)
      text.add(writtenIn(block))
    }
  }
  const reported = readUsage(usage, nothingReported, believed)
  const isBehind = isRecord(usage) && countedBefore in usage
  return { reported, text: text.counted, hasUnseen, thoughts, hasContent, isBehind,
    shown: shownIn(usage, reported) }
}

/** Characters from which on text that was sent is counted. */
const TOGETHER = 128

export class Tally {
  #reported: ReportedUsage = nothingReported
  #inputEstimate: number | undefined
  /** content came behind the last count of the output */
  #isBehind = false
  /** something was sent to the client for which its provider counts tokens */
  #hasContent = false
  /** of a whole answer */
  told: Told | undefined
  /** the text sent to the client */
  readonly #text = new TextCount()
  readonly #rates: Rates
  /** that text in tokens, but for its last characters, and the number of those */
  #estimate = 0
  #uncounted = 0
  /** the provider counts more than the text that was seen */
  #hasUnseen = false
  /** tokens of thoughts as reported */
  #thoughts: number | undefined
  /** the upstream has ended the answer, whether or not the client was still there */
  #isWhole = false
  /** tokens of output, reported after the content: the number at the start is no count yet */
  reportedBehind = 0
  /** uses with a price of their own, counted at their beginning */
  #uses: Usage['extras'] = noUsage.extras
  /**
   * code of an event that is not JSON: a failed attempt until content came, a broken stream after it
   * (src/README.md#error-in-stream)
   */
  #malformed: Malformed = 'upstream_error'

  /** absent: anything */
  readonly believed: Believed | undefined

  /** @param rates of the model that answers: the same from the first event to the bill */
  constructor (rates: Rates, believed?: Believed) {
    this.#rates = rates
    this.believed = believed
  }

  /**
   * Reads each event of the upstream, delivered or not.
   * @returns whether it may hold usage
   * @throws {GatewayError} an event with usage is not JSON
   */
  see (event: SseEvent): boolean {
    const type = typeOf(event, this.#malformed)
    // A block's start may hold all of a call. The signature of a thought may come with its end, behind all counts.
    if (type === 'content_block_delta' || type === 'content_block_start') {
      if (!this.#isBehind && saysSomething(asRecord(pieceOf(event)))) {
        this.#malformed = 'upstream_stream_interrupted'
        this.#isBehind = true
      }
    }
    else if (type === 'message_delta') { this.#readUsage(fieldOf(readJson(event, this.#malformed), 'usage')) }
    else if (type === 'message_start') {
      this.#readUsage(fieldOf(fieldOf(readJson(event, this.#malformed), 'message'), 'usage'))
    }
    else if (type === 'message_stop') { this.#isWhole = true }
    return type === 'message_delta' || type === 'message_start'
  }

  /**
   * Counts each event that goes to the client: after the commit, and never before (src/README.md#charge-delivered).
   * @param most tokens that the answer may have
   * @returns false: the answer would have more with this event, which must not be sent and is not counted
   * @throws {GatewayError} not JSON
   */
  deliver (event: SseEvent, most = Infinity): boolean {
    const piece = pieceOf(event)
    if (piece === undefined) {
      const type = typeOf(event, this.#malformed)
      if (type === 'message_delta') this.#noteReport(readJson(event, this.#malformed))
      else if (type === CHAT_DELTA) this.#hasContent = true
      return true
    }
    const text = writtenIn(piece)
    if (!this.#hasRoom(text, most)) return false
    const { type, name } = asRecord(piece)
    this.#hasContent ||= saysSomething(asRecord(piece))
    if (type === 'server_tool_use') this.#noteUse(extraOf(name))
    this.#add(type, text)
    return true
  }

  /** Tokens sent to the client, with this event. */
  tokensWith (event: SseEvent): number {
    return this.#text.tokensWith(writtenIn(pieceOf(event)), this.#rates)
  }

  #hasRoom (text: string, most: number): boolean {
    if (text === '' || this.#estimate + MOST_RATE * (this.#uncounted + text.length) <= most) return true
    return this.#text.tokensWith(text, this.#rates) <= most
  }

  #noteReport (end: unknown): void {
    const { output } = readUsage(fieldOf(end, 'usage'), nothingReported, this.believed)
    this.reportedBehind = output ?? this.reportedBehind
  }

  #add (type: unknown, text: string): void {
    if (!isWritten(type)) this.#hasUnseen = true
    if (text === '') return
    this.#text.add(text)
    this.#uncounted += text.length
    if (this.#uncounted >= TOGETHER) this.#count()
  }

  #count (): void {
    this.#uncounted = 0
    this.#estimate = this.#text.tokens(this.#rates)
  }

  /** The provider's totals leave out a part of what it counts. */
  get isOfPasses (): boolean {
    return this.#reported.isOfPasses === true
  }

  /** Tokens of input of all classes, as reported so far. */
  get reportedTokens (): number {
    return reportedTokens(this.#reported)
  }

  /** Input as reported so far. Undefined: nothing was reported, or only zeros, which some vendors send at first. */
  get reportedInput (): Usage | undefined {
    return this.reportedTokens === 0 ? undefined : reportedInput(this.#reported)
  }

  /** Reports had absurd numbers, which were not taken over. */
  get isAbsurd (): boolean {
    return this.#reported.isAbsurd === true
  }

  #noteUse (name: string | undefined): void {
    if (name !== undefined) this.#uses = { ...this.#uses, [name]: (this.#uses[name] ?? 0) + 1 }
  }

  /** Tokens of output so far: as reported or as delivered, whichever is more. */
  get soFar (): number {
    if (this.#uncounted > 0) this.#count()
    return this.counted
  }

  /** As `soFar`, without the last characters, which are not counted yet. */
  get counted (): number {
    return Math.max(this.#estimate, this.#reported.output ?? 0)
  }

  /** As `soFar`, or more: whatever the last characters are. */
  get atMost (): number {
    return Math.max(this.#estimate + MOST_RATE * this.#uncounted, this.#reported.output ?? 0)
  }

  /** The usage that is charged after a kill: as for a cut that is not the client's doing. */
  countSoFar (): Usage {
    return { ...noUsage, output: this.soFar }
  }

  /**
   * Text and reported tokens of a whole answer, to learn from. Undefined: the report covers more than the text, or
   * there is none.
   */
  get lesson (): { readonly text: TextCount, readonly reported: number } | undefined {
    const { output } = this.#reported
    if (this.#hasUnseen || this.#isBehind || output === undefined) return undefined
    return { text: this.#text, reported: output }
  }

  /** Tokens that the client was shown, by estimate. Undefined: a report covers all that came. */
  get uncovered (): number | undefined {
    if (this.#isWhole || (!this.#isBehind && this.#reported.output !== undefined)) return undefined
    this.#count()
    return this.#estimate
  }

  /** Of a whole answer, its visible tokens by estimate and those that its provider counts beside them. */
  get parts (): { readonly visible: number, readonly hidden: number } | undefined {
    const { output } = this.#reported
    if (this.#isBehind || output === undefined || output === 0) return undefined
    this.#count()
    const visible = this.#estimate
    // Without thoughts the difference is one of tokenizers.
    const most = this.#thoughts ?? (this.#hasUnseen ? Infinity : 0)
    return { visible, hidden: Math.min(most, Math.max(0, output - visible)) }
  }

  /** Takes over what a whole answer tells. */
  hear (told: Told): void {
    const { reported, text, hasUnseen, thoughts, hasContent, isBehind } = this.told = told
    this.#reported = reported
    this.#text.takeOver(text)
    this.#hasUnseen = hasUnseen
    this.#thoughts = thoughts
    this.#hasContent = hasContent
    this.#isBehind = isBehind
    this.#count()
  }

  /**
   * @param exchange its input is estimated where the provider reported none
   * @param hidden tokens that were made beside the visible ones, by estimate, if the client left before the report
   */
  count (ending: Ending, exchange: Exchange, hidden = 0): Counted {
    const isWhole = ending === 'completed' || (ending === 'cut by client' && this.#isWhole)
    if (!isWhole) return this.#cut(ending, exchange, hidden)
    this.#count()
    const { output: reported = 0, extras = noUsage.extras } = this.#reported
    const hasInput = this.#hasInput
    const hasOutput = this.#reported.output !== undefined && !this.#isBehind && (reported > 0 || this.#estimate === 0)
    const output = hasOutput ? reported : Math.max(reported, this.#estimate)
    return { usage: hasInput ? reportedInput(this.#reported, output, extras)
      : { ...noUsage, input: this.estimateInput(exchange), output, extras },
    source: hasInput && hasOutput ? 'provider' : 'estimated' }
  }

  estimateInput (exchange: Exchange): number {
    return this.#inputEstimate ??= inputEstimate(exchange)
  }

  /** Whether the input was reported: zeros alone are no report beside content (src/README.md#zero-is-zero). */
  get #hasInput (): boolean {
    return isInputReported(this.#reported) &&
      (!this.#hasContent || this.reportedTokens > 0 || (!this.#isBehind && (this.#reported.output ?? 0) > 0))
  }

  #cut (ending: Ending, exchange: Exchange, hidden: number): Counted {
    const { extras, output: reported = 0 } = this.#reported
    const output = Math.max(this.soFar, hidden === 0 ? 0 : this.#estimate + hidden)
    const source = (isCounted: boolean): UsageSource => isCounted && reported === output ? 'provider' : 'estimated'
    // A cut that is not the client's doing costs the output produced and nothing else. A client that leaves pays for
    // its input and its searches too, or clients that leave before the end would have them for free
    // (src/README.md#charge-delivered).
    if (ending !== 'cut by client') return { usage: { ...noUsage, output }, source: source(true) }
    // Estimated for an upstream that reports its input at the end.
    // Zeros at a stream's beginning are no report yet.
    const hasInput = this.reportedTokens > 0
    const input = hasInput ? reportedInput(this.#reported) : { ...noUsage, input: this.estimateInput(exchange) }
    const isCounted = hasInput && (extras !== undefined || this.#uses === noUsage.extras)
    return { usage: { ...input, output, extras: extras ?? this.#uses }, source: source(isCounted) }
  }

  #readUsage (usage: unknown): void {
    if (!isRecord(usage)) return
    const later = laterUsage(usage, this.#reported, this.believed)
    if (readUsage(later, nothingReported, this.believed).output !== undefined) this.#isBehind = false
    this.#reported = readUsage(later, this.#reported, this.believed)
    this.#thoughts = thoughtsIn(usage) ?? this.#thoughts
    if ((this.#thoughts ?? 0) > 0) this.#hasUnseen = true
  }
}

/**
 * The content in an event: a delta, or a content block, which is empty except with odd upstreams.
 * @throws {GatewayError} not JSON
 */
function pieceOf (event: SseEvent): unknown {
  const type = typeOf(event, 'upstream_stream_interrupted')
  if (type !== 'content_block_delta' && type !== 'content_block_start') return undefined
  const { delta, content_block: block } = asRecord(readJson(event, 'upstream_stream_interrupted'))
  return type === 'content_block_delta' ? delta : block
}

/** Tokens of thoughts. Undefined: the provider does not count them apart. */
function thoughtsIn (usage: unknown): number | undefined {
  const thoughts = fieldOf(fieldOf(usage, 'output_tokens_details'), 'thinking_tokens')
  return typeof thoughts === 'number' ? thoughts : undefined
}

/** Whether the client sees all of such content that its provider counts; of thoughts it may see a part. */
function isWritten (type: unknown): boolean {
  return type === 'text_delta' || type === 'input_json_delta' || type === 'text' || type === 'tool_use'
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
