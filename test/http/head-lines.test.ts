// The lines of a head are those of its fields, whatever the heads before it had.
import fc from 'fast-check'
import t from 'tap'
import { HeadLines } from '../../src/http/lane/head-lines.ts'

const latin1 = fc.string({ unit: fc.integer({ min: 0x21, max: 0xFF }).map((code) => String.fromCharCode(code)),
  maxLength: 60 })
// Few names and values, so that most lines stand where they stood before, or have moved.
const names = fc.oneof({ weight: 9, arbitrary: fc.constantFrom('a', 'b', 'x-request-id', 'x-a-name-that-is-long') },
  { weight: 1, arbitrary: latin1 })
const values = fc.oneof({ weight: 9, arbitrary: fc.constantFrom('', '1', '12', 'é', 'x'.repeat(40), 'y'.repeat(40)) },
  { weight: 1, arbitrary: latin1 })
const heads = fc.array(fc.array(fc.tuple(names, values), { maxLength: 10 }), { maxLength: 12 })

t.test('heads one after the other', (t) => {
  fc.assert(fc.property(heads, (all) => {
    const lines = new HeadLines()
    for (const head of all) {
      const length = lines.write(head.flat())
      t.equal(lines.bytes.toString('latin1', 0, length), head.map(([name, value]) => `${name}: ${value}\r\n`).join(''))
      for (const [i, [name, value]] of head.entries()) t.ok(lines.has(name, value, 2 * i))
      t.notOk(lines.has('a', '1', 2 * head.length))
    }
  }), { numRuns: 2000 })
  t.end()
})

t.test('a head that is longer than all before', (t) => {
  const lines = new HeadLines()
  for (const length of [1, 1500, 3000, 3000, 2, 9000]) {
    const head = [['a', 'b'], ['long', 'v'.repeat(length)], ['c', 'd']]
    const expected = head.map(([name, value]) => `${name}: ${value}\r\n`).join('')
    const written = lines.write(head.flat())
    t.equal(lines.bytes.toString('latin1', 0, written), expected)
  }
  t.end()
})
