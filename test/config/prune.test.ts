// The part of the schema that a check compiles judges as the whole does: whatever is wrong with a configuration, it is
// wrong in the same words, and what is right gets the same defaults.
import { Ajv2020 } from 'ajv/dist/2020.js'
import { join } from 'node:path'
import t from 'tap'
import { plugins } from '../../plugins/index.ts'
import { packageRoot } from '../../src/base/package.ts'
import { addKeywords } from '../../src/config/check/keywords.ts'
import { toSentences } from '../../src/config/check/messages.ts'
import { prune } from '../../src/config/check/prune.ts'
import type { JsonSchema } from '../../src/config/plugin-descriptor.ts'
import { composeSchema } from '../../src/config/schema.ts'
import { normalize } from '../../src/config/yaml/normalize.ts'
import { readSource } from '../../src/config/yaml/read.ts'
import { seededRandom } from '../../src/simulator/random.ts'

const ROUNDS = Number(process.env['ROUNDS'] ?? 12)
const random = seededRandom(Number(process.env['SEED'] ?? 3))
const oneOf = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!

const source = readSource(join(packageRoot, 'gateway.yaml'), {}, () => {})
normalize(source)
const schema = composeSchema(plugins)

type Judge = (value: unknown) => { readonly said: unknown, readonly value: unknown }

function compile (schema: JsonSchema): Judge {
  const ajv = new Ajv2020({ allErrors: true, useDefaults: true, discriminator: true, verbose: true, ownProperties: true,
    strict: true, strictTypes: false, strictRequired: false, validateFormats: false, code: { optimize: false } })
  addKeywords(ajv, () => undefined, () => {})
  const validate = ajv.compile(schema)
  return (given) => {
    const value = structuredClone(given)
    return { said: validate(value) ? [] : toSentences(validate.errors ?? [], source.tree), value }
  }
}

const NOT_MEANT = [null, 'x', '', 0, -1, 1e9, true, {}, [], [{}], { use: 'auth' }, { unknown: 1 }, '1s', '1MB']

/** One place of it is gone, has another name, or another value. */
function mutate (value: unknown): unknown {
  const mutant = structuredClone(value)
  let here = mutant as Record<string, unknown>
  for (;;) {
    const key = oneOf(Object.keys(here))
    const there = here[key]
    if (typeof there === 'object' && there !== null && Object.keys(there).length > 0 && random() < 0.85) {
      here = there as Record<string, unknown>
      continue
    }
    if (random() < 0.6) here[key] = oneOf(NOT_MEANT)
    else if (Array.isArray(here)) here.push(there)
    else delete here[key]
    if (random() < 0.3 && !Array.isArray(here)) here[key + 's'] = there
    return mutant
  }
}

t.test('as the whole schema', async (t) => {
  const whole = compile(schema)
  t.strictSame(compile(prune(schema, [source.value]))(source.value), whole(source.value))
  let refused = 0
  for (let round = 0; round < ROUNDS; round++) {
    let value: unknown = source.value
    for (let count = 0; count <= round % 3; count++) value = mutate(value)
    const expected = whole(value)
    if ((expected.said as unknown[]).length > 0) refused++
    t.strictSame(compile(prune(schema, [value]))(value), expected, JSON.stringify(value).slice(0, 2000))
  }
  t.ok(refused > ROUNDS / 2, `${refused} of ${ROUNDS} were refused`)
})
