// WebSockets of forward routes, with Node's own client and on raw sockets: who may, what travels, what it costs, and
// every way to end.
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setImmediate, setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Authority } from '../support/certificates.ts'
import { CALM, finished, gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { abyss, refusing } from '../support/upstream.ts'
import { accept, echo, socketUpstream, type SocketUpstream, type Visitor } from '../support/websocket.ts'

const PRICE = 1_000_000n
const ROUTES = `routes:
  - { match: "GET,POST /v1/realtime", forward: u0, websocket: true, price: { usd: "0.001" } }
  - { match: "GET /v1/live/*", forward: u0, websocket: true, price: free }
  - { match: "GET /v1/plain", forward: u0, price: free }
`

interface Settings {
  /** of the upstream, such as `timeouts: { first_byte: 200ms }` */
  readonly upstream?: string
  readonly key?: string
  readonly pipeline?: string
  readonly drain?: string
}

async function serving (
  t: Test,
  url: string,
  { upstream: more, key, pipeline, drain }: Settings = {}
): Promise<TestGateway> {
  let text = yaml([url], ROUTES, pipeline)
  if (more !== undefined) text = text.replace('"upstream-secret-0" } }', `"upstream-secret-0" }, ${more} }`)
  if (key !== undefined) text = text.replace(`secret: ${KEY} }`, `secret: ${KEY}, ${key} }`)
  if (drain !== undefined) text = text.replace('drain_timeout: 5s', `drain_timeout: ${drain}`)
  return await gateway(t, text)
}

async function tunnelling (
  t: Test,
  greet: (visitor: Visitor) => void,
  settings?: Settings
): Promise<{ readonly gw: TestGateway, readonly up: SocketUpstream }> {
  const up = await socketUpstream(t, greet)
  return { up, gw: await serving(t, up.url, settings) }
}

/** Node's own client; it can set headers, unlike a web page. */
function client (
  t: Test,
  gw: TestGateway,
  path = '/v1/realtime',
  { headers = { 'x-api-key': KEY }, protocols }: { readonly headers?: Record<string, string>,
    readonly protocols?: string[] } = {}
): WebSocket {
  const socket = new WebSocket(gw.url.replace('http:', 'ws:') + path,
    { headers, ...(protocols !== undefined && { protocols }) } as unknown as string[])
  socket.binaryType = 'arraybuffer'
  t.teardown(() => { socket.close() })
  return socket
}

interface RawAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly socket: Socket
  /** what has come behind the head so far */
  readonly rest: string
}

const HANDSHAKE = { host: 'x', connection: 'Upgrade', upgrade: 'websocket',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==', 'sec-websocket-version': '13', 'x-api-key': KEY }

/** An upgrade by hand; an empty header is not sent. */
async function raw (
  t: Test,
  url: string,
  path = '/v1/realtime',
  headers: Readonly<Record<string, string>> = {},
  method = 'GET'
): Promise<RawAnswer> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  socket.on('error', () => {})
  t.teardown(() => socket.destroy())
  const all = Object.entries({ ...HANDSHAKE, ...headers }).filter(([, value]) => value !== '')
  socket.write(`${method} ${path} HTTP/1.1\r\n${all.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`)
  let text = ''
  const end = (): number => text.indexOf('\r\n\r\n')
  while (end() === -1) text += ((await once(socket, 'data')) as [Buffer])[0].toString('latin1')
  const [line, ...fields] = text.slice(0, end()).split('\r\n')
  const got = Object.fromEntries(fields.map((field) => [
    field.slice(0, field.indexOf(':')).toLowerCase(),
    field.slice(field.indexOf(':') + 1).trim()
  ]))
  while (text.length - end() - 4 < Number(got['content-length'] ?? 0)) text += ((await once(socket, 'data')) as [Buffer])[0].toString(
    'latin1'
  )
  return { status: Number(line!.split(' ')[1]), headers: got, socket, rest: text.slice(end() + 4) }
}

function isShaped (t: Test, { headers, rest }: RawAnswer, code: string): string {
  const { error } = JSON.parse(rest) as {
    error: { code: string, message: string, request_id: string, charged_usd: string }
  }
  t.equal(error.code, code)
  t.match(headers['x-request-id'], /^req_[0-9A-Za-z]{24}$/)
  t.equal(error.request_id, headers['x-request-id'])
  t.equal(error.charged_usd, '0')
  return error.message
}

async function charged (t: Test, gw: TestGateway): Promise<bigint> {
  t.equal(await gw.services.store.openHolds(), 0, 'no hold is left')
  return 100_000_000_000n - (await gw.services.store.balance('acme')).balance
}

async function closed (socket: Socket): Promise<void> {
  socket.resume()
  if (!socket.destroyed) await once(socket, 'close')
}

t.test('messages pass both ways, and it costs its price once, when it begins', async (t) => {
  const { gw, up } = await tunnelling(t, echo)
  const socket = client(t, gw, '/v1/realtime?model=a%20b&x=..//')
  const got: (string | number)[] = []
  socket.addEventListener('message', ({ data }) => {
    got.push(typeof data === 'string' ? data : (data as ArrayBuffer).byteLength)
  })
  await once(socket, 'open')
  t.equal(await charged(t, gw), PRICE, 'while it is open')
  socket.send('hello')
  socket.send(new Uint8Array(100_000))
  socket.send('x'.repeat(300))
  while (got.length < 3) await setImmediate()
  t.strictSame(got, ['hello', 100_000, 'x'.repeat(300)])
  socket.close(1000, 'bye')
  const [end] = await once(socket, 'close') as [CloseEvent]
  t.ok(end.wasClean)
  t.equal(end.code, 1000)
  t.match(await finished(gw), { status: 101, outcome: 'completed', code: 'ok', nanos: PRICE.toString(), upstream: 'u0',
    route: 'GET,POST /v1/realtime' })
  t.equal(await charged(t, gw), PRICE)
  t.equal(up.visitors[0]!.request.url, '/v1/realtime?model=a%20b&x=..//')
  t.equal(gw.server.inFlight, 0)
})

t.test('what came with the head is not lost, on either side', async (t) => {
  const { gw, up } = await tunnelling(t, (visitor) => {
    visitor.socket.cork()
    accept(visitor)
    visitor.socket.write('from the upstream')
    visitor.socket.uncork()
  })
  const near = connect(Number(new URL(gw.url).port), '127.0.0.1')
  t.teardown(() => near.destroy())
  near.write(
    `GET /v1/live/a HTTP/1.1\r\n${Object.entries(HANDSHAKE).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\nfrom the client`
  )
  let text = ''
  near.on('data', (chunk) => { text += String(chunk) })
  const { socket, head } = await up.next()
  let arrived = head.toString()
  socket.on('data', (chunk) => { arrived += String(chunk) })
  while (!text.endsWith('\r\n\r\nfrom the upstream') || arrived !== 'from the client') await setImmediate()
  t.match(text, /^HTTP\/1\.1 101 Switching Protocols\r\n/)
})

t.test('an upstream behind TLS', async (t) => {
  const authority = new Authority()
  const up = await socketUpstream(t, echo, authority.issue('127.0.0.1'))
  const gw = await gateway(t,
    yaml([up.url], ROUTES).replace('"upstream-secret-0" } }',
      '"upstream-secret-0" }, http2: auto, tls: { ca: "${file:ca.pem}" } }'), { files: { 'ca.pem': authority.ca } })
  const socket = client(t, gw)
  await once(socket, 'open')
  socket.send('x'.repeat(70_000))
  const [{ data }] = await once(socket, 'message') as [MessageEvent]
  t.equal((data as string).length, 70_000)
  socket.close()
  await once(socket, 'close')
  t.match(await finished(gw), { outcome: 'completed' })
  const doubting = await serving(t, up.url)
  t.equal((await raw(t, doubting.url)).status, 502)
  t.match((await finished(doubting))['cause'], /^refused: UNABLE_TO_VERIFY/)
})

t.test('what travels', async (t) => {
  const { gw, up } = await tunnelling(t, (visitor) => {
    accept(visitor, { 'set-cookie': 'session=vendor', server: 'vendor', 'openai-organization': 'org-vendor',
      'x-request-id': 'vendor-id', 'sec-websocket-protocol': 'realtime',
      'sec-websocket-extensions': 'permessage-deflate' })
  })
  await t.test('none of the client\'s credentials reaches the upstream, its own do', async (t) => {
    await raw(t, gw.url, '/v1/realtime', {
      authorization: `Bearer ${KEY}`,
      cookie: 'session=client',
      origin: 'https://page.example',
      'openai-organization': 'org-client',
      'openai-beta': 'realtime=v1',
      'user-agent': 'client/1',
      'x-forwarded-for': '10.0.0.1',
      'sec-websocket-protocol':
        `realtime, openai-insecure-api-key.${KEY}, OpenAI-Organization.org-client, openai-project.p, openai-beta.realtime-v1`,
      'sec-websocket-extensions': 'permessage-deflate; client_max_window_bits'
    })
    const { request: { headers, rawHeaders } } = await up.next()
    t.strictSame(
      Object.keys(headers).toSorted(),
      [
        'connection', 'host', 'sec-websocket-extensions', 'sec-websocket-key', 'sec-websocket-protocol',
        'sec-websocket-version', 'upgrade', 'user-agent', 'x-api-key'
      ]
    )
    t.equal(headers['x-api-key'], 'upstream-secret-0')
    t.equal(headers.host, new URL(up.url).host)
    t.equal(headers['sec-websocket-protocol'], 'realtime, openai-beta.realtime-v1')
    t.equal(headers['sec-websocket-extensions'], 'permessage-deflate; client_max_window_bits')
    t.notMatch(rawHeaders.join('\n'), /client\/|org-client|k{32}/)
  })
  await t.test('none of the upstream\'s comes back, and ours do', async (t) => {
    const { status, headers } = await raw(t, gw.url)
    t.equal(status, 101)
    t.strictSame(
      Object.keys(headers).toSorted(),
      [
        'connection', 'request-id', 'sec-websocket-accept', 'sec-websocket-extensions', 'sec-websocket-protocol',
        'upgrade', 'x-gateway-config-generation', 'x-request-id'
      ]
    )
    t.match(headers['x-request-id'], /^req_[0-9A-Za-z]{24}$/)
    t.equal(headers['request-id'], headers['x-request-id'])
    await up.next()
  })
  await t.test('a web page, which can set no header, names its key among the protocols', async (t) => {
    const socket = client(t, gw, '/v1/realtime', { headers: {},
      protocols: ['realtime', `openai-insecure-api-key.${KEY}`, 'openai-beta.realtime-v1'] })
    await once(socket, 'open')
    t.equal(socket.protocol, 'realtime')
    t.equal((await up.next()).request.headers['sec-websocket-protocol'], 'realtime, openai-beta.realtime-v1')
    const wrong = await raw(t, gw.url, '/v1/realtime', { 'x-api-key': '',
      'sec-websocket-protocol': 'realtime, openai-insecure-api-key.sk-gw-wrong' })
    t.equal(wrong.status, 401)
  })
})

t.test('who is refused gets a shaped error, pays nothing, and the upstream is not asked', async (t) => {
  const { gw, up } = await tunnelling(t, echo, {
    pipeline: 'auth, key-policy, rate-limit, channel-router, billing-meter, error-normalize',
    key: 'allowed_origins: ["https://app.example"], rate_limit: 3'
  })
  const cases: readonly { readonly what: string, readonly path?: string, readonly method?: string,
    readonly headers?: Readonly<Record<string, string>>, readonly status: number, readonly code: string }[] = [
      { what: 'a path that takes none', path: '/v1/plain', status: 400, code: 'invalid_request' },
      { what: 'an address of the gateway itself', path: '/v1/models', status: 400, code: 'invalid_request' },
      { what: 'nowhere', path: '/v1/nowhere', status: 404, code: 'not_found' },
      { what: 'another method', method: 'POST', status: 400, code: 'invalid_request' },
      { what: 'no key', headers: { 'x-api-key': '' }, status: 401, code: 'authentication_error' },
      { what: 'another origin than the key allows', headers: { origin: 'https://evil.example' }, status: 403,
        code: 'origin_not_allowed' },
      { what: 'a path that escapes', path: '/v1/live/a/../../b', status: 400, code: 'invalid_request' },
      { what: 'a version that nobody speaks', headers: { 'sec-websocket-version': '12' }, status: 400,
        code: 'invalid_request' },
      { what: 'no handshake', headers: { 'sec-websocket-key': '' }, status: 400, code: 'invalid_request' },
      { what: 'too many a minute', status: 429, code: 'rate_limited' }
    ]
  for (const { what, path, method, headers, status, code } of cases) {
    await t.test(what, async (t) => {
      const got = await raw(t, gw.url, path, headers, method)
      t.equal(got.status, status)
      isShaped(t, got, code)
      t.equal(got.headers['connection'], 'close')
      await closed(got.socket)
    })
  }
  t.equal(up.visitors.length, 0)
  for (const url of [gw.urls.public, gw.urls.admin]) {
    const got = await raw(t, url, '/v1/realtime')
    t.ok(got.status === 404 || got.status === 400, `${got.status} on another listener`)
    await closed(got.socket)
  }
  while (gw.server.inFlight > 0) await setImmediate()
  t.equal(await charged(t, gw), 0n)
})

t.test('a balance that is too small: 402, and nobody is asked', async (t) => {
  const up = await socketUpstream(t, echo)
  const gw = await gateway(t, yaml([up.url], ROUTES).replace('opening_balance_usd: 100', 'opening_balance_usd: 0.0015'))
  t.equal((await raw(t, gw.url)).status, 101)
  const got = await raw(t, gw.url)
  t.equal(got.status, 402)
  isShaped(t, got, 'insufficient_quota')
  t.equal(up.visitors.length, 1)
})

t.test('what an upstream says in the place of a WebSocket is shaped and scrubbed, and costs nothing', async (t) => {
  const say = (
    status: string,
    more = '',
    body = '{"error":{"message":"no, upstream-secret-0 of org-abcdefghij"}}'
  ): (visitor: Visitor) => void =>
  ({ socket }) => {
    socket.end(
      `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\nset-cookie: a=b\r\n${more}content-length: ${body.length}\r\n\r\n${body}`
    )
  }
  const cases: Readonly<
    Record<string,
      { readonly greet: (visitor: Visitor) => void, readonly status: number, readonly code: string,
        readonly cause?: RegExp }>
  > = {
    '401': { greet: say('401 Unauthorized'), status: 502, code: 'server_error', cause: /status 401/ },
    'what can be read and not printed': { greet: say('500 Internal Server Error', '', abyss), status: 502,
      code: 'server_error', cause: /status 500/ },
    '429': { greet: say('429 Too Many Requests', 'retry-after: 7\r\n'), status: 503, code: 'model_overloaded' },
    '400': { greet: say('400 Bad Request'), status: 400, code: 'invalid_request' },
    '200': { greet: say('200 OK'), status: 502, code: 'server_error', cause: /^malformed/ },
    '099': { greet: say('099 Odd'), status: 502, code: 'server_error', cause: /^malformed/ },
    '600': { greet: say('600 Odd'), status: 502, code: 'server_error', cause: /^malformed/ },
    'a proof that is none': { greet: (visitor) => {
      accept(visitor, { 'sec-websocket-accept': 'AAAAAAAAAAAAAAAAAAAAAAAAAAA=' })
    }, status: 502, code: 'server_error', cause: /^malformed/ },
    'another protocol': { greet: (visitor) => {
      accept(visitor, { upgrade: 'h2c' })
    }, status: 502, code: 'server_error', cause: /^malformed/ },
    'nothing, and hangs up': { greet: ({ socket }) => {
      socket.destroy()
    }, status: 502, code: 'server_error', cause: /^reset/ },
    'nothing at all': { greet: () => {}, status: 502, code: 'server_error', cause: /^first_byte_timeout/ }
  }
  let greet: (visitor: Visitor) => void = echo
  const { gw, up } = await tunnelling(t, (visitor) => {
    greet(visitor)
  }, { upstream: 'timeouts: { first_byte: 300ms }' })
  for (const [what, wanted] of Object.entries(cases)) {
    await t.test(what, async (t) => {
      greet = wanted.greet
      gw.heal()
      const got = await raw(t, gw.url)
      t.equal(got.status, wanted.status)
      isShaped(t, got, wanted.code)
      t.notMatch(got.rest + JSON.stringify(got.headers), /upstream-secret|org-abc|cookie|169\.254/)
      const line = await finished(gw)
      t.match(line, { outcome: 'failed', status: wanted.status })
      if (wanted.cause !== undefined) t.match(line['cause'], wanted.cause)
      await closed(up.visitors.at(-1)!.socket)
      t.equal(await charged(t, gw), 0n)
    })
  }
  await t.test('nobody listens there', async (t) => {
    const gw = await serving(t, await refusing())
    const got = await raw(t, gw.url)
    t.equal(got.status, 502)
    isShaped(t, got, 'server_error')
    t.match((await finished(gw))['cause'], /^refused/)
  })
})

t.test('what an upstream says of the client\'s own request passes as it is, and costs nothing', async (t) => {
  let code = 0
  const { gw, up } = await tunnelling(t, ({ socket }) => {
    socket.end(
      `HTTP/1.1 ${code} Odd\r\ncontent-type: text/plain\r\nlocation: /v1/elsewhere\r\nset-cookie: a=b\r\ncontent-length: 4\r\n\r\nsaid`
    )
  })
  for (code of [302, 307, 404, 405, 409, 426]) {
    const got = await raw(t, gw.url)
    t.equal(got.status, code)
    t.equal(got.rest, 'said')
    t.match(got.headers, { 'content-type': 'text/plain', location: '/v1/elsewhere', 'x-request-id': /^req_/ })
    t.notOk('set-cookie' in got.headers)
    t.match(await finished(gw), { outcome: 'completed', status: code })
    await closed(up.visitors.at(-1)!.socket)
    t.equal(await charged(t, gw), 0n)
  }
})

t.test('its place among the requests of the key is taken as long as it is open', async (t) => {
  const { gw } = await tunnelling(t, echo, {
    pipeline: 'auth, rate-limit, channel-router, billing-meter, error-normalize',
    key: 'concurrency: 1'
  })
  const first = await raw(t, gw.url)
  t.equal(first.status, 101)
  t.ok(first.headers['x-ratelimit-limit-requests'], 'the 101 says what is left')
  const second = await raw(t, gw.url)
  t.equal(second.status, 429)
  isShaped(t, second, 'org_queue_full')
  first.socket.destroy()
  await finished(gw)
  await finished(gw)
  t.equal((await raw(t, gw.url)).status, 101)
})

t.test('ends', async (t) => {
  const { gw, up } = await tunnelling(t, (visitor) => {
    accept(visitor)
  }, { upstream: 'timeouts: { websocket_idle: 400ms }' })

  await t.test('a client that is gone ends the upstream\'s side, cleanly or not', async (t) => {
    for (const end of ['destroy', 'resetAndDestroy'] as const) {
      const { socket } = await raw(t, gw.url)
      const far = await up.next()
      socket[end]()
      await closed(far.socket)
      t.match(await finished(gw), { status: 101, upstream: 'u0' })
    }
    t.equal(gw.server.inFlight, 0)
  })
  await t.test('an upstream that is gone ends the client\'s side, and what it said last arrives', async (t) => {
    const { socket } = await raw(t, gw.url)
    const far = await up.next()
    far.socket.end('last words')
    const [words] = await once(socket, 'data') as [Buffer]
    t.equal(words.toString(), 'last words')
    await closed(socket)
    t.match(await finished(gw), { outcome: 'completed' })
    const other = await raw(t, gw.url)
    ;(await up.next()).socket.resetAndDestroy()
    await closed(other.socket)
    t.match(await finished(gw), { outcome: 'interrupted', by: 'upstream', code: 'upstream_stream_interrupted' })
  })
  await t.test('silence of both sides ends it; one that speaks keeps it', async (t) => {
    const { socket } = await raw(t, gw.url)
    const far = await up.next()
    let came = 0
    far.socket.on('data', () => { came++ })
    for (let i = 1; i <= 8; i++) {                            // longer than websocket_idle in all
      await setTimeout(100)
      socket.write('.')
      while (came < i) await setImmediate()
    }
    await closed(socket)
    await closed(far.socket)
    t.match(await finished(gw), { outcome: 'interrupted', by: 'gateway', code: 'stream_incomplete' })
  })
  await t.test('an upgrade behind a request that is not answered yet ends the connection, and nothing else', async (t) => {
    const socket = connect(Number(new URL(gw.url).port), '127.0.0.1')
    socket.on('error', () => {})
    const ask = (path: string, headers: string): string =>
      `GET ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${KEY}\r\n${headers}\r\n`
    socket.write(
      ask('/v1/plain', '') +
        ask('/v1/realtime',
          'connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n')
    )
    await closed(socket)
    t.equal((await raw(t, gw.url)).status, 101, 'the gateway still serves')
  })
  t.equal(await charged(t, gw), 6n * PRICE)
})

t.test('a client that leaves before the upstream has agreed is charged nothing, and its place is free', async (t) => {
  const { gw, up } = await tunnelling(t, () => {})
  for (const early of ['', 'too early']) {
    const socket = connect(Number(new URL(gw.url).port), '127.0.0.1')
    socket.write(
      `GET /v1/realtime HTTP/1.1\r\n${Object.entries(HANDSHAKE).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${early}`
    )
    const far = await up.next()
    socket.end()                                              // FIN, and nothing else
    await closed(far.socket)
    t.match(await finished(gw), { outcome: 'failed', code: 'client_closed' })
    await closed(socket)
  }
  t.equal(gw.server.inFlight, 0)
  t.equal(await charged(t, gw), 0n)
})

t.test('a client that talks on before it was told that it may ends its connection: unread, nobody would notice that it leaves', async (t) => {
  const { gw } = await tunnelling(t, () => {})
  const socket = connect(Number(new URL(gw.url).port), '127.0.0.1')
  socket.on('error', () => {})
  t.teardown(() => socket.destroy())
  socket.write(
    `GET /v1/realtime HTTP/1.1\r\n${Object.entries(HANDSHAKE).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${'x'.repeat(300_000)}`
  )
  // with an error, or without
  await new Promise<void>((resolve) => { socket.resume().on('close', () => { resolve() }) })
  t.match(await finished(gw), { outcome: 'failed', code: 'client_closed' })
  t.equal(gw.server.inFlight, 0)
  t.equal(await charged(t, gw), 0n)
})

t.test('a WebSocket that breaks says nothing about its upstream: clients can make any server hang up', async (t) => {
  const up = await socketUpstream(t, (visitor) => { accept(visitor) })
  const gw = await gateway(t, yaml([up.url], ROUTES).replace(CALM, 'breaker: { failures: 1 }'))
  for (let i = 0; i < 3; i++) {
    const { status, socket } = await raw(t, gw.url)
    t.equal(status, 101)
    ;(await up.next()).socket.resetAndDestroy()
    await closed(socket)
    t.match(await finished(gw), { outcome: 'interrupted', by: 'upstream' })
  }
})

t.test('back-pressure: who does not read stops who writes, both ways, and nothing is lost', async (t) => {
  const chunk = Buffer.alloc(64 * 1024, 'x')
  const total = 1000 * chunk.length
  /** Writes until the other side stops it; resolves when all is written. */
  const pour = async (into: Socket, count: { sent: number }): Promise<void> => {
    for (let i = 0; i < 1000; i++) {
      if (!into.write(chunk)) await once(into, 'drain')
      count.sent += chunk.length
    }
  }
  const { gw, up } = await tunnelling(t, (visitor) => { accept(visitor); visitor.socket.pause() })
  for (const way of ['down', 'up'] as const) {
    await t.test(way, async (t) => {
      const { socket: near } = await raw(t, gw.url)
      near.pause()
      const { socket: far } = await up.next()
      const [from, to] = way === 'down' ? [far, near] : [near, far]
      const count = { sent: 0 }
      const poured = pour(from, count)
      // "Does not write any more" can only be seen by waiting; too short a wait lets a bad gateway pass, never a good
      // one fail.
      for (let before = -1; before !== count.sent;) { before = count.sent; await setTimeout(200) }
      t.ok(count.sent < total / 2, `${count.sent} of ${total} bytes could be written`)
      let came = 0
      to.on('data', (bytes: Buffer) => { came += bytes.length }).resume()
      await poured
      while (came < total) await setImmediate()
      t.equal(came, total)
      near.destroy()
    })
  }
})

t.test('a reload that removes the upstream leaves the WebSocket as it is', async (t) => {
  const { gw, up } = await tunnelling(t, echo)
  const socket = client(t, gw)
  await once(socket, 'open')
  await gw.rewrite(yaml([up.url]).replaceAll('u0', 'another'))
  t.equal((await raw(t, gw.url)).status, 404, 'the new configuration is live')
  socket.send('still here')
  const [{ data }] = await once(socket, 'message') as [MessageEvent]
  t.equal(data, 'still here')
  socket.close()
  await once(socket, 'close')
  t.match(await finished(gw), { outcome: 'completed', config_generation: 1 })
})

t.test('a drain waits for it, and ends it at its deadline', async (t) => {
  for (const [what, patience, outcome] of [['that ends in time', '5s', 'completed'], ['that does not', '100ms',
    'interrupted']] as const) {
    await t.test(what, async (t) => {
      const { gw, up } = await tunnelling(t, echo, { drain: patience })
      const near = await raw(t, gw.url)
      const far = await up.next()
      const drained = gw.drain()
      await setImmediate()
      t.equal(gw.server.inFlight, 1, 'it is waited for')
      if (outcome === 'completed') near.socket.end()
      await closed(near.socket)
      await closed(far.socket)
      await drained
      t.match(await finished(gw), { outcome, status: 101 })
    })
  }
})
