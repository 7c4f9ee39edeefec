// The days and months of which stores keep sums, and their names. Limits need the present ones only; the ledger keeps
// all.
import { daysBefore, monthOf } from '../money/calendar.ts'

/**
 * Days kept before the newest day with a charge, with their months. A day may begin a day later in another time zone,
 * and requests begin and end within minutes: the rest is margin, for keys that change their zone.
 */
const KEPT_DAYS = 4
/**
 * Days before the present one in UTC that `verify` compares: fewer than are kept, wherever a day begins, and while it
 * runs.
 */
const COMPARED_DAYS = 2

/** @param newest a day */
export function oldestKept (newest: string): string {
  return daysBefore(newest, KEPT_DAYS)
}

/** @param now milliseconds since the epoch */
export function oldestCompared (now: number): string {
  return daysBefore(new Date(now).toISOString().slice(0, 10), COMPARED_DAYS)
}

/** Whether a period is before the oldest day, or before its month. */
export function isOver (period: string, oldest: string): boolean {
  return period < oldest && period !== monthOf(oldest)
}

/** The name of a key's period in sums and comparisons. */
export function nameOf (period: string, key: string): string {
  return `${period} ${key}`
}

/** The inverse of `nameOf`. */
export function partsOf (name: string): readonly [period: string, key: string] {
  const at = name.indexOf(' ')
  return [name.slice(0, at), name.slice(at + 1)]
}
