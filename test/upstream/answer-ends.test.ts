// When an answer in events is over: with its terminal event, however long its body stays open, or without one if it has
// its stop reason, which a response has only in its terminal event.
import t from 'tap'
import { ask } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, KEY, type TestGateway } from '../support/gateway.ts'
import { stylesYaml } from '../support/large.ts'
import { readAnswer, type ClientAnswer } from '../support/read-answer.ts'
import { cut, json, raw, type Script, stall, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const USAGE = { prompt_tokens: 20, completion_tokens: 5, input_tokens: 20, output_tokens: 5 }

const event = (data: Json | string): string => `${
  typeof data === 'object' && typeof data['type'] === 'string' ? `event: ${data['type']}\n` : ''}data: ${
  typeof data === 'string' ? data : JSON.stringify(data)}\n\n`

/** The events of "Hello"; the last one is terminal, and the one before it has the stop reason, if there is another. */
const vendors: Readonly<Record<Style, readonly (Json | string)[]>> = {
  messages: [
    { type: 'message_start', message: { id: 'msg_1', type: 'message', role: 'assistant', content: [], usage: USAGE } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello' } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 5 } },
    { type: 'message_stop' }
  ],
  chat: [
    { choices: [{ index: 0, delta: { role: 'assistant', content: 'Hello' }, finish_reason: null }] },
    { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], usage: USAGE },
    '[DONE]'
  ],
  responses: [
    { type: 'response.output_text.delta', output_index: 0, item_id: 'msg_1', content_index: 0, delta: 'Hello' },
    { type: 'response.output_item.done', output_index: 0, item: { type: 'message', id: 'msg_1', role: 'assistant',
      content: [{ type: 'output_text', text: 'Hello' }] } },
    { type: 'response.completed', response: { id: 'resp_1', status: 'completed', output: [], usage: USAGE } }
  ]
}

async function send (
  gw: TestGateway, style: Style, dialect: Style, stream: boolean
): Promise<ClientAnswer | undefined> {
  const { path, asking } = clientStyles[style]
  const got = await ask(gw.url + path, asking({ model: `m-${dialect}`, max_tokens: 1000, stream,
    messages: [{ role: 'user', content: 'Hello?' }] }), { headers: { authorization: `Bearer ${KEY}` } })
  return readAnswer(style, stream, got)
}

/** So that a test that waits for a timeout fails. */
const PATIENT = 'timeouts: { first_byte: 1h, idle: 1h, total: 2h }'

for (const [where, options, server] of [
  ['on the loop', {}, ''],
  ['in threads', { largeBody: 1 }, ''],
  ['without the fast lanes', {}, '  fast_lane: off\n']
] as const) {
  t.test(`an answer is over at its end, ${where}`, async (t) => {
    let script: Script = []
    const up = await upstream(t, () => script)
    const gw = await gateway(t, stylesYaml(up.url).replace('server:\n', `server:\n${server}`)
      .replaceAll('retries: { attempts: 0', `${PATIENT}, retries: { attempts: 0`), options)
    const each = async (
      about: string, made: Script, dialect: Style, check: (answer: ClientAnswer | undefined, about: string) => void,
      kinds: readonly boolean[] = [true, false]
    ): Promise<void> => {
      for (const style of styles) {
        for (const stream of kinds) {
          script = made
          const before = up.requests.length
          const answer = await send(gw, style, dialect, stream)
          const name = `${about}, ${dialect}, for a ${style} client, ${stream ? 'a stream' : 'JSON'}`
          check(answer, name)
          if (answer !== undefined) t.equal(up.requests.length - before, 1, `${name}: one request`)
        }
      }
    }
    const isHello = (answer: ClientAnswer | undefined, about: string): void => { t.equal(answer?.text, 'Hello', about) }
    const isBroken = (answer: ClientAnswer | undefined, about: string): void => { t.equal(answer, undefined, about) }

    for (const dialect of styles) {
      const events = vendors[dialect].map(event)
      await each('a body that stays open', [events.map(raw), stall()], dialect, isHello)
      await each('the same in one piece, behind a mark and a comment', [raw(`\uFEFF \n: here\n\n${events.join('')}`),
        stall()], dialect, isHello, [false])
      const [last] = events.slice(-1)
      const most = events.slice(0, -1)
      const expected = dialect === 'responses' ? isBroken : isHello
      await each('no terminal event', most.map(raw), dialect, expected)
      await each('no terminal event, and a cut', [most.map(raw), cut()], dialect, expected)
      await each('half a terminal event', [most.map(raw), raw(last!.slice(0, -8)), cut()], dialect, expected)
      if (dialect !== 'responses') {
        await each('no terminal event, and a body that stays open', [most.map(raw), stall()], dialect, isHello)
      }
      await each('no stop reason', events.slice(0, 1).map(raw), dialect, isBroken)
      await each('an error, and a body that stays open', [events.slice(0, 1).map(raw),
        raw(event({ type: 'error', error: { type: 'api_error', message: 'no' } })), stall()], dialect, isBroken)
      await each('a broken event, and a body that stays open', [raw(event({ type: 'message_start' })),
        raw('event: message_start\ndata: {"type": "message_start", \n\n'), stall()], 'messages', isBroken, [false])
    }

    const call = [
      { type: 'content_block_start', index: 1, content_block: { type: 'tool_use', id: 'toolu_1', name: 'run', input: {} } },
      { type: 'content_block_delta', index: 1, delta: { type: 'input_json_delta', partial_json: '{"a":' } }
    ]
    const reason = { type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 5 } }
    await each('half a call behind the stop reason', [...vendors.messages.slice(0, 4), reason, ...call]
      .map((one) => raw(event(one))), 'messages', isBroken)

    const response = { id: 'resp_1', object: 'response', usage: USAGE, output: [{ type: 'message', id: 'msg_1',
      role: 'assistant', content: [{ type: 'output_text', text: 'Hello' }] }] }
    for (const status of ['in_progress', 'queued']) {
      await each(`A0: a whole answer that is "${status}"`, json({ ...response, status }), 'responses', isHello)
      await each(`nothing that is "${status}"`, json({ ...response, status, output: [], usage: null }), 'responses',
        isBroken)
    }
    t.equal(await gw.services.store.openHolds(), 0)
  })
}
