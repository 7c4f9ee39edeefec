// What outlives a reload: made once in gateway/, passed in, never reached for. Interfaces only (ports): each names
// what a plugin, an endpoint or the pipeline asks of it; the rooms whose names stand behind them have more, and give
// it to who makes them.
import type { Logger } from 'pino'
import type { AccountConfig, KeyConfig } from '../config/config.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Task, Tasks } from '../store/tasks.ts'
import type { Attempt } from './facts.ts'
import type { Links, TemporaryFolder } from './files.ts'
import type { TaskReport } from './task-report.ts'
import type { UpstreamServices } from './upstream.ts'

export interface Services {
  readonly log: Logger
  readonly metrics: Metrics
  /** accounts and keys beside those of gateway.yaml */
  readonly directory: KeyDirectory
  /** tasks that outlive their requests, in the same store */
  readonly tasks: Tasks
  readonly videos: VideoTasks
  readonly upstreams: UpstreamServices
  /** files that clients fetch from the public listener */
  readonly links: Links
  /** files that live as long as a request */
  readonly temporary: TemporaryFolder
  /** how many tokens models make of text */
  readonly tokenRates: TokenRates
  /** what upstreams count beyond what their requests show */
  readonly overheads: InputOverheads
  /** milliseconds since the epoch; tests bring their own */
  readonly now: () => number
}

/** What is counted while a request runs; of those that are over telemetry/ makes the rest. */
export interface Metrics {
  /**
   * An attempt is over, well ("ok") or not (the error's row in the catalogue). Of a plan's attempts only the
   * failed ones: `record` knows which one served.
   */
  attempt (upstream: string, outcome: string): void
  /** A request that never became an exchange, such as a parser error or shed load. */
  rejected (reason: string): void
  hookTimeout (plugin: string): void
  /** A target was asked again. @param reason the error's row in the catalogue, or "credential": with another one */
  upstreamRetried (upstream: string, reason: string): void
  /** One that waited for a place at an upstream was let in. @param ms how long it waited */
  queued (upstream: string, ms: number): void
  queueRefused (upstream: string, reason: 'queue_full' | 'queue_timeout'): void
  /** What an answer cost beyond its hold: the operator's loss. */
  shortfall (nanos: Nanos): void
}

/** Keys that were made through the admin API, and their accounts. */
export interface KeyDirectory {
  /** @param digest SHA-256 of the secret */
  findKey (digest: Buffer): KeyConfig | undefined
  account (id: string): AccountConfig | undefined
}

/** Tasks that upstreams work on after the request was answered. */
export interface VideoTasks {
  /** Asks from now on what becomes of it, where there is an open task of this id. */
  watch (id: string): void
  /** The upstream has said with its acceptance what became of the task. Never rejects. */
  hear (id: string, report: TaskReport): Promise<void>
  /** The client has heard that there is no such task: it is not charged, and removed. Never rejects. */
  takeBack (id: string): Promise<void>
  /** milliseconds after which a client may ask again */
  pollAfter (task: Task): number
}

/** How many tokens each model makes of its text, learned from what its upstream reports. */
export interface TokenRates {
  /** Tokens for a character of each class. Never changed: who keeps them estimates the same text alike. */
  of (target: Pick<Attempt, 'upstream' | 'model'>): readonly number[]
  /** @param text all that the report is about @param reported tokens of output */
  learn (target: Pick<Attempt, 'upstream' | 'model'>, text: Weighed, reported: number): void
}

interface Weighed {
  /** @returns tokens */
  weigh (rates: readonly number[]): number
}

/** Tokens and images that a request shows. */
interface Shown {
  readonly tokens: number
  readonly images: number
}

/** What upstreams were seen to count beyond that, by upstream and model. */
export interface InputOverheads {
  /** The bound for one target: tokens, at most its context. */
  bound (target: Pick<Attempt, 'upstream' | 'model'>, shown: Shown, context?: number): number
  /** @param reported tokens of input, of all classes, that it has counted for such a request */
  learn (target: Pick<Attempt, 'upstream' | 'model'>, shown: Shown, reported: number): void
}
