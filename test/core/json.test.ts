// A9 and A10: what JSON from outside is: the digits of numbers, and whole characters.
import { deepEqual, equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { parseEvent, parseInput, parseJson } from '../../src/base/json.ts'

const number = fc.oneof(
  fc.stringMatching(/^-?(?:0|[1-9]\d{0,24})(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?$/),
  fc.constantFrom('-0', '0.0', '1.10', '1e5', '1E+2', '2512292042121000001', '9007199254740993', '0.0000001', '1e400',
    '1234567890.12345678', '0.1000000000000000055511151231257827', '-0.0', '1.0', '15', '0.5', '-1.25', '1e-7')
)
const text = fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('": 1.10, "', 'a: 1.0,', '\\', '\\\\"input": {',
  '"input":{"a":1.10}', '[-0, 1e5]', '\\ud83d'))
/** The JSON text of a value, as its numbers were written. */
const json: fc.Arbitrary<string> = fc.letrec((tie) => ({
  value: fc.oneof({ maxDepth: 4 }, number, text.map((one) => JSON.stringify(one.toWellFormed())),
    fc.constantFrom('true', 'null'), tie('list') as fc.Arbitrary<string>, tie('object') as fc.Arbitrary<string>),
  list: fc.array(tie('value') as fc.Arbitrary<string>, { maxLength: 5 }).map((items) => `[${items.join(',')}]`),
  object: fc.uniqueArray(fc.tuple(text, tie('value') as fc.Arbitrary<string>), { maxLength: 5,
    selector: ([name]) => name.toWellFormed() }).map(objectOf)
})).object as fc.Arbitrary<string>

function objectOf (fields: readonly (readonly [name: string, value: string])[]): string {
  return `{${fields.map(([name, value]) => `${JSON.stringify(name.toWellFormed())}:${value}`).join(',')}}`
}

/** Names that look like indexes come first, as in all objects. */
function inOrder (object: string): boolean {
  return !/"\d+":/.test(object) && !object.includes('"__proto__"')
}

t.test('A9: the input of a call is printed as it came, in any JSON', async () => {
  fc.assert(fc.property(json.filter(inOrder), (input) => {
    equal(JSON.stringify(parseInput(input)), input)
    const block = `{"type":"tool_use","input":${input},"usage":{"input_tokens":20.0,"cost":1e-7}}`
    for (const parse of [parseJson, parseEvent]) {
      const parsed = parse(`{"content":[${block}]}`) as { content: [{ input: object, usage: object }] }
      equal(JSON.stringify(parsed.content[0].input), input)
      deepEqual(parsed.content[0].usage, { input_tokens: 20, cost: 1e-7 }, 'others are numbers')
    }
  }), { numRuns: 150 })
})

t.test('A9: any other JSON is read as JSON.parse does', async () => {
  fc.assert(fc.property(json.filter((one) => !/"(?:input|arguments)"/.test(one)), fc.constantFrom('tools', 'schema', 'x'),
    (value, name) => {
      deepEqual(parseJson(value), JSON.parse(value))
      const schema = `{"${name}":{"input":[1.10,${value}]}}`
      deepEqual(parseJson(schema), JSON.parse(schema))
    }), { numRuns: 150 })
  fc.assert(fc.property(json, fc.nat(), fc.constantFrom('', '"', '1.0', ',', ':', '}', '-0', '1.10:2'), (value, at, more) => {
    const broken = `{"input":${value}}`
    const text = broken.slice(0, at % broken.length) + more + broken.slice(at % broken.length + 1)
    const outcome = (parse: (text: string) => unknown): string => {
      try { return typeof parse(text) } catch (thrown) { return String(thrown) }
    }
    equal(outcome(parseEvent), outcome(JSON.parse as (text: string) => unknown))
  }), { numRuns: 200 })
})

t.test('A9: an input that is no object, and numbers of which there are too many', async (t) => {
  t.equal(parseInput('1.10'), 1.1)
  t.strictSame(parseJson('{"input":1.10,"arguments":[1.10]}'), { input: 1.1, arguments: [1.1] })
  t.strictSame(parseJson('{"tools":[{"input_schema":{"properties":{"input":{"minimum":1.0}}}}]}'),
    { tools: [{ input_schema: { properties: { input: { minimum: 1 } } } }] })
  const many = JSON.stringify(parseInput(`{"a":[${Array(20_000).fill('1.0').join(',')}]}`))
  t.equal(many.match(/1\.0/g)?.length, 10_000)
  t.doesNotThrow(() => parseInput(`{"a":1.0,"b":${'['.repeat(100_000)}${']'.repeat(100_000)}}`))
})

/** Escapes of UTF-16 units, pairs and halves, and what looks like one. */
const escapes = fc.array(fc.oneof(
  fc.integer({ min: 0xD800, max: 0xDFFF }).map((unit) => `\\u${unit.toString(16)}`),
  fc.constantFrom('\\ud83d\\ude00', '\\uD83D\\uDE00', 'a', '\\\\', '\\n', '\\"', '\\ud7ff', '\\ue000', '\u{1F600}', '\\\\ud83d')
), { maxLength: 12 }).map((units) => units.join(''))

t.test('A10: half a character becomes U+FFFD, wherever it stands, and whole ones stay', async (t) => {
  t.equal((parseJson('{"a":"\\ud83d"}') as { a: string }).a, '\uFFFD')
  fc.assert(fc.property(escapes, (text) => {
    const value = JSON.parse(`"${text}"`) as string
    deepEqual(parseJson(`{"x${text}":["${text}",{"y":"${text}"}]}`),
      { [`x${value.toWellFormed()}`]: [value.toWellFormed(), { y: value.toWellFormed() }] })
    deepEqual(parseInput(`{"a":"${text}"}`), { a: value.toWellFormed() })
    deepEqual(parseEvent(`{"a":"${text}"}`), { a: value }, 'of an event others may bring the rest')
  }), { numRuns: 200 })
})
