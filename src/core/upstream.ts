// An upstream as all rooms know it: how it is configured, and which accounts there are. How it is reached is known in
// upstream/ alone.
import type { UpstreamConfig } from '../config/config.ts'
import type { Timer } from '../base/timer.ts'
import type { AnswerMemory } from './answer-memory.ts'

export interface Upstream {
  readonly name: string
  readonly config: UpstreamConfig
  /** before the dialect's own path; '' or "/prefix" */
  readonly basePath: string
  readonly origin: string
  /** at least one: each account that we have there */
  readonly credentials: readonly Credential[]
}

/** One account at an upstream. */
export interface Credential {
  /** undefined: there is only this one, and it has no name */
  readonly id: string | undefined
  /** another one when its headers change: what is known of a revoked one says nothing of the one in its place */
  readonly key: string
  /** the upstream as this account: with its headers, and without the others */
  readonly upstream: Upstream
}

/** What an upstream said when it failed: for the operator. */
export interface FailedAttempt {
  /** milliseconds since the epoch */
  readonly at: number
  readonly request_id: string
  readonly upstream: string
  /** or the route that is forwarded there unread */
  readonly model: string
  readonly credential?: string | undefined
  /** such as "status 404", or "refused: ECONNREFUSED" */
  readonly cause: string
  /** its own words, without secrets of ours or of its own; absent: it said nothing */
  readonly said?: string | undefined
}

/** How the targets of upstreams fare: for whoever chooses among them. */
export interface TargetHealth {
  /** Attempts that run there. */
  loadOf (upstream: string, model: string): number
  /**
   * Milliseconds until an attempt may go there; 0: now. Looks, and changes nothing.
   * @param tried keys of credentials that are out of the question; Infinity where no other is left
   */
  waitOf (upstream: Upstream, model: string, tried?: ReadonlySet<string>): number
  /** What an attempt there came to; of one that nobody has asked for nothing is kept. */
  noteFailure (attempt: FailedAttempt): void
}

/** What outlives a reload of all upstreams. */
export interface UpstreamServices {
  readonly health: TargetHealth
  /** of answers that are read whole */
  readonly answers: AnswerMemory
  /** of pauses before an upstream is asked again */
  readonly timer: Timer
}
