// prices: those that follow each other must do so in time, and one of them must hold already.
import { FROM, parseFrom } from '../../money/price-in-force.ts'
import { findTree, isMap, type Path, printSpot } from '../place.ts'
import { at, type Report, type RuleInput, text } from './input.ts'

/**
 * The rows of an image or video model are no such list (rules/variants.ts).
 * @param now milliseconds since the epoch
 */
export function checkPriceList (price: unknown, path: Path, kind: unknown, { tree }: RuleInput, now: number, report: Report): void {
  if (!Array.isArray(price)) return
  if (kind === 'image' || kind === 'video') {
    for (const [index, item] of price.entries()) if (item === 'free') report([...path, index], 'only the whole price is "free"', 'write "price: free", or "usd: 0" in a row')
    return
  }
  let before: { readonly begins: number, readonly place: Path } | undefined
  for (const [index, item] of (price as readonly unknown[]).entries()) {
    if (item !== 'free' && !isMap(item)) continue
    const written = at(item, 'from')
    if (written === undefined) {
      if (index > 0) report([...path, index], 'when does it begin? Only the first price of a list may be without "from"', item === 'free' ? 'what is free from a day on is written { from: 2027-01-31, input: 0, output: 0 }' : 'add "from: 2027-01-31"')
      continue
    }
    const place = [...path, index, 'from']
    const shown = text(written, tree, place)
    const begins = shown === undefined ? undefined : parseFrom(shown)
    if (begins === undefined) {
      if (shown !== undefined && FROM.test(shown)) report(place, `there is no such day: ${shown}`)
      continue
    }
    if (begins === before?.begins) report(place, `two prices begin at the same instant; the other is at ${printSpot(findTree(tree, before.place).tree.at)}`)
    else if (before !== undefined && begins < before.begins) report(place, 'begins before the price above it', 'put them into the order in which they begin')
    else if (index === 0 && begins > now) report(place, `no price holds until ${shown!}: the model could not be sold`, 'put the present price above it, without "from"')
    before = { begins, place }
  }
}
