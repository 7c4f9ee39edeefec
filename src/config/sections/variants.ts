// models of images and videos: parameters, prices by parameters, and what belongs to one kind of model only.
import { dialectNamed, dialectsOf } from './dialects.ts'
import { type Item, type Modality, modalityOf, type ModelKind, textFields } from './modalities.ts'
import { findTree, isMap, type Path, printSpot } from '../yaml/position.ts'
import { quote } from '../check/messages.ts'
import { suggest } from '../check/suggest.ts'
import { at, type Report, type RuleInput, text } from './input.ts'

/** Fields of a request with a meaning of their own, on which no price can depend. */
/** Rows of a price that later ones are compared with, to find those that are never reached. */
const MOST_COMPARED = 500

const RESERVED = ['model', 'prompt', 'n', 'image', 'images', 'mask', 'response_format', 'stream', 'partial_images',
  'user', 'input_reference']

export function checkVariants (
  item: Record<string, unknown>,
  path: Path,
  input: RuleInput,
  report: Report,
  warn: Report
): void {
  const { kind } = item
  const modality = modalityOf(kind)
  if (modality === undefined) return
  checkDialects(kind as ModelKind, modality, item, path, input, report)
  const { article, item: sold } = modality
  if (sold === undefined) {
    checkTextOnly(item, path, report)
    return
  }
  for (const field of textFields) {
    // a default is in the value, and not in the tree
    if (findTree(input.tree, [...path, field]).exact) {
      report([...path, field], `belongs to text models, and this is ${article}`, 'remove it', true)
    }
  }
  const parameters = checkParameters(item, path, input, report)
  const rows = checkPrices(article, sold, item, path, parameters, input, report, warn)
  if (rows !== undefined) checkSold(path, parameters, rows, report, warn)
}

/** Checks that the upstreams of a model speak a dialect of its modality. */
function checkDialects (
  kind: ModelKind,
  { article }: Modality,
  item: Record<string, unknown>,
  path: Path,
  { value, tree }: RuleInput,
  report: Report
): void {
  for (const [name, channel] of channelsOf(item)) {
    const targets = at(channel, 'targets')
    for (const [index, target] of (Array.isArray(targets) ? targets as readonly unknown[] : []).entries()) {
      const here = [...path, 'channels', name, 'targets', index, 'upstream']
      const upstream = text(at(target, 'upstream'), tree, here)
      const dialect = upstream === undefined ? undefined : at(value, 'upstreams', upstream, 'dialect')
      if (typeof dialect !== 'string' || dialectNamed(dialect)?.kind === kind) continue
      report(here,
        `the upstream ${quote(upstream!)} speaks ${quote(dialect)}, in which ${article} can't be asked`,
        `name an upstream with "dialect: ${dialectsOf(kind).join('" or "dialect: ')}"`)
    }
  }
}

function checkTextOnly (item: Record<string, unknown>, path: Path, report: Report): void {
  if (item.parameters !== undefined) {
    report([...path, 'parameters'], 'belongs to image and video models', 'remove it, or write "kind: image"', true)
  }
  for (const [name, channel] of channelsOf(item)) {
    const price = at(channel, 'price')
    if (Array.isArray(price) && price.some(isItemRow)) {
      report([...path, 'channels', name, 'price'], 'a text model has prices per 1M tokens',
        'write "price: { input: 3, output: 15 }"')
    }
    for (const { cost, here } of costsIn(channel, [...path, 'channels', name])) {
      if (Array.isArray(cost)) {
        report(here, 'a text model costs so much per 1M tokens', 'write "cost: { input: 2, output: 10 }"')
      }
    }
  }
}

/** What the targets of a channel cost, where they say so. */
function costsIn (channel: unknown, path: Path): { readonly cost: unknown, readonly here: Path }[] {
  const targets = at(channel, 'targets')
  return (Array.isArray(targets) ? targets as readonly unknown[] : []).flatMap((target, index) => {
    const cost = at(target, 'cost')
    return cost === undefined ? [] : [{ cost, here: [...path, 'targets', index, 'cost'] }]
  })
}

function isItemRow (row: unknown): boolean {
  return isMap(row) && ('usd' in row || 'usd_per_second' in row || 'when' in row)
}

function channelsOf (item: Record<string, unknown>): [string, unknown][] {
  return isMap(item.channels) ? Object.entries(item.channels) : []
}

interface Parameter {
  readonly values: readonly string[]
  readonly standard: string | undefined
}

type Parameters = ReadonlyMap<string, Parameter>

function checkParameters (item: Record<string, unknown>, path: Path, { tree }: RuleInput, report: Report): Parameters {
  const found = new Map<string, Parameter>()
  for (const [name, parameter] of Object.entries(isMap(item.parameters) ? item.parameters : {})) {
    const here = [...path, 'parameters', name]
    if (RESERVED.includes(name)) {
      report(here, `${quote(name)} has a meaning of its own in a request`,
        'a parameter is a field that a price depends on, such as resolution', true)
    }
    const list = at(parameter, 'values')
    const values = (Array.isArray(list) ? list as readonly unknown[] : []).filter((value) => typeof value === 'string')
    const seen = new Set<unknown>()
    for (const [index, value] of values.entries()) {
      if (seen.size === seen.add(value).size) report([...here, 'values', index], `is in the list twice: ${quote(value)}`)
    }
    const standard = text(at(parameter, 'default'), tree, [...here, 'default'])
    if (standard !== undefined && values.length > 0 && !values.includes(standard)) {
      report([...here, 'default'], `must be one of the values, found ${quote(standard)}`, suggest(standard, values))
    }
    const pixels = at(parameter, 'max_pixels')
    if (pixels !== undefined && name !== 'resolution') {
      report([...here, 'max_pixels'], 'belongs to the parameter resolution', 'remove it', true)
    }
    for (const value of Object.keys(isMap(pixels) ? pixels : {})) {
      if (!seen.has(value)) {
        report([...here, 'max_pixels', value], `${quote(value)} is none of the values`, suggest(value, values), true)
      }
    }
    found.set(name, { values, standard })
  }
  return found
}

type Variant = ReadonlyMap<string, string>

/**
 * @returns the variants of all channels, or undefined where they can't be judged: they have another mistake, or are
 * free
 */
function checkPrices (
  article: string,
  sold: Item,
  item: Record<string, unknown>,
  path: Path,
  parameters: Parameters,
  input: RuleInput,
  report: Report,
  warn: Report
): readonly Variant[] | undefined {
  const all: Variant[] = []
  let isWhole = true
  for (const [name, channel] of channelsOf(item)) {
    const price = at(channel, 'price')
    const here = [...path, 'channels', name, 'price']
    if (Array.isArray(price)) all.push(...checkRows(article, sold, price, here, parameters, input, report, warn))
    else {
      isWhole = false
      if (isMap(price)) report(here, `${article} has a list of prices, ${sold.each}`, `write "price: ${sold.sample}"`)
    }
    for (const { cost, here: place } of costsIn(channel, [...path, 'channels', name])) {
      if (Array.isArray(cost)) checkRows(article, sold, cost, place, parameters, input, report, warn)
      else if (isMap(cost)) {
        report(place, `${article} has a list of costs, ${sold.each}`, `write "cost: ${sold.sample}"`)
      }
    }
  }
  if (sold.unit === 'usd_per_second') checkSeconds(path, parameters, all.length > 0, report)
  return isWhole ? all : undefined
}

/** @returns the variant of each row that has a form at all */
function checkRows (
  article: string,
  { unit, otherUnit, price: what }: Item,
  rows: readonly unknown[],
  here: Path,
  parameters: Parameters,
  input: RuleInput,
  report: Report,
  warn: Report
): readonly Variant[] {
  const before: { readonly variant: Variant, readonly row: Path }[] = []
  for (const [index, value] of rows.entries()) {
    const row = [...here, index]
    if (!isMap(value)) continue
    if (value[otherUnit] !== undefined) {
      report([...row, otherUnit], `${article} is priced with "${unit}"`, `write "${unit}"`, true)
    } else if (value[unit] === undefined) report(row, `"${unit}" is missing: ${what}`)
    const variant = checkWhen(value['when'], row, parameters, input, report)
    // All rows are compared with the first ones: a square of some thousand rows would take seconds.
    const first = (before.length > MOST_COMPARED ? before.slice(0, MOST_COMPARED) : before).find((other) =>
      [...other.variant].every(([parameter, wanted]) => variant.get(parameter) === wanted))
    if (first !== undefined) {
      warn(
        row,
        `is never reached: whatever fits it fits the row at ${printSpot(findTree(input.tree, first.row).tree.at)} ` +
        'before',
        'the first row that fits is the price'
      )
    }
    before.push({ variant, row })
  }
  return before.map(({ variant }) => variant)
}

/**
 * Checks that a price by the second has a parameter with the number of seconds, and that they can be counted: those of
 * free videos are too.
 */
function checkSeconds (path: Path, parameters: Parameters, isPriced: boolean, report: Report): void {
  const seconds = parameters.get('seconds')
  if (seconds === undefined && isPriced) {
    report(path, 'a price per second needs the parameter "seconds"',
      'write "parameters: { seconds: { values: [4, 8, 12], default: 4 } }"')
  }
  for (const [index, value] of (seconds?.values ?? []).entries()) {
    if (!/^[1-9]\d{0,4}$/.test(value)) {
      report([...path, 'parameters', 'seconds', 'values', index],
        `must be a whole number of seconds, found ${quote(value)}`)
    }
  }
}

function checkWhen (when: unknown, row: Path, parameters: Parameters, { tree }: RuleInput, report: Report): Variant {
  const variant = new Map<string, string>()
  for (const [name, value] of Object.entries(isMap(when) ? when : {})) {
    const here = [...row, 'when', name]
    const parameter = parameters.get(name)
    const wanted = text(value, tree, here)
    if (parameter === undefined) {
      report(here, `there is no parameter ${quote(name)}`,
        suggest(name, [...parameters.keys()]) ?? 'add it to parameters:', true)
    } else if (wanted !== undefined && parameter.values.length > 0 && !parameter.values.includes(wanted)) {
      report(here, `${quote(wanted)} is none of the values of ${name}`, suggest(wanted, parameter.values))
    }
    if (wanted !== undefined) variant.set(name, wanted)
  }
  return variant
}

/**
 * Checks that each value of a parameter is sold, or no request could use it; a routable model has a price
 * (src/README.md#no-unpriced).
 */
function checkSold (path: Path, parameters: Parameters, rows: readonly Variant[], report: Report, warn: Report): void {
  for (const [name, { values }] of parameters) {
    for (const [index, value] of values.entries()) {
      if (rows.some((variant) => (variant.get(name) ?? value) === value)) continue
      report([...path, 'parameters', name, 'values', index], `no channel has a price for ${name} ${quote(value)}`,
        `add "- { when: { ${name}: ${value} }, … }" to a price, or remove the value`)
    }
  }
  const standard = new Map(
    [...parameters].flatMap(([name, parameter]) =>
      parameter.standard === undefined ? [] : [[name, parameter.standard] as const]
    )
  )
  const isSold = rows.some((variant) => [...variant].every(([name, value]) => standard.get(name) === value))
  if (!isSold && rows.length > 0) {
    warn([...path, 'parameters'], 'a request that names no parameter fits no price',
      'give the parameters a default that is sold')
  }
}
