// A worker's side of the channel to its primary: the requests that it answers and sends.
import cluster from 'node:cluster'
import { env } from 'node:process'
import type { LatelyView } from '../telemetry/lately.ts'
import type { CredentialReset, UpstreamView } from '../upstream/limits/status.ts'
import { type Addresses, NUMBER, type WorkerState } from './primary.ts'
import { IpcChannel } from './ipc.ts'

/** The primary's requests to a listening worker. */
export interface Worker {
  state (): Promise<WorkerState>
  /** the metrics in Prometheus's format */
  metrics (): Promise<string>
  upstreams (): UpstreamView
  reset (what: CredentialReset): void
  lately (): LatelyView
  reload (): void
  drain (isUrgent: boolean): void
}

/** Long enough for a machine that is busy with starting all workers. */
const SIMULATOR_MS = 20_000

export class Seat {
  /** from 1 */
  readonly number: number
  readonly #channel: IpcChannel
  #worker: Worker | undefined

  /** Undefined: this process is no worker. */
  static take (): Seat | undefined {
    return cluster.isWorker ? new Seat(Number(env[NUMBER])) : undefined
  }

  private constructor (number: number) {
    this.number = number
    const worker = (): Worker => {
      if (this.#worker === undefined) throw new Error('it does not listen yet')
      return this.#worker
    }
    this.#channel = new IpcChannel(process, {
      state: async () => await worker().state(),
      metrics: async () => await worker().metrics(),
      upstreams: () => worker().upstreams(),
      reset: (what) => { worker().reset(what as CredentialReset) },
      lately: () => worker().lately(),
      reload: () => { worker().reload() },
      drain: (isUrgent) => { worker().drain(isUrgent === true) }
    })
  }

  /** The address of the built-in simulator, which the primary runs for all. */
  async simulator (): Promise<string> {
    return await this.#channel.ask<string>('simulator', undefined, SIMULATOR_MS)
  }

  /** Answers the primary's requests from now on. */
  async listens (addresses: Addresses, worker: Worker): Promise<void> {
    this.#worker = worker
    await this.#channel.ask('listening', addresses)
  }

  /** Reports that it could not start, in words for the operator. */
  async failed (message: string): Promise<void> {
    await this.#channel.ask('failed', message)
  }
}
