// The state of a process's configuration: its last reload, and what is live.
import type { Config } from './config.ts'
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

/** One difference between two configurations. Values are JSON, cut after 200 characters, with secrets as ***. */
export interface ConfigChange {
  /** JSON pointer, with names in the place of numbers: "/models/claude-sonnet/channels/premium/price/input" */
  readonly path: string
  readonly what: 'added' | 'removed' | 'changed' | 'reordered'
  readonly before?: string
  readonly after?: string
}

export interface ConfigDiff {
  /** the first 200 */
  readonly changes: readonly ConfigChange[]
  /** how many are left out */
  readonly more_changes: number
}

/** A configuration that went live. */
export interface Generation extends ConfigDiff {
  readonly generation: number
  readonly hash: string
  /** when it went live, ISO 8601 */
  readonly at: string
  readonly reason: ReloadReason
}

/** The live configuration and its content. */
export interface ConfigStatus extends ConfigState {
  /** secrets are *** */
  readonly config: Config
  /** those that went live last, the newest first, each with its difference from the one before */
  readonly generations: readonly Generation[]
}

/** What would come of a text in the place of gateway.yaml. */
export interface Judgement extends ConfigDiff {
  /** whether it can be used, as far as it was looked at */
  readonly ok: boolean
  readonly problems: readonly Problem[]
  readonly warnings: readonly Problem[]
  /** values that were not looked at: those of the environment and of secret files */
  readonly unread: readonly Problem[]
  /** true: of problems, warnings or values only the first 200 are told */
  readonly is_cut: boolean
}
