// The race that every kept connection can lose: the upstream closes it at the moment when the next request is written.
import { createServer, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { connectionsOf } from '../../src/upstream/pool.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { authority, both, listening, NANOS, reaching, ROUTE, secure, serve } from '../support/transport.ts'
import { message } from '../support/upstream.ts'

const IMAGE_MODEL = `  - id: nano
    kind: image
    provider: acme
    created: 2025-11-20
    channels: { premium: { price: [{ usd: 0.04 }], targets: [{ upstream: painter, model: nano }] } }`

t.test('a connection that waited and is closed as its next request is written', async (t) => {
  const answerWhole = (socket: Socket): void => {
    const body = JSON.stringify(message('hi'))
    socket.write(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
  }
  /** Answers the first request of each connection; then does what is wanted. */
  const racing = async (
    t: Test,
    then: (socket: Socket) => void,
    first: (socket: Socket) => void = answerWhole
  ): Promise<{ readonly url: string, readonly seen: () => number }> => {
    let seen = 0
    const server = createServer((socket) => {
      let asked = 0
      let text = ''
      socket.on('data', (chunk) => {
        text += String(chunk)
        const end = text.indexOf('\r\n\r\n')
        if (end === -1 || text.length - end - 4 < Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0)) return
        text = ''
        seen++
        if (asked++ === 0) first(socket)
        else then(socket)
      })
    })
    return { url: `http://127.0.0.1:${await listening(t, server)}`, seen: () => seen }
  }
  const forwarded = async (gw: TestGateway, init: RequestInit = {}): Promise<number> => {
    const response = await fetch(`${gw.url}/v1/files/a`, { ...init,
      headers: { 'x-api-key': KEY, ...init.headers as Record<string, string> } })
    await response.arrayBuffer()
    // Its connection waits for the next request before that comes.
    await until(() =>
      Object.values(connectionsOf(gw.live.current().upstreams.get('u0')!).agent.sockets).flat().length === 0
    )
    return response.status
  }

  for (const [how, then] of [['closed', (socket: Socket) => {
    socket.end()
  }], ['reset', (socket: Socket) => {
    socket.resetAndDestroy()
  }]] as const) {
    await t.test(`${how}: a model is asked once more, on a new connection, and paid once`, async (t) => {
      const { url, seen } = await racing(t, then)
      const gw = await gateway(t, yaml([url], ROUTE))
      for (let i = 0; i < 3; i++) t.equal((await gw.messages(messagesRequest)).status, 200)
      t.ok(seen() >= 4, `${seen()} requests were seen`)
      await until(() => gw.logged.filter(({ msg }) => msg === 'request').length === 3)
      t.ok(
        gw.logged.filter(({ msg }) => msg === 'request').every((line) =>
          line['attempts'] === 1 && line['code'] === 'ok'
        )
      )
      t.strictSame(await gw.services.store.balance('acme'), { balance: 100_000_000_000n - 3n * NANOS, held: 0n,
        open_holds: 0 })
    })
    await t.test(`${how}: of a forward route a GET is asked once more, a POST is not`, async (t) => {
      const { url, seen } = await racing(t, then)
      const gw = await gateway(t, yaml([url], ROUTE))
      t.equal(await forwarded(gw), 200)
      t.equal(await forwarded(gw), 200)
      t.equal(seen(), 3)
      t.equal((await gw.services.store.balance('acme')).balance, 100_000_000_000n - 2n * 1_000_000n)
      const posting = await racing(t, then)
      const other = await gateway(t, yaml([posting.url], ROUTE))
      t.equal(await forwarded(other), 200)
      t.equal(await forwarded(other, { method: 'POST', body: 'x' }), 502)
      t.equal(posting.seen(), 2)
      t.equal(await forwarded(other), 200)
      t.equal(await forwarded(other, { method: 'POST', headers: { 'idempotency-key': 'k' } }), 200,
        'but one without a body that says it may be')
    })
  }
  for (const [how, largeBody] of [['a small body', Infinity], ['a large one, which a thread reads', 1]] as const) {
    await t.test(`an image is not asked for again, with ${how}: it may have been made`, async (t) => {
      const { url, seen } = await racing(t, (socket) => { socket.end() })
      const gw = await gateway(t, yaml([url], `${ROUTE}
  - { match: POST /v1/images/generations, serve: images-generations }`)
        .replace('upstreams:', `upstreams:\n  painter: { url: ${url}, dialect: images, headers: { x-api-key: k } }`)
        .replace('models:', 'models:\n' + IMAGE_MODEL), { largeBody })
      t.equal((await gw.messages(messagesRequest)).status, 200)
      t.equal(
        (await fetch(`${gw.url}/v1/images/generations`, { method: 'POST',
          headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
          body: '{"model":"nano","prompt":"a cat"}' })).status,
        502
      )
      t.equal(seen(), 2)
    })
  }
  await t.test('over TLS too', async (t) => {
    const seen = new WeakMap<object, number>()
    let requests = 0
    const { url } = await secure(t, authority.issue('127.0.0.1'), async (request, response) => {
      requests++
      const before = seen.get(request.socket) ?? 0
      seen.set(request.socket, before + 1)
      if (before > 0) request.socket.destroy()
      else await serve(request, response)
    })
    const gw = await gateway(t, reaching(url, 'tls: { ca: "${file:ca.pem}" }'), { files: { 'ca.pem': authority.ca } })
    for (let i = 0; i < 3; i++) for (const { status } of await both(gw)) t.equal(status, 200)
    t.ok(requests > 6, `${requests} requests were seen`)
  })
  await t.test('a new connection that is closed is not asked again', async (t) => {
    const { url, seen } = await racing(t, () => {}, (socket) => { socket.resetAndDestroy() })
    const gw = await gateway(t, yaml([url], ROUTE))
    t.equal((await gw.messages(messagesRequest)).status, 502)
    t.equal(await forwarded(gw), 502)
    t.equal(seen(), 2)
  })
  await t.test('one that has begun to answer is not asked again', async (t) => {
    const { url, seen } = await racing(t, (socket) => { socket.end('HTTP/1.1 200 OK\r\nx-a') })
    const gw = await gateway(t, yaml([url], ROUTE))
    t.equal((await gw.messages(messagesRequest)).status, 200)
    t.equal((await gw.messages(messagesRequest)).status, 502)
    t.equal(seen(), 2)
    t.equal(await forwarded(gw), 200)
    t.equal(await forwarded(gw), 502)
    t.equal(seen(), 4)
  })
  await t.test('one that took its time before it closed may have worked: it is not asked again', async (t) => {
    const { url, seen } = await racing(t, (socket) => {
      void setTimeout(1100).then(() => {
        socket.resetAndDestroy()
      })
    })
    const gw = await gateway(t, yaml([url], ROUTE))
    t.equal((await gw.messages(messagesRequest)).status, 200)
    t.equal((await gw.messages(messagesRequest)).status, 502)
    t.equal(seen(), 2)
  })
  await t.test('a second race is not run', async (t) => {
    let isLost = false
    const { url, seen } = await racing(t, (socket) => { isLost = true; socket.resetAndDestroy() }, (socket) => {
      if (isLost) socket.resetAndDestroy()
      else answerWhole(socket)
    })
    const gw = await gateway(t, yaml([url], ROUTE))
    t.equal((await gw.messages(messagesRequest)).status, 200)
    t.equal((await gw.messages(messagesRequest)).status, 502)
    t.equal(seen(), 3)
  })
})
