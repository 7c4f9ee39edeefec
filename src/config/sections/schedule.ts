// Checks of values that follow each other with "from", prices and the models of an alias: they must be in order of
// time, and the first must hold already.
import { FROM, parseFrom } from '../../base/schedule.ts'
import { findTree, isMap, type Path, printSpot } from '../yaml/position.ts'
import { at, type Report, type RuleInput, text } from './input.ts'

/** A value with a beginning of its own, without a reload. */
export function instant (description: string) {
  return {
    description, type: 'string', pattern: FROM.source,
    expected: 'a day such as 2027-01-31, or an instant with its zone such as 2027-01-31T18:00:00+01:00'
  } as const
}

/** Words for the messages. */
export interface StageWords {
  /** such as "price" */
  readonly one: string
  readonly many: string
  /** the consequence when none holds yet */
  readonly without: string
  /** an example of an item with a beginning */
  readonly dated: (item: unknown) => string
}

/**
 * @param list may have items of a wrong form: the schema reports them
 * @param now milliseconds since the epoch
 */
export function checkStages (
  list: readonly unknown[],
  path: Path,
  { one, many, without, dated }: StageWords,
  { tree }: RuleInput,
  now: number,
  report: Report
): void {
  let before: { readonly begins: number, readonly place: Path } | undefined
  for (const [index, item] of list.entries()) {
    if (item !== 'free' && !isMap(item)) continue
    const written = at(item, 'from')
    if (written === undefined) {
      if (index > 0) {
        report([...path, index], `when does it begin? Only the first ${one} of a list may be without "from"`,
          dated(item))
      }
      continue
    }
    const place = [...path, index, 'from']
    const shown = text(written, tree, place)
    const begins = shown === undefined ? undefined : parseFrom(shown)
    if (begins === undefined) {
      if (shown !== undefined && FROM.test(shown)) report(place, `there is no such day: ${shown}`)
      continue
    }
    if (begins === before?.begins) {
      report(place,
        `two ${many} begin at the same instant; the other is at ${printSpot(findTree(tree, before.place).tree.at)}`)
    } else if (before !== undefined && begins < before.begins) {
      report(place, `begins before the ${one} above it`, 'put them into the order in which they begin')
    } else if (index === 0 && begins > now) {
      report(place, `no ${one} holds until ${shown!}: ${without}`, `put the present ${one} above it, without "from"`)
    }
    before = { begins, place }
  }
}
