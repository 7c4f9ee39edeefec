// The limits of a key, in total and on a day and in a month of its time zone: for the store's decisions, and for
// reports.
import type { KeyConfig } from '../config/config.ts'
import { formatUsd, parseUsd, type Nanos } from '../money/nanos.ts'
import { calendarOf, type Calendar } from '../money/calendar.ts'
import type { HoldRequest, KeyUsage, Store } from '../store/store.ts'

type Key = Pick<KeyConfig, 'id' | 'usage_limit_usd' | 'usage_limit_day_usd' | 'usage_limit_month_usd' | 'time_zone'>

type Limits = Pick<HoldRequest, 'usage_limit' | 'usage_limit_day' | 'usage_limit_month'>

/** A key that is changed is another object. */
const compiled = new WeakMap<Key, Limits>()

/** The limits of a hold. Compiled once per key. */
export function limitsOf (key: Key): Limits {
  let limits = compiled.get(key)
  if (limits === undefined) compiled.set(key, limits = compile(key))
  return limits
}

function compile ({ usage_limit_usd: ever, usage_limit_day_usd: day, usage_limit_month_usd: month }: Key): Limits {
  return {
    ...(ever !== undefined && { usage_limit: parseUsd(ever) }),
    ...(day !== undefined && { usage_limit_day: parseUsd(day) }),
    ...(month !== undefined && { usage_limit_month: parseUsd(month) })
  }
}

/**
 * The day of a hold, which is set without a limit too: a limit that is set at noon counts what was spent since
 * midnight.
 * @param at milliseconds since the epoch
 */
export function dayOf (key: Key, at: number): string {
  return calendarFor(key).dayAt(at).id
}

/**
 * The name of a limit in a message, with its amount and its end.
 * @param at milliseconds since the epoch, within the period
 */
export function nameLimit (key: Key, period: 'day' | 'month' | undefined, at: number): string {
  if (period === undefined) return 'the usage limit of the key'
  const calendar = calendarFor(key)
  const { end } = calendar[`${period}At`](at)
  return `the key's limit of $${formatUsd(parseUsd(key[`usage_limit_${period}_usd`]!))} for the ${period} that ends ` +
    `at ${calendar.print(end)}`
}

/** What a key has spent, holds, and may still spend, as JSON. @param now milliseconds since the epoch */
export async function viewUsage (
  store: Pick<Store, 'keyUsage'>,
  key: Key,
  now: number
): Promise<Readonly<Record<string, unknown>>> {
  const calendar = calendarFor(key)
  const period = async (name: 'day' | 'month'): Promise<Readonly<Record<string, unknown>>> => {
    const { id, end } = calendar[`${name}At`](now)
    return { [name]: id, ...view(await store.keyUsage(key.id, id), key[`usage_limit_${name}_usd`]),
      resets_at: new Date(end).toISOString() }
  }
  return { ...view(await store.keyUsage(key.id), key.usage_limit_usd), this_day: await period('day'),
    this_month: await period('month') }
}

function view ({ spent, held }: KeyUsage, limit: string | undefined): Readonly<Record<string, unknown>> {
  return { spent_usd: formatUsd(spent), held_usd: formatUsd(held),
    remaining_usd: limit === undefined ? null : formatUsd(atLeastNothing(parseUsd(limit) - spent - held)) }
}

/** Not negative: a limit may have been lowered below what was spent. */
function atLeastNothing (nanos: Nanos): Nanos {
  return nanos < 0n ? 0n : nanos
}

function calendarFor ({ time_zone: zone = 'UTC' }: Key): Calendar {
  return calendarOf(zone)
}
