// T7: what vendors of chat style want back of their thoughts: Gemini's signatures of calls, OpenRouter's
// reasoning_details. A chat client has them as they are, others have them sealed, and the vendor gets them unchanged.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, type GatewayTestOptions, KEY, yaml } from '../support/gateway.ts'
import { json, raw, type Script, upstream } from '../support/upstream.ts'
import { answersWith } from '../support/vendor-calls.ts'

type Json = Readonly<Record<string, unknown>>

const RUNS = Number(process.env['RUNS'] ?? 30)
const list = (value: unknown): readonly Json[] => Array.isArray(value) ? value as readonly Json[] : []
const record = (value: unknown): Json => (value ?? {}) as Json

const signed = (signature: string): Json => ({ google: { thought_signature: signature } })
const PLACEHOLDER = signed('skip_thought_signature_validator')
const usage = { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 }

/** An answer as the vendor must get it back. */
interface Said {
  readonly content: string | null
  readonly calls: readonly { readonly id: string, readonly extra?: Json }[]
  readonly extra?: Json
  readonly details?: readonly Json[]
}

const callOf = ({ id, extra }: Said['calls'][number]): Json => ({ id, type: 'function',
  function: { name: 'run', arguments: '{}' }, ...(extra !== undefined && { extra_content: extra }) })

function messageOf ({ content, calls, extra, details }: Said): Json {
  return { role: 'assistant', content, ...(details !== undefined && { reasoning_details: details }),
    ...(extra !== undefined && { extra_content: extra }), ...(calls.length > 0 && { tool_calls: calls.map(callOf) }) }
}

/** When what is signed comes: with what it signs, behind it, or at the end of the stream. */
type Time = 'with' | 'behind' | 'end'

function script (said: Said, stream: boolean, time: Time = 'with'): Script {
  const finish = said.calls.length > 0 ? 'tool_calls' : 'stop'
  if (!stream) {
    return json({ id: 'c', object: 'chat.completion', created: 1, usage,
      choices: [{ index: 0, message: messageOf(said), finish_reason: finish }] })
  }
  const { content, calls, extra, details = [] } = said
  const own: Json[] = [...details.map((detail) => ({ reasoning_details: [detail] })),
    ...(extra === undefined ? [] : [{ extra_content: extra }])]
  const words: Json[] = [...(content === null ? [] : [{ content }]), ...calls.flatMap((call, index): Json[] => {
    const { extra_content: signature, ...plain } = callOf(call)
    if (signature === undefined || time === 'with') return [{ tool_calls: [{ index, ...callOf(call) }] }]
    return [{ tool_calls: [{ index, ...plain }] }, { tool_calls: [{ index, extra_content: signature }] }]
  })]
  const deltas = time === 'end' ? [...words, ...own] : [...own, ...words]
  const chunks = [...deltas.map((delta) => ({ choices: [{ index: 0, delta }] })),
    { choices: [{ index: 0, delta: {}, finish_reason: finish }], usage }]
  return raw(`${chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('')}data: [DONE]\n\n`)
}

/** A client: its next turns, made of the answer that it got. */
const clients: Readonly<Record<Style, (got: Got) => readonly Json[]>> = {
  messages ({ body, events }) {
    const blocks: Record<string, unknown>[] = []
    for (const { data } of events) {
      const delta = record(data['delta'])
      const at = Number(data['index'])
      if (data['content_block'] !== undefined) blocks[at] = { ...record(data['content_block']) }
      else if (delta['type'] === 'text_delta') blocks[at]!['text'] = String(blocks[at]!['text']) + String(delta['text'])
      else if (delta['type'] === 'signature_delta') blocks[at]!['signature'] = delta['signature']
    }
    const content = body === undefined ? blocks : list(body['content'])
    const results = content.filter(({ type }) => type === 'tool_use').map(({ id }) =>
      ({ type: 'tool_result', tool_use_id: id, content: 'done' }))
    return [{ role: 'assistant', content }, { role: 'user', content: [...results, { type: 'text', text: 'And?' }] }]
  },
  chat ({ body, events }) {
    const message: Record<string, unknown> = { role: 'assistant', content: null }
    const calls: Record<string, unknown>[] = []
    const details: unknown[] = []
    const whole = body === undefined ? undefined : record(list(body['choices'])[0]?.['message'])
    const deltas = whole === undefined ? events.map(({ data }) => record(list(data['choices'])[0]?.['delta'])) : [whole]
    for (const delta of deltas) {
      if (typeof delta['content'] === 'string' && delta['content'] !== '') message['content'] = delta['content']
      if (delta['extra_content'] !== undefined) message['extra_content'] = delta['extra_content']
      details.push(...list(delta['reasoning_details']))
      for (const [i, call] of list(delta['tool_calls']).entries()) {
        const { index = i, function: its, ...others } = call
        const before = calls[Number(index)] ?? { function: { name: 'run', arguments: '{}' } }
        calls[Number(index)] = { ...before, ...others }
      }
    }
    return [{ ...message, ...(details.length > 0 && { reasoning_details: details }),
      ...(calls.length > 0 && { tool_calls: calls }) },
    ...calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: 'done' })), { role: 'user', content: 'And?' }]
  },
  responses ({ body, events }) {
    const output = list(record(body ?? events.at(-1)?.data['response'])['output'])
    return [...output, ...output.filter(({ type }) => type === 'function_call').map(({ call_id }) =>
      ({ type: 'function_call_output', call_id, output: 'done' })), { role: 'user', content: 'And?' }]
  }
}

const parameters = { type: 'object', properties: {} }
const tools: Readonly<Record<Style, readonly Json[]>> = {
  messages: [{ name: 'run', input_schema: parameters }],
  chat: [{ type: 'function', function: { name: 'run', parameters } }],
  responses: [{ type: 'function', name: 'run', parameters }]
}

interface World {
  say (style: Style, stream: boolean, turns: readonly Json[], answer: Script, model?: string): Promise<Got>
  /** the body that a vendor got last */
  sent (): Json
}

async function startWorld (t: Test, options: GatewayTestOptions = {}, server = ''): Promise<World> {
  let answer: Script = []
  const vendor = await upstream(t, () => answer)
  const upstreams = { gemini: 'dialect: chat', family: 'dialect: chat, thinking_family: gemini',
    other: 'dialect: chat', google: 'dialect: chat, chat: { thought_signatures: google }',
    strict: 'dialect: chat, thinking_family: gemini, chat: { thought_signatures: drop }', claude: 'dialect: messages',
    openai: 'dialect: responses' }
  const text = yaml([]).replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${Object.entries(upstreams)
    .map(([name, settings]) => `  ${name}: { url: "${vendor.url}", ${settings} }\n`).join('')}models:\n${
    Object.keys(upstreams).map((name) => `  - { id: ${name}, provider: acme, created: 2025-01-01, context: 200000,
    max_output: 8192, channels: { premium: { price: { input: 1, output: 10 },
    targets: [{ upstream: ${name}, model: v }] } } }\n`).join('')}`).replace('server:\n', `server:\n${server}`)
  const gw = await gateway(t, text, options)
  return {
    async say (style, stream, turns, script, model = 'gemini') {
      answer = script
      const { path, asking } = clientStyles[style]
      const got = await ask(gw.url + path, { ...asking({ model, max_tokens: 2000, stream,
        messages: [{ role: 'user', content: 'Go.' }, ...turns] }), tools: tools[style],
      ...(style === 'responses' && { include: ['reasoning.encrypted_content'], store: false }) },
      { headers: { authorization: `Bearer ${KEY}` } })
      t.equal(got.status, 200, `a ${style} client: ${JSON.stringify(got.body ?? {}).slice(0, 300)}`)
      return got
    },
    sent: () => vendor.requests.at(-1)!.body!
  }
}

const answerIn = (body: Json): Json => list(body['messages']).find(({ role }) => role === 'assistant')!
const NEXT = answersWith.chat([], false)

const thoughtDetail = { type: 'reasoning.text', text: 'Hm.', signature: 'Eq+/', format: 'anthropic-claude-v1',
  index: 0 }
const hidden = { type: 'reasoning.encrypted', data: 'opaque+/=', id: 'call_1', format: 'google-gemini-v1', index: 1 }
const SECRETS = /opaque\+|Eq\+\/|sig\+/

const cases: Readonly<Record<string, Said>> = {
  'parallel calls, of which Gemini signs the first': { content: null,
    calls: [{ id: 'call_1', extra: signed('sig+1') }, { id: 'call_2' }] },
  'a text before signed calls': { content: 'I look.', calls: [{ id: 'call_1', extra: signed('sig+1') },
    { id: 'call_2', extra: signed('sig+2') }] },
  'a signed text': { content: 'Hi.', calls: [], extra: signed('sig+3') },
  'OpenRouter\'s details with a call': { content: null, calls: [{ id: 'call_1' }], details: [thoughtDetail, hidden] },
  'details with a text': { content: 'Hi.', calls: [], details: [thoughtDetail] }
}

for (const [where, options, server] of [
  ['on the loop', {}, ''],
  ['in threads', { largeBody: 1 }, ''],
  ['without the fast lanes', {}, '  fast_lane: off\n']
] as const) {
  t.test(`T7: signatures come back to their vendor unchanged (rule signatures), ${where}`, async (t) => {
    const world = await startWorld(t, options, server)
    for (const style of styles) {
      for (const stream of [true, false]) {
        for (const [name, said] of Object.entries(cases)) {
          const hasCalls = said.calls.length > 0
          const times = stream && hasCalls && where === 'on the loop' ? ['with', 'behind', 'end'] as const
            : ['with'] as const
          for (const time of times) {
            const about = `${name}; a ${style} client, ${stream ? `streamed, ${time}` : 'whole'}`
            const got = await world.say(style, stream, [], script(said, stream, time))
            const turns = clients[style](got)
            const shown = JSON.stringify(turns)
            if (style === 'chat') t.match(shown, SECRETS, about)
            else t.notMatch(shown, SECRETS, `${about}: sealed`)
            for (const model of ['gemini', 'family']) {
              await world.say(style, stream, turns, NEXT, model)
              t.strictSame(answerIn(world.sent()), messageOf(said), `${about}, back to ${model}`)
            }
            for (const model of ['other', 'strict', 'claude', 'openai']) {
              // A chat client has them open, so that nobody can tell whose they are.
              if (style === 'chat' && model === 'other') continue
              const dialect = model === 'claude' ? 'messages' : model === 'openai' ? 'responses' : 'chat'
              const next = answersWith[dialect]([], false)
              await world.say(style, false, turns, next, model)
              const sent = JSON.stringify(world.sent())
              t.notMatch(sent, SECRETS, `${about}, then ${model}`)
              t.notMatch(sent, /extra_content|reasoning_details|gwseal/, `${about}, then ${model}`)
            }
          }
        }
      }
    }
  })

  t.test(`T7: a call without a signature has Google's placeholder, ${where}`, async (t) => {
    const world = await startWorld(t, options, server)
    const plain: Said = { content: null, calls: [{ id: 'call_1' }, { id: 'call_2' }] }
    for (const style of styles) {
      const turns = clients[style](await world.say(style, false, [], script(plain, false), 'other'))
      await world.say(style, false, turns, NEXT, 'google')
      t.strictSame(answerIn(world.sent()), messageOf({ ...plain, calls: [{ id: 'call_1', extra: PLACEHOLDER },
        { id: 'call_2' }] }), `a ${style} client`)
      await world.say(style, false, turns, NEXT, 'gemini')
      t.strictSame(answerIn(world.sent()), messageOf(plain), 'not without the setting')
      const own: Said = { content: null, calls: [{ id: 'call_1', extra: signed('sig+1') }, { id: 'call_2' }] }
      const signedTurns = clients[style](await world.say(style, true, [], script(own, true), 'google'))
      await world.say(style, true, signedTurns, NEXT, 'google')
      t.strictSame(answerIn(world.sent()), messageOf(own), 'its own stay')
    }
  })
}

t.test('T7: details in pieces are one when they come back, and text by chance stays', async (t) => {
  const world = await startWorld(t)
  const pieces = [{ type: 'reasoning.text', text: 'H', index: 0, format: 'f' },
    { type: 'reasoning.text', text: 'm.', index: 0 }, { type: 'reasoning.text', signature: 'Eq+/', index: 0 }]
  for (const style of ['messages', 'responses'] as const) {
    const got = await world.say(style, true, [],
      script({ content: null, calls: [{ id: 'call_1' }], details: pieces }, true))
    await world.say(style, false, clients[style](got), NEXT)
    t.strictSame(answerIn(world.sent())['reasoning_details'],
      [{ type: 'reasoning.text', text: 'Hm.', index: 0, format: 'f', signature: 'Eq+/' }], style)
  }
  const anyText = fc.string({ minLength: 1, maxLength: 30 })
  const anyDetail = fc.record({ type: fc.constantFrom('reasoning.text', 'reasoning.summary', 'reasoning.encrypted'),
    text: anyText, signature: anyText }, { requiredKeys: ['type', 'text'] })
  const anySaid = fc.record({
    calls: fc.uniqueArray(fc.stringMatching(/^[a-z_.:]{1,60}$/), { minLength: 1, maxLength: 3 }),
    signatures: fc.array(fc.option(anyText)), details: fc.array(anyDetail, { minLength: 1, maxLength: 3 }),
    content: fc.option(fc.constantFrom('Hi.', 'I look.')), stream: fc.boolean(), style: fc.constantFrom(...styles) })
  await fc.assert(fc.asyncProperty(anySaid, async ({ calls, signatures, details, content, stream, style }) => {
    const said: Said = { content, details: details.map((detail, index) => ({ ...detail, index })),
      calls: calls.map((id, i) => ({ id,
        ...(typeof signatures[i] === 'string' && { extra: signed(signatures[i]) }) })) }
    const turns = clients[style](await world.say(style, stream, [], script(said, stream)))
    await world.say(style, stream, turns, NEXT)
    t.strictSame(answerIn(world.sent()), messageOf(said), style)
  }), { numRuns: RUNS })
})
