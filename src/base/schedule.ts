// Values that follow each other in time, and change without a reload: prices of a channel, the model of an alias.

/** A value and the time for which it holds, in milliseconds since the epoch. */
export interface Stage<T> {
  /** -Infinity: without a beginning */
  readonly from: number
  /** Infinity: no later value */
  readonly until: number
  readonly written: T
}

/** A day, or an instant in RFC 3339 with its zone: 18:00 alone is a different instant in every place. */
export const FROM =
  /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?:T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,3})?(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d))?$/

/** @returns milliseconds since the epoch; of a day its midnight in UTC. Undefined: no such day or instant */
export function parseFrom (text: string): number | undefined {
  if (!FROM.test(text)) return undefined
  const day = text.slice(0, 10)
  const midnight = Date.parse(day)
  // `Date` takes the 30th of February for the 2nd of March.
  if (Number.isNaN(midnight) || !new Date(midnight).toISOString().startsWith(day)) return undefined
  return Date.parse(text)
}

/**
 * @param list in the order of their beginnings (config/sections/schedule.ts); an item without "from" has always held
 */
export function stagesOf<T extends string | { readonly from?: string }> (list: readonly T[]): readonly Stage<T>[] {
  const begins = list.map((one) => typeof one === 'string' || one.from === undefined ? -Infinity : parseFrom(one.from)!)
  return list.map((written, i) => ({ from: begins[i]!, until: begins[i + 1] ?? Infinity, written }))
}

/**
 * The last stage that has begun. Where the clock was set back to before all of them, the first: there is always one.
 */
export function stageAt<S extends { readonly from: number }> (stages: readonly S[], now: number): S {
  let i = stages.length - 1
  while (i > 0 && stages[i]!.from > now) i--
  return stages[i]!
}
