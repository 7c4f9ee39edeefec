// How upstreams are reached, on real sockets: TLS both ways, through a proxy, where DNS says now; and how connections
// end.
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer as createHttpServer, type ServerResponse } from 'node:http'
import { connect, createServer, type LookupFunction } from 'node:net'
import path from 'node:path'
import { setImmediate } from 'node:timers/promises'
import type { TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { UpstreamCall } from '../../src/upstream/transport/call.ts'
import { connectionsOf, Upstreams } from '../../src/upstream/pool.ts'
import { client, said } from '../support/client.ts'
import { upstreamConfig } from '../support/exchange.ts'
import { gateway, messagesRequest, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { authority, both, causes, events, last, listening, reaching, secure, serve } from '../support/transport.ts'
import { json, message, sse, upstream } from '../support/upstream.ts'

t.test('TLS', async (t) => {
  const files = { 'ca.pem': authority.ca }
  const CA = 'ca: "${file:ca.pem}"'

  await t.test('an authority of its own is believed where it is configured, and only there', async (t) => {
    const { url } = await secure(t, authority.issue('127.0.0.1'))
    const trusting = await gateway(t, reaching(url, `tls: { ${CA} }`), { files })
    for (const { status } of await both(trusting)) t.equal(status, 200)
    const doubting = await gateway(t, reaching(url, 'http2: "off"'))
    for (const { status } of await both(doubting)) t.equal(status, 502)
    t.strictSame(
      causes(doubting), ['refused: UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'refused: UNABLE_TO_VERIFY_LEAF_SIGNATURE']
    )
    t.equal((await doubting.services.store.balance('acme')).balance, 100_000_000_000n)
  })

  await t.test('the name in the certificate is checked; server_name says which, and is asked for', async (t) => {
    const { url, sockets } = await secure(t, authority.issue('vendor.internal'))
    const named = await gateway(t, reaching(url, `tls: { ${CA}, server_name: vendor.internal }`), { files })
    for (const { status } of await both(named)) t.equal(status, 200)
    t.ok(sockets.every(({ servername }) => (servername as unknown) === 'vendor.internal'))
    const unnamed = await gateway(t, reaching(url, `tls: { ${CA} }`), { files })
    for (const { status } of await both(unnamed)) t.equal(status, 502)
    t.strictSame(causes(unnamed), ['refused: ERR_TLS_CERT_ALTNAME_INVALID', 'refused: ERR_TLS_CERT_ALTNAME_INVALID'])
  })

  await t.test('our certificate is shown; a new one in its file is shown from the next request on', async (t) => {
    const seen: string[] = []
    const { url } = await secure(t, {
      ...authority.issue('127.0.0.1'),
      ca: authority.ca,
      requestCert: true,
      rejectUnauthorized: true
    }, async (request, response) => {
      seen.push((request.socket as TLSSocket).getPeerCertificate().subject.CN as string)
      await serve(request, response)
    })
    const first = authority.issue('gateway-1')
    const gw = await gateway(t, reaching(url, `tls: { ${CA}, cert: "\${file:cert.pem}", key: "\${file:key.pem}" }`), {
      files: { ...files, 'cert.pem': first.cert, 'key.pem': first.key }
    })
    for (const { status } of await both(gw)) t.equal(status, 200)
    t.strictSame(seen.splice(0), ['gateway-1', 'gateway-1'])
    const next = authority.issue('gateway-2')
    const folder = path.dirname(gw.file)
    writeFileSync(path.join(folder, 'key.pem'), next.key)
    writeFileSync(path.join(folder, 'cert.pem'), next.cert)
    await gw.live.reload('sighup')
    await until(() => gw.live.current().config.upstreams['u0']!.tls?.cert?.trim() === next.cert.trim())
    for (const { status } of await both(gw)) t.equal(status, 200)
    t.strictSame(seen, ['gateway-2', 'gateway-2'])
    const without = await gateway(t, reaching(url, `tls: { ${CA} }`), { files })
    for (const { status } of await both(without)) t.equal(status, 502)
  })

  await t.test('the private key and the proxy\'s password are shown to nobody', async (t) => {
    const { cert, key } = authority.issue('gateway')
    const gw = await gateway(
      t,
      reaching(
        'https://127.0.0.1:9',
        `tls: { ${CA}, cert: "\${file:cert.pem}", key: "\${file:key.pem}" }, proxy: "http://me:hunter2@127.0.0.1:9"`
      ),
      { files: { ...files, 'cert.pem': cert, 'key.pem': key } }
    )
    const shown = await (await fetch(`${gw.urls.admin}/admin/v1/config`, {
      headers: { authorization: 'Bearer test-admin-token' }
    })).text()
    t.match(shown, /BEGIN CERTIFICATE/)
    t.match(shown, /http:\/\/\*\*\*@127\.0\.0\.1:9/)
    t.notMatch(shown, /PRIVATE KEY|hunter2|upstream-secret/)
    t.notMatch(JSON.stringify(gw.logged), /PRIVATE KEY|hunter2|upstream-secret/)
  })
})

t.test('an outgoing proxy', async (t) => {
  interface Asked { readonly target: string, readonly credentials: string | undefined }
  interface Proxy { readonly port: number, readonly asked: readonly Asked[] }
  const proxying = async (t: Test, answer: number | 'never' = 200): Promise<Proxy> => {
    const asked: Asked[] = []
    const server = createHttpServer((_, response) => { response.writeHead(405).end() })
    server.on('connect', ({ url = '', headers }, socket, head) => {
      socket.on('error', () => {})
      asked.push({ target: url, credentials: headers['proxy-authorization'] })
      if (answer === 'never') return
      if (answer !== 200) {
        socket.end(`HTTP/1.1 ${answer} No\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n`)
        return
      }
      const far = connect(Number(url.split(':')[1]), url.split(':')[0]!, () => {
        socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
        if (head.length > 0) far.write(head)
        far.pipe(socket).pipe(far)
      })
      far.on('error', () => { socket.destroy() })
      t.teardown(() => { far.destroy(); socket.destroy() })
    })
    return { port: await listening(t, server), asked }
  }

  await t.test('connects us to http and https, with its credentials', async (t) => {
    const plain = await upstream(t, ({ path }) => path.startsWith('/v1/files')
      ? json({ ok: true })
      : json(message('hi')))
    const { url } = await secure(t, authority.issue('127.0.0.1'))
    for (const [target, more] of [[plain.url, ''], [url, ', tls: { ca: "${file:ca.pem}" }']] as const) {
      const { port, asked } = await proxying(t)
      const gw = await gateway(t, reaching(target, `proxy: "http://me:p%40ss@127.0.0.1:${port}"${more}`), {
        files: { 'ca.pem': authority.ca }
      })
      for (const { status } of await both(gw)) t.equal(status, 200)
      const one = { target: new URL(target).host, credentials: `Basic ${Buffer.from('me:p@ss').toString('base64')}` }
      t.strictSame(asked, [one, one])
    }
    t.notMatch(
      plain.requests.flatMap(({ rawHeaders }) => rawHeaders).join(), /proxy/i, 'what is the proxy\'s stays there'
    )
  })
  await t.test('that refuses, or does not answer, or is not there: 502, named in the log, free', async (t) => {
    const plain = await upstream(t, json(message('hi')))
    const gone = createServer()
    const nowhere = await listening(t, gone)
    gone.close()
    for (const [port, cause] of [
      [(await proxying(t, 407)).port, 'refused: PROXY_407'],
      [(await proxying(t, 'never')).port, 'connect_timeout: UND_ERR_CONNECT_TIMEOUT'],
      [nowhere, 'refused: ECONNREFUSED']
    ] as const) {
      const gw = await gateway(
        t, reaching(plain.url, `timeouts: { connect: 200ms }, proxy: "http://me:hunter2@127.0.0.1:${port}"`)
      )
      for (const { status } of await both(gw)) t.equal(status, 502)
      t.strictSame(causes(gw), [cause, cause])
      t.equal((await gw.services.store.balance('acme')).balance, 100_000_000_000n)
      t.notMatch(JSON.stringify(gw.logged), /hunter2/)
    }
    t.equal(plain.requests.length, 0)
  })
})

t.test('DNS: a connection that is old enough is made anew, to where the name leads by then', async (t) => {
  const [one, two] = [await upstream(t, json(message('one'))), await upstream(t, json(message('two')))]
  const asked: string[] = []
  let now = one
  // The port is part of the URL, so a name that moves is played by the resolver: both addresses are this machine's.
  const lookup: LookupFunction = (name, { all }, callback) => {
    asked.push(name)
    if (all === true) callback(null, [{ address: now === one ? '127.0.0.1' : '127.0.0.2', family: 4 }])
    else callback(null, now === one ? '127.0.0.1' : '127.0.0.2', 4)
  }
  const port = Number(new URL(one.url).port)
  const far = createServer((socket) => {
    socket.on('error', () => {})
    const to = connect(Number(new URL(two.url).port), '127.0.0.1')
    to.on('error', () => {})
    socket.pipe(to).pipe(socket)
  })
  far.listen(port, '127.0.0.2')
  await once(far, 'listening')
  t.teardown(() => { far.close() })

  const say = async (upstreams: Upstreams, age: number): Promise<() => Promise<string>> => {
    const opened = upstreams.open(
      'u',
      upstreamConfig({
        url: `http://vendor.test:${port}`,
        timeouts: {
          connect: 1000,
          first_byte: 5000,
          idle: 5000,
          usage: 5000,
          websocket_idle: 5000,
          connection_age: age,
          total: 60_000
        }
      })
    )
    return () => new Promise<string>((resolve, reject) => {
      const chunks: Buffer[] = []
      const call = new UpstreamCall(opened, { method: 'POST', path: '/', headers: {}, body: '{}' }, {
        onHead () {},
        onData (chunk) { chunks.push(chunk) },
        onEnd () {
          resolve((JSON.parse(Buffer.concat(chunks).toString()) as { content: { text: string }[] }).content[0]!.text)
        },
        onFailure (failure) { reject(new Error(failure.kind)) }
      })
      t.teardown(() => { call.abort() })
    })
  }
  for (const [age, expected] of [[1, ['one', 'two']], [60_000, ['one', 'one']]] as const) {
    await t.test(`connection_age ${age} ms`, async (t) => {
      now = one
      asked.length = 0
      const upstreams = new Upstreams(lookup)
      t.teardown(() => upstreams.destroy())
      const ask = await say(upstreams, age)
      const got = [await ask()]
      now = two
      for (const until = Date.now() + 3; Date.now() < until;) await setImmediate()
      got.push(await ask())
      t.strictSame(got, expected)
      t.equal(asked.length, age === 1 ? 2 : 1)
      t.equal(asked[0], 'vendor.test')
    })
  }
})

t.test('a reload keeps the connections of upstreams that stay, and closes those of one that goes when its last answer is out', async (t) => {
  const rest = Promise.withResolvers<void>()
  const up = await upstream(t, ({ body }) => body?.['stream'] === true
    ? [
      sse('message_start', JSON.parse(events('')[0]!.toString().split('data: ')[1]!)),
      sse('content_block_start', { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
      sse('content_block_delta', {
        type: 'content_block_delta',
        index: 0,
        delta: { type: 'text_delta', text: 'first' }
      }),
      { run: () => rest.promise },
      ...last.map((bytes) => ({ run: ({ response }: { response: ServerResponse }) => { response.write(bytes) } }))
    ]
    : json(message('hi')))
  const gw = await gateway(t, yaml([up.url]))
  const connections = connectionsOf(gw.live.current().upstreams.get('u0')!)
  await gw.rewrite(yaml([up.url]).replace('max_output: 64000', 'max_output: 32000'))
  t.equal(connectionsOf(gw.live.current().upstreams.get('u0')!), connections)
  const call = client(t, gw).post({ ...messagesRequest, stream: true })
  await call.sees('first')
  const other = await upstream(t, json(message('other')))
  await gw.rewrite(yaml([other.url]))
  t.not(connectionsOf(gw.live.current().upstreams.get('u0')!), connections)
  t.equal((connections.pool as unknown as { closed: boolean }).closed, false, 'while it streams')
  rest.resolve()
  t.equal(said((await call.whole()).text), 'first')
  await until(() => (connections.pool as unknown as { closed: boolean }).closed)
  await until(() => connections.stats.connected === 0)
  t.equal((await gw.messages(messagesRequest)).status, 200)
})
