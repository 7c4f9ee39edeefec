// What never reaches the pipeline, on raw sockets: parser errors, slow and huge heads, refused upgrades, bodies that
// are refused while they are sent. Each gets an answer with a request id, and no other connection notices.
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, json, message, upstream, wait } from '../support/upstream.ts'

interface RawAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

function open (t: Test, url: string): Socket {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {})
  t.teardown(() => socket.destroy())
  return socket
}

/** Everything until the server closes, also where it resets the connection because more comes after that. */
async function readAll (socket: Socket): Promise<string> {
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => { chunks.push(chunk) })
  await new Promise((resolve) => { socket.once('close', resolve) })
  return Buffer.concat(chunks).toString('utf8')
}

function parse (text: string): RawAnswer {
  const [head, ...rest] = text.split('\r\n\r\n')
  const [line, ...fields] = head!.split('\r\n')
  return {
    status: Number(line!.split(' ')[1]),
    headers: Object.fromEntries(fields.map((field) => [
      field.slice(0, field.indexOf(':')).toLowerCase(),
      field.slice(field.indexOf(':') + 1).trim()
    ])),
    body: rest.join('\r\n\r\n')
  }
}

async function send (t: Test, url: string, bytes: string | Buffer): Promise<RawAnswer> {
  const socket = open(t, url)
  const all = readAll(socket)
  socket.write(bytes)
  return parse(await all)
}

/** The id in three places, the code, and the type. */
function isShaped (t: Test, { headers, body }: RawAnswer, code: string): void {
  const id = headers['x-request-id']!
  t.match(id, /^req_[0-9A-Za-z]{24}$/)
  t.equal(headers['request-id'], id)
  const { error } = JSON.parse(body) as {
    error: { code: string, message: string, request_id: string, charged_usd: string }
  }
  t.equal(error.code, code)
  t.equal(error.request_id, id)
  t.ok(error.message.endsWith(` Request ID: ${id}`), error.message)
  t.equal(error.charged_usd, '0')
}

function head (headers: Readonly<Record<string, string | number>>, path = '/v1/messages', method = 'POST'): string {
  const all = { host: 'gateway', 'x-api-key': KEY, 'content-type': 'application/json', ...headers }
  return `${method} ${path} HTTP/1.1\r\n${Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`
}

const close = { connection: 'close' }

t.test('what the parser can not read', async (t) => {
  const { url, urls } = await gateway(t,
    yaml([await upstream(t, answer('hi')).then(({ url }) => url)]).replace('hold_head: 10s', 'headers: 1s'))

  await t.test('garbage is 400 bad_request', async (t) => {
    const got = await send(t, url, 'GARBAGE\r\n\r\n')
    t.equal(got.status, 400)
    isShaped(t, got, 'bad_request')
  })
  await t.test('what the parser says is in the sentence, and nothing of the bytes', async (t) => {
    for (const [bytes, words] of [
      ['GET / HTTP/1.1\r\nhost: x\r\nsk-secret\r\n\r\n', /not valid HTTP \(Invalid header token\)/],
      ['POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n',
        /not valid HTTP \(.*Transfer-Encoding.*\)/]
    ] as const) {
      const got = await send(t, url, bytes)
      t.equal(got.status, 400)
      isShaped(t, got, 'bad_request')
      t.match(got.body, words)
      t.notMatch(got.body, /sk-secret|JSON/)
    }
  })
  await t.test('a head of 1000 headers is accepted, one more is 431, and the sentence is true', async (t) => {
    const lines = (count: number): string => `GET /v1/models HTTP/1.1\r\n${'a:\r\n'.repeat(count - 3)}host: x\r\nx-api-key: ${KEY}\r\nconnection: close\r\n\r\n`
    t.equal((await send(t, url, lines(1000))).status, 200)
    const got = await send(t, url, lines(1001))
    t.equal(got.status, 431)
    isShaped(t, got, 'bad_request')
    t.match(got.body, /larger than 64 KiB, or more than 1000\./)
  })
  await t.test('an expectation that nobody knows is 417, on every listener, and no body is asked for', async (t) => {
    await Promise.all([[url, '/v1/messages'], [urls.public, '/api/public/models-info'], [urls.admin, '/healthz']].flatMap(([listener, path]) => [
      '200-ok',
      '100-continue, tea',
      'x=100-continue'
    ].map(async (expect) => {
      const got = await send(t, listener!, head({ expect, 'content-length': 5, ...close }, path))
      t.equal(got.status, 417, `${path} ${expect}`)
      t.match(got.body, /bad_request/)
    })))
    t.equal((await send(t, url, head({ expect: '', ...close }, '/v1/models', 'GET'))).status, 200)
  })
  await t.test('a head over 64 KiB is 431', async (t) => {
    const got = await send(t, url, head({ 'x-large': 'x'.repeat(70_000) }))
    t.equal(got.status, 431)
    isShaped(t, got, 'bad_request')
  })
  await t.test('a head of 60 KiB is accepted', async (t) => {
    t.equal((await send(t, url, head({ 'x-large': 'x'.repeat(60_000), ...close }, '/v1/models', 'GET'))).status, 200)
  })
  await t.test('a head that never ends is 408', async (t) => {
    const got = await send(t, url, 'POST /v1/messages HTTP/1.1\r\nhost: gateway\r\n')
    t.equal(got.status, 408)
    isShaped(t, got, 'bad_request')
  })
  await t.test('HTTP/1.1 without Host is 400', async (t) => {
    const got = await send(t, url, 'GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n')
    t.equal(got.status, 400)
    isShaped(t, got, 'bad_request')
  })
  await t.test('CONNECT is 405', async (t) => {
    const got = await send(t, url, 'CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n')
    t.equal(got.status, 405)
    isShaped(t, got, 'bad_request')
  })
  await t.test('a WebSocket upgrade is refused: 404 where nothing is, 400 where something else is', async (t) => {
    const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
      'sec-websocket-version': '13' }
    const nowhere = await send(t, url, head(upgrade, '/v1/realtime', 'GET'))
    t.equal(nowhere.status, 404)
    isShaped(t, nowhere, 'not_found')
    const elsewhere = await send(t, url, head(upgrade, '/v1/models', 'GET'))
    t.equal(elsewhere.status, 400)
    isShaped(t, elsewhere, 'invalid_request')
  })
  await t.test('what has a body is no upgrade to a WebSocket, and is answered as any request', async (t) => {
    const body = JSON.stringify(messagesRequest)
    const upgrade = { connection: 'Upgrade, close', upgrade: 'websocket',
      'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==', 'sec-websocket-version': '13' }
    for (const [listener, path, status] of [[url, '/v1/messages', 200], [url, '/v1/realtime', 404], [urls.public, '/',
      404], [urls.admin, '/v1', 404]] as const) {
      t.equal((await send(t, listener, head({ ...upgrade, 'content-length': body.length }, path) + body)).status,
        status, path)
      t.equal(
        (await send(t, listener, head({ ...upgrade, 'transfer-encoding': 'chunked' }, path) +
          `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`)).status,
        status,
        `${path}, chunked`
      )
    }
  })
  await t.test('an upgrade to h2c, as curl --http2 asks for, is ignored', async (t) => {
    const got = await send(t, url,
      head({ connection: 'Upgrade, HTTP2-Settings, close', upgrade: 'h2c', 'http2-settings': 'AAMAAABkAAQAAP__' },
        '/v1/models', 'GET'))
    t.equal(got.status, 200)
  })
  await t.test('unknown addresses are 404 before any key is asked for, in the style of the path', async (t) => {
    const chat = await send(t, url, 'GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
    t.equal(chat.status, 404)
    isShaped(t, chat, 'not_found')
    const messages = await send(t, url,
      'POST /v1/messages/nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n')
    t.equal(messages.status, 404)
    const body = JSON.parse(messages.body) as { type: string, error: { type: string, details: unknown },
      request_id: string }
    t.equal(body.type, 'error')
    t.equal(body.error.type, 'not_found_error')
    t.equal(body.request_id, messages.headers['x-request-id'])
  })
  await t.test('a wrong base URL is told from the path', async (t) => {
    for (const [path, hint] of [
      ['/v1/v1/messages', /without \/v1/],
      ['/messages', /with \/v1/],
      ['/chat/completions', /with \/v1/],
      ['/v1/v1/chat/completions', /one \/v1 too many/],
      ['/openai/responses', /Use POST \/v1\/responses/],
      [`/${'x'.repeat(500)}`, /at POST \/\*\*\*\. .*under \/v1/],
      [`/${'x/'.repeat(500)}`, /(?:\/x){40}.*….*under \/v1/]
    ] as const) {
      const got = await send(t, url,
        `POST ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`)
      const body = JSON.parse(got.body) as { type?: string, error: { message: string } }
      t.strictSame([got.status, body.type], [404, undefined])
      t.match(body.error.message, hint)
    }
  })
  await t.test('only /v1/messages and what is below it has the messages format', async (t) => {
    const paths: Readonly<Record<'messages' | 'chat', readonly string[]>> = {
      messages: ['/v1/messages', '/v1/messages/', '/v1/messages?beta=true', '/v1/messages/batches/abc',
        'http://gateway.example/v1/messages/abc?x=/v1/models'],
      chat: ['/v2/messages', '/v1/threads/abc/messages', '/v1/v1/messages', '/messages', '/v1/messagesx',
        '//v1/messages', '/V1/messages', '/v1/models?x=/v1/messages', '/?/v1/messages',
        'http://gateway.example/v2/messages', 'http://v1/messages']
    }
    for (const [style, all] of Object.entries(paths)) {
      for (const path of all) {
        // Nothing is there, or nothing that takes this method.
        const got = await send(t, url, `DELETE ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`)
        t.match(String(got.status), /^40[45]$/, path)
        t.equal((JSON.parse(got.body) as { type?: string }).type, style === 'messages' ? 'error' : undefined, path)
      }
    }
  })
  await t.test('the absolute form of an address is that address', async (t) => {
    const got = await send(t, url, head(close, 'http://gateway.example/v1/models?limit=1', 'GET'))
    t.equal(got.status, 200)
  })
  await t.test('C9: at an address of another vendor the error names the APIs that are spoken here', async (t) => {
    const bytes = JSON.stringify({ contents: [{ parts: [{ text: 'Hi' }] }] })
    for (const [path, vendor] of [
      ['/v1beta/models/gemini-2.5-pro:generateContent', 'Gemini'],
      ['/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse', 'Gemini'],
      ['/v1alpha/models/gemini-2.5-pro:countTokens', 'Gemini'],
      ['/v1/models/gemini-2.5-pro:generateContent', 'Gemini'],
      ['/models/gemini-2.5-pro:generateContent', 'Gemini'],
      ['/upload/v1beta/files', 'Gemini'],
      ['/v1/projects/p/locations/us/publishers/anthropic/models/claude:streamRawPredict', 'Vertex AI'],
      ['/v1beta1/projects/p/locations/us/publishers/google/models/gemini:generateContent', 'Vertex AI'],
      ['/model/anthropic.claude/invoke-with-response-stream', 'Bedrock'],
      ['/api/chat', 'Ollama']
    ] as const) {
      const got = await send(t, url, head({ 'content-length': bytes.length, connection: 'close' }, path) + bytes)
      t.equal(got.status, 404, path)
      isShaped(t, got, 'not_found')
      t.ok(got.body.includes(`does not speak the API of ${vendor}. It speaks Anthropic's (POST /v1/messages)`), got.body)
    }
    const compatible = await send(t, url,
      head({ 'content-length': 2, connection: 'close' }, '/v1beta/openai/chat/completions') + '{}')
    t.match(compatible.body, /Use POST \/v1\/chat\/completions/)
    const wrong = await send(t, url, head({ 'content-length': 2, connection: 'close' }, '/v1/models/llama:free') + '{}')
    t.equal(wrong.status, 405)
  })

  await t.test('a wrong method is 405 with Allow', async (t) => {
    const got = await send(t, url, head({ ...close, 'content-length': 0 }, '/v1/messages', 'PUT'))
    t.equal(got.status, 405)
    t.equal(got.headers['allow'], 'POST')
  })
})

t.test('bodies are limited while they are read', async (t) => {
  const up = await upstream(t, answer('hi'))
  const { url } = await gateway(t,
    yaml([up.url]).replace('drain_timeout: 5s', 'drain_timeout: 5s\n  body_limit: 1MB\n  body_memory: 3MB').replace(
      'hold_head: 10s',
      'body_idle: 5s'
    ))
  const body = JSON.stringify(messagesRequest)

  await t.test('a large Content-Length is 413 at once, before the body is sent', async (t) => {
    const socket = open(t, url)
    const [first] = await Promise.all([once(socket, 'data') as Promise<[Buffer]>,
      socket.write(head({ 'content-length': 2_000_000 }))])
    const got = parse(first[0].toString())
    t.equal(got.status, 413)
    t.equal(got.headers['connection'], 'close')
    t.match(got.body, /"request_too_large"/)
  })
  await t.test('a client that is still sending can read its 413', async (t) => {
    const got = await send(t, url,
      Buffer.concat([Buffer.from(head({ 'content-length': 2_000_000 })), Buffer.alloc(2_000_000, 32)]))
    t.equal(got.status, 413)
  })
  await t.test('a chunked body over the limit is 413', async (t) => {
    const got = await send(t, url,
      Buffer.concat([Buffer.from(head({ 'transfer-encoding': 'chunked' }) + (1_500_000).toString(16) + '\r\n'),
        Buffer.alloc(1_500_000, 32), Buffer.from('\r\n0\r\n\r\n')]))
    t.equal(got.status, 413)
  })
  const encoders = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync, zstd: zstdCompressSync }
  for (const [encoding, encode] of Object.entries(encoders)) {
    await t.test(`${encoding}: is decoded; a bomb of 20 MB is 413; broken is 400`, async (t) => {
      const good = encode(Buffer.from(body))
      t.equal(
        (await send(t, url,
          Buffer.concat([Buffer.from(head({ ...close, 'content-encoding': encoding, 'content-length': good.length })),
            good]))).status,
        200
      )
      const bomb = encode(Buffer.alloc(20_000_000, 32))
      t.equal(
        (await send(t, url,
          Buffer.concat([Buffer.from(head({ ...close, 'content-encoding': encoding, 'content-length': bomb.length })),
            bomb]))).status,
        413
      )
      const broken = await send(t, url,
        head({ ...close, 'content-encoding': encoding, 'content-length': body.length }) + body)
      t.equal(broken.status, 400)
      t.match(broken.body, /bad_request/)
    })
  }
  await t.test('an unknown Content-Encoding and a wrong Content-Type are 400 that name what is taken', async (t) => {
    t.match(
      (await send(t, url, head({ ...close, 'content-encoding': 'compress', 'content-length': body.length }) + body))
        .body,
      /gzip, x-gzip, deflate, br, zstd/
    )
    t.match(
      (await send(t, url,
        head({ ...close, 'content-type': 'application/x-www-form-urlencoded', 'content-length': body.length }) + body))
        .body,
      /Content-Type: application\/json/
    )
  })
  await t.test('a charset other than UTF-8 is 400, of JSON and of a form', async (t) => {
    const asked = (type: string, path = '/v1/messages'): Promise<RawAnswer> =>
      send(t, url, head({ ...close, 'content-type': type, 'content-length': body.length }, path) + body)
    for (const type of ['application/json; charset=utf-8', 'application/json;charset="UTF-8"',
      'application/json; charset=utf8', 'application/json; charset=', 'application/json; profile=x']) {
      t.equal((await asked(type)).status, 200, type)
    }
    for (const [type, path] of [['application/json; charset=latin1'], ['application/json;x=y; Charset = "iso-8859-1"'],
      ['application/json; charset=utf-8; charset=utf-16'], ['multipart/form-data; boundary=x; charset=windows-1252',
      '/v1/images/edits']] as const) {
      const got = await asked(type, path)
      t.equal(got.status, 400, type)
      t.match(got.body, /bad_request/)
      t.match(got.body, /charset of the Content-Type is \\"(?:latin1|iso-8859-1|utf-16|windows-1252)\\".*UTF-8/)
    }
  })
  await t.test('a client that stops sending is told 408', async (t) => {
    const got = await send(t, url, head({ 'content-length': 5000 }) + '{"model":')
    t.equal(got.status, 408)
  })
  await t.test('64 levels pass, 65 are 400', async (t) => {
    const nested = (levels: number): string =>
      JSON.stringify({ ...messagesRequest, x: 0 }).replace('"x":0',
        `"x":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}`)
    for (const [levels, status] of [[64, 200], [65, 400]] as const) {
      t.equal((await send(t, url, head({ ...close, 'content-length': nested(levels).length }) + nested(levels))).status,
        status, `${levels} levels`)
    }
  })
  const inObjects = (...keys: readonly number[]): string => JSON.stringify({ ...messagesRequest, x: 0 })
    .replace('"x":0', `"x":[${keys.map((count) => `{${'"k":1,'.repeat(count).slice(0, -1)}}`).join(',')}]`)
  /** Of all objects of the body. */
  const ownKeys = JSON.stringify({ ...messagesRequest, x: 0 }).split(':').length - 1
  await t.test('an object may have 10,000 keys, and all together 500,000', async (t) => {
    const { url: roomy } = await gateway(t, yaml([up.url]))
    const full = Array.from({ length: 50 }, () => 10_000)
    const cases: readonly (readonly [readonly number[], number, RegExp])[] = [
      [[10_000, 10_000], 200, /"message"/],
      [[10_001], 400, /more than 10000 keys/],
      [full.with(0, 10_000 - ownKeys), 200, /"message"/],
      [full.with(0, 10_001 - ownKeys), 400, /more than 500000 keys together/]
    ]
    for (const [keys, status, said] of cases) {
      const body = inObjects(...keys)
      const got = await send(t, roomy, head({ ...close, 'content-length': body.length }) + body)
      t.equal(got.status, status, `${keys.length} objects of ${keys[0]}`)
      t.match(got.body, said)
    }
  })
  await t.test('too many keys are refused while the body comes, before its end', async (t) => {
    const socket = open(t, url)
    socket.write(head({ 'content-length': 900_000 }) + inObjects(20_000).slice(0, 110_000))
    const [first] = await once(socket, 'data') as [Buffer]
    t.equal(parse(first.toString()).status, 400)
  })
  await t.test('colons and keys in strings are none', async (t) => {
    const tricky = JSON.stringify({ ...messagesRequest,
      messages: [{ role: 'user', content: '{"k":1,"k\\":'.repeat(20_000) }] })
    t.equal((await send(t, url, head({ ...close, 'content-length': Buffer.byteLength(tricky) }) + tricky)).status, 200)
  })
  await t.test('brackets and quotes in strings are no levels', async (t) => {
    const tricky = JSON.stringify({ ...messagesRequest,
      messages: [{ role: 'user', content: '["\\'.repeat(200) + '\\"' }] })
    t.equal((await send(t, url, head({ ...close, 'content-length': Buffer.byteLength(tricky) }) + tricky)).status, 200)
  })
  await t.test('not JSON, not an object, not UTF-8, nothing at all: 400 bad_request', async (t) => {
    for (const bad of [Buffer.from('{"model": oops}'), Buffer.from('[1]'), Buffer.from('"x"'),
      Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), Buffer.alloc(0)]) {
      const got = await send(t, url,
        Buffer.concat([Buffer.from(head({ ...close, 'content-length': bad.length })), bad]))
      t.equal(got.status, 400)
      const { error, request_id: id } = JSON.parse(got.body) as {
        error: { type: string, details: { error_code: string } },
        request_id: string
      }
      t.equal(error.details.error_code, 'bad_request')
      t.equal(id, got.headers['request-id'])
    }
  })
  await t.test('who ends its side right behind the body is told why it is refused', async (t) => {
    for (const [bad, code] of [['{"model": oops}', 'bad_request'], ['{}', 'model_required']] as const) {
      const socket = open(t, url)
      const all = readAll(socket)
      socket.end(head({ 'content-length': bad.length }, '/v1/chat/completions') + bad)
      const got = parse(await all)
      t.equal(got.status, 400)
      isShaped(t, got, code)
    }
  })
  await t.test('Expect: 100-continue: a refused client sends no body', async (t) => {
    const got = await send(t, url, head({ 'x-api-key': 'wrong', expect: '100-continue', 'content-length': 900_000 }))
    t.equal(got.status, 401)
  })
  await t.test('Expect: 100-continue: an accepted one is told to go on', async (t) => {
    const socket = open(t, url)
    const all = readAll(socket)
    socket.write(head({ ...close, expect: '100-continue', 'content-length': body.length }))
    const [first] = await once(socket, 'data') as [Buffer]
    t.match(first.toString(), /^HTTP\/1\.1 100 Continue\r\n\r\n/)
    socket.write(body)
    t.equal(parse((await all).replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, '')).status, 200)
  })
  await t.test('Expect: 100-continue: HTTP/1.0 knows no such answer, and gets the real one only', async (t) => {
    const asked = (path: string, type: string, body: string, key = KEY): string =>
      `POST ${path} HTTP/1.0\r\nhost: x\r\nx-api-key: ${key}\r\ncontent-type: ${type}\r\nexpect: 100-continue\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
    const got = await send(t, url, asked('/v1/messages', 'application/json', body))
    t.equal(got.status, 200)
    t.match(got.body, /^\{"/)
    const form = await send(t, url,
      asked('/v1/images/edits', 'multipart/form-data; boundary=B',
        '--B\r\ncontent-disposition: form-data; name="model"\r\n\r\nm1\r\n--B--\r\n'))
    t.equal(form.status, 400)
    isShaped(t, form, 'invalid_request')
  })
  await t.test('bodies beyond body_memory are 429 queue_full with Retry-After, and the memory comes back', async (t) => {
    const waiting = Array.from({ length: 3 }, () => {
      const socket = open(t, url)
      socket.write(head({ 'content-length': 1_000_000 }) + ' '.repeat(999_999))
      return socket
    })
    let refused: RawAnswer
    do refused = await send(t, url,
      head({ ...close, 'content-length': body.length + 1_000_000 - body.length }) + body.padEnd(1_000_000))
    while (refused.status === 200) // until the three have arrived
    t.equal(refused.status, 429)
    t.match(refused.body, /queue_full/)
    t.match(refused.headers['retry-after'], /^[1-9]\d?$/)
    for (const socket of waiting) socket.destroy()
    let again: RawAnswer
    do again = await send(t, url, head({ ...close, 'content-length': 1_000_000 }) + body.padEnd(1_000_000))
    while (again.status === 429)
    t.equal(again.status, 200)
  })
})

t.test('a body that trickles is cut, whoever reads it, or throws it away', async (t) => {
  const up = await upstream(t, ({ bytes }) => json({ bytes: bytes.length }))
  const gw = await gateway(t,
    yaml([up.url], 'routes:\n  - { match: POST /v1/free, forward: u0, price: free }\n').replace('hold_head: 10s',
      'body_idle: 2s'))
  const asked = { 'content-length': 5000 }
  const form = { ...asked, 'content-type': 'multipart/form-data; boundary=B' }
  const cases: Readonly<Record<string, readonly [first: string, status: number, url?: string]>> = {
    'JSON': [head(asked) + '{', 408],
    'chunks': [head({ 'transfer-encoding': 'chunked' }) + '1\r\n{\r\n', 408],
    'a form': [head(form, '/v1/images/edits') + '--B\r\n', 408],
    'a forward route': [head(asked, '/v1/free'), 408],
    'a wrong key': [head({ ...asked, 'x-api-key': 'wrong' }), 401],
    'no such address': [head(asked, '/v1/nothing'), 404],
    'what has no body': [head(asked, '/v1/models', 'GET'), 200],
    'admin': [head(asked, '/admin/v1/keys'), 401, gw.urls.admin]
  }
  await Promise.all(Object.entries(cases).map(async ([name, [first, status, url = gw.url]]) => {
    const socket = open(t, url)
    const all = readAll(socket)
    socket.write(first)
    const isChunked = name === 'chunks'
    const timer = setInterval(() => { socket.write(isChunked ? '1\r\n \r\n' : ' ') }, 50)
    t.equal(parse(await all).status, status, name)
    clearInterval(timer)
  }))
  await t.test('one that is fast enough is not, however long it takes', async (t) => {
    const body = JSON.stringify(messagesRequest)
    const socket = open(t, gw.url)
    const all = readAll(socket)
    socket.write(head({ ...close, 'content-length': 50_000 }))
    for (let sent = 0; sent < 50_000 - body.length; sent += 1000) {
      socket.write(' '.repeat(Math.min(1000, 50_000 - body.length - sent)))
      await setTimeout(100)
    }
    socket.write(body)
    t.equal(parse(await all).status, 502, 'the upstream gave no message')
  })
  await t.test('nor one that waits for its upstream', async (t) => {
    const held = Promise.withResolvers<void>()
    const deaf = createServer((socket) => {
      socket.on('error', () => {})
      t.teardown(() => socket.destroy())
      void held.promise.then(() => {
        socket.on('data', (chunk: Buffer) => {
          if (chunk.includes('end')) socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
        })
      })
    }).listen(0, '127.0.0.1')
    await once(deaf, 'listening')
    t.teardown(() => {
      deaf.close()
    })
    const own = await gateway(t,
      yaml([`http://127.0.0.1:${(deaf.address() as AddressInfo).port}`],
        'routes:\n  - { match: POST /v1/free, forward: u0, price: free }\n').replace('hold_head: 10s', 'body_idle: 5s'))
    const socket = open(t, own.url)
    const all = readAll(socket)
    const size = 20_000_000
    socket.write(
      Buffer.concat([Buffer.from(head({ ...close, 'content-length': size }, '/v1/free')), Buffer.alloc(size - 3, 32),
        Buffer.from('end')])
    )
    await setTimeout(3000) // several spans
    held.resolve()
    t.equal(parse(await all).status, 200)
  })
})

t.test('an announced body takes no memory from others until it comes', async (t) => {
  const { url } = await gateway(t,
    yaml([(await upstream(t, answer('hi'))).url]).replace('drain_timeout: 5s',
      'drain_timeout: 5s\n  body_memory: 3MB\n  body_limit: 1MB'))
  for (let i = 0; i < 5; i++) { open(t, url).write(head({ 'content-length': 1_000_000 }) + '{') }
  const body = JSON.stringify(messagesRequest)
  t.equal((await send(t, url, head({ ...close, 'content-length': body.length }) + body)).status, 200)
})

t.test('a body in chunks of one byte is put together as it was', async (t) => {
  const up = await upstream(t, answer('hi'))
  const { url } = await gateway(t, yaml([up.url]))
  const bytes = Buffer.from(
    JSON.stringify({ ...messagesRequest, messages: [{ role: 'user', content: 'é🌍'.repeat(5_000) }] })
  )
  const chunked = Buffer.concat([...bytes].map((byte) => Buffer.from([0x31, 13, 10, byte, 13, 10])))
  const got = await send(t, url,
    Buffer.concat([Buffer.from(head({ ...close, 'transfer-encoding': 'chunked' })), chunked, Buffer.from('0\r\n\r\n')]))
  t.equal(got.status, 200)
  t.strictSame((up.requests[0]!.body as { messages: unknown }).messages,
    (JSON.parse(bytes.toString()) as { messages: unknown }).messages)
})

t.test('a client that sends many requests at once and leaves pays for none of them', async (t) => {
  const held = Promise.withResolvers<void>()
  const up = await upstream(t, [wait(held.promise), answer('hi')])
  const own = await gateway(t, yaml([up.url]))
  const body = JSON.stringify(messagesRequest)
  const socket = open(t, own.url)
  socket.write((head({ 'content-length': body.length }) + body).repeat(10))
  const first = await up.nextRequest()
  socket.destroy()
  t.equal(await first.closed, 'left')
  while (own.server.inFlight > 0) await new Promise(setImmediate)
  held.resolve()
  t.equal(up.requests.length, 1, 'those behind the first one were never begun')
  t.match(await own.services.store.balance('acme'), { balance: 100_000_000_000n, held: 0n, open_holds: 0 })
})

t.test('garbage behind a request on the same connection does not corrupt the answer that is under way', async (t) => {
  const up = await upstream(t, answer('hi'))
  const { url } = await gateway(t, yaml([up.url]))
  const body = JSON.stringify(messagesRequest)
  const got = await send(t, url, head({ 'content-length': body.length }) + body + '\0\0 nonsense\r\n\r\n')
  t.ok(got.status === 200 || got.status === 400, String(got.status))
  t.equal(got.body.match(/HTTP\/1\.1/g), null, 'one answer, or none inside another')
})

t.test('thousands of requests in one piece', async (t) => {
  const COUNT = 3000
  const hold = Promise.withResolvers<void>()
  const up = await upstream(t, [wait(hold.promise), json(message('hi'))])
  const running = await gateway(t, yaml([up.url]))
  const { metrics } = running.services
  /** How many answers have come. */
  const counting = (socket: Socket): () => number => {
    let [count, rest] = [0, '']
    socket.on('data', (chunk: Buffer) => {
      const parts = (rest + chunk.toString('latin1')).split('HTTP/1.1 ')
      count += parts.length - 1
      rest = parts.at(-1)!.slice(-8)
    })
    return () => count
  }
  /** The most that begin in one turn of the event loop. */
  const most = async (isOver: () => boolean, name: 'begin' | 'rejected'): Promise<number> => {
    let [now, worst] = [0, 0]
    const counted = metrics[name].bind(metrics) as (...args: unknown[]) => void
    Object.assign(metrics, { [name]: (...args: unknown[]) => { now++; counted(...args) } })
    while (!isOver()) {
      await new Promise(setImmediate)
      worst = Math.max(worst, now)
      now = 0
    }
    Object.assign(metrics, { [name]: counted })
    return worst
  }
  const series = async (pattern: RegExp): Promise<number> => Number(pattern.exec(await metrics.print())?.[1] ?? 0)

  for (const [what, name, piece, count] of [
    ['without a key', 'begin', 'POST /v1/messages HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n{}',
      /gateway_requests_total\{.*status="401".*\} (\d+)/],
    ['that no route takes', 'rejected', 'GET /x HTTP/1.1\r\nhost: g\r\n\r\n',
      /gateway_rejected_total\{reason="not_found"\} (\d+)/]
  ] as const) {
    await t.test(`${what}: one in a turn of the loop, few lines in the log, all of them counted and answered`, async (t) => {
      const before = running.logged.length
      const socket = open(t, running.url)
      const answers = counting(socket)
      socket.write(piece.repeat(COUNT))
      const worst = await most(() => answers() === COUNT, name)
      t.ok(worst <= 2, `${worst} in a turn: one that had waited, and the first of another piece`)
      t.equal(await series(count), COUNT)
      const lines = (): Record<string, unknown>[] => running.logged.slice(before).filter(({ level }) => level === 30)
      const told = (): number => lines().reduce((sum, line) => sum + Number(line['count'] ?? 1), 0)
      await until(() => told() >= COUNT)
      t.equal(told(), COUNT)
      t.ok(lines().length < COUNT / 10, `${lines().length} lines`)
      t.match(lines()[0], { request_id: /^req_/ })
      t.match(lines().at(-1), { count: Number, status: Number, code: String, request_id: undefined })
    })
  }

  t.test('behind one that takes long: nothing more is read, and all of it when that is answered', async (t) => {
    const first = head({ 'content-length': JSON.stringify(messagesRequest).length }) + JSON.stringify(messagesRequest)
    const one = `GET /x HTTP/1.1\r\nhost: g\r\nx-fill: ${'x'.repeat(16_000)}\r\n\r\n`
    const socket = open(t, running.url)
    const answers = counting(socket)
    socket.write(first + one.repeat(COUNT))
    await up.nextRequest()
    for (let turn = 0; turn < 2000; turn++) await new Promise(setImmediate)
    t.ok(socket.writableLength > 0, 'what the system does not hold is with the client')
    hold.resolve()
    await until(() => answers() > COUNT)
    t.equal(socket.writableLength, 0)
  })
})

t.test('a defect of our own before there is an exchange is a 500 to that request, and to nobody else', async (t) => {
  const running = await gateway(t, yaml([await upstream(t, answer('hi')).then(({ url }) => url)]))
  const current = running.live.current.bind(running.live)
  Object.assign(running.live, { current () { throw new Error('a defect') } })
  const got = await send(t, running.url, head(close, '/v1/models', 'GET'))
  t.equal(got.status, 500)
  isShaped(t, got, 'server_error')
  t.match(running.logged.find(({ msg }) => msg === 'a request could not be begun'), {
    request_id: got.headers['x-request-id'],
    err: { message: 'a defect' }
  })
  Object.assign(running.live, { current })
  t.equal((await send(t, running.url, head(close, '/v1/models', 'GET'))).status, 200)
})
