// An upstream as all rooms know it: its configuration and its accounts. Only upstream/ knows how it is reached.
import type { UpstreamConfig } from '../config/config.ts'
import type { Timer } from '../base/timer.ts'
import type { AnswerMemory } from './answer-memory.ts'

export interface Upstream {
  readonly name: string
  readonly config: UpstreamConfig
  /** path prefix before the dialect's own path; '' or "/prefix" */
  readonly basePath: string
  readonly origin: string
  /** the operator's accounts at the upstream; at least one */
  readonly credentials: readonly Credential[]
}

/** One account at an upstream. */
export interface Credential {
  /** undefined: the only credential, which has no name */
  readonly id: string | undefined
  /** changes with the headers: the state of a revoked credential does not apply to its successor */
  readonly key: string
  /** the upstream with this account's headers alone */
  readonly upstream: Upstream
}

/** A failed attempt, as the operator is shown it. */
export interface FailedAttempt {
  /** milliseconds since the epoch */
  readonly at: number
  readonly request_id: string
  readonly upstream: string
  /** model, or the forward route */
  readonly model: string
  readonly credential?: string | undefined
  /** of its answer; absent: there was none, or it broke off behind a good one */
  readonly status?: number | undefined
  /** such as "status 404", or "refused: ECONNREFUSED" */
  readonly cause: string
  /** the upstream's message, without secrets of either side; absent: it sent none */
  readonly said?: string | undefined
}

/** Health of the targets, for choosing among them. */
export interface TargetHealth {
  /** Attempts in progress at a target. */
  loadOf (upstream: string, model: string): number
  /**
   * Milliseconds until an attempt may go to a target; 0: now. Changes nothing.
   * @param tried keys of credentials that are out of the question; Infinity where no other is left
   */
  waitOf (upstream: Upstream, model: string, tried?: ReadonlySet<string>): number
  /** Keeps a target's last failure; a target that has never been entered has no record. */
  noteFailure (attempt: FailedAttempt): void
}

/** Services of all upstreams that outlive a reload. */
export interface UpstreamServices {
  readonly health: TargetHealth
  /** memory for answers that are read whole */
  readonly answers: AnswerMemory
  /** timer of the pauses before an upstream is asked again */
  readonly timer: Timer
}
