// The writer of the memory driver: keeps the recorded rows in this process, as a disk would. Its ledger grows with
// every request, without a bound.
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Nanos } from '../../money/nanos.ts'
import type { AuditLine, BookingKind, Change, StoredRecord } from '../store.ts'
import { dayOf, differencesOf, RollupSums, titleOf } from '../rollup-sums.ts'
import type { EntryQuery, RollupQuery } from '../rollups.ts'
import { Sums } from '../sums.ts'
import { NewestTasks } from '../newest-tasks.ts'
import type { Answer, Task, TaskPage, TaskSearch } from '../tasks.ts'
import { addRow, ENTRY, readTask, TASK, type Cell } from './cells.ts'
import { MemoryEntries } from './memory-entries.ts'
import { MemoryResponses } from './responses.ts'
import { LocalStore } from './store.ts'
import { answerFrom, type Batch, type Documents, type EntryStep, type KnownEntry, type OnCompared, type RollupStep,
  type Writer } from './writer.ts'

const [SEQ, KIND, REFERENCE] = [ENTRY.indexOf('seq'), ENTRY.indexOf('kind'), ENTRY.indexOf('reference')]
const [NANOS, DAY] = [ENTRY.indexOf('nanos'), ENTRY.indexOf('day')]

export class MemoryWriter implements Writer {
  readonly isPrompt = true
  readonly trouble = undefined
  readonly #entries = new MemoryEntries()
  readonly #documents = new MemoryDocuments(this.#entries)
  /** sums of the entries that a running `verify` has seen; entries written meanwhile are added */
  #verified: Verified | undefined

  send (batch: Batch): void {
    const { entries, tasks, failures } = batch.write
    const known: KnownEntry[] = []
    for (let i = 0; i < entries.length; i += ENTRY.length) {
      // Mostly there is one entry.
      const row = entries.length === ENTRY.length ? entries : entries.slice(i, i + ENTRY.length)
      const before = this.#documents.note(row[KIND] as string, row[REFERENCE] as string, row[NANOS] as Nanos)
      if (before !== undefined) {
        known.push([row[SEQ] as number, before])
        continue
      }
      this.#verified?.add(row)
      this.#entries.add(row)
    }
    this.#entries.addFailures(failures)
    for (let i = 0; i < tasks.length; i += TASK.length) this.#documents.put(readTask(tasks, i).task)
    batch.onWritten(known)
  }

  ask<Of extends keyof Documents> (of: Of, ...args: Parameters<Documents[Of]>): ReturnType<Documents[Of]> {
    return answerFrom(this.#documents, of, args)
  }

  async * slices (after: number): AsyncIterable<readonly Cell[]> {
    for (const row of this.#entries.rows()) if (row[0] as number > after) yield row
  }

  async verify (oldest: string, onCompared: OnCompared): Promise<number> {
    const rows = this.#entries.rows()
    const verified = this.#verified = new Verified(oldest)
    const { sums, days } = verified
    for (const row of rows) {
      verified.add(row)
      if (sums.entries % 1000 === 0) await nextTurn()
    }
    this.#verified = undefined
    for (const [of, all] of [['account', sums.accounts], ['key', sums.keys], ['period', sums.periods]] as const) {
      onCompared(of, [...all].flatMap(([id, nanos]) => [id, nanos, nanos]))
    }
    onCompared('rollup', differences(days, this.#entries.inDays))
    return sums.entries
  }

  close (): void {}
}

/** A store in this process's memory, for tests and demos. */
export class MemoryStore extends LocalStore {
  /** @param now milliseconds since the epoch */
  constructor (now: () => number = Date.now) {
    super({ writer: new MemoryWriter(), responses: new MemoryResponses(now), now })
  }

  /** A no-op: the state can still be read. */
  override async close (): Promise<void> {}
}

class Verified {
  readonly sums: Sums
  readonly days = new RollupSums(dayOf)

  /** @param oldest as `Sums` */
  constructor (oldest: string) {
    this.sums = new Sums(oldest)
  }

  /** @param row of `ENTRY`, in which amounts may be text */
  add (row: readonly Cell[]): void {
    const [, , , account, key, , nanos] = row as readonly [number, number, string, string, string | null, string,
      string]
    this.sums.add(account, key, BigInt(nanos), row[DAY] as string | null)
    addRow(row, this.days)
  }
}

/** Rollups that are not the sums of the entries, as `OnCompared`. */
function differences (entries: RollupSums, kept: RollupSums): Cell[] {
  const names = new Map([...entries.rows(), ...kept.rows()]
    .map(({ start, members }) => [titleOf(start, 'day', members), { start, members }]))
  return [...names].flatMap(([title, { start, members }]) =>
    differencesOf(entries.of(start, members), kept.of(start, members)).flatMap((one) => [title, ...one])
  )
}

class MemoryDocuments implements Documents {
  readonly #entries: MemoryEntries
  readonly #records = new Map<string, StoredRecord>()
  readonly #audit: AuditLine[] = []
  /** changes by bookings, by kind and reference */
  readonly #booked = new Map<string, Nanos>()
  /** by id of a request whose answer is kept: it is settled, and not refunded */
  readonly #charged = new Map<string, boolean>()
  readonly #tasks = new Map<string, Task>()
  /** ids of the requests of the tasks */
  readonly #tasked = new Set<string>()
  /** by account and name */
  readonly #answers = new Map<string, Answer>()

  constructor (entries: MemoryEntries) {
    this.#entries = entries
  }

  rollups (query: RollupQuery): RollupStep {
    return this.#entries.rollups(query)
  }

  newest (query: EntryQuery): EntryStep {
    return this.#entries.newest(query)
  }

  /**
   * Notes an entry. @returns the change by an earlier entry of this kind and reference: then this one is not written
   */
  note (kind: string, reference: string, nanos: Nanos): Nanos | undefined {
    if (kind === 'settle' || kind === 'adjust') {
      // An answer is kept before its request is settled.
      if (this.#charged.size > 0 && this.#charged.has(reference)) this.#charged.set(reference, kind === 'settle')
    } else if (kind !== 'shortfall') {
      const name = `${kind} ${reference}`
      const before = this.#booked.get(name)
      if (before !== undefined) return before
      this.#booked.set(name, nanos)
    }
  }

  /** Adds or replaces a task. */
  put (task: Task): void {
    this.#tasks.set(task.id, task)
    this.#tasked.add(task.request_id)
  }

  booked (kind: BookingKind, reference: string): Nanos | undefined {
    return this.#booked.get(`${kind} ${reference}`)
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
    if (audit !== undefined) this.#audit.push({ id: this.#audit.length + 1, text: audit })
    return true
  }

  changes (after: number, limit: number): readonly AuditLine[] {
    return this.#audit.slice(after, after + limit)
  }

  newestChanges (before: number | undefined, limit: number): readonly AuditLine[] {
    const end = Math.min((before ?? Infinity) - 1, this.#audit.length)
    return this.#audit.slice(Math.max(0, end - limit), Math.max(0, end)).reverse()
  }

  task (id: string): Task | undefined {
    return this.#tasks.get(id)
  }

  tasks (account: string, { after, limit, order }: TaskPage): readonly Task[] | undefined {
    const all = [...this.#tasks.values()].filter((task) => task.account === account)
      .toSorted((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1))
    if (order === 'desc') all.reverse()
    const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1
    return after !== undefined && from === 0 ? undefined : all.slice(from, from + limit)
  }

  newestTasks (search: TaskSearch): readonly Task[] {
    const newest = new NewestTasks(search)
    for (const task of this.#tasks.values()) newest.see(task)
    return newest.first()
  }

  allTasks (after: string): readonly Task[] {
    return after === '' ? [...this.#tasks.values()] : []
  }

  removeTask (id: string): boolean {
    const task = this.#tasks.get(id)
    if (task?.is_open !== false) return false
    this.#tasked.delete(task.request_id)
    return this.#tasks.delete(id)
  }

  forgetTasks (createdBefore: number): number {
    const old = [...this.#tasks.values()].filter(({ created }) => created < createdBefore)
    return old.filter(({ id }) => this.removeTask(id)).length
  }

  answer (account: string, name: string): Answer | undefined {
    const answer = this.#answers.get(`${account}\n${name}`)
    return answer === undefined || this.#isGiven(answer) ? answer : undefined
  }

  allAnswers (account: string): readonly Answer[] {
    return account === '' ? [...this.#answers.values()].filter((answer) => this.#isGiven(answer)) : []
  }

  keepAnswer (answer: Answer): void {
    this.dropAnswer(answer.account, answer.name)
    this.#answers.set(`${answer.account}\n${answer.name}`, answer)
    this.#charged.set(answer.request_id, false)
  }

  dropAnswer (account: string, name: string): void {
    this.#drop(`${account}\n${name}`)
  }

  forgetAnswers (createdBefore: number, most: number): number {
    const before = this.#answers.size
    for (const [name, { created }] of this.#answers) {
      if (created < createdBefore || this.#answers.size > most) this.#drop(name)
    }
    return before - this.#answers.size
  }

  /** @param name as in `#answers` */
  #drop (name: string): void {
    const answer = this.#answers.get(name)
    if (answer === undefined) return
    this.#answers.delete(name)
    this.#charged.delete(answer.request_id)
  }

  #isGiven ({ request_id: id }: Answer): boolean {
    return this.#charged.get(id) === true || this.#tasked.has(id)
  }
}
