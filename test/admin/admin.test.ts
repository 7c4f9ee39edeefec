// The admin listener on a real socket: health, metrics, the configuration behind its token.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { adminHandler, type AdminParts } from '../../src/admin/admin.ts'
import { startTimer } from '../../src/base/timer.ts'
import { services, type TestServices } from '../support/exchange.ts'

const TOKEN = 'admin-token-of-the-test'

async function admin (
  t: Test,
  more: Partial<AdminParts> = {}
): Promise<{ readonly url: string, readonly port: number, readonly own: TestServices }> {
  const own = services()
  const server = createServer(
    adminHandler({ services: own, metrics: async () => await own.metrics.print(), api: api(() => ({ generation: 3 })),
      reasons: () => [], token: TOKEN, ...more,
      // test/admin/wrong-tokens.test.ts looks at the waits.
      timer: (_ms, callback) => startTimer(1, callback) })
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => new Promise((resolve) => { server.close(resolve); server.closeAllConnections() }))
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, port, own }
}

/** An API with one address. */
function api (body: () => unknown): AdminParts['api'] {
  return { knows: (path) => path === '/admin/v1/config',
    traits: () => ({ bodyLimit: 0, isStream: false, isCostly: false, cuts: undefined }),
    answer: async () => ({ status: 200, body: body() }) }
}

function withId (t: Test, response: Response): string {
  const id = response.headers.get('x-request-id')
  t.match(id, /^req_[0-9A-Za-z]{24}$/)
  t.equal(response.headers.get('request-id'), id)
  t.equal(response.headers.get('cache-control'), 'no-store')
  return id!
}

t.test('healthz answers as long as the loop runs', async (t) => {
  const { url } = await admin(t)
  const response = await fetch(url + '/healthz?x=1')
  t.equal(response.status, 200)
  t.strictSame(await response.json(), { status: 'ok' })
  withId(t, response)
})

t.test('readyz says why not', async (t) => {
  let reasons: string[] = []
  const { url } = await admin(t, { reasons: () => reasons })
  t.strictSame(await (await fetch(url + '/readyz')).json(), { ready: true, reasons: [] })
  reasons = ['draining']
  const response = await fetch(url + '/readyz')
  t.equal(response.status, 503)
  t.strictSame(await response.json(), { ready: false, reasons: ['draining'] })
  withId(t, response)
  reasons = ['overloaded', 'store_away', 'worker 1: store_away', 'worker 12: warming_up']
  for (const [query, left] of [
    ['', reasons],
    ['?exclude=store_away', ['overloaded', 'worker 12: warming_up']],
    ['?exclude=store_away&exclude=overloaded&exclude=warming_up', []],
    ['?exclude=store', reasons],
    ['?exclude=', reasons]
  ] as const) {
    const got = await fetch(`${url}/readyz${query}`)
    t.strictSame([got.status, await got.json()], [left.length === 0 ? 200 : 503,
      { ready: left.length === 0, reasons: left }], query)
  }
})

t.test('metrics are Prometheus text', async (t) => {
  const { url, own } = await admin(t)
  own.metrics.rejected('bad_request')
  const response = await fetch(url + '/metrics')
  t.equal(response.status, 200)
  t.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8')
  t.match(await response.text(), /^gateway_rejected_total\{reason="bad_request"\} 1$/m)
  withId(t, response)
})

t.test('the API is for who has the token', async (t) => {
  const { url } = await admin(t)
  const ask = (authorization?: string): Promise<Response> =>
    fetch(url + '/admin/v1/config', authorization === undefined ? {} : { headers: { authorization } })
  for (const right of [`Bearer ${TOKEN}`, `bearer   ${TOKEN}`]) {
    t.strictSame(await (await ask(right)).json(), { generation: 3 })
  }
  for (const wrong of [undefined, '', 'Bearer', 'Bearer ', TOKEN, `Basic ${TOKEN}`, `Bearer ${TOKEN}x`,
    `Bearer ${TOKEN.slice(1)}`, 'Bearer ' + 'x'.repeat(8000)]) {
    const response = await ask(wrong)
    t.equal(response.status, 401, wrong ?? 'no header')
    t.equal(response.headers.get('www-authenticate'), 'Bearer')
    const id = withId(t, response)
    const { error } = await response.json() as { error: { message: string } }
    t.match(error, { code: 'authentication_error', type: 'authentication_error', request_id: id, param: null })
    t.ok(error.message.endsWith(` Request ID: ${id}`))
    t.notOk(error.message.includes(TOKEN))
  }
})

t.test('without a token nobody gets in', async (t) => {
  const { url } = await admin(t, { token: '' })
  for (const authorization of ['Bearer ', 'Bearer x', 'Bearer ""']) {
    t.equal((await fetch(url + '/admin/v1/config', { headers: { authorization } })).status, 401)
  }
})

t.test('all else is 404, and another method 405 with Allow', async (t) => {
  const { url } = await admin(t)
  for (const path of ['/', '/metrics/', '/admin', '/admin/v1', '/v1/models', '/healthz/..%2fx', '//healthz']) {
    const response = await fetch(url + path)
    t.equal(response.status, 404, path)
    t.match(await response.json(), { error: { code: 'not_found' } })
    withId(t, response)
  }
  for (const path of ['/healthz', '/readyz', '/metrics']) {
    const response = await fetch(url + path, { method: 'POST', body: 'x'.repeat(100_000) })
    t.equal(response.status, 405, path)
    t.equal(response.headers.get('allow'), 'GET, HEAD')
    t.match(await response.json(), { error: { code: 'bad_request', type: 'invalid_request_error' } })
    withId(t, response)
  }
})

t.test('HEAD is GET without a body', async (t) => {
  const { url } = await admin(t)
  const response = await fetch(url + '/healthz', { method: 'HEAD' })
  t.equal(response.status, 200)
  t.equal(response.headers.get('content-length'), '16')
  t.equal(await response.text(), '')
})

t.test('whatever a part of the gateway throws, the listener answers in shape and lives on', async (t) => {
  const fail = (): never => { throw new Error('secret detail') }
  const { url, own } = await admin(t, { reasons: fail, api: api(fail) })
  for (const path of ['/readyz', '/admin/v1/config']) {
    const response = await fetch(url + path, { headers: { authorization: `Bearer ${TOKEN}` } })
    t.equal(response.status, 500, path)
    const body = await response.text()
    t.match(JSON.parse(body), { error: { code: 'server_error' } })
    t.notMatch(body, /secret detail/)
    t.match(own.lines.at(-1), { level: 'error', err: { message: 'secret detail' }, request_id: withId(t, response) })
  }
  t.equal((await fetch(url + '/healthz')).status, 200)
})

t.test('a store that fails takes only its own number out of the metrics', async (t) => {
  const { url, own } = await admin(t)
  own.metrics.watch('gateway_holds_open', () => Promise.reject(new Error('the store is away')))
  own.metrics.watch('gateway_body_memory_bytes', () => { throw new Error('so is this') })
  const printed = await (await fetch(url + '/metrics')).text()
  t.match(printed, /^gateway_requests_in_flight 0$/m)
  t.notMatch(printed, /holds_open|body_memory/)
})

t.test('an answer that JSON can\'t say is a shaped error too', async (t) => {
  const { url } = await admin(t, { api: api(() => ({ nanos: 1n })) })
  t.equal((await fetch(url + '/admin/v1/config', { headers: { authorization: `Bearer ${TOKEN}` } })).status, 500)
})

t.test('a client that leaves before its answer harms nobody', async (t) => {
  let release = (): void => {}
  const asked = new Promise<void>((resolve) => { release = resolve })
  let answer = (_value: number): void => {}
  const { url, port, own } = await admin(t)
  own.metrics.watch('gateway_holds_open', () => { release(); return new Promise((resolve) => { answer = resolve }) })
  const socket = connect(port, '127.0.0.1')
  socket.write('GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n')
  await asked
  socket.destroy()
  await once(socket, 'close')
  answer(1)
  own.metrics.watch('gateway_holds_open', () => 2)
  t.match(await (await fetch(url + '/metrics')).text(), /^gateway_holds_open 2$/m)
})

t.test('a request in pieces, and two on one connection', async (t) => {
  const { port } = await admin(t)
  const socket = connect(port, '127.0.0.1')
  socket.write('GET /heal')
  socket.write('thz HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
  const answered = await text(socket)
  t.strictSame([...answered.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status), ['200', '404'])
})
