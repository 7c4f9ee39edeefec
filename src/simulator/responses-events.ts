// The events of a streamed answer of the Responses API, in the vendor's order.
import { SseEvent } from '../core/sse.ts'
import { token24, type Composition } from './composition.ts'
import { isObject, type Emission, type ReportedUsage } from './dialect.ts'
import type { Faults } from './faults.ts'
import { incompleteReason, type OutputItem } from './responses-items.ts'
import type { Item } from './responses-memory.ts'

type Fields = Readonly<Record<string, unknown>>

/** What a response repeats of its request. */
export interface ResponseHead {
  readonly id: string
  readonly [field: string]: unknown
}

export class ResponsesEvents {
  readonly #head: ResponseHead
  readonly #output: readonly OutputItem[]
  readonly #composition: Composition
  readonly #usage: ReportedUsage | undefined
  readonly #faults: Faults
  /** deltas are filled up to hide how long their tokens are, unless the client does not want it */
  readonly #isObfuscated: boolean
  readonly #out: Emission[] = []

  constructor (
    head: ResponseHead,
    output: readonly OutputItem[],
    composition: Composition,
    usage: ReportedUsage | undefined,
    faults: Faults,
    { stream_options: options }: Fields
  ) {
    this.#head = head
    this.#output = output
    this.#composition = composition
    this.#usage = usage
    this.#faults = faults
    this.#isObfuscated = !isObject(options) || options['include_obfuscation'] !== false
  }

  all (): readonly Emission[] {
    const beginning = { ...this.#head, status: 'in_progress', error: null, incomplete_details: null, output: [],
      usage: null }
    this.#emit('response.created', { response: beginning })
    this.#emit('response.in_progress', { response: beginning })
    const done = this.#output.map((item, index) => this.#item(item, index))
    const { failed_after: failedAfter, error_type: type = 'server_error' } = this.#faults
    if (failedAfter !== undefined) {
      this.#out.length = Math.min(this.#out.length, failedAfter)
      this.#emit('response.failed', { response: { ...beginning, status: 'failed',
        error: { code: codeOf(type), message: sentenceOf(type) } } })
      return this.#out
    }
    const reason = incompleteReason(this.#composition, this.#faults)
    const status = reason === undefined ? 'completed' : 'incomplete'
    this.#emit(`response.${status}`, {
      response: { ...beginning, status, incomplete_details: reason === undefined ? null : { reason }, output: done,
        usage: this.#usage ?? null }
    }, { ...(this.#usage !== undefined && { usage: this.#usage }) })
    return this.#out
  }

  /** @returns the item as it is when it is done */
  #item ({ added, done: whole, kind, parts, isRaw }: OutputItem, output_index: number): Item {
    // Some vendors give an item another id when it is done.
    const [prefix] = String(whole['id']).split('_')
    const done = this.#faults.id_changes === true ? { ...whole, id: `${prefix}_${token24()}` } : whole
    const at = { item_id: added['id'], output_index }
    this.#emit('response.output_item.added', { output_index, item: added })
    for (const [index, tokens] of parts.entries()) {
      if (kind === 'reasoning' && isRaw === true) this.#text('reasoning_text', { ...at, content_index: index }, tokens)
      else if (kind === 'reasoning') this.#summary({ ...at, summary_index: index }, tokens)
      else if (kind === 'message' || kind === 'refusal') this.#part(kind, { ...at, content_index: index }, tokens, done)
      else this.#input(kind === 'function_call' ? 'arguments' : 'input', at, tokens, done)
    }
    this.#emit('response.output_item.done', { output_index, item: done })
    return done
  }

  #summary (at: Fields, tokens: readonly string[]): void {
    const part = (text: string): Fields => ({ part: { type: 'summary_text', text } })
    this.#emit('response.reasoning_summary_part.added', { ...at, ...part('') })
    this.#text('reasoning_summary_text', at, tokens)
    this.#emit('response.reasoning_summary_part.done', { ...at, ...part(tokens.join('')) })
  }

  #part (kind: 'message' | 'refusal', at: Fields, tokens: readonly string[], { content }: Item): void {
    const [part] = content as readonly Fields[]
    this.#emit('response.content_part.added', { ...at,
      part: { ...part, ...(kind === 'refusal' ? { refusal: '' } : { text: '' }) } })
    if (kind === 'refusal') this.#text('refusal', at, tokens, 'refusal')
    else this.#text('output_text', at, tokens, 'text', { logprobs: [] })
    this.#emit('response.content_part.done', { ...at, part })
  }

  #input (field: 'arguments' | 'input', at: Fields, tokens: readonly string[], { name }: Item): void {
    const type = field === 'arguments' ? 'function_call_arguments' : 'custom_tool_call_input'
    this.#text(type, at, tokens, field, {}, field === 'arguments' ? { name } : {})
  }

  #text (
    type: string,
    at: Fields,
    tokens: readonly string[],
    field = 'text',
    more: Fields = {},
    atEnd: Fields = {}
  ): void {
    for (const text of tokens) {
      this.#emit(`response.${type}.delta`, { ...at, delta: text, ...more,
        ...(this.#isObfuscated && { obfuscation: 'x'.repeat(16 - text.length % 16) }) }, { text })
    }
    this.#emit(`response.${type}.done`, { ...at, [field]: tokens.join(''), ...more, ...atEnd })
  }

  #emit (type: string, fields: Fields, worth: Omit<Emission, 'event'> = {}): void {
    this.#out.push({ event: SseEvent.of(type, { type, sequence_number: this.#out.length, ...fields }), ...worth })
  }
}

/** The vendor's code for what `error_type` names. */
export function codeOf (type: string): string {
  return type === 'overloaded_error' ? 'server_is_overloaded' : type
}

export function sentenceOf (type: string): string {
  return codeOf(type) === 'server_is_overloaded'
    ? 'Our servers are currently overloaded. Please try again later.'
    : 'An error occurred while processing your request.'
}
