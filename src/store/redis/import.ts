// Fills an empty Redis with the rows of another store. A mark lies there meanwhile: with it no gateway starts, and the
// next attempt begins by removing what this one has written.
import type { Logger } from 'pino'
import type { StoreConfig } from '../../config/config.ts'
import type { Nanos } from '../../money/nanos.ts'
import { startTimer } from '../../base/timer.ts'
import { readReference } from '../late-entries.ts'
import type { FailureCount } from '../rollups.ts'
import type { Row } from '../transfer.ts'
import { oldestKept, partsOf } from '../periods.ts'
import type { BookingKind, Entry, EntryKind } from '../store.ts'
import { Sums } from '../sums.ts'
import type { Answer, Task } from '../tasks.ts'
import { type Client, clientFor, nameOf } from './address.ts'
import { checkServers } from './check-servers.ts'
import { bookingName, reasonText, streamId, whatOf } from './entries.ts'
import { Link } from './connection.ts'
import { CHARGE_MS } from './lua/account.ts'
import { RedisRecords } from './records.ts'
import { eachOf, Space } from './keyspace.ts'
import { addAllOld } from './rollups.ts'

const MARK = 'filling'
/** Commands in flight. */
const AT_ONCE = 1000
/** Long, because no request waits for the import: a Redis that is busy with it is not away. */
const TIMEOUT_MS = 30_000
/**
 * For so long an answer can be given whose charge is older than charges are remembered: the answer is about to expire.
 */
const OLD_ANSWER_MS = 3_600_000

/** Refuses to start on a Redis with an unfinished import: it would have the money of some accounts only. */
export async function refuseHalfFilled (space: Space): Promise<void> {
  const found = await space.link.call(async (client) => await client.exists(space.shared(MARK)))
  if (found > 0) {
    throw new Error('an import into this Redis has not ended: repeat "gateway store import", which begins anew')
  }
}

/**
 * @throws {Error} Redis can't be used, or is not empty, or reading the rows failed: then nothing is in it, or the mark
 * of an unfinished import
 */
export async function fillRedis (
  loaded: StoreConfig,
  log: Pick<Logger, 'info' | 'warn' | 'error'>,
  rows: AsyncIterable<Row>
): Promise<void> {
  const config = { ...loaded, timeout: TIMEOUT_MS }
  const link = new Link({ client: clientFor(config), name: nameOf(config), timeout: config.timeout, log,
    timer: startTimer, onBack: async () => true })
  const space = new Space(link, config.prefix, undefined)
  try {
    await link.open()
    await checkServers(link.masters(), log)
    await refuseUsed(space, nameOf(config))
    const mark = space.shared(MARK)
    await link.call(async (client) => await client.set(mark, '1'))
    const begin = async (): Promise<void> => { await wipe(space, config.prefix, mark) }
    const end = async (): Promise<void> => { await link.call(async (client) => await client.del(mark)) }
    try {
      await begin()                                           // removes what an earlier attempt has left
      await new Filler(space).fill(rows)
    } catch (thrown) {
      await begin().then(end).catch(() => {})
      throw thrown
    }
    await end()
  } finally {
    await link.close()
  }
}

/** @throws {Error} Redis has data, or gateways use it */
async function refuseUsed (space: Space, name: string): Promise<void> {
  const alive = await new RedisRecords(space, startTimer, { warn () {} }).beats()
  if (alive.length > 0) throw new Error(`${alive.length} gateways use Redis at ${name}: stop them first`)
  const [isFilling, ...counts] = await space.link.call(async (client) => await Promise.all([
    client.exists(space.shared(MARK)), client.scard(space.single('accounts')), client.hlen(space.shared('records')),
    client.llen(space.shared('audit'))
  ]))
  if (isFilling === 0 && counts.some((count) => count > 0)) {
    throw new Error(
      `Redis at ${name} is not empty: there are ${counts[0]} accounts in it. Name another prefix in store.prefix, ` +
      'or another server'
    )
  }
}

function isBooking (kind: EntryKind): kind is BookingKind {
  return kind === 'credit' || kind === 'refund' || kind === 'debit'
}

/** Deletes all keys of the prefix, except `kept`. */
async function wipe ({ link }: Space, prefix: string, kept: string): Promise<void> {
  for (const node of link.masters()) {
    for (const pattern of [`{${prefix}:*`, `{${prefix}}:*`, `${prefix}:*`]) {
      let cursor = '0'
      do {
        const [next, keys] = await node.scan(cursor, 'MATCH', pattern, 'COUNT', 1000)
        cursor = next
        await Promise.all(keys.filter((key) => key !== kept).map(async (key) => await node.unlink(key)))
      } while (cursor !== '0')
    }
  }
}

/** State of an account during the import. */
interface Filled {
  readonly keys: Set<string>
  /** per account, because a key may have spent of several */
  readonly sums: Sums
  credited: Nanos
  /** last id of the account's stream */
  micros: number
  seq: number
}

class Filler {
  readonly #space: Space
  readonly #accounts = new Map<string, Filled>()
  /** Older days and months are not kept: no limit counts them any more. */
  readonly #oldest = oldestKept(new Date().toISOString().slice(0, 10))
  #running: Promise<unknown>[] = []

  constructor (space: Space) {
    this.#space = space
  }

  async fill (rows: AsyncIterable<Row>): Promise<void> {
    for await (const row of rows) {
      switch (row.of) {
        case 'record': {
          const { kind, id, version, text } = row.value
          await this.#send(async (client) =>
            await client.hset(this.#space.shared('records'), `${kind}:${id}`, `${version} ${text}`)
          )
          break
        }
        case 'audit':
          await this.#send(async (client) => await client.rpush(this.#space.shared('audit'), row.value.text))
          break
        case 'entry':
          await this.#entry(row.value)
          break
        case 'task':
          await this.#task(row.value)
          break
        case 'answer':
          await this.#answer(row.value)
          break
        case 'failures':
          await this.#failures(row.value)
      }
    }
    await this.#settle()
    await Promise.all(this.#running)
    await eachOf([...this.#accounts.keys()], async (account) => { await addAllOld(this.#space, account) })
  }

  /** Sends a command without waiting for it, as long as fewer than `AT_ONCE` are in flight. */
  async #send (command: (client: Client) => Promise<unknown>): Promise<void> {
    await this.#follow(this.#space.link.call(command))
  }

  async #follow (running: Promise<unknown>): Promise<void> {
    running.catch(() => {})                                   // reported below, when it is awaited
    this.#running.push(running)
    if (this.#running.length < AT_ONCE) return
    await Promise.all(this.#running)
    this.#running = []
  }

  #account (id: string): Filled {
    let account = this.#accounts.get(id)
    if (account === undefined) {
      account = { keys: new Set(), sums: new Sums(this.#oldest), credited: 0n, micros: 0, seq: 0 }
      this.#accounts.set(id, account)
    }
    return account
  }

  async #entry (entry: Entry): Promise<void> {
    const { id, kind, account: owner, key, reference, nanos, shortfall, at, day = '' } = entry
    const account = this.#account(owner)
    if (kind === 'credit') account.credited += nanos
    const time = Date.parse(at)
    const own = streamId(id)
    account.micros = Math.max(own?.micros ?? time * 1000, account.micros)
    account.seq = Math.max(own?.seq ?? 0, account.seq + 1)
    account.sums.add(owner, key, nanos, day === '' ? undefined : day)
    const fields = ['kind', kind, 'reference', reference, 'nanos', `${nanos}`, 'at', `${time}`]
    if (key !== undefined) fields.push('key', key, 'day', day, 'what', whatOf(entry))
    else if (entry.reason !== undefined) fields.push('what', reasonText(entry))
    if (shortfall !== undefined) fields.push('shortfall', `${shortfall}`)
    const place = `${account.micros}-${account.seq}`
    await this.#send(async (client) => await client.xadd(this.#space.of(owner, 'ledger'), place, ...fields))
    if (key !== undefined) account.keys.add(key)
    if (isBooking(kind)) {
      const name = bookingName(kind, reference)
      await this.#send(async (client) => await client.sadd(this.#space.of(owner, 'references'), name))
      await this.#send(async (client) =>
        await client.set(this.#space.single(`reference:${name}`), `${nanos < 0n ? -nanos : nanos} ${owner}`)
      )
    } else if (kind !== 'shortfall') {
      const { request, isSettledLate } = readReference(reference)
      const charged = kind === 'settle'
        ? -nanos
        : isSettledLate
        ? await this.#charged(owner, request) - nanos
        : undefined
      await this.#charge(owner, request, charged === undefined ? 'r 0' : `s ${charged}`, time + CHARGE_MS - Date.now())
    }
  }

  /** A charge, from the entries before. */
  async #charged (owner: string, request: string): Promise<Nanos> {
    const known = await this.#space.link.call(async (client) =>
      await client.get(this.#space.of(owner, `charge:${request}`))
    )
    return BigInt(known?.slice(2) ?? 0)
  }

  async #charge (owner: string, request: string, what: string, left: number): Promise<void> {
    if (left > 0) {
      await this.#send(async (client) => await client.set(this.#space.of(owner, `charge:${request}`), what, 'PX', left))
    }
  }

  async #task ({ id, request_id: request, account, key, created, nanos, text }: Task): Promise<void> {
    this.#account(account).keys.add(key)
    const { of, single } = { of: (name: string) => this.#space.of(account, name),
      single: this.#space.single(`task:${id}`) }
    await this.#send(async (client) =>
      await client.hset(of(`task:${id}`), { request_id: request, key, nanos: `${nanos}`, created, is_open: '0', text })
    )
    await this.#send(async (client) => await client.zadd(of('tasks'), created, id))
    await this.#send(async (client) => await client.hset(of('tasked'), request, id))
    await this.#send(async (client) => await client.set(single, account))
  }

  async #answer (answer: Answer): Promise<void> {
    const { account, name, created, request_id: request } = answer
    this.#account(account)
    await this.#send(async (client) =>
      await client.hset(this.#space.of(account, 'answers'), name,
        JSON.stringify({ hash: answer.hash, request_id: request, created, text: answer.text }))
    )
    await this.#send(async (client) => await client.zadd(this.#space.of(account, 'answer_times'), created, name))
    // The request was charged, or the answer would have been dropped; the amount is not read any more.
    await this.#send(async (client) =>
      await client.set(this.#space.of(account, `charge:${request}`), 's 0', 'PX', OLD_ANSWER_MS, 'NX')
    )
  }

  async #failures ({ at, account, key, model, channel = '', count }: FailureCount): Promise<void> {
    this.#account(account).keys.add(key)
    await this.#follow(this.#space.ask('fail', account, count, Date.parse(at), key, model, channel))
  }

  /** Writes the sums of the entries. */
  async #settle (): Promise<void> {
    for (const [owner, { keys, sums, credited, micros, seq }] of this.#accounts) {
      const spent = new Map(
        [...keys].map((key) => [key, { s: `${sums.keys.get(key) ?? 0n}` } as Record<string, string>])
      )
      for (const [name, nanos] of sums.periods) {
        const [period, key] = partsOf(name)
        spent.get(key)![`s:${period}`] = `${nanos}`
      }
      await this.#send(async (client) =>
        await client.hset(this.#space.of(owner), { balance: `${sums.accounts.get(owner) ?? 0n}`,
          credited: `${credited}`, entries: seq, entry_time: micros })
      )
      for (const [key, purse] of spent) {
        await this.#send(async (client) => await client.hset(this.#space.of(owner, `key:${key}`), purse))
        await this.#send(async (client) => await client.sadd(this.#space.of(owner, 'keys'), key))
        await this.#send(async (client) => await client.sadd(this.#space.single(`accounts_of:${key}`), owner))
      }
      await this.#send(async (client) => await client.sadd(this.#space.single('accounts'), owner))
    }
  }
}
