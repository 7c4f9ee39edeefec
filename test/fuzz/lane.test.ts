// A few inputs for the reader of the fast lane, and that the comparison would tell: `node test/fuzz/lane.ts` tries
// millions.
import t from 'tap'
import { type LaneRequest, type NoRequest, RequestReader } from '../../src/http/lane/read-request.ts'
import { SEED } from '../support/fuzz-run.ts'
import { LaneFuzz } from './lane-fuzz.ts'

t.test(`what the lane takes node reads in the same way, seed ${SEED}`, (t) => {
  const { inputs, taken, wrong } = new LaneFuzz(SEED).run(30_000)
  t.strictSame(wrong, [])
  t.ok(taken > inputs / 5 && taken < inputs / 2, `${taken} taken`)
  t.end()
})

/** Reads what another sign would make of the bytes. */
class Sloppy extends RequestReader {
  readonly #change: (text: string) => string

  constructor (change: (text: string) => string) {
    super()
    this.#change = change
  }

  override read (bytes: Buffer): LaneRequest | NoRequest {
    return super.read(Buffer.from(this.#change(bytes.toString('latin1')), 'latin1'))
  }
}

t.test('a reader that takes more is found out', (t) => {
  const sloppy: Readonly<Record<string, (text: string) => string>> = {
    'LF alone': (text) => text.replaceAll(/\r?\n/g, '\r\n'),
    'white space before a colon': (text) => text.replaceAll(/[ \t]+:/g, ':'),
    'NUL': (text) => text.replaceAll('\0', ''),
    'a sign before a length': (text) => text.replace(/(content-length: )\+/i, '$1'),
    'an encoding beside a length': (text) => text.replace(/\r\ntransfer-encoding: .*(?=\r\n)/i, ''),
    'a folded line': (text) => text.replaceAll(/\r\n[ \t]+/g, ' ')
  }
  for (const [name, change] of Object.entries(sloppy)) {
    const { wrong } = new LaneFuzz(SEED, undefined, () => new Sloppy(change)).run(30_000)
    t.ok(wrong.length > 0, name)
  }
  t.end()
})
