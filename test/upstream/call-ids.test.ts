// Ids of tool calls: unique in the conversation for the client, whatever the vendor counts; for the vendor, each call
// and its result have one id, which no other call has.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type DialectOf, dialectsOf } from '../../src/config/sections/dialects.ts'
import { dialects } from '../../src/upstream/dialects/index.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { config, exchange, model, snapshot, upstreamConfig } from '../support/exchange.ts'
import { ApiKey, Model } from '../../src/core/facts.ts'
import { gateway, type GatewayTestOptions, KEY, yaml } from '../support/gateway.ts'
import { type Received, type Script, upstream } from '../support/upstream.ts'
import { answersWith } from '../support/vendor-calls.ts'

type Json = Readonly<Record<string, unknown>>
type Dialect = DialectOf<'text'>

const RUNS = Number(process.env['RUNS'] ?? 300)
const DIALECTS = dialectsOf('text')
const list = (value: unknown): readonly Json[] => Array.isArray(value) ? value as readonly Json[] : []
const record = (value: unknown): Json => (value ?? {}) as Json

/** Characters of the longest id that the strictest vendor of a dialect takes. */
const LONGEST = { messages: 64, chat: 40, responses: 64 }

interface Sent {
  readonly calls: readonly string[]
  readonly results: readonly string[]
}

/** The ids in a request to a vendor. */
const sent: Readonly<Record<Dialect, (body: Json) => Sent>> = {
  messages ({ messages }) {
    const blocks = list(messages).flatMap(({ content }) => list(content))
    return { calls: blocks.filter(({ type }) => type === 'tool_use').map(({ id }) => String(id)),
      results: blocks.filter(({ type }) => type === 'tool_result').map(({ tool_use_id: id }) => String(id)) }
  },
  chat: ({ messages }) => ({
    calls: list(messages).flatMap(({ tool_calls: calls }) => list(calls)).map(({ id }) => String(id)),
    results: list(messages).filter(({ role }) => role === 'tool').map(({ tool_call_id: id }) => String(id))
  }),
  responses: ({ input }) => ({
    calls: list(input).filter(({ type }) => type === 'function_call').map(({ call_id: id }) => String(id)),
    results: list(input).filter(({ type }) => type === 'function_call_output').map(({ call_id: id }) => String(id))
  })
}

/** A client: the ids of the calls in an answer, and its next turn, in its style. */
const clients: Readonly<Record<Style, {
  idsIn (got: Got): readonly string[]
  next (ids: readonly string[]): readonly Json[]
}>> = {
  messages: {
    idsIn: ({ events, body }) => [...list(body?.['content']), ...events.map(({ data }) => record(data['content_block']))]
      .filter(({ type }) => type === 'tool_use').map(({ id }) => String(id)),
    next: (ids) => [
      { role: 'assistant', content: ids.map((id) => ({ type: 'tool_use', id, name: 'run', input: {} })) },
      { role: 'user', content: ids.map((tool_use_id) => ({ type: 'tool_result', tool_use_id, content: 'done' })) }]
  },
  chat: {
    idsIn: ({ events, body }) => [record(list(body?.['choices'])[0]?.['message']),
      ...events.map(({ data }) => record(list(data['choices'])[0]?.['delta']))]
      .flatMap(({ tool_calls: calls }) => list(calls)).filter(({ id }) => id !== undefined).map(({ id }) => String(id)),
    next: (ids) => [
      { role: 'assistant', content: null,
        tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'run', arguments: '{}' } })) },
      ...ids.map((id) => ({ role: 'tool', tool_call_id: id, content: 'done' }))]
  },
  responses: {
    idsIn: ({ events, body }) => list(body?.['output'] ?? record(events.at(-1)?.data['response'])['output'])
      .filter(({ type }) => type === 'function_call').map(({ call_id: id }) => String(id)),
    next: (ids) => [...ids.map((call_id) => ({ type: 'function_call', call_id, name: 'run', arguments: '{}' })),
      ...ids.map((call_id) => ({ type: 'function_call_output', call_id, output: 'done' }))]
  }
}

const parameters = { type: 'object', properties: {} }
const tools: Readonly<Record<Style, readonly Json[]>> = {
  messages: [{ name: 'run', input_schema: parameters }],
  chat: [{ type: 'function', function: { name: 'run', parameters } }],
  responses: [{ type: 'function', name: 'run', parameters }]
}

interface World {
  say (style: Style, dialect: Dialect, stream: boolean, turns: readonly Json[], ids: readonly string[],
    model?: string): Promise<Got>
  last (): Received
}

async function startWorld (t: Test, options: GatewayTestOptions = {}, server = ''): Promise<World> {
  let script: Script = []
  const names = DIALECTS.flatMap((dialect) => [[dialect, dialect], [`other-${dialect}`, dialect]] as const)
  const vendor = await upstream(t, () => script)
  const text = yaml([]).replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${names.map(([name, dialect]) =>
    `  ${name}: { url: "${vendor.url}", dialect: ${dialect} }\n`).join('')}models:\n${names.map(([name]) =>
    `  - { id: ${name}, provider: acme, created: 2025-01-01, context: 200000, max_output: 8192, channels: {
    premium: { price: { input: 1, output: 10 }, targets: [{ upstream: ${name}, model: v }] } } }\n`).join('')}`)
    .replace('server:\n', `server:\n${server}`)
  const gw = await gateway(t, text, options)
  return {
    async say (style, dialect, stream, turns, ids, model = dialect) {
      script = answersWith[dialect](ids.map((id) => ({ id, name: 'run' })), stream)
      const { path, asking } = clientStyles[style]
      return await ask(gw.url + path, { ...asking({ model, max_tokens: 2000, stream,
        messages: [{ role: 'user', content: 'Go.' }, ...turns] }), tools: tools[style] },
      { headers: { authorization: `Bearer ${KEY}` } })
    },
    last: () => vendor.requests.at(-1)!
  }
}

for (const [where, options, server] of [
  ['on the loop', {}, ''],
  ['in threads', { largeBody: 1 }, ''],
  ['without the fast lanes', {}, '  fast_lane: off\n']
] as const) {
  t.test(`T1: a vendor counts its calls anew in each answer (rule call-ids), ${where}`, async (t) => {
    const world = await startWorld(t, options, server)
    for (const style of styles) {
      for (const dialect of DIALECTS) {
        for (const stream of [true, false]) {
          const about = `a ${style} client, ${dialect}, ${stream ? 'streamed' : 'whole'}`
          const turns: Json[] = []
          const seen: string[] = []
          for (let turn = 1; turn <= 3; turn++) {
            const got = await world.say(style, dialect, stream, turns, ['call_0', 'call_1'])
            t.equal(got.status, 200, `${about}: ${JSON.stringify(got.body ?? {}).slice(0, 300)}`)
            const ids = clients[style].idsIn(got)
            t.equal(ids.length, 2, about)
            seen.push(...ids)
            turns.push(...clients[style].next(ids))
            const { calls, results } = sent[dialect](world.last().body!)
            t.equal(new Set(calls).size, 2 * turn - 2, `${about}, turn ${turn}: ${calls.join()}`)
            t.strictSame(results, calls, about)
          }
          t.equal(new Set(seen).size, 6, `${about}: ${seen.join()}`)
          t.strictSame(seen.slice(0, 2), ['call_0', 'call_1'], 'the first ones are the vendor\'s own')
        }
      }
    }
  })

  t.test(`T1: a history with the same ids in each turn goes on, ${where}`, async (t) => {
    const world = await startWorld(t, options, server)
    for (const style of styles) {
      for (const dialect of DIALECTS) {
        const turns = [['call_0'], ['call_0', 'call_0'], ['call_0']].flatMap((ids) => clients[style].next(ids))
        const got = await world.say(style, dialect, true, turns, ['call_0'])
        t.equal(got.status, 200)
        const { calls, results } = sent[dialect](world.last().body!)
        t.equal(new Set(calls).size, 4, `a ${style} client, ${dialect}: ${calls.join()}`)
        t.strictSame(results, calls)
        const [id] = clients[style].idsIn(got)
        t.notOk(id === 'call_0', 'the next call has an id that the client has not seen')
      }
    }
  })
}

const KIMI = 'functions.run:'
/** As vendors make them: vLLM, Kimi, LiteLLM with a signature, and what no vendor of another family takes. */
const MADE = ['chatcmpl-tool-0123456789abcdef0123456789abcdef', `${KIMI}7`, `call_1__thought__${'Eq+/'.repeat(300)}`,
  'x'.repeat(65), 'ünïcode id']

for (const [where, options, server] of [
  ['on the loop', {}, ''],
  ['in threads', { largeBody: 1 }, ''],
  ['without the fast lanes', {}, '  fast_lane: off\n']
] as const) {
  t.test(`T2: the maker of a long id gets it back, and no other vendor does, ${where}`, async (t) => {
    const [world, restarted] = [await startWorld(t, options, server), await startWorld(t, options, server)]
    for (const style of styles) {
      for (const maker of DIALECTS) {
        for (const stream of [true, false]) {
          const about = `a ${style} client, ${maker}`
          const ids = clients[style].idsIn(await world.say(style, maker, stream, [], MADE))
          t.equal(new Set(ids).size, MADE.length, `${about}: ${ids.join()}`)
          const turns = [...clients[style].next(ids), { role: 'user', content: 'And?' }]
          for (const gw of [world, restarted]) {
            await gw.say(style, maker, stream, turns, [])
            t.strictSame(sent[maker](gw.last().body!), { calls: MADE, results: MADE }, about)
          }
          for (const other of DIALECTS) {
            await world.say(style, other, stream, turns, [], `other-${other}`)
            const { calls, results } = sent[other](world.last().body!)
            t.strictSame(results, calls, `${about}, then ${other}`)
            t.equal(new Set(calls).size, MADE.length)
            t.ok(calls.every((id) => id.length <= LONGEST[other]), `${about}, then ${other}: ${calls.join()}`)
            if (other === 'messages') t.ok(calls.every((id) => /^[\w-]+$/.test(id)), calls.join())
            await restarted.say(style, other, stream, turns, [], `other-${other}`)
            t.strictSame(sent[other](restarted.last().body!).calls, calls, 'the same at another gateway')
          }
        }
      }
    }
  })
}

t.test('T2: Kimi\'s ids are coded by their number alone, so that long names have room', async (t) => {
  const world = await startWorld(t)
  for (const style of styles) {
    for (const stream of [true, false]) {
      const ids = clients[style].idsIn(await world.say(style, 'chat', stream, [], [`${KIMI}0`, `${KIMI}11`]))
      t.ok(ids.every((id) => id.length <= 20), ids.join())
      t.match(ids[1], /_11$/)
    }
  }
})

// The ids of whole histories, without sockets.

const on = snapshot(config({
  upstreams: Object.fromEntries(DIALECTS.map((dialect) => [dialect, upstreamConfig({ dialect })])),
  models: DIALECTS.map((dialect) => model(dialect, { premium: `${dialect}/v*1` }))
}), [])

const OWNER = { account: { id: 'acme' }, key: { id: 'k' } } as unknown as ApiKey

function encode (dialect: Dialect, messages: readonly Json[]): Json {
  const made = exchange(on, { path: '/v1/messages' })
  const body = { model: dialect, max_tokens: 100, messages }
  made.set(ApiKey, OWNER)
  made.set(Model, on.models.get(dialect)!)
  made.request = { body, stream: false }
  const sold = on.models.get(dialect)!.channels.premium!
  const encoded = dialects[dialect].encode(made, { upstream: dialect, model: 'v', channel: 'premium', sold },
    on.upstreams.get(dialect)!)
  return JSON.parse(JSON.stringify((encoded as { readonly body: Json }).body)) as Json
}

const ids = fc.oneof(fc.constantFrom('call_0', 'call_0_2', 'call_1', '', 'functions.run:0', 'gw_call_0_0123456789012345678901',
  'gwid_ZnVuY3Rpb25zLnJ1bjow', 'gwhash_x', 'a'.repeat(64), 'b'.repeat(41), '\ud800', 'x'.repeat(100)),
fc.string({ maxLength: 80 }))

t.test('T1, T2: in each dialect pairs stay pairs, whatever a client\'s ids are', (t) => {
  fc.assert(fc.property(fc.array(fc.tuple(fc.array(ids, { minLength: 1, maxLength: 4 }), fc.boolean()),
    { maxLength: 6 }), (turns) => {
    const messages = [{ role: 'user', content: 'Go.' }, ...turns.flatMap(([made, isAnswered]) => [
      { role: 'assistant', content: made.map((id) => ({ type: 'tool_use', id, name: 'run', input: {} })) },
      { role: 'user', content: isAnswered
        ? made.map((id) => ({ type: 'tool_result', tool_use_id: id, content: 'done' }))
        : [{ type: 'text', text: 'Stop.' }] }])]
    const count = turns.flatMap(([made]) => made).length
    for (const dialect of DIALECTS) {
      const { calls, results } = sent[dialect](encode(dialect, messages))
      if (new Set(calls).size !== count) return false
      if (calls.some((id) => id.length > LONGEST[dialect])) return false
      if (dialect === 'messages' && !calls.every((id) => /^[\w-]+$/.test(id))) return false
      // A call without a result gets one.
      if (JSON.stringify(results) !== JSON.stringify(calls)) return false
    }
    return true
  }), { numRuns: RUNS })
  t.end()
})

t.test('T1: an upstream gets ids that need no change as they are, in the same objects', (t) => {
  const messages = [['toolu_1'], ['call_2', 'gw_call_0_0123456789012345678901']]
    .flatMap((made) => clients.messages.next(made))
  for (const dialect of DIALECTS) {
    t.strictSame(sent[dialect](encode(dialect, messages)).calls, ['toolu_1', 'call_2',
      'gw_call_0_0123456789012345678901'], dialect)
  }
  t.end()
})

t.test('T1: a result without a call is no other call\'s, and the user\'s words', (t) => {
  const messages = [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'lost', content: 'done' }] },
    ...clients.messages.next(['call_0'])]
  for (const dialect of DIALECTS) {
    t.strictSame(sent[dialect](encode(dialect, messages)), { calls: ['call_0'], results: ['call_0'] }, dialect)
    t.match(JSON.stringify(encode(dialect, messages)), /a call \\"lost\\" that is not shown/)
  }
  t.end()
})

t.test('T2: a long id is short for a vendor that refuses it, the same in each turn, and another for another', (t) => {
  const made = ['chatcmpl-tool-0123456789abcdef0123456789abcdef', `${'x'.repeat(63)}1`, `${'x'.repeat(63)}2`,
    'gw_functions_run_0_0123456789012345678901234567890', 'functions.run:0', 'gwid_ZnVuY3Rpb25zLmY6MA']
  const turns = made.map((id) => clients.messages.next([id]))
  for (const dialect of DIALECTS) {
    const { calls, results } = sent[dialect](encode(dialect, turns.flat()))
    t.equal(new Set(calls).size, made.length, dialect)
    t.ok(calls.every((id) => id.length <= LONGEST[dialect]), `${dialect}: ${calls.join()}`)
    t.strictSame(results, calls, dialect)
    for (let i = 1; i < made.length; i++) {
      t.strictSame(sent[dialect](encode(dialect, turns.slice(0, i).flat())).calls, calls.slice(0, i), 'the same before')
    }
    t.equal(calls.at(-1), dialect === 'messages' ? made.at(-1) : 'functions.f:0', 'the vendor\'s own where it made it')
  }
  t.end()
})
