// Ids of tool calls. Vendors of OpenAI's styles make them as they like ("functions.weather:0"), those of messages style
// refuse most of that: a conversation must be able to go on at either, and each vendor must get its own ids back. Some
// count from "call_0" in each answer; agents need ids that are unique in the conversation, and so do most vendors.
// An id that its maker alone takes is coded for the client, with a mark of the maker. Nothing is stored: a restarted
// gateway, or another of a fleet, computes the same ids from the same conversation.
import { hash } from 'node:crypto'
import type { Exchange } from '../../core/exchange.ts'
import { fact } from '../../core/facts.ts'
import { isRecord, type Json } from '../../base/json.ts'
import { type DialectTraits, dialects } from '../../config/sections/dialects.ts'
import type { Upstream } from '../../core/upstream.ts'
import { CODED_ID } from '../../translation/vendor-id.ts'
import { textIn } from './json.ts'
import { familyOf } from './thoughts.ts'

/** Most characters of an id that its maker gets back: LiteLLM puts signatures into ids. */
const LONGEST_KEPT = 4096

/** The prefix of ids that were coded by earlier versions, for every vendor alike. */
const PREFIX = 'gwid_'
const HASHED = 'gwhash_'
const VALID = /^[\w-]{1,64}$/
const OF_KIMI = /^functions\.([^]+):(0|[1-9]\d{0,8})$/
/** An id with a prefix of the gateway's is coded too, so that none is mistaken for one. */
const OWN = /^gw(?:id|hash|own|enc|num)_/

/** Short and computed: the marks of two upstreams are the same once in 16 million. */
const marks = new WeakMap<Upstream, string>()

function markOf (upstream: Upstream): string {
  let mark = marks.get(upstream)
  if (mark === undefined) marks.set(upstream, mark = hash('sha256', familyOf(upstream), 'base64url').slice(0, 4))
  return mark
}

/**
 * The id for the client, which sends it back. One that any vendor takes stays as it is.
 * @param name of the tool, as the vendor has it
 */
export function clientId (id: string, upstream: Upstream, name = ''): string {
  if (VALID.test(id) && isTaken(id, upstream) && !OWN.test(id)) return id
  const [, called, number] = OF_KIMI.exec(id) ?? []
  const mark = markOf(upstream)
  if (number !== undefined && called === name) return `gwnum_${mark}_${number}`
  if (id.length <= LONGEST_KEPT) {
    if (/^[\w-]+$/.test(id)) return `gwown_${mark}_${id}`
    const bytes = Buffer.from(id)
    if (bytes.toString() === id && bytes.length <= LONGEST_KEPT) return `gwenc_${mark}_${bytes.toString('base64url')}`
  }
  return hashedId(id)
}

function hashedId (id: string): string {
  return HASHED + hash('sha256', Buffer.from(id, 'utf16le'), 'base64url')
}

interface Original {
  readonly id: string
  /** whether the upstream made it, which takes it in whatever form */
  readonly isOwn: boolean
}

/** Undefined: it is not coded. */
function originalOf (id: string, upstream: Upstream, name: string | undefined): Original | undefined {
  if (!id.startsWith('gw')) return undefined
  const [, form, mark, text = ''] = CODED_ID.exec(id) ?? []
  if (form === undefined) return id.startsWith(PREFIX) ? formerly(id) : undefined
  const isOwn = mark === markOf(upstream)
  if (form === 'own') return { id: text, isOwn }
  if (form === 'num') {
    return name === undefined || !OF_KIMI.test(`functions.f:${text}`) ? undefined
      : { id: `functions.${name}:${text}`, isOwn }
  }
  const bytes = Buffer.from(text, 'base64url')
  // One spelling for one value: the decoder reads over what is no base64url.
  return bytes.toString('base64url') === text ? { id: bytes.toString(), isOwn } : undefined
}

/** What earlier versions have coded, in conversations that go on. */
function formerly (id: string): Original | undefined {
  const text = id.slice(PREFIX.length)
  const bytes = Buffer.from(text, 'base64url')
  return bytes.toString('base64url') === text ? { id: bytes.toString(), isOwn: false } : undefined
}

const HASH_LENGTH = 27

/** What Mistral takes. */
const NINE_SIGNS = /^[A-Za-z0-9]{9}$/

function wantsNine ({ config: { chat } }: Upstream): boolean {
  return chat?.call_ids === 'nine_signs'
}

function shortId (id: string, upstream: Upstream): string {
  // Not as UTF-8, which encodes all lone surrogates alike.
  const hashed = hash('sha256', Buffer.from(id, 'utf16le'), 'base64url')
  return wantsNine(upstream) ? hashed.replaceAll(/[-_]/g, 'x').slice(0, 9) : `call_${hashed.slice(0, HASH_LENGTH)}`
}

/** An id that the gateway has made, in the upstream's form. */
function formed (id: string, upstream: Upstream): string {
  return isTaken(id, upstream) ? id : shortId(id, upstream)
}

/**
 * The id of one of the client's calls for an upstream: its own as it made it; of all others one that the strictest
 * vendor of its dialect takes, the same in each turn.
 * @param name of the called tool, as the vendor has it; undefined: not known
 */
function vendorsId (id: string, upstream: Upstream, name: string | undefined): string {
  const original = originalOf(id, upstream, name)
  if (original !== undefined && (original.isOwn || isTaken(original.id, upstream))) return original.id
  return isTaken(id, upstream) ? id : shortId(original?.id ?? id, upstream)
}

function isTaken (id: string, upstream: Upstream): boolean {
  if (wantsNine(upstream)) return NINE_SIGNS.test(id)
  const { longest, arePlain } = limitsOf(upstream)
  return id.length <= longest && (arePlain !== true || VALID.test(id))
}

/** Only the dialects of text have calls. */
function limitsOf ({ config: { dialect } }: Upstream): NonNullable<DialectTraits['callIds']> {
  return dialects[dialect].callIds!
}

/** Ids of the conversation that an answer is compared with: the last ones, and none that a vendor can't have made. */
const MOST_EARLIER = 10_000
const LONGEST_EARLIER = 6012

/** What an answer needs to know of its request: of the calls, the tools, and the cache. */
export interface EarlierCalls {
  /** of the calls in the conversation, as the client has them */
  readonly ids: ReadonlySet<string>
  /** names of tools that upstreams get in the place of the client's, by those (tool-names.ts) */
  readonly names: ReadonlyMap<string, string>
  /** names of properties that upstreams get in the place of the client's, by tool (messages/property-names.ts) */
  readonly properties: ReadonlyMap<unknown, ReadonlyMap<string, string>>
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
  readonly #upstream: Upstream
  // Made and read with the first call: most answers have none.
  #taken: Set<string> | undefined
  #earlier: EarlierCalls['ids'] | undefined
  #calls = 0

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#exchange = exchange
    this.#upstream = upstream
  }

  /**
   * A generated id for a call without one, or with that of another call.
   * @param name of the tool, as the vendor has it, if it is known
   * @throws {Error} there are too many calls
   */
  next (theirs: string, name?: string): string {
    if (this.#calls === MOST_CALLS) throw new Error(`the answer has more than ${MOST_CALLS} calls`)
    const id = theirs === '' ? this.#generate() : clientId(theirs, this.#upstream, name)
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
  readonly #upstream: Upstream
  // Made with the first call: most conversations have none.
  #used: Set<string> | undefined
  /** the next number, by what stands before it */
  #numbers: Map<string, number> | undefined
  #pairs: Map<string, Pair> | undefined
  #question = 0

  constructor (upstream: Upstream) {
    this.#upstream = upstream
  }

  /** A turn of the user begins: the calls behind it are those of another answer. */
  question (): void {
    this.#question++
  }

  /** @param name of the tool, as the vendor has it */
  call (theirs: unknown, name: unknown): string {
    const id = textIn(theirs)
    const sent = this.#unique(id === '' ? formed('call', this.#upstream) : vendorsId(id, this.#upstream, textIn(name)))
    this.#pairs ??= new Map()
    const pair = this.#pairs.get(id)
    if (pair?.question === this.#question) pair.sent.push(sent)
    else this.#pairs.set(id, { sent: [sent], question: this.#question, answered: 0 })
    return sent
  }

  result (theirs: unknown): string {
    const id = textIn(theirs)
    const pair = this.#pairs?.get(id)
    if (pair === undefined) return id === '' ? id : vendorsId(id, this.#upstream, undefined)
    return pair.sent[Math.min(pair.answered++, pair.sent.length - 1)]!
  }

  #unique (id: string): string {
    let sent = id
    this.#used ??= new Set()
    if (this.#used.has(id)) {
      const begin = id.slice(0, limitsOf(this.#upstream).longest - NUMBER_LENGTH)
      this.#numbers ??= new Map()
      let number = this.#numbers.get(begin) ?? 2
      while (this.#used.has(sent = formed(`${begin}_${number}`, this.#upstream))) number++
      this.#numbers.set(begin, number + 1)
    }
    this.#used.add(sent)
    return sent
  }
}

/** The conversation with other ids of calls; the same object where none changes. */
export function withSentIds (messages: unknown, upstream: Upstream): unknown {
  if (!Array.isArray(messages)) return messages
  // Made with the first list of blocks: many conversations are texts alone.
  let ids: SentIds | undefined
  let changed: unknown[] | undefined
  for (let i = 0; i < messages.length; i++) {
    const turn: unknown = messages[i]
    if (!isRecord(turn)) continue
    if (turn.role === 'user') ids?.question()
    if (!Array.isArray(turn.content)) continue
    const content = changedBlocks(turn.content, ids ??= new SentIds(upstream))
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
    const sent = field === 'id' ? ids.call(id, (block as Json).name) : ids.result(id)
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
