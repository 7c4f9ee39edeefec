// Heartbeats of the processes that serve clients from one store, on any machines: each writes its state every few
// seconds, and all can be read. So an operator sees a change of the configuration arrive everywhere, and which process
// is missing.
import { hostname } from 'node:os'
import type { ConfigState } from '../config/state.ts'
import { randomSecret } from '../base/secrets.ts'
import { version } from '../base/package.ts'
import type { Records } from '../store/store.ts'
import { startTimer, type Timer } from '../base/timer.ts'

/** The part of a process's state that changes while it runs. */
export interface ProcessState extends Pick<ConfigState, 'generation' | 'hash'> {
  readonly requests_in_flight: number
  /** settlements that the store does not have yet; absent: it has each at once */
  readonly outbox?: number
  /** why load balancers should send requests elsewhere; empty: ready */
  readonly reasons: readonly string[]
}

export interface FleetProcess extends ProcessState {
  /** id of this run: a restart makes another one */
  readonly id: string
  readonly host: string
  readonly pid: number
  /** worker number, where its machine has several */
  readonly worker?: number
  readonly version: string
  /** ISO 8601 */
  readonly started: string
  /** seconds since its heartbeat */
  readonly seen_s_ago: number
}

export interface FleetOptions {
  readonly records: Pick<Records, 'beat' | 'beats'>
  /** milliseconds since the epoch */
  readonly now: () => number
  readonly worker?: number | undefined
  readonly timer?: Timer
}

const BEAT_MS = 2000
/** Life of a heartbeat: several may be lost before a process is taken for dead. */
const LIFE_MS = 10_000
const ID_LENGTH = 12

export class Fleet {
  readonly #options: FleetOptions
  readonly #timer: Timer
  readonly #about: Omit<FleetProcess, keyof ProcessState | 'seen_s_ago'>
  #cancel: () => void = () => {}
  /** undefined: this process serves no clients, and only reads */
  #state: (() => ProcessState | Promise<ProcessState>) | undefined

  constructor (options: FleetOptions) {
    const { now, worker, timer = startTimer } = options
    this.#options = options
    this.#timer = timer
    this.#about = {
      id: `gw_${randomSecret().slice(0, ID_LENGTH)}`,
      host: hostname(),
      pid: process.pid,
      ...(worker !== undefined && { worker }),
      version,
      started: new Date(now()).toISOString()
    }
  }

  /** of this process */
  get id (): string {
    return this.#about.id
  }

  /** Sends heartbeats from now on, until `close`. */
  start (state: () => ProcessState | Promise<ProcessState>): void {
    this.#state = state
    this.beat()
  }

  /**
   * Sends a heartbeat now, after a change that other processes should see. A no-op before `start`, or where none can
   * see.
   */
  beat (): void {
    if (this.#state === undefined || this.#options.records.beat === undefined) return
    this.#cancel()
    this.#cancel = this.#timer(BEAT_MS, () => { this.beat() })
    // A store that does not answer gets the next heartbeat: its absence shows meanwhile.
    this.#say(this.#state).catch(() => {})
  }

  async #say (state: () => ProcessState | Promise<ProcessState>): Promise<void> {
    const text = JSON.stringify({ ...this.#about, ...await state() })
    // Not behind the final heartbeat.
    if (this.#state !== undefined) await this.#options.records.beat?.(this.id, LIFE_MS, text)
  }

  /** All living processes, in the order of host and worker number. @throws {Error} the store does not answer */
  async processes (): Promise<readonly FleetProcess[]> {
    const { records } = this.#options
    if (records.beats === undefined) {
      return this.#state === undefined
        ? []
        : [{ ...this.#about, ...await this.#state(), seen_s_ago: 0 }]
    }
    const beats = await records.beats()
    return beats.map(({ text, age_ms }) => ({
      ...JSON.parse(text) as Omit<FleetProcess, 'seen_s_ago'>,
      seen_s_ago: Math.round(age_ms / 100) / 10
    })).toSorted((a, b) => nameOf(a) < nameOf(b) ? -1 : 1)
  }

  /** Ends the heartbeats, so that the process is not missed. Never rejects. */
  async close (): Promise<void> {
    this.#cancel()
    if (this.#state === undefined) return
    this.#state = undefined
    try {
      await this.#options.records.beat?.(this.id, 0)
    } catch {
      // the heartbeat expires by itself
    }
  }
}

function nameOf ({ host, worker = 0, started }: Pick<FleetProcess, 'host' | 'worker' | 'started'>): string {
  return `${host}\n${String(worker).padStart(4, '0')}\n${started}`
}
