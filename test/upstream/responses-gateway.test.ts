// An upstream of the Responses API behind the whole gateway: what clients of both styles get, what the ledger says, and
// what becomes of reasoning from turn to turn.
import t, { type Test } from 'tap'
import { startSimulator, type Simulator, type SimulatorOptions } from '../../src/simulator/simulator.ts'
import { ask, errorOf, textOf, type Got } from '../support/billing-client.ts'
import { fate } from '../support/client.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { json, upstream } from '../support/upstream.ts'

type Body = Readonly<Record<string, unknown>>

const PIPELINE = 'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'

/** `m1` is sold by the urls in turn, all of which speak the Responses API. */
function config (urls: readonly string[], more = ''): string {
  return yaml(urls, '', PIPELINE).replaceAll('dialect: messages', `dialect: responses${more}`)
    .replace('accepts: [text, image]', 'accepts: [text, image]\n    thinking: adaptive\n    structured_outputs: true')
}

async function vendor (t: Test, options: SimulatorOptions = {}): Promise<Simulator> {
  const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, keepBodyBytes: 1e6, ...options })
  t.teardown(() => simulator.close())
  return simulator
}

async function world (
  t: Test, more = '', isForgetful = true
): Promise<{ readonly gw: TestGateway, readonly simulator: Simulator }> {
  const simulator = await vendor(t)
  return { simulator, gw: await gateway(t, config([simulator.url], more), { isForgetful }) }
}

const weather = { name: 'weather', input_schema: { type: 'object', properties: { city: { type: 'string' } } } }
const clock = { name: 'clock', input_schema: { type: 'object', properties: { zone: { type: 'string' } } } }

function messages (gw: TestGateway, content: unknown, more: Body = {}): Promise<Got> {
  return ask(`${gw.url}/v1/messages`, { model: 'm1', max_tokens: 900, messages: [{ role: 'user', content }], ...more },
    { headers: { 'x-api-key': KEY } })
}

function chat (gw: TestGateway, content: unknown, more: Body = {}): Promise<Got> {
  return ask(`${gw.url}/v1/chat/completions`, { model: 'm1', max_tokens: 900, messages: [{ role: 'user', content }],
    ...more }, { headers: { authorization: `Bearer ${KEY}` } })
}

/** The blocks of a message, whole or of a stream. */
function blocksOf ({ body, events }: Got): readonly Body[] {
  if (body !== undefined) return body['content'] as readonly Body[]
  const blocks: Record<string, unknown>[] = []
  for (const { event, data } of events) {
    if (event === 'content_block_start') blocks.push({ ...data['content_block'] as Body, json: '' })
    if (event !== 'content_block_delta') continue
    const block = blocks.at(-1)!
    const { type: _, partial_json: json, ...delta } = data['delta'] as Readonly<Record<string, string>>
    if (json !== undefined) block['json'] = String(block['json']) + json
    for (const [name, piece] of Object.entries(delta)) block[name] = String(block[name] ?? '') + piece
  }
  return blocks.map(({ json, ...block }) =>
    block['type'] === 'tool_use' ? { ...block, input: JSON.parse(String(json) || '{}') as unknown } : block)
}

const lastBody = (simulator: Simulator): Body => simulator.requests.at(-1)!.body as Body

for (const stream of [false, true]) {
  const form = stream ? 'stream' : 'JSON'

  t.test(`${form}: text, images, a schema, and what it costs to the token`, async (t) => {
    const { gw, simulator } = await world(t)
    const charged = async (got: Got): Promise<unknown> => {
      const { entries, charged, openHolds } = await fate(gw, String(got.headers['x-request-id']))
      const usage = simulator.requests.at(-1)!.usage as unknown as { readonly input_tokens: number,
        readonly output_tokens: number, readonly input_tokens_details: Readonly<Record<string, number>> } | undefined
      const { cached_tokens: read, cache_write_tokens: written } = usage!.input_tokens_details
      const input = usage!.input_tokens - read! - written!
      t.match(entries, [{ usage_source: 'provider', usage: { input, cache_read: read, cache_write_5m: written,
        output: usage!.output_tokens } }])
      t.equal(charged, BigInt(input) * 3000n + BigInt(read!) * 300n + BigInt(written!) * 3750n +
        BigInt(usage!.output_tokens) * 15_000n)
      return openHolds
    }
    const first = await messages(gw, 'Hello', { stream, system: 'Be brief' })
    t.match(blocksOf(first), [{ type: 'text', text: /^You said: “Hello”/ }])
    t.equal(await charged(first), 0)
    t.match(lastBody(simulator), { instructions: 'Be brief', store: false, model: 'vendor-m1' })
    t.notMatch(JSON.stringify(simulator.requests.at(-1)!.headers), /sk-gw/)
    const again = await messages(gw, 'Hello', { stream, system: 'Be brief', messages: [{ role: 'user',
      content: 'Hello' }, { role: 'assistant', content: 'Hi' }, { role: 'user', content: '[[sim: tokens=5]] More' }] })
    t.equal(await charged(again), 0)
    t.ok((simulator.requests.at(-1)!.usage!['input_tokens_details'] as Body)['cached_tokens'] as number > 0,
      'the vendor knows the conversation again')

    const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
    const shown = await messages(gw, [{ type: 'text', text: 'Look' }, { type: 'image',
      source: { type: 'base64', media_type: 'image/png', data: png.repeat(2000) } }], { stream })
    t.match(blocksOf(shown), [{ text: /I see 1 image/ }])
    t.ok(simulator.requests.at(-1)!.body_bytes > 100_000, 'all of its bytes')
    const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'],
      additionalProperties: false }
    const shaped = await messages(gw, 'In Oslo', { stream, output_config: { format: { type: 'json_schema', schema } } })
    t.strictSame(JSON.parse(blocksOf(shaped)[0]!['text'] as string), { city: 'Oslo' })
    t.equal(await charged(shaped), 0)
    const { body, events } = await chat(gw, 'In Oslo', { stream, response_format: { type: 'json_schema',
      json_schema: { name: 'city', schema, strict: true } } })
    type Choices = readonly { readonly delta?: { readonly content?: string },
      readonly message?: { readonly content: string } }[]
    const said = [...events.map(({ data }) => data), ...body === undefined ? [] : [body]].map(({ choices }) => {
      const [choice] = choices as Choices ?? []
      return choice?.delta?.content ?? choice?.message?.content ?? ''
    })
    t.strictSame(JSON.parse(said.join('')), { city: 'Oslo' })
  })

  t.test(`${form}: a loop of tools keeps its reasoning, although nothing is stored`, async (t) => {
    const { gw, simulator } = await world(t)
    const asking = { stream, tools: [weather, clock], output_config: { effort: 'high' },
      thinking: { type: 'adaptive' } }
    const question = { role: 'user', content: '[[sim: tool_calls=2 summary_parts]] The weather in Oslo?' }
    const first = await messages(gw, '', { ...asking, messages: [question] })
    const content = blocksOf(first)
    t.match(content, [{ type: 'thinking', thinking: /^The user says[^]*\n\n/, signature: /^gwseal/ }, { type: 'text' },
      { type: 'tool_use', name: 'weather', input: { city: 'Oslo' } }, { type: 'tool_use', name: 'clock' }])
    t.match(lastBody(simulator), { reasoning: { effort: 'high', summary: 'auto' },
      include: ['reasoning.encrypted_content'] })
    const results = content.filter(({ type }) => type === 'tool_use').map(({ id }, i) =>
      ({ type: 'tool_result', tool_use_id: id, content: `result ${i}` }))
    const next = (more: Body = {}): Promise<Got> => messages(gw, '', { ...asking,
      messages: [question, { role: 'assistant', content }, { role: 'user', content: results }], ...more })
    t.match(blocksOf(await next()), [{ type: 'thinking' }, { type: 'text', text: /“result 0”.*“result 1”/ }])
    t.match(lastBody(simulator)['input'], [{ role: 'user' }, { type: 'reasoning', id: /^rs_/, summary: [],
      encrypted_content: /^gAAAAAB/ }, { type: 'message' }, { type: 'function_call' }, { type: 'function_call' },
    { type: 'function_call_output' }, { type: 'function_call_output' }])

    for (const directive of ['refuse_encrypted', 'refuse_encrypted code_null']) {
      const before = simulator.requests.length
      const got = await messages(gw, '', { ...asking, messages: [question, { role: 'assistant', content },
        { role: 'user', content: [...results, { type: 'text', text: `[[sim: ${directive}]] And?` }] }] })
      t.match(blocksOf(got).at(-1), { text: /result 1/ }, directive)
      const [refused, taken, ...none] = simulator.requests.slice(before).map(({ body, status }) =>
        [status, (body as { input: Body[] }).input.some(({ type }) => type === 'reasoning')])
      t.strictSame([refused, taken, none], [[400, true], [200, false], []], `${directive}: asked once more, without`)
      const { entries, openHolds } = await fate(gw, String(got.headers['x-request-id']))
      t.strictSame([entries.length, openHolds], [1, 0])
    }
    t.match(await (await fetch(`${gw.urls.admin}/metrics`)).text(), /_retries_total\{[^}]*reason="thoughts"[^}]*\} 2/)
  })

  t.test(`${form}: errors of the vendor`, async (t) => {
    const { gw, simulator } = await world(t, '', false)
    for (const [directive, status, code] of [
      ['context', 400, 'context_length_exceeded'],
      ['content_policy', 400, 'content_policy_violation'],
      ['status=429 retry_after=7', 503, 'model_overloaded'],
      ['status=401', 503, 'service_unavailable'],
      ['status=500', 502, 'server_error'],
      ['html', 502, 'server_error'],
      ['empty_body', 502, 'empty_response'],
      ['malformed', 502, 'server_error'],
      ['error_event_first', 503, 'model_overloaded'],
      ['failed_after=2 error_type=server_error', 502, 'server_error'],
      ['failed_after=2 error_type=server_is_overloaded', 503, 'model_overloaded'],
      ['failed_after=2 error_type=slow_down', 503, 'model_overloaded'],
      ['failed_after=2 error_type=rate_limit_exceeded', 503, 'model_overloaded'],
      ['failed_after=2 error_type=insufficient_quota', 503, 'service_unavailable'],
      ['failed_after=2 error_type=invalid_prompt', 400, 'invalid_request']
    ] as const) {
      for (const send of [messages, chat]) {
        gw.heal()
        const got = await send(gw, `[[sim: ${directive}]] x`, { stream })
        const error = got.body!['error'] as { code?: string, details?: { error_code: string }, charged_usd: string }
        t.strictSame([got.status, error.code ?? error.details!.error_code, error.charged_usd], [status, code, '0'],
          directive)
      }
    }
    t.equal(await gw.services.store.openHolds(), 0)
    t.ok(simulator.requests.every(({ failure }) => failure === undefined))
  })
}

t.test('a stream that breaks at any event: a whole answer or an error, and the ledger agrees', async (t) => {
  const { gw, simulator } = await world(t)
  const asking = { stream: true, tools: [weather, clock], thinking: { type: 'adaptive' } }
  const say = (directive: string): Promise<Got> =>
    messages(gw, `[[sim: tool_calls=2 ${directive}]] Oslo?`, asking)
  await say('')
  const events = simulator.requests[0]!.events_sent
  for (const fault of ['cut_after', 'end_after', 'cut_mid_event', 'error_event_after', 'failed_after', 'malformed']) {
    for (let at = 0; at < events; at++) {
      const got = await say(`${fault}=${at}`)
      const error = errorOf(got)
      const what = `${fault}=${at}`
      if (got.ended !== 'whole' || error === undefined || got.events.some(({ event }) => event === 'message_stop')) {
        t.fail(`${what}: neither an error nor whole`)
      }
      const { entries, charged, openHolds } = await fate(gw, String(got.headers['x-request-id']))
      if (openHolds !== 0 || entries.length > 1 || (entries.length === 0) !== (got.status !== 200)) t.fail(what)
      // Of what the client has in its hands, and nothing else: some four characters are estimated as a token.
      const { length } = textOf(got.events)
      const output = entries[0]?.usage?.output ?? 0
      if (charged !== BigInt(output) * 15_000n || output < length / 5 || output > length / 2) {
        t.fail(`${what}: ${output} tokens for ${length} characters, at ${charged}`)
      }
      if (Number(charged) !== Math.round(Number(error?.charged_usd) * 1e9)) t.fail(`${what}: ${error?.charged_usd}`)
    }
  }
  t.equal(simulator.requests.length, 1 + 6 * events)
})

t.test('stop sequences, which this API knows nothing of', async (t) => {
  const { gw } = await world(t)
  t.match(blocksOf(await messages(gw, 'Hello', { stop_sequences: ['simulator'] })), [{ text: /simulator/ }])
  const strict = await world(t, ', responses: { stop_sequences: refuse }')
  const { status, body } = await messages(strict.gw, 'Hello', { stop_sequences: ['simulator'] })
  t.match([status, body], [400, { error: { message: /^stop_sequences is something, which the provider/ } }])
  t.equal(strict.simulator.requests.length, 0)
})

t.test('a vendor that refuses thoughts whatever it is sent is asked twice, and no more', async (t) => {
  const up = await upstream(t, () => json({ error: { type: 'invalid_request_error',
    code: 'invalid_encrypted_content', message: 'The encrypted content could not be verified.' } }, 400))
  const gw = await gateway(t, config([up.url]), { isForgetful: true })
  const got = await messages(gw, 'Hello')
  t.equal(got.status, 400)
  t.equal(up.requests.length, 2)
  t.match(await fate(gw, String(got.headers['x-request-id'])), { entries: [], openHolds: 0 })
})
