// Forward routes on real sockets: bytes pass unread both ways, credentials never do, and each ending costs what it
// should. "trap N" are those of http-proxy-3 in src/README.md#trap-1; each of these tests fails without what forward.ts
// does about it.
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer as createHttpServer, request as httpRequest, type ClientRequest, type IncomingHttpHeaders,
  type IncomingMessage } from 'node:http'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { setImmediate, setTimeout } from 'node:timers/promises'
import { gunzipSync, gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { flatCost } from '../../src/money/price.ts'
import type { Entry } from '../../src/store/store.ts'
import { connectionsOf } from '../../src/upstream/pool.ts'
import { CALM, finished, gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { answer, bytes, cut, errorReply, json, raw, refusing, sse, stall, status, step, upstream, wait, type Script,
  type Upstream } from '../support/upstream.ts'

const PRICE = 100_000n
const ROUTES = `routes:
  - { match: "GET,POST,PUT,DELETE,HEAD /v1/echo", forward: u0, price: { usd: "0.0001" } }
  - { match: "GET,POST,DELETE,HEAD /v1/files/*", forward: u0, price: free }
  - { match: "PATCH,OPTIONS,PUT,DELETE /v1/any/*", forward: u0, price: free }
`

interface Settings {
  /** of the upstream, such as `timeouts: { idle: 200ms }` */
  readonly upstream?: string
  /** of `server:` */
  readonly server?: string
  /** of `server.api.timeouts` */
  readonly timeouts?: string
  readonly routes?: string
}

function forwardYaml (url: string, { upstream: more, server, timeouts, routes = ROUTES }: Settings = {}): string {
  let text = yaml([url], routes)
  if (more !== undefined) text = text.replace('"upstream-secret-0" } }', `"upstream-secret-0" }, ${more} }`)
  if (server !== undefined) text = text.replace('drain_timeout: 5s', `drain_timeout: 5s\n  ${server}`)
  if (timeouts !== undefined) text = text.replace('hold_head: 10s', timeouts)
  return text
}

async function forwarding (
  t: Test,
  script: Parameters<typeof upstream>[1],
  settings?: Settings
): Promise<{ readonly gw: TestGateway, readonly up: Upstream }> {
  const up = await upstream(t, script)
  return { up, gw: await gateway(t, forwardYaml(up.url, settings)) }
}

interface Got {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly bytes: Buffer
  /** false: the transfer broke */
  readonly isWhole: boolean
}

interface Asking {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  /** pieces are sent chunked; one buffer with its length */
  readonly body?: Buffer | readonly Buffer[]
}

function start (url: string, path: string, { method = 'GET', headers = {}, body }: Asking = {}): ClientRequest {
  const { hostname, port } = new URL(url)
  const isChunked = Array.isArray(body)
  const request = httpRequest({
    hostname, port, path, method, agent: false,
    headers: {
      'x-api-key': KEY,
      ...(isChunked
        ? { 'transfer-encoding': 'chunked' }
        : body === undefined
        ? {}
        : { 'content-length': String((body as Buffer).length) }),
      ...headers
    }
  })
  request.on('error', () => {})                            // the test looks at what came
  for (const piece of isChunked ? body as readonly Buffer[] : []) request.write(piece)
  if (Buffer.isBuffer(body)) request.write(body)
  return request
}

async function ask (url: string, path: string, asking: Asking = {}): Promise<Got> {
  const request = start(url, path, asking)
  request.end()
  const [response] = await once(request, 'response') as [IncomingMessage]
  return await read(response)
}

async function read (response: IncomingMessage): Promise<Got> {
  const chunks: Buffer[] = []
  try {
    for await (const chunk of response) chunks.push(chunk as Buffer)
  } catch {
    // isWhole says it
  }
  return { status: response.statusCode!, headers: response.headers, bytes: Buffer.concat(chunks),
    isWhole: response.complete }
}

/** The error of a chat-style answer, after its request id was found in all its places. */
function errorOf (
  t: Test,
  { headers, bytes }: Got
): { readonly code: string, readonly type: string, readonly message: string } {
  const { error } = JSON.parse(bytes.toString()) as {
    error: { code: string, type: string, message: string, request_id: string, charged_usd: string }
  }
  const id = headers['x-request-id'] as string
  t.match(id, /^req_[0-9A-Za-z]{24}$/)
  t.equal(headers['request-id'], id)
  t.equal(error.request_id, id)
  t.ok(error.message.endsWith(` Request ID: ${id}`), error.message)
  t.equal(error.charged_usd, '0')
  return error
}

async function settlements (gw: TestGateway): Promise<readonly Entry[]> {
  const entries: Entry[] = []
  for await (const entry of gw.services.store.entries()) if (entry.kind !== 'credit') entries.push(entry)
  return entries
}

/** What all requests so far were charged; nothing may be held any more. */
async function charged (t: Test, gw: TestGateway): Promise<bigint> {
  t.equal(await gw.services.store.openHolds(), 0, 'no hold is left')
  const { balance } = await gw.services.store.balance('acme')
  return 100_000_000_000n - balance
}

function sha256 (of: Buffer): string {
  return createHash('sha256').update(of).digest('hex')
}

function rawSocket (t: Test, url: string): Socket {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  socket.on('error', () => {})
  t.teardown(() => socket.destroy())
  return socket
}

t.test('bytes', async (t) => {
  const { gw, up } = await forwarding(t, ({ path, bytes }) => {
    switch (path) {
      case '/v1/files/zipped':
        return step(({ response }) => {
          response.writeHead(200, { 'content-type': 'text/plain', 'content-encoding': 'gzip' }).end(
            gzipSync('zipped text')
          )
        })
      case '/v1/files/part':
        return step(({ response }) => {
          response.writeHead(206, { 'content-type': 'video/mp4', 'content-range': 'bytes 2-4/10',
            'accept-ranges': 'bytes', etag: '"v1"' }).end('cde')
        })
      case '/v1/files/same':
        return step(({ response }) => {
          response.writeHead(304, { etag: '"v1"' }).end()
        })
      case '/v1/files/none':
        return step(({ response }) => {
          response.writeHead(204).end()
        })
      case '/v1/files/empty':
        return step(({ response }) => {
          response.writeHead(200, { 'content-length': 0 }).end()
        })
      default:
        return step(({ response }) => {
          response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(bytes)
        })
    }
  })

  await t.test('a binary body, the path and the query arrive as they were sent, and come back', async (t) => {
    const body = randomBytes(1_000_000)
    const path = '/v1/files/a%20b/c?x=1&y=%20\'"&&z=?&q=a%2Fb/../c'
    const got = await ask(gw.url, path, { method: 'POST', body, headers: { 'content-type': 'application/x-own' } })
    t.equal(got.status, 200)
    t.equal(sha256(got.bytes), sha256(body))
    const { method, url, bytes, headers } = await up.nextRequest()
    t.equal(method, 'POST')
    t.equal(url, path)
    t.equal(sha256(bytes), sha256(body))
    t.match(headers, { 'content-type': 'application/x-own', 'content-length': '1000000', host: new URL(up.url).host })
  })
  await t.test('a small answer whose body comes with its head is whole', async (t) => {
    for (let i = 0; i < 20; i++) {
      const got = await ask(gw.url, '/v1/echo', { method: 'POST', body: Buffer.from(`number ${i}`) })
      t.equal(got.bytes.toString(), `number ${i}`)
      t.equal((await up.nextRequest()).url, '/v1/echo')
    }
  })
  await t.test('a chunked body stays chunked', async (t) => {
    const got = await ask(gw.url, '/v1/echo', { method: 'POST', body: [Buffer.from('one '), Buffer.from('two')] })
    t.equal(got.bytes.toString(), 'one two')
    t.equal((await up.nextRequest()).headers['transfer-encoding'], 'chunked')
  })
  await t.test('every method that a route may name passes, with its body', async (t) => {
    for (const method of ['PATCH', 'OPTIONS', 'PUT', 'DELETE']) {
      const got = await ask(gw.url, '/v1/any/a', { method, body: Buffer.from(method) })
      t.equal(got.status, 200, method)
      t.equal(got.bytes.toString(), method)
      t.match(await up.nextRequest(), { method, url: '/v1/any/a' })
    }
  })
  await t.test('a POST without a body has none there', async (t) => {
    t.equal((await ask(gw.url, '/v1/echo', { method: 'POST' })).status, 200)
    t.equal((await up.nextRequest()).bytes.length, 0)
  })
  await t.test('a compressed answer passes untouched', async (t) => {
    const got = await ask(gw.url, '/v1/files/zipped', { headers: { 'accept-encoding': 'gzip' } })
    t.equal(got.headers['content-encoding'], 'gzip')
    t.equal(gunzipSync(got.bytes).toString(), 'zipped text')
    t.equal((await up.nextRequest()).headers['accept-encoding'], 'gzip')
  })
  await t.test('a Range is asked for, and 206 comes back', async (t) => {
    const got = await ask(gw.url, '/v1/files/part', { headers: { range: 'bytes=2-4', 'if-range': '"v1"' } })
    t.equal(got.status, 206)
    t.match(got.headers, { 'content-range': 'bytes 2-4/10', 'accept-ranges': 'bytes', etag: '"v1"',
      'content-type': 'video/mp4' })
    t.equal(got.bytes.toString(), 'cde')
    t.match((await up.nextRequest()).headers, { range: 'bytes=2-4', 'if-range': '"v1"' })
  })
  await t.test('204, 304, HEAD and a body of no bytes end', async (t) => {
    for (const [path, method, code] of [['none', 'GET', 204], ['same', 'GET', 304], ['zipped', 'HEAD', 200], ['empty',
      'GET', 200]] as const) {
      const got = await ask(gw.url, `/v1/files/${path}`, { method })
      t.equal(got.status, code, path)
      t.equal(got.bytes.length, 0)
      t.equal((await up.nextRequest()).method, method)
    }
  })
  await t.test('Expect: 100-continue is answered here', async (t) => {
    const request = start(gw.url, '/v1/echo', { method: 'POST',
      headers: { expect: '100-continue', 'content-length': '5' } })
    request.flushHeaders()
    await once(request, 'continue')
    request.end('hello')
    const [response] = await once(request, 'response') as [IncomingMessage]
    t.equal((await read(response)).bytes.toString(), 'hello')
    t.equal((await up.nextRequest()).headers.expect, undefined)
  })
  await t.test('the answer names the configuration, and the request id is ours', async (t) => {
    const got = await ask(gw.url, '/v1/echo')
    t.equal(got.headers['x-gateway-config-generation'], '1')
    t.match(got.headers['x-request-id'], /^req_[0-9A-Za-z]{24}$/)
    t.equal(got.headers['request-id'], got.headers['x-request-id'])
  })
})

t.test('a chunked body of any method can not smuggle a request', async (t) => {
  const evil = 'GET /v1/secret HTTP/1.1\r\nhost: x\r\n\r\n'
  for (const method of ['POST', 'GET', 'DELETE'] as const) {
    await t.test(`${method}: raw bytes at the upstream`, async (t) => {
      let arrived = ''
      const server = createServer((socket) => {
        socket.on('error', () => {})
        socket.on('data', (chunk) => {
          arrived += chunk.toString('latin1')
          if (/\r\n\r\n/.test(arrived) && arrived.includes(evil)) {
            setImmediate().then(() => {
              socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok')
            }, () => {})
          }
        })
      }).listen(0, '127.0.0.1')
      await once(server, 'listening')
      t.teardown(() => server.close())
      const gw = await gateway(t, forwardYaml(`http://127.0.0.1:${(server.address() as AddressInfo).port}`))
      const got = await ask(gw.url, '/v1/echo', { method, body: [Buffer.from(evil)] })
      t.equal(got.bytes.toString(), 'ok')
      const at = arrived.indexOf('\r\n\r\n')
      const head = arrived.slice(0, at).toLowerCase()
      t.equal(head.split('\r\n')[0], `${method.toLowerCase()} /v1/echo http/1.1`)
      t.match(head, /\r\ntransfer-encoding: chunked/)
      t.notMatch(head, /content-length/)
      t.equal(arrived.slice(at + 4), `${evil.length.toString(16)}\r\n${evil}\r\n0\r\n\r\n`, 'framed')
    })
  }
  await t.test('and an upstream that keeps connections sees one request each', async (t) => {
    const { gw, up } = await forwarding(t, ({ bytes, method }) => json({ method, body: bytes.toString() }))
    for (const method of ['GET', 'DELETE', 'POST', 'PUT']) {
      t.same(JSON.parse((await ask(gw.url, '/v1/echo', { method, body: [Buffer.from(evil)] })).bytes.toString()), {
        method,
        body: evil
      })
    }
    t.same(up.requests.map(({ method, url }) => `${method} ${url}`),
      ['GET', 'DELETE', 'POST', 'PUT'].map((method) => `${method} /v1/echo`))
  })
})

t.test('streams', async (t) => {
  await t.test('events arrive one by one', async (t) => {
    const seen = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const
    const { gw } = await forwarding(
      t, [sse('a', { n: 1 }), wait(seen[0].promise), sse('b', { n: 2 }), wait(seen[1].promise), sse('c', { n: 3 })]
    )
    const request = start(gw.url, '/v1/files/stream')
    request.end()
    const [response] = await once(request, 'response') as [IncomingMessage]
    t.match(response.headers['content-type'], 'text/event-stream')
    let text = ''
    response.on('data', (chunk) => {
      text += String(chunk)
      if (text.includes('"n":1')) seen[0].resolve()
      if (text.includes('"n":2')) seen[1].resolve()
    })
    await once(response, 'end')
    t.equal(text, [1, 2, 3].map((n) => `event: ${'abc'[n - 1]}\ndata: {"n":${n}}\n\n`).join(''))
  })

  await t.test('a large download waits for a client that does not read, and is whole in the end', async (t) => {
    const piece = randomBytes(64 * 1024)
    const pieces = 1000
    const hash = createHash('sha256')
    for (let i = 0; i < pieces; i++) hash.update(piece)
    let sent = 0
    const { gw } = await forwarding(t, step(async ({ response, gone }) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': piece.length * pieces })
      for (let i = 0; i < pieces; i++) {
        if (!response.write(piece)) await once(response, 'drain', { signal: gone })
        sent += piece.length
      }
    }))
    const request = start(gw.url, '/v1/echo')
    request.end()
    const [response] = await once(request, 'response') as [IncomingMessage]
    // "Does not write any more" can only be seen by waiting; a wait that is too short lets a bad gateway pass, never a
    // good one fail.
    for (let before = -1; before !== sent;) { before = sent; await setTimeout(200) }
    t.ok(sent < piece.length * pieces / 2, `the upstream could write ${sent} of ${piece.length * pieces} bytes`)
    const got = createHash('sha256')
    for await (const chunk of response) got.update(chunk as Buffer)
    t.equal(got.digest('hex'), hash.digest('hex'))
    await finished(gw)
    t.equal(await charged(t, gw), PRICE)
  })

  await t.test('a large upload waits for an upstream that does not read, and is whole in the end', async (t) => {
    const piece = randomBytes(64 * 1024)
    const pieces = 450
    const reads = Promise.withResolvers<void>()
    const hash = createHash('sha256')
    let got = 0
    const server = createHttpServer((request, response) => {
      void reads.promise.then(async () => {
        for await (const chunk of request) { hash.update(chunk as Buffer); got += (chunk as Buffer).length }
        response.end('ok')
      })
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => { server.closeAllConnections(); server.close() })
    const gw = await gateway(t, forwardYaml(`http://127.0.0.1:${(server.address() as AddressInfo).port}`))
    const request = start(gw.url, '/v1/echo', { method: 'POST',
      headers: { 'content-length': String(piece.length * pieces) } })
    const expected = createHash('sha256')
    let sent = 0
    const poured = (async () => {
      for (let i = 0; i < pieces; i++) {
        expected.update(piece)
        if (!request.write(piece)) await once(request, 'drain')
        sent += piece.length
      }
      request.end()
    })()
    for (let before = -1; before !== sent;) { before = sent; await setTimeout(200) }
    t.ok(sent < piece.length * pieces * 0.75, `the client could write ${sent} of ${piece.length * pieces} bytes`)
    reads.resolve()
    await poured
    const [response] = await once(request, 'response') as [IncomingMessage]
    t.equal((await read(response)).bytes.toString(), 'ok')
    t.equal(got, piece.length * pieces)
    t.equal(hash.digest('hex'), expected.digest('hex'))
  })

  await t.test('an upstream may answer while the request still comes: each piece goes there and back', async (t) => {
    const server = createHttpServer((request, response) => {
      response.writeHead(200, { 'content-type': 'application/x-own' })
      request.pipe(response)
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => { server.closeAllConnections(); server.close() })
    const gw = await gateway(t, forwardYaml(`http://127.0.0.1:${(server.address() as AddressInfo).port}`))
    const request = start(gw.url, '/v1/echo', { method: 'POST', headers: { 'transfer-encoding': 'chunked' } })
    request.write('one')
    const [response] = await once(request, 'response') as [IncomingMessage]
    for (const [said, next] of [['one', 'two'], ['two', 'three'], ['three', '']] as const) {
      const [piece] = await once(response, 'data') as [Buffer]
      t.equal(piece.toString(), said)
      if (next === '') request.end()
      else request.write(next)
    }
    t.ok((await read(response)).isWhole)
    await finished(gw)
    t.equal(await charged(t, gw), PRICE)
  })

  await t.test('an upload of 20 MB arrives, with a length and chunked', async (t) => {
    const body = randomBytes(20 * 1024 * 1024)
    const { gw } = await forwarding(t, ({ bytes }) => json({ bytes: bytes.length, sha256: sha256(bytes) }))
    for (const sent of [body, Array.from({ length: 20 }, (_, i) => body.subarray(i << 20, (i + 1) << 20))]) {
      const got = await ask(gw.url, '/v1/files/big', { method: 'POST', body: sent })
      t.same(JSON.parse(got.bytes.toString()), { bytes: body.length, sha256: sha256(body) })
    }
  })
})

t.test('credentials', async (t) => {
  const clientHeaders = {
    'x-api-key': KEY,
    authorization: `Bearer ${KEY}`,
    cookie: 'session=client',
    'proxy-authorization': 'Basic Y2xpZW50',
    'x-goog-api-key': KEY,
    'api-key': KEY,
    'x-forwarded-for': '10.0.0.1',
    'openai-organization': 'org-client',
    'x-stainless-lang': 'js',
    'user-agent': 'client/1',
    connection: 'close, x-hop',
    'x-hop': 'hop',
    'content-type': 'application/json',
    accept: 'application/json'
  }
  const vendorHeaders = {
    'set-cookie': ['session=vendor', 'b=c'],
    server: 'cloudflare',
    via: '1.1 vendor',
    'openai-organization': 'org-vendor',
    'anthropic-organization-id': 'vendor-org',
    'x-request-id': 'vendor-id',
    'request-id': 'vendor-id',
    'x-ratelimit-limit-requests': '10',
    'strict-transport-security': 'max-age=1',
    'cf-ray': 'vendor-ray',
    'alt-svc': 'h3',
    'content-type': 'application/json',
    etag: '"e"',
    'content-disposition': 'attachment'
  }
  const { gw, up } = await forwarding(t, json({ ok: true }, 200, vendorHeaders))
  const isClean = (
    t: Test,
    { headers, rawHeaders }: { headers: IncomingHttpHeaders, rawHeaders: readonly string[] }
  ): void => {
    t.equal(headers['x-api-key'], 'upstream-secret-0')
    t.equal(rawHeaders.filter((name) => name.toLowerCase() === 'x-api-key').length, 1)
    t.notMatch(rawHeaders.join('\n'), new RegExp(KEY), 'the key of the client')
    t.same(
      Object.keys(headers).filter((name) =>
        !['host', 'connection', 'x-api-key', 'content-type', 'content-length', 'accept', 'user-agent'].includes(name)
      ),
      []
    )
    t.notMatch(String(headers['user-agent']), /client/)
  }

  await t.test('trap 4: none of the client\'s reaches the upstream, its own do', async (t) => {
    await ask(gw.url, '/v1/echo', { method: 'POST', headers: clientHeaders, body: Buffer.from('{}') })
    isClean(t, await up.nextRequest())
    const { 'x-api-key': _, ...bearerOnly } = clientHeaders
    const request = httpRequest(gw.url + '/v1/echo', { method: 'POST', agent: false,
      headers: { ...bearerOnly, 'content-length': '2' } })
    request.end('{}')
    const [response] = await once(request, 'response') as [IncomingMessage]
    t.equal((await read(response)).status, 200)
    isClean(t, await up.nextRequest())
  })
  await t.test('the versions of its API that the client asks for do; of a version the upstream\'s own wins', async (t) => {
    const asked = { 'anthropic-version': '2026-10-21', 'anthropic-beta': 'b-1,ours-1', 'openai-beta': 'assistants=v2' }
    const seen = async (gw: TestGateway): Promise<object> => {
      await ask(gw.url, '/v1/echo', { headers: asked })
      const { headers } = await up.nextRequest()
      return Object.fromEntries(Object.keys(asked).map((name) => [name, headers[name]]))
    }
    t.same(await seen(gw), asked)
    const pinned = forwardYaml(up.url).replace('headers: { ',
      'messages: { betas: ["b-*"] }, headers: { Anthropic-Version: "2023-06-01", anthropic-beta: ours-1, ')
    t.same(await seen(await gateway(t, pinned)), { ...asked, 'anthropic-version': '2023-06-01',
      'anthropic-beta': 'ours-1,b-1' }, 'each once')
    const other = pinned.replace('b-*', 'c-*').replace(', anthropic-beta: ours-1', '')
    t.same(await seen(await gateway(t, other)), { ...asked, 'anthropic-version': '2023-06-01',
      'anthropic-beta': undefined }, 'none that it does not know')
  })
  await t.test('trap 3: even when the agent has to queue', async (t) => {
    connectionsOf(gw.live.current().upstreams.get('u0')!).agent.maxSockets = 1
    const all = await Promise.all(
      Array.from({ length: 5 },
        () => ask(gw.url, '/v1/echo', { method: 'POST', headers: clientHeaders, body: Buffer.from('{}') }))
    )
    t.same(all.map(({ status }) => status), [200, 200, 200, 200, 200])
    for (let i = 0; i < 5; i++) isClean(t, await up.nextRequest())
  })
  await t.test('none of the upstream\'s comes back', async (t) => {
    const { headers } = await ask(gw.url, '/v1/echo')
    t.same(
      Object.keys(headers).filter((name) => ['date', 'connection', 'keep-alive'].includes(name) === false).toSorted(),
      [
        'cf-ray', 'content-disposition', 'content-type', 'etag', 'request-id', 'server', 'server-timing',
        'transfer-encoding', 'via', 'x-gateway-config-generation', 'x-request-id'
      ]
    )
    t.notMatch(JSON.stringify(headers), /vendor-(?:id|org)|org-vendor|session=/)
    await up.nextRequest()
  })
  await t.test('an upstream whose connection is kept is asked on it again', async (t) => {
    const ports = new Set<number | undefined>()
    const { gw } = await forwarding(t, step(({ response }) => {
      ports.add(response.socket?.remotePort)
      response.end('ok')
    }))
    for (let i = 0; i < 3; i++) {
      await ask(gw.url, '/v1/echo', { method: 'POST', body: Buffer.from('x') })
      await finished(gw)
    }
    t.equal(ports.size, 1)
  })
  await t.test('but not when it is too old', async (t) => {
    const ports = new Set<number | undefined>()
    const { gw } = await forwarding(t, step(async ({ response }) => {
      ports.add(response.socket?.remotePort)
      await setTimeout(2)
      response.end('ok')
    }), { upstream: 'timeouts: { connection_age: 1ms }' })
    for (let i = 0; i < 3; i++) {
      await ask(gw.url, '/v1/echo', { method: 'POST', body: Buffer.from('x') })
      await finished(gw)
    }
    t.equal(ports.size, 3)
  })
})

t.test('paths that could mean another one upstream are 400, and nobody is asked', async (t) => {
  const { gw, up } = await forwarding(t, json({ ok: true }))
  for (const path of ['../messages', 'a/../../admin', 'a/..', './a', 'a/.', '..;/a', '%2e%2e/a', '%2E%2E/a', 'a%2fb',
    'a%2Fb', 'a%5cb', 'a\\b', '..\\a', 'a//b', '/a', 'a#b']) {
    await t.test(path, async (t) => {
      const got = await ask(gw.url, `/v1/files/${path}`)
      t.equal(got.status, 400)
      t.equal(errorOf(t, got).code, 'invalid_request')
    })
  }
  await t.test('a priced route gives its hold back', async (t) => {
    const priced = await forwarding(t, json({}), { routes: ROUTES.replace('price: free', 'price: { usd: 1 }') })
    t.equal((await ask(priced.gw.url, '/v1/files/a/../b')).status, 400)
    await finished(priced.gw)
    t.equal(await charged(t, priced.gw), 0n)
    t.same(await settlements(priced.gw), [])
  })
  await t.test('a prefix matches only what is below it, and a dot in a name is no dot segment', async (t) => {
    t.equal((await ask(gw.url, '/v1/files')).status, 404)
    t.equal((await ask(gw.url, '/v1/filesystem/a')).status, 404)
    t.equal(up.requests.length, 0)
    for (const name of ['..a', 'a..b', '.a', 'a.b.', '...', 'a%20b', 'a:b;c=d', 'a/']) {
      t.equal((await ask(gw.url, `/v1/files/${name}`)).status, 200, name)
    }
    t.same(
      up.requests.map(({ url }) => url.slice('/v1/files/'.length)),
      ['..a', 'a..b', '.a', 'a.b.', '...', 'a%20b', 'a:b;c=d', 'a/']
    )
  })
  await t.test('the query is the upstream\'s own', async (t) => {
    t.equal((await ask(gw.url, '/v1/files/a?next=../..//%2e%2f#')).status, 200)
    t.equal(up.requests.at(-1)!.url.split('?')[1]?.replace('#', ''), 'next=../..//%2e%2f')
  })
})

t.test('what each ending costs', async (t) => {
  const head = status(200, { 'content-length': '1000' })
  const { gw, up } = await forwarding(t, ({ headers }) => {
    const [what, code] = String(headers['idempotency-key'] ?? 'json').split(' ')
    switch (what) {
      case 'error': return errorReply(Number(code), 'api_error', 'no')
      case 'cut': return [head, raw('abc'), cut()]
      case 'part': return [head, raw('abc'), stall()]
      case 'stall': return stall()
      default: return json({ ok: true })
    }
  })
  const asking = (what: string): Asking => ({
    method: 'POST',
    headers: { 'idempotency-key': what },
    body: Buffer.from('x')
  })
  /** What the requests of the work were charged in all, and how many entries they left. */
  const billed = async (
    t: Test,
    requests: number,
    work: () => Promise<unknown>
  ): Promise<
    { readonly nanos: bigint, readonly entries: number, readonly line: Readonly<Record<string, unknown>> }
  > => {
    const before = { nanos: await charged(t, gw), entries: (await settlements(gw)).length }
    await work()
    gw.heal()
    let line = {}
    for (let i = 0; i < requests; i++) { line = await finished(gw) }
    return { nanos: await charged(t, gw) - before.nanos, entries: (await settlements(gw)).length - before.entries,
      line }
  }

  await t.test('completed: the flat price, once, to the nano-dollar', async (t) => {
    const ids: unknown[] = []
    t.match(await billed(t, 10, async () => {
      for (const method of ['GET', 'POST', 'HEAD']) {
        ids.push((await ask(gw.url, '/v1/echo', { method })).headers['x-request-id'])
      }
      await Promise.all(Array.from({ length: 7 }, () => ask(gw.url, '/v1/echo')))
    }), { nanos: 10n * PRICE, entries: 10 })
    const entries = await settlements(gw)
    t.same(entries.slice(0, 3).map(({ reference }) => reference), ids)
    t.ok(
      entries.every(({ kind, nanos, model, key }) =>
        kind === 'settle' && nanos === -PRICE && model === 'GET,POST,PUT,DELETE,HEAD /v1/echo' && key === 'acme-dev'
      )
    )
  })
  await t.test('a free route leaves its entry, of zero', async (t) => {
    t.match(await billed(t, 1, () => ask(gw.url, '/v1/files/a')), { nanos: 0n, entries: 1 })
    t.match((await settlements(gw)).at(-1), { kind: 'settle', nanos: 0n, model: 'GET,POST,DELETE,HEAD /v1/files/*' })
  })
  await t.test('an error of the upstream: nothing', async (t) => {
    const codes = [302, 400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 529]
    t.match(await billed(t, codes.length, async () => {
      for (const code of codes) {
        t.ok((await ask(gw.url, '/v1/echo', asking(`error ${code}`))).status >= 300)
        gw.heal()
      }
    }), { nanos: 0n, entries: 0 })
  })
  await t.test('the upstream cuts its answer: nothing', async (t) => {
    const { line, ...bill } = await billed(t, 1, async () => {
      t.notOk((await ask(gw.url, '/v1/echo', asking('cut'))).isWhole)
    })
    t.match(line, { outcome: 'interrupted', by: 'upstream', code: 'upstream_stream_interrupted', status: 200 })
    t.same(bill, { nanos: 0n, entries: 0 })
  })
  await t.test('the client leaves behind the head: the price', async (t) => {
    const { line, ...bill } = await billed(t, 1, async () => {
      const request = start(gw.url, '/v1/echo', asking('part'))
      request.end()
      const [response] = await once(request, 'response') as [IncomingMessage]
      await once(response, 'data')
      request.destroy()
      t.equal(await up.requests.at(-1)!.closed, 'left', 'the upstream is let go')
    })
    t.match(line, { outcome: 'interrupted', by: 'client' })
    t.same(bill, { nanos: PRICE, entries: 1 })
  })
  await t.test('the client leaves before the head: nothing', async (t) => {
    const count = up.requests.length
    const { line, ...bill } = await billed(t, 1, async () => {
      const request = start(gw.url, '/v1/echo', asking('stall'))
      request.end()
      while (up.requests.length === count) await setImmediate()
      t.equal(await gw.services.store.openHolds(), 1)
      request.destroy()
      t.equal(await up.requests.at(-1)!.closed, 'left', 'the upstream is let go')
    })
    t.match(line, { outcome: 'failed', code: 'client_closed' })
    t.same(bill, { nanos: 0n, entries: 0 })
  })
  await t.test('the client leaves in the middle of its upload: nothing', async (t) => {
    const count = up.requests.length
    const { line, ...bill } = await billed(t, 1, async () => {
      const request = start(gw.url, '/v1/echo', { method: 'POST', headers: { 'content-length': '1000' } })
      request.write('half')
      while (gw.server.inFlight === 0) await setImmediate()
      request.destroy()
    })
    t.match(line, { outcome: 'failed', code: 'client_closed' })
    t.same(bill, { nanos: 0n, entries: 0 })
    t.equal(up.requests.length, count)
  })
  await t.test('a balance that is too small: 402, and nobody is asked', async (t) => {
    const up = await upstream(t, json({}))
    const gw = await gateway(t, forwardYaml(up.url).replace('opening_balance_usd: 100', 'opening_balance_usd: 0.00015'))
    t.equal((await ask(gw.url, '/v1/echo')).status, 200)
    await finished(gw)
    const got = await ask(gw.url, '/v1/echo')
    t.equal(got.status, 402)
    t.equal(errorOf(t, got).code, 'insufficient_quota')
    t.equal(up.requests.length, 1)
  })
})

t.test('upstreams that fail', async (t) => {
  const failures = {
    'dies before its head': [cut()],
    'dies inside its head': [bytes('HTTP/1.1 200 OK\r\nx-a'), cut()],
    'speaks no HTTP': [bytes('nonsense\r\n\r\n'), cut()]
  } as const
  const broken = {
    'with a length': [status(200, { 'content-length': '1000' }), raw('abc'), cut()],
    chunked: [status(200), raw('abc'), cut()]
  } as const
  const { gw, up } = await forwarding(t, ({ headers }) => {
    const wanted = String(headers['idempotency-key'])
    return wanted === 'stall'
      ? stall()
      : wanted === 'ok'
      ? json({ ok: true })
      : { ...failures, ...broken }[wanted as keyof typeof failures]
  })
  const wanting = (what: string): Asking => ({
    method: 'POST',
    headers: { 'idempotency-key': what },
    body: Buffer.from('x')
  })

  for (const name of Object.keys(failures)) {
    await t.test(`one that ${name} is 502`, async (t) => {
      const got = await ask(gw.url, '/v1/echo', wanting(name))
      t.equal(got.status, 502)
      t.match(errorOf(t, got), { code: 'server_error', type: 'api_error' })
      t.match((await finished(gw))['cause'], /^reset/)
      t.equal(await charged(t, gw), 0n)
    })
  }
  await t.test('trap 1: one that dies in the middle of its body breaks the transfer, and hangs nobody', async (t) => {
    for (const name of Object.keys(broken)) {
      const got = await ask(gw.url, '/v1/echo', wanting(name))
      t.equal(got.status, 200)
      t.equal(got.bytes.toString(), 'abc')
      t.equal(got.isWhole, false)
      t.match(await finished(gw), { by: 'upstream' })
    }
  })
  await t.test('trap 2: a client that leaves before the head ends its exchange', async (t) => {
    const count = up.requests.length
    const request = start(gw.url, '/v1/files/a', wanting('stall'))
    request.end()
    while (up.requests.length === count) await setImmediate()
    request.destroy()
    t.equal(await up.requests.at(-1)!.closed, 'left')
    t.match(await finished(gw), { outcome: 'failed', code: 'client_closed' })
    t.equal(gw.server.inFlight, 0)
  })
  await t.test('trap 6: an environment that asks http-proxy-3 for its other way changes nothing', async (t) => {
    t.teardown(() => { delete process.env['FORCE_FETCH_PATH'] })
    process.env['FORCE_FETCH_PATH'] = 'true'
    const got = await ask(gw.url, '/v1/echo', wanting('ok'))
    t.equal(got.status, 200)
    t.equal(got.bytes.toString(), '{"ok":true}')
  })
  await t.test('one that refuses is 502, and is named so in the log', async (t) => {
    const gw = await gateway(t, forwardYaml(await refusing()))
    const got = await ask(gw.url, '/v1/echo')
    t.equal(got.status, 502)
    t.equal(errorOf(t, got).code, 'server_error')
    t.match((await finished(gw))['cause'], /^refused/)
    t.equal(await charged(t, gw), 0n)
  })
})

t.test('upstreams that fall silent', async (t) => {
  const { gw, up } = await forwarding(t, ({ path }) => {
    switch (path) {
      case '/v1/files/body': return [status(200, { 'content-length': '1000' }), raw('abc'), stall()]
      case '/v1/files/error': return [status(500), raw('half an err'), stall()]
      default: return stall()
    }
  }, { upstream: 'timeouts: { first_byte: 200ms, idle: 200ms }' })

  await t.test('trap 5: before the head: 502, and named so, not as a reset', async (t) => {
    const got = await ask(gw.url, '/v1/echo', { method: 'POST', body: Buffer.from('x') })
    t.equal(got.status, 502)
    t.equal(errorOf(t, got).code, 'server_error')
    t.match((await finished(gw))['cause'], /^first_byte_timeout/)
    t.equal(await up.requests.at(-1)!.closed, 'left')
  })
  await t.test('trap 5: in the middle of the body: the transfer breaks', async (t) => {
    t.equal((await ask(gw.url, '/v1/files/body')).isWhole, false)
    t.equal(await up.requests.at(-1)!.closed, 'left')
    t.match(await finished(gw), { outcome: 'interrupted', by: 'upstream' })
  })
  await t.test('in the middle of an error: 502', async (t) => {
    t.equal((await ask(gw.url, '/v1/files/error')).status, 502)
    await finished(gw)
    t.equal(await charged(t, gw), 0n)
  })
  await t.test('in the middle of an upload that it takes no more of: 502', async (t) => {
    const server = createServer((socket) => {
      socket.pause().on('error', () => {})
      t.teardown(() => socket.destroy())
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => {
      server.close()
    })
    await gw.rewrite(
      forwardYaml(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, {
        upstream: 'timeouts: { first_byte: 300ms }'
      })
    )
    const got = await ask(gw.url, '/v1/echo', { method: 'POST', body: Buffer.alloc(30 * 1024 * 1024) })
    t.equal(got.status, 502)
    t.match((await finished(gw))['cause'], /^first_byte_timeout/)
  })
})

t.test('an upstream that refuses before the upload is over, and hangs up, is heard', async (t) => {
  const said = '{"error":{"message":"the field purpose is missing"}}'
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => {
      socket.end(
        `HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ${said.length}\r\n\r\n${said}`
      )
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => { server.close() })
  const gw = await gateway(t, forwardYaml(`http://127.0.0.1:${(server.address() as AddressInfo).port}`))
  const request = start(gw.url, '/v1/echo', { method: 'POST', headers: { 'content-length': '1000' } })
  request.write('half')
  const [response] = await once(request, 'response') as [IncomingMessage]
  t.equal(response.statusCode, 400)
  t.match(errorOf(t, await read(response)).message, /^the field purpose is missing/)
  request.destroy()
})

t.test('errors of an upstream are shaped in chat style and scrubbed', async (t) => {
  const cases: readonly { readonly script: Script, readonly status: number, readonly code: string,
    readonly message: RegExp, readonly retryAfter?: string }[] = [
      {
        script: errorReply(400, 'invalid_request_error',
          'field "input" of upstream-secret-0 at org-abcdefghij is missing'),
        status: 400,
        code: 'invalid_request',
        message: /^field "input" of \[redacted\] at \[redacted\] is missing/
      },
      { script: errorReply(401, 'authentication_error', 'invalid x-api-key upstream-secret-0'), status: 502,
        code: 'server_error', message: /^The model's provider failed/ },
      { script: errorReply(403, 'permission_error', 'organization x'), status: 502, code: 'server_error',
        message: /^The model's provider failed/ },
      { script: errorReply(402, 'billing_error', 'pay upstream-secret-0'), status: 503, code: 'service_unavailable',
        retryAfter: '60', message: /^The service is unavailable at this moment\. Try again in 10 minutes\./ },
      { script: errorReply(413, 'request_too_large', 'too large'), status: 413, code: 'request_too_large',
        message: /too large|larger/ },
      { script: errorReply(429, 'rate_limit_error', 'slow down, upstream-secret-0', { 'retry-after': '7' }),
        status: 503, code: 'model_overloaded', message: /overloaded/, retryAfter: '7' },
      { script: errorReply(503, 'overloaded_error', 'busy'), status: 503, code: 'model_overloaded',
        message: /overloaded/, retryAfter: '2' },
      { script: [status(500, { 'content-type': 'text/html' }), raw('<html>upstream-secret-0</html>')], status: 502,
        code: 'server_error', message: /^The model's provider failed/ },
      // No HTTP (RFC 9110 15): node could not even write it.
      ...['099', '600', '999'].map((number) => ({
        script: bytes(`HTTP/1.1 ${number} Odd\r\ncontent-length: 2\r\n\r\nhi`),
        status: 502,
        code: 'server_error',
        message: /^The model's provider failed/
      }))
    ]
  const { gw, up } = await forwarding(t, ({ path }) => cases[Number(path.split('/').at(-1))]!.script)
  for (const [i, { status: expected, code, message, retryAfter }] of cases.entries()) {
    await t.test(`${i}: ${expected} ${code}`, async (t) => {
      gw.heal()
      const got = await ask(gw.url, `/v1/files/${i}`, { method: 'POST', body: Buffer.from('{}') })
      t.equal(got.status, expected)
      t.equal(got.headers['retry-after'], retryAfter)
      t.match(got.headers['content-type'], 'application/json')
      const error = errorOf(t, got)
      t.equal(error.code, code)
      t.match(error.message, message)
      t.notMatch(got.bytes.toString() + JSON.stringify(got.headers), /upstream-secret|org-abc|html|169\.254/)
      t.equal(up.requests.length, i + 1, 'asked once: no redirect is followed, nothing is tried again')
    })
  }
})

t.test('what an upstream says of the client\'s own request passes as it is, costs nothing, and blames nobody', async (t) => {
  const statuses = [300, 301, 302, 303, 305, 307, 308, 404, 405, 406, 409, 410, 411, 412, 414, 415, 416, 417, 418, 421,
    423, 424, 426, 428, 431, 451, 499]
  const { gw, up } = await forwarding(t, ({ path }) => {
    const code = Number(path.split('/').at(-1))
    const said = JSON.stringify({ error: { message: `about ${code}` } })
    return [
      status(code, { 'content-type': 'application/vnd.own+json', 'content-length': String(said.length),
        allow: 'GET, PUT', location: '/elsewhere', etag: '"e"', 'content-range': 'bytes */7', 'set-cookie': 'a=b',
        'x-request-id': 'vendor-id' }),
      raw(said)
    ]
  }, { routes: ROUTES.replace('price: free', 'price: { usd: 0.5 }') })
  for (const code of statuses) {
    await t.test(String(code), async (t) => {
      const got = await ask(gw.url, `/v1/files/${code}`, { method: 'POST', body: Buffer.from('{}') })
      t.equal(got.status, code)
      t.equal(got.bytes.toString(), JSON.stringify({ error: { message: `about ${code}` } }))
      t.match(got.headers, { 'content-type': 'application/vnd.own+json', allow: 'GET, PUT', location: '/elsewhere',
        etag: '"e"', 'content-range': 'bytes */7', 'x-request-id': /^req_/ })
      t.notOk('set-cookie' in got.headers)
      t.match(await finished(gw), { outcome: 'completed', status: code, upstream: 'u0' })
    })
  }
  t.equal(up.requests.length, statuses.length, 'asked once each: no redirect is followed, nothing is tried again')
  t.equal(await charged(t, gw), 0n)
  t.match(gw.services.upstreams.health.targets(gw.live.current()).find(({ model }) => model.includes('/v1/files')), {
    breaker: 'closed',
    failed: 0,
    running: 0
  })
})

t.test('a redirect within the upstream leads to where the client has asked; one to elsewhere stays as it is', async (t) => {
  const { gw, up } = await forwarding(t, ({ headers }) => status(307, { location: String(headers['if-match']) }))
  const to = async (location: string): Promise<unknown> =>
    (await ask(gw.url, '/v1/files/a', { headers: { 'if-match': location } })).headers.location
  t.equal(await to(`${up.url}/v1/files/b?c=d`), '/v1/files/b?c=d')
  for (const same of ['/v1/files/b', 'b', '../b', '//cdn.example/b', 'https://cdn.example/b?sig=x',
    `${up.url}0/v1/files/b`]) { t.equal(await to(same), same) }
  const based = await gateway(t, forwardYaml(`${up.url}/base`))
  const toBased = async (location: string): Promise<unknown> =>
    (await ask(based.url, '/v1/files/a', { headers: { 'if-match': location } })).headers.location
  for (const location of [`${up.url}/base/v1/files/b`, '/base/v1/files/b']) {
    t.equal(await toBased(location), '/v1/files/b')
  }
  for (const other of ['/other/b', `${up.url}/other/b`, '/basement/b']) { t.equal(await toBased(other), other) }
})

t.test('what the client sends is bounded', async (t) => {
  const { gw, up } = await forwarding(t, json({}), { server: 'body_limit: 1MB', timeouts: 'body_idle: 4s',
    upstream: 'timeouts: { first_byte: 200ms }' })

  await t.test('a body over the limit is 413, with a length and chunked, and the upstream serves none of it', async (t) => {
    for (const body of [Buffer.alloc(2_000_000), [Buffer.alloc(1_000_000), Buffer.alloc(1_000_000)]]) {
      const got = await ask(gw.url, '/v1/echo', { method: 'POST', body })
      t.equal(got.status, 413)
      t.equal(errorOf(t, got).code, 'request_too_large')
    }
    t.equal(up.requests.length, 0)
    await finished(gw)
    await finished(gw)
    t.equal(await charged(t, gw), 0n)
  })
  await t.test('an upload that stalls is 408, and its connection is closed', async (t) => {
    const socket = rawSocket(t, gw.url)
    socket.write(`POST /v1/echo HTTP/1.1\r\nhost: x\r\nx-api-key: ${KEY}\r\ncontent-length: 100\r\n\r\nhalf`)
    const [first] = await once(socket, 'data') as [Buffer]
    t.match(first.toString(), /^HTTP\/1\.1 408 /)
    t.match(first.toString(), /connection: close/i)
    await finished(gw)
    t.equal(await charged(t, gw), 0n)
    t.equal(up.requests.length, 0)
  })
  await t.test('a slow upload that moves is neither that nor the upstream\'s silence', async (t) => {
    const request = start(gw.url, '/v1/echo', { method: 'POST', headers: { 'content-length': '6' } })
    for (const letters of ['sl', 'ow', 'ly']) {
      await setTimeout(400)
      request.write(letters)
    } // less than body_idle, more than first_byte
    request.end()
    const [response] = await once(request, 'response') as [IncomingMessage]
    t.equal(response.statusCode, 200)
    t.equal(up.requests.at(-1)!.bytes.toString(), 'slowly')
    response.resume()
  })
  await t.test('a transfer coding that is not chunked is 400: its bytes would arrive as something else', async (t) => {
    const before = up.requests.length
    const got = await ask(gw.url, '/v1/echo', { method: 'POST', body: [gzipSync('x')],
      headers: { 'transfer-encoding': 'gzip, chunked' } })
    t.equal(got.status, 400)
    t.equal(errorOf(t, got).code, 'bad_request')
    t.equal(up.requests.length, before)
  })
  await t.test('without a key it is 401 before anything else is looked at', async (t) => {
    const before = up.requests.length
    for (const [path, headers] of [['/v1/echo', { 'content-length': '5000000' }], ['/v1/files/a/../b', {}], ['/v1/echo',
      { expect: '100-continue', 'content-length': '10' }]] as const) {
      const request = start(gw.url, path, { method: 'POST', headers: { ...headers, 'x-api-key': 'sk-gw-wrong' } })
      request.flushHeaders()
      const [response] = await once(request, 'response') as [IncomingMessage]
      t.equal(response.statusCode, 401)
      request.destroy()
    }
    t.equal(up.requests.length, before)
  })
})

t.test('a client whose body is too large, or stalls, behind the head of an answer is to blame for its end', async (t) => {
  const server = createHttpServer((request, response) => {
    response.writeHead(200)
    request.pipe(response)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const gw = await gateway(t,
    forwardYaml(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { server: 'body_limit: 1MB',
      timeouts: 'body_idle: 1s' }).replace(CALM, 'breaker: { failures: 1 }'))
  for (const [what, code] of [['too large', 'request_too_large'], ['stalls', 'bad_request'], ['too large',
    'request_too_large']] as const) {
    const request = start(gw.url, '/v1/echo', { method: 'POST', headers: { 'transfer-encoding': 'chunked' } })
    request.write('first')
    const [response] = await once(request, 'response') as [IncomingMessage]
    t.equal(response.statusCode, 200, 'the breaker is closed')
    if (what === 'too large') request.write(Buffer.alloc(2_000_000))
    t.equal((await read(response)).isWhole, false)
    request.destroy()
    t.match(await finished(gw), { outcome: 'interrupted', by: 'gateway', code })
  }
  await charged(t, gw)
})

t.test('a client that waits for its turn', async (t) => {
  const LARGE = 1_000_000
  const rest = Promise.withResolvers<void>()
  const { gw, up } = await forwarding(t,
    ({ path }) => path === '/v1/echo' ? json({ ok: true }) : [wait(rest.promise), json({})], {
    upstream: 'limits: { concurrency: 1, queue: 10, queue_timeout: 1m }',
    server: 'body_limit: 3MB\n  body_memory: 4MB',
    timeouts: 'body_idle: 1s'
  })
  const waiting = (): number => gw.services.upstreams.queues.view()[0]?.waiting ?? 0
  const comes = async (count: number): Promise<void> => { while (waiting() !== count) await setImmediate() }
  const running = ask(gw.url, '/v1/files/first')
  while (up.requests.length === 0) await setImmediate()

  await t.test('leaves the queue when it leaves, however much it has sent', async (t) => {
    for (const size of [10, 300_000, 2_000_000]) {
      for (const end of ['destroy', 'resetAndDestroy'] as const) {
        const socket = rawSocket(t, gw.url)
        socket.write(`POST /v1/echo HTTP/1.1\r\nhost: x\r\nx-api-key: ${KEY}\r\ncontent-length: ${size}\r\n\r\n`)
        await new Promise<void>((resolve) => { socket.write('x'.repeat(size), () => { resolve() }) })
        await comes(1)
        socket[end]()
        t.match(await finished(gw), { outcome: 'failed', code: 'client_closed' })
        t.equal(waiting(), 0)
      }
    }
    t.equal(gw.server.bodyMemory.used, 0)
  })
  await t.test('is refused at once for a body that is too large, stalls or does not fit any more', async (t) => {
    for (const [body, status, code] of [[[Buffer.alloc(2_000_000), Buffer.alloc(2_000_000)], 413, 'request_too_large'],
      [undefined, 408, 'bad_request']] as const) {
      const request = start(gw.url, '/v1/echo', { method: 'POST',
        ...(body === undefined ? { headers: { 'content-length': '100' } } : { body }) })
      request.flushHeaders()
      const [response] = await once(request, 'response') as [IncomingMessage]
      t.equal(response.statusCode, status)
      t.equal(errorOf(t, await read(response)).code, code)
      request.destroy()
      await finished(gw)
    }
    const others = [1, 2].map(() => ask(gw.url, '/v1/echo', { method: 'POST', body: Buffer.alloc(LARGE * 1.8) }))
    while (gw.server.bodyMemory.used < LARGE * 3.6) await setImmediate()
    const got = await ask(gw.url, '/v1/echo', { method: 'POST', body: Buffer.alloc(LARGE) })
    t.strictSame([got.status, errorOf(t, got).code], [429, 'queue_full'])
    await finished(gw)
    t.equal(waiting(), 2)
    rest.resolve()
    t.equal((await running).status, 200)
    for (const other of others) t.equal((await other).status, 200)
    for (let i = 0; i < 3; i++) await finished(gw)
    t.strictSame(up.requests.slice(1).map(({ bytes }) => bytes.length), [LARGE * 1.8, LARGE * 1.8])
    t.equal(gw.server.bodyMemory.used, 0)
  })
  await t.test('is told to go on where it asks, and what it sends arrives as it was', async (t) => {
    const over = Promise.withResolvers<void>()
    const second = await forwarding(t,
      ({ path }) => path === '/v1/echo' ? json({ ok: true }) : [wait(over.promise), json({})], {
      upstream: 'limits: { concurrency: 1, queue: 1, queue_timeout: 1m }'
    })
    const first = ask(second.gw.url, '/v1/files/first')
    while (second.up.requests.length === 0) await setImmediate()
    const body = randomBytes(LARGE)
    const request = start(second.gw.url, '/v1/echo', { method: 'POST',
      headers: { expect: '100-continue', 'content-length': String(LARGE) } })
    request.flushHeaders()
    await once(request, 'continue')
    const refused = start(second.gw.url, '/v1/echo', { method: 'POST',
      headers: { expect: '100-continue', 'content-length': String(LARGE) } })
    let isTold = false
    refused.on('continue', () => { isTold = true }).flushHeaders()
    const [refusal] = await once(refused, 'response') as [IncomingMessage]
    t.strictSame([refusal.statusCode, isTold], [429, false])
    refused.destroy()
    request.write(body.subarray(0, LARGE / 2))
    while (second.gw.server.bodyMemory.used < LARGE / 2) await setImmediate()
    over.resolve()
    request.end(body.subarray(LARGE / 2))
    const [response] = await once(request, 'response') as [IncomingMessage]
    t.equal(response.statusCode, 200)
    response.resume()
    t.equal((await first).status, 200)
    t.equal(sha256(second.up.requests[1]!.bytes), sha256(body))
    t.equal(second.gw.server.bodyMemory.used, 0)
  })
})

t.test('a route with a pipeline of its own still meters, and shapes its errors', async (t) => {
  const { gw } = await forwarding(t,
    ({ path }) => path.endsWith('/bad') ? errorReply(429, 'rate_limit_error', 'slow') : json({ ok: true }), {
    routes:
      'routes:\n  - { match: "GET /v1/own/*", forward: u0, price: { usd: 0.25 }, pipeline: [auth] }\n  - { match: "GET /v1/open/*", forward: u0, price: free, pipeline: [] }\n'
  })
  t.equal((await ask(gw.url, '/v1/own/a')).status, 200)
  await finished(gw)
  t.equal(await charged(t, gw), 250_000_000n)
  const got = await ask(gw.url, '/v1/own/bad')
  t.equal(got.status, 503)
  t.equal(errorOf(t, got).code, 'model_overloaded')
  await finished(gw)
  t.equal(await charged(t, gw), 250_000_000n)
  const open = await ask(gw.url, '/v1/open/bad', { headers: { 'x-api-key': '' } })
  t.equal(open.status, 503)
  t.equal(errorOf(t, open).code, 'model_overloaded')
})

t.test('an answer that a plugin refuses is let go upstream, and costs nothing', async (t) => {
  const up = await upstream(t, [status(200, { 'content-length': '1000' }), raw('abc'), stall()])
  const gw = await gateway(t,
    forwardYaml(up.url).replace('billing-meter, error-normalize]',
      'billing-meter, { use: ./refuse.ts }, error-normalize]'), {
    files: {
      'refuse.ts': 'export default { name: "refuse", create: () => ({ onReply () { throw new Error("no") } }) }'
    }
  })
  const got = await ask(gw.url, '/v1/echo')
  t.equal(got.status, 500)
  t.equal(errorOf(t, got).code, 'server_error')
  t.equal(await (await up.nextRequest()).closed, 'left')
  await finished(gw)
  t.equal(await charged(t, gw), 0n)
})

t.test('a reload that removes the upstream does not cut a download from it', async (t) => {
  const reloaded = Promise.withResolvers<void>()
  const up = await upstream(t, [status(200, { 'content-length': '6' }), raw('abc'), wait(reloaded.promise), raw('def')])
  const other = await upstream(t, json({ ok: true }))
  const gw = await gateway(t, forwardYaml(up.url))
  const request = start(gw.url, '/v1/echo')
  request.end()
  const [response] = await once(request, 'response') as [IncomingMessage]
  t.equal(response.headers['x-gateway-config-generation'], '1')
  await gw.rewrite(yaml([other.url]).replaceAll('u0', 'another'))
  t.equal(gw.live.current().generation, 2)
  t.equal((await ask(gw.url, '/v1/echo')).status, 404, 'the new configuration is live')
  reloaded.resolve()
  const got = await read(response)
  t.equal(got.bytes.toString(), 'abcdef')
  t.ok(got.isWhole)
  t.match(await finished(gw), { outcome: 'completed', config_generation: 1, nanos: PRICE.toString() })
})

t.test('every registered route that can cost money leaves a ledger row', async (t) => {
  const { gw } = await forwarding(t, (request) => request.path === '/v1/messages' ? answer('hi') : json({ ok: true }), {
    routes: ROUTES +
      '  - { match: "POST /v1/embeddings", forward: u0, price: { usd: 0.5 }, pipeline: [auth] }\n  - { match: "POST /v1/again", serve: messages }\n'
  })
  const { all } = gw.live.current().routes
  t.ok(all.length >= 6, 'the routes of the test and the shipped ones')
  const owed: { readonly route: string, readonly id: string }[] = []
  const send = async (route: string, method: string, path: string, body?: unknown): Promise<void> => {
    const got = await ask(gw.url, path, { method, headers: { 'content-type': 'application/json' },
      ...(body !== undefined && { body: Buffer.from(JSON.stringify(body)) }) })
    t.equal(got.status, 200, `${method} ${path}`)
    owed.push({ route, id: got.headers['x-request-id'] as string })
  }
  for (const { name, methods, path, endpoint } of all) {
    switch (endpoint.kind) {
      case 'local':
        break // the gateway answers, no upstream is asked
      case 'download':
        break // of a video that was charged when it was completed: videos.test.ts
      case 'forward':
        for (const method of methods) await send(name, method, path.replace('*', 'a/b'))
        break
      case 'model':
        // images.test.ts and videos.test.ts: charged by what they give
        if (endpoint.modality !== undefined && endpoint.modality !== 'text') {
          break
        }
        for (const method of methods) {
          // A summary comes whole.
          for (const stream of endpoint.compacts === true ? [false] : [false, true]) {
            const { messages, ...rest } = messagesRequest
            const said = endpoint.style.conversation === 'input' ? { input: messages } : { messages }
            await send(name, method, path, { ...rest, ...said, stream })
          }
        }
        break
      default: t.fail(`a kind of route that this test does not know: ${JSON.stringify(endpoint)}`)
    }
  }
  for (let i = 0; i < owed.length; i++) await finished(gw)
  const entries = await settlements(gw)
  for (const { route, id } of owed) {
    const rows = entries.filter(({ reference, kind }) => reference === id && kind === 'settle')
    t.equal(rows.length, 1, `${route}: one row`)
    const endpoint = all.find(({ name }) => name === route)!.endpoint
    if (endpoint.kind === 'forward') t.equal(-rows[0]!.nanos, flatCost(endpoint.price), route)
    else t.ok(rows[0]!.nanos < 0n, route)
  }
  t.equal(entries.length, owed.length)
})
