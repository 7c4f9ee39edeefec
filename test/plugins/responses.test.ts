// POST /v1/responses over real sockets: what a client gets when all goes well and when it does not, and that it is
// charged as a messages client is. What is translated into what is in responses-to-messages.test.ts and
// responses-answer.test.ts.
import t, { type Test } from 'tap'
import { SseDecoder } from '../../src/core/sse.ts'
import { client, fate, type Call, type Received } from '../support/client.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { type ReadResponse, readResponse } from '../support/responses-reader.ts'
import { answer, blockDelta, blockStart, blockStop, cut, end, errorEvent, errorReply, json, messageEnd, messageStart,
  status, textDelta, upstream, wait, type Script } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const PIPELINE = 'auth, channel-router, billing-meter, error-normalize'
/** 20 + 5 × 0.1 at 3 dollars a million, and 7 at 15 */
const usage = { input_tokens: 20, cache_read_input_tokens: 5, output_tokens: 7 }
const COST = 20n * 3000n + 5n * 300n + 7n * 15_000n
const USAGE = { input_tokens: 25, input_tokens_details: { cached_tokens: 5, cache_write_tokens: 0 }, output_tokens: 7,
  output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 32 }

const head = { authorization: `Bearer ${KEY}`, 'x-api-key': '' }
const hello = { model: 'm1', instructions: 'Be brief.', input: 'Hello' }

async function serving (t: Test, script: Script, timeouts = 'hold_head: 10s', pipeline = PIPELINE): Promise<{
  readonly own: TestGateway, post (more?: Json): Call }> {
  const target = await upstream(t, script)
  const own = await gateway(t, yaml([target.url], '', pipeline).replace('hold_head: 10s', timeouts))
  const { post } = client(t, own, '/v1/responses')
  return { own, post: (more = {}) => post({ ...hello, ...more }, head) }
}

/** @throws whatever the strict reader finds */
function readStream ({ text }: Received): ReadResponse {
  return readResponse(new SseDecoder().push(Buffer.from(text)))
}

const opened: Script = [messageStart({ usage: { ...usage, output_tokens: 1 } }), blockStart(0), textDelta(0, 'Hel')]

t.test('a JSON answer, and its cost in the head', async (t) => {
  const { own, post } = await serving(t, answer('Hi!', { usage }))
  const got = await post().whole()
  t.equal(got.status, 200)
  const unique = got.id.slice('req_'.length)
  t.match(got.json, { id: `resp_${unique}`, object: 'response', status: 'completed', model: 'm1', error: null,
    instructions: 'Be brief.', tools: [], store: false, usage: { ...USAGE, cost: 0.0001665 },
    output: [{ id: `msg_${unique}_0`, type: 'message', role: 'assistant', status: 'completed',
      content: [{ type: 'output_text', text: 'Hi!', annotations: [], logprobs: [] }] }] })
  t.notOk('output_text' in (got.json as Json), 'which SDKs make themselves')
  t.equal(got.headers['x-gateway-cost-usd'], '0.0001665')
  t.match(await fate(own, got.id), { line: { outcome: 'completed', route: 'POST /v1/responses', model: 'm1' },
    charged: COST, openHolds: 0 })
})

t.test('a stream, and its cost in the usage of its last event', async (t) => {
  const { own, post } = await serving(t, answer('Hi!', { usage }))
  const got = await post({ stream: true }).whole()
  t.match(got.headers['content-type'], /^text\/event-stream/)
  const { response, items } = readStream(got)
  t.match(response, { id: `resp_${got.id.slice('req_'.length)}`, status: 'completed', model: 'm1',
    usage: { ...USAGE, cost: 0.0001665, charged_usd: '0.0001665' } })
  t.match(items, [{ content: [{ text: 'Hi!' }] }])
  t.notMatch(got.text, '[DONE]')
  t.match(await fate(own, got.id), { line: { outcome: 'completed' }, charged: COST, openHolds: 0 })
})

t.test('an error before the answer is plain HTTP, in the words of chat style', async (t) => {
  for (const stream of [false, true]) {
    for (const [script, code, expected] of [
      [errorReply(529, 'overloaded_error', 'Overloaded'), 503, 'model_overloaded'],
      [errorReply(400, 'invalid_request_error', 'prompt is too long: 300000 tokens'), 400, 'context_length_exceeded'],
      [errorReply(500, 'api_error', 'x'), 502, 'server_error']
    ] as const) {
      const { own, post } = await serving(t, script)
      const got = await post({ stream }).whole()
      t.equal(got.status, code)
      const { error } = got.json as { readonly error: Json }
      t.match(error, { code: expected, request_id: got.id, charged_usd: '0' })
      t.ok((error.message as string).endsWith(` Request ID: ${got.id}`))
      t.match(await fate(own, got.id), { line: { outcome: 'failed' }, charged: 0n, openHolds: 0 })
    }
  }
})

t.test('a cut in the stream: one failure that holds the half text, and only what was produced is charged', async (t) => {
  for (const [name, last, code] of [
    ['a broken connection', cut(), 'upstream_stream_interrupted'],
    ['an early end', end(), 'stream_incomplete'],
    ['an overload', errorEvent('overloaded_error', 'Overloaded'), 'rate_limit_exceeded'],
    ['a filter', errorEvent('invalid_request_error', 'Output blocked by content filtering policy'),
      'content_policy_violation'],
    ['a context that is full', errorEvent('invalid_request_error', 'prompt is too long'), 'context_length_exceeded'],
    ['another refusal', errorEvent('invalid_request_error', 'No'), 'upstream_stream_interrupted']
  ] as const) {
    await t.test(name, async (t) => {
      const { own, post } = await serving(t, [opened, last])
      const got = await post({ stream: true }).whole()
      t.ok(got.isWhole)
      const { response } = readStream(got)
      const { charged, line } = await fate(own, got.id)
      t.match(response, { status: 'failed', usage: null, error: { code, request_id: got.id },
        output: [{ type: 'message', status: 'incomplete', content: [{ text: 'Hel' }] }] })
      const { message: sentence, charged_usd: told } = response.error as Record<string, string>
      t.ok(sentence!.endsWith(` Request ID: ${got.id}`))
      t.equal(code === 'rate_limit_exceeded', / Please try again in 2s\. /.test(sentence!))
      t.equal(line.outcome, 'interrupted')
      t.ok(charged > 0n && charged < COST)
      t.equal(Number(told), Number(charged) / 1e9)
    })
  }
})

t.test('silence: before the answer what begins it, then keepalives, all in one count', async (t) => {
  const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const { post } = await serving(t,
    [wait(first.promise), opened, wait(second.promise), blockStop(0), messageEnd({ usage })], 'hold_head: 50ms, ping: 50ms')
  const call = post({ stream: true })
  await call.sees('event: keepalive')
  first.resolve()
  await call.sees('"delta":"Hel","logprobs":[]}\n\nevent: keepalive')
  second.resolve()
  const { response, types } = readStream(await call.whole())
  t.equal(response.status, 'completed')
  t.strictSame(types.filter((type) => type === 'response.created'), ['response.created'])
})

t.test('a failure behind the head, before there was an answer, is a whole stream too', async (t) => {
  const pinged = Promise.withResolvers<void>()
  const { own, post } = await serving(t, [wait(pinged.promise), status(529)], 'hold_head: 50ms')
  const call = post({ stream: true })
  await call.sees('response.in_progress')
  pinged.resolve()
  const got = await call.whole()
  const { response, types } = readStream(got)
  t.strictSame(types, ['response.created', 'response.in_progress', 'response.failed'])
  t.match(response, { output: [], error: { code: 'rate_limit_exceeded', request_id: got.id, charged_usd: '0' } })
  t.match(await fate(own, got.id), { line: { outcome: 'failed', code: 'model_overloaded' }, charged: 0n, openHolds: 0 })
})

t.test('the option, where the plugin is named', async (t) => {
  const named = 'auth, { use: responses-to-messages, with: { error_event_after_failed: true } }, channel-router, ' +
    'billing-meter, error-normalize'
  const { post } = await serving(t, [opened, cut()], undefined, named)
  const { types } = readStream(await post({ stream: true }).whole())
  t.strictSame(types.slice(-2), ['response.failed', 'error'])
})

t.test('thoughts come back to the upstream exactly as they left it, out of what only the gateway can read', async (t) => {
  const thought = { type: 'thinking', thinking: 'Hm.\n', signature: 'EqQB+/=' }
  const call = { type: 'tool_use', id: 'toolu_1', name: 'read', input: { path: 'a' } }
  const target = await upstream(t, ({ body }) => body!['stream'] === true
    ? [messageStart({ usage }), blockStart(0, { type: 'thinking', thinking: '', signature: '' }),
      blockDelta(0, { type: 'thinking_delta', thinking: 'Hm.\n' }),
      blockDelta(0, { type: 'signature_delta', signature: 'EqQB+/=' }), blockStop(0),
      blockStart(1, { ...call, input: {} }), blockDelta(1, { type: 'input_json_delta', partial_json: '{"path":"a"}' }),
      blockStop(1), messageEnd({ stop_reason: 'tool_use', usage })]
    : json({ id: 'msg_1', type: 'message', role: 'assistant', model: 'vendor-m1', content: [thought, call],
      stop_reason: 'tool_use', stop_sequence: null, usage }))
  const own = await gateway(t, yaml([target.url], '', PIPELINE).replace('accepts:', 'thinking: budget\n    accepts:'))
  const { post } = client(t, own, '/v1/responses')
  const tools = [{ type: 'function', name: 'read', parameters: null }]
  const asked = { ...hello, reasoning: { effort: 'high' }, tools, max_output_tokens: 20_000 }
  const outputs: (readonly Json[])[] = []
  for (const stream of [false, true]) {
    const got = await post({ ...asked, stream }, head).whole()
    await target.nextRequest()
    const output = stream ? readStream(got).items : (got.json as { readonly output: readonly Json[] }).output
    t.match(output, [{ type: 'reasoning', summary: [] }, { type: 'function_call', call_id: 'toolu_1', name: 'read',
      arguments: '{"path":"a"}' }])
    t.notMatch(output[0]!.encrypted_content, 'EqQB')
    outputs.push(output)
  }
  for (const output of outputs) {
    const input = [{ role: 'user', content: 'Hello' }, ...output,
      { type: 'function_call_output', call_id: 'toolu_1', output: 'text' }]
    await post({ ...asked, input }, head).whole()
    const { messages } = (await target.nextRequest()).body as { readonly messages: readonly { content: unknown }[] }
    t.strictSame(messages[1], { role: 'assistant', content: [thought, call] })
  }
})
