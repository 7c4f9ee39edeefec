// The store of one process: memory decides, and a writer records (writer.ts): a thread with SQLite, or this process's
// memory.
//
// Decisions are made at once in this thread, by balances.ts and rate-windows.ts. At the end of the turn of the event
// loop they go as one batch to the writer, which records it in one transaction, so no decision waits for a disk. While
// a batch is on its way, the decisions of all turns since wait together for the next one: twice the settlements per
// second, and half the time for each, than with a batch for every turn (measured). Where settlements come close
// together, a batch also waits some turns for more of them: see `#gather`. A prompt writer gets each decision as it is
// made, and has recorded it when `send` returns.
//
// - A credit can be spent when it is recorded; a debit takes the money when it is decided. So no decision rests on a
//   credit that may fail, and balance and usage in memory = sum of the recorded entries + decisions on their way.
// - `settle` and `book` answer when their batch is committed; `hold`, `release`, `admit`, `leave` at once.
// - A batch that can't be committed fails as a whole. Its charges become holds again, of the amount charged: what is
//   available stays the same, so decisions made in between stand, and no balance goes below zero. Until a commit
//   succeeds again `hold` refuses: an answer that can't be charged must not be bought.
// - `refund` withdraws a settlement whose batch was not sent yet. One that was sent is given back by an entry of its
//   own, when it is recorded: a kill between the two commits leaves it charged. That entry is tried again with each
//   batch until it is recorded.
// - (kind, reference) is unique in the ledger, for ever: it decides repetitions that memory has forgotten.
//
// Durability: a kill loses nothing that was answered; a power loss, at most the last `fsync_interval`. Holds and slots
// belong to requests of this process and end with it, so no hold outlives its request, and there is no lease to wait
// for; but a task's hold is recorded with the task, and taken again at the next start. A request that runs long enough
// to have recorded progress is charged that at the next start. A clean stop saves what rate limits count; after any
// other they start with what was noted, at least once a second (window-notes.ts): see `windows`.
import type { Logger } from 'pino'
import { GatewayError } from '../../errors.ts'
import { type Nanos, NANOS_PER_USD } from '../../money/nanos.ts'
import { type Awaitable, after, afterWith } from '../../base/awaitable.ts'
import { atEndOfTurn } from '../../base/end-of-turn.ts'
import { oldestCompared, partsOf } from '../periods.ts'
import { Sums } from '../sums.ts'
import { Books, changeOf, type Charge } from './balances.ts'
import { type BatchOwner, chargeIn, Decisions, type Settled } from './batch.ts'
import { bookingRow, type Cell, ENTRY, progressRow, readEntry, readRollups, readTask, refundRow, settlementRow, TASK,
  taskRow, WINDOW } from './cells.ts'
import { seqOf, Sequence } from './entry-ids.ts'
import { Failures } from './failures.ts'
import { OpenTasks } from './open-tasks.ts'
import { steady, Windows } from './rate-windows.ts'
import { Notes, NOTE_MS } from './window-notes.ts'
import type { Documents, LastingWriter, Loaded, RollupStep, Writer } from './writer.ts'
import type { Admission, AdmissionResult, AuditLine, Balance, Booked, Booking, BookingKind, Change, Difference, Entry,
  HoldRequest, HoldResult, KeyUsage, Records, Settlement, Store, StoredRecord, Verification } from '../store.ts'
import type { Backup } from '../backup.ts'
import type { ResponseStore } from '../responses.ts'
import { failuresOf, GROUPS } from '../rollup-sums.ts'
import type { EntryPage, EntryQuery, Failure, FailureCount, Rollup, RollupQuery, Rollups } from '../rollups.ts'
import type { Answer, Answers, Movable, NewTask, Task, TaskPage, Tasks, TaskSearch } from '../tasks.ts'

export interface LocalOptions<Kind extends Writer = Writer> {
  readonly writer: Kind
  readonly responses: ResponseStore
  /** absent: nothing outlives the process */
  readonly backup?: Backup
  /** milliseconds since the epoch */
  readonly now?: () => number
  /** milliseconds between two progress records of the same request, and before the first */
  readonly progress_interval?: number
  /**
   * What rate limits count after anything but a clean stop. `full`: the noted counts, plus what may have been admitted
   * in the second after them. `forget`: only what a clean stop saved, so that in the minute around a kill twice the
   * limit may pass.
   */
  readonly windows?: 'full' | 'forget'
}

const MINUTE_MS = 60_000
/** Milliseconds that a failure waits for a batch that takes it along. */
const FAILURE_MS = 1000
/** Entries of a batch that gets no cheaper by waiting for more; above as many running requests, it is large anyway. */
const ENOUGH = 32
/** Turns of the event loop that a batch waits for more entries: that bring none, one after the other, and in all. */
const QUIET_TURNS = 3
const MOST_TURNS = 8
/** Cells of a row that is loaded. */
const WIDTHS: Readonly<Record<Loaded, number>> = { account: 2, key: 2, charge: 2, period: 3, credits: 3,
  task: TASK.length, window: WINDOW.length }
/** Most steps for one page of the newest entries: where few fit, the page is short. */
const MOST_STEPS = 40

export class LocalStore implements Store, Records, Tasks, Answers, Movable, Rollups, BatchOwner {
  readonly responses: ResponseStore
  readonly backup: Backup | undefined
  readonly #books = new Books()
  readonly #tasks = new OpenTasks()
  /** ends of tasks that are on their way */
  readonly #ending = new Map<string, Promise<Nanos>>()
  readonly #windows: Windows
  /** absent: a kill forgets what rate limits have counted */
  readonly #notes: Notes | undefined
  readonly #writer: Writer
  readonly #now: () => number
  readonly #steadyNow: () => number
  readonly #progressInterval: number
  #sequence: Sequence
  /** batches on their way to be recorded; at most one, except at the end, and none with a prompt writer */
  readonly #sent: Decisions[] = []
  /** the batch of the decisions since */
  #next: Decisions | undefined
  /** of the batch that gathers entries: how many it had when a turn ended, and the turns since, and in all */
  #gathered = 0
  #quietTurns = 0
  #turns = 0
  readonly #lookAgain = this.#look.bind(this)
  readonly #lookBehindTurn = atEndOfTurn.bind(undefined, this.#lookAgain)
  /** request ids whose progress record remains to be deleted: the batch with the deletion failed */
  readonly #pendingDeletes: string[] = []
  /** retries of failed writes: called when the next batch opens */
  #insisting: (() => void)[] = []
  readonly #failures = new Failures()
  #failing: NodeJS.Timeout | undefined
  #verifying: Promise<Verification> | undefined
  #closing: Promise<void> | undefined

  /**
   * Starts with the state that the process before this one has recorded.
   * @throws {Error} the writer can't be used: says why, in words for the operator
   */
  static async open (options: LocalOptions<LastingWriter>, log: Pick<Logger, 'warn' | 'error'>): Promise<LocalStore> {
    const store = new LocalStore(options)
    const { last, aliveUntil, recovered } = await options.writer.open((of, cells) => {
      store.#load(of, cells)
    }, () => {
      store.#payOwed()
    })
    const now = store.#now()
    store.#sequence = new Sequence(store.#now, last)
    // That process noted no windows: which names it counted, and how often, is unknown, so every window starts full.
    if (options.windows !== 'forget') store.#windows.fill(Math.min(aliveUntil, now) + MINUTE_MS)
    if (last.time > now + MINUTE_MS) {
      log.error({ alert: 'ledger_ahead', last_entry: new Date(last.time).toISOString() },
        'the last entry of the ledger is later than this clock: the clock is behind, or it was ahead. Check it: new ' +
        'entries get the time of that entry until the clock has passed it')
    }
    if (recovered > 0) {
      log.warn({ requests: recovered },
        'the gateway died before these requests ended: they are charged for what they had produced')
    }
    return store
  }

  /** Starts empty. */
  constructor (
    { writer, responses, backup, now = Date.now, progress_interval: progressInterval = 2000,
      windows = 'full' }: LocalOptions
  ) {
    this.#writer = writer
    this.responses = responses
    this.backup = backup
    this.#now = now
    this.#steadyNow = steady(now)
    this.#sequence = new Sequence(now)
    this.#windows = new Windows(now)
    // Where the state ends with the process there is nothing to note.
    this.#notes = windows === 'full' && !writer.isPrompt ? new Notes(this.#windows, this.#steadyNow) : undefined
    this.#progressInterval = writer.isPrompt ? Infinity : progressInterval
  }

  get trouble (): Error | undefined {
    return this.#writer.trouble
  }

  book (booking: Booking): Awaitable<Booked> {
    this.#refuseClosed()
    if (!this.#books.announce(booking)) return this.#refused(booking)
    const decisions = this.#decide()
    const announced = decisions.announce(this.#sequence.next(), booking)
    decisions.put('entries', bookingRow(announced.seq, this.#sequence.time, booking, changeOf(booking)))
    return after(this.#commit(decisions), () => announced.isNew ? 'new' : 'known')
  }

  /**
   * Answers a debit of more than is available, after the open batch: a decision in it may have taken the money under
   * this very reference.
   */
  async #refused ({ kind, reference }: Booking): Promise<Booked> {
    await this.#next?.committed.catch(() => {})
    return await this.#ask('booked', kind, reference) === undefined ? 'short' : 'known'
  }

  credit (account: string, reference: string, nanos: Nanos): Awaitable<boolean> {
    return after(this.book({ kind: 'credit', account, reference, nanos }), (booked) => booked === 'new')
  }

  amountOf (kind: BookingKind, reference: string): Awaitable<Nanos | undefined> {
    return after(this.#writer.ask('booked', kind, reference), magnitude)
  }

  credited (account: string): Nanos {
    return this.#books.credited(account)
  }

  hold (request: HoldRequest): HoldResult {
    this.#refuseClosed()
    this.#refuseUnwritable()
    return this.#books.hold(request, this.#steadyNow())
  }

  wouldHold (request: HoldRequest): HoldResult {
    this.#refuseClosed()
    this.#refuseUnwritable()
    return this.#books.wouldHold(request)
  }

  extend (requestId: string, nanos: Nanos, least?: Nanos): HoldResult {
    this.#refuseClosed()
    this.#refuseUnwritable()
    return this.#books.extend(requestId, nanos, least)
  }

  settle (settlement: Settlement): Awaitable<Nanos> {
    this.#refuseClosed()
    const charge = this.#books.settle(settlement)
    if (charge === undefined) return this.#settledBefore(settlement)
    const decisions = this.#decide()
    const settled = this.#charge(decisions, charge, settlement)
    return afterWith(this.#commit(decisions), chargeBehind, settled)
  }

  async #settledBefore ({ request_id: id }: Settlement): Promise<Nanos> {
    await this.#onItsWay(id)?.committed
    const charged = this.#books.chargeOf(id)
    if (charged === undefined) throw new Error(`the request ${id} has no hold to settle`)
    return charged
  }

  /** Writes the entries of a settlement that memory has made. */
  #charge (decisions: Decisions, charge: Charge, settlement: Settlement): Settled {
    const { request_id: id, nanos } = settlement
    const { hold } = charge
    const seq = this.#sequence.next()
    const row = settlementRow(seq, this.#sequence.time, 'settle', hold, -charge.nanos, null, settlement)
    decisions.put('entries', row)
    if (nanos > charge.nanos) {
      const after = this.#sequence.next()
      decisions.put('entries',
        settlementRow(after, this.#sequence.time, 'shortfall', hold, 0n, nanos - charge.nanos, settlement))
    }
    if (hold.hasProgress) decisions.put('forget', [id])
    return decisions.settle(seq, charge)
  }

  release (requestId: string): Promise<void> | void {
    if (this.#tasks.owns(requestId)) return
    const hold = this.#books.release(requestId)
    if (hold === undefined) return this.#onItsWay(requestId)?.release(requestId)
    if (hold.hasProgress) this.#decide().put('forget', [requestId])
  }

  async refund (requestId: string): Promise<void> {
    if (this.#tasks.owns(requestId)) return                   // the hold is the task's, whatever becomes of the request
    const settling = this.#onItsWay(requestId)
    const hold = this.#books.release(requestId) ?? settling?.settlementOf(requestId)?.charge.hold
    if (settling !== undefined && settling === this.#next) settling.withdraw(requestId)
    else await settling?.release(requestId)
    const charge = this.#books.recentCharge(requestId)
    if (charge?.nanos === 0n) this.#books.giveBack(charge)
    else if (charge !== undefined) await this.#retryUntilWritten((decisions) => { this.#giveBack(decisions, charge) })
    else if (hold?.hasProgress === true) {
      await this.#retryUntilWritten((decisions) => { decisions.put('forget', [requestId]) })
    }
  }

  progress (soFar: Settlement): void {
    this.#refuseClosed()
    const charge = this.#books.previewCharge(soFar)
    if (charge === undefined) return
    const { hold, nanos } = charge
    const now = this.#steadyNow()
    if (now - hold.recordedAt < this.#progressInterval) return
    hold.recordedAt = now
    hold.hasProgress = true
    const shortfall = soFar.nanos > nanos ? soFar.nanos - nanos : null
    this.#decide().put('progress', progressRow(hold, -nanos, shortfall, soFar))
  }

  admit (admission: Admission): AdmissionResult {
    this.#refuseClosed()
    const result = this.#windows.admit(admission)
    if (result.kind === 'admitted' && this.#notes !== undefined) {
      const cells = this.#notes.take(result.windows)
      if (cells.length > 0) this.#decide().put('windows', cells)
    }
    return result
  }

  wouldAdmit (admission: Admission): AdmissionResult {
    this.#refuseClosed()
    return this.#windows.wouldAdmit(admission)
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
    for await (const cells of this.#writer.slices(after === undefined ? -1 : seqOf(after))) {
      for (let i = 0; i < cells.length; i += ENTRY.length) yield Object.freeze(readEntry(cells, i))
    }
  }

  async rollups (query: RollupQuery): Promise<readonly Rollup[]> {
    const found: Rollup[] = []
    for (let from: number | undefined = query.from; from !== undefined;) {
      const step: RollupStep = await this.#ask('rollups', { ...query, from })
      for (const rollup of readRollups(step.cells, query.groups)) found.push(rollup)
      from = step.next
    }
    return found
  }

  failed (failure: Failure): void {
    if (this.#closing !== undefined) return
    this.#failures.note(failure, this.#now())
    if (this.#writer.isPrompt) {
      this.#decide()
      this.#send()
    } else {
      this.#failing ??= setTimeout(() => {
        this.#failing = undefined
        if (this.trouble === undefined) this.#payOwed()
      }, FAILURE_MS).unref()
    }
  }

  async newest (query: EntryQuery): Promise<EntryPage> {
    const entries: Entry[] = []
    let { before } = query
    for (let steps = 1; ; steps++) {
      // One more than the page, which tells whether there is another.
      const limit = query.limit + 1 - entries.length
      const { cells, next } = await this.#ask('newest', { ...query, limit, ...(before !== undefined && { before }) })
      for (let i = 0; i < cells.length; i += ENTRY.length) entries.push(Object.freeze(readEntry(cells, i)))
      if (entries.length > query.limit) {
        entries.length = query.limit
        return { entries, next: entries.at(-1)!.id }
      }
      if (next === undefined) return { entries }
      if (steps === MOST_STEPS) return { entries, next }
      before = next
    }
  }

  async openTask (task: NewTask): Promise<void> {
    this.#refuseClosed()
    this.#refuseUnwritable()
    const opened: Task = { ...task, is_open: true }
    const day = this.#books.lower(task.request_id, task.nanos)
    this.#tasks.claim(task.request_id)
    const decisions = this.#decide()
    decisions.put('tasks', taskRow(opened, day))
    try {
      await this.#commit(decisions)
    } catch (thrown) {
      this.#tasks.unclaim(task.request_id)
      throw thrown
    }
    this.#tasks.put(opened)
  }

  noteTask (id: string, text: string): void {
    const task = this.#tasks.find(id)
    // A note recorded behind the task's end would open the task again.
    if (task === undefined || this.#ending.has(id) || this.#closing !== undefined) return
    const noted = { ...task, text }
    this.#tasks.put(noted)
    const decisions = this.#decide()
    decisions.put('tasks', taskRow(noted, this.#books.dayOf(task.request_id)))
    void this.#commit(decisions)
  }

  async endTask (id: string, text: string, settlement?: Omit<Settlement, 'request_id'>): Promise<Nanos | undefined> {
    this.#refuseClosed()
    const running = this.#ending.get(id)
    if (running !== undefined) return await running
    const task = this.#tasks.find(id)
    if (task === undefined) return undefined
    const ending = this.#endTask(task, text, settlement).finally(() => { this.#ending.delete(id) })
    this.#ending.set(id, ending)
    return await ending
  }

  /** Ends a task in one transaction with its entry, if it has one. */
  async #endTask (task: Task, text: string, settlement: Omit<Settlement, 'request_id'> | undefined): Promise<Nanos> {
    const { request_id: requestId } = task
    const day = this.#books.dayOf(requestId)
    const charge = settlement === undefined ? undefined : this.#books.settle({ ...settlement, request_id: requestId })
    const decisions = this.#decide()
    if (charge !== undefined) this.#charge(decisions, charge, { ...settlement!, request_id: requestId })
    const nanos = charge?.nanos ?? 0n
    decisions.put('tasks', taskRow({ ...task, text, nanos, is_open: false }, day))
    await this.#commit(decisions)
    this.#tasks.remove(task)
    // The hold is free when its release is recorded: until then a restart would take it again.
    if (charge === undefined) this.#books.release(requestId)
    return nanos
  }

  async removeTask (id: string): Promise<boolean> {
    this.#refuseClosed()
    return await this.#ask('removeTask', id)
  }

  async forgetTasks (createdBefore: number): Promise<number> {
    this.#refuseClosed()
    return await this.#ask('forgetTasks', createdBefore)
  }

  async task (id: string): Promise<Task | undefined> {
    return this.#tasks.find(id) ?? await this.#ask('task', id)
  }

  async tasks (account: string, page: TaskPage): Promise<readonly Task[] | undefined> {
    const found = await this.#ask('tasks', account, page)
    return found?.map((task) => this.#tasks.find(task.id) ?? task)
  }

  async newestTasks (search: TaskSearch): Promise<readonly Task[]> {
    return await this.#ask('newestTasks', search)
  }

  findOpenTask (id: string): Task | undefined {
    return this.#tasks.find(id)
  }

  openTasks (): readonly Task[] {
    return this.#tasks.all()
  }

  async keepAnswer (answer: Answer): Promise<void> {
    this.#refuseClosed()
    await this.#ask('keepAnswer', answer)
  }

  async answer (account: string, name: string): Promise<Answer | undefined> {
    return await this.#ask('answer', account, name)
  }

  async dropAnswer (account: string, name: string): Promise<void> {
    await this.#ask('dropAnswer', account, name)
  }

  async forgetAnswers (createdBefore: number, most: number): Promise<number> {
    return await this.#ask('forgetAnswers', createdBefore, most)
  }

  async *allTasks (): AsyncIterable<Task> {
    for (let page = await this.#ask('allTasks', ''); page.length > 0;
      page = await this.#ask('allTasks', page.at(-1)!.id)) { yield* page }
  }

  async *allAnswers (): AsyncIterable<Answer> {
    const from = async (account: string, name: string): Promise<readonly Answer[]> =>
      await this.#ask('allAnswers', account, name)
    for (let page = await from('', ''); page.length > 0;
      page = await from(page.at(-1)!.account, page.at(-1)!.name)) { yield* page }
  }

  async * allFailures (): AsyncIterable<FailureCount> {
    for (let from: number | undefined = 0; from !== undefined;) {
      const all = { from, groups: GROUPS, only: {} }
      const days: RollupStep = await this.#ask('rollups', { ...all, by: 'day', to: Infinity })
      yield * failuresOf(await this.rollups({ ...all, by: 'hour', to: days.next ?? Infinity }),
        readRollups(days.cells, GROUPS))
      from = days.next
    }
  }

  async records (): Promise<readonly StoredRecord[]> {
    return await this.#writer.ask('records')
  }

  async change (change: Change): Promise<boolean> {
    this.#refuseClosed()
    return await this.#writer.ask('change', change)
  }

  async changes (after: number, limit: number): Promise<readonly AuditLine[]> {
    return await this.#writer.ask('changes', after, limit)
  }

  async newestChanges (before: number | undefined, limit: number): Promise<readonly AuditLine[]> {
    return await this.#writer.ask('newestChanges', before, limit)
  }

  async verify (): Promise<Verification> {
    return await (this.#verifying ??= this.#verify().finally(() => { this.#verifying = undefined }))
  }

  async close (): Promise<void> {
    await (this.#closing ??= this.#close())
  }

  async #close (): Promise<void> {
    clearTimeout(this.#failing)
    this.#payOwed()
    await undefined                                           // the retries have put their writes into the batch
    this.#send()
    await this.#writer.close(this.#windows.save().flatMap((cells) => [...cells, 0]))
    await this.responses.close()
  }

  /** @throws {GatewayError} service_unavailable: the writer does not answer at this moment */
  async #ask<Of extends keyof Documents> (
    of: Of,
    ...args: Parameters<Documents[Of]>
  ): Promise<ReturnType<Documents[Of]>> {
    try {
      return await this.#writer.ask(of, ...args)
    } catch (cause) {
      throw new GatewayError('service_unavailable', { cause })
    }
  }

  /** Refuses while charges can't be recorded: no answer is bought that could not be charged. */
  #refuseUnwritable (): void {
    const { trouble: cause } = this
    if (cause !== undefined) throw new GatewayError('service_unavailable', { cause })
  }

  #refuseClosed (): void {
    if (this.#closing !== undefined) throw new Error('the store is closed')
  }

  #payOwed (): void {
    if (this.#pendingDeletes.length + this.#insisting.length + this.#failures.size > 0) this.#decide()
  }

  #decide (): Decisions {
    if (this.#next !== undefined) return this.#next
    const decisions = this.#next = new Decisions(this.#books, this)
    if (this.#pendingDeletes.length > 0) decisions.put('forget', this.#pendingDeletes.splice(0))
    if (this.#insisting.length > 0) for (const retry of this.#insisting.splice(0)) retry()
    if (this.#sent.length === 0 && !this.#writer.isPrompt) this.#gather()
    return decisions
  }

  /** Answers when the batch is recorded. @throws {GatewayError} the batch failed as a whole */
  #commit (decisions: Decisions): Awaitable<void> {
    if (this.#writer.isPrompt) this.#send()
    return decisions.isRecorded ? undefined : decisions.committed
  }

  #giveBack (decisions: Decisions, charge: Charge): void {
    const seq = this.#sequence.next()
    decisions.refund(seq, charge)
    decisions.put('entries', refundRow(seq, this.#sequence.time, charge))
  }

  /** Repeats a write until it is recorded: after a failure it joins the next batch that any decision opens. */
  async #retryUntilWritten (put: (decisions: Decisions) => void): Promise<void> {
    for (;;) {
      const decisions = this.#decide()
      put(decisions)
      if (await Promise.resolve(this.#commit(decisions)).then(() => true, () => false)) return
      await new Promise<void>((resolve) => { this.#insisting.push(resolve) })
    }
  }

  /**
   * Sends the batch when no more entries come close behind. What a batch costs beside its entries (two messages between
   * threads, a transaction) is as much as ten entries, and requests whose batch is the same go on together, so that the
   * next one is of them all: a tenth of the CPU of a request with 32 clients or with 8 (measured). An entry that is
   * alone in its turn waits for nothing, and none waits where no request runs that could bring another.
   */
  #gather (): void {
    this.#gathered = this.#quietTurns = this.#turns = 0
    atEndOfTurn(this.#lookAgain)
  }

  #look (): void {
    const entries = (this.#next?.write.entries.length ?? 0) / ENTRY.length
    const running = this.#books.openHolds
    this.#quietTurns = entries > this.#gathered ? 0 : this.#quietTurns + 1
    if (
      entries <= 1 || entries >= ENOUGH || running === 0 || running > ENOUGH ||
      this.#quietTurns === QUIET_TURNS || this.#turns++ === MOST_TURNS
    ) {
      this.#send()
      return
    }
    this.#gathered = entries
    setImmediate(this.#lookBehindTurn)
  }

  #send (): void {
    const decisions = this.#next
    if (decisions === undefined) return
    this.#next = undefined
    decisions.seal()
    if (this.#failures.size > 0) decisions.put('failures', this.#failures.take())
    if (!this.#writer.isPrompt) this.#sent.push(decisions)
    this.#writer.send(decisions)
  }

  /** For its batches only: the oldest that was sent is recorded, or has failed. */
  onEnd (decisions: Decisions, isRecorded: boolean): void {
    this.#sent.shift()
    // Not at once: callers that resume now decide in this turn too, and join the batch.
    if (this.#next !== undefined) this.#gather()
    if (isRecorded) return
    const { windows, failures } = decisions.write
    this.#failures.putBack(failures)
    for (let i = 0; i < windows.length; i += WINDOW.length) this.#notes?.drop(windows[i] as string)
    for (const id of decisions.write.forget) if (!this.#books.hasHold(id)) this.#pendingDeletes.push(id)
  }

  /** The unrecorded batch that settles a request. */
  #onItsWay (id: string): Decisions | undefined {
    return this.#unrecorded().find((decisions) => decisions.settlementOf(id) !== undefined)
  }

  #unrecorded (): readonly Decisions[] {
    return this.#next === undefined ? this.#sent : [...this.#sent, this.#next]
  }

  #load (of: Loaded, cells: readonly Cell[]): void {
    const width = WIDTHS[of]
    for (let i = 0; i < cells.length; i += width) {
      const id = cells[i] as string
      if (of === 'task') {
        const { task, day } = readTask(cells, i)
        this.#tasks.put(task)
        this.#books.restore({ ...task, ...(day !== undefined && { day }) })
      } else if (of === 'window') {
        this.#windows.restore(id, cells[i + 1] as number, cells[i + 2] as string, cells[i + 3] as number, NOTE_MS)
      } else if (of === 'period') { this.#books.loadPeriod(id, cells[i + 1] as string, BigInt(cells[i + 2]!)) }
      else if (of === 'credits') {
        this.#books.loadCredited(id, BigInt(cells[i + 1]!) * NANOS_PER_USD + BigInt(cells[i + 2]!))
      } else if (of === 'charge') { this.#books.remember(id, BigInt(cells[i + 1]!)) }
      else { this.#books.load(of, id, BigInt(cells[i + 1]!)) }
    }
  }

  async #verify (): Promise<Verification> {
    const count = { account: 0, key: 0, period: 0 }
    const differences: Difference[] = []
    const entries = await this.#writer.verify(oldestCompared(this.#now()), (of, cells) => {
      if (of === 'rollup') {
        for (let i = 0; i < cells.length; i += 4) {
          const [id, sum, right, kept] = cells.slice(i, i + 4) as [string, string, Nanos, Nanos]
          differences.push({ of, id, sum, entries: right, kept, where: this.#writer.isPrompt ? 'memory' : 'disk' })
        }
        return
      }
      // The thread reports its commits before its sums, so the sums leave out exactly the decisions that are unrecorded
      // here.
      const pending = new Sums()
      for (const decisions of this.#unrecorded()) decisions.addTo(pending)
      for (let i = 0; i < cells.length; i += 3) {
        const [id, sum, disk] = cells.slice(i, i + 3) as [string, Nanos, Nanos]
        const [period, key] = of === 'period' ? partsOf(id) : [undefined, id]
        const memory = of === 'account'
          ? this.#books.balance(id).balance - (pending.accounts.get(id) ?? 0n)
          : this.#books.keyUsage(key, period).spent - (pending[of === 'key' ? 'keys' : 'periods'].get(id) ?? 0n)
        count[of]++
        if (disk !== sum) differences.push({ of, id, entries: sum, kept: disk, where: 'disk' })
        if (memory !== sum) differences.push({ of, id, entries: sum, kept: memory, where: 'memory' })
      }
    })
    return { entries, accounts: count.account, keys: count.key, differences }
  }
}

/** Of the change that a booking has made. */
function magnitude (nanos: Nanos | undefined): Nanos | undefined {
  return nanos !== undefined && nanos < 0n ? -nanos : nanos
}

function chargeBehind (_recorded: void, settled: Settled): Nanos {
  return chargeIn(settled)
}
