// What vendors of chat style want back of their thoughts beside the text: Gemini's signatures of calls
// (`extra_content.google.thought_signature`), and OpenRouter's `reasoning_details`. A client of chat style has them as
// they are. For all others they travel sealed, as the signature of a thought (src/README.md#signatures).
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { isSealed } from '../../../base/seals.ts'
import { MOST_OPENED } from '../../../translation/thinking.ts'
import { textIn } from '../json.ts'
import { openThought, sealThought } from '../thoughts.ts'

/** Google's word for a call that another model has made. */
const PLACEHOLDER = 'skip_thought_signature_validator'
/** Most characters of an answer's details: beyond any that are meant. */
const MOST_KEPT = 4 * 1024 * 1024

/** What is sealed in one thought. */
interface Kept {
  readonly details?: readonly unknown[]
  /** of the message */
  readonly extra?: Json
  /** of calls, by the client's ids */
  readonly calls?: readonly (readonly [id: string, extra: Json])[]
  /** the number of the thought among those of its answer */
  readonly part: number
}

/** Takes what an answer has of it, for a client of another style. */
export class Signatures {
  readonly #exchange: Exchange
  readonly #upstream: Upstream
  #details: unknown[] = []
  #extra: Json | undefined
  #calls: [id: string, extra: Json][] = []
  #part = 0
  #characters = 0

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#exchange = exchange
    this.#upstream = upstream
  }

  /** @param isPiece whether it is a delta @throws {Error} it has no end */
  readMessage ({ reasoning_details: details, extra_content: extra }: Json, isPiece: boolean): void {
    if (Array.isArray(details)) {
      for (const detail of details as readonly unknown[]) {
        this.#count(detail)
        if (!isPiece || !isMore(this.#details.at(-1), detail)) this.#details.push(detail)
        else this.#details[this.#details.length - 1] = joined(this.#details.at(-1) as Json, detail as Json)
      }
    }
    if (isRecord(extra)) {
      this.#count(extra)
      this.#extra = extra
    }
  }

  /** @param id the client's */
  readCall (id: string, { extra_content: extra }: Json): void {
    if (!isRecord(extra)) return
    this.#count(extra)
    this.#calls.push([id, extra])
  }

  /** What came since the last call, sealed; '': nothing. */
  take (): string {
    const kept: Kept = {
      ...(this.#details.length > 0 && { details: this.#details }),
      ...(this.#extra !== undefined && { extra: this.#extra }),
      ...(this.#calls.length > 0 && { calls: this.#calls }), part: this.#part }
    if (Object.keys(kept).length === 1) return ''
    this.#part++
    this.#details = []
    this.#extra = undefined
    this.#calls = []
    return sealThought(this.#exchange, this.#upstream, JSON.stringify(kept))
  }

  #count (value: unknown): void {
    this.#characters += JSON.stringify(value)?.length ?? 0
    if (this.#characters > MOST_KEPT) throw new Error('the details of the reasoning have no end')
  }
}

/** Fields of a detail that come in pieces. */
const IN_PIECES = ['text', 'summary'] as const

/** Whether a detail goes on with the one before it. */
function isMore (before: unknown, detail: unknown): boolean {
  return isRecord(before) && isRecord(detail) && detail.type === before.type && detail.index === before.index &&
    detail.type !== 'reasoning.encrypted' && (!isGiven(detail.id) || !isGiven(before.id) || detail.id === before.id)
}

function joined (before: Json, more: Json): Json {
  const whole: Record<string, unknown> = { ...before }
  for (const name in more) if (isGiven(more[name])) whole[name] = more[name]
  for (const name of IN_PIECES) {
    const text = textIn(before[name]) + textIn(more[name])
    if (text !== '') whole[name] = text
  }
  return whole
}

/** What the vendor gets back with one answer of the conversation. */
export class OwnSignatures {
  readonly details: unknown[] = []
  extra: Json | undefined
  readonly #calls = new Map<string, Json>()

  get isEmpty (): boolean {
    return this.details.length + this.#calls.size === 0 && this.extra === undefined
  }

  add ({ details = [], extra, calls = [], part }: Kept): void {
    for (const [i, detail] of details.entries()) {
      const before = this.details.at(-1)
      if (i > 0 || part === 0 || !isMore(before, detail)) this.details.push(detail)
      else this.details[this.details.length - 1] = joined(before as Json, detail as Json)
    }
    this.extra = extra ?? this.extra
    for (const [id, own] of calls) this.#calls.set(id, own)
  }

  /** As a client of chat style has them. */
  addOwn ({ reasoning_details: details, extra_content: extra }: Json): void {
    if (Array.isArray(details)) for (const detail of details) this.details.push(detail)
    if (isRecord(extra)) this.extra = extra
  }

  /** @param id the client's */
  ofCall (id: string): Json | undefined {
    return this.#calls.get(id)
  }
}

/** Undefined: it is not this upstream's. */
export type OpenSignature = (block: Json) => Kept | undefined

/** @param messages of the whole conversation: of many thoughts the last ones are opened */
export function opener (messages: readonly unknown[], exchange: Exchange, upstream: Upstream): OpenSignature {
  let skipped = -MOST_OPENED
  for (const message of messages) {
    if (!isRecord(message) || message.role !== 'assistant' || !Array.isArray(message.content)) continue
    for (const block of message.content) if (isRecord(block) && isSealedThought(block)) skipped++
  }
  return (block) => {
    if (!isSealedThought(block) || skipped-- > 0) return undefined
    const original = openThought(exchange, upstream, textIn(block.signature))
    return original === undefined ? undefined : JSON.parse(original) as Kept
  }
}

function isSealedThought ({ type, signature }: Json): boolean {
  return type === 'thinking' && isSealed(textIn(signature))
}

/** The call with Google's placeholder, which the vendor takes for a signature. */
export function withPlaceholder (call: Json): Json {
  const extra = isRecord(call.extra_content) ? call.extra_content : {}
  const google = isRecord(extra.google) ? extra.google : {}
  return { ...call, extra_content: { ...extra, google: { ...google, thought_signature: PLACEHOLDER } } }
}

export function isSigned ({ extra_content: extra }: Json): boolean {
  const google = isRecord(extra) ? extra.google : undefined
  return isRecord(google) && textIn(google.thought_signature) !== ''
}

/** What a chat client's own messages have of it. */
export function signaturesIn ({ messages }: Json): unknown[] {
  const all: unknown[] = []
  for (const message of Array.isArray(messages) ? messages as readonly unknown[] : []) {
    if (!isRecord(message) || message.role !== 'assistant') continue
    for (const value of [message.reasoning_details, message.extra_content]) if (isGiven(value)) all.push(value)
    for (const call of Array.isArray(message.tool_calls) ? message.tool_calls as readonly unknown[] : []) {
      if (isRecord(call) && isRecord(call.extra_content)) all.push(call.extra_content)
    }
  }
  return all
}

/** The placeholders that a conversation may need. */
export function placeholdersIn (messages: unknown): readonly Json[] {
  const turns: readonly unknown[] = Array.isArray(messages) ? messages : []
  return turns.filter((turn) => isRecord(turn) && turn.role === 'assistant').map(() => withPlaceholder({}))
}
