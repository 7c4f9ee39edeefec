// A9 and A10 through a gateway: digits of numbers and halves of characters, of vendors of each dialect and clients of
// each style, in JSON and in streams, on the loop and in threads.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { ask, type ClientEvent } from '../support/billing-client.ts'
import { tools } from '../fixtures/vendors/answers.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, KEY } from '../support/gateway.ts'
import { stylesYaml } from '../support/large.ts'
import { readAnswer } from '../support/read-answer.ts'
import { raw, type Received, type Script, step, upstream } from '../support/upstream.ts'

const DIGITS = '{"id":2512292042121000001,"price":1.10,"zero":-0,"list":[1e400,0.0,{"input":1.50}],"plain":15}'
const USAGE = '"usage":{"input_tokens":10,"output_tokens":5,"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}'
const AUTH = { authorization: `Bearer ${KEY}` }

/** What a vendor says, as JSON texts. */
interface Said {
  /** of a text in pieces, with its quotes */
  readonly pieces: readonly string[]
  /** arguments of a call; undefined: there is none */
  readonly input?: string
}

const whole = (pieces: readonly string[]): string => `"${pieces.map((piece) => piece.slice(1, -1)).join('')}"`

const vendors: Readonly<Record<Style, {
  reply (said: Said): string
  events (said: Said): readonly (readonly [event: string, data: string])[]
}>> = {
  messages: {
    reply: ({ pieces, input }) => '{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[' +
      `{"type":"text","text":${whole(pieces)}}${input === undefined ? ''
        : `,{"type":"tool_use","id":"toolu_1","name":"timetable","input":${input}}`}],"stop_reason":` +
      `"${input === undefined ? 'end_turn' : 'tool_use'}","stop_sequence":null,${USAGE}}`,
    events: ({ pieces, input }) => [
      ['message_start', '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",' +
        `"model":"m","content":[],"stop_reason":null,"stop_sequence":null,${USAGE}}}`],
      ['content_block_start', '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'],
      ...pieces.map((piece) => ['content_block_delta', '{"type":"content_block_delta","index":0,"delta":' +
        `{"type":"text_delta","text":${piece}}}`] as const),
      ['content_block_stop', '{"type":"content_block_stop","index":0}'],
      ...input === undefined ? [] : [
        // Whole at the start of its block, as some vendors send it.
        ['content_block_start', '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use",' +
          `"id":"toolu_1","name":"timetable","input":${input}}}`] as const,
        ['content_block_stop', '{"type":"content_block_stop","index":1}'] as const
      ],
      ['message_delta', '{"type":"message_delta","delta":{"stop_reason":' +
        `"${input === undefined ? 'end_turn' : 'tool_use'}","stop_sequence":null},"usage":{"output_tokens":5}}`],
      ['message_stop', '{"type":"message_stop"}']
    ]
  },
  chat: {
    reply: ({ pieces, input }) => '{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,' +
      `"message":{"role":"assistant","content":${whole(pieces)}${input === undefined ? ''
        : `,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"timetable","arguments":` +
          `${JSON.stringify(input)}}}]`}},"finish_reason":"${input === undefined ? 'stop' : 'tool_calls'}"}],${USAGE}}`,
    events: ({ pieces, input }) => [
      ...pieces.map((piece) => `{"role":"assistant","content":${piece}}`),
      ...input === undefined ? [] : ['{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":' +
        `{"name":"timetable","arguments":${JSON.stringify(input)}}}]}`]
    ].map((delta) => ['', `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,` +
      `"delta":${delta},"finish_reason":null}]}`] as const).concat([
      ['', '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},' +
        `"finish_reason":"${input === undefined ? 'stop' : 'tool_calls'}"}],${USAGE}}`],
      ['', '[DONE]']
    ])
  },
  responses: {
    reply: ({ pieces, input }) => '{"id":"resp_1","object":"response","created_at":1,"model":"m","status":"completed",' +
      '"output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[' +
      `{"type":"output_text","text":${whole(pieces)},"annotations":[]}]}${input === undefined ? ''
        : `,{"type":"function_call","id":"fc_1","call_id":"call_1","name":"timetable","status":"completed",` +
          `"arguments":${JSON.stringify(input)}}`}],${USAGE}}`,
    events (said) {
      const { pieces, input } = said
      const call = (args: string): string => '{"type":"function_call","id":"fc_1","call_id":"call_1",' +
        `"name":"timetable","status":"completed","arguments":${args}}`
      const at = '"item_id":"msg_1","output_index":0,"content_index":0'
      return [
        ['response.created', '{"response":{"id":"resp_1","object":"response","model":"m","status":"in_progress",' +
          '"output":[]}}'],
        ['response.output_item.added', '{"output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant",' +
          '"status":"in_progress","content":[]}}'],
        ['response.content_part.added', `{${at},"part":{"type":"output_text","text":"","annotations":[]}}`],
        ...pieces.map((piece) => ['response.output_text.delta', `{${at},"delta":${piece}}`] as const),
        ['response.output_text.done', `{${at},"text":${whole(pieces)}}`],
        ['response.output_item.done', '{"output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant",' +
          `"status":"completed","content":[{"type":"output_text","text":${whole(pieces)},"annotations":[]}]}}`],
        ...input === undefined ? [] : [
          ['response.output_item.added', `{"output_index":1,"item":${call('""')}}`] as const,
          ['response.function_call_arguments.delta',
            `{"item_id":"fc_1","output_index":1,"delta":${JSON.stringify(input)}}`] as const,
          ['response.output_item.done', `{"output_index":1,"item":${call(JSON.stringify(input))}}`] as const
        ],
        ['response.completed', `{"response":${vendors.responses.reply(said)}}`]
      ].map(([event, data]) => [event!, `{"type":"${event!}",${data!.slice(1)}`] as const)
    }
  }
}

const dialectOf = ({ path }: Received): Style =>
  path.endsWith('/messages') ? 'messages' : path.endsWith('/responses') ? 'responses' : 'chat'

/** Answers as it is requested. */
function saying (said: () => Said): (received: Received) => Script {
  return (received) => {
    const vendor = vendors[dialectOf(received)]
    return received.body?.stream === true
      ? vendor.events(said()).map(([event, data]) => raw(`${event === '' ? '' : `event: ${event}\n`}data: ${data}\n\n`))
      : step(({ response }) => {
        response.writeHead(200, { 'content-type': 'application/json' }).end(vendor.reply(said()))
      })
  }
}

function asking (style: Style, dialect: Style, stream: boolean, messages: unknown): object {
  return { ...clientStyles[style].asking({ model: `m-${dialect}`, max_tokens: 1000, stream, messages }),
    tools: tools[style] }
}

const QUESTION = [{ role: 'user', content: 'When?' }]

interface Context {
  readonly url: string
  readonly style: Style
  readonly dialect: Style
  readonly name: string
  /** the last request */
  readonly received: () => Received
}

/** All three of a style, a dialect, and a gateway that reads large bodies so. */
async function each (
  t: Test, answers: (received: Received) => Script, check: (context: Context) => Promise<void>
): Promise<void> {
  const up = await upstream(t, answers)
  for (const largeBody of [Infinity, 1]) {
    const gw = await gateway(t, stylesYaml(up.url), { largeBody })
    for (const style of styles) {
      for (const dialect of styles) {
        await check({ url: gw.url + clientStyles[style].path, style, dialect, received: () => up.requests.at(-1)!,
          name: `${style} client, ${dialect} upstream, ${largeBody === 1 ? 'thread' : 'loop'}` })
      }
    }
  }
}

/** The text of an answer, whatever JSON texts are nested in it. */
const unescaped = (text: string): string => text.replaceAll('\\', '')

t.test('A9: the digits of a call\'s input reach the client, in JSON and in streams', async (t) => {
  await each(t, saying(() => ({ pieces: ['"see"'], input: DIGITS })), async ({ url, style, dialect, name }) => {
    for (const stream of [false, true]) {
      const response = await fetch(url, { method: 'POST', headers: { ...AUTH, 'content-type': 'application/json' },
        body: JSON.stringify(asking(style, dialect, stream, QUESTION)) })
      const text = await response.text()
      t.equal(response.status, 200, text)
      t.ok(unescaped(text).includes(DIGITS), `${name}${stream ? ', stream' : ''}`)
    }
  })
})

/** A conversation with a call, as JSON texts. */
const histories: Readonly<Record<Style, (input: string, model: string, text: string) => string>> = {
  messages: (input, model, text) => `{"model":"${model}","max_tokens":1000.0,"messages":[{"role":"user","content":` +
    `"${text}"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"timetable","input":${input}}]},` +
    `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"${text}"}]}],` +
    `"tools":[{"name":"timetable","description":"${text}","input_schema":{"type":"object","properties":` +
    '{"input":{"type":"object","minProperties":1.0}}}}]}',
  chat: (input, model, text) => `{"model":"${model}","max_tokens":1e3,"messages":[{"role":"user","content":"${text}"},` +
    '{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"timetable",' +
    `"arguments":${JSON.stringify(input)}}}]},{"role":"tool","tool_call_id":"call_1","content":"${text}"}],` +
    `"tools":[{"type":"function","function":{"name":"timetable","description":"${text}",` +
    '"parameters":{"type":"object","properties":{}}}}]}',
  responses: (input, model, text) => `{"model":"${model}","max_output_tokens":1000.0,"input":[{"role":"user","content":` +
    `"${text}"},{"type":"function_call","call_id":"call_1","name":"timetable","arguments":${JSON.stringify(input)}},` +
    `{"type":"function_call_output","call_id":"call_1","output":"${text}"}],"tools":[{"type":"function","name":` +
    `"timetable","strict":false,"description":"${text}","parameters":{"type":"object","properties":` +
    '{"input":{"type":"object","minProperties":1.0}}}}]}'
}

t.test('A9, A10: of a history the digits reach the upstream, and half a character does not', async (t) => {
  await each(t, saying(() => ({ pieces: ['"ok"'] })), async ({ url, style, dialect, name, received }) => {
    const input = `{"text":"a\\ude00\\ud83d",${DIGITS.slice(1)}`
    const response = await fetch(url, { method: 'POST', headers: { ...AUTH, 'content-type': 'application/json' },
      body: histories[style](input, `m-${dialect}`, 'half \\ud83d, whole \\ud83d\\ude00') })
    t.equal(response.status, 200, `${name}: ${await response.text()}`)
    const sent = received().bytes.toString()
    t.ok(unescaped(sent).includes(DIGITS.slice(1)), `${name}: digits`)
    t.notMatch(sent, /\\u[dD][89a-fA-F]/, `${name}: no half`)
    t.equal(sent.match(/half \uFFFD, whole \u{1F600}/gu)?.length, 3, `${name}: text, result and description`)
    t.ok(unescaped(sent).includes('"a\uFFFD\uFFFD"'), `${name}: arguments`)
  })
})

const isWhole = (event: ClientEvent): boolean => !/\\u[dD][89a-fA-F]/.test(JSON.stringify(event.data))
const escaped = (text: string): string => `"${text.split('').map((unit) =>
  `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')}"`

t.test('A10: halves in two pieces are one character, and one alone is U+FFFD, at all places', async (t) => {
  const unit = fc.oneof(fc.constantFrom('\u{1F600}', '\uD83D', '\uDE00', 'a', '\u{10FFFF}', 'é', '"', '\\'))
  const texts = fc.tuple(fc.array(unit, { minLength: 1, maxLength: 6 }).map((units) => `x${units.join('')}`),
    fc.array(fc.nat(12), { maxLength: 5 }))
  let said: Said = { pieces: [] }
  await each(t, saying(() => said), async ({ url, style, dialect, name }) => {
    for (const [text, cuts] of [...fc.sample(texts, { numRuns: 6, seed: 28 }), ['x\u{1F600}', [2]], ['x\uD83D', []],
      ['x\uD83D', [1, 2]], ['\u{1F600}', [1]]] as const) {
      const ends = [...cuts.map((cut) => Math.min(cut, text.length)).toSorted((a, b) => a - b), text.length]
      said = { pieces: ends.map((end, i) => escaped(text.slice(ends[i - 1] ?? 0, end))) }
      for (const stream of [false, true]) {
        const got = await ask(url, asking(style, dialect, stream, QUESTION), { headers: AUTH })
        t.equal(readAnswer(style, stream, got)?.text, text.toWellFormed(), `${name}: ${JSON.stringify([stream, said.pieces])}`)
        t.ok(got.events.every(isWhole), `${name}: no event with half a character`)
      }
    }
  })
})

/** A call whose arguments come in pieces, as events. */
const called: Readonly<Record<Style, (pieces: readonly string[]) => readonly object[]>> = {
  messages: (pieces) => [
    { type: 'message_start', message: { id: 'msg_1', type: 'message', role: 'assistant', content: [], usage: {} } },
    { type: 'content_block_start', index: 0,
      content_block: { type: 'tool_use', id: 'toolu_1', name: 'timetable', input: {} } },
    ...pieces.map((json) =>
      ({ type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: json } })),
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 5 } },
    { type: 'message_stop' }
  ],
  chat: (pieces) => [
    { id: 'call_1', type: 'function', function: { name: 'timetable', arguments: '' } },
    ...pieces.map((json) => ({ function: { arguments: json } }))
  ].map((call): object => ({ choices: [{ index: 0, delta: { tool_calls: [{ index: 0, ...call }] } }] }))
    .concat({ choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] }),
  responses: (pieces) => [
    { type: 'response.output_item.added', output_index: 0,
      item: { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'timetable', arguments: '' } },
    ...pieces.map((delta) =>
      ({ type: 'response.function_call_arguments.delta', output_index: 0, item_id: 'fc_1', delta })),
    { type: 'response.completed', response: { id: 'resp_1', status: 'completed', output: [] } }
  ]
}

t.test('A10: an escaped character that two pieces of arguments share is whole for whoever joins them', async (t) => {
  // An escape is text within the text: no event has half a character, and no client reads a piece by itself.
  const text = '{"a":"\\ud83d\\ude00"}'
  let pieces: readonly string[] = []
  await each(t, (received) => called[dialectOf(received)](pieces).map((data) =>
    raw(`${'type' in data ? `event: ${String(data.type)}\n` : ''}data: ${JSON.stringify(data)}\n\n`)),
  async ({ url, style, dialect, name }) => {
    for (const cut of [text.indexOf('\\ude00'), text.indexOf('d83d'), text.indexOf('e00')]) {
      pieces = [text.slice(0, cut), text.slice(cut)]
      for (const stream of [false, true]) {
        const got = await ask(url, asking(style, dialect, stream, QUESTION), { headers: AUTH })
        t.strictSame(readAnswer(style, stream, got)?.calls.map(({ input }) => input), [{ a: '\u{1F600}' }],
          `${name}: ${JSON.stringify([stream, pieces])}`)
      }
    }
  })
})
