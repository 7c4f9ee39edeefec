// What chance does to bytes and to JSON. The same seed does the same.
import { seededRandom } from '../../src/simulator/random.ts'

export class Chance {
  readonly #random: () => number
  readonly #harm: number

  constructor (seed: number | (() => number), harm = 1) {
    this.#random = typeof seed === 'number' ? seededRandom(seed) : seed
    this.#harm = harm
  }

  /** The same, whose `mostly` is wrong more seldom by this factor. */
  gentler (harm: number): Chance {
    return new Chance(this.#random, this.#harm * harm)
  }

  /** from 0 to below `below` */
  below (below: number): number {
    return Math.floor(this.#random() * below)
  }

  between (least: number, most: number): number {
    return least + this.below(most - least + 1)
  }

  /** @param part from 0 to 1 */
  is (part: number): boolean {
    return this.#random() < part
  }

  of<T> (all: readonly T[]): T {
    return all[this.below(all.length)]!
  }

  /** @param part from 0 to 1: how often it is `right` */
  mostly<T> (part: number, right: T, wrong: readonly T[]): T {
    return this.is(1 - (1 - part) * this.#harm) ? right : this.of(wrong)
  }

  times<T> (count: number, make: (i: number) => T): T[] {
    return Array.from({ length: count }, (_, i) => make(i))
  }
}

const SPLINTERS = ['', '\0', '\r\n', '\n', '\r', '\r\n\r\n', '--', '"', '\\', ';', ':', '=', ',', '{', '}', '[', ']',
  '%', '\uFEFF', '\uD800', 'é', '🎩', '\u2028', '{}', 'null', '0', '-1', '9'.repeat(20), 'A'.repeat(300),
  '../../etc/passwd', '__proto__', '${HOME}', '\x1b[31m'].map((text) => Buffer.from(text))

/** One to four wounds: bits turned, pieces cut out, doubled, moved, or put in. */
export function wound (chance: Chance, bytes: Buffer): Buffer {
  let now = bytes
  for (let left = chance.between(1, 4); left > 0; left--) {
    const at = chance.below(now.length + 1)
    const length = chance.is(0.8) ? chance.between(1, 8) : chance.between(1, 400)
    const [before, piece, after] = [now.subarray(0, at), now.subarray(at, at + length), now.subarray(at + length)]
    const parts = [
      () => [before, Buffer.from(piece.map((byte, i) => i === 0 ? byte ^ (1 << chance.below(8)) : byte)), after],
      () => [before, after],
      () => [before, piece, piece, after],
      () => [after, piece, before],
      () => [before, chance.of(SPLINTERS), piece, after],
      () => [before, chance.of(SPLINTERS), after],
      () => [before, Buffer.from(chance.times(length, () => chance.below(256))), after],
      () => [before]
    ]
    now = Buffer.concat(chance.of(parts)())
  }
  return now
}

/** In one to five pieces, cut anywhere. */
export function pieces (chance: Chance, bytes: Buffer): Buffer[] {
  if (chance.is(0.5)) return [bytes]
  const cuts = chance.times(chance.between(1, 4), () => chance.below(bytes.length + 1)).sort((a, b) => a - b)
  return [0, ...cuts].map((from, i) => bytes.subarray(from, cuts[i] ?? bytes.length)).filter((piece) =>
    piece.length > 0
  )
}

const LONG = 'x'.repeat(70_000)
/** As JSON text, because some of them no value of JavaScript becomes. */
const ODD = ['null', 'true', 'false', '0', '-0', '-1', '1e400', '1e-400', '0.1', '99999999999999999999999',
  '9007199254740993', '""', '" "', '"\\u0000"', '"\\ud800"', '"a"', '[]', '{}', '[[]]', '[{}]', '[null]', '{"":""}',
  '{"__proto__":{"a":1}}', '{"constructor":1}', '{"type":null}', '{"a":1,"a":2}', '{"toJSON":1,"then":1}',
  '"[[sim: nonsense]]"', '"data:image/png;base64,AAAA"', '"data:,"', '"https://[::1]/"', JSON.stringify(LONG),
  `[${'0,'.repeat(2000)}0]`, '['.repeat(40) + ']'.repeat(40), '{"a":'.repeat(70) + '1' + '}'.repeat(70)]

type Json = null | boolean | number | string | Json[] | { [name: string]: Json }

/** JSON text of the value, with some of its members replaced, left out, doubled, renamed, moved, or of another type. */
export function spoilJson (chance: Chance, value: unknown, wounds = chance.mostly(0.6, 1, [0, 2, 3])): string {
  const marks: string[] = []
  const copy = structuredClone(value) as Json
  const spots: (readonly [owner: Json[] | { [name: string]: Json }, name: string])[] = []
  collect(copy, spots)
  for (let left = wounds; left > 0 && spots.length > 0; left--) {
    const [owner, name] = chance.of(spots)
    const own = owner as { [name: string]: Json }
    const mark = (text: string): string => `\uE000${marks.push(text) - 1}\uE001`
    const doings = [
      () => {
        own[name] = mark(chance.of(ODD))
      },
      () => {
        own[name] = mark(chance.of(ODD))
      },
      () => {
        if (Array.isArray(owner)) owner.splice(Number(name), 1)
        else delete own[name]
      },
      () => {
        own[name] = [own[name]!]
      },
      () => {
        own[name] = { value: own[name]! }
      },
      () => {
        own[name] = String(own[name])
      },
      () => {
        own[chance.of(['__proto__x', 'type', 'id', 'model', 'stream', 'role', 'content', 'n', ''])] = own[name]!
      },
      () => {
        const [other, from] = chance.of(spots)
        own[name] = structuredClone((other as { [name: string]: Json })[from] ?? null)
      },
      () => {
        if (Array.isArray(owner)) owner.push(...structuredClone(owner).slice(0, 20))
      }
    ]
    chance.of(doings)()
  }
  return JSON.stringify(copy).replace(/"\uE000(\d+)\uE001"/g, (_, i: string) => marks[Number(i)]!)
}

function collect (value: Json, spots: (readonly [Json[] | { [name: string]: Json }, string])[]): void {
  if (typeof value !== 'object' || value === null) return
  for (const [name, below] of Object.entries(value)) {
    spots.push([value, name])
    collect(below, spots)
  }
}
