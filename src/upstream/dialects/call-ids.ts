// Ids of tool calls. Vendors of OpenAI's styles make them as they like ("functions.weather:0"), those of messages style
// refuse most of that: a conversation must be able to go on at either, and each vendor must get its own ids back. Some
// count from "call_0" in each answer; agents need ids that are unique in the conversation, and so do most vendors.
// Nothing is stored: a restarted gateway, or another of a fleet, computes the same ids from the same conversation.
import { hash } from 'node:crypto'
import type { Exchange } from '../../core/exchange.ts'
import { fact } from '../../core/facts.ts'
import { isRecord, type Json } from '../../base/json.ts'
import { textIn } from './json.ts'

const PREFIX = 'gwid_'
const HASHED = 'gwhash_'
/**
 * Ids that vendors of messages style accept. An id with a prefix of the gateway's is replaced too, so that none is
 * mistaken for one.
 */
const TAKEN = /^(?!gw(?:id|hash)_)[\w-]{1,64}$/

/** The id for the client, which sends it back. */
export function clientId (id: string): string {
  if (TAKEN.test(id)) return id
  const coded = PREFIX + Buffer.from(id).toString('base64url')
  return coded.length <= 64 ? coded : HASHED + hash('sha256', id, 'base64url')
}

/** As the vendor made it; but for long ones, which stay what they became for the client. */
export function vendorsId (id: string): string {
  if (!id.startsWith(PREFIX)) return id
  const made = Buffer.from(id.slice(PREFIX.length), 'base64url').toString()
  return clientId(made) === id ? made : id
}

const VALID = /^[\w-]{1,64}$/

/** The client's id where vendors of messages style accept it; those that the gateway has coded too. */
export function validId (id: string): string {
  return VALID.test(id) ? id : clientId(id)
}

const HASH_LENGTH = 27

function shortId (id: string): string {
  // Not as UTF-8, which encodes all lone surrogates alike.
  return `call_${hash('sha256', Buffer.from(id, 'utf16le'), 'base64url').slice(0, HASH_LENGTH)}`
}

/** Ids of the conversation that an answer is compared with: the last ones, and none that a vendor can't have made. */
const MOST_EARLIER = 10_000
const LONGEST_EARLIER = 1000

/** What an answer needs to know of its request: of the calls, the tools, and the cache. */
export interface EarlierCalls {
  /** of the calls in the conversation, as the client has them */
  readonly ids: ReadonlySet<string>
  /** names of tools that upstreams get in the place of the client's, by those (tool-names.ts) */
  readonly names: ReadonlyMap<string, string>
  /** what it writes to a cache lives for an hour (cache-marks.ts) */
  readonly writesLong: boolean
}
/** Written where a thread has the body, or the answer. */
export const EarlierCalls = fact<EarlierCalls>('earlier-calls')

export function earlierIds (exchange: Exchange): EarlierCalls['ids'] {
  return exchange.find(EarlierCalls)?.ids ?? new Set(idsIn(exchange.request.body.messages))
}

function idsIn (messages: unknown): readonly string[] {
  const ids: string[] = []
  for (const block of callsIn(messages)) {
    const id = textIn(block.id)
    if (id.length <= LONGEST_EARLIER) ids.push(id)
  }
  return ids.slice(-MOST_EARLIER)
}

/** The calls in a conversation. */
export function * callsIn (messages: unknown): Generator<Json> {
  if (!Array.isArray(messages)) return
  for (const turn of messages) {
    if (!isRecord(turn) || turn.role !== 'assistant' || !Array.isArray(turn.content)) continue
    for (const block of turn.content) if (isRecord(block) && block.type === 'tool_use') yield block
  }
}

/** Most calls of an answer: no model makes as many. */
const MOST_CALLS = 1000

/** The ids of an answer's calls, as the client gets them: unique in the conversation. */
export class CallIds {
  readonly #exchange: Exchange
  // Made and read with the first call: most answers have none.
  #taken: Set<string> | undefined
  #earlier: EarlierCalls['ids'] | undefined
  #calls = 0

  constructor (exchange: Exchange) {
    this.#exchange = exchange
  }

  /**
   * A generated id for a call without one, or with that of another call.
   * @throws {Error} there are too many calls
   */
  next (theirs: string): string {
    if (this.#calls === MOST_CALLS) throw new Error(`the answer has more than ${MOST_CALLS} calls`)
    const id = theirs === '' ? this.#generate() : clientId(theirs)
    const own = this.#isTaken(id) ? this.#generate() : id
    this.#calls++
    this.#taken ??= new Set()
    this.#taken.add(own)
    return own
  }

  #isTaken (id: string): boolean {
    this.#earlier ??= earlierIds(this.#exchange)
    return this.#taken?.has(id) === true || this.#earlier.has(id)
  }

  /** The id of the request makes it unique in the conversation. */
  #generate (): string {
    const request = this.#exchange.id.slice(this.#exchange.id.indexOf('_') + 1)
    let number = this.#calls
    let id = ''
    do id = `toolu_${request}_${number++}`
    while (this.#isTaken(id))
    return id
  }
}

/** Of one of the client's ids: the ids of its calls since the last question, in their order. */
interface Pair {
  readonly sent: string[]
  question: number
  answered: number
}

/** Characters for the number of an id that came before. */
const NUMBER_LENGTH = 8

/**
 * The ids of a conversation as an upstream gets them: each call has its own, and its result the same. The n-th result
 * with an id belongs to the n-th call with it in the turn before.
 */
export class SentIds {
  readonly #longest: number
  readonly #form: (id: string) => string
  // Made with the first call: most conversations have none.
  #used: Set<string> | undefined
  /** the next number, by what stands before it */
  #numbers: Map<string, number> | undefined
  #pairs: Map<string, Pair> | undefined
  #question = 0

  /**
   * @param longest characters of an id at the strictest vendor of the dialect
   * @param form a client's id in the dialect: by default the vendor's own
   */
  constructor (longest: number, form = vendorsId) {
    this.#longest = longest
    this.#form = form
  }

  /** A turn of the user begins: the calls behind it are those of another answer. */
  question (): void {
    this.#question++
  }

  call (theirs: unknown): string {
    const id = textIn(theirs)
    const sent = this.#unique(id === '' ? 'call' : this.#own(id))
    this.#pairs ??= new Map()
    const pair = this.#pairs.get(id)
    if (pair?.question === this.#question) pair.sent.push(sent)
    else this.#pairs.set(id, { sent: [sent], question: this.#question, answered: 0 })
    return sent
  }

  result (theirs: unknown): string {
    const id = textIn(theirs)
    const pair = this.#pairs?.get(id)
    if (pair === undefined) return this.#own(id)
    return pair.sent[Math.min(pair.answered++, pair.sent.length - 1)]!
  }

  /** The same in each turn. */
  #own (id: string): string {
    const own = this.#form(id)
    return own.length <= this.#longest ? own : shortId(own)
  }

  #unique (id: string): string {
    let sent = id
    this.#used ??= new Set()
    if (this.#used.has(id)) {
      const begin = id.slice(0, this.#longest - NUMBER_LENGTH)
      this.#numbers ??= new Map()
      let number = this.#numbers.get(begin) ?? 2
      while (this.#used.has(sent = `${begin}_${number}`)) number++
      this.#numbers.set(begin, number + 1)
    }
    this.#used.add(sent)
    return sent
  }
}

/** The conversation with other ids of calls; the same object where none changes. */
export function withSentIds (messages: unknown, ids: SentIds): unknown {
  if (!Array.isArray(messages)) return messages
  let changed: unknown[] | undefined
  for (let i = 0; i < messages.length; i++) {
    const turn: unknown = messages[i]
    if (!isRecord(turn)) continue
    if (turn.role === 'user') ids.question()
    if (!Array.isArray(turn.content)) continue
    const content = changedBlocks(turn.content, ids)
    if (content === undefined) continue
    changed ??= [...messages]
    changed[i] = { ...turn, content }
  }
  return changed ?? messages
}

/** Undefined: they stay as they are. */
function changedBlocks (blocks: readonly unknown[], ids: SentIds): readonly unknown[] | undefined {
  let changed: unknown[] | undefined
  for (let i = 0; i < blocks.length; i++) {
    const block = blocks[i]
    const field = isRecord(block) ? FIELDS.get(block.type) : undefined
    if (field === undefined) continue
    const { [field]: id } = block as Json
    const sent = field === 'id' ? ids.call(id) : ids.result(id)
    if (sent === id) continue
    changed ??= [...blocks]
    changed[i] = { ...block as Json, [field]: sent }
  }
  return changed
}

/** Where blocks of the inner language have the id of a call. */
const FIELDS: ReadonlyMap<unknown, 'id' | 'tool_use_id'> = new Map([['tool_use', 'id'], ['tool_result', 'tool_use_id']])

/** Tells the calls of a whole answer that are there twice: vLLM repeats them. */
export class SeenCalls {
  // Made with the first call: most answers have none.
  #first: Map<string, Json> | undefined
  /** of calls under one key, as JSON */
  #all: Map<string, Set<string>> | undefined

  /** @param key the vendor's id, or the place @param call its name and input */
  isRepeated (key: string, call: Json): boolean {
    this.#first ??= new Map()
    const first = this.#first.get(key)
    if (first === undefined) {
      this.#first.set(key, call)
      return false
    }
    this.#all ??= new Map()
    let all = this.#all.get(key)
    if (all === undefined) this.#all.set(key, all = new Set([JSON.stringify(first)]))
    const text = JSON.stringify(call)
    if (all.has(text)) return true
    all.add(text)
    return false
  }
}
