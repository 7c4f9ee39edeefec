// A client that asks the simulator for JSON gets JSON that fits, in each style and from a vendor of each dialect.
import assert from 'node:assert/strict'
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import { exampleOf } from '../../src/simulator/schema-example.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'

type Json = Readonly<Record<string, unknown>>

const dialects = dialectsOf('text')
type Dialect = typeof dialects[number]
const PATHS = { messages: '/v1/messages', chat: '/v1/chat/completions', responses: '/v1/responses' } as const
const ajv = new Ajv2020({ strict: false, validateFormats: false })

/** What a model can do, in YAML, by the end of its name. */
const MODELS = { plain: '', structured: ', structured_outputs: true', thinking: ', thinking: budget',
  both: ', structured_outputs: true, thinking: adaptive' } as const

async function world (test: Test): Promise<(style: Dialect, model: string, body: Json) => Promise<Got>> {
  const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0 })
  test.teardown(() => simulator.close())
  const text = yaml([], '', 'auth, schema-validate, responses-to-messages, chat-to-messages, channel-router, ' +
    'billing-meter, error-normalize').replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${dialects.map((dialect) =>
    `  ${dialect}: { url: "${simulator.url}", dialect: ${dialect}, headers: { authorization: Bearer k } }\n`).join('')
  }models:\n${dialects.flatMap((dialect) => Object.entries(MODELS).map(([name, abilities]) =>
    `  - { id: ${dialect}-${name}, provider: acme, created: 2025-01-01, context: 200000, max_output: 8192${abilities},
    channels: { premium: { price: { input: 1, output: 10 }, targets: [{ upstream: ${dialect}, model: m }] } } }\n`))
    .join('')}`)
  const gw = await gateway(test, text)
  return (style, model, body) =>
    ask(gw.url + PATHS[style], { model, ...body }, { headers: { authorization: `Bearer ${KEY}` } })
}

/** The text of an answer, whole or in pieces. */
function said (style: Dialect, { body, events }: Got): string {
  const list = (value: unknown): readonly Json[] => Array.isArray(value) ? value as Json[] : []
  const texts = (parts: unknown): readonly unknown[] => list(parts).map(({ text }) => text ?? '')
  if (body !== undefined) {
    if (style === 'messages') return texts(body['content']).join('')
    if (style === 'responses') return list(body['output']).flatMap(({ content }) => texts(content)).join('')
    return list(body['choices']).map(({ message }) => (message as Json)['content']).join('')
  }
  return events.map(({ event, data }) => {
    if (style === 'responses') return event === 'response.output_text.delta' ? data['delta'] : ''
    const delta = (style === 'messages' ? data['delta'] : list(data['choices'])[0]?.['delta'] ?? {}) as Json | undefined
    return delta?.[style === 'messages' ? 'text' : 'content'] ?? ''
  }).join('')
}

const string = { type: 'string' }
const schema = { type: 'object', additionalProperties: false, required: ['city', 'days', 'sky', 'tags', 'next'],
  properties: { city: string, days: { type: 'integer' }, sky: { type: 'string', enum: ['clear', 'grey'] },
    tags: { type: 'array', items: string }, next: { anyOf: [{ $ref: '#/$defs/day' }, { type: 'null' }] } },
  $defs: { day: { type: 'object', additionalProperties: false, required: ['degrees', 'windy'],
    properties: { degrees: { type: 'number' }, windy: { type: 'boolean' } } } } }
const hello = [{ role: 'user', content: 'How is the sky in Oslo?' }]

/** The wish in the words of each style; messages style has none for any object. */
const WISHES: Readonly<Record<Dialect, Readonly<Partial<Record<'object' | 'schema', Json>>>>> = {
  messages: { schema: { messages: hello, max_tokens: 4000, output_config: { format: { type: 'json_schema', schema } } } },
  chat: { object: { messages: hello, response_format: { type: 'json_object' } },
    schema: { messages: hello, response_format: { type: 'json_schema', json_schema: { name: 'sky', strict: true, schema } } } },
  responses: { object: { input: hello, text: { format: { type: 'json_object' } } },
    schema: { input: hello, text: { format: { type: 'json_schema', name: 'sky', strict: true, schema } } } }
}
const EFFORTS: Readonly<Record<Dialect, Json>> = { messages: { thinking: { type: 'enabled', budget_tokens: 2000 } },
  chat: { reasoning_effort: 'medium' }, responses: { reasoning: { effort: 'medium' } } }

t.test('C10: the simulator answers in JSON where a client asks for it', async (t) => {
  const send = await world(t)
  const fits = ajv.compile(schema)
  for (const style of dialects) {
    for (const [wish, body] of Object.entries(WISHES[style])) {
      for (const dialect of dialects) {
        for (const ability of Object.keys(MODELS)) {
          // A client of messages style asks only models that can.
          if (style === 'messages' && dialect === 'messages' && ability === 'thinking') continue
          for (const stream of [false, true]) {
            const about = `${style} to ${dialect}, ${ability}, ${wish}, ${stream ? 'stream' : 'JSON'}`
            const thinks = ability === 'thinking' || (ability === 'both' && style !== 'messages')
            const got = await send(style, `${dialect}-${ability}`, { ...body, ...thinks && EFFORTS[style], stream })
            t.equal(got.status, 200, `${about}: ${JSON.stringify(got.body)}`)
            const text = said(style, got)
            const value = parsed(text)
            t.ok(wish === 'schema' ? fits(value) : typeof value === 'object' && value !== null,
              `${about}: ${text} ${ajv.errorsText(fits.errors)}`)
          }
        }
      }
    }
  }
})

function parsed (text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

t.test('C10: what is made for a schema fits it', async () => {
  const count = fc.option(fc.nat(5), { nil: undefined })
  const limit = (least: string, most: string) => fc.tuple(count, count).map(([low, more]) =>
    ({ ...low !== undefined && { [least]: low }, ...more !== undefined && { [most]: (low ?? 0) + more } }))
  const { node } = fc.letrec<{ node: Json }>((tie) => ({
    node: fc.oneof({ maxDepth: 4, depthSize: 'small' },
      limit('minLength', 'maxLength').map((more) => ({ ...string, ...more })),
      fc.constantFrom<Json>({ type: 'boolean' }, { type: 'null' }, { const: 7 }, { enum: ['a', 2] }, { $ref: '#/$defs/a' },
        { type: ['number', 'null'] }, { ...string, pattern: '^[A-Z]{2}-\\d+(x|y)?$' },
        { ...string, pattern: '^\\w{3,5}\\.(?:com|org)$' }, { ...string, pattern: '[^a-f]+', minLength: 3 }, {}),
      limit('minimum', 'maximum').map((more) => ({ type: 'integer', ...more })),
      limit('exclusiveMinimum', 'maximum').map((more) => ({ type: 'number', ...more,
        ...'maximum' in more && { maximum: Number(more['maximum']) + 1 } })),
      fc.integer({ min: 1, max: 9 }).map((step) => ({ type: 'integer', multipleOf: step, minimum: 5 })),
      fc.tuple(tie('node'), limit('minItems', 'maxItems')).map(([items, more]) => ({ type: 'array', items, ...more })),
      fc.tuple(tie('node'), tie('node')).map((anyOf) => ({ anyOf })),
      fc.tuple(tie('node'), tie('node'), fc.boolean()).map(([a, b, isClosed]) => ({ type: 'object',
        properties: { a, b }, required: ['a'], ...isClosed && { additionalProperties: false } })),
      tie('node').map((a) => ({ allOf: [{ type: 'object', properties: { a }, required: ['a'] },
        { properties: { c: string }, required: ['c'] }] })))
  }))
  const $defs = { a: { type: 'object', properties: { b: { anyOf: [{ $ref: '#/$defs/a' }, { type: 'null' }] },
    more: { type: 'array', items: { $ref: '#/$defs/a' } } }, required: ['b', 'more'] } }
  fc.assert(fc.property(node, fc.constantFrom('', 'In Oslo 🙂', 'words '.repeat(50)), (made, words) => {
    const whole = { ...made, $defs }
    const fits = ajv.compile(whole)
    const value = exampleOf(whole, words)
    assert.ok(fits(JSON.parse(JSON.stringify(value))), `${JSON.stringify(value)} ${ajv.errorsText(fits.errors)}`)
    assert.deepEqual(exampleOf(whole, words), value)
  }), { numRuns: 500 })
})
