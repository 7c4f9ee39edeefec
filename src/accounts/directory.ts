// Accounts and keys made through the admin API, beside those of gateway.yaml: memory answers at once, the store keeps
// them. Returned objects are frozen and replaced as a whole, so that a change holds from the next request on, and
// caches can be keyed by the object.
import { setImmediate as turn } from 'node:timers/promises'
import type { AccountConfig, KeyConfig } from '../config/config.ts'
import { Digests } from './digests.ts'
import type { ReadRecords, Records, StoredRecord } from '../store/store.ts'
import { startTimer, type Timer } from '../base/timer.ts'

/** Milliseconds until a store that could not be read is read again. */
const RETRY_MS = 1000
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

export interface Kept<T> {
  readonly id: string
  readonly version: number
  readonly record: T
}

/** The records to be kept, and their line in the audit log. */
export interface Decision {
  readonly key?: KeyRecord
  readonly account?: AccountRecord
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
  readonly #keys = new Map<string, Kept<KeyRecord>>()
  readonly #accounts = new Map<string, Kept<AccountRecord>>()
  readonly #digests = new Digests<Found>()
  /** changes run one at a time: each is decided on the result of the one before */
  #turn: Promise<unknown> = Promise.resolve()
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
    const gone = isWhole ? { key: new Set(this.#keys.keys()), account: new Set(this.#accounts.keys()) } : undefined
    for (let i = 0; i < records.length; i += SLICE) {
      if (i > 0) await turn()
      for (const record of records.slice(i, i + SLICE)) {
        gone?.[record.kind].delete(record.id)
        if (!this.#has(record)) this.#take(record)
      }
    }
    // A store that lost its last moments counts all the same, as in every process that starts after that.
    for (const id of gone?.key ?? []) this.#forgetKey(id)
    for (const id of gone?.account ?? []) this.#accounts.delete(id)
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
    const known = (kind === 'key' ? this.#keys : this.#accounts).get(id)
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

  #forgetKey (id: string): void {
    for (const { sha256 } of this.#keys.get(id)?.record.secrets ?? []) this.#digests.delete(Buffer.from(sha256, 'hex'))
    this.#keys.delete(id)
  }

  /** The key of a secret, by its SHA-256; frozen keys included, deleted and expired ones not. */
  findKey (digest: Buffer): KeyConfig | undefined {
    const found = this.#digests.find(digest)
    return found === undefined || this.#now() >= found.until ? undefined : found.key
  }

  account (id: string): AccountConfig | undefined {
    return this.#accounts.get(id)?.record.settings
  }

  /** The record of a key, deleted ones included. */
  keptKey (id: string): Kept<KeyRecord> | undefined {
    return this.#keys.get(id)
  }

  keptAccount (id: string): Kept<AccountRecord> | undefined {
    return this.#accounts.get(id)
  }

  keptKeys (): readonly Kept<KeyRecord>[] {
    return [...this.#keys.values()].filter(({ record }) => record.deleted_at === undefined)
  }

  /** The deleted keys: what they have spent stays. */
  deletedKeys (): readonly Kept<KeyRecord>[] {
    return [...this.#keys.values()].filter(({ record }) => record.deleted_at !== undefined)
  }

  keptAccounts (): readonly Kept<AccountRecord>[] {
    return [...this.#accounts.values()]
  }

  /**
   * Decides a change on the present state, keeps it, and only then shows it to requests.
   * @param decide may throw: then nothing changes
   * @throws {UnknownOutcome} it may be kept or not; the store is read again before the next change
   */
  async change (decide: () => Decision | Promise<Decision>): Promise<void> {
    const turn = this.#turn.then(async () => { await this.#change(decide) })
    this.#turn = turn.catch(() => {})
    await turn
  }

  async #change (decide: () => Decision | Promise<Decision>): Promise<void> {
    if (this.#isStale) {
      try {
        await this.load()
      } catch (cause) {
        throw new UnknownOutcome('the store can\'t be read', { cause })
      }
    }
    const { key, account, audit } = await decide()
    const record = key !== undefined
      ? this.#next('key', key.settings.id, this.#keys.get(key.settings.id)?.version, key)
      : account && this.#next('account', account.settings.id, this.#accounts.get(account.settings.id)?.version, account)
    const line = JSON.stringify({ at: new Date(this.#now()).toISOString(), ...audit })
    let isKept: boolean
    try {
      isKept = await this.#records.change({ ...(record !== undefined && { record }), audit: line })
    } catch (cause) {
      this.#isStale = true
      throw new UnknownOutcome('the store did not answer', { cause })
    }
    if (!isKept) {
      this.#isStale = true
      throw new UnknownOutcome('another gateway has changed the record meanwhile')
    }
    if (record !== undefined) this.#put(record)
  }

  #next (kind: StoredRecord['kind'], id: string, version: number | undefined, record: unknown): StoredRecord {
    return { kind, id, version: (version ?? 0) + 1, text: JSON.stringify(record) }
  }

  #put ({ kind, id, version, text }: StoredRecord): void {
    if (kind === 'account') {
      this.#accounts.set(id, { id, version, record: freeze(JSON.parse(text) as AccountRecord) })
      return
    }
    const record = freeze(JSON.parse(text) as KeyRecord)
    this.#forgetKey(id)
    this.#keys.set(id, { id, version, record })
    if (record.deleted_at !== undefined) return
    // Every plugin reads the fact: it must not carry the secret.
    const key: KeyConfig = Object.freeze({ ...record.settings, secret: '***' })
    const expires = record.expires_at === undefined ? Infinity : Date.parse(record.expires_at)
    for (const { sha256, until } of record.secrets) {
      this.#digests.add(Buffer.from(sha256, 'hex'), { key,
        until: Math.min(expires, until === undefined ? Infinity : Date.parse(until)) })
    }
  }
}

/** Freezes deeply. Objects of JSON only: no cycles. */
function freeze<T> (value: T): T {
  if (typeof value !== 'object' || value === null) return value
  for (const child of Object.values(value)) freeze(child)
  return Object.freeze(value)
}
