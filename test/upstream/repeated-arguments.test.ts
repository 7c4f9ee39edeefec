// A4: a chat upstream that sends arguments twice (vLLM): real agents ran the command twice.
import t from 'tap'
import { Body, Model } from '../../src/core/facts.ts'
import type { StreamTransformer } from '../../src/core/plugin.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { dialects } from '../../src/upstream/dialects/index.ts'
import { config, exchange, model, snapshot, upstreamConfig, upstreamOf } from '../support/exchange.ts'

type Json = Readonly<Record<string, unknown>>

function decoder (): StreamTransformer {
  const on = snapshot(config({ upstreams: { u: upstreamConfig({ dialect: 'chat' }) },
    models: [model('m1', { premium: 'u/vendor-m1*1' })] }))
  const made = exchange(on)
  const body = { model: 'm1', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
  made.set(Body, body)
  made.set(Model, on.models.get('m1')!)
  made.request = { body, stream: true }
  return dialects.chat.decodeStream(made, upstreamOf(made))
}

/** The calls of a stream of chat chunks. @throws what the dialect throws */
function callsOf (pieces: readonly Json[]): readonly { readonly name: unknown, readonly input: unknown }[] {
  const decode = decoder()
  const chunks = [...pieces.map((call) => ({ choices: [{ index: 0, delta: { tool_calls: [call] } }] })),
    { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] }]
  const events = [...chunks.map((chunk) => decode.event(SseEvent.of('', chunk))), decode.end?.()]
    .flatMap((told) => [told ?? []].flat()).map((event) => event.json as Json)
  return events.filter(({ type }) => type === 'content_block_start').map(({ index, content_block: block }) => ({
    name: (block as Json).name,
    input: events.filter((event) => event.type === 'content_block_delta' && event.index === index)
      .map(({ delta }) => (delta as Json).partial_json).join('')
  }))
}

const begin = (more: Json = {}, args = '{"a"'): Json =>
  ({ index: 0, id: 'call_1', type: 'function', ...more, function: { name: 'run', arguments: args } })
const piece = (args: string, more: Json = {}): Json => ({ index: 0, ...more, function: { arguments: args } })
const ONE = [{ name: 'run', input: '{"a":1}' }]

t.test('A4: an equal repetition, or a tail of the arguments, is dropped', async (t) => {
  for (const [name, again] of Object.entries<Json>({
    'without id and name': piece('{"a":1}'),
    'with the id': piece('{"a":1}', { id: 'call_1' }),
    'with id and name': begin({}, '{"a":1}'),
    'with the name': begin({ id: undefined }, '{"a":1}'),
    'the last piece': piece(':1}'),
    'a bracket': piece('}')
  })) t.strictSame(callsOf([begin(), piece(':1}'), again]), ONE, name)
})

t.test('A4: another id is another call, and other arguments behind the end are a broken answer', async (t) => {
  t.strictSame(callsOf([begin(), piece(':1}'), begin({ id: 'call_2', index: 1 }, '{"a":1}')]), [...ONE, ...ONE])
  t.strictSame(callsOf([begin(), piece(':1}'), begin({ id: 'call_2' }, '{"a":1}')]), [...ONE, ...ONE],
    'also with the same index')
  for (const args of ['{"a":2}', '2}', '{"b":1}', '}}']) {
    t.throws(() => callsOf([begin(), piece(':1}'), piece(args)]), /goes on behind its end/, args)
  }
})

t.test('V9: a function call that says nothing holds no text back', async (t) => {
  const decode = decoder()
  for (const call of [{ function_call: { name: '', arguments: '' } },
    { tool_calls: [{ index: 0, id: '', type: '', function: { name: '', arguments: '' } }] }]) {
    const chunk = { choices: [{ index: 0, delta: { content: 'Hello', ...call } }] }
    const more = { choices: [{ index: 0, delta: { content: ' again' } }] }
    for (const one of [chunk, more]) {
      t.match([decode.event(SseEvent.of('', one)) ?? []].flat().at(-1)?.json, { delta: { type: 'text_delta' } })
    }
  }
})
