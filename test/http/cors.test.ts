// CORS (src/README.md#browser-origin). A page gets its preflight without a key, and can read every answer, whoever made
// it; what it may do is for the key's allowed_origins to say (key-policy.test.ts).
import { request } from 'node:http'
import t, { type Test } from 'tap'
import { Call, client, type Received } from '../support/client.ts'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { answer, raw, status, upstream } from '../support/upstream.ts'

const ORIGIN = 'https://app.example.com'
const PAGE = { origin: ORIGIN }
const stream = { ...messagesRequest, stream: true }

/** What a browser sends before a POST of an SDK. */
const ASKED =
  'authorization,content-type,x-api-key,anthropic-version,anthropic-dangerous-direct-browser-access,x-stainless-lang'
const PREFLIGHT = { ...PAGE, 'access-control-request-method': 'POST', 'access-control-request-headers': ASKED }

type Head = Readonly<Record<string, string>> | readonly string[]

function call (url: string, method: string, path: string, headers: Head): Promise<Received> {
  return new Call(request(url + path, { method, agent: false, headers }).end()).whole()
}

const up = await upstream(t, ({ path, body }) =>
  path === '/v1/files'
    ? [
      status(200, { 'content-type': 'text/plain', 'access-control-allow-origin': 'https://console.vendor.example',
        vary: 'Accept-Encoding' }),
      raw('a file')
    ]
    : body!.max_tokens === 7
    ? [status(500), raw('{}')]
    : answer('Hello'))
const gw = await gateway(t,
  yaml([up.url], 'routes:\n  - { match: "GET,OPTIONS /v1/files", forward: u0, price: free }\n'))
const { post } = client(t, gw)

/** That a page of this origin may read it, and how its caches must tell it from others. */
function isReadable (t: Test, { headers }: Received, origin = ORIGIN): void {
  t.equal(headers['access-control-allow-origin'], origin)
  t.match(headers.vary, /\bOrigin\b/)
  for (const name of ['x-request-id', 'request-id', 'retry-after', 'x-ratelimit-remaining-requests',
    'anthropic-ratelimit-requests-reset', 'x-gateway-cost-usd', 'x-gateway-max-tokens', 'x-gateway-dropped-tools']) {
    t.ok(String(headers['access-control-expose-headers']).split(', ').includes(name), name)
  }
  t.notOk('access-control-allow-credentials' in headers, 'no cookie is ever looked at')
}

t.test('a preflight of a known path is 204 without a key', async (t) => {
  const { status: code, headers, bytes } = await call(gw.url, 'OPTIONS', '/v1/messages?beta=true', PREFLIGHT)
  t.equal(code, 204)
  t.equal(bytes.length, 0)
  t.equal(headers['access-control-allow-origin'], ORIGIN)
  t.equal(headers['access-control-allow-methods'], 'POST, OPTIONS')
  t.equal(headers['access-control-allow-headers'], ASKED, 'what was asked for')
  t.equal(headers.vary, 'Origin, Access-Control-Request-Headers')
  t.ok(Number(headers['access-control-max-age']) > 0)
  t.match(headers['x-request-id'], /^req_/)
  t.equal(up.requests.length, 0)
})

t.test('it names the methods of its path', async (t) => {
  const { headers } = await call(gw.url, 'OPTIONS', '/v1/models/m1', { ...PAGE,
    'access-control-request-method': 'GET' })
  t.equal(headers['access-control-allow-methods'], 'GET, HEAD, OPTIONS')
  t.notOk('access-control-allow-headers' in headers, 'none was asked for')
})

t.test('a path whose upstream takes OPTIONS has its preflight too: it carries no key, and would be 401', async (t) => {
  const { status: code, headers } = await call(gw.url, 'OPTIONS', '/v1/files', { ...PAGE,
    'access-control-request-method': 'GET' })
  t.equal(code, 204)
  t.equal(headers['access-control-allow-methods'], 'GET, OPTIONS')
  t.match(await call(gw.url, 'OPTIONS', '/v1/files', { 'x-api-key': KEY }), { status: 200, text: 'a file' },
    'what is no preflight goes on')
})

t.test('an unknown path is 404 for a preflight as for all, and readable', async (t) => {
  const got = await call(gw.url, 'OPTIONS', '/v1/nothing', PREFLIGHT)
  t.equal(got.status, 404)
  isReadable(t, got)
})

t.test('OPTIONS that is no preflight is 405', async (t) => {
  for (const headers of [{}, PAGE, { 'access-control-request-method': 'POST' }]) {
    t.equal((await call(gw.url, 'OPTIONS', '/v1/messages', headers)).status, 405)
  }
})

t.test('what was asked for goes back as it came, or not at all', async (t) => {
  const allowed = async (asked: string): Promise<unknown> =>
    (await call(gw.url, 'OPTIONS', '/v1/messages', { ...PREFLIGHT, 'access-control-request-headers': asked }))
      .headers['access-control-allow-headers']
  t.equal(await allowed('X-Custom, x-stainless-os'), 'X-Custom, x-stainless-os')
  for (const bad of ['', 'a: b', 'x"y', 'é', 'x'.repeat(5000)]) t.equal(await allowed(bad), undefined, bad.slice(0, 10))
})

t.test('a page can read an answer', async (t) => {
  const got = await post(messagesRequest, PAGE).whole()
  t.match(got, { status: 200, json: { content: [{ text: 'Hello' }] } })
  isReadable(t, got)
  t.match(got.headers['x-gateway-cost-usd'], /^0\.0/)
})

t.test('and a stream', async (t) => {
  const got = await post(stream, PAGE).whole()
  t.match(got, { status: 200, headers: { 'content-type': /^text\/event-stream/ }, text: 'message_stop' })
  isReadable(t, got)
})

t.test('and bytes of an upstream, whose own permissions are not ours', async (t) => {
  const got = await call(gw.url, 'GET', '/v1/files', { ...PAGE, 'x-api-key': KEY })
  t.match(got, { status: 200, text: 'a file' })
  isReadable(t, got)
  t.match(got.headers.vary, 'Accept-Encoding', 'that of the upstream stays beside ours')
})

t.test('and every error, or it would only see that something failed', async (t) => {
  const errors = {
    'no key, of a plugin before the body': [401, await post(messagesRequest, { ...PAGE, 'x-api-key': '' }).whole()],
    'of the core': [400, await post({ model: 'no-such' }, PAGE).whole()],
    'of an upstream': [502, await post({ ...messagesRequest, max_tokens: 7 }, PAGE).whole()],
    'an unknown path': [404, await call(gw.url, 'GET', '/v1/nothing', PAGE)],
    'a wrong method': [405, await call(gw.url, 'PUT', '/v1/models', PAGE)]
  } as const
  for (const [name, [code, got]] of Object.entries(errors)) {
    t.equal(got.status, code, name)
    isReadable(t, got)
  }
})

t.test('the public listener answers pages too', async (t) => {
  const got = await call(gw.urls.public, 'GET', '/nothing', PAGE)
  t.equal(got.status, 404)
  isReadable(t, got)
  const prices = await call(gw.urls.public, 'GET', '/api/public/models-info', PAGE)
  t.match(prices, { status: 200, headers: { 'access-control-allow-origin': '*' } },
    'the prices are everybody\'s, and one answer for all may be cached')
  t.notOk('vary' in prices.headers)
})

t.test('the operator\'s listener does not: no page has any business there', async (t) => {
  const { headers } = await call(gw.urls.admin, 'OPTIONS', '/admin/v1/config', PREFLIGHT)
  t.notOk('access-control-allow-origin' in headers)
  t.notOk('access-control-allow-origin' in (await call(gw.urls.admin, 'GET', '/metrics', PAGE)).headers)
})

t.test('who is no page gets nothing of this', async (t) => {
  const { headers } = await post(messagesRequest).whole()
  t.strictSame(Object.keys(headers).filter((name) => name.startsWith('access-control') || name === 'vary'), [])
})

t.test('an origin that is of no page gets nothing: proxies refuse large heads, and blame who sent them', async (t) => {
  for (const origin of ['', 'https://a.example, https://b.example', 'https://b\xfccher.example',
    `https://${'x'.repeat(60_000)}.example`]) {
    for (const [method, path, code] of [['GET', '/v1/models', 200], ['GET', '/v1/nothing', 404], ['OPTIONS',
      '/v1/messages', 405]] as const) {
      const got = await call(gw.url, method, path, { ...PREFLIGHT, origin, 'x-api-key': KEY })
      t.equal(got.status, code)
      t.notOk('access-control-allow-origin' in got.headers)
      t.ok(JSON.stringify(got.headers).length < 2000)
    }
  }
  const twice = await call(gw.url, 'GET', '/v1/nothing', ['host', 'gateway', 'origin', ORIGIN, 'origin', ORIGIN])
  t.notOk('access-control-allow-origin' in twice.headers)
  isReadable(t, await call(gw.url, 'GET', '/v1/nothing', { origin: 'null' }), 'null')
})
