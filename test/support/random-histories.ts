// Conversations by chance, as clients of every style may have them after years of other gateways, vendors and crashes:
// ids that come twice or are missing, results without calls and the reverse, broken arguments, empty texts, half
// characters, names and ids of every form, schemas of every draft.
import fc from 'fast-check'
import type { Style } from './client-styles.ts'

type Json = Readonly<Record<string, unknown>>

interface Call { readonly id: string, readonly name: string, readonly input: string }
export type Step =
  | { readonly kind: 'user' | 'system', readonly text: string, readonly inParts: boolean }
  | { readonly kind: 'answer', readonly text: string, readonly inParts: boolean, readonly calls: readonly Call[] }
  | { readonly kind: 'results', readonly texts: readonly (readonly [id: string, text: string])[],
    readonly said: string }

export interface History {
  readonly steps: readonly Step[]
  readonly tools: readonly { readonly name: string, readonly schema: Json | undefined }[]
  readonly settings: Json
  readonly user: string | undefined
}

const IDS = ['call_0', 'call_1', 'toolu_01AbCdEfGh', 'functions.look:0', 'D681PevKs', 'x'.repeat(41), 'y'.repeat(65),
  'z'.repeat(300), 'gw_call_0', 'gwid_Y2FsbF8w', 'an id', 'é\uD83D', '0'] as const
const NAMES = ['look', 'run_it', 'server.look', 'mcp__server__look', '21st_magic', '_look', '-look', 'a name', 'höre',
  'n'.repeat(64), 'n'.repeat(65), 'm'.repeat(129), 'look\uD83D', '0'] as const
const INPUTS = ['{}', '{"day":"monday"}', '{"day":', '', ' ', 'null', '[1,2]', '"text"', '{"id":2512292042121000001}',
  '{"half":"\\ud83d"}', '{"_raw":"{"}', '{"deep":{"er":[{"x":null}]}}'] as const
const TEXTS = ['When does it leave?', 'At nine.', '', ' ', '\n\t', 'ends in space \n', ' begins with one', 'half \uD83D',
  '\uDEA2 half', 'ferry \uD83D\uDEA2', '\0', 'ж'.repeat(50), '[object Object]', '{"a":1}'] as const

const property = { type: 'string', description: 'a day' }
const SCHEMAS: readonly (Json | undefined)[] = [
  { type: 'object', properties: { day: property } },
  { type: 'object', properties: { day: property }, required: ['day'], additionalProperties: false },
  { type: 'object' }, {}, undefined,
  { type: 'object', properties: null, required: null },
  { type: ['object', 'null'], properties: { day: property } },
  { properties: { day: property } },
  { anyOf: [{ type: 'object', properties: { day: property } }, { type: 'object', properties: { at: property } }] },
  { type: 'object', oneOf: [{ required: ['a'] }, { required: ['b'] }], properties: { a: property, b: property } },
  { allOf: [{ $ref: '#/definitions/day' }], definitions: { day: { type: 'object', properties: { day: property } } } },
  { $schema: 'http://json-schema.org/draft-04/schema#', type: 'object', properties: { n: { type: 'integer', minimum: 0,
    exclusiveMinimum: true } } },
  { $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object', properties: { pair: { type: 'array',
    prefixItems: [property], items: property } }, $defs: { x: { type: 'string' } } },
  { type: 'object', properties: { tree: { $ref: '#/$defs/tree' } }, $defs: { tree: { type: 'object', properties: {
    of: { type: 'array', items: { $ref: '#/$defs/tree' } } } } } },
  { type: 'object', properties: {}, not: { required: ['x'] }, enum: [{}] },
  Array.from({ length: 12 }).reduce<Json>((inner) => ({ type: 'object', properties: { inner } }), { type: 'object',
    properties: {} })
]

const id = fc.oneof({ weight: 8, arbitrary: fc.constantFrom(...IDS) },
  fc.string({ minLength: 1, maxLength: 80, unit: 'binary' }))
const name = fc.oneof({ weight: 8, arbitrary: fc.constantFrom(...NAMES) },
  fc.string({ minLength: 1, maxLength: 80, unit: 'binary' }))
const text = fc.oneof({ weight: 6, arbitrary: fc.constantFrom(...TEXTS) }, fc.string({ maxLength: 12, unit: 'binary' }))
const call = fc.record({ id, name, input: fc.constantFrom(...INPUTS) })

/** Calls with their results behind them, as most are, or with others. */
const round = fc.record({ text, inParts: fc.boolean(), calls: fc.array(call, { minLength: 1, maxLength: 3 }),
  said: text, results: fc.array(text, { maxLength: 4 }),
  order: fc.constantFrom('same', 'same', 'same', 'reverse', 'one less', 'twice') })
  .map(({ calls, said, results, order, ...answer }): readonly Step[] => {
    const all = calls.map((one, i) => [one.id, results[i] ?? 'At nine.'] as const)
    const texts = order === 'reverse' ? all.toReversed() : order === 'one less' ? all.slice(1)
      : order === 'twice' ? [...all, ...all] : all
    return [{ kind: 'answer', calls, ...answer }, { kind: 'results', texts, said }]
  })
const step: fc.Arbitrary<readonly Step[]> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constantFrom('user', 'user', 'user', 'system'), text,
    inParts: fc.boolean() }).map((one) => [one as Step]) },
  { weight: 4, arbitrary: round },
  { weight: 2, arbitrary: fc.record({ text, inParts: fc.boolean(), calls: fc.array(call, { maxLength: 2 }) })
    .map((one) => [{ kind: 'answer', ...one } as Step]) },
  { weight: 1, arbitrary: fc.record({ texts: fc.array(fc.tuple(id, text), { minLength: 1, maxLength: 2 }), said: text })
    .map((one) => [{ kind: 'results', ...one } as Step]) }
)

export const histories: fc.Arbitrary<History> = fc.record({
  steps: fc.array(step, { maxLength: 5 }).map((steps) => steps.flat()),
  tools: fc.uniqueArray(fc.record({ name, schema: fc.constantFrom(...SCHEMAS) }), { maxLength: 4,
    selector: (tool) => tool.name }),
  settings: fc.record({ temperature: fc.constantFrom(0, 0.5, 1), top_p: fc.constantFrom(0.1, 1),
    stop: fc.constantFrom(['.'], ['a', 'b']), stream: fc.boolean() }, { requiredKeys: [] }),
  user: fc.option(fc.constantFrom('u1', 'u'.repeat(64), 'u'.repeat(65), 'u'.repeat(150)), { nil: undefined })
})

const partsOf = (
  type: string, { text: said, inParts }: { readonly text: string, readonly inParts: boolean }
): unknown => inParts ? [{ type, text: said }] : said

function inputOf (input: string): unknown {
  try {
    const value: unknown = JSON.parse(input)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {}
  } catch {
    return {}
  }
}

/** The history in a client's words; half of the optional forms are drawn with it. */
export const bodyIn: Readonly<Record<Style, (history: History) => Json>> = {
  chat: ({ steps, tools, settings, user }) => ({
    max_tokens: 100, ...settings, ...(user !== undefined && { user }),
    messages: steps.flatMap((one): readonly Json[] => {
      if (one.kind === 'results') {
        return [...one.texts.map(([tool_call_id, content]) => ({ role: 'tool', tool_call_id, content })),
          ...(one.said === '' ? [] : [{ role: 'user', content: one.said }])]
      }
      if (one.kind !== 'answer') return [{ role: one.kind, content: partsOf('text', one) }]
      return [{ role: 'assistant', content: one.calls.length > 0 && one.text === '' ? null : partsOf('text', one),
        ...(one.calls.length > 0 && { tool_calls: one.calls.map((made) => ({ id: made.id, type: 'function',
          function: { name: made.name, arguments: made.input } })) }) }]
    }),
    ...(tools.length > 0 && { tools: tools.map((tool) => ({ type: 'function', function: { name: tool.name,
      ...(tool.schema !== undefined && { parameters: tool.schema }) } })) })
  }),
  messages: ({ steps, tools, settings: { stop, ...settings }, user }) => ({
    max_tokens: 100, ...settings, ...(stop !== undefined && { stop_sequences: stop }),
    ...(user !== undefined && { metadata: { user_id: user } }),
    messages: steps.map((one): Json => {
      if (one.kind === 'results') {
        return { role: 'user', content: [...one.texts.map(([tool_use_id, content]) =>
          ({ type: 'tool_result', tool_use_id, content })), ...(one.said === '' ? [] : [{ type: 'text', text: one.said }])] }
      }
      if (one.kind !== 'answer' || one.calls.length === 0) {
        return { role: one.kind === 'answer' ? 'assistant' : one.kind, content: partsOf('text', one) }
      }
      return { role: 'assistant', content: [...(one.text === '' ? [] : [{ type: 'text', text: one.text }]),
        ...one.calls.map((made) => ({ type: 'tool_use', id: made.id, name: made.name, input: inputOf(made.input) }))] }
    }),
    ...(tools.length > 0 && { tools: tools.map((tool) => ({ name: tool.name,
      input_schema: tool.schema ?? { type: 'object', properties: {} } })) })
  }),
  responses: ({ steps, tools, settings: { stop: _, ...settings }, user }) => ({
    max_output_tokens: 100, ...settings, store: false, ...(user !== undefined && { user }),
    input: steps.flatMap((one): readonly Json[] => {
      if (one.kind === 'results') {
        return [...one.texts.map(([call_id, output]) => ({ type: 'function_call_output', call_id, output })),
          ...(one.said === '' ? [] : [{ type: 'message', role: 'user', content: one.said }])]
      }
      if (one.kind !== 'answer') return [{ type: 'message', role: one.kind, content: partsOf('input_text', one) }]
      return [...(one.text === '' && one.calls.length > 0 ? []
        : [{ type: 'message', role: 'assistant', content: partsOf('output_text', one) }]),
      ...one.calls.map((made) => ({ type: 'function_call', call_id: made.id, name: made.name, arguments: made.input }))]
    }),
    ...(tools.length > 0 && { tools: tools.map((tool) => ({ type: 'function', name: tool.name,
      parameters: tool.schema ?? null })) })
  })
}
