// Services that outlive a reload: made once in gateway/, passed in, never global. Interfaces only (ports): each has
// what a plugin, an endpoint or the pipeline needs of it; the implementing rooms have more, for the code that makes
// them.
import type { Logger } from 'pino'
import type { AccountConfig, KeyConfig } from '../config/config.ts'
import type { Nanos } from '../money/nanos.ts'
import type { KeptResponses } from '../store/responses.ts'
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
  readonly addresses: Addresses
  /** files that live as long as a request */
  readonly temporary: TemporaryFolder
  readonly seals: Seals
  readonly responses: KeptResponses
  /** tokens per character, by target */
  readonly tokenRates: TokenRates
  /** tokens that upstreams count beyond what their requests show */
  readonly overheads: InputOverheads
  /** milliseconds since the epoch; tests bring their own */
  readonly now: () => number
}

/** URLs under which clients reach the listeners; empty until they listen. */
export interface Addresses {
  readonly api: string
  readonly public: string
}

/** Metrics of running requests; telemetry/ has those of finished ones. */
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
  /** A request that had waited for a place at an upstream was admitted. @param ms the wait */
  queued (upstream: string, ms: number): void
  queueRefused (upstream: string, reason: 'queue_full' | 'queue_timeout'): void
  /** An answer cost more than its hold: the operator's loss. */
  shortfall (nanos: Nanos): void
}

/** Keys made through the admin API, and their accounts. */
export interface KeyDirectory {
  /** @param digest SHA-256 of the secret */
  findKey (digest: Buffer): KeyConfig | undefined
  account (id: string): AccountConfig | undefined
}

/** Texts that clients keep for the gateway, and can neither read nor change. */
export interface Seals {
  /**
   * @param purpose a word, such as `thinking`: what was sealed for one purpose opens for no other
   * @param account id; for no other account it opens
   * @returns the value encrypted: a prefix, letters, digits, "_" and "-"
   */
  seal (purpose: string, account: string, value: string): string
  /**
   * The value. Undefined: not sealed, changed, another purpose's or account's, or of a secret that is not known any
   * more. Never throws.
   */
  open (purpose: string, account: string, sealed: string): string | undefined
}

/** Tasks that upstreams work on after the request was answered. */
export interface VideoTasks {
  /** Watches the open task of this id, if there is one. */
  watch (id: string): void
  /** Records the result that an upstream gave with its acceptance. Never rejects. */
  hear (id: string, report: TaskReport): Promise<void>
  /** Cancels a task whose client was told that it does not exist: it is not charged, and removed. Never rejects. */
  takeBack (id: string): Promise<void>
  /** milliseconds after which a client may poll again */
  pollAfter (task: Task): number
}

/** Token rates of each model, learned from its upstream's reports. */
export interface TokenRates {
  /** Tokens for a character of each class. The array is never changed, so two estimates with it are comparable. */
  of (target: Pick<Attempt, 'upstream' | 'model'>): readonly number[]
  /** @param text all output that the report covers @param reported tokens of output */
  learn (target: Pick<Attempt, 'upstream' | 'model'>, text: Weighed, reported: number): void
  readonly hidden: HiddenOutput
}

/** Output that is counted and not shown, such as reasoning, learned from whole answers of each model and account. */
interface HiddenOutput {
  /**
   * @param mode how much the request has the model think
   * @param visible tokens of the answer that were shown
   * @param hidden the others that its provider counts
   */
  learn (
    target: Pick<Attempt, 'upstream' | 'model'>, mode: string, account: string, visible: number, hidden: number
  ): void
  /** Tokens that belong to so many visible ones. */
  of (target: Pick<Attempt, 'upstream' | 'model'>, mode: string, account: string, visible: number): number
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

/** Tokens that upstreams were seen to count beyond that, by upstream and model. */
export interface InputOverheads {
  /** The bound for one target and account: tokens, at most its context. */
  bound (target: Pick<Attempt, 'upstream' | 'model'>, shown: Shown, context?: number, account?: string): number
  /** @param reported tokens of input of all classes that the target has counted for such a request of the account */
  learn (
    target: Pick<Attempt, 'upstream' | 'model'>, shown: Shown, reported: number, context?: number, account?: string
  ): void
}
