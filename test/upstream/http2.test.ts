// HTTP/2 to upstreams that offer it, where it is asked for: what undici makes of it, against a real server.
import { EventEmitter, once } from 'node:events'
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse,
  type ServerHttp2Session } from 'node:http2'
import { createServer, type Server } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { client, fate, said, type Received } from '../support/client.ts'
import { gateway, messagesRequest, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { authority, both, causes, events, last, listening, NANOS, reaching, readAll,
  serve } from '../support/transport.ts'
import { message } from '../support/upstream.ts'

interface H2 {
  readonly url: string
  readonly sessions: readonly ServerHttp2Session[]
}

async function h2 (
  t: Test,
  listener: (request: Http2ServerRequest, response: Http2ServerResponse) => unknown,
  options = {}
): Promise<H2> {
  const sessions: ServerHttp2Session[] = []
  const server = createSecureServer({ ...authority.issue('127.0.0.1'), allowHTTP1: true, ...options },
    (request, response) => {
      response.stream?.on('error', () => {})
      void listener(request, response)
    })
  server.on('session', (session) => {
    sessions.push(session)
    session.on('error', () => {})
  })
  const url = `https://127.0.0.1:${await listening(t, server as unknown as Server, () => {
    for (const session of sessions) { session.destroy() }
    server.close()
  })}`
  return { url, sessions }
}

t.test('HTTP/2', async (t) => {
  const files = { 'ca.pem': authority.ca }
  const over = async (t: Test, url: string, more = ', http2: auto'): Promise<TestGateway> =>
    await gateway(t,
      reaching(url, `tls: { ca: "\${file:ca.pem}" }${more}`).replace('max_output: 64000', 'max_output: 4000000'), {
      files
    })

  await t.test('is spoken where it is offered, many requests on one connection; forward routes speak HTTP/1.1', async (t) => {
    const versions: string[] = []
    const { url, sessions } = await h2(t, async (request, response) => {
      versions.push(request.httpVersion)
      await serve(request, response)
    })
    const gw = await over(t, url)
    for (const { status } of await both(gw)) t.equal(status, 200)
    t.strictSame(versions.splice(0), ['2.0', '1.1'])
    const all = await Promise.all(
      Array.from({ length: 30 },
        async (_, i) => await (await gw.messages({ ...messagesRequest, stream: i % 2 === 0 })).text())
    )
    t.ok(all.every((text) => text.includes('hi')))
    t.ok(versions.every((version) => version === '2.0'))
    t.equal(sessions.length, 1)
    const off = await over(t, url, '')
    for (const { status } of await both(off)) t.equal(status, 200)
    t.strictSame(versions.slice(-2), ['1.1', '1.1'])
  })

  await t.test('events arrive one by one, and a large body is taken while another answer streams', async (t) => {
    const rest = Promise.withResolvers<void>()
    let taken = 0
    const { url } = await h2(t, async (request, response) => {
      const body = await readAll(request)
      if (body.length > 100_000) {
        taken = body.length
        response.writeHead(200, { 'content-type': 'application/json' })
        response.end(JSON.stringify(message('large')))
        return
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const event of events('first')) response.write(event)
      await rest.promise
      response.end(Buffer.concat(last))
    })
    const gw = await over(t, url)
    const call = client(t, gw).post({ ...messagesRequest, stream: true })
    await call.sees('first')
    const large = await gw.messages({ ...messagesRequest,
      messages: [{ role: 'user', content: 'x'.repeat(2_000_000) }] })
    t.equal(large.status, 200)
    t.ok(taken > 2_000_000)
    rest.resolve()
    t.equal(said((await call.whole()).text), 'first')
  })

  await t.test('a client that leaves resets its stream, and no other', async (t) => {
    const rest = Promise.withResolvers<void>()
    const left = new EventEmitter()
    const { url, sessions } = await h2(t, async (request, response) => {
      await readAll(request)
      response.stream.on('aborted', () => { left.emit('left') })
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const event of events('first')) response.write(event)
      await rest.promise
      if (!response.stream.destroyed) response.end(Buffer.concat(last))
    })
    const gw = await over(t, url)
    const stays = client(t, gw).post({ ...messagesRequest, stream: true })
    const leaves = client(t, gw).post({ ...messagesRequest, stream: true })
    await Promise.all([stays.sees('first'), leaves.sees('first')])
    const gone = once(left, 'left')
    leaves.leave()
    await gone
    rest.resolve()
    const whole = await stays.whole()
    t.ok(whole.isWhole)
    t.equal(said(whole.text), 'first')
    t.equal((await fate(gw, whole.id)).charged, NANOS)
    t.equal(sessions.length, 1)
  })

  await t.test('a slow client stops its own stream, and not those beside it', async (t) => {
    const piece = 'x'.repeat(16_000)
    const total = 2000
    let sent = 0
    const { url, sessions } = await h2(t, async (request, response) => {
      const { max_tokens: asked } = JSON.parse((await readAll(request)).toString()) as { max_tokens: number }
      if (asked !== 4_000_000) { await serveAgain(response); return }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const [start, block] = events('')
      response.write(Buffer.concat([start!, block!]))
      for (; sent < total && !response.stream.destroyed; sent++) {
        if (!response.write(events(piece)[2]!)) {
          await Promise.race([once(response, 'drain'), once(response.stream, 'close')])
        }
      }
      if (!response.stream.destroyed) response.end(Buffer.concat(last))
    })
    const serveAgain = async (response: Http2ServerResponse): Promise<void> => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end(Buffer.concat([...events('quick'), ...last]))
    }
    const gw = await over(t, url)
    const slow = client(t, gw).post({ ...messagesRequest, max_tokens: 4_000_000, stream: true })
    await slow.stopReading()
    // "Sends no more" can only be seen by waiting; too short a wait lets a bad gateway pass, never a good one fail.
    for (let before = -1; before !== sent;) { before = sent; await setTimeout(200) }
    t.ok(sent < total / 2, `${sent} of ${total} events could be sent`)
    const quick = await client(t, gw).post({ ...messagesRequest, stream: true }).whole()
    t.equal(said(quick.text), 'quick')
    t.equal(sessions.length, 1, 'beside it on the same connection')
    slow.leave()
  })

  await t.test('GOAWAY: what runs runs on, what comes goes elsewhere, and nothing is lost', async (t) => {
    const rest = Promise.withResolvers<void>()
    const { url, sessions } = await h2(t, async (request, response) => {
      const body = JSON.parse((await readAll(request)).toString()) as { stream?: boolean }
      if (body.stream !== true) {
        response.writeHead(200, { 'content-type': 'application/json' })
        response.end(JSON.stringify(message('next')))
        return
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const event of events('first')) response.write(event)
      await rest.promise
      response.end(Buffer.concat(last))
    })
    const gw = await over(t, url)
    const call = client(t, gw).post({ ...messagesRequest, stream: true })
    await call.sees('first')
    sessions[0]!.close()                                      // sends GOAWAY, and lets its streams end
    // undici would let it wait until they have
    for (let i = 0; i < 3; i++) t.equal((await gw.messages(messagesRequest)).status, 200)
    rest.resolve()
    const whole = await call.whole()
    t.ok(whole.isWhole)
    t.equal(said(whole.text), 'first')
    t.equal((await fate(gw, whole.id)).charged, NANOS)
    await until(() => sessions[0]!.destroyed)
    t.equal((await gw.messages(messagesRequest)).status, 200)
    t.equal((await gw.services.store.balance('acme')).balance, 100_000_000_000n - 5n * NANOS)
  })

  await t.test('a connection that is cut ends every stream on it in-band, for what was produced, and the next request is served', async (t) => {
    let isSilent = true
    const { url, sessions } = await h2(t, async (request, response) => {
      if (!isSilent) { await serve(request, response); return }
      await readAll(request)
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const event of events('first')) response.write(event)
    })
    const gw = await over(t, url)
    const calls = [1, 2, 3].map(() => client(t, gw).post({ ...messagesRequest, stream: true }))
    await Promise.all(calls.map((call) => call.sees('first')))
    sessions[0]!.socket.destroy()
    for (const call of calls) {
      const whole: Received = await call.whole()
      t.ok(whole.isWhole)
      // node tells a cut session as streams that end: that it was not the end of the answer is for the dialect to see.
      t.match(whole.text, /event: error\n.*(?:upstream_stream_interrupted|stream_incomplete)/)
      t.match((await fate(gw, whole.id)).line, { outcome: 'interrupted', by: 'upstream' })
    }
    isSilent = false
    t.equal((await gw.messages(messagesRequest)).status, 200)
  })

  await t.test('a burst on an upstream that does not answer TLS fails together, not one after the other', async (t) => {
    let connections = 0
    const server = createServer((socket) => {
      connections++
      socket.resume().on('error', () => {})
    })
    const gw = await gateway(t,
      reaching(`https://127.0.0.1:${await listening(t, server)}`, 'http2: auto, timeouts: { connect: 1s }'))
    const all = await Promise.all(Array.from({ length: 20 }, async () => (await gw.messages(messagesRequest)).status))
    t.ok(all.every((status) => status === 502))
    // Of those that come while it is tried nobody tries again by itself.
    t.ok(connections < 10, `${connections} connections`)
    t.ok(causes(gw).every((cause) => String(cause).startsWith('connect_timeout')))
  })
})
