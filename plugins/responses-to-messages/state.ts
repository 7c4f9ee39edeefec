// What a request leaves to the gateway: the response that it goes on from (`previous_response_id`), and items that it
// only names (`item_reference`). Both become items of its input before that is read, so that one translation serves
// all. And what is kept of its own answer.
import { setImmediate } from 'node:timers/promises'
import { JsonGuard } from '../../src/base/json-limits.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { kindOf, isResponseId, namedInput, outputIn, parseKept, responseOfItem } from '../../src/core/kept-items.ts'
import { GatewayError } from '../../src/errors.ts'
import type { KeptResponse, KeptResponses } from '../../src/store/responses.ts'
import { boundValue } from '../../src/tokens/bound.ts'
import { invalid } from '../../src/translation/reads.ts'

/** The input as it is translated. */
export interface Recalled {
  /** items of the conversation that the request goes on from */
  readonly history: readonly Json[]
  readonly input: unknown
}

/**
 * Most responses that one request may lead to, references in it and in what it goes on from, and bytes: of those
 * responses together, and of the items that take the place of references.
 */
const MOST_RESPONSES = 1000
const MOST_REFERENCES = 10_000
const MOST_BYTES = 32 * 1024 * 1024
/** Bytes that are parsed in one turn of the event loop. */
const TURN_BYTES = 256 * 1024
/** Responses read at a time. */
const AT_ONCE = 8

export interface RecallMeans {
  readonly responses: KeptResponses
  /** id */
  readonly account: string
  /** milliseconds that what is used lives on */
  readonly life: number
}

/**
 * @returns undefined: the request brings all that it means
 * @throws {GatewayError} invalid_request, previous_response_not_found; service_unavailable: what is kept can't be read
 * at this moment; queue_full
 */
export function recall (exchange: Exchange, body: Json, means: RecallMeans): Promise<Recalled> | undefined {
  const { input, previous_response_id: previous } = body
  if (isGiven(previous)) {
    if (typeof previous !== 'string') throw invalid('previous_response_id', 'must be the id of a response')
    return new Search(exchange, means).all(input, previous)
  }
  if (Array.isArray(input) && input.some(isReference)) return new Search(exchange, means).all(input, undefined)
  return undefined
}

/** Whether there is something to be recalled, or to be refused. */
export function refersToKept ({ input, previous_response_id: previous }: Json): boolean {
  return isGiven(previous) || (Array.isArray(input) && input.some(isReference))
}

export function isReference (item: unknown): item is Json {
  return isRecord(item) && kindOf(item) === 'item_reference'
}

/** Items of a text, or of a list. */
export function itemsOf (input: unknown): unknown {
  return typeof input === 'string' ? [{ type: 'message', role: 'user', content: input }] : input
}

class Search {
  readonly #exchange: Exchange
  readonly #means: RecallMeans
  readonly #found = new Map<string, Promise<KeptResponse | undefined>>()
  /** items of a response by their ids, of those that were looked into */
  readonly #items = new Map<string, ReadonlyMap<unknown, Json>>()
  /** bytes of items, and of all that took the place of references */
  readonly #sizes = new Map<Json, number>()
  readonly #guard = new JsonGuard()
  #bytes = 0
  #referenceBytes = 0
  /** bytes parsed in this turn of the event loop, at most */
  #unturned = 0

  constructor (exchange: Exchange, means: RecallMeans) {
    this.#exchange = exchange
    this.#means = means
    exchange.onFinish(() => { means.responses.give(this.#bytes) })
  }

  async all (input: unknown, previous: string | undefined): Promise<Recalled> {
    const chain = previous === undefined ? [] : await this.#chain(previous)
    const inputs: unknown[] = []
    for (const kept of chain) inputs.push(await this.#parsed(kept.input))
    const references = [...inputs, input].flatMap((items) => Array.isArray(items) ? items.filter(isReference) : [])
    if (references.length > MOST_REFERENCES) {
      throw invalid('input', `has ${references.length} references to items, with those of the conversation that it ` +
        `goes on from; at most ${MOST_REFERENCES} are allowed`)
    }
    await this.#load(references)
    const lost = (): never => { throw unknownResponse(previous!) }
    const history: Json[] = []
    for (const [i, kept] of chain.entries()) {
      for (const item of inputs[i] as readonly Json[]) {
        history.push(isReference(item) ? this.#item(item) ?? lost() : item)
      }
      for (const item of outputIn(await this.#parsed(kept.response))) history.push(item)
    }
    // What is not found stays as it is: the translation refuses it, with its place.
    return { history, input: Array.isArray(input)
      ? input.map((item: unknown) => isReference(item) ? this.#item(item) ?? item : item)
      : input }
  }

  /** From the first response of the conversation to this one. */
  async #chain (last: string): Promise<readonly KeptResponse[]> {
    const chain: KeptResponse[] = []
    for (let id: string | null = last; id !== null;) {
      const kept: KeptResponse | undefined = await this.#find(id)
      if (kept === undefined) throw unknownResponse(last)
      if (chain.length === MOST_RESPONSES) throw tooLong()    // a circle, which only a broken store has
      chain.push(kept)
      id = kept.previous
    }
    return chain.reverse()
  }

  async #load (references: readonly Json[]): Promise<void> {
    const itemIds = new Map<string, Set<unknown>>()           // by their responses
    for (const { id } of references) {
      const response = responseOfItem(id)
      if (response === undefined) continue
      const ids = itemIds.get(response)
      if (ids === undefined) itemIds.set(response, new Set([id]))
      else ids.add(id)
    }
    const responses = [...itemIds]
    for (let i = 0; i < responses.length; i += AT_ONCE) {
      await Promise.all(responses.slice(i, i + AT_ONCE).map(async ([response, ids]) => {
        const kept = await this.#find(response)
        if (kept === undefined) return
        const output = new Map(outputIn(await this.#parsed(kept.response)).map((item) => [item['id'] as unknown, item]))
        const isInOutput = [...ids].every((id) => output.has(id))
        const input = isInOutput ? [] : namedInput(kept, await this.#parsed(kept.input))
        this.#items.set(response, new Map([...input.map((item) => [item['id'] as unknown, item] as const), ...output]))
      }))
    }
  }

  /** @throws {GatewayError} context_length_exceeded: one item may be referred to often */
  #item ({ id }: Json): Json | undefined {
    const item = this.#items.get(responseOfItem(id) ?? '')?.get(id)
    if (item === undefined) return undefined
    let size = this.#sizes.get(item)
    if (size === undefined) this.#sizes.set(item, size = boundValue(item, MOST_BYTES, this.#exchange.blobs))
    this.#referenceBytes += size
    if (this.#referenceBytes > MOST_BYTES) throw tooLong()
    return item
  }

  async #find (id: string): Promise<KeptResponse | undefined> {
    const { responses, account, life } = this.#means
    if (!isResponseId(id)) return undefined
    const known = this.#found.get(id)
    if (known !== undefined) return await known
    if (this.#found.size === MOST_RESPONSES) throw tooLong()
    const finding = responses.find(account, id, life).then((kept) => {
      if (kept !== undefined) this.#take(kept.response.length + kept.input.length)
      return kept
    })
    this.#found.set(id, finding)
    return await finding
  }

  #take (bytes: number): void {
    this.#exchange.throwIfAborted()
    this.#means.responses.take(bytes)
    this.#bytes += bytes
    if (this.#bytes > MOST_BYTES) throw tooLong()
  }

  /** In a turn of the event loop of its own, if it takes long: the store may have all of them in memory. */
  async #parsed (json: Buffer): Promise<unknown> {
    this.#unturned += json.length
    if (this.#unturned > TURN_BYTES) {
      this.#unturned = json.length
      await setImmediate()
      this.#exchange.throwIfAborted()
    }
    return parseKept(json, this.#exchange.blobs, this.#guard)
  }
}

function tooLong (): GatewayError {
  return new GatewayError('context_length_exceeded', {
    message: 'The conversation that this request goes on from has become too long. Begin a new one, with a summary.'
  })
}

function unknownResponse (id: string): GatewayError {
  return new GatewayError('previous_response_not_found', {
    message: `There is no response ${shown(id)} here, or it has ended, or one that it goes on from has. Send the whole ` +
      'conversation as "input", without previous_response_id.',
    param: 'previous_response_id'
  })
}

function shown (id: string): string {
  return JSON.stringify(id.slice(0, 64))
}
