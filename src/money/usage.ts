// Usage in disjoint classes: a token is counted in exactly one of them, because vendors differ on which counts include
// which.
import { isRecord } from '../base/json.ts'

export interface Usage {
  /** input tokens that were neither read from nor written to a cache */
  readonly input: number
  readonly cache_read: number
  /** written with a life of 5 minutes, or of an unknown one */
  readonly cache_write_5m: number
  readonly cache_write_1h: number
  readonly output: number
  /** counted extras, such as web searches, by the name of their price */
  readonly extras: Readonly<Record<string, number>>
}

/** The source of the counts: the provider, or the gateway's estimate (after a cut). */
export type UsageSource = 'provider' | 'estimated'

export const noUsage: Usage = Object.freeze({ input: 0, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, output: 0,
  extras: Object.freeze({}) })

/**
 * A provider's reports so far, field by field. An absent field was never reported; a reported zero is a zero
 * (src/README.md#zero-is-zero).
 */
export interface ReportedUsage {
  readonly input?: number
  readonly cache_read?: number
  /** all cache writes, whatever their life */
  readonly cache_write?: number
  readonly cache_write_5m?: number
  readonly cache_write_1h?: number
  readonly output?: number
  readonly extras?: Readonly<Record<string, number>>
  /** a number exceeded what is believed: it counts as absent */
  readonly isAbsurd?: true
}

/** The most tokens that a report is believed, in each class of input and of output. */
export interface Believed {
  readonly input: number
  readonly output: number
}

/**
 * Marks an estimated `usage`, which clients get where a provider reports none, or before it does. Under a symbol, so
 * that it is never written. Charges are not computed from it.
 */
export const guessed = Symbol('guessed usage')

/** Marks a `usage` whose `output_tokens` are estimated, because more output came after the provider's report. */
export const guessedOutput = Symbol('guessed output')

/** Marks a `usage` whose `input_tokens` are estimated. */
export const guessedInput = Symbol('guessed input')

export function isGuessed (vendorUsage: unknown): boolean {
  return isRecord(vendorUsage) && guessed in vendorUsage
}

/** Also true where all counts are estimated. */
export function isInputGuessed (vendorUsage: unknown): boolean {
  return isRecord(vendorUsage) && (guessed in vendorUsage || guessedInput in vendorUsage)
}

export const nothingReported: ReportedUsage = Object.freeze({})

/** No answer has a billion tokens: a number above this is a fault of the upstream, whatever the model. */
const ABSURD = 1e9
const anything: Believed = Object.freeze({ input: ABSURD, output: ABSURD })

/** Most uses of a tool in one answer that are believed. */
export const MOST_USES = 1000

/**
 * All names in `extras`: uses of a tool that runs at the provider, images, and seconds of video. A fixed list, so that
 * an upstream can't fill the ledger with names; each is a column of rollups.
 */
export const ITEMS = ['web_search', 'web_fetch', 'image', 'video_second'] as const

/** Counts in `usage.server_tool_use`, with the name of their price in `extras:`. */
const EXTRAS = [['web_search_requests', 'web_search'], ['web_fetch_requests', 'web_fetch']] as const satisfies
  readonly (readonly [field: string, item: typeof ITEMS[number]])[]

/**
 * Reads a `usage` object of messages style, where `input_tokens` EXCLUDES cache reads and writes. Later values of a
 * field replace earlier ones (input may grow between message_start and message_delta). Null, negative and fractional
 * numbers count as absent; so do those that are not believed, and `isAbsurd` is set.
 */
export function readUsage (
  vendorUsage: unknown,
  previous: ReportedUsage = nothingReported,
  { input, output }: Believed = anything
): ReportedUsage {
  if (!isRecord(vendorUsage)) return previous
  const lives = isRecord(vendorUsage['cache_creation']) ? vendorUsage['cache_creation'] : undefined
  const next: Mutable<ReportedUsage> = { ...previous }
  if (!(guessedInput in vendorUsage)) set(next, 'input', vendorUsage['input_tokens'], input)
  set(next, 'cache_read', vendorUsage['cache_read_input_tokens'], input)
  set(next, 'cache_write', vendorUsage['cache_creation_input_tokens'], input)
  set(next, 'cache_write_5m', lives?.['ephemeral_5m_input_tokens'], input)
  set(next, 'cache_write_1h', lives?.['ephemeral_1h_input_tokens'], input)
  if (guessedOutput in vendorUsage) delete next.output
  else set(next, 'output', vendorUsage['output_tokens'], output)
  const uses = vendorUsage['server_tool_use']
  if (isRecord(uses)) {
    for (const [field, name] of EXTRAS) {
      const count = uses[field]
      if (!isWhole(count)) continue
      if (count > MOST_USES) next.isAbsurd = true
      else next.extras = { ...next.extras, [name]: count }
    }
  }
  return next
}

/** The price of a tool that runs at the provider, by the tool's name in a `server_tool_use` block. */
export function extraOf (tool: unknown): string | undefined {
  return EXTRAS.find(([, name]) => name === tool)?.[1]
}

/**
 * Input, cache reads and cache writes as reported, in disjoint classes; a count that was not reported is 0. Writes are
 * conserved: the part of the total beyond its classes has an unknown life, and counts as 5 minutes (the cheaper one). A
 * total smaller than its classes is the older report, because the vendor's counters only grow.
 */
export function reportedInput (reported: ReportedUsage, output = 0, extras = noUsage.extras): Usage {
  const oneHour = reported.cache_write_1h ?? 0
  return {
    input: reported.input ?? 0,
    cache_read: reported.cache_read ?? 0,
    cache_write_5m: written(reported) - oneHour,
    cache_write_1h: oneHour,
    output,
    extras
  }
}

/** Tokens of all these classes. */
export function reportedTokens (reported: ReportedUsage): number {
  return (reported.input ?? 0) + (reported.cache_read ?? 0) + written(reported)
}

function written (
  { cache_write: all = 0, cache_write_5m: short = 0, cache_write_1h: long = 0 }: ReportedUsage
): number {
  return Math.max(all, short + long)
}

export function isInputReported (reported: ReportedUsage): boolean {
  return reported.input !== undefined || reported.cache_read !== undefined || reported.cache_write !== undefined ||
    reported.cache_write_5m !== undefined || reported.cache_write_1h !== undefined
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] }
type CountField = Exclude<keyof ReportedUsage, 'extras' | 'isAbsurd'>

function set (usage: Mutable<ReportedUsage>, field: CountField, value: unknown, most: number): void {
  if (!isWhole(value)) return
  if (value > most) { usage.isAbsurd = true; return }
  // Each by its name: a field that is chosen here is looked for in a table of the engine, for 30 ns (measured).
  switch (field) {
    case 'input': usage.input = value; break
    case 'cache_read': usage.cache_read = value; break
    case 'cache_write': usage.cache_write = value; break
    case 'cache_write_5m': usage.cache_write_5m = value; break
    case 'cache_write_1h': usage.cache_write_1h = value; break
    case 'output': usage.output = value
  }
}

/** Other values count as absent. */
export function isCount (value: unknown): value is number {
  return isWhole(value) && value <= ABSURD
}

function isWhole (value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0
}
