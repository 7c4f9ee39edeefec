// Metric families: cells by label, looked up once and added to, and their lines for Prometheus.
import { setImmediate } from 'node:timers/promises'

/** Most label sets per metric (src/README.md#bounded-labels); further ones are counted under "other". */
export const LIMIT = 2000
export const OTHER = 'other'

/** Label sets that are printed in one turn of the event loop: under 1 ms. */
const PRINTED_AT_ONCE = 100

export interface Count { value: number }

export class Distribution {
  readonly bounds: readonly number[]
  /** one more than bounds: the last counts all values above them */
  readonly counts: number[]
  sum = 0

  constructor (bounds: readonly number[]) {
    this.bounds = bounds
    this.counts = new Array(bounds.length + 1).fill(0)
  }

  observe (value: number): void {
    let i = 0
    while (i < this.bounds.length && value > this.bounds[i]!) i++
    this.counts[i]!++
    this.sum += value
  }
}

interface Kept<Cell> {
  readonly values: readonly string[]
  readonly cell: Cell
  /** its lines, from texts made once */
  readonly print: () => string
}

interface Shape<Cell> {
  readonly type: 'counter' | 'histogram'
  create (): Cell
  /** @param labels such as `a="1",b="2"`; '' without any */
  printer (name: string, labels: string, cell: Cell): () => string
}

/** One metric: its cells by their labels. */
export class Family<Cell> {
  readonly #name: string
  readonly #help: string
  readonly #shape: Shape<Cell>
  readonly #open: readonly string[]
  readonly #names: readonly string[]
  readonly #cells = new Map<string, Kept<Cell>>()

  /**
   * @param open labels whose values come from the configuration: beyond the limit they become "other"
   * @param closed labels whose values come from the code
   */
  constructor (name: string, help: string, shape: Shape<Cell>, open: readonly string[], closed: readonly string[]) {
    this.#name = name
    this.#help = help
    this.#shape = shape
    this.#open = open
    this.#names = [...open, ...closed]
  }

  /** @param values of the open labels, then of the closed ones */
  cell (...values: readonly string[]): Cell {
    const key = values.join('\n')
    const known = this.#cells.get(key)
    if (known !== undefined) return known.cell
    if (this.#cells.size >= LIMIT && this.#open.length > 0 && values[0] !== OTHER) {
      return this.cell(...values.map((value, i) => i < this.#open.length ? OTHER : value))
    }
    const cell = this.#shape.create()
    const labels = values.flatMap((value, i) => value === '' ? [] : [`${this.#names[i]!}="${escape(value)}"`]).join(',')
    this.#cells.set(key, { values, cell, print: this.#shape.printer(this.#name, labels, cell) })
    return cell
  }

  /**
   * Makes empty cells, one for each combination of values; not beyond the limit, where they would displace cells in
   * use.
   */
  start (values: readonly (readonly string[])[]): void {
    let sets: readonly (readonly string[])[] = [[]]
    for (const some of values) sets = sets.flatMap((set) => some.map((value) => [...set, value]))
    if (this.#cells.size + sets.length <= LIMIT / 2) for (const set of sets) this.cell(...set)
  }

  /** Forgets the cells whose label has another value; of several labels, values joined by a line break. */
  retain (labels: string | readonly string[], known: ReadonlySet<string>): void {
    const places = [labels].flat().map((label) => this.#open.indexOf(label))
    if (places.includes(-1)) return
    for (const [key, { values }] of this.#cells) {
      if (!known.has(places.map((at) => values[at]!).join('\n'))) this.#cells.delete(key)
    }
  }

  /** Nothing where nothing was counted yet, and nothing can be. */
  async * print (): AsyncGenerator<string> {
    if (this.#cells.size === 0) return
    yield headOf(this.#name, this.#help, this.#shape.type)
    let printed = 0
    for (const { print } of this.#cells.values()) {
      if (++printed % PRINTED_AT_ONCE === 0) await setImmediate()
      yield print()
    }
  }
}

export function counters (
  name: string, help: string, open: readonly string[], closed: readonly string[]
): Family<Count> {
  return new Family<Count>(name, help, {
    type: 'counter',
    create: () => ({ value: 0 }),
    printer (name, labels, cell) {
      const series = labels === '' ? name : `${name}{${labels}}`
      return () => `${series} ${cell.value}\n`
    }
  }, open, closed)
}

export function histograms (
  name: string,
  help: string,
  bounds: readonly number[],
  open: readonly string[],
  closed: readonly string[]
): Family<Distribution> {
  return new Family<Distribution>(name, help, {
    type: 'histogram',
    create: () => new Distribution(bounds),
    printer (name, labels, cell) {
      const buckets = [...bounds.map(String), '+Inf'].map((bound) =>
        `${name}_bucket{${labels}${labels === '' ? '' : ','}le="${bound}"} `
      )
      const braced = labels === '' ? '' : `{${labels}}`
      return () => {
        let [total, text] = [0, '']
        for (let i = 0; i < buckets.length; i++) text += `${buckets[i]!}${total += cell.counts[i]!}\n`
        return `${text}${name}_sum${braced} ${cell.sum}\n${name}_count${braced} ${total}\n`
      }
    }
  }, open, closed)
}

export function headOf (name: string, help: string, type: string): string {
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`
}

export function escape (value: string): string {
  return value.replace(/[\\"\n]/g, (character) => character === '\n' ? '\\n' : '\\' + character)
}
