// prices: those that follow each other must do so in time, and one of them must hold already.
import { formatPrice, parsePrice } from '../../money/nanos.ts'
import { explainUsd } from '../keywords.ts'
import { isMap, type Path } from '../place.ts'
import { type Report, type RuleInput, text } from './input.ts'
import { checkStages, type StageWords } from './stages.ts'

const words: StageWords = {
  one: 'price',
  many: 'prices',
  without: 'the model could not be sold',
  dated: (item) => item === 'free' ? 'what is free from a day on is written { from: 2027-01-31, input: 0, output: 0 }' : 'add "from: 2027-01-31"'
}

/**
 * The rows of an image or video model are no such list (rules/variants.ts).
 * @param now milliseconds since the epoch
 */
export function checkPriceList (price: unknown, path: Path, kind: unknown, input: RuleInput, now: number, report: Report, warn: Report): void {
  if (!Array.isArray(price)) {
    checkUnit(price, path, kind, input, warn)
    return
  }
  for (const [index, item] of price.entries()) checkUnit(item, [...path, index], kind, input, warn)
  if (kind === 'image' || kind === 'video') {
    for (const [index, item] of price.entries()) if (item === 'free') report([...path, index], 'only the whole price is "free"', 'write "price: free", or "usd: 0" in a row')
    return
  }
  checkStages(price, path, words, input, now, report)
}

/** US dollars per 1M tokens; the cheapest that anybody asks for is a cent. What is written per token is a millionth of what was meant. */
const CHEAPEST = { input: 0.001, output: 0.001, cache_read: 0.0001, cache_write: 0.0001, cache_write_5m: 0.0001, cache_write_1h: 0.0001 } as const

function checkUnit (price: unknown, path: Path, kind: unknown, { tree }: RuleInput, warn: Report): void {
  if (kind !== 'text' || !isMap(price)) return
  for (const [name, cheapest] of Object.entries(CHEAPEST)) {
    const usd = text(price[name], tree, [...path, name])
    if (usd === undefined || explainUsd(usd, 12) !== undefined || Number(usd) === 0 || Number(usd) >= cheapest) continue
    const meant = formatPrice(parsePrice(usd) * 1_000_000n)
    warn([...path, name], `is a price per 1M tokens, and ${usd} US dollars for so many is next to nothing`, `did you mean ${meant}, which is ${usd} per token?`)
  }
}
