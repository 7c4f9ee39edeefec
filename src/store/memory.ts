// The store that forgets: all state in this process, for tests and demos. Its ledger grows with every request, without a bound.
// What it decides is in books.ts and windows.ts, as for the embedded driver; here it is only written down, in memory.
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Nanos } from '../money/nanos.ts'
import { Books, changeOf } from './books.ts'
import { OpenTasks } from './open-tasks.ts'
import { Pages } from './pages.ts'
import { isOver, oldestCompared, partsOf } from './periods.ts'
import { entryId, Sequence, seqOf } from './sequence.ts'
import { Sums } from './sums.ts'
import { Windows } from './windows.ts'
import type { Admission, AdmissionResult, AuditLine, Balance, Booked, Booking, Change, Difference, Entry, HoldRequest, HoldResult, KeyUsage, Records, Settlement, Store, StoredRecord, Verification } from './store.ts'
import type { Answer, Answers, Movable, NewTask, Task, TaskPage, Tasks } from './tasks.ts'

type Line = Omit<Entry, 'id' | 'at'>

/** An entry as it is kept: JSON has no integers of any size, and a date is a number until somebody reads it. */
type Written = Omit<Entry, 'at' | 'nanos' | 'shortfall'> & { readonly time: number, readonly nanos: string, readonly shortfall?: string }

/** What `store: { driver: memory }` opens. It answers at once, never with a promise. */
export class MemoryStore implements Store, Records, Tasks, Answers, Movable {
  readonly #books = new Books()
  readonly #tasks = new OpenTasks()
  /** open or not, oldest first */
  readonly #allTasks = new Map<string, Task>()
  readonly #answers = new Map<string, Answer>()
  /** ids of requests that are settled, and were not given that back */
  readonly #charged = new Set<string>()
  /** by kind and reference */
  readonly #booked = new Map<string, Nanos>()
  readonly #entries = new Pages()
  readonly #records = new Map<string, StoredRecord>()
  readonly #audit: AuditLine[] = []
  readonly #now: () => number
  readonly #sequence: Sequence
  readonly #windows: Windows

  /** @param now milliseconds since the epoch */
  constructor (now: () => number = Date.now) {
    this.#now = now
    this.#sequence = new Sequence(now)
    this.#windows = new Windows(now)
  }

  book (booking: Booking): Booked {
    const { kind, account, reference, reason } = booking
    const [name, isAnnounced] = [`${kind} ${reference}`, this.#books.announce(booking)]
    if (this.#booked.has(name)) {
      if (isAnnounced) this.#books.withdraw(booking)
      return 'known'
    }
    if (!isAnnounced) return 'short'
    this.#booked.set(name, booking.nanos)
    this.#books.deposit(booking)
    this.#write({ kind, account, reference, nanos: changeOf(booking), ...(reason !== undefined && { reason }) })
    return 'new'
  }

  credit (account: string, reference: string, nanos: Nanos): boolean {
    return this.book({ kind: 'credit', account, reference, nanos }) === 'new'
  }

  creditOf (reference: string): Nanos | undefined {
    return this.#booked.get(`credit ${reference}`)
  }

  hold (request: HoldRequest): HoldResult {
    return this.#books.hold(request, 0)
  }

  extend (requestId: string, nanos: Nanos, least?: Nanos): HoldResult {
    return this.#books.extend(requestId, nanos, least)
  }

  settle (settlement: Settlement): Nanos {
    const { request_id: id, nanos, ...what } = settlement
    const charge = this.#books.settle(settlement)
    if (charge === undefined) return this.#books.chargeOf(id)!
    const { account, key, day } = charge.hold
    const line = { account: account.id, key: key.id, reference: id, ...what, ...(day !== undefined && { day: day.id }) }
    this.#charged.add(id)
    this.#write({ kind: 'settle', nanos: -charge.nanos, ...line })
    if (nanos > charge.nanos) this.#write({ kind: 'shortfall', nanos: 0n, shortfall: nanos - charge.nanos, ...line })
    return charge.nanos
  }

  release (requestId: string): void {
    if (this.#tasks.owns(requestId)) return
    this.#books.release(requestId)
  }

  refund (requestId: string): void {
    if (this.#tasks.owns(requestId)) return
    const charge = this.#books.release(requestId) === undefined ? this.#books.recentCharge(requestId) : undefined
    if (charge === undefined) return
    this.#books.giveBack(charge)
    if (charge.nanos === 0n) return
    this.#charged.delete(requestId)
    const { hold: { account, key, day }, settlement: { model, channel, price_version: priceVersion } } = charge
    this.#write({
      kind: 'adjust', account: account.id, key: key.id, reference: requestId, nanos: charge.nanos, model,
      ...(channel !== undefined && { channel }), ...(priceVersion !== undefined && { price_version: priceVersion }), ...(day !== undefined && { day: day.id })
    })
  }

  /** Nothing survives this process, so there is nothing to note. */
  progress (soFar: Settlement): void {
    this.#books.foresee(soFar)
  }

  admit (admission: Admission): AdmissionResult {
    return this.#windows.admit(admission)
  }

  leave (requestId: string): void {
    this.#windows.leave(requestId)
  }

  balance (account: string): Balance {
    return this.#books.balance(account)
  }

  keyUsage (key: string, period?: string): KeyUsage {
    return this.#books.keyUsage(key, period)
  }

  openHolds (): number {
    return this.#books.openHolds
  }

  async * entries (after?: string): AsyncIterable<Entry> {
    let left = after === undefined ? 0 : seqOf(after) + 1
    for (const line of this.#entries.lines()) if (left-- <= 0) yield read(line)
  }

  async verify (): Promise<Verification> {
    const lines = this.#entries.lines()
    const [accounts, keys, periods] = [this.#books.balances(), this.#books.usages(), this.#books.periods()]
    const oldest = oldestCompared(this.#now())
    const sums = new Sums(oldest)
    for (const line of lines) {
      const { account, key, nanos, day } = JSON.parse(line) as Written
      sums.add(account, key, BigInt(nanos), day)
      if (sums.entries % 1000 === 0) await nextTurn()
    }
    const differences: Difference[] = []
    const compare = (of: Difference['of'], all: ReadonlyMap<string, Nanos>, sumsOf: ReadonlyMap<string, Nanos>): void => {
      for (const [id, kept] of all) {
        const entries = sumsOf.get(id) ?? 0n
        if (kept !== entries) differences.push({ of, id, entries, kept, where: 'memory' })
      }
    }
    compare('account', accounts, sums.accounts)
    compare('key', keys, sums.keys)
    compare('period', new Map([...periods].filter(([name]) => !isOver(partsOf(name)[0], oldest))), sums.periods)
    return { entries: sums.entries, accounts: sums.accounts.size, keys: sums.keys.size, differences }
  }

  openTask (task: NewTask): void {
    this.#books.lower(task.request_id, task.nanos)
    this.#put({ ...task, is_open: true })
  }

  noteTask (id: string, text: string): void {
    const task = this.#tasks.find(id)
    if (task !== undefined) this.#put({ ...task, text })
  }

  endTask (id: string, text: string, settlement?: Omit<Settlement, 'request_id'>): Nanos | undefined {
    const task = this.#tasks.find(id)
    if (task === undefined) return undefined
    const nanos = settlement === undefined ? 0n : this.settle({ ...settlement, request_id: task.request_id })
    this.#tasks.remove(task)
    if (settlement === undefined) this.#books.release(task.request_id)
    this.#allTasks.set(id, { ...task, text, nanos, is_open: false })
    return nanos
  }

  removeTask (id: string): boolean {
    return this.#allTasks.get(id)?.is_open === false && this.#allTasks.delete(id)
  }

  forgetTasks (createdBefore: number): number {
    const old = [...this.#allTasks.values()].filter(({ is_open: isOpen, created }) => !isOpen && created < createdBefore)
    for (const { id } of old) this.#allTasks.delete(id)
    return old.length
  }

  task (id: string): Task | undefined {
    return this.#allTasks.get(id)
  }

  tasks (account: string, { after, limit, order }: TaskPage): readonly Task[] | undefined {
    const all = [...this.#allTasks.values()].filter((task) => task.account === account)
      .toSorted((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1))
    if (order === 'desc') all.reverse()
    const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1
    return after !== undefined && from === 0 ? undefined : all.slice(from, from + limit)
  }

  findOpenTask (id: string): Task | undefined {
    return this.#tasks.find(id)
  }

  openTasks (): readonly Task[] {
    return this.#tasks.all()
  }

  #put (task: Task): void {
    this.#tasks.put(task)
    this.#allTasks.set(task.id, task)
  }

  keepAnswer (answer: Answer): void {
    this.#answers.set(`${answer.account}\n${answer.name}`, answer)
  }

  answer (account: string, name: string): Answer | undefined {
    const answer = this.#answers.get(`${account}\n${name}`)
    if (answer === undefined || this.#charged.has(answer.request_id)) return answer
    return [...this.#allTasks.values()].some((task) => task.request_id === answer.request_id) ? answer : undefined
  }

  dropAnswer (account: string, name: string): void {
    this.#answers.delete(`${account}\n${name}`)
  }

  forgetAnswers (createdBefore: number, most: number): number {
    const before = this.#answers.size
    for (const [name, { created }] of this.#answers) if (created < createdBefore || this.#answers.size > most) this.#answers.delete(name)
    return before - this.#answers.size
  }

  async * allTasks (): AsyncIterable<Task> {
    yield * this.#allTasks.values()
  }

  async * allAnswers (): AsyncIterable<Answer> {
    for (const { account, name } of this.#answers.values()) {
      const answer = this.answer(account, name)
      if (answer !== undefined) yield answer
    }
  }

  records (): readonly StoredRecord[] {
    return [...this.#records.values()]
  }

  change ({ record, audit }: Change): boolean {
    if (record !== undefined) {
      const name = `${record.kind}:${record.id}`
      if ((this.#records.get(name)?.version ?? 0) !== record.version - 1) return false
      this.#records.set(name, record)
    }
    this.#audit.push({ id: this.#audit.length + 1, text: audit })
    return true
  }

  changes (after: number, limit: number): readonly AuditLine[] {
    return this.#audit.slice(after, after + limit)
  }

  close (): void {}

  #write (line: Line): void {
    const seq = this.#sequence.next()
    const { time } = this.#sequence
    const { nanos, shortfall, ...what } = line
    this.#entries.add(JSON.stringify({ id: entryId(seq, time), time, nanos: nanos.toString(), shortfall: shortfall?.toString(), ...what }))
  }
}

function read (line: string): Entry {
  const { time, nanos, shortfall, ...entry } = JSON.parse(line) as Written
  return Object.freeze({ ...entry, nanos: BigInt(nanos), ...(shortfall !== undefined && { shortfall: BigInt(shortfall) }), at: new Date(time).toISOString() })
}
