// The state of a process's configuration: its last reload, and what is live.
import type { Problem } from './problem.ts'

export type ReloadReason = 'start' | 'file' | 'sighup'

export interface ReloadResult {
  readonly ok: boolean
  readonly reason: ReloadReason
  /** ISO 8601, the end of the reload */
  readonly at: string
  readonly duration_ms: number
  /** the live generation */
  readonly generation: number
  /** true: a new generation went live */
  readonly changed: boolean
  readonly problems: readonly Problem[]
  readonly warnings: readonly Problem[]
}

/** The live configuration, without its content. */
export interface ConfigState {
  readonly generation: number
  /** hash of all that a reload applies: processes with equal hashes have the same live, whatever the generation */
  readonly hash: string
  readonly loaded_at: string
  readonly source: string
  readonly last_reload: Pick<ReloadResult, 'ok' | 'at' | 'reason' | 'duration_ms'>
  /** problems of the last reload, if it was refused */
  readonly problems: readonly Problem[]
  readonly warnings: readonly Problem[]
}
