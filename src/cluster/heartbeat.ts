// The processes that serve clients from one store, on whatever machines: each says every few seconds how it is, and all
// can be asked for. So an operator sees a change of the configuration arrive everywhere, and who is missing.
import { hostname } from 'node:os'
import type { ConfigState } from '../config/state.ts'
import { randomSecret } from '../base/secrets.ts'
import { version } from '../base/package.ts'
import type { Records } from '../store/store.ts'
import { startTimer, type Timer } from '../base/timer.ts'

/** What changes of a process while it runs. */
export interface ProcessState extends Pick<ConfigState, 'generation' | 'hash'> {
  readonly requests_in_flight: number
  /** settlements that the store does not have yet; absent: it has all at once */
  readonly outbox?: number
  /** why requests should go elsewhere; empty: ready */
  readonly reasons: readonly string[]
}

export interface FleetProcess extends ProcessState {
  /** of this run: another one after a restart, whatever the machine */
  readonly id: string
  readonly host: string
  readonly pid: number
  /** of several on its machine */
  readonly worker?: number
  readonly version: string
  /** ISO 8601 */
  readonly started: string
  /** seconds since it said so */
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
/** Several beats may be lost before a process is taken for dead. */
const LIFE_MS = 10_000
const ID_LENGTH = 12

export class Fleet {
  readonly #options: FleetOptions
  readonly #timer: Timer
  readonly #about: Omit<FleetProcess, keyof ProcessState | 'seen_s_ago'>
  #cancel: () => void = () => {}
  /** undefined: this process serves nobody, and only asks */
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

  /** It serves from now on, until `close`. */
  start (state: () => ProcessState | Promise<ProcessState>): void {
    this.#state = state
    this.beat()
  }

  /** At once: something has changed that others should see. Nothing happens before `start`, or where none can see. */
  beat (): void {
    if (this.#state === undefined || this.#options.records.beat === undefined) return
    this.#cancel()
    this.#cancel = this.#timer(BEAT_MS, () => { this.beat() })
    // A store that does not answer is told next time: its absence is what there is to see meanwhile.
    this.#say(this.#state).catch(() => {})
  }

  async #say (state: () => ProcessState | Promise<ProcessState>): Promise<void> {
    const text = JSON.stringify({ ...this.#about, ...await state() })
    // Not after the last word.
    if (this.#state !== undefined) await this.#options.records.beat?.(this.id, LIFE_MS, text)
  }

  /** All that live, in the order of host and number. @throws {Error} the store does not answer */
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

  /** It is not missed. Never rejects. */
  async close (): Promise<void> {
    this.#cancel()
    if (this.#state === undefined) return
    this.#state = undefined
    try {
      await this.#options.records.beat?.(this.id, 0)
    } catch {
      // its life ends by itself
    }
  }
}

function nameOf ({ host, worker = 0, started }: Pick<FleetProcess, 'host' | 'worker' | 'started'>): string {
  return `${host}\n${String(worker).padStart(4, '0')}\n${started}`
}
