// prices: those that follow each other must do so in time, and one of them must hold already.
import type { Path } from '../place.ts'
import type { Report, RuleInput } from './input.ts'
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
export function checkPriceList (price: unknown, path: Path, kind: unknown, input: RuleInput, now: number, report: Report): void {
  if (!Array.isArray(price)) return
  if (kind === 'image' || kind === 'video') {
    for (const [index, item] of price.entries()) if (item === 'free') report([...path, index], 'only the whole price is "free"', 'write "price: free", or "usd: 0" in a row')
    return
  }
  checkStages(price, path, words, input, now, report)
}
