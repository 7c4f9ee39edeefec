// prices: successive prices must be in the order of time, and one must hold already.
import { formatPrice, parsePrice, type Usd } from '../../money/nanos.ts'
import { MOST_USES } from '../../money/usage.ts'
import { isSoldByTokens, modalityOf } from './modalities.ts'
import { explainUsd } from '../check/keywords.ts'
import { isMap, type Path } from '../yaml/position.ts'
import { type Report, type RuleInput, text } from './input.ts'
import { checkStages, instant, type StageWords } from './schedule.ts'
import { map, type Of, price, record, typed, word } from './schema.ts'

const USE_FORMS = 'US dollars, or a map with "usd" and "most"'
const PER_USE = 'US dollars per use of something that the provider counts, such as web_search'

/** Prices of tokens, by class. */
export const tokens = {
  input: price('Input tokens that come from no cache.'),
  output: price('Output tokens.'),
  cache_read: price('Input tokens read from a cache; absent: as input.'),
  cache_write: price('Input tokens written to a cache; absent: as input.'),
  cache_write_5m: price('Written with a life of 5 minutes; absent: as cache_write.'),
  cache_write_1h: price('Written with a life of 1 hour; absent: as cache_write.')
}

const boundedUse = map('A price per use, and a bound for requests without one.', {
  usd: price('US dollars per use.'),
  most: {
    description: 'The "max_uses" of a tool in a request that sets none, so that the hold covers it; absent: such a ' +
      'request is refused.',
    type: 'integer', minimum: 1, maximum: MOST_USES
  }
}, { required: ['usd'] })

const usePrice = typed<Usd | Of<typeof boundedUse>>({
  description: 'US dollars per use, or the price and a bound.',
  if: { type: 'object' }, then: boundedUse, else: { ...price('US dollars per use.'), expected: USE_FORMS }
})

const classes = { ...tokens, extras: record(`${PER_USE}; or a map with the price and a bound.`, usePrice) }

const tokenPrice = map('US dollars per 1M tokens.', classes, { required: ['input', 'output'] })

const priceRow = map('A variant of an image or video model, and what it costs.', {
  when: record('Values of parameters, by name; a parameter that is not named may have any value. Absent: every ' +
    'request.', word('A value of the parameter.'), { minProperties: 1 }),
  usd: price('US dollars per delivered image.'),
  usd_per_second: price('US dollars per second of video.')
})

/** One of successive prices. Only the first may be without `from`, and may be "free": see checkPriceList. */
const stagedPrice = map('US dollars per 1M tokens, from a day or an instant on.', {
  from: instant(
    'When it begins to hold, without a reload: a day (midnight in UTC), or an instant with its zone; absent, in the ' +
    'first of a list only: always.'
  ),
  ...classes
}, { required: ['input', 'output'] })

const priceList = {
  description: 'An image or video model: the first row that fits a request is its price; what fits none is not ' +
    'sold in this channel. A text model: prices that follow each other; the last that has begun holds.',
  type: 'array',
  minItems: 1,
  items: {
    if: { type: 'object', anyOf: ['from', 'input', 'output'].map((field) => ({ required: [field] })) },
    then: stagedPrice,
    else: {
      if: { type: 'string' },
      then: { const: 'free', expected: '"free" or a map of prices' },
      else: { ...priceRow, expected: 'a map of prices' }
    }
  }
}

/** Not anyOf: a value is converted in the one branch that fits, and a value that fits none gets one message. */
export function freeOr<Prices extends object> (
  description: string, prices: Prices, expected = '"free" or a map of prices'
) {
  return typed<'free' | Of<Prices>>({
    description, if: { type: 'string' }, then: { const: 'free', expected }, else: { ...prices, expected },
    hint: 'a price of nothing is written "price: free"'
  })
}

const PRICE_FORMS = '"free", a map of prices per 1M tokens, a list of such prices with "from", ' +
  'or a list of prices per image or second'

/** A rule checks which of the forms fits the model's kind, with one message that names the kind (checkVariants). */
export const channelPrice = typed<'free' | Of<typeof tokenPrice> | readonly ('free' | Of<typeof stagedPrice>)[]>({
  ...freeOr(
    'A text model: US dollars per 1M tokens, or a list of such prices that follow each other. ' +
    'An image or video model: a list of variants. Or "free".', tokenPrice, PRICE_FORMS),
  else: { if: { type: 'array' }, then: priceList, else: { ...tokenPrice, expected: PRICE_FORMS } }
})

const tokenCost = map('US dollars per 1M tokens.',
  { ...tokens, extras: record(`${PER_USE}.`, price('US dollars per use.')) }, { required: ['input', 'output'] })

const COST_FORMS = 'a map of prices per 1M tokens, or a list of prices per image or second'

/** What a target costs the operator. Its form must fit the model's kind, as that of a price. */
export const targetCost = typed<Of<typeof tokenCost> | readonly Of<typeof priceRow>[]>({
  description: 'What it costs the operator, for the metrics of cost and margin: a text model: US dollars per 1M ' +
    'tokens; an image or video model: a list of variants, the first that fits a request. Absent: not known.',
  if: { type: 'array' },
  then: { type: 'array', minItems: 1, items: { ...priceRow, expected: 'a map of prices' } },
  else: { ...tokenCost, expected: COST_FORMS },
  hint: 'what costs nothing is written "cost: { input: 0, output: 0 }"'
})

/**
 * The typed form is that of a text model; prices of other kinds are read through `itemPriceOf` (money/item-price.ts).
 */
export type ChannelPrice = Of<typeof channelPrice>

const words: StageWords = {
  one: 'price',
  many: 'prices',
  without: 'the model could not be sold',
  dated: (item) =>
    item === 'free'
      ? 'what is free from a day on is written { from: 2027-01-31, input: 0, output: 0 }'
      : 'add "from: 2027-01-31"'
}

/**
 * Checks successive prices; the rows of an image or video model are another kind of list (variants.ts).
 * @param now milliseconds since the epoch
 */
export function checkPriceList (
  price: unknown,
  path: Path,
  kind: unknown,
  input: RuleInput,
  now: number,
  report: Report,
  warn: Report
): void {
  if (!Array.isArray(price)) {
    checkUnit(price, path, kind, input, warn)
    return
  }
  for (const [index, item] of price.entries()) checkUnit(item, [...path, index], kind, input, warn)
  if (modalityOf(kind)?.item !== undefined) {
    for (const [index, item] of price.entries()) {
      if (item === 'free') {
        report([...path, index], 'only the whole price is "free"', 'write "price: free", or "usd: 0" in a row')
      }
    }
    return
  }
  checkStages(price, path, words, input, now, report)
}

/**
 * Prices below these get a warning, in US dollars per 1M tokens: vendors' lowest is a cent, and a price written per
 * token is a millionth of it.
 */
const CHEAPEST = { input: 0.001, output: 0.001, cache_read: 0.0001, cache_write: 0.0001, cache_write_5m: 0.0001,
  cache_write_1h: 0.0001 } as const

export function checkUnit (price: unknown, path: Path, kind: unknown, { tree }: RuleInput, warn: Report): void {
  if (!isSoldByTokens(kind) || !isMap(price)) return
  for (const [name, cheapest] of Object.entries(CHEAPEST)) {
    const usd = text(price[name], tree, [...path, name])
    if (usd === undefined || explainUsd(usd, 12) !== undefined || Number(usd) === 0 || Number(usd) >= cheapest) continue
    const meant = formatPrice(parsePrice(usd) * 1_000_000n)
    warn([...path, name], `is a price per 1M tokens, and ${usd} US dollars for so many is next to nothing`,
      `did you mean ${meant}, which is ${usd} per token?`)
  }
}
