// What is different between two configurations, in paths of gateway.yaml: what has a name in a list is found by it,
// wherever it stands. Compares the values themselves, and shows them without secrets.
import { setImmediate as turn } from 'node:timers/promises'
import type { Config } from './config.ts'
import { redact } from './redact.ts'
import type { ConfigChange, ConfigDiff } from './state.ts'
import { formatPointer, isMap } from './yaml/position.ts'

/** A configuration, and what must not be shown of it. */
export interface Shown {
  readonly config: Config
  /** JSON pointers of values to hide, beside those that `redact` knows */
  readonly secrets: readonly string[]
}

/** Most changes that are told, and characters of a value. */
const MOST_CHANGES = 200
const LONGEST_VALUE = 200

/** Items of a list that are compared in one turn of the event loop: 1,000 models at once take 5 ms (measured). */
const SLICE = 50

/** What names an item of a list, wherever it stands: of models, keys and so on, of the pipeline, and of routes. */
const NAMES = ['id', 'use', 'match'] as const

/** @param ignored JSON pointers into `after` of values that are not known */
export async function diffConfigs (before: Shown, after: Shown, ignored: readonly string[] = []): Promise<ConfigDiff> {
  const diff = new Diff(new Set(ignored))
  await diff.sections(before.config, after.config, redact(before.config, before.secrets),
    redact(after.config, after.secrets))
  return { changes: diff.changes, more_changes: diff.more }
}

/** A value, and what may be shown of it. */
interface Side {
  readonly value: unknown
  readonly shown: unknown
}

class Diff {
  readonly changes: ConfigChange[] = []
  more = 0
  /** as pointers into the later configuration, by position and not by name */
  readonly #ignored: ReadonlySet<string>

  constructor (ignored: ReadonlySet<string>) {
    this.#ignored = ignored
  }

  async sections (a: Config, b: Config, shownA: Config, shownB: Config): Promise<void> {
    const names = [...new Set([...Object.keys(a), ...Object.keys(b)])] as (keyof Config)[]
    for (const name of names) {
      const [before, after] = [{ value: a[name], shown: shownA[name] }, { value: b[name], shown: shownB[name] }]
      for (const step of this.#compare(before, after, [name], [name])) if (step % SLICE === 0) await turn()
    }
  }

  /**
   * Yields the number of each item of a list when it is compared.
   * @param path with names in the place of numbers @param at the position in the later configuration
   */
  * #compare (a: Side, b: Side, path: readonly string[], at: readonly string[]): Generator<number> {
    if (a.value === b.value || this.#ignored.has(formatPointer(at))) return
    if (isMap(a.value) && isMap(b.value)) {
      for (const name of new Set([...Object.keys(a.value), ...Object.keys(b.value)])) {
        yield * this.#compare(fieldOf(a, name), fieldOf(b, name), [...path, name], [...at, name])
      }
      return
    }
    const [before, after] = [itemsOf(a), itemsOf(b)]
    if (before !== undefined && after !== undefined) {
      yield * this.#compareLists(before, after, path, at)
      return
    }
    if (JSON.stringify(a.value) !== JSON.stringify(b.value)) this.#note(path, a, b)
  }

  * #compareLists (
    before: ReadonlyMap<string, Side>,
    after: ReadonlyMap<string, Side>,
    path: readonly string[],
    at: readonly string[]
  ): Generator<number> {
    let number = 0
    for (const [name, item] of before) {
      yield number++
      if (!after.has(name)) this.#note([...path, name], item, ABSENT)
    }
    for (const [index, [name, item]] of [...after].entries()) {
      yield number++
      yield * this.#compare(before.get(name) ?? ABSENT, item, [...path, name], [...at, String(index)])
    }
    const kept = (one: ReadonlyMap<string, Side>, other: ReadonlyMap<string, Side>): string =>
      JSON.stringify([...one.keys()].filter((name) => other.has(name)))
    const [was, is] = [kept(before, after), kept(after, before)]
    if (was !== is) this.#add({ path: formatPointer(path), what: 'reordered', before: cut(was), after: cut(is) })
  }

  #note (path: readonly string[], a: Side, b: Side): void {
    const what = a.value === undefined ? 'added' : b.value === undefined ? 'removed' : 'changed'
    this.#add({ path: formatPointer(path), what, ...(a.value !== undefined && { before: print(a) }),
      ...(b.value !== undefined && { after: print(b) }) })
  }

  #add (change: ConfigChange): void {
    if (this.changes.length < MOST_CHANGES) this.changes.push(change)
    else this.more++
  }
}

const ABSENT: Side = { value: undefined, shown: undefined }

function fieldOf ({ value, shown }: Side, name: string): Side {
  const of = (one: unknown): unknown => isMap(one) && Object.hasOwn(one, name) ? one[name] : undefined
  return { value: of(value), shown: isMap(shown) ? of(shown) : shown }
}

/** The items of a list by their names; undefined: they have none, or two have the same. */
function itemsOf ({ value, shown }: Side): ReadonlyMap<string, Side> | undefined {
  if (!Array.isArray(value)) return undefined
  const items = new Map(value.map((item: unknown, i): [string, Side] => {
    const name = NAMES.map((field) => isMap(item) ? item[field] : undefined).find((one) => typeof one === 'string')
    return [String(name), { value: item, shown: Array.isArray(shown) ? (shown as readonly unknown[])[i] : shown }]
  }))
  return items.size === value.length && !items.has('undefined') ? items : undefined
}

function print ({ shown }: Side): string {
  return cut(JSON.stringify(shown))
}

function cut (text: string): string {
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE - 1)}…` : text
}
