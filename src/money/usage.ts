// Usage in disjoint classes: a token is counted in exactly one of them, because vendors differ on which counts include
// which.
import { isRecord, type Json } from '../base/json.ts'

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
  /** the counts are sums of passes, of which the totals have a part */
  readonly isOfPasses?: true
}

/** The most tokens that a report is believed, in each class of input and of output. */
export interface Believed {
  readonly input: number
  readonly output: number
}

/**
 * Marks a `usage` whose output was counted before more of it came. Under a symbol, so that it is never written.
 */
export const countedBefore = Symbol('output was counted before more of it came')

/**
 * In a `usage` whose output is more than the vendor's own count of it, because of the total or of thoughts: that count,
 * which holds where the larger one is not believed. Under a symbol, so that it is never written.
 */
export const statedOutput = Symbol('output as the vendor counts it')

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
  believed: Believed = anything
): ReportedUsage {
  if (!isRecord(vendorUsage)) return previous
  const next: Mutable<ReportedUsage> = { ...previous }
  readCounts(next, vendorUsage, believed)
  if (Array.isArray(vendorUsage['iterations'])) readPasses(next, vendorUsage, believed)
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

function readCounts (into: Mutable<ReportedUsage>, vendorUsage: Json, { input, output }: Believed): void {
  const lives = isRecord(vendorUsage['cache_creation']) ? vendorUsage['cache_creation'] : undefined
  set(into, 'input', vendorUsage['input_tokens'], input)
  set(into, 'cache_read', vendorUsage['cache_read_input_tokens'], input)
  set(into, 'cache_write', vendorUsage['cache_creation_input_tokens'], input)
  set(into, 'cache_write_5m', lives?.['ephemeral_5m_input_tokens'], input)
  set(into, 'cache_write_1h', lives?.['ephemeral_1h_input_tokens'], input)
  const { output_tokens: whole, [statedOutput]: stated } = vendorUsage as Json & { readonly [statedOutput]?: unknown }
  set(into, 'output', isCount(stated) && isCount(whole) && whole > output ? stated : whole, output)
}

/** Types of the passes that the model of the request made; those of other models have other prices. */
const OWN_PASSES = new Set<unknown>(['message', 'compaction', undefined])

/**
 * Anthropic's totals leave out the passes of a compaction, which cost the same (platform.claude.com, "Compaction"; in
 * recorded answers the totals are the sums of the passes of type `message`). The sum of all passes counts, where it has
 * more tokens than the totals.
 */
function readPasses (into: Mutable<ReportedUsage>, vendorUsage: Json, { input, output }: Believed): void {
  const sum: Mutable<Usage> = { ...noUsage }
  for (const pass of vendorUsage['iterations'] as readonly unknown[]) {
    if (!isRecord(pass) || !OWN_PASSES.has(pass['type'])) continue
    const counts = countsOf(pass)
    for (const name of CLASSES) sum[name] += counts[name]
  }
  if (tokensOf(sum) <= tokensOf(countsOf(vendorUsage))) return
  into.isOfPasses = true
  set(into, 'input', sum.input, input)
  set(into, 'cache_read', sum.cache_read, input)
  set(into, 'cache_write', sum.cache_write_5m + sum.cache_write_1h, input)
  set(into, 'cache_write_1h', sum.cache_write_1h, input)
  set(into, 'output', sum.output, output)
}

/** All classes of tokens. */
const CLASSES = ['input', 'cache_read', 'cache_write_5m', 'cache_write_1h', 'output'] as const

function countsOf (vendorUsage: Json): Usage {
  const reported: Mutable<ReportedUsage> = {}
  readCounts(reported, vendorUsage, anything)
  return reportedInput(reported, reported.output)
}

function tokensOf (usage: Usage): number {
  return CLASSES.reduce((sum, name) => sum + usage[name], 0)
}

const INPUT_COUNTS = ['input_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'] as const
const INPUT_FIELDS = [...INPUT_COUNTS, 'cache_creation']
const OUTPUT_FIELDS = ['output_tokens'] as const
const COUNTS = [...INPUT_COUNTS, ...OUTPUT_FIELDS]

function without (vendorUsage: Json, names: readonly string[]): Json {
  const rest: Record<string, unknown> = { ...vendorUsage }
  for (const name of names) Reflect.deleteProperty(rest, name)
  return rest
}

/** What else a report says. */
export function withoutCounts (vendorUsage: Json): Json {
  return without(vendorUsage, [...INPUT_FIELDS, ...OUTPUT_FIELDS])
}

/**
 * The part of a later report that counts (src/README.md#last-usage-wins): vendors repeat the input as zero at the end.
 * The sum decides, because tokens may move from one class into another. What is no number of tokens says nothing.
 * @param before all reports so far
 * @returns the same object, nearly always
 */
export function laterUsage (vendorUsage: Json, before: ReportedUsage, believed?: Believed): Json {
  const now = readUsage(vendorUsage, nothingReported, believed)
  const repeatsInput = isInputReported(now) && reportedTokens(now) === 0 && reportedTokens(before) > 0
  const repeatsOutput = now.output === 0 && (before.output ?? 0) > 0
  const odd = COUNTS.filter((name) => !isWhole(vendorUsage[name] ?? 0))
  if (!repeatsInput && !repeatsOutput && odd.length === 0) return vendorUsage
  return without(vendorUsage, [...odd, ...repeatsInput ? INPUT_FIELDS : [], ...repeatsOutput ? OUTPUT_FIELDS : []])
}

/**
 * What a client of messages style reads in a whole `usage`.
 * @param reported what `readUsage` has read in it alone
 * @returns undefined: a count is missing, or is no number of tokens
 */
export function shownIn (vendorUsage: unknown, reported?: ReportedUsage): ReportedUsage | undefined {
  if (!isRecord(vendorUsage) || !isCount(vendorUsage['input_tokens']) || !isCount(vendorUsage['output_tokens'])) return
  const { cache_read_input_tokens: read, cache_creation_input_tokens: created } = vendorUsage
  if (!isCount(read ?? 0) || !isCount(created ?? 0)) return
  const isAllBelieved = reported?.isAbsurd !== true && !(statedOutput in vendorUsage)
  return isAllBelieved && reported !== undefined ? reported : readUsage(vendorUsage)
}

/** Whether both have the same tokens in each class. */
export function isSameUsage (one: Usage, other: Usage): boolean {
  return one.input === other.input && one.output === other.output && one.cache_read === other.cache_read &&
    one.cache_write_5m === other.cache_write_5m && one.cache_write_1h === other.cache_write_1h
}

/** As `usage` of messages style. */
export function vendorUsageOf (usage: Usage): Json {
  const { input, cache_read: read, cache_write_5m: short, cache_write_1h: long, output } = usage
  return {
    input_tokens: input, cache_creation_input_tokens: short + long, cache_read_input_tokens: read,
    output_tokens: output,
    ...(long > 0 && { cache_creation: { ephemeral_5m_input_tokens: short, ephemeral_1h_input_tokens: long } })
  }
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
type CountField = Exclude<keyof ReportedUsage, 'extras' | 'isAbsurd' | 'isOfPasses'>

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
