// POST /v1/chat/completions over real sockets: what a chat client gets when all goes well and when it does not, and
// that it is charged as a messages client is. What is translated into what is in chat-to-messages.test.ts, the SDKs are
// in sdk-openai.test.ts.
import t, { type Test } from 'tap'
import { client, fate, nextFate, type Call, type Received } from '../support/client.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import {
  answer,
  blockStart,
  blockStop,
  cut,
  end,
  errorEvent,
  errorReply,
  messageEnd,
  messageStart,
  ping,
  raw,
  stall,
  textDelta,
  upstream,
  wait,
  type Script
} from '../support/upstream.ts'

const PIPELINE = 'auth, chat-to-messages, channel-router, billing-meter, error-normalize'
/** 20 + 5 × 0.1 at 3 dollars a million, and 7 at 15 */
const usage = { input_tokens: 20, cache_read_input_tokens: 5, output_tokens: 7 }
const COST = 20n * 3000n + 5n * 300n + 7n * 15_000n
const CHAT_USAGE = { prompt_tokens: 25, completion_tokens: 7, total_tokens: 32,
  prompt_tokens_details: { cached_tokens: 5, cache_write_tokens: 0 } }
const hello = { model: 'm1',
  messages: [{ role: 'system' as const, content: 'Be brief.' }, { role: 'user' as const, content: 'Hello' }] }

const scripts = new Map<string, Script>()
const target = await upstream(t, ({ body }) => scripts.get((body!['metadata'] as { user_id: string }).user_id)!)
const own = await gateway(t, yaml([target.url], '', PIPELINE))
const agent = client(t, own, '/v1/chat/completions')

/** Tells the upstream what to do when it is asked by this user. */
function user (script: Script): string {
  const id = `user-${scripts.size}-x`
  scripts.set(id, script)
  return id
}

const head = { authorization: `Bearer ${KEY}`, 'x-api-key': '' }

function post (script: Script, more: Body = {}): Call {
  return agent.post({ ...hello, user: user(script), ...more }, head)
}

type Body = Readonly<Record<string, unknown>>
interface Chunk {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly object: string
  readonly choices: readonly { readonly index: number, readonly delta: Body, readonly finish_reason: string | null }[]
  readonly usage?: Body
  readonly error?: Body
}

/** Reads `data:` records and nothing else; the last one must be [DONE]. */
function chunksOf (t: Test, { text }: Received): Chunk[] {
  const records = text.split('\n\n')
  t.equal(records.pop(), '', 'the stream ends behind a record')
  t.equal(records.pop(), 'data: [DONE]')
  return records.filter((record) => record !== ': ping').map((record) => {
    t.match(record, /^data: \{.*\}$/)
    return JSON.parse(record.slice('data: '.length)) as Chunk
  })
}

/** As a client of that format reads it. */
function isError (t: Test, { error }: { readonly error?: unknown }, { id }: Received, expected: Body): void {
  t.match(error, { param: null, request_id: id, ...expected })
  t.ok((error as { message: string }).message.endsWith(` Request ID: ${id}`))
}

async function isCharged (t: Test, { id }: Received, nanos: bigint, outcome = 'completed'): Promise<void> {
  const { line, charged, entries, openHolds } = await fate(own, id)
  t.match(line, { outcome, route: 'POST /v1/chat/completions', model: 'm1' })
  t.equal(charged, nanos)
  t.equal(entries.length, nanos === 0n ? 0 : 1)
  t.equal(openHolds, 0)
}

t.test('a JSON answer', async (t) => {
  const got = await post(answer('Hi!', { usage }), { stop: 'END', service_tier: 'priority' }).whole()
  t.equal(got.status, 200)
  t.strictSame((await target.nextRequest()).body, {
    model: 'vendor-m1',
    max_tokens: 8192,
    system: [{ type: 'text', text: 'Be brief.' }],
    messages: [{ role: 'user', content: 'Hello' }],
    stop_sequences: ['END'],
    metadata: { user_id: 'user-0-x' }
  })
  t.strictSame({ ...got.json as Body, created: 0 }, {
    id: `chatcmpl-${got.id.slice(4)}`,
    object: 'chat.completion',
    created: 0,
    model: 'm1',
    system_fingerprint: null,
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hi!', refusal: null }, logprobs: null,
      finish_reason: 'stop' }],
    usage: { ...CHAT_USAGE, cost: 0.0001665 }
  })
  t.ok(Math.abs((got.json as { created: number }).created - Date.now() / 1000) < 60)
  t.equal(got.headers['x-gateway-cost-usd'], '0.0001665')
  await isCharged(t, got, COST)
})

t.test('a stream, however the upstream cuts its bytes', async (t) => {
  const parts: Buffer[] = []
  for (const event of [
    'message_start {"message":{"type":"message","model":"vendor-m1","content":[],"usage":{"input_tokens":20,"cache_read_input_tokens":5}}}',
    'content_block_start {"index":0,"content_block":{"type":"text","text":""}}',
    'content_block_delta {"index":0,"delta":{"type":"text_delta","text":"Grüße 🌍"}}',
    'content_block_stop {"index":0}',
    'message_delta {"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}',
    'message_stop {}'
  ]) {
    const [name, data] = event.split(/ (.*)/s) as [string, string]
    parts.push(
      Buffer.from(
        `event: ${name}\r\ndata: ${data.replace('{', `{"type":"${name}"${data === '{}' ? '' : ','}`)}\r\n\r\n`
      )
    )
  }
  const wire = Buffer.concat(parts)
  const got = await post([...wire].map((byte) => raw(Buffer.from([byte]))), { stream: true,
    stream_options: { include_usage: true } }).whole()
  t.match(got.headers['content-type'], /^text\/event-stream/)
  const chunks = chunksOf(t, got)
  t.strictSame(
    chunks.map(({ choices, usage }) => usage ?? { delta: choices[0]!.delta, finish: choices[0]!.finish_reason }),
    [
      { delta: { role: 'assistant', content: '' }, finish: null },
      { delta: { content: 'Grüße 🌍' }, finish: null },
      { delta: {}, finish: 'stop' },
      { ...CHAT_USAGE, cost: 0.0001665, charged_usd: '0.0001665' }
    ]
  )
  for (const { id, object, model, created } of chunks) {
    t.strictSame(
      [id, object, model, created], [`chatcmpl-${got.id.slice(4)}`, 'chat.completion.chunk', 'm1', chunks[0]!.created]
    )
  }
  t.strictSame(chunks.at(-1)!.choices, [])
  await isCharged(t, got, COST)
})

t.test('a chunk is there while the upstream still thinks of the next', async (t) => {
  const seen = Promise.withResolvers<void>()
  const call = post(
    [
      messageStart({ usage }), blockStart(0), textDelta(0, 'Hel'), wait(seen.promise), textDelta(0, 'lo'), blockStop(0),
      messageEnd({ usage })
    ],
    { stream: true }
  )
  await call.sees('"content":"Hel"')
  seen.resolve()
  t.equal(chunksOf(t, await call.whole()).map(({ choices }) => choices[0]!.delta['content'] ?? '').join(''), 'Hello')
})

t.test('it costs what the same answer costs in messages style', async (t) => {
  const script = answer('Hi!', { usage })
  for (const stream of [false, true]) {
    const chat = await post(script, { stream }).whole()
    const messages = await client(t, own).post({
      model: 'm1',
      max_tokens: 100,
      messages: hello.messages.slice(1),
      metadata: { user_id: user(script) },
      stream
    }).whole()
    const fates = await Promise.all([fate(own, chat.id), fate(own, messages.id)])
    const [one, other] = fates.map(({ entries: [entry] }) => ({ ...entry, id: '', reference: '', at: 0 }))
    t.strictSame(one, other)
    t.match(one, { kind: 'settle', nanos: -COST })
  }
})

t.test('an error before the answer is plain HTTP in chat format', async (t) => {
  for (const stream of [false, true]) {
    for (const [script, status, expected] of [
      [errorReply(529, 'overloaded_error', 'Overloaded'), 503, { code: 'model_overloaded', type: 'overloaded_error',
        charged_usd: '0' }],
      [errorReply(400, 'invalid_request_error', 'prompt is too long: 300000 tokens'), 400, {
        code: 'context_length_exceeded',
        type: 'invalid_request_error'
      }],
      [stream ? errorEvent('api_error', 'x') : errorReply(500, 'api_error', 'x'), 502, { code: 'server_error',
        type: 'api_error' }]
    ] as const) {
      const got = await post(script, { stream }).whole()
      t.equal(got.status, status)
      t.equal(got.headers['content-type'], 'application/json')
      isError(t, got.json as Body, got, expected)
      await isCharged(t, got, 0n, 'failed')
    }
  }
})

t.test('what can\'t be translated is refused with its path, and nobody is asked', async (t) => {
  const before = target.requests.length
  const got = await post(answer('Hi!'), {
    messages: [...hello.messages, { role: 'assistant',
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: 'nonsense' } }] }]
  }).whole()
  t.equal(got.status, 400)
  isError(t, got.json as Body, got, { code: 'invalid_request', param: 'messages[2].tool_calls[0].id',
    charged_usd: '0' })
  t.equal(target.requests.length, before)
})

t.test('a cut in the stream: the error, then [DONE], and only what was produced is charged', async (t) => {
  const opened: Script = [messageStart({ usage: { ...usage, output_tokens: 1 } }), blockStart(0), textDelta(0, 'Hel')]
  for (const [name, script, code] of [
    ['a broken connection', [opened, cut()], 'upstream_stream_interrupted'],
    ['an early end', [opened, end()], 'stream_incomplete'],
    ['an error event', [opened, errorEvent('overloaded_error', 'Overloaded')], 'upstream_stream_interrupted']
  ] as const) {
    await t.test(name, async (t) => {
      const got = await post(script, { stream: true, stream_options: { include_usage: true } }).whole()
      t.equal(got.status, 200)
      const chunks = chunksOf(t, got)
      t.strictSame(chunks.slice(0, -1).map(({ choices }) => choices[0]), [
        { index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null },
        { index: 0, delta: { content: 'Hel' }, finish_reason: null }
      ], 'no reason to end, no usage')
      isError(t, chunks.at(-1)!, got, { code })
      const { charged } = await fate(own, got.id)
      t.ok(charged > 0n && charged < COST, `${charged} nano-dollars, for output alone`)
      t.equal(charged % 15_000n, 0n)
      await isCharged(t, got, charged, 'interrupted')
    })
  }
})

t.test('the first target fails before its first word: the client sees one stream, of the second', async (t) => {
  const first = await upstream(t, [messageStart({ id: 'msg_first' }), ping(), blockStart(0), cut()])
  const second = await upstream(t, answer('from the second', { usage }))
  const two = await gateway(t, yaml([first.url, second.url], '', PIPELINE))
  const chunks = chunksOf(t,
    await client(t, two, '/v1/chat/completions').post({ ...hello, stream: true }, head).whole())
  t.equal(first.requests.length, 1)
  t.strictSame(chunks.map(({ choices }) => choices[0]!.delta), [{ role: 'assistant', content: '' }, {
    content: 'from the second'
  }, {}])
})

t.test('a client that leaves is noticed by the upstream, and pays for what it read', async (t) => {
  const its = nextFate(own)
  const call = post(
    [messageStart({ usage: { ...usage, output_tokens: 1 } }), blockStart(0), textDelta(0, 'Hello there'), stall()],
    { stream: true }
  )
  await call.sees('Hello there')
  call.leave()
  t.equal(await target.requests.at(-1)!.closed, 'left')
  const { line, charged, openHolds } = await its()
  t.match(line, { outcome: 'interrupted', by: 'client' })
  const input = 20n * 3000n + 5n * 300n
  t.ok(charged > input && (charged - input) % 15_000n === 0n, `${charged} nano-dollars`)
  t.equal(openHolds, 0)
})

t.test('silence is filled with comments', async (t) => {
  const pinged = Promise.withResolvers<void>()
  const silent = await upstream(
    t,
    [
      messageStart({ usage }), blockStart(0), textDelta(0, 'a'), wait(pinged.promise), blockStop(0),
      messageEnd({ usage })
    ]
  )
  const eager = await gateway(t,
    yaml([silent.url], '', PIPELINE).replace('hold_head: 10s', 'hold_head: 10s, ping: 50ms'))
  const call = client(t, eager, '/v1/chat/completions').post({ ...hello, stream: true }, head)
  await call.sees('data: {')
  await call.sees('\n\n: ping\n\n')
  pinged.resolve()
  chunksOf(t, await call.whole())
})
