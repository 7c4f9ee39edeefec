// Accounts, keys and tokens of the admin API, shared by all processes: a change is published to the others.
import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import type { Timer } from '../../base/timer.ts'
import type { AuditLine, Beat, Change, ReadRecords, StoredRecord } from '../store.ts'
import { AwayError } from './connection.ts'
import type { Space } from './keyspace.ts'

/** Milliseconds between two polls of the last change: a published message may be lost. */
const POLL_MS = 1000
/** Records per read. All 150,000 at once took so long that Redis was taken to be away (measured). */
const PAGE = 1000

export class RedisRecords {
  readonly #space: Space
  readonly #timer: Timer
  readonly #log: Pick<Logger, 'warn'>
  readonly #listeners = new Set<() => void>()
  #stop: (() => void) | undefined

  constructor (space: Space, timer: Timer, log: Pick<Logger, 'warn'>) {
    this.#space = space
    this.#timer = timer
    this.#log = log
  }

  async all (): Promise<readonly StoredRecord[]> {
    return await this.#space.orUnavailable(this.#all())
  }

  /** @throws {AwayError} */
  async #all (): Promise<readonly StoredRecord[]> {
    const [{ link }, key] = [this.#space, this.#space.shared('records')]
    const count = await link.call(async (client) => await client.hlen(key))
    const found = new Map<string, StoredRecord>()
    for (let cursor = ''; cursor !== '0';) {
      const [next, pairs] = await link.call(async (client) => await client.hscan(key, cursor || '0', 'COUNT', PAGE))
      cursor = next
      for (let i = 0; i < pairs.length; i += 2) found.set(pairs[i]!, recordOf(pairs[i]!, pairs[i + 1]!))
    }
    // Records are never removed, and each server iterates in an order of its own: after a failover in between some
    // would be missing.
    if (found.size < count) throw new AwayError('another Redis answers than the one that was asked first')
    return [...found.values()]
  }

  async since (mark: string): Promise<ReadRecords> {
    const [records, changes] = ['records', 'changes'].map((name) => this.#space.shared(name)) as [string, string]
    return await this.#space.orUnavailable(this.#space.link.repeated(async () => {
      const told = mark === '' ? null : await this.#space.link.run('since', records, changes, mark) as string[] | null
      if (told === null) {
        const newest = await this.#newest()                   // before the records: changes meanwhile are read again
        return { mark: newest, isWhole: true, records: await this.#all() }
      }
      const [newest, ...pairs] = told
      return { mark: newest!, isWhole: false,
        records: pairs.flatMap((field, i) => i % 2 === 0 ? [recordOf(field, pairs[i + 1]!)] : []) }
    }))
  }

  /** Id of the newest change; empty: there was none. @throws {AwayError} */
  async #newest (): Promise<string> {
    return await this.#space.link.call(async (client) => await client.lindex(this.#space.shared('changes'), 0)) ?? ''
  }

  async change ({ record, audit }: Change): Promise<boolean> {
    const field = record === undefined ? '' : `${record.kind}:${record.id}`
    const keys = ['records', 'audit', 'changes'].map((name) => this.#space.shared(name)) as [string, string, string]
    return await this.#space.orUnavailable(
      this.#space.link.run('change', ...keys, field, record?.version ?? 0, record?.text ?? '', audit ?? '',
        this.#channel, randomUUID())
    ) === 1
  }

  async changes (after: number, limit: number): Promise<readonly AuditLine[]> {
    const lines = await this.#space.orUnavailable(
      this.#space.link.call(async (client) =>
        await client.lrange(this.#space.shared('audit'), after, after + limit - 1)
      )
    )
    return lines.map((text, i) => ({ id: after + i + 1, text }))
  }

  async newestChanges (before: number | undefined, limit: number): Promise<readonly AuditLine[]> {
    const [{ link }, key] = [this.#space, this.#space.shared('audit')]
    return await this.#space.orUnavailable((async () => {
      const end = Math.min((before ?? Infinity) - 1, await link.call(async (client) => await client.llen(key)))
      const start = Math.max(0, end - limit)
      if (end <= start) return []
      const lines = await link.call(async (client) => await client.lrange(key, start, end - 1))
      return lines.map((text, i) => ({ id: start + i + 1, text })).reverse()
    })())
  }

  async beat (id: string, life: number, text: string): Promise<void> {
    await this.#space.orUnavailable(
      this.#space.link.run('beat', this.#space.shared('beats'), this.#space.time, id, life, text)
    )
  }

  async beats (): Promise<readonly Beat[]> {
    const told = await this.#space.orUnavailable(
      this.#space.link.run('beats', this.#space.shared('beats'), this.#space.time)
    ) as (number | string)[]
    return told.flatMap((age, i) => i % 2 === 0 ? [{ age_ms: Number(age), text: told[i + 1] as string }] : [])
  }

  /** @returns stops watching */
  watch (onChange: () => void): () => void {
    this.#listeners.add(onChange)
    this.#stop ??= this.#listen()
    return () => { this.#listeners.delete(onChange) }
  }

  close (): void {
    this.#stop?.()
    this.#listeners.clear()
  }

  get #channel (): string {
    return this.#space.shared('changed')
  }

  #listen (): () => void {
    let last: string | undefined
    let isOver = false
    let cancel = (): void => {}
    const tell = (now: string): void => {
      if (last === now || isOver) return
      last = now
      for (const listener of this.#listeners) listener()
    }
    const poll = async (): Promise<void> => {
      try {
        // The first time too: records read before may be older.
        tell(await this.#newest())
      } catch { /* the connection reports the outage, and the next poll finds what was missed */ }
      if (!isOver) cancel = this.#timer(POLL_MS, () => { void poll() })
    }
    void poll()
    const hear = (channel: string, message: string): void => { if (channel === this.#channel) tell(message) }
    const subscriber = this.#space.link.subscriber((connected) => {
      connected.subscribe(this.#channel).catch((err: unknown) => {
        if (!isOver) {
          this.#log.warn({ err }, 'Redis does not tell at once what others change: it is looked for each second')
        }
      })
    })
    subscriber.on('message', hear)
    subscriber.on('error', () => {}) // it connects again by itself
    return () => {
      isOver = true
      cancel()
      subscriber.off('message', hear)
      this.#space.link.release(subscriber)
    }
  }
}

function recordOf (field: string, value: string): StoredRecord {
  const [at, colon] = [value.indexOf(' '), field.indexOf(':')]
  return { kind: field.slice(0, colon) as StoredRecord['kind'], id: field.slice(colon + 1),
    version: Number(value.slice(0, at)), text: value.slice(at + 1) }
}
