// How the time between a signal and the end of the process is divided. Who has sent it kills the process after
// `drain_delay` and `drain_timeout`, so all that there is to do happens before.
import type { ServerConfig } from './sections/server.ts'

/** Shortest drain, for the last lines of the log. */
const LEAST_MS = 1000
/** The end of `drain_timeout` that is for the process itself: running requests have the rest. */
const OWN_SHARE = 0.25
const LONGEST_OWN_MS = 5000

/** Milliseconds since the signal, each the latest for what it is about. */
export interface DrainTimes {
  /** no more connections are accepted */
  readonly close: number
  /** running requests are ended, with an error in-band */
  readonly abort: number
  /** their connections are closed, whether or not they have read it */
  readonly disconnect: number
  /** A worker ends without the part of it that does not answer. */
  readonly giveUpWorker: number
  /** workers that have not ended are killed */
  readonly killWorkers: number
  /** The process ends without the part of it that does not answer. */
  readonly giveUp: number
  /** the log is written as far as its reader takes it */
  readonly end: number
}

/** @param isUrgent without the delay */
export function drainTimes (
  { drain_delay: delay, drain_timeout: timeout }: Pick<ServerConfig, 'drain_delay' | 'drain_timeout'>,
  isUrgent = false
): DrainTimes {
  const close = isUrgent ? 0 : delay
  const end = close + Math.max(timeout, LEAST_MS)
  const own = Math.min((end - close) * OWN_SHARE, LONGEST_OWN_MS)
  const abort = Math.max(close, close + timeout - own)
  const ownAt = (share: number): number => end - own * (1 - share)
  return { close, abort, disconnect: abort + own * 0.4, giveUpWorker: ownAt(0.6), killWorkers: ownAt(0.7),
    giveUp: ownAt(0.8), end }
}
