// Upstreams that compress what they were asked to send as it is: their answers are read all the same, while they come,
// in bounded memory.
import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { brotliCompressSync, constants, createBrotliCompress, createDeflate, createDeflateRaw, createGzip,
  createZstdCompress, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import t from 'tap'
import { client, errorOf, fate, namesOf, said } from '../support/client.ts'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { answer, cut, eventBytes, json, message, raw, status, step, upstream,
  type Script } from '../support/upstream.ts'

const codings = {
  gzip: { header: 'gzip', whole: gzipSync, stream: createGzip },
  'gzip, as it was called once': { header: 'X-GZIP', whole: gzipSync, stream: createGzip },
  deflate: { header: 'deflate', whole: deflateSync, stream: createDeflate },
  'deflate without its head': { header: 'deflate', whole: deflateRawSync, stream: createDeflateRaw },
  br: { header: 'br', whole: brotliCompressSync, stream: createBrotliCompress },
  zstd: { header: 'zstd', whole: zstdCompressSync, stream: createZstdCompress }
} as const

type Name = keyof typeof codings

const JSON_HEAD = { 'content-type': 'application/json' } as const
const SSE_HEAD = { 'content-type': 'text/event-stream' } as const
const streaming = { ...messagesRequest, stream: true }

const START = eventBytes('message_start', { type: 'message_start',
  message: { id: 'msg_1', type: 'message', role: 'assistant', model: 'v', content: [], stop_reason: null,
    stop_sequence: null, usage: { input_tokens: 10, output_tokens: 1 } } })
const delta = (text: string): Buffer =>
  eventBytes('content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })
const BLOCK = eventBytes('content_block_start', { type: 'content_block_start', index: 0,
  content_block: { type: 'text', text: '' } })
const END = Buffer.concat([eventBytes('content_block_stop', { type: 'content_block_stop', index: 0 }),
  eventBytes('message_delta', { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage: { output_tokens: 5 } }), eventBytes('message_stop', { type: 'message_stop' })])

/** Pieces, each flushed on its own; what is a promise is waited for. */
function compressed (name: Name, pieces: readonly (Buffer | Promise<unknown>)[], isCut = false): Script {
  return step(async ({ response }) => {
    response.writeHead(200, { ...SSE_HEAD, 'content-encoding': codings[name].header })
    const encoder = codings[name].stream()
    encoder.on('data', (chunk: Buffer) => { response.write(chunk) })
    for (const piece of pieces) {
      if (piece instanceof Promise) { await piece; continue }
      encoder.write(piece)
      await new Promise<void>((resolve) => { encoder.flush(resolve) })
    }
    if (isCut) { await setImmediate(); response.destroy(); return }
    encoder.end()
    await once(encoder, 'end')
    response.end()
  })
}

for (const name of Object.keys(codings) as Name[]) {
  t.test(name, async (t) => {
    const { header, whole } = codings[name]
    const seen = Promise.withResolvers<void>()
    let script: Script = []
    const up = await upstream(t, () => script)
    const gw = await gateway(t, yaml([up.url], 'routes:\n  - { match: "POST /v1/echo", forward: u0, price: free }\n'))
    const { post } = client(t, gw)

    await t.test('a whole answer', async (t) => {
      script = [status(200, { ...JSON_HEAD, 'content-encoding': header }),
        raw(whole(JSON.stringify(message('Grüße ☃'))))]
      t.match(await post(messagesRequest).whole(), { status: 200, json: { content: [{ text: 'Grüße ☃' }] } })
      t.equal((await up.nextRequest()).headers['accept-encoding'], 'identity')
    })
    await t.test('a stream: each event comes when it was sent', async (t) => {
      script = compressed(name, [Buffer.concat([START, BLOCK]), delta('Grüße'), seen.promise, delta(' ☃'), END])
      const call = post(streaming)
      await call.sees('Grüße')
      seen.resolve()
      const got = await call.whole()
      t.equal(said(got.text), 'Grüße ☃')
      t.equal(namesOf(got.text),
        'message_start content_block_start content_block_delta content_block_delta content_block_stop message_delta message_stop')
      t.match(await fate(gw, got.id), { line: { code: 'ok' }, charged: 10n * 3000n + 5n * 15_000n, openHolds: 0 })
    })
    await t.test('a stream that breaks off: what came before is the client\'s', async (t) => {
      script = compressed(name, [Buffer.concat([START, BLOCK]), delta('Grüße'), delta(' aus')], true)
      const got = await post(streaming).whole()
      t.equal(errorOf(got).code, 'upstream_stream_interrupted')
      t.match(await fate(gw, got.id), { openHolds: 0 })
    })
    await t.test('an error, whose words count, for a model and on a forward route', async (t) => {
      const said = whole(
        JSON.stringify({ type: 'error', error: { type: 'invalid_request_error', message: 'the field is odd' } })
      )
      script = [status(400, { ...JSON_HEAD, 'content-encoding': header }), raw(said)]
      t.match(errorOf(await post(messagesRequest).whole()).message, /^the field is odd/)
      const response = await fetch(`${gw.url}/v1/echo`, { method: 'POST', headers: { 'x-api-key': KEY }, body: '{}' })
      t.equal(response.status, 400)
      t.match(await response.text(), /the field is odd/)
    })
    await t.test('what is cut short, or is none, is the upstream\'s failure', async (t) => {
      const bytes = whole(JSON.stringify(message('Hello')))
      for (const body of [bytes.subarray(0, bytes.length >> 1), Buffer.from('{"no":"such"}'), Buffer.from([0])]) {
        gw.heal()
        script = [status(200, { ...JSON_HEAD, 'content-encoding': header }), raw(body)]
        const got = await post(messagesRequest).whole()
        t.equal(got.status, 502)
        t.match(await fate(gw, got.id), { charged: 0n, openHolds: 0 })
      }
    })
  })
}

t.test('an answer of many layers, and one in a way that nobody knows', async (t) => {
  let script: Script = []
  const up = await upstream(t, () => script)
  const gw = await gateway(t, yaml([up.url]))
  const { post } = client(t, gw)
  script = [status(200, { ...JSON_HEAD, 'content-encoding': 'gzip, gzip' }), raw(gzipSync(gzipSync('{}')))]
  t.equal((await post(messagesRequest).whole()).status, 502)
  gw.heal()
  script = json(message('plain'), 200, { 'content-encoding': 'utf-8' })
  t.match(await post(messagesRequest).whole(), { status: 200, json: { content: [{ text: 'plain' }] } })
  script = json(message('plain'), 200, { 'content-encoding': 'identity' })
  t.equal((await post(messagesRequest).whole()).status, 200)
})

t.test('a bomb blows no memory: whole, as one event, as an error, and before a client that does not read', async (t) => {
  const SIZE = 400_000_000
  /** so many bytes when it is decoded */
  const bomb = async (head: string, letter: string): Promise<Buffer> => {
    const encoder = createGzip({ level: constants.Z_BEST_SPEED })
    const out: Buffer[] = []
    encoder.on('data', (chunk: Buffer) => { out.push(chunk) })
    encoder.write(head)
    const piece = Buffer.alloc(1_000_000, letter)
    for (let i = 0; i < SIZE / piece.length; i++) if (!encoder.write(piece)) await once(encoder, 'drain')
    encoder.end()
    await once(encoder, 'end')
    return Buffer.concat(out)
  }
  const gzip = { 'content-encoding': 'gzip' }
  const text = await bomb('{"type":"message","content":[{"type":"text","text":"', 'x')
  const event = await bomb('event: content_block_delta\ndata: {"a":"', 'x')
  t.ok(text.length < SIZE / 50, `${text.length} bytes`)
  const scripts: Readonly<Record<string, Script>> = {
    whole: [status(200, { ...JSON_HEAD, ...gzip }), raw(text)],
    'one event': [status(200, { ...SSE_HEAD, ...gzip }), raw(event)],
    'an error': [status(500, { ...JSON_HEAD, ...gzip }), raw(text)]
  }
  let script: Script = []
  const up = await upstream(t, () => script)
  const gw = await gateway(t, yaml([up.url]))
  const { post } = client(t, gw)
  const before = process.memoryUsage.rss()
  let peak = 0
  const watch = setInterval(() => { peak = Math.max(peak, process.memoryUsage.rss()) }, 5)
  t.teardown(() => { clearInterval(watch) })
  for (const [name, said] of Object.entries(scripts)) {
    gw.heal()
    script = said
    t.equal((await post({ ...messagesRequest, stream: name === 'one event' }).whole()).status, 502, name)
  }
  const many = new Array<Buffer>(200).fill(delta('x'.repeat(2_000_000)))
  script = compressed('gzip', [Buffer.concat([START, BLOCK]), ...many, END])
  const call = post(streaming)
  await call.stopReading()
  // "Takes no more" can only be seen by waiting: a wait that is too short lets a bad gateway pass, and never a good one
  // fail.
  for (let turn = 0; turn < 5000; turn++) await setImmediate()
  call.leave()
  t.equal(await up.requests.at(-1)!.closed, 'left')
  // A whole answer may have 64 MB, as bytes and as text; what was decoded of the rest would be more than all of that.
  t.ok(peak - before < SIZE, `${Math.round((peak - before) / 1e6)} MB more`)
})

t.test('an answer without a byte is empty_response, compressed or not, and the next target is asked', async (t) => {
  const heads = { whole: JSON_HEAD, stream: SSE_HEAD, gzip: { ...JSON_HEAD, 'content-encoding': 'gzip' },
    'a gzip of nothing': { ...SSE_HEAD, 'content-encoding': 'gzip' } } as const
  let head: keyof typeof heads = 'whole'
  const up = await upstream(t,
    () => [status(200, heads[head]), ...head === 'a gzip of nothing' ? [raw(gzipSync(''))] : []])
  const spare = await upstream(t, answer('from the spare'))
  const alone = await gateway(t, yaml([up.url]))
  const backed = await gateway(t, yaml([up.url, spare.url]))
  for (head of Object.keys(heads) as (keyof typeof heads)[]) {
    for (const stream of [false, true]) {
      for (const [path, style] of [['/v1/messages', 'messages'], ['/v1/chat/completions', 'chat']] as const) {
        alone.heal()
        backed.heal()
        const got = await client(t, alone, path).post({ ...messagesRequest, stream }).whole()
        t.equal(got.status, 502)
        t.equal(style === 'messages' ? errorOf(got).code : (got.json as { error: { code: string } }).error.code,
          'empty_response', `${head} ${path} ${stream}`)
        t.match(await fate(alone, got.id), { line: { code: 'empty_response' }, charged: 0n, openHolds: 0 })
        t.match((await client(t, backed, path).post({ ...messagesRequest, stream }).whole()).text, /from the spare/)
      }
    }
  }
  const target = alone.services.upstreams.health.targets(alone.live.current())[0]!
  t.ok(target.failed > 0, 'no model has made that: it counts against the target')
})

t.test('an answer that breaks off before a byte is no empty one', async (t) => {
  const up = await upstream(t, [status(200, JSON_HEAD), cut()])
  const gw = await gateway(t, yaml([up.url]))
  t.equal(errorOf(await client(t, gw).post(messagesRequest).whole()).code, 'server_error')
})
