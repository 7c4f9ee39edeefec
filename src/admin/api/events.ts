// What changes, told as it happens: at most one event a second, for a page that shows it live. Looks at what there is,
// once a second and only while somebody listens; each listener gets the same event.
import { hash } from 'node:crypto'
import { GatewayError } from '../../errors.ts'
import { choice, instant, list, object, whole } from './answers.ts'
import type { ApiParts, Listener, Operation, Place, RunningParts } from './operation.ts'
import { Refusal } from './refusal.ts'
import { liveAnswer, liveView } from './summary.ts'

const TICK_MS = 1000
/** Most who listen at a time: each has a connection, and one that is dead may look alive for minutes. */
const MOST_LISTENERS = 32
/** Most of one token: a few people with a few tabs each. */
const MOST_OF_TOKEN = 8
/** After so many looks a listener is sent away, to come again: so the place of a dead one is free some day. */
const LONGEST_TICKS = 600

const PARTS = ['requests', 'config', 'upstreams', 'accounts', 'keys', 'tokens', 'videos', 'fleet', 'store',
  'gateway'] as const
type Part = typeof PARTS[number]

const event = object('ChangeEvent', 'What has changed since the event before.', {
  at: instant('When it was looked.'),
  seq: whole('Counts the events; after a gap this listener, which was slow, has missed some.'),
  changed: list('Which parts of the gateway; none in the first event.', choice('A part.', PARTS)),
  generation: whole('Of the live configuration.'),
  live: liveAnswer
})

export function eventOperations (parts: ApiParts, running: RunningParts): readonly Operation[] {
  const changes = new Changes(parts, running)
  return [{
    method: 'GET',
    path: '/events',
    name: 'followChanges',
    summary: 'What changes, as server-sent events. One event `change` a second at most, with the numbers of the last ' +
      'minutes; a comment now and then while nothing does. It ends after ten minutes, with the token, or when the ' +
      'gateway ends: ask again.',
    gives: event,
    isStream: true,
    refuses: ['busy'],
    answer: async ({ by }) => ({ status: 200, body: undefined, place: await changes.place(by.token ?? '') })
  }]
}

interface Seat {
  readonly listener: Listener
  readonly token: string
  leave (): void
  /** looks since it came */
  ticks: number
}

class Changes {
  readonly #parts: ApiParts
  readonly #running: RunningParts
  readonly #seats = new Set<Seat>()
  /** Places by token, including those whose listener is still to come. */
  readonly #taken = new Map<string, number>()
  #isLooking = false
  #seq = 0
  /** what was seen last; undefined: nobody listened then */
  #last: ReadonlyMap<Part, string> | undefined

  constructor (parts: ApiParts, running: RunningParts) {
    this.#parts = parts
    this.#running = running
  }

  /**
   * When all places are taken, a token with fewer of them gets the newest of the token with the most: a refused tab
   * that asks again can then not displace another in turn.
   * @param token '': that of gateway.yaml
   * @throws {Refusal} too many listen @throws {GatewayError} the gateway is ending
   */
  async place (token: string): Promise<Place> {
    if (isEnding(await this.#running.reasons())) {
      throw new GatewayError('service_unavailable', { message: 'The gateway is ending. Ask the next one.' })
    }
    const own = this.#taken.get(token) ?? 0
    if (own >= MOST_OF_TOKEN) throw busy(`${MOST_OF_TOKEN} pages listen with this token already`)
    const all = [...this.#taken.values()].reduce((sum, count) => sum + count, 0)
    if (all >= MOST_LISTENERS && !this.#displace(own)) throw busy(`${MOST_LISTENERS} listen already`)
    this.#taken.set(token, own + 1)
    let seat: Seat | undefined
    let isLeft = false
    const leave = (): void => {
      if (isLeft) return
      isLeft = true
      const left = this.#taken.get(token)! - 1
      if (left === 0) this.#taken.delete(token)
      else this.#taken.set(token, left)
      if (seat !== undefined) this.#seats.delete(seat)
    }
    return {
      listen: (listener) => {
        this.#seats.add(seat = { listener, token, leave, ticks: 0 })
        this.#lookAgain()
      },
      leave
    }
  }

  /** Ends the newest listener of the token with the most. @returns false: none has two more than `own` */
  #displace (own: number): boolean {
    const [most, count] = [...this.#taken].reduce((best, one) => one[1] > best[1] ? one : best)
    const newest = count > own + 1 ? [...this.#seats].findLast(({ token }) => token === most) : undefined
    newest?.leave()
    newest?.listener.end()
    return newest !== undefined
  }

  /** Looks in a second, and every second from then on while somebody listens. */
  #lookAgain (): void {
    if (this.#isLooking) return
    this.#isLooking = true
    this.#running.timer(TICK_MS, () => {
      // What could not be told now can be in a second.
      this.#tell().catch(() => {}).finally(() => {
        this.#isLooking = false
        if (this.#seats.size > 0) this.#lookAgain()
        else this.#last = undefined
      })
    })
  }

  async #tell (): Promise<void> {
    if (this.#seats.size === 0) return
    const { data, isOver, isNew } = await this.#look()
    for (const seat of this.#seats) {
      const { listener } = seat
      const isFirst = seat.ticks++ === 0
      const stays = !isOver && seat.ticks <= LONGEST_TICKS && listener.isKnown() &&
        listener.hear(data, isNew || isFirst)
      if (!stays) listener.end()
    }
  }

  /** What the store can't tell counts as unchanged, until it can. */
  async #look (): Promise<{ readonly data: string, readonly isNew: boolean, readonly isOver: boolean }> {
    const { services: { store, tasks, directory, now }, processes: fleetOf, upstreams } = this.#parts
    const [lately, reasons, processes, view] = await Promise.all([this.#running.lately(), this.#running.reasons(),
      fleetOf().catch(() => undefined), upstreams!.view()])
    const state = this.#running.state()
    const { health } = store
    const seen = new Map<Part, string>([
      ['requests', String(lately.total)],
      ['config', `${state.generation} ${state.last_reload.at}`],
      ['upstreams', digest([view.targets.map(({ upstream, model, breaker, wait, lastError }) =>
        [upstream, model, breaker, wait > 0, lastError?.at]),
      view.credentials.map(({ upstream, id, wait }) => [upstream, id, wait > 0])])],
      ['accounts', String(directory.changes.account)],
      ['keys', String(directory.changes.key)],
      ['tokens', String(directory.changes.token)],
      ['videos', digest(tasks.openTasks().map(({ id, text }) => [id, text]))],
      ['store', digest([health?.isUp, (health?.pending ?? 0) > 0, store.trouble?.message])],
      ['gateway', digest(reasons)],
      ...(processes === undefined ? [] : [['fleet', digest(processes.map(({ id, generation, hash, reasons }) =>
        [id, generation, hash, reasons]))] as const])
    ])
    const last = this.#last
    const changed = last === undefined
      ? []
      : PARTS.filter((part) => seen.has(part) && last.get(part) !== seen.get(part))
    this.#last = new Map([...last ?? [], ...seen])
    if (changed.length > 0) this.#seq++
    const data = JSON.stringify({ at: new Date(now()).toISOString(), seq: this.#seq, changed,
      generation: state.generation, live: liveView(lately, processes) })
    return { data, isNew: changed.length > 0, isOver: isEnding(reasons) }
  }
}

function busy (why: string): Refusal {
  return new Refusal('busy', `${why}. Close one of them, or try again later.`, { headers: { 'retry-after': '30' } })
}

function isEnding (reasons: readonly string[]): boolean {
  return reasons.includes('draining')
}

function digest (value: unknown): string {
  return hash('sha256', JSON.stringify(value))
}
