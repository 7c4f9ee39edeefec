// Which days and months the stores keep the sums of, and by what name. Limits only ask for the present ones; the ledger
// keeps all.
import { daysBefore, monthOf } from '../money/calendar.ts'

/**
 * So many days before the newest that something was charged to, and those of their months, are kept. It may be a day
 * later in one zone than in another, and requests begin and end within minutes: the rest is margin, for keys that
 * change their zone.
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

/** A day before the oldest one, or a month before its month. */
export function isOver (period: string, oldest: string): boolean {
  return period < oldest && period !== monthOf(oldest)
}

/** The name under which a key's day or month is added up and compared. */
export function nameOf (period: string, key: string): string {
  return `${period} ${key}`
}

/** The other way round. */
export function partsOf (name: string): readonly [period: string, key: string] {
  const at = name.indexOf(' ')
  return [name.slice(0, at), name.slice(at + 1)]
}
