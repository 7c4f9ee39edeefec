// Tasks, each watched by one process at a time, and answers to idempotent requests. A process renews its lease on its
// tasks every few seconds; tasks whose lease is over are taken over by another process.
import { GatewayError } from '../../errors.ts'
import type { Nanos } from '../../money/nanos.ts'
import type { Settlement } from '../store.ts'
import type { Answer, NewTask, Task, TaskPage } from '../tasks.ts'
import type { Delivery } from './outbox-delivery.ts'
import { textOf } from './entries.ts'
import { AwayError } from './connection.ts'
import { eachOf, type Space } from './keyspace.ts'

/** Tasks per read, where all are listed. */
const PAGE = 500

/** State of a task's hold beside the task. */
interface Held {
  readonly day: string
  readonly oldest: string
}

interface Watched extends Held {
  readonly task: Task
}

export class RedisTasks {
  readonly #space: Space
  readonly #delivery: Delivery
  readonly #owner: string
  readonly #onTaken: (id: string) => void
  /** tasks that this process watches, by id */
  readonly #open = new Map<string, Watched>()
  /** claimed names of requests that are served now, by request id */
  readonly #claims = new Map<string, { readonly account: string, readonly name: string, readonly requestId: string }>()

  /** @param onTaken called with the id of a task taken over from another process */
  constructor (space: Space, delivery: Delivery, owner: string, onTaken: (id: string) => void) {
    this.#space = space
    this.#delivery = delivery
    this.#owner = owner
    this.#onTaken = onTaken
  }

  async open (task: NewTask, held: Held): Promise<void> {
    const { id, request_id: requestId, account, nanos, created, text } = task
    const { link } = this.#space
    // Before the task: a kill in between leaves an index entry without a task, and never a task that no process
    // watches.
    await this.#space.orUnavailable(Promise.all([
      link.call(async (client) => await client.set(this.#space.single(`task:${id}`), account)),
      this.#shared('watchTasks', this.#owner, memberOf(task))
    ]))
    let isOpen: unknown
    try {
      isOpen = await this.#space.ask('openTask', account, requestId, id, `${nanos}`, created, text)
    } catch (thrown) {
      // The task may be there, though its client will hear that there is none.
      if (thrown instanceof AwayError) await this.#delivery.post({ of: 'untask', account, id: requestId, task: id })
      throw thrown instanceof AwayError ? new GatewayError('service_unavailable', { cause: thrown }) : thrown
    }
    if (isOpen !== 1) throw new Error(`the request ${requestId} has no hold of ${nanos} nano-dollars`)
    this.#open.set(id, { task: { ...task, is_open: true }, ...held })
  }

  note (id: string, text: string): void {
    const watched = this.#open.get(id)
    if (watched === undefined) return
    this.#open.set(id, { ...watched, task: { ...watched.task, text } })
    // A lost note is harmless: the upstream is polled again.
    this.#space.ask('noteTask', watched.task.account, id, text).catch(() => {})
  }

  async end (
    id: string,
    text: string,
    settlement: Omit<Settlement, 'request_id'> | undefined
  ): Promise<Nanos | undefined> {
    const watched = this.#open.get(id)
    if (watched === undefined) return undefined
    const { task, day, oldest } = watched
    const { account, key, request_id: requestId } = task
    const nanos = settlement === undefined || settlement.nanos < task.nanos ? settlement?.nanos ?? 0n : task.nanos
    const shortfall = (settlement?.nanos ?? 0n) - nanos
    const what = settlement === undefined ? '' : textOf(settlement)
    const told = await this.#space.orUnavailable(
      this.#space.ask('endTask', account, id, text, settlement === undefined ? 0 : 1, `${nanos}`, `${shortfall}`, day,
        oldest, what)
    )
    this.#forget(watched)
    if (told === null) return undefined
    const charged = BigInt(told as string)
    if (settlement !== undefined) {
      await this.#delivery.keep({ of: 'settle', account, id: requestId, key, day, oldest, nanos: `${nanos}`,
        shortfall: `${shortfall}`, what, at: this.#space.nearly })
    }
    return charged
  }

  async remove (id: string): Promise<boolean> {
    const account = await this.#accountOf(id)
    if (account === undefined) return false
    const isRemoved = await this.#space.orUnavailable(this.#space.ask('removeTask', account, id)) === 1
    if (isRemoved) await this.#forgetNames([id])
    return isRemoved
  }

  async forget (createdBefore: number): Promise<number> {
    const counts = await eachOf(await this.#space.accounts(), async (account) => {
      let count = 0
      for (;;) {
        const ids = await this.#space.orUnavailable(this.#space.ask('forgetTasks', account, createdBefore)) as string[]
        if (ids.length === 0) return count
        await this.#forgetNames(ids)
        count += ids.length
      }
    })
    return counts.reduce((sum, count) => sum + count, 0)
  }

  async find (id: string): Promise<Task | undefined> {
    const own = this.#open.get(id)
    if (own !== undefined) return own.task
    const account = await this.#accountOf(id)
    if (account === undefined) return undefined
    const fields = await this.#space.orUnavailable(
      this.#space.link.call(async (client) => await client.hgetall(this.#space.of(account, `task:${id}`)))
    )
    return readTask(account, id, fields)
  }

  async list (account: string, { after = '', limit, order }: TaskPage): Promise<readonly Task[] | undefined> {
    const told = await this.#space.orUnavailable(this.#space.ask('listTasks', account, limit, order, after)) as
      | (string | string[])[]
      | null
    if (told === null) return undefined
    const found: Task[] = []
    for (let i = 0; i < told.length; i += 2) {
      const id = told[i] as string
      const task = this.#open.get(id)?.task ?? readTask(account, id, fieldsOf(told[i + 1] as string[]))
      if (task !== undefined) found.push(task)
    }
    return found
  }

  async * all (): AsyncIterable<Task> {
    for (const account of await this.#space.accounts()) {
      for (let after: string | undefined, page: readonly Task[];
        (page = await this.list(account, { limit: PAGE, order: 'asc', ...(after !== undefined && { after }) }) ?? [])
          .length > 0; after = page.at(-1)!.id) { yield* page }
    }
  }

  async * allAnswers (): AsyncIterable<Answer> {
    for (const account of await this.#space.accounts()) {
      const names = await this.#space.orUnavailable(
        this.#space.link.call(async (client) => await client.hkeys(this.#space.of(account, 'answers')))
      )
      for (const name of names) {
        const answer = await this.answer(account, name)
        if (answer !== undefined) yield answer
      }
    }
  }

  findOpen (id: string): Task | undefined {
    return this.#open.get(id)?.task
  }

  allOpen (): readonly Task[] {
    return [...this.#open.values()].map(({ task }) => task)
  }

  /** Renews the leases of this process, and takes over tasks of dead ones. @throws {AwayError} */
  async renew (): Promise<void> {
    const own = [...this.#open.values()]
    if (own.length > 0) {
      const lost = new Set(
        await this.#shared('watchTasks', this.#owner, ...own.map(({ task }) => memberOf(task))) as string[]
      )
      // Its lease had ended, and another process watches it.
      for (const { task } of own) if (lost.has(memberOf(task))) this.#open.delete(task.id)
    }
    await this.take()
    await Promise.all([...this.#claims.values()].map(async ({ account, name, requestId }) => {
      await this.#space.ask('claim', account, name, requestId)
    }))
  }

  async take (): Promise<void> {
    for (const member of await this.#shared('takeTasks', this.#owner) as string[]) {
      const [account, id] = member.split(' ') as [string, string]
      const fields = await this.#space.link.call(async (client) =>
        await client.hgetall(this.#space.of(account, `task:${id}`))
      )
      const task = readTask(account, id, fields)
      if (task?.is_open !== true) { await this.#shared('leaveTasks', 1, member); continue }
      // The script reads the day from the hold.
      this.#open.set(id, { task, day: '', oldest: '' })
      this.#onTaken(id)
    }
  }

  /** Ends the leases at a clean end: other processes need not wait for them. */
  async leave (): Promise<void> {
    const own = this.allOpen().map(memberOf)
    if (own.length > 0) await this.#shared('leaveTasks', 0, ...own)
  }

  async keepAnswer ({ account, name, ...answer }: Answer): Promise<void> {
    await this.#space.orUnavailable(
      this.#space.ask('keepAnswer', account, name, answer.created, JSON.stringify(answer))
    )
  }

  async answer (account: string, name: string): Promise<Answer | undefined> {
    const told = await this.#space.orUnavailable(this.#space.ask('answer', account, name)) as string | null
    return told === null
      ? undefined
      : { text: undefined, ...JSON.parse(told) as Omit<Answer, 'account' | 'name' | 'text'>, account, name }
  }

  async dropAnswers (account: string, ...names: readonly string[]): Promise<number> {
    return await this.#space.orUnavailable(this.#space.ask('dropAnswers', account, ...names)) as number
  }

  async forgetAnswers (createdBefore: number, most: number): Promise<number> {
    const { link } = this.#space
    let dropped = 0
    let left = 0
    const accounts = await this.#space.accounts()
    await eachOf(accounts, async (account) => {
      const times = this.#space.of(account, 'answer_times')
      const [old, count] = await this.#space.orUnavailable(Promise.all([
        link.call(async (client) => await client.zrangebyscore(times, '-inf', `(${createdBefore}`)),
        link.call(async (client) => await client.zcard(times))
      ]))
      if (old.length > 0) dropped += await this.dropAnswers(account, ...old)
      left += count - old.length
    })
    if (left <= most) return dropped
    const oldest = await eachOf(accounts, async (account) => {
      const told = await this.#space.orUnavailable(
        link.call(async (client) =>
          await client.zrange(this.#space.of(account, 'answer_times'), 0, left - most - 1, 'WITHSCORES')
        )
      )
      return told.flatMap((name, i) => i % 2 === 0 ? [{ account, name, created: Number(told[i + 1]) }] : [])
    })
    for (const { account, name } of oldest.flat().toSorted((a, b) => a.created - b.created).slice(0,
      left - most)) { dropped += await this.dropAnswers(account, name) }
    return dropped
  }

  async claim (account: string, name: string, requestId: string): Promise<boolean> {
    // Before the request: a claim that was executed without an answer can be given back.
    this.#claims.set(requestId, { account, name, requestId })
    const isOurs = await this.#space.orUnavailable(this.#space.ask('claim', account, name, requestId)) === 1
    if (!isOurs) this.#claims.delete(requestId)
    return isOurs
  }

  async unclaim (requestId: string): Promise<void> {
    const claim = this.#claims.get(requestId)
    if (claim === undefined) return
    this.#claims.delete(requestId)
    // Without an answer the lease ends by itself.
    await this.#space.ask('unclaim', claim.account, claim.name, requestId).catch(() => {})
  }

  #forget ({ task }: Watched): void {
    this.#open.delete(task.id)
    // A member that stays is taken over by a process that finds the task over.
    this.#shared('leaveTasks', 1, memberOf(task)).catch(() => {})
  }

  async #forgetNames (ids: readonly string[]): Promise<void> {
    await this.#space.orUnavailable(
      Promise.all(
        ids.map(async (id) =>
          await this.#space.link.call(async (client) => await client.del(this.#space.single(`task:${id}`)))
        )
      )
    )
  }

  async #accountOf (id: string): Promise<string | undefined> {
    return await this.#space.orUnavailable(
      this.#space.link.call(async (client) => await client.get(this.#space.single(`task:${id}`)))
    ) ?? undefined
  }

  async #shared (
    script: 'watchTasks' | 'takeTasks' | 'leaveTasks',
    ...args: readonly (string | number)[]
  ): Promise<unknown> {
    return await this.#space.link.run(script, this.#space.shared('open'), this.#space.time, ...args)
  }
}

/** Unambiguous, because no account id has a space in it. */
function memberOf ({ account, id }: Pick<Task, 'account' | 'id'>): string {
  return `${account} ${id}`
}

function fieldsOf (told: readonly string[]): Record<string, string> {
  const fields: Record<string, string> = {}
  for (let i = 0; i < told.length; i += 2) fields[told[i]!] = told[i + 1]!
  return fields
}

function readTask (
  account: string,
  id: string,
  { request_id: requestId, key, nanos, created, is_open: isOpen, text }: Readonly<Record<string, string>>
): Task | undefined {
  if (requestId === undefined) return undefined
  return { id, request_id: requestId, account, key: key!, nanos: BigInt(nanos!), created: Number(created),
    is_open: isOpen === '1', text: text! }
}
