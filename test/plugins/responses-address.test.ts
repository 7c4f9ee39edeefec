// POST /v1/responses over real sockets: what its upstream gets, what the answer's head says, what it costs at most; the
// tokens of such a request; and a WebSocket, which its clients ask for first.
import { request } from 'node:http'
import t from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { answer, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const HEADERS = { 'content-type': 'application/json', authorization: `Bearer ${KEY}` }

const up = await upstream(t, answer('hi', { usage: { input_tokens: 0, cache_creation_input_tokens: 60 } }))
const gw = await gateway(t, yaml([up.url]))

function post (path: string, body: unknown): Promise<Response> {
  return fetch(gw.url + path, { method: 'POST', headers: HEADERS, body: JSON.stringify(body) })
}

t.test('C5: the answer repeats functions with all fields of the schema, in JSON and in a stream', async (t) => {
  const look = { type: 'function', name: 'look' }
  const full = { type: 'function', name: 'run', description: 'Runs.', parameters: { type: 'object' }, strict: true }
  const space = { type: 'namespace', name: 'ns', description: 'D', tools: [look] }
  const custom = { type: 'custom', name: 'patch' }
  const looks = { ...look, description: null, parameters: null, strict: null }
  const body = { model: 'm1', input: 'Hello', tools: [look, full, { ...full, name: 'walk', strict: false }, space, custom] }
  const expected = [looks, full, { ...full, name: 'walk', strict: false }, { ...space, tools: [looks] }, custom]
  const got = await post('/v1/responses', body)
  t.strictSame((await got.json() as Json)['tools'], expected)
  const stream = await post('/v1/responses', { ...body, stream: true })
  const last = /event: response.completed\ndata: (.+)/.exec(await stream.text())?.[1]
  t.strictSame((JSON.parse(last ?? '{}') as { response?: Json }).response?.['tools'], expected)
})

t.test('it is there without a line of gateway.yaml, and asks an upstream in messages style', async (t) => {
  const before = up.requests.length
  const got = await post('/v1/responses', { model: 'm1', input: 'Hello', instructions: 'Be brief', store: true,
    tools: [{ type: 'function', name: 'look' }, { type: 'web_search' }, { type: 'image_generation' }] })
  t.equal(got.status, 200)
  t.equal(got.headers.get('x-gateway-dropped-tools'), 'web_search, image_generation')
  t.match(await got.json(), { object: 'response', status: 'completed', store: false, model: 'm1' })
  t.strictSame(up.requests[before]!.body, {
    model: 'vendor-m1', max_tokens: 8192, system: [{ type: 'text', text: 'Be brief' }],
    messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }],
    tools: [{ name: 'look', input_schema: { type: 'object', properties: {} } }]
  })
  const plain = await post('/v1/responses', { model: 'm1', input: 'Hello' })
  t.equal(plain.headers.get('x-gateway-dropped-tools'), null)
})

t.test('a refusal has the shape of chat style', async (t) => {
  const got = await post('/v1/responses', { model: 'm1', input: [{ type: 'item_reference', id: 'msg_1' }] })
  t.equal(got.status, 400)
  t.match(await got.json(), { error: { type: 'invalid_request_error', code: 'item_not_found', param: 'input[0].id',
    charged_usd: '0', request_id: got.headers.get('x-request-id') } })
})

t.test('what is held covers a prompt that is written to the cache as a whole (rule auto-cache)', async (t) => {
  const body = { model: 'm1', input: 'x'.repeat(200), max_output_tokens: 5, prompt_cache_key: 'thread' }
  const told = await (await post('/v1/quote', { path: '/v1/responses', body })).json() as { max_cost_usd: string }
  const got = await post('/v1/responses', body)
  t.match(up.requests.at(-1)!.body, { cache_control: { type: 'ephemeral' } })
  t.equal(got.headers.get('x-gateway-cost-usd'), '0.0003', '60 tokens written at 3.75, 5 of output at 15')
  // Each byte may be a token, and each token the dearest.
  t.ok(Number(told.max_cost_usd) > 200 * 3.75 / 1e6 + 5 * 15 / 1e6, told.max_cost_usd)
})

t.test('later words of a developer: each upstream gets them as it takes them (rule system-turns)', async (t) => {
  const text = (said: string): Json => ({ type: 'text', text: said })
  const hello = { role: 'user', content: [text('Hello')] }
  const hi = { role: 'assistant', content: [text('Hi')] }
  const go = (...more: Json[]): Json => ({ role: 'user', content: [text('Go'), ...more] })
  const rows: readonly (readonly [dialect: string, hasFlag: boolean, field: string, sent: unknown])[] = [
    ['messages', false, 'messages', [hello, hi, go(text('<system-reminder>\nBe brief\n</system-reminder>'))]],
    ['messages', true, 'messages', [hello, hi, go(), { role: 'system', content: [text('Be brief')] }]],
    ['chat', false, 'messages', [{ role: 'system', content: 'Be brief' }, { role: 'user', content: 'Hello' },
      { role: 'assistant', content: 'Hi' }, { role: 'user', content: 'Go' }]],
    ['responses', false, 'input', [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hello' }] },
      { type: 'message', role: 'assistant', content: 'Hi' },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Go' }] },
      { type: 'message', role: 'developer', content: 'Be brief' }]]
  ]
  for (const [dialect, hasFlag, field, sent] of rows) {
    const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, keepBodyBytes: 1e5 })
    t.teardown(() => simulator.close())
    const own = await gateway(t, yaml([simulator.url]).replace('dialect: messages', `dialect: ${dialect}`)
      .replace('accepts: [', `mid_system: ${hasFlag}\n    accepts: [`))
    const got = await fetch(`${own.url}/v1/responses`, { method: 'POST', headers: HEADERS, body: JSON.stringify({
      model: 'm1', input: [{ role: 'user', content: 'Hello' }, { role: 'assistant', content: 'Hi' },
        { role: 'developer', content: 'Be brief' }, { role: 'user', content: 'Go' }] }) })
    t.equal(got.status, 200, dialect)
    t.strictSame((simulator.requests.at(-1)!.body as Json)[field], sent, `${dialect}, ${hasFlag}`)
  }
})

t.test('its tokens are counted like those of messages', async (t) => {
  const counted = async (path: string, body: Json): Promise<Json> => {
    const got = await post(path, body)
    t.equal(got.status, 200)
    t.equal(got.headers.get('x-gateway-count'), 'estimated')
    return await got.json() as Json
  }
  const system = 'Be brief'
  const { input_tokens: tokens } = await counted('/v1/messages/count_tokens', { model: 'm1', system,
    messages: [{ role: 'user', content: 'Hello there' }] })
  t.type(tokens, 'number')
  t.strictSame(await counted('/v1/responses/input_tokens', { model: 'm1', instructions: system, input: 'Hello there' }),
    { object: 'response.input_tokens', input_tokens: tokens })
  const wrong = await post('/v1/responses/input_tokens', { model: 'm1', input: 5 })
  t.match([wrong.status, await wrong.json()], [400, { error: { code: 'invalid_request', param: 'input' } }])
})

t.test('a WebSocket is answered 426, at which its clients go on with plain requests', async (t) => {
  const upgrade = (path: string): Promise<number | undefined> => new Promise((resolve, reject) => {
    request(gw.url + path, { headers: { ...HEADERS, connection: 'Upgrade', upgrade: 'websocket',
      'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==', 'sec-websocket-version': '13' } })
      .on('response', (res) => { res.resume(); resolve(res.statusCode) })
      .on('upgrade', () => { reject(new Error('upgraded')) })
      .on('error', reject).end()
  })
  t.equal(await upgrade('/v1/responses'), 426)
  t.equal(await upgrade('/v1/responses/'), 426)
  t.equal(await upgrade('/v1/responses/nowhere'), 400)
  t.equal(await upgrade('/v1/chat/completions'), 405)
  const got = await fetch(`${gw.url}/v1/responses`, { headers: HEADERS })
  t.strictSame([got.status, got.headers.get('allow')], [405, 'POST'], 'any other GET')
})
