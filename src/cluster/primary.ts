// The workers of a primary: starts them, restarts those that ended, and merges their answers for operators. They are
// the whole gateway but the admin listener; the primary has that, and no request passes through it.
import cluster, { type Worker } from 'node:cluster'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Page } from '../telemetry/merged-metrics.ts'
import type { ConfigState } from '../config/state.ts'
import type { ServerConfig } from '../config/config.ts'
import { drainTimes } from '../config/drain-times.ts'
import type { LatelyView } from '../telemetry/lately.ts'
import type { LogOutput } from '../telemetry/log-output.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { CredentialReset, UpstreamView } from '../upstream/limits/status.ts'
import { Backoff } from './backoff.ts'
import { IpcChannel } from './ipc.ts'
import { relay } from './log-relay.ts'

/** The worker's number, from 1, in its environment. */
export const NUMBER = 'GATEWAY_WORKER'

/** A worker's state, as it reports it. */
export interface WorkerState
  extends Pick<ConfigState, 'generation' | 'hash' | 'loaded_at' | 'last_reload' | 'problems'> {
  /** why load balancers should send requests elsewhere; empty: ready */
  readonly reasons: readonly string[]
}

/** The state of a worker as far as it is known; of one that does not answer, only the reason. */
export type KnownWorker = { readonly worker: number, readonly pid: number | undefined } & Pick<WorkerState, 'reasons'>
  & Partial<WorkerState>

/** The addresses of the listeners that all workers share. */
export interface Addresses {
  readonly api: string
  readonly public: string
}

export interface CrewOptions {
  readonly config: Pick<ServerConfig, 'workers' | 'drain_delay' | 'drain_timeout'>
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** destination of their logs */
  readonly output: Pick<LogOutput, 'writeBytes'>
  readonly metrics: Pick<Metrics, 'workerRestarted'>
  /** address of the built-in simulator, which all share */
  readonly simulator: () => Promise<string>
}

/** A running worker. */
interface Run {
  readonly worker: Worker
  readonly channel: IpcChannel
  /** by `performance.now()`; 0: it does not listen yet */
  listensSince: number
}

interface Ended {
  /** undefined: no process was made */
  readonly pid: number | undefined
  readonly code: number | null
  readonly signal: string | null
  /** the worker's own message */
  readonly reason: string | undefined
  readonly workedMs: number
}

/** A worker number, and its successive workers. */
interface Seat {
  readonly number: number
  run: Run | undefined
}

/** Milliseconds until a worker that was killed has ended, at most. */
const KILLED_MS = 15_000
const ANSWER_MS = 1000
/** Reading gauges may take a second in itself (telemetry/gauges.ts). */
const METRICS_MS = 3000

export class Crew {
  readonly #options: CrewOptions
  readonly #seats: readonly Seat[]
  readonly #ending = new AbortController()

  constructor (options: CrewOptions) {
    this.#options = options
    this.#seats = Array.from({ length: options.config.workers }, (_, i) => ({ number: i + 1, run: undefined }))
    // Of 8 connections that came one by one, two workers got 4 and 4; where both accept from one socket it was 2 and 6,
    // and of 100 at once 81 and 19; by SO_REUSEPORT 2 and 6, and 55 and 45 (measured). A load balancer has few
    // connections, and keeps them. It costs the primary 0.3 ms for each connection, and nothing for a request.
    cluster.schedulingPolicy = cluster.SCHED_RR
    cluster.setupPrimary({ stdio: ['ignore', 'pipe', 'inherit', 'ipc'], serialization: 'advanced' })
    process.on('exit', () => { for (const { run } of this.#seats) run?.worker.process.kill('SIGKILL') })
  }

  get isEnding (): boolean {
    return this.#ending.signal.aborted
  }

  /** Ends when all listen. @throws {Error} one can't: says why, and none runs */
  async start (): Promise<Addresses> {
    const [first, ...others] = this.#seats
    try {
      // The first alone: a mistake is common to all, and is reported once.
      const addresses = await this.#keep(first!)
      await Promise.all(others.map(async (seat) => await this.#keep(seat)))
      return addresses
    } catch (thrown) {
      await this.stop()
      throw thrown
    }
  }

  /** Why load balancers should send requests elsewhere; empty: all workers are ready. */
  async reasons (): Promise<readonly string[]> {
    const states = await this.states()
    return states.flatMap(({ worker, reasons }) => reasons.map((reason) => `worker ${worker}: ${reason}`))
  }

  async states (): Promise<readonly KnownWorker[]> {
    return await Promise.all(this.#seats.map(async ({ number, run }) => {
      const about = { worker: number, pid: run?.worker.process.pid }
      if (run === undefined) return { ...about, reasons: ['it has ended, and will be started again'] }
      if (run.listensSince === 0) return { ...about, reasons: ['it is starting'] }
      const state = await run.channel.ask<WorkerState>('state', undefined, ANSWER_MS).catch((error: Error) => ({
        reasons: [error.message]
      }))
      return { ...about, ...state }
    }))
  }

  /** The metrics of the workers that answer. */
  async pages (): Promise<readonly Page[]> {
    const pages = await Promise.all(this.#seats.map(async ({ number, run }) => {
      const text = await run?.channel.ask<string>('metrics', undefined, METRICS_MS).catch(() => undefined)
      return text === undefined ? [] : [{ worker: String(number), process: String(run!.worker.process.pid), text }]
    }))
    return pages.flat()
  }

  /** Health of upstreams, from the workers that answer. */
  async upstreams (): Promise<readonly UpstreamView[]> {
    const views = await Promise.all(
      this.#seats.map(async ({ run }) =>
        await run?.channel.ask<UpstreamView>('upstreams', undefined, ANSWER_MS).catch(() => undefined)
      )
    )
    return views.filter((view) => view !== undefined)
  }

  /** Ends cooldowns of credentials in the workers that answer: one that starts has none. */
  async reset (what: CredentialReset): Promise<void> {
    await Promise.all(this.#seats.map(async ({ run }) => {
      await run?.channel.ask('reset', what, ANSWER_MS).catch(() => {})
    }))
  }

  /** What requests came to, from the workers that answer. */
  async lately (): Promise<readonly LatelyView[]> {
    const views = await Promise.all(
      this.#seats.map(async ({ run }) =>
        await run?.channel.ask<LatelyView>('lately', undefined, ANSWER_MS).catch(() => undefined)
      )
    )
    return views.filter((view) => view !== undefined)
  }

  reload (): void {
    for (const { run } of this.#seats) run?.channel.ask('reload').catch(() => {})
  }

  /** Shuts down gracefully: each worker drains, by its own deadline. */
  async drain (isUrgent: boolean): Promise<void> {
    await this.#end(drainTimes(this.#options.config, isUrgent).killWorkers, ({ channel, worker }) => {
      channel.ask('drain', isUrgent).catch(() => {
        worker.process.kill('SIGTERM')
      })
    })
  }

  /** Stops at once: what the workers have recorded stays recorded, as after any death. */
  async stop (): Promise<void> {
    await this.#end(KILLED_MS, ({ worker }) => { worker.process.kill('SIGKILL') })
  }

  async #end (patienceMs: number, tell: (run: Run) => void): Promise<void> {
    this.#ending.abort()
    await Promise.all(this.#seats.map(async ({ run }) => {
      if (run === undefined) return
      const { process } = run.worker
      const gone = new Promise((resolve) => { run.worker.once('exit', resolve) })
      const killing = setTimeout(() => { process.kill('SIGKILL') }, patienceMs)
      // A worker that does not listen yet has no requests to end.
      if (run.listensSince === 0) process.kill('SIGKILL')
      else tell(run)
      await gone
      clearTimeout(killing)
    }))
  }

  /**
   * Runs one worker after the other under a number, until the shutdown. @throws {Error} the first of them can't start
   */
  async #keep (seat: Seat): Promise<Addresses> {
    const { promise, resolve, reject } = Promise.withResolvers<Addresses>()
    let hasListened = false
    const work = async (): Promise<void> => {
      const { log, metrics } = this.#options
      const backoff = new Backoff()
      for (;;) {
        const { pid, code, signal, reason, workedMs } = await this.#run(seat, (addresses) => {
          hasListened = true
          resolve(addresses)
        })
        seat.run = undefined
        if (!hasListened) {
          reject(
            new Error(reason ?? `worker ${seat.number} ended with ${signal ?? `exit code ${code}`} before it listened`)
          )
          return
        }
        if (this.isEnding) return
        const wait = backoff.next(workedMs)
        metrics.workerRestarted()
        log.error({ worker: seat.number, pid, exit_code: code ?? undefined, signal: signal ?? undefined, reason,
          restart_in_ms: wait }, 'a worker has ended: it is started again')
        await sleep(wait, undefined, { signal: this.#ending.signal }).catch(() => {})
        if (this.isEnding) return
      }
    }
    void work()
    return await promise
  }

  /** One worker from its start to its end, however it ends. Never rejects. */
  async #run (seat: Seat, onListening: (addresses: Addresses) => void): Promise<Ended> {
    const { promise, resolve } = Promise.withResolvers<Ended>()
    let reason: string | undefined
    const end = (code: number | null, signal: string | null): void => {
      const since = seat.run?.listensSince ?? 0
      resolve({ pid: seat.run?.worker.process.pid, code, signal, reason,
        workedMs: since === 0 ? 0 : performance.now() - since })
    }
    try {
      const worker = cluster.fork({ [NUMBER]: String(seat.number) })
      const { process } = worker
      // Such as when the system is out of processes: then there is no exit event.
      worker.on('error', (error) => { reason ??= error.message; if (process.pid === undefined) end(null, null) })
      worker.once('exit', end)
      if (process.stdout !== null) relay(process.stdout, this.#options.output)
      seat.run = {
        worker,
        listensSince: 0,
        channel: new IpcChannel(process, {
          listening: (addresses) => { seat.run!.listensSince = performance.now(); onListening(addresses as Addresses) },
          failed: (message) => { reason = String(message) },
          simulator: async () => await this.#options.simulator()
        })
      }
    } catch (thrown) {
      reason = (thrown as Error).message
      end(null, null)
    }
    return await promise
  }
}
