// The trace of a request: the client's goes on, one is begun where there is none, and upstreams that say `trace: true`
// are told. And where the time went, on every answer.
import { request as get } from 'node:http'
import { once } from 'node:events'
import fc from 'fast-check'
import t from 'tap'
import { traceHeaders, traceOf } from '../../src/core/trace.ts'
import { client } from '../support/client.ts'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, errorReply, json, upstream, type Received, type Script } from '../support/upstream.ts'
import { accept, socketUpstream } from '../support/websocket.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'
const OURS = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/
const ROUTES = `routes:
  - { match: "GET /v1/echo", forward: u0, price: free }
  - { match: "GET /v1/live", forward: u0, websocket: true, price: free }
`

const digit = fc.constantFrom(...'0123456789abcdef')
const digits = (length: number): fc.Arbitrary<string> =>
  fc.array(digit, { minLength: length, maxLength: length }).map((all) => all.join(''))
const isZero = (text: string): boolean => /^0+$/.test(text)

t.test('a trace that is well formed goes on, with a part of its own', async () => {
  const versions = digits(2).filter((version) => version !== 'ff')
  const parts = fc.tuple(versions, digits(32), digits(16), digits(2), fc.string())
  fc.assert(fc.property(parts, ([version, id, parent, flags, more]) => {
    fc.pre(!isZero(id) && !isZero(parent))
    const traceparent = `${version}-${id}-${parent}-${flags}${version === '00' ? '' : `-${more.replace(/\n/g, '')}`}`
    const trace = traceOf({ traceparent })
    const [, told, span, toldFlags] = OURS.exec(traceHeaders(trace)['traceparent']!)!
    return told === id && span !== parent && !isZero(span!) && parseInt(toldFlags!, 16) === (parseInt(flags, 16) & 3)
  }))
})

t.test('any other is none: one is begun, without the state of the other', async (t) => {
  const broken = fc.oneof(
    fc.string(),
    fc.constantFrom('', `00-${TRACE}-${PARENT}`, `ff-${TRACE}-${PARENT}-01`, `00-${'0'.repeat(32)}-${PARENT}-01`,
      `00-${TRACE}-${'0'.repeat(16)}-01`, `00-${TRACE.toUpperCase()}-${PARENT}-01`, `00-${TRACE}-${PARENT}-01-more`,
      `00-${TRACE}-${PARENT}-1`, `00-${TRACE}-${PARENT}-01, 00-${TRACE}-${PARENT}-01`, `01-${TRACE}-${PARENT}-012`)
  )
  fc.assert(fc.property(broken, (traceparent) => {
    const { traceparent: told, tracestate } = traceHeaders(traceOf({ traceparent, tracestate: 'a=b' }))
    const [, id, span, flags] = OURS.exec(told!)!
    return id !== TRACE && !isZero(id!) && !isZero(span!) && flags === '03' && tracestate === undefined
  }))
  const begun = Array.from({ length: 1000 }, () => traceOf({}))
  t.equal(new Set(begun.flatMap(({ trace_id: id, span_id: span }) => [id, span])).size, 2000)
})

t.test('a state is passed on whole, or not at all', async (t) => {
  const traceparent = `00-${TRACE}-${PARENT}-01`
  const stateOf = (tracestate: string | string[]): string | undefined =>
    traceHeaders(traceOf({ traceparent, tracestate }))['tracestate']
  t.equal(stateOf('vendor=a:1;b, other@x/y=2'), 'vendor=a:1;b,other@x/y=2')
  t.equal(stateOf(['a=1', 'b=2']), 'a=1,b=2')
  t.equal(stateOf('a=1,,b=2'), 'a=1,b=2')
  const members = (count: number): string => Array.from({ length: count }, (_, i) => `k${i}=v`).join()
  t.equal(stateOf(members(32)), members(32))
  for (const bad of ['', ',', 'a', 'A=1', 'a=', 'a=1=2', 'a=\u00e4', members(33), `${'k'.repeat(300)}=1`]) {
    t.equal(stateOf(bad), undefined, bad.slice(0, 20))
  }
})

/** One gateway in front of a vendor that is told of traces, or not. */
async function serving (t: Parameters<typeof gateway>[0], script: Script, trace = 'trace: true') {
  const vendor = await upstream(t, (received: Received) =>
    received.path.endsWith('/count_tokens') ? json({ input_tokens: 1 }) : received.method === 'GET' ? json({}) : script)
  const gw = await gateway(t, yaml([vendor.url], ROUTES).replace('dialect: messages,',
    `dialect: messages, count_tokens: true, ${trace},`))
  return { vendor, gw }
}

t.test('upstreams that want it are told, on every kind of route, and the log names the same', async (t) => {
  const { vendor, gw } = await serving(t, answer('Hi'))
  const headers = { 'x-api-key': KEY, 'content-type': 'application/json', traceparent: `00-${TRACE}-${PARENT}-01`,
    tracestate: 'a=1', baggage: 'user=1' }
  for (const [method, path, body] of [
    ['POST', '/v1/messages', messagesRequest],
    ['POST', '/v1/messages', { ...messagesRequest, stream: true }],
    ['POST', '/v1/chat/completions', { model: 'm1', messages: messagesRequest.messages }],
    ['POST', '/v1/messages/count_tokens', { model: 'm1', messages: messagesRequest.messages }],
    ['GET', '/v1/echo']
  ] as const) {
    const response = await fetch(gw.url + path, { method, headers,
      ...(body !== undefined && { body: JSON.stringify(body) }) })
    await response.arrayBuffer()
    const { headers: seen } = await vendor.nextRequest()
    const [, id, span, flags] = OURS.exec(String(seen['traceparent']))!
    t.strictSame([id, flags, seen['tracestate'], seen['baggage']], [TRACE, '01', 'a=1', undefined], path)
    const requestId = response.headers.get('x-request-id')
    await until(() => gw.logged.some((line) => line['request_id'] === requestId && line['msg'] === 'request'))
    const line = gw.logged.find((one) => one['request_id'] === requestId && one['msg'] === 'request')
    t.match(line, { trace_id: TRACE, span_id: span })
    t.not(span, PARENT)
  }
})

t.test('a WebSocket too', async (t) => {
  const far = await socketUpstream(t, (visitor) => { accept(visitor); visitor.socket.end() })
  const gw = await gateway(t, yaml([far.url], ROUTES).replace('dialect: messages,', 'dialect: messages, trace: true,'))
  const { port } = new URL(gw.url)
  const upgrade = get({ port, path: '/v1/live', headers: { 'x-api-key': KEY, connection: 'Upgrade', upgrade: 'websocket',
    'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==', 'sec-websocket-version': '13',
    traceparent: `00-${TRACE}-${PARENT}-00` } }).end()
  const [, socket] = await once(upgrade, 'upgrade') as [unknown, { destroy (): void }]
  socket.destroy()
  t.match((await far.next()).request.headers['traceparent'], new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`))
})

t.test('others are told nothing, and the log has a trace all the same', async (t) => {
  const { vendor, gw } = await serving(t, answer('Hi'), 'trace: false')
  const { post } = client(t, gw)
  const { id } = await post(messagesRequest, { traceparent: `00-${TRACE}-${PARENT}-01`, tracestate: 'a=1' }).whole()
  const { headers } = await vendor.nextRequest()
  t.notOk('traceparent' in headers || 'tracestate' in headers)
  await until(() => gw.logged.some((line) => line['request_id'] === id))
  t.match(gw.logged.find((line) => line['request_id'] === id), { trace_id: TRACE, span_id: /^[0-9a-f]{16}$/ })
})

t.test('every answer of a route says where the time went', async (t) => {
  const { gw } = await serving(t, errorReply(400, 'invalid_request_error', 'no'))
  const headers = { 'x-api-key': KEY, 'content-type': 'application/json' }
  for (const [path, init, isServed] of [
    ['/v1/messages', { method: 'POST', headers, body: JSON.stringify(messagesRequest) }, true],
    ['/v1/messages', { method: 'POST', headers, body: '{' }, false],
    ['/v1/messages', { method: 'POST', body: '{}' }, false],
    ['/v1/echo', { headers }, true],
    ['/v1/models', { headers }, false]
  ] as const) {
    const response = await fetch(gw.url + path, init)
    await response.arrayBuffer()
    const timing = response.headers.get('server-timing') ?? ''
    const [, queue, served, own] = /^queue;dur=([\d.]+), upstream;dur=([\d.]+), own;dur=([\d.]+)$/.exec(timing) ?? []
    t.ok(Number(queue) === 0 && Number(served) > 0 === isServed && Number(own) >= 0, `${path}: ${timing}`)
  }
})
