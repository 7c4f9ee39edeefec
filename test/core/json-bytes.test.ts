// JSON that is made as bytes is that of JSON.stringify, whatever is in it.
import fc from 'fast-check'
import t from 'tap'
import { JsonBytes } from '../../src/base/json-bytes.ts'

const texts = fc.oneof(fc.string({ unit: 'binary', maxLength: 200 }), fc.string({ maxLength: 9000 }))
const numbers = fc.oneof(fc.double(), fc.integer(), fc.nat().map((n) => n / 1000), fc.maxSafeInteger(),
  fc.constantFrom(0, -0, 0.001, 0.5, 0.099, 9, 10, 999.999, 2147483.647, 2147483.648, 2 ** 31 - 1, 2 ** 31, 1e21))

t.test('a list of texts and numbers', (t) => {
  const line = new JsonBytes()
  fc.assert(fc.property(fc.array(fc.oneof(texts, numbers)), (values) => {
    line.clear()
    line.raw('[')
    for (const [i, value] of values.entries()) {
      if (i > 0) line.raw(',')
      if (typeof value === 'string') line.text(value)
      else line.number(value)
    }
    line.raw(']')
    t.equal(line.toString(), JSON.stringify(values))
    t.equal(line.length, Buffer.byteLength(line.toString()))
  }), { numRuns: 300 })
  t.end()
})

t.test('an object', (t) => {
  const values = fc.dictionary(fc.string(), fc.nat(), { noNullPrototype: true })
  fc.assert(fc.property(fc.bigInt({ min: 0n, max: 2n ** 63n }), values, (amount, object) => {
    const line = new JsonBytes()
    line.raw('{"é":1')
    line.name('amount')
    line.amount(amount)
    line.name('object')
    line.object(object)
    line.name('value')
    line.value({ object })
    line.raw('}')
    t.equal(line.toString(), `{"é":1,"amount":${amount},"object":${JSON.stringify(object)},` +
      `"value":${JSON.stringify({ object })}}`)
  }), { numRuns: 100 })
  t.end()
})

t.test('what a plugin without types gives as a text or a number', (t) => {
  const values: readonly unknown[] = [undefined, null, 5, '5', true, {}, [1]]
  const line = new JsonBytes()
  for (const add of [line.text, line.number] as const) {
    line.clear()
    line.raw('[')
    for (const [i, value] of values.entries()) {
      if (i > 0) line.raw(',')
      add.call(line, value as never)
    }
    line.raw(']')
    t.equal(line.toString(), JSON.stringify(values))
  }
  t.end()
})
