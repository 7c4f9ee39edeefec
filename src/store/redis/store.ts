// The store that many processes share: every decision is one script in Redis (redis/lua/), each of which touches one
// account and so one slot of a cluster. Any number of gateways decide alike, by Redis's clock.
//
// - `hold`, `extend` and `admit` are one round trip each. A repetition is known by the decision's number, so a
//   connection that breaks in between is no reason to refuse.
// - A charge is known in this process: at most the hold. So `settle` and `refund` are written into the outbox
//   (redis/outbox.ts), which survives a kill, and answer; Redis receives them right after, or when it is back. The
//   first one counts there, by the request's id.
// - A hold and a slot are leased to this process for half a minute, and again with each renewal. Those of a dead
//   process are given back then, or charged up to their last recorded progress; its settlements come from its outbox,
//   when it is started again. After an outage no lease is over before its process had time to renew it.
// - While Redis is away, decisions fail at once, or follow `on_outage`. Never is a request free, nor is a key called
//   wrong. When Redis is back it first receives the leases of living processes and the charges, and only then decides
//   again (redis/connection.ts).
// - A failover may forget what was not replicated: holds and admissions, for as long as its lag was. Charges, refunds
//   and bookings of the last minutes are sent again to a Redis that may be another one than before.
// - The balance of an account, what its keys have spent and its ledger change in one script: `verify` adds up one
//   account after the other.
import { randomUUID } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Logger } from 'pino'
import type { StoreConfig } from '../../config/config.ts'
import { GatewayError } from '../../errors.ts'
import { MOST_NANOS, type Nanos, parseUsd } from '../../money/nanos.ts'
import { isDay } from '../../money/calendar.ts'
import { startTimer, type Timer } from '../../base/timer.ts'
import { refuseAmount, refuseBooking, refuseNegative, refuseUsage } from '../local/balances.ts'
import { oldestKept } from '../periods.ts'
import { clientFor, nameOf } from './address.ts'
import { Admissions } from './admissions.ts'
import { backupOf } from './backup.ts'
import { BudgetLease } from './budget-lease.ts'
import { checkServers } from './check-servers.ts'
import { Delivery, type Message } from './outbox-delivery.ts'
import { Ended } from './ended.ts'
import { LedgerGuard } from './guard.ts'
import { bookingName, merged, readEntry, reasonText, refundText, textOf, type Raw } from './entries.ts'
import { refuseHalfFilled } from './import.ts'
import { AwayError, Link } from './connection.ts'
import { CHARGE_MS, LEASE_MS } from './lua/account.ts'
import { Outbox } from './outbox.ts'
import { RedisRecords } from './records.ts'
import { RedisResponses } from './responses.ts'
import { RecentRequests, type Charge, type Hold } from './requests.ts'
import { newest } from './newest.ts'
import { RedisRollups } from './rollups.ts'
import { eachOf, Space } from './keyspace.ts'
import { RedisTasks } from './tasks.ts'
import { verify } from './verify.ts'
import { steady } from '../local/rate-windows.ts'
import type { Admission, AdmissionResult, AuditLine, Balance, Beat, Booked, Booking, BookingKind, Change, Entry,
  HoldRequest, HoldResult, KeyUsage, ReadRecords, Records, Settlement, Store, StoredRecord, StoreHealth,
  Verification } from '../store.ts'
import type { Backup } from '../backup.ts'
import type { EntryPage, EntryQuery, Failure, FailureCount, Rollup, RollupQuery, Rollups } from '../rollups.ts'
import { NewestTasks } from '../newest-tasks.ts'
import type { Answer, Answers, Movable, NewTask, Task, TaskPage, Tasks, TaskSearch } from '../tasks.ts'

export interface RedisStoreOptions {
  readonly config: StoreConfig
  /** the data folder, absolute: the outbox lies in it */
  readonly folder: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** milliseconds since the epoch, for tests; absent: Redis's own time counts */
  readonly now?: () => number
  /** runs the work in the background */
  readonly timer?: Timer
}

/** Milliseconds between two checks of the leases, which are renewed when a third of their life is over. */
const RENEW_MS = 5000
const RENEW_AFTER_MS = LEASE_MS / 3
/** Milliseconds between two progress records of the same request, and before the first. */
const PROGRESS_MS = 2000
/**
 * Milliseconds between two sweeps for holds of dead processes, and accounts per sweep: 30 microseconds of Redis for
 * each.
 */
const SWEEP_MS = 15_000
const SWEPT_AT_ONCE = 500
/** Milliseconds between two looks for entries that are not in the rollups, and between two sendings of failures. */
const ADD_OLD_MS = 5000
const FAILURES_MS = 1000
/** Charges remembered whole, so that they can be refunded: a refund follows its settlement at once. */
const REFUNDABLE = 5000
/**
 * A settlement that waited for longer may have been executed so long ago that Redis has forgotten its id: the ledger is
 * searched for it.
 */
const OLD_MS = CHARGE_MS - 3_600_000
/** Entries of an account per read. */
const PAGE = 500
/** Milliseconds for messages on their way at the end. */
const CLOSE_MS = 5000

const UNCHECKED = 'The balance cannot be checked at this moment. Nothing was charged: try again in {wait}.'

export class RedisStore implements Store, Records, Tasks, Answers, Movable, Rollups {
  readonly responses: RedisResponses
  readonly backup: Backup = backupOf(this)
  readonly #config: StoreConfig
  readonly #log: RedisStoreOptions['log']
  readonly #timer: Timer
  readonly #link: Link
  readonly #space: Space
  /** for messages that Redis must have before any decision */
  readonly #early: Space
  readonly #outbox: Outbox
  readonly #delivery: Delivery
  readonly #ended: Ended
  #guard!: LedgerGuard
  readonly #tasks: RedisTasks
  readonly #records: RedisRecords
  readonly #rollups: RedisRollups
  readonly #owner = randomUUID()
  readonly #holds = new Map<string, Hold>()
  readonly #admissions: Admissions
  readonly #charges = new RecentRequests<Charge>(REFUNDABLE)
  readonly #charged = new RecentRequests<Nanos>()
  /** accounts, and pairs of account and key, known to be in Redis's lists */
  readonly #listed = new Set<string>()
  /** absent: this process may not go on alone while Redis is away */
  readonly #budgetLease: BudgetLease | undefined
  readonly #steady: () => number
  readonly #taken = new Set<(id: string) => void>()
  readonly #cancels = new Map<string, () => void>()
  /** ids of the Redis that has received everything */
  #known = ''
  readonly #knownFile: string
  /** ends when `#known` is on the disk */
  #noted: Promise<void> | undefined
  #sweepCursor = '0'
  /** accounts to be swept again: leases did not count yet, or there were more holds */
  #unswept: string[] = []
  #verifying: Promise<Verification> | undefined
  #closing: Promise<void> | undefined

  /** @throws {Error} Redis or the data folder can't be used: says why, in words for the operator */
  static async open (options: RedisStoreOptions): Promise<RedisStore> {
    const { config, folder, log, timer = startTimer } = options
    const outbox = await Outbox.open(path.join(folder, 'outbox'), log as Logger)
    let store: RedisStore | undefined
    const link = new Link({
      client: clientFor(config), name: nameOf(config), timeout: config.timeout, log, timer,
      onAway: () => { if (store !== undefined) store.#delivery.hold() },
      onBack: async () => store === undefined || await store.#noteBack(),
      onCheck: async () => store !== undefined && await store.#isCheckDue(),
      onUp: () => { if (store !== undefined && store.#guard.loss === undefined) void store.#delivery.go() }
    })
    try {
      await link.open()
      await link.patiently(async () => { await checkServers(link.masters(), log) })
      const opened = store = new RedisStore(options, link, outbox)
      opened.#known = await readFile(opened.#knownFile, 'utf8').catch(() => '')
      await link.patiently(async () => { await refuseHalfFilled(opened.#space) })
      opened.#guard = await LedgerGuard.open(path.join(folder, 'outbox'), opened.#early)
      await link.patiently(async () => { await opened.#check() })
      await link.patiently(async () => { await opened.#tasks.take() })
      await opened.#tell()
      opened.#begin()
      return opened
    } catch (thrown) {
      link.close()
      await outbox.close()
      throw thrown
    }
  }

  private constructor (
    { config, folder, log, now, timer = startTimer }: RedisStoreOptions,
    link: Link,
    outbox: Outbox
  ) {
    this.#knownFile = path.join(folder, 'outbox', 'redis-ids.json')
    this.#config = config
    this.#log = log
    this.#timer = timer
    this.#link = link
    this.#outbox = outbox
    this.#steady = now ?? steady(Date.now)
    this.#space = new Space(link, config.prefix, now)
    this.#early = new Space(link, config.prefix, now, link.early)
    this.#delivery = new Delivery(outbox, async (message) => { await this.#send(message) }, log)
    this.#ended = new Ended(this.#early)
    this.#tasks = new RedisTasks(this.#space, this.#delivery, this.#owner, (id) => {
      for (const told of this.#taken) { told(id) }
    })
    this.#records = new RedisRecords(this.#space, timer, log)
    this.#rollups = new RedisRollups(this.#space, this.#owner, async (account, key) => {
      await this.#list(account, key)
    })
    this.responses = new RedisResponses({ config, now, timer, log })
    const { limits, money, lease_usd: lease } = config.on_outage
    this.#budgetLease = money === 'degrade'
      ? new BudgetLease(this.#space, this.#owner, parseUsd(lease), this.#steady)
      : undefined
    this.#admissions = new Admissions(this.#space, this.#ended, limits, this.#steady)
  }

  #begin (): void {
    this.#every('renew', RENEW_MS, async () => { await this.#renewAll() })
    this.#every('sweep', SWEEP_MS, async () => { await this.#sweep() })
    this.#every('add old', ADD_OLD_MS, async () => { await this.#rollups.addOld() })
    this.#every('failures', FAILURES_MS, async () => { await this.#rollups.sendFailures() })
  }

  get health (): StoreHealth {
    const { auth, limits, money } = this.#config.on_outage
    const { isUp, lag } = this.#link
    return { isUp, lagSeconds: lag, pending: this.#delivery.size,
      holds: this.#holds.size + this.#tasks.allOpen().length, refusesKeys: !isUp && auth === 'deny',
      refusesRequests: !isUp && (limits === 'deny' || money === 'deny'),
      loss: this.#guard.loss }
  }

  get trouble (): Error | undefined {
    return this.#outbox.trouble
  }

  async book (booking: Booking): Promise<Booked> {
    this.#refuseClosed()
    this.#refuseLost()
    refuseBooking(booking)
    const { kind, account, reference, nanos, reason } = booking
    const booked = await this.#space.orUnavailable(this.#book(booking, false))
    if (booked === 'new') {
      await this.#delivery.keep(kind === 'credit'
        ? { of: kind, account, reference, nanos: `${nanos}` }
        : { of: 'book', kind, account, reference, nanos: `${nanos}`, ...(reason !== undefined && { reason }) })
    }
    return booked
  }

  /**
   * Claims the reference first, in a key outside any account; a process that finds a claim completes the booking that
   * was begun under it.
   * @param isTold it was booked before, in a Redis that may have lost it
   */
  async #book (booking: Booking, isTold: boolean): Promise<Booked> {
    const { kind, account, reference, nanos } = booking
    await this.#list(account)
    const name = bookingName(kind, reference)
    const key = this.#space.single(`reference:${name}`)
    const own = `${nanos} ${account}`
    const before = await this.#link.early.call(async (client) => await client.set(key, own, 'NX', 'GET'))
    const [, claimed, owner] = /^(\d+) (.*)$/s.exec(before ?? own)!
    const told = await this.#early.ask('book', owner!, name, kind, reference, claimed!, reasonText(booking),
      isTold ? 1 : 0) as Booked | 'much'
    if (told === 'much' || told === 'short') await this.#link.early.run('withdraw', key, own)
    if (told === 'much') throw new RangeError(`the balance of ${account} would pass ${MOST_NANOS} nano-dollars`)
    return told === 'new' && owner !== account ? 'known' : told
  }

  async credit (account: string, reference: string, nanos: Nanos): Promise<boolean> {
    return await this.book({ kind: 'credit', account, reference, nanos }) === 'new'
  }

  async amountOf (kind: BookingKind, reference: string): Promise<Nanos | undefined> {
    const name = bookingName(kind, reference)
    const key = this.#space.single(`reference:${name}`)
    const found = await this.#space.read(async (client) => await client.get(key))
    const [, nanos, account] = /^(\d+) (.*)$/s.exec(found ?? '') ?? []
    if (nanos === undefined) return undefined
    const isThere = await this.#space.read(async (client) =>
      await client.sismember(this.#space.of(account!, 'references'), name)
    )
    return isThere === 1 ? BigInt(nanos) : undefined
  }

  async credited (account: string): Promise<Nanos | undefined> {
    const found = await this.#space.read(async (client) => await client.hget(this.#space.of(account), 'credited'))
    return found === null ? undefined : BigInt(found)
  }

  async hold (request: HoldRequest): Promise<HoldResult> {
    this.#refuseUnholdable(request)
    const { request_id: id, account, key, day = '' } = request
    const hold: Hold = { account, key, day, oldest: oldestOf(day), nanos: 0n, notedAt: this.#steady(),
      renewedAt: this.#steady() }
    const ask = async (): Promise<HoldResult> => {
      const asked = this.#askForHold('hold', request)
      // Side by side, to save a round trip.
      if (!this.#isListed(account, key)) await Promise.all([asked, this.#list(account, key)])
      return await asked
    }
    let result: HoldResult
    try {
      result = await ask()
      this.#budgetLease?.note(account)
      if (result.kind === 'refused' && result.by === 'balance' && this.#budgetLease?.has(account) === true) {
        await this.#budgetLease.giveBack(account)
        result = await ask()
      }
    } catch (thrown) {
      if (!(thrown instanceof AwayError)) throw thrown
      const own = this.#budgetLease?.take(request)
      if (own?.kind === 'held') {
        this.#holds.set(id, { ...hold, nanos: own.nanos, renewedAt: Infinity, aside: this.#budgetLease!.id })
        return own
      }
      // The hold may have been taken: kept, so that it can be given back, and not renewed.
      if (!thrown.isUnasked) this.#holds.set(id, { ...hold, renewedAt: Infinity })
      throw this.#refused(thrown, UNCHECKED)
    }
    if (result.kind === 'held') this.#holds.set(id, { ...hold, nanos: result.nanos })
    return result
  }

  async wouldHold (request: HoldRequest): Promise<HoldResult> {
    this.#refuseUnholdable(request)
    try {
      return await this.#askForHold('wouldHold', request)
    } catch (thrown) {
      throw this.#refused(thrown, UNCHECKED)
    }
  }

  /** @throws the errors of `hold` that need no Redis */
  #refuseUnholdable (request: HoldRequest): void {
    const { request_id: id, nanos, day = '', usage_limit_month: month, usage_limit_day: today } = request
    this.#refuseClosed()
    this.#refuseUnwritable()
    refuseNegative(nanos)
    if (day === '' ? month !== undefined || today !== undefined : !isDay(day)) {
      throw new RangeError(`no calendar day: ${day}`)
    }
    if (this.#holds.has(id) || this.#charged.get(id) !== undefined) {
      throw new Error(`the request ${id} has a hold or a settlement already`)
    }
  }

  /** @throws {AwayError} */
  async #askForHold (script: 'hold' | 'wouldHold', request: HoldRequest): Promise<HoldResult> {
    const { request_id: id, account, key, nanos, least = 0n, day = '', usage_limit: ever, usage_limit_month: month,
      usage_limit_day: today, low_balance: low = 0n } = request
    const told = await this.#space.decide(script, account, id, key, `${nanos}`, `${least}`, day, oldestOf(day),
      `${ever ?? ''}`, `${month ?? ''}`, `${today ?? ''}`, `${low}`)
    return readResult(told as string[], request)
  }

  async extend (requestId: string, nanos: Nanos, least = nanos): Promise<HoldResult> {
    this.#refuseClosed()
    this.#refuseUnwritable()
    refuseNegative(nanos)
    refuseNegative(least)
    const hold = this.#holds.get(requestId)
    if (hold === undefined) throw new Error(`the request ${requestId} has no hold to extend`)
    let result: HoldResult | undefined
    try {
      result = hold.aside === undefined
        ? readResult(await this.#space.decide('extend', hold.account, requestId, `${nanos}`, `${least}`) as string[], {
          request_id: requestId,
          key: hold.key
        })
        : this.#budgetLease!.extend(hold.account, hold.nanos, nanos, least)
    } catch (thrown) {
      throw this.#refused(thrown, 'The balance cannot be checked at this moment.')
    }
    if (result === undefined) {
      throw new GatewayError('auth_unavailable', { message: 'The balance cannot be checked at this moment.' })
    }
    if (result.kind === 'held') hold.nanos = result.nanos
    return result
  }

  async settle (settlement: Settlement): Promise<Nanos> {
    this.#refuseClosed()
    const { request_id: id, nanos, usage } = settlement
    refuseAmount(nanos)
    refuseUsage(usage)
    const before = this.#charges.get(id)
    if (before !== undefined) {
      await before.recorded
      return before.nanos
    }
    const charged = this.#charged.get(id)
    if (charged !== undefined) return charged
    const hold = this.#holds.get(id)
    if (hold === undefined) throw new Error(`the request ${id} has no hold to settle`)
    const { account, key, day, oldest } = hold
    const covered = nanos < hold.nanos ? nanos : hold.nanos
    const recorded = this.#delivery.post({ of: 'settle', account, id, key, day, oldest, nanos: `${covered}`,
      shortfall: `${nanos - covered}`, what: textOf(settlement), at: this.#space.nearly,
      ...(hold.aside !== undefined && { aside: hold.aside }) })
    const charge: Charge = { hold, settlement, nanos: covered, recorded, isGivenBack: false }
    this.#holds.delete(id)
    this.#charges.set(id, charge)
    this.#charged.set(id, covered)
    try {
      await recorded
    } catch (thrown) {
      this.#charges.delete(id)
      this.#charged.delete(id)
      if (!charge.isGivenBack) this.#holds.set(id, hold)
      throw thrown
    }
    if (hold.aside !== undefined) this.#budgetLease!.end(account, hold.nanos - covered)
    return charge.nanos
  }

  async release (requestId: string): Promise<void> {
    const hold = this.#holds.get(requestId)
    if (hold === undefined) return
    this.#holds.delete(requestId)
    await this.#giveBack(requestId, hold)
  }

  /**
   * A hold with recorded progress is refunded: Redis may have charged that progress, where this process was silent for
   * longer than a lease.
   */
  async #giveBack (id: string, hold: Hold): Promise<void> {
    if (hold.aside !== undefined) {
      this.#budgetLease!.end(hold.account, hold.nanos)
      return
    }
    const { account, key, day, progress: what } = hold
    if (what === undefined) await this.#ended.giveBack('release', account, id)
    else await this.#delivery.post({ of: 'refund', account, id, key, day, what })
  }

  async refund (requestId: string): Promise<void> {
    const hold = this.#holds.get(requestId)
    if (hold !== undefined) { await this.release(requestId); return }
    const charge = this.#charges.get(requestId)
    if (charge === undefined || charge.isGivenBack) return
    charge.isGivenBack = true
    const { account, key, day } = charge.hold
    try {
      await charge.recorded
    } catch {
      await this.#giveBack(requestId, charge.hold)
      return
    }
    charge.nanos = 0n
    this.#charged.set(requestId, 0n)
    await this.#delivery.post({ of: 'refund', account, id: requestId, key, day, what: refundText(charge.settlement) })
  }

  async progress (soFar: Settlement): Promise<void> {
    this.#refuseClosed()
    const { request_id: id, nanos, usage } = soFar
    refuseAmount(nanos)
    refuseUsage(usage)
    const hold = this.#holds.get(id)
    const now = this.#steady()
    if (hold === undefined || hold.aside !== undefined || now - hold.notedAt < PROGRESS_MS) return
    hold.notedAt = now
    hold.progress = refundText(soFar)
    const covered = nanos < hold.nanos ? nanos : hold.nanos
    // A lost record is harmless: the next one comes in two seconds.
    await this.#space.ask('progress', hold.account, id, `${covered}`, `${nanos - covered}`, textOf(soFar)).catch(
      (thrown: unknown) => {
        if (!(thrown instanceof AwayError)) throw thrown
      }
    )
  }

  async admit (admission: Admission): Promise<AdmissionResult> {
    this.#refuseClosed()
    return await this.#admissions.admit(admission)
  }

  async wouldAdmit (admission: Admission): Promise<AdmissionResult> {
    this.#refuseClosed()
    return await this.#admissions.wouldAdmit(admission)
  }

  async leave (requestId: string): Promise<void> {
    await this.#admissions.leave(requestId)
  }

  async balance (account: string): Promise<Balance> {
    const [balance, held, open] = await this.#space.read(async (client) =>
      await client.hmget(this.#space.of(account), 'balance', 'held', 'open')
    )
    return { balance: BigInt(balance ?? 0), held: BigInt(held ?? 0), open_holds: Number(open ?? 0) }
  }

  async keyUsage (key: string, period?: string): Promise<KeyUsage> {
    const suffix = period === undefined ? '' : `:${period}`
    const list = this.#space.single(`accounts_of:${key}`)
    const accounts = await this.#space.read(async (client) => await client.smembers(list))
    const usages = await eachOf(accounts,
      async (account) =>
        await this.#space.read(async (client) =>
          await client.hmget(this.#space.of(account, `key:${key}`), `s${suffix}`, `h${suffix}`)
        ))
    return usages.reduce<KeyUsage>(
      (sum, [spent, held]) => ({ spent: sum.spent + BigInt(spent ?? 0), held: sum.held + BigInt(held ?? 0) }),
      { spent: 0n, held: 0n }
    )
  }

  async openHolds (): Promise<number> {
    const counts = await eachOf(await this.#space.accounts(),
      async (account) => await this.#space.read(async (client) => await client.hget(this.#space.of(account), 'open')))
    return counts.reduce((sum, count) => sum + Number(count ?? 0), 0)
  }

  async * entries (after?: string): AsyncIterable<Entry> {
    const accounts = await this.#space.accounts()
    // Up to the entries that are the last ones now: of an account that is busy there is always one more.
    const tips = await eachOf(accounts, async (account) => {
      const [micros, seq] = await this.#space.read(async (client) =>
        await client.hmget(this.#space.of(account), 'entry_time', 'entries')
      )
      return [account, `${micros ?? 0}-${seq ?? 0}`] as const
    })
    const last = new Map(tips)
    yield * merged(accounts, async (account, from) => await this.#page(account, from, last.get(account)), after)
  }

  async #page (account: string, from: string, to?: string): Promise<readonly Raw[]> {
    return await this.#space.orUnavailable(this.#slice(account, from, to))
  }

  /** @throws {AwayError} */
  async #slice (account: string, from: string, to = '+'): Promise<readonly Raw[]> {
    return await this.#link.early.call(async (client) =>
      await client.xrange(this.#space.of(account, 'ledger'), from, to, 'COUNT', PAGE)
    )
  }

  /** Whoever asks while it runs gets its result: Redis is read once, however many ask. */
  async verify (): Promise<Verification> {
    return await (this.#verifying ??= verify(this.#space, async (account, from, to) =>
      await this.#page(account, from, to)).finally(() => { this.#verifying = undefined }))
  }

  async rollups (query: RollupQuery): Promise<readonly Rollup[]> {
    return await this.#rollups.find(query)
  }

  failed (failure: Failure): void {
    this.#rollups.failed(failure)
  }

  async newest (query: EntryQuery): Promise<EntryPage> {
    return await newest(this.#space, query)
  }

  async openTask (task: NewTask): Promise<void> {
    this.#refuseClosed()
    const { request_id: requestId, nanos } = task
    const hold = this.#holds.get(requestId)
    if (hold === undefined || hold.nanos < nanos) {
      throw new Error(`the request ${requestId} has no hold of ${nanos} nano-dollars`)
    }
    await this.#tasks.open(task, hold)
    this.#holds.delete(requestId)
  }

  noteTask (id: string, text: string): void {
    if (this.#closing === undefined) this.#tasks.note(id, text)
  }

  async endTask (id: string, text: string, settlement?: Omit<Settlement, 'request_id'>): Promise<Nanos | undefined> {
    this.#refuseClosed()
    if (settlement !== undefined) {
      refuseAmount(settlement.nanos)
      refuseUsage(settlement.usage)
    }
    return await this.#tasks.end(id, text, settlement)
  }

  async removeTask (id: string): Promise<boolean> {
    return await this.#tasks.remove(id)
  }

  async forgetTasks (createdBefore: number): Promise<number> {
    return await this.#tasks.forget(createdBefore)
  }

  async task (id: string): Promise<Task | undefined> {
    return await this.#tasks.find(id)
  }

  async tasks (account: string, page: TaskPage): Promise<readonly Task[] | undefined> {
    return await this.#tasks.list(account, page)
  }

  async newestTasks (search: TaskSearch): Promise<readonly Task[]> {
    const newest = new NewestTasks(search)
    for await (const task of this.#tasks.all()) newest.see(task)
    return newest.first()
  }

  findOpenTask (id: string): Task | undefined {
    return this.#tasks.findOpen(id)
  }

  openTasks (): readonly Task[] {
    return this.#tasks.allOpen()
  }

  watchTasks (onTaken: (id: string) => void): () => void {
    this.#taken.add(onTaken)
    return () => { this.#taken.delete(onTaken) }
  }

  async keepAnswer (answer: Answer): Promise<void> {
    this.#refuseClosed()
    await this.#tasks.keepAnswer(answer)
  }

  async answer (account: string, name: string): Promise<Answer | undefined> {
    return await this.#tasks.answer(account, name)
  }

  async dropAnswer (account: string, name: string): Promise<void> {
    await this.#tasks.dropAnswers(account, name)
  }

  async forgetAnswers (createdBefore: number, most: number): Promise<number> {
    return await this.#tasks.forgetAnswers(createdBefore, most)
  }

  async claimAnswer (account: string, name: string, requestId: string): Promise<boolean> {
    return await this.#tasks.claim(account, name, requestId)
  }

  async unclaimAnswer (requestId: string): Promise<void> {
    await this.#tasks.unclaim(requestId)
  }

  async records (): Promise<readonly StoredRecord[]> {
    return await this.#records.all()
  }

  async recordsSince (mark: string): Promise<ReadRecords> {
    return await this.#records.since(mark)
  }

  async change (change: Change): Promise<boolean> {
    this.#refuseClosed()
    return await this.#records.change(change)
  }

  async changes (after: number, limit: number): Promise<readonly AuditLine[]> {
    return await this.#records.changes(after, limit)
  }

  async newestChanges (before: number | undefined, limit: number): Promise<readonly AuditLine[]> {
    return await this.#records.newestChanges(before, limit)
  }

  async beat (id: string, life: number, text = ''): Promise<void> {
    await this.#records.beat(id, life, text)
  }

  async beats (): Promise<readonly Beat[]> {
    return await this.#records.beats()
  }

  async * allTasks (): AsyncIterable<Task> {
    yield * this.#tasks.all()
  }

  async * allAnswers (): AsyncIterable<Answer> {
    yield * this.#tasks.allAnswers()
  }

  async * allFailures (): AsyncIterable<FailureCount> {
    yield * this.#rollups.allFailures()
  }

  watchRecords (onChange: () => void): () => void {
    return this.#records.watch(onChange)
  }

  async close (): Promise<void> {
    await (this.#closing ??= this.#close())
  }

  async #close (): Promise<void> {
    for (const cancel of this.#cancels.values()) cancel()
    this.#records.close()
    this.#rollups.close()
    this.#delivery.stop()
    if (this.#link.isUp && this.#guard.loss === undefined) {
      await before(CLOSE_MS, (async () => {
        await this.#delivery.drain()
        await this.#delivery.idle()
        await this.#tasks.leave()
        await this.#budgetLease?.close()
        await this.#rollups.sendFailures()
      })())
    }
    if (this.#delivery.size > 0) {
      this.#log.warn({ pending: this.#delivery.size },
        'charges wait in the outbox: they reach Redis when the next gateway starts on this data folder')
    }
    this.responses.close()
    this.#link.close()
    await this.#noted
    await this.#outbox.close()
  }

  /** Executes a message of the outbox in Redis. @throws {AwayError} it is unknown whether it was done */
  async #send (message: Message): Promise<void> {
    const { of, account } = message
    if (of === 'credit') { await this.#book({ ...message, kind: of, nanos: BigInt(message.nanos) }, true) }
    else if (of === 'book') { await this.#book({ ...message, nanos: BigInt(message.nanos) }, true) }
    else if (of === 'untask') { await this.#early.ask('untask', account, message.id, message.task) }
    else if (of === 'refund') {
      await this.#early.ask('refund', account, message.id, message.key, message.day, message.what)
    } else {
      const { id, key, day, oldest, nanos, shortfall, what, at, aside = '' } = message
      if (this.#space.nearly - at > OLD_MS && await this.#isSettled(account, id, at)) return
      const asked = this.#early.ask('settle', account, id, nanos, shortfall, key, day, oldest, what, aside)
      // In the same round trip: a reader that comes next must find the account listed.
      if (!this.#isListed(account, key)) await Promise.all([asked, this.#list(account, key)])
      await asked
    }
  }

  /** @param since milliseconds since the epoch */
  async #isSettled (account: string, reference: string, since: number): Promise<boolean> {
    for (let from = `${(since - 60_000) * 1000}`, page: readonly Raw[];
      (page = await this.#slice(account, from)).length > 0; from = `(${page.at(-1)![0]}`) {
      if (
        page.some((raw) => {
          const entry = readEntry(account, raw)
          return entry.kind === 'settle' && entry.reference === reference
        })
      ) return true
    }
    return false
  }

  /** Puts account and key on the lists that Redis keeps for reads over all accounts. */
  async #list (account: string, key?: string): Promise<void> {
    if (this.#isListed(account, key)) return
    await this.#link.early.call(async (client) => await Promise.all([
      client.sadd(this.#space.single('accounts'), account),
      ...(key === undefined ? [] : [client.sadd(this.#space.single(`accounts_of:${key}`), account)])
    ]))
    this.#listed.add(listedName(account, key))
  }

  #isListed (account: string, key?: string): boolean {
    return this.#listed.has(listedName(account, key))
  }

  #refused (thrown: unknown, message: string): unknown {
    return thrown instanceof AwayError ? new GatewayError('auth_unavailable', { cause: thrown, message }) : thrown
  }

  /**
   * Sends a Redis that is back the leases of this process first, then what it has missed. Never rejects.
   * @returns false: Redis is away again
   */
  async #noteBack (): Promise<boolean> {
    this.#delivery.hold()
    try {
      await this.#check()
      if (this.#guard.loss !== undefined) return true
      await this.#renew(true)
      await this.#ended.giveLate()
    } catch {
      return false
    }
    return await this.#tell()
  }

  /**
   * Compares what Redis knows with what it knew. Nothing reaches a Redis that has lost the ledger.
   * @throws {AwayError}
   */
  async #check (): Promise<void> {
    const before = this.#guard.loss
    const found = await this.#guard.check(this.#outbox)
    const { loss } = this.#guard
    if (found === 'behind') {
      this.#delivery.stop()
      this.#known = ''
      await writeFile(this.#knownFile, '', { mode: 0o600 })   // the next process sends all again too
    }
    if (loss !== undefined && before === undefined) {
      this.#delivery.hold()
      this.#log.error({ alert: 'ledger_lost', why: loss },
        `the ledger in ${nameOf(this.#config)} is lost: ${loss}. Requests that cost something are refused, and charges ` +
        'wait in the outbox. Bring the ledger back, or restore a backup (gateway store restore FILE); then, or to go ' +
        'on with what Redis has: gateway store new --accept-loss')
    } else if (loss === undefined && before !== undefined) {
      this.#log.info('the ledger counts again: requests are served, and charges are sent')
    }
  }

  /** @returns whether Redis must receive messages again */
  async #isCheckDue (): Promise<boolean> {
    const before = this.#guard.loss
    if (before === undefined && this.#known !== this.#ids()) return await this.#guard.check(undefined) !== 'same'
    await this.#check()
    return this.#known === '' || (before !== undefined && this.#guard.loss === undefined)
  }

  #ids (): string {
    return JSON.stringify([...this.#link.ids].toSorted())
  }

  /**
   * Delivers what was not acknowledged; and all messages of the last minutes to a Redis that neither this process nor
   * the one before it has known. Never rejects.
   * @returns false: Redis is away
   */
  async #tell (): Promise<boolean> {
    if (this.#guard.loss !== undefined) return true
    const ids = this.#ids()
    if (ids === this.#known) return await this.#delivery.drain()
    this.#listed.clear()
    return await this.#delivery.tell(ids, () => {
      this.#known = ids
      this.#noted = writeFile(this.#knownFile, ids, { mode: 0o600 }).catch((err: unknown) => {
        this.#log.warn({ err }, 'it could not be noted which Redis was told everything: the next start tells it again')
      })
    })
  }

  /** @param all renews recently renewed leases too */
  async #renew (all = false): Promise<void> {
    const now = this.#steady()
    const due = new Map<string, { readonly holds: string[], readonly slots: string[] }>()
    const dueOf = (account: string): { readonly holds: string[], readonly slots: string[] } => {
      let one = due.get(account)
      if (one === undefined) due.set(account, one = { holds: [], slots: [] })
      return one
    }
    const by = all ? now : now - RENEW_AFTER_MS
    for (const [id, hold] of this.#holds) {
      if (hold.renewedAt > by) continue
      hold.renewedAt = now
      dueOf(hold.account).holds.push(id)
    }
    for (const [account, name, id] of this.#admissions.renewed(by)) { dueOf(account).slots.push(name, id) }
    await eachOf([...due], async ([account, { holds, slots }]) => {
      await this.#early.ask('renew', account, holds.length, ...holds, ...slots)
    })
  }

  async #renewAll (): Promise<void> {
    if (!this.#link.isUp || this.#guard.loss !== undefined) return
    await this.#renew()
    await this.#tasks.renew()
    await this.#delivery.drain()
    if (this.#delivery.size === 0) await this.#budgetLease?.renew()
  }

  /**
   * Sweeps some accounts at a time: an account without requests would keep the holds of dead processes. Between two of
   * its turns an account is silent, so the first sweep only begins the grace period in which living processes may renew
   * their leases: it is swept again in the next round.
   */
  async #sweep (): Promise<void> {
    if (this.#guard.loss !== undefined) return
    const [cursor, accounts] = await this.#link.call(async (client) =>
      await client.sscan(this.#space.single('accounts'), this.#sweepCursor, 'COUNT', SWEPT_AT_ONCE)
    )
    this.#sweepCursor = cursor
    const due = new Set([...this.#unswept.splice(0), ...accounts])
    await eachOf([...due], async (account) => {
      if (await this.#space.ask('sweep', account) !== 0) this.#unswept.push(account)
    })
  }

  #every (name: string, ms: number, work: () => Promise<void>): void {
    this.#cancels.set(name, this.#timer(ms * (0.9 + 0.2 * Math.random()), () => {
      work().catch((err: unknown) => {
        if (!(err instanceof AwayError)) {
          this.#log.error({ err }, 'what the store does in the background has failed: it is tried again')
        }
      }).finally(() => {
        if (this.#closing === undefined) this.#every(name, ms, work)
      })
    }))
  }

  /** Refuses while charges can't be recorded: no answer is bought that could not be charged. */
  #refuseUnwritable (): void {
    this.#refuseLost()
    const { trouble: cause } = this
    if (cause !== undefined) throw new GatewayError('service_unavailable', { cause })
  }

  #refuseLost (): void {
    const { loss } = this.#guard
    if (loss !== undefined) throw new GatewayError('service_unavailable', { cause: new Error(loss) })
  }

  #refuseClosed (): void {
    if (this.#closing !== undefined) throw new Error('the store is closed')
  }
}

function listedName (account: string, key?: string): string {
  return key === undefined ? account : `${account} ${key}`
}

function oldestOf (day: string): string {
  return day === '' ? '' : oldestKept(day)
}

/**
 * @throws {RangeError} what the key has spent would pass 2^63 - 1 nano-dollars
 * @throws {Error} there is a hold or a settlement already; or no hold to extend
 */
function readResult (
  [kind, ...told]: readonly string[],
  { request_id: id, key }: Pick<HoldRequest, 'request_id' | 'key'>
): HoldResult {
  if (kind === 'taken') throw new Error(`the request ${id} has a hold or a settlement already`)
  if (kind === 'none') throw new Error(`the request ${id} has no hold to extend`)
  if (kind === 'much') throw new RangeError(`the usage of ${key} would pass ${MOST_NANOS} nano-dollars`)
  if (kind === 'held') return { kind: 'held', nanos: BigInt(told[0]!) }
  const [by, period, needed, available, others] = told as ['balance' | 'usage_limit' | 'low_balance',
    '' | 'day' | 'month', string, string, string]
  return { kind: 'refused', by, needed: BigInt(needed), available: BigInt(available), held_by_others: BigInt(others),
    ...(period !== '' && { period }) }
}

/** Waits for `work` at most so long. Never rejects. */
async function before (ms: number, work: Promise<unknown>): Promise<void> {
  const timeout = Promise.withResolvers<void>()
  const timer = setTimeout(timeout.resolve, ms)
  await Promise.race([work.catch(() => {}), timeout.promise])
  clearTimeout(timer)
}
