// Calls that no client can run: without a name, or with arguments that are no JSON object. A prompt can make a model
// write them, so they count against no target, and the answer was paid for, so it is not requested again.
import t from 'tap'
import { ask } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, KEY } from '../support/gateway.ts'
import { stylesYaml } from '../support/large.ts'
import { readAnswer } from '../support/read-answer.ts'
import { json, raw, type Script, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

interface Written {
  readonly name: string
  readonly input: string
  /** in the words of chat style */
  readonly finish: 'tool_calls' | 'length'
}

const USAGE = { prompt_tokens: 20, completion_tokens: 5, input_tokens: 20, output_tokens: 5 }
const STOPS = { tool_calls: 'tool_use', length: 'max_tokens' }

const event = (data: Json | string, name = ''): Script =>
  raw(`${name === '' ? '' : `event: ${name}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`)
const typed = (type: string, fields: Json): Script => event({ type, ...fields }, type)

interface Vendor { reply (written: Written): Json, events (written: Written): Script }

const vendors: Readonly<Record<Style, Vendor>> = {
  chat: {
    reply: ({ name, input, finish }) => ({ id: 'c', object: 'chat.completion', usage: USAGE, choices: [{ index: 0,
      finish_reason: finish, message: { role: 'assistant', content: null,
        tool_calls: [{ id: 'call_1', type: 'function', function: { name, arguments: input } }] } }] }),
    events: ({ name, input, finish }) => [
      { tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name, arguments: '' } }] },
      ...Array.from(input, (piece) => ({ tool_calls: [{ index: 0, function: { arguments: piece } }] }))
    ].map((delta): Json => ({ choices: [{ index: 0, delta, finish_reason: null }] }))
      .concat({ choices: [{ index: 0, delta: {}, finish_reason: finish }] }, { choices: [], usage: USAGE })
      .map((chunk) => event(chunk)).concat(event('[DONE]'))
  },
  messages: {
    reply: ({ name, input, finish }) => ({ id: 'msg_1', type: 'message', role: 'assistant', stop_reason: STOPS[finish],
      content: [{ type: 'tool_use', id: 'toolu_1', name, input }], usage: USAGE }),
    events: ({ name, input, finish }) => [
      typed('message_start', { message: { id: 'msg_1', type: 'message', role: 'assistant', content: [],
        usage: USAGE } }),
      typed('content_block_start', { index: 0, content_block: { type: 'tool_use', id: 'toolu_1', name, input: {} } }),
      ...Array.from(input, (piece) =>
        typed('content_block_delta', { index: 0, delta: { type: 'input_json_delta', partial_json: piece } })),
      typed('content_block_stop', { index: 0 }),
      typed('message_delta', { delta: { stop_reason: STOPS[finish] }, usage: USAGE }),
      typed('message_stop', {})
    ]
  },
  responses: {
    reply: ({ name, input, finish }) => ({ id: 'resp_1', object: 'response', usage: USAGE,
      output: [{ type: 'function_call', id: 'fc_1', call_id: 'call_1', name, arguments: input }],
      ...finish === 'length' ? { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }
        : { status: 'completed' } }),
    events: (written) => [
      typed('response.output_item.added', { output_index: 0,
        item: { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: written.name, arguments: '' } }),
      ...Array.from(written.input, (delta) =>
        typed('response.function_call_arguments.delta', { output_index: 0, item_id: 'fc_1', delta })),
      typed(`response.${written.finish === 'length' ? 'incomplete' : 'completed'}`,
        { response: vendors.responses.reply(written) })
    ]
  }
}

const WORSE: Readonly<Record<string, Written>> = Object.fromEntries([
  ...['[1]', '"x"', '5', 'true', '[]', '{"a":1,}', '{"a":}', '{a:1}'].map((input) =>
    [input, { name: 'run', input, finish: 'tool_calls' }] as const),
  ['without a name', { name: '', input: '{"a":1}', finish: 'tool_calls' }]
])

for (const [where, options, server] of [
  ['on the loop', {}, ''],
  ['in threads', { largeBody: 1 }, ''],
  ['without the fast lanes', {}, '  fast_lane: off\n']
] as const) {
  t.test(`a call that no client can run: one request, and no target is blamed, ${where}`, async (t) => {
    let script: Script = []
    const up = await upstream(t, () => script)
    const gw = await gateway(t, stylesYaml(up.url).replaceAll('failures: 1000000', 'failures: 1, ratio: 1')
      .replace('server:\n', `server:\n${server}`), options)
    const send = async (style: Style, dialect: Style, stream: boolean): ReturnType<typeof ask> => {
      const { path, asking } = clientStyles[style]
      return await ask(gw.url + path, asking({ model: `m-${dialect}`, max_tokens: 1000, stream,
        messages: [{ role: 'user', content: 'When?' }] }), { headers: { authorization: `Bearer ${KEY}` } })
    }
    for (const dialect of styles) {
      const { reply, events } = vendors[dialect]
      for (const [name, written] of Object.entries(WORSE)) {
        // The input of this style is a value in JSON, and only in pieces a text.
        if (dialect === 'messages' && written.input === '[]') continue
        for (const [form, made] of [['JSON', json(reply(written))], ['events', events(written)]] as const) {
          for (const style of styles) {
            for (const stream of [true, false]) {
              script = made
              const before = up.requests.length
              const answer = readAnswer(style, stream, await send(style, dialect, stream))
              const about = `${name}, ${dialect}, ${form}, for a ${style} client, ${stream ? 'a stream' : 'JSON'}`
              t.equal(answer, undefined, about)
              t.equal(up.requests.length - before, 1, `${about}: one request`)
              const { health } = gw.services.upstreams
              t.strictSame(health.targets(gw.live.current()).filter(({ breaker, failed }) =>
                breaker !== 'closed' || failed > 0), [], `${about}: nobody is blamed`)
            }
          }
        }
      }
      // Behind the limit nobody runs the call.
      for (const input of ['[1]', '"x"', '{"a":1,}', '{"a"']) {
        for (const made of [json(reply({ name: 'run', input, finish: 'length' })),
          events({ name: 'run', input, finish: 'length' })]) {
          for (const style of styles) {
            for (const stream of [true, false]) {
              script = made
              const before = up.requests.length
              const answer = readAnswer(style, stream, await send(style, dialect, stream))
              t.match(answer?.stop, { messages: 'max_tokens', chat: 'length', responses: 'incomplete' }[style],
                `${input}, ${dialect}, for ${style}`)
              t.equal(up.requests.length - before, 1)
            }
          }
        }
      }
    }
    t.equal(await gw.services.store.openHolds(), 0)
  })
}
