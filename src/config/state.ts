// What a process says of its configuration: of its last reload, and of what is live.
import type { Problem } from './problem.ts'

export type ReloadReason = 'start' | 'file' | 'sighup'

export interface ReloadResult {
  readonly ok: boolean
  readonly reason: ReloadReason
  /** ISO 8601, when it ended */
  readonly at: string
  readonly duration_ms: number
  /** the generation that is live now */
  readonly generation: number
  /** a new generation went live */
  readonly changed: boolean
  readonly problems: readonly Problem[]
  readonly warnings: readonly Problem[]
}

/** What is live, without what it says. */
export interface ConfigState {
  readonly generation: number
  /** of all that a reload applies: where it is the same, the same is live, whatever the generation */
  readonly hash: string
  readonly loaded_at: string
  readonly source: string
  readonly last_reload: Pick<ReloadResult, 'ok' | 'at' | 'reason' | 'duration_ms'>
  /** of the last reload, when it was refused */
  readonly problems: readonly Problem[]
  readonly warnings: readonly Problem[]
}
