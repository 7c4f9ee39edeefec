// Nothing goes on for ever, and nothing that moves is cut: ends that peers do not make, and clients that are slow but
// there.
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, messageEnd, messageStart, raw, sse, stall, status, textBlock, upstream,
  wait } from '../support/upstream.ts'

const stream = { ...messagesRequest, stream: true }

t.test('an error whose body never ends is an error all the same, and the next target answers', async (t) => {
  const drip = Promise.withResolvers<void>()
  const endless = [status(500, { 'content-type': 'text/html' }),
    ...Array.from({ length: 200 }, () => [raw('x'.repeat(1024)), wait(1)]), wait(drip.promise)]
  const bad = await upstream(t, endless)
  const silent = await upstream(t, [status(503), raw('{"err'), stall()])
  const good = await upstream(t, answer('from the third'))
  const own = await gateway(t,
    yaml([bad.url, silent.url, good.url]).replaceAll('dialect: messages,',
      'dialect: messages, timeouts: { idle: 300ms },'))
  t.match(await (await own.messages(messagesRequest)).json(), { content: [{ text: 'from the third' }] })
  drip.resolve()
})

t.test('an upstream that talks on after message_stop is let go', async (t) => {
  const chatter = (): ReturnType<typeof raw>[] =>
    Array.from({ length: 10_000 }, () => [raw(': still here\n\n'), wait(20)]).flat()
  const up = await upstream(t, [messageStart(), textBlock(0, 'all'), messageEnd(), chatter()])
  const own = await gateway(t, yaml([up.url]))
  t.match(await (await own.messages(stream)).text(), 'message_stop')
  t.equal(await up.requests[0]!.closed, 'left')
})

t.test('a slow client that keeps reading gets all of a large event, and of a forwarded download', async (t) => {
  const large = 'y'.repeat(6_000_000)
  const up = await upstream(t, ({ path }) =>
    path === '/v1/files/a'
      ? [status(200, { 'content-type': 'application/octet-stream' }), raw(large)]
      : [messageStart(), textBlock(0, 'first'),
        sse('content_block_delta', { type: 'content_block_delta', index: 0,
          delta: { type: 'text_delta', text: large } }), messageEnd()])
  const own = await gateway(t,
    yaml([up.url], 'routes:\n  - { match: "GET /v1/files/*", forward: u0, price: { usd: 0.5 } }').replace(
      'hold_head: 10s',
      'write_stall: 4s'
    ).replace('max_output: 64000', 'max_output: 1000000'))
  const body = JSON.stringify({ ...stream, max_tokens: 1_000_000 })
  const requests = {
    event:
      `POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: ${KEY}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    download: `GET /v1/files/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: ${KEY}\r\n\r\n`
  }
  for (const [name, request] of Object.entries(requests)) {
    await t.test(name, async (t) => {
      const { hostname, port } = new URL(own.url)
      const socket = connect(Number(port), hostname)
      t.teardown(() => socket.destroy())
      let size = 0
      socket.on('data', (chunk: Buffer) => {
        size += chunk.length
        socket.pause()
        setTimeout(() => { socket.resume() }, 50)               // far less than write_stall, and more in sum
      })
      socket.write(request)
      await once(socket, 'close')
      t.ok(size > large.length, `${size} bytes`)
      const line = (): Record<string, unknown> | undefined => own.logged.findLast(({ msg }) => msg === 'request')
      await until(() => line()?.['route'] === (name === 'event' ? 'POST /v1/messages' : 'GET /v1/files/*'))
      t.equal(line()!['outcome'], 'completed')
    })
  }
})

t.test('a forwarded download that a drain cuts was not left by its client, and costs nothing', async (t) => {
  const up = await upstream(t, [status(200, { 'content-length': '1000' }), raw('abc'), stall()])
  const own = await gateway(t,
    yaml([up.url], 'routes:\n  - { match: "GET /v1/files/*", forward: u0, price: { usd: 0.5 } }'))
  const got = await fetch(own.url + '/v1/files/a', { headers: { 'x-api-key': KEY } })
  t.equal(got.status, 200)
  await Promise.all([t.rejects(got.text()), own.server.stop()])
  t.match(own.logged.find(({ msg }) => msg === 'request'), { outcome: 'interrupted', by: 'gateway' })
  t.match(await own.services.store.balance('acme'), { balance: 100_000_000_000n, open_holds: 0 })
})

t.test('what the log says of a stream that failed behind its held head is what the client read', async (t) => {
  const late = Promise.withResolvers<void>()
  const up = await upstream(t, [wait(late.promise), status(500)])
  const own = await gateway(t, yaml([up.url]).replace('hold_head: 10s', 'hold_head: 50ms'))
  const got = await own.messages(stream)
  t.equal(got.status, 200)
  late.resolve()
  t.match(await got.text(), /event: error\n/)
  const request = (): Record<string, unknown> | undefined => own.logged.find(({ msg }) => msg === 'request')
  await until(() => request() !== undefined)
  t.match(request(), { status: 200, outcome: 'failed', code: 'server_error' })
})

t.test('what would cost more than its price is refused, unless it has one', async (t) => {
  const up = await upstream(t, answer('hi'))
  const own = await gateway(t, yaml([up.url]))
  const refused = [
    { speed: 'fast' },
    { service_tier: 'priority' },
    { inference_geo: 'us' },
    { container: 'c' },
    { mcp_servers: [{ url: 'https://x' }] },
    { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
    { tools: [{ name: 'mine', input_schema: {} }, { type: 'code_execution_20250825', name: 'x' }] }
  ]
  for (const more of refused) {
    const got = await own.messages({ ...messagesRequest, ...more })
    t.equal(got.status, 400, JSON.stringify(more))
    t.match(await got.json(), { error: { type: 'invalid_request_error', details: { error_code: 'invalid_request' } } })
  }
  t.equal(up.requests.length, 0)
  for (const more of [{ speed: 'standard' }, { service_tier: 'auto' }, {
    tools: [{ type: 'bash_20250124', name: 'bash' }]
  }, { mcp_servers: [] }]) {
    t.equal((await own.messages({ ...messagesRequest, ...more })).status, 200, JSON.stringify(more))
  }
  const priced = await gateway(t,
    yaml([up.url]).replace('cache_write: 3.75', 'cache_write: 3.75, extras: { web_search: 0.01 }'))
  t.equal(
    (await priced.messages({ ...messagesRequest,
      tools: [{ type: 'web_search_20250305', name: 'web_search', max_uses: 3 }] })).status,
    200
  )
  t.equal(
    (await priced.messages({ ...messagesRequest, tools: [{ type: 'web_search_20250305', name: 'web_search' }] }))
      .status,
    400,
    'so often that nobody knows what it costs'
  )
  for (const type of ['constructor', 'toString_20250305']) {
    t.equal((await priced.messages({ ...messagesRequest, tools: [{ type, name: 'x' }] })).status, 400,
      `what every object has is no price: ${type}`)
  }
})

t.test('values of a body are not echoed', async (t) => {
  const own = await gateway(t, yaml([(await upstream(t, answer('hi'))).url]))
  const got = await own.messages({ ...messagesRequest, stream: { data: 'A'.repeat(70_000) } })
  t.equal(got.status, 400)
  t.notMatch(await got.text(), /blob|AAAA/)
})
