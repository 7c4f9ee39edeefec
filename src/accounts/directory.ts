// Accounts, keys and tokens made through the admin API, beside those of gateway.yaml: memory answers at once, the store
// keeps them. Returned objects are frozen and replaced as a whole, so that a change holds from the next request on, and
// caches can be keyed by the object.
import { setImmediate as turn } from 'node:timers/promises'
import type { AccountConfig, KeyConfig } from '../config/config.ts'
import { Digests } from './digests.ts'
import type { ReadRecords, Records, StoredRecord } from '../store/store.ts'
import { startTimer, type Timer } from '../base/timer.ts'

/** Milliseconds until a store that could not be read is read again. */
const RETRY_MS = 1000
/** Milliseconds to which the last use of a token is known: each costs a write. */
const USE_MS = 3_600_000
/** Records processed in one turn of the event loop: a few milliseconds, because requests wait meanwhile. */
const SLICE = 1000

/** The settings of a key without its secret. */
export type KeySettings = Omit<KeyConfig, 'secret'>

export interface KeptSecret {
  /** hexadecimal */
  readonly sha256: string
  /** ISO 8601; present: the secret was rotated, and is valid until then */
  readonly until?: string
}

export interface KeyRecord {
  readonly settings: KeySettings
  /** the current one first */
  readonly secrets: readonly KeptSecret[]
  /** beginning and end of the current secret, by which its owner recognizes it */
  readonly shown: string
  readonly created_at: string
  readonly expires_at?: string
  /** the id is never given to another key: the ledger refers to it */
  readonly deleted_at?: string
}

export interface AccountRecord {
  readonly settings: AccountConfig
  readonly created_at: string
}

/** Of an admin token: a viewer reads, an operator changes all but money and tokens, an owner may do everything. */
export const roles = ['viewer', 'operator', 'owner'] as const
export type Role = typeof roles[number]

export interface TokenRecord {
  readonly id: string
  /** of its bearer, for people */
  readonly name: string
  readonly role: Role
  /** of the secret, hexadecimal; absent: it is revoked */
  readonly sha256?: string
  /** beginning and end of the secret, by which its owner recognizes it */
  readonly shown: string
  readonly created_at: string
  readonly expires_at?: string
  /** the hour of its last use */
  readonly last_used_at?: string
  /** its line stays: the audit log refers to it */
  readonly revoked_at?: string
}

/** What the store keeps, by kind. */
interface RecordOf {
  readonly key: KeyRecord
  readonly account: AccountRecord
  readonly token: TokenRecord
}
const kinds: readonly StoredRecord['kind'][] = ['key', 'account', 'token']

export interface Kept<T> {
  readonly id: string
  readonly version: number
  readonly record: T
}

/** The record to be kept, if there is one, and its line in the audit log. */
export interface Decision extends Partial<RecordOf> {
  readonly audit: Readonly<Record<string, unknown>>
}

/** A key found by its secret. */
interface Found {
  readonly key: KeyConfig
  /** milliseconds since the epoch */
  readonly until: number
}

/** The store did not say whether it has kept a change. */
export class UnknownOutcome extends Error {
  override readonly name = 'UnknownOutcome'
}

export class Directory {
  readonly #records: Records
  readonly #now: () => number
  readonly #timer: Timer
  readonly #kept: { readonly [Kind in keyof RecordOf]: Map<string, Kept<RecordOf[Kind]>> } = {
    key: new Map(), account: new Map(), token: new Map()
  }
  readonly #digests = new Digests<Found>()
  readonly #tokens = new Digests<Kept<TokenRecord>>()
  /** hours of the last uses that were noted, by the token's id */
  readonly #used = new Map<string, string>()
  /** changes run one at a time: each is decided on the result of the one before */
  #turn: Promise<unknown> = Promise.resolve()
  /** how often something of each kind has changed, here or elsewhere; of an account, its money from here too */
  readonly changes: Record<StoredRecord['kind'], number> = { key: 0, account: 0, token: 0 }
  #isStale = false
  /** the store's mark of the last read */
  #mark = ''
  #isRefreshing = false
  #cancelRefresh: () => void = () => {}

  constructor (records: Records, now: () => number, timer: Timer = startTimer) {
    this.#records = records
    this.#now = now
    this.#timer = timer
  }

  /** Reads the store; an unchanged record keeps its object. @throws {Error} the store can't be read */
  async load (): Promise<void> {
    const { records, isWhole, mark } = await this.#read()
    const gone = new Set(isWhole ? kinds.flatMap((kind) => [...this.#kept[kind].keys()].map((id) => `${kind}:${id}`))
      : [])
    for (let i = 0; i < records.length; i += SLICE) {
      if (i > 0) await turn()
      for (const record of records.slice(i, i + SLICE)) {
        // One of a later version's may be of another kind.
        if (!kinds.includes(record.kind)) continue
        gone.delete(`${record.kind}:${record.id}`)
        if (!this.#has(record)) this.#take(record)
      }
    }
    // A store that lost its last moments counts all the same, as in every process that starts after that.
    for (const name of gone) {
      const colon = name.indexOf(':')
      this.#forget(name.slice(0, colon) as StoredRecord['kind'], name.slice(colon + 1))
    }
    this.#mark = mark
    this.#isStale = false
  }

  /** @throws {Error} the record's text is broken: names the record */
  #take (record: StoredRecord): void {
    try {
      this.#put(record)
    } catch (cause) {
      throw new Error(`the record of the ${record.kind} ${record.id} in the store can't be read: ` +
        (cause as Error).message, { cause })
    }
  }

  async #read (): Promise<ReadRecords> {
    return await this.#records.recordsSince?.(this.#mark) ??
      { mark: '', isWhole: true, records: await this.#records.records() }
  }

  /** Compares texts too: a store that lost a change may have another one of the same version. */
  #has ({ kind, id, version, text }: StoredRecord): boolean {
    const known = this.#kept[kind].get(id)
    return known?.version === version && JSON.stringify(known.record) === text
  }

  /** Follows the changes of other processes in the store. @returns stops that */
  follow (): () => void {
    const unwatch = this.#records.watchRecords?.(() => { this.#refresh() })
    return () => {
      this.#cancelRefresh()
      unwatch?.()
    }
  }

  /** A notification that comes while a read waits for its turn is served by that read. */
  #refresh (): void {
    this.#cancelRefresh()
    if (this.#isRefreshing) return
    this.#isRefreshing = true
    this.#turn = this.#turn.then(async () => {
      this.#isRefreshing = false
      await this.load()
    }).catch(() => { this.#cancelRefresh = this.#timer(RETRY_MS, () => { this.#refresh() }) })
  }

  #forget (kind: StoredRecord['kind'], id: string): void {
    this.changes[kind]++
    if (kind === 'key') {
      for (const { sha256 } of this.#kept.key.get(id)?.record.secrets ?? []) this.#digests.delete(bytesOf(sha256))
    } else if (kind === 'token') {
      const { sha256 } = this.#kept.token.get(id)?.record ?? {}
      if (sha256 !== undefined) this.#tokens.delete(bytesOf(sha256))
    }
    this.#kept[kind].delete(id)
  }

  /** The key of a secret, by its SHA-256; frozen keys included, deleted and expired ones not. */
  findKey (digest: Buffer): KeyConfig | undefined {
    const found = this.#digests.find(digest)
    return found === undefined || this.#now() >= found.until ? undefined : found.key
  }

  /** The admin token of a secret, by its SHA-256; revoked and expired ones not. */
  findToken (digest: Buffer): Kept<TokenRecord> | undefined {
    const found = this.#tokens.find(digest)
    return found === undefined || this.#now() >= endOf(found.record) ? undefined : found
  }

  /** By its id; undefined: there is none, it was revoked, or has expired. */
  activeToken (id: string): Kept<TokenRecord> | undefined {
    const found = this.#kept.token.get(id)
    return found?.record.sha256 === undefined || this.#now() >= endOf(found.record) ? undefined : found
  }

  /** Keeps the hour in which a token was used, in the background; where the store does not take it, it is lost. */
  noteUse (id: string): void {
    const at = this.#now()
    const hour = new Date(at - at % USE_MS).toISOString()
    if (this.#used.get(id) === hour) return
    this.#used.set(id, hour)
    this.#queue(async () => {
      const record = this.#kept.token.get(id)?.record
      if (record?.sha256 === undefined || record.last_used_at === hour) return
      await this.#keep({ token: { ...record, last_used_at: hour } })
    }).catch(() => {})
  }

  account (id: string): AccountConfig | undefined {
    return this.#kept.account.get(id)?.record.settings
  }

  /** The record of a key, deleted ones included. */
  keptKey (id: string): Kept<KeyRecord> | undefined {
    return this.#kept.key.get(id)
  }

  keptAccount (id: string): Kept<AccountRecord> | undefined {
    return this.#kept.account.get(id)
  }

  keptToken (id: string): Kept<TokenRecord> | undefined {
    return this.#kept.token.get(id)
  }

  /** All tokens, revoked and expired ones too. */
  keptTokens (): readonly Kept<TokenRecord>[] {
    return [...this.#kept.token.values()]
  }

  keptKeys (): readonly Kept<KeyRecord>[] {
    return [...this.#kept.key.values()].filter(({ record }) => record.deleted_at === undefined)
  }

  /** The deleted keys: what they have spent stays. */
  deletedKeys (): readonly Kept<KeyRecord>[] {
    return [...this.#kept.key.values()].filter(({ record }) => record.deleted_at !== undefined)
  }

  keptAccounts (): readonly Kept<AccountRecord>[] {
    return [...this.#kept.account.values()]
  }

  /**
   * Decides a change on the present state, keeps it, and only then shows it to requests.
   * @param decide may throw: then nothing changes
   * @throws {UnknownOutcome} it may be kept or not; the store is read again before the next change
   */
  async change (decide: () => Decision | Promise<Decision>): Promise<void> {
    await this.#queue(async () => {
      if (this.#isStale) {
        try {
          await this.load()
        } catch (cause) {
          throw new UnknownOutcome('the store can\'t be read', { cause })
        }
      }
      await this.#keep(await decide())
    })
  }

  async #queue (work: () => Promise<void>): Promise<void> {
    const turn = this.#turn.then(work)
    this.#turn = turn.catch(() => {})
    await turn
  }

  /** @throws {UnknownOutcome} */
  async #keep ({ key, account, token, audit }: Partial<Decision>): Promise<void> {
    const record = this.#next('key', key?.settings.id, key) ?? this.#next('account', account?.settings.id, account) ??
      this.#next('token', token?.id, token)
    const line = audit && JSON.stringify({ at: new Date(this.#now()).toISOString(), ...audit })
    let isKept: boolean
    try {
      isKept = await this.#records.change({ ...(record !== undefined && { record }),
        ...(line !== undefined && { audit: line }) })
    } catch (cause) {
      this.#isStale = true
      throw new UnknownOutcome('the store did not answer', { cause })
    }
    if (!isKept) {
      this.#isStale = true
      throw new UnknownOutcome('another gateway has changed the record meanwhile')
    }
    if (record !== undefined) this.#put(record)
    else this.changes.account++
  }

  /** Undefined: there is no such record. */
  #next (kind: StoredRecord['kind'], id: string | undefined, record: unknown): StoredRecord | undefined {
    return id === undefined
      ? undefined
      : { kind, id, version: (this.#kept[kind].get(id)?.version ?? 0) + 1, text: JSON.stringify(record) }
  }

  #put ({ kind, id, version, text }: StoredRecord): void {
    const record: unknown = freeze(JSON.parse(text))
    this.#forget(kind, id)
    switch (kind) {
      case 'account': this.#kept.account.set(id, { id, version, record: record as AccountRecord }); break
      case 'key': this.#putKey({ id, version, record: record as KeyRecord }); break
      case 'token': this.#putToken({ id, version, record: record as TokenRecord })
    }
  }

  #putKey (kept: Kept<KeyRecord>): void {
    const { id, record } = kept
    this.#kept.key.set(id, kept)
    if (record.deleted_at !== undefined) return
    // Every plugin reads the fact: it must not carry the secret.
    const key: KeyConfig = Object.freeze({ ...record.settings, secret: '***' })
    for (const { sha256, until } of record.secrets) {
      this.#digests.add(bytesOf(sha256), { key,
        until: Math.min(endOf(record), until === undefined ? Infinity : Date.parse(until)) })
    }
  }

  #putToken (kept: Kept<TokenRecord>): void {
    const { id, record: { sha256 } } = kept
    this.#kept.token.set(id, kept)
    if (sha256 !== undefined) this.#tokens.add(bytesOf(sha256), kept)
  }
}

/** When it expires, in milliseconds since the epoch. */
function endOf ({ expires_at: at }: { readonly expires_at?: string }): number {
  return at === undefined ? Infinity : Date.parse(at)
}

function bytesOf (sha256: string): Buffer {
  return Buffer.from(sha256, 'hex')
}

/** Freezes deeply. Objects of JSON only: no cycles. */
function freeze<T> (value: T): T {
  if (typeof value !== 'object' || value === null) return value
  for (const child of Object.values(value)) freeze(child)
  return Object.freeze(value)
}
