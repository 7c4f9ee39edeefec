// F1: an account without money, and a key that an upstream does not accept, wherever it is said: the credential cools
// down for ten minutes, one request probes it, and operators see, reset and are warned of it.
import { Agent, request } from 'node:http'
import t, { type Test } from 'tap'
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import type { CredentialView } from '../../src/upstream/limits/health.ts'
import { Call, client, errorOf, fate, type Received as Answered } from '../support/client.ts'
import { clientStyles, styles } from '../support/client-styles.ts'
import { CALM, gateway, KEY, messagesRequest, type TestGateway, yaml } from '../support/gateway.ts'
import { metric, text, time } from '../support/resilience.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, errorReply, eventBytes, json, messageStart, raw, status, textDelta, upstream, wait,
  type Received, type Script, type Upstream } from '../support/upstream.ts'
import { videosYaml } from '../support/videos.ts'

const LOW = 'Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or ' +
  'purchase credits.'
const GOOGLE = { error: { code: 400, message: 'API key not valid. Please pass a valid API key.',
  status: 'INVALID_ARGUMENT', details: [{ reason: 'API_KEY_INVALID' }] } }
const QUOTA = { error: { type: 'insufficient_quota', code: 'insufficient_quota', message: 'You exceeded your quota.' } }
const STREAM = status(200, { 'content-type': 'text/event-stream' })
const TEN_MINUTES = 600_000

interface Saying {
  readonly says: Script
  readonly reason: CredentialView['reason']
  /** absent: JSON and streams alike */
  readonly wire?: 'JSON' | 'SSE'
}

const inStream = (body: object): Script => [STREAM, raw(eventBytes('error', { type: 'error', ...body }))]
const sayings: Readonly<Record<string, Saying>> = {
  '400, Anthropic': { says: errorReply(400, 'invalid_request_error', LOW), reason: 'no_money' },
  '400, OpenAI': { says: json({ error: { type: 'invalid_request_error', code: 'billing_hard_limit_reached',
    message: 'no' } }, 400), reason: 'no_money' },
  '400, Google': { says: json([GOOGLE], 400), reason: 'bad_key' },
  401: { says: errorReply(401, 'authentication_error', 'invalid x-api-key'), reason: 'bad_key' },
  402: { says: json({}, 402), reason: 'no_money' },
  '403, by its code': { says: json({ error: { code: 'AccountOverdueError', message: 'no' } }, 403), reason: 'no_money' },
  '429, insufficient_quota': { says: json(QUOTA, 429), reason: 'no_money' },
  'error event': { says: inStream({ error: { type: 'invalid_request_error', message: LOW } }), reason: 'no_money',
    wire: 'SSE' },
  'error event with a code': { says: inStream({ error: { code: 402, message: 'no' } }), reason: 'no_money', wire: 'SSE' },
  'error event, wrong key': { says: inStream({ error: { type: 'authentication_error', message: 'no' } }),
    reason: 'bad_key', wire: 'SSE' },
  'error in a 200': { says: json({ type: 'error', ...QUOTA }), reason: 'no_money', wire: 'JSON' },
  'error in a 200, wrong key': { says: json({ type: 'error', ...GOOGLE }), reason: 'bad_key', wire: 'JSON' }
}

const viewOf = (gw: TestGateway): readonly CredentialView[] =>
  gw.services.upstreams.health.credentials(gw.live.current())

for (const dialect of dialectsOf('text')) {
  for (const largeBody of [undefined, 1]) {
    const where = largeBody === undefined ? 'read on the loop' : 'read in a thread'
    t.test(`F1: said in ${dialect}, ${where}`, async (t) => {
      let says: Script = []
      const bad = await upstream(t, () => says)
      const good = await upstream(t, answer('from the other'))
      const clock = time()
      const gw = await gateway(t, yaml([bad.url, good.url]).replace('dialect: messages', `dialect: ${dialect}`)
        .replace('pipeline: [auth,', 'pipeline: [auth, responses-to-messages,'),
      { ...clock, ...(largeBody !== undefined && { largeBody }) })
      for (const [name, one] of Object.entries(sayings)) {
        for (const wire of ['JSON', 'SSE'] as const) {
          if (one.wire !== undefined && one.wire !== wire) continue
          for (const style of styles) {
            gw.heal()
            says = one.says
            const before = bad.requests.length
            const { path, asking } = clientStyles[style]
            const send = async (): Promise<Answered> =>
              await client(t, gw, path).post(asking({ ...messagesRequest, stream: wire === 'SSE' })).whole()
            const got = await send()
            t.equal(got.status, 200, `${name}, ${wire}, ${style}`)
            t.match(got.text, /from the other/)
            t.match(viewOf(gw)[0], { state: 'cooling_down', reason: one.reason, wait: TEN_MINUTES }, name)
            t.equal((await send()).status, 200)
            t.equal(bad.requests.length, before + 1, 'it is not asked again')
          }
        }
      }
      t.notMatch(JSON.stringify(gw.logged), /upstream-secret/)
    })
  }
}

const several = 'credentials: [{ id: poor, headers: { X-Api-Key: secret-poor } }, ' +
  '{ id: rich, headers: { X-Api-Key: secret-rich } }], ' +
  'retries: { attempts: 0, max_backoff: 1ms }'
const byKey = (scripts: Readonly<Record<string, () => Script>>) => ({ headers }: Received): Script =>
  scripts[String(headers['x-api-key']).split('-').at(-1)!]!()
const poor = errorReply(400, 'invalid_request_error', LOW)
const askedWith = ({ requests }: Upstream, name: string): number =>
  requests.filter(({ headers }) => headers['x-api-key'] === `secret-${name}`).length
const ADMIN = { authorization: 'Bearer test-admin-token', 'content-type': 'application/json' }

async function reset (gw: TestGateway, body?: object): Promise<{ readonly status: number, readonly body: unknown }> {
  const answer = await fetch(`${gw.urls.admin}/admin/v1/upstreams/u0/reset`, { method: 'POST', headers: ADMIN,
    ...(body !== undefined && { body: JSON.stringify(body) }) })
  return { status: answer.status, body: await answer.json() }
}

t.test('F1: forty requests beside a good credential; one probes the other after ten minutes', async (t) => {
  const clock = time()
  let hold: Promise<void> | undefined
  let poorSays: Script = poor
  const up = await upstream(t, byKey({ poor: () => hold === undefined ? poorSays : [wait(hold), poorSays],
    rich: () => answer('rich') }))
  const gw = await gateway(t, text([up.url], several), clock)
  const send = async (): Promise<Answered> => await client(t, gw).post(messagesRequest).whole()
  const twenty = async (): Promise<void> => {
    for (const got of await Promise.all(Array.from({ length: 20 }, send))) t.equal(got.status, 200)
  }
  for (let i = 0; i < 20; i++) t.equal((await send()).status, 200)
  await twenty()
  t.equal(askedWith(up, 'poor'), 1)
  t.match(gw.logged.filter(({ msg }) => String(msg).includes('refuses a credential')), [{ level: 40, upstream: 'u0',
    credential: 'poor', reason: 'no_money', status: 400 }])
  t.strictSame(await metric(gw, 'gateway_upstream_credential_refused'), [
    ...[['no_money', 1], ['bad_key', 0], ['forbidden', 0]].map(([reason, value]) =>
      `gateway_upstream_credential_refused{upstream="u0",credential="poor",reason="${reason}"} ${value}`),
    ...['no_money', 'bad_key', 'forbidden'].map((reason) =>
      `gateway_upstream_credential_refused{upstream="u0",credential="rich",reason="${reason}"} 0`)
  ])
  const shown = await (await fetch(`${gw.urls.admin}/admin/v1/upstreams`, { headers: ADMIN })).json()
  t.match(shown, { data: [{ credentials: [
    { id: 'poor', state: 'cooling_down', reason: 'no_money', until: new Date(clock.now() + TEN_MINUTES).toISOString() },
    { id: 'rich', state: 'healthy', reason: null, until: null }
  ] }] })
  const { problems } = await (await fetch(`${gw.urls.admin}/admin/v1/summary`, { headers: ADMIN })).json() as {
    readonly problems: readonly unknown[]
  }
  t.match(problems, [{ message: 'The credential poor of u0 is not used now: its account has no money left.' }])

  await clock.advance(TEN_MINUTES - 1)
  await twenty()
  t.equal(askedWith(up, 'poor'), 1)
  await clock.advance(1)
  t.match(viewOf(gw), [{ state: 'probing', reason: 'no_money', wait: 0 }, { state: 'healthy' }])
  const { promise, resolve } = Promise.withResolvers<void>()
  hold = promise
  const probe = client(t, gw).post(messagesRequest)
  await until(() => askedWith(up, 'poor') === 2)
  await twenty()
  t.equal(askedWith(up, 'poor'), 2, 'one request at a time probes it')
  resolve()
  t.equal((await probe.whole()).status, 200)
  await twenty()
  t.equal(askedWith(up, 'poor'), 2, 'it is out for ten minutes more')
  t.match(viewOf(gw)[0], { state: 'cooling_down', wait: TEN_MINUTES })

  await clock.advance(TEN_MINUTES)
  hold = undefined
  poorSays = answer('poor')
  await twenty()
  t.ok(askedWith(up, 'poor') > 3, 'it was paid')
  t.match(viewOf(gw), [{ state: 'healthy' }, { state: 'healthy' }])
  t.match(gw.logged.filter(({ msg }) => String(msg).includes('accepts a credential again')), [{ credential: 'poor' }])
  t.equal(gw.logged.filter(({ msg }) => String(msg).includes('refuses a credential')).length, 1)
  t.notMatch(JSON.stringify(gw.logged), /secret-/)
})

t.test('F1: with none left: service_unavailable in our own words, until the next probe', async (t) => {
  const clock = time()
  let says: Script = poor
  const up = await upstream(t, () => says)
  const gw = await gateway(t, text([up.url], several), clock)
  for (const style of styles) {
    for (const stream of [false, true]) {
      const { path, asking } = clientStyles[style]
      const got = await client(t, gw, path).post(asking({ ...messagesRequest, stream })).whole()
      const { 'retry-after': wait, 'x-should-retry': repeats } = got.headers
      t.match([got.status, wait, repeats, got.json], [503, '60', 'false', { error: { charged_usd: '0',
        message: /^The service is unavailable at this moment\. Try again in 10 minutes\./ } }], style)
      t.match(got.text, /"(?:code|error_code)":"service_unavailable"/)
      t.notMatch(got.text, /credit|balance|billing|overloaded/i)
    }
  }
  t.equal(up.requests.length, 2)
  await clock.advance(TEN_MINUTES - 30_000)
  const late = await client(t, gw).post(messagesRequest).whole()
  t.match([late.status, late.headers['retry-after'], late.headers['x-should-retry'], errorOf(late).message],
    [503, '30', 'true', /^The service is unavailable at this moment\. Try again in 30 seconds\./])
  await clock.advance(30_000)
  says = answer('paid')
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 200)
})

t.test('F1: the first request that finds none left has the same answer; its line in the log says why', async (t) => {
  const up = await upstream(t, poor)
  const gw = await gateway(t, yaml([up.url]), time())
  const got = await client(t, gw).post(messagesRequest).whole()
  t.match([got.status, errorOf(got).code], [503, 'service_unavailable'])
  t.match(await fate(gw, got.id), { line: { outcome: 'failed', code: 'service_unavailable', level: 40,
    cause: 'status 400', hint: /look at upstreams\.u0\.headers/ }, entries: [], openHolds: 0 })
  t.match(gw.logged.find(({ msg }) => String(msg).includes('refuses our credentials')), { upstream: 'u0',
    reason: 'no_money' })
})

t.test('F1: a credential that a reset lets in again before the answer is no overload', async (t) => {
  const refuses = errorReply(401, 'authentication_error', 'invalid x-api-key')
  const first = await upstream(t, refuses)
  let gw: TestGateway | undefined = undefined
  const second = await upstream(t, async () => {
    await reset(gw!)
    return refuses
  })
  gw = await gateway(t, yaml([first.url, second.url]), time())
  const got = await client(t, gw).post(messagesRequest).whole()
  t.match(viewOf(gw), [{ state: 'healthy' }, { state: 'cooling_down' }])
  t.match([got.status, errorOf(got).code, got.headers['retry-after']], [503, 'service_unavailable', '1'])
  t.strictSame([first.requests.length, second.requests.length], [1, 1])
})

t.test('F1: a reset, a reload, and a new value', async (t) => {
  const up = await upstream(t, byKey({ poor: () => poor, rich: () => poor, renewed: () => answer('well') }))
  const gw = await gateway(t, text([up.url], several), time())
  const send = async (): Promise<number> => (await client(t, gw).post(messagesRequest).whole()).status
  t.equal(await send(), 503)
  t.strictSame(viewOf(gw).map(({ state }) => state), ['cooling_down', 'cooling_down'])
  await gw.rewrite(text([up.url], several).replace('Model One', 'Model 1'))
  t.strictSame(viewOf(gw).map(({ state }) => state), ['cooling_down', 'cooling_down'], 'a reload keeps them')
  t.match(await reset(gw, { credential: 'poor' }), { status: 200, body: { upstream: 'u0', credentials: ['poor'] } })
  t.strictSame(viewOf(gw).map(({ state }) => state), ['healthy', 'cooling_down'])
  t.equal(await send(), 503)
  t.equal(up.requests.length, 3)
  t.match(await reset(gw), { status: 200, body: { credentials: ['poor', 'rich'] } })
  t.strictSame(viewOf(gw).map(({ state, wait }) => [state, wait]), [['healthy', 0], ['healthy', 0]])
  t.match(await reset(gw, { credential: 'nobody' }), { status: 404, body: { error: { code: 'not_found' } } })
  t.match(await reset(gw, { credentials: [] }), { status: 400 })
  t.equal(await send(), 503)
  await gw.rewrite(text([up.url], several.replace('secret-rich', 'secret-renewed')))
  t.strictSame(viewOf(gw).map(({ state }) => state), ['cooling_down', 'healthy'])
  t.equal(await send(), 200)
})

t.test('F1: in the middle of a stream', async (t) => {
  const up = await upstream(t, [messageStart(), blockStart(0), textDelta(0, 'The'),
    raw(eventBytes('error', { type: 'error', ...QUOTA }))])
  const gw = await gateway(t, yaml([up.url]), time())
  const got = await client(t, gw).post({ ...messagesRequest, stream: true }).whole()
  t.match(got.text, /upstream_stream_interrupted/)
  t.match(viewOf(gw), [{ state: 'cooling_down', reason: 'no_money', wait: TEN_MINUTES }])
})

t.test('F1: what a prompt says does not put a credential out, though the vendor repeats it', async (t) => {
  const up = await upstream(t, ({ body }) => {
    const { content } = (body!['messages'] as readonly { readonly content: string }[])[0]!
    return errorReply(400, 'invalid_request_error', `messages.0.content: "${content}" is not allowed`)
  })
  const gw = await gateway(t, yaml([up.url]))
  for (const content of [LOW, 'billing_hard_limit_reached', 'API key not valid. Please pass a valid API key.']) {
    await client(t, gw).post({ ...messagesRequest, messages: [{ role: 'user', content }] }).whole()
    t.match(viewOf(gw), [{ state: 'healthy', wait: 0 }], content)
  }
})

t.test('F1: a count of tokens finds out too, and its client gets an estimate', async (t) => {
  const up = await upstream(t, byKey({ poor: () => poor, rich: () => errorReply(401, 'authentication_error', 'no') }))
  const gw = await gateway(t, text([up.url], `count_tokens: true, ${several}`), time())
  for (let i = 0; i < 3; i++) {
    const got = await client(t, gw, '/v1/messages/count_tokens').post(messagesRequest).whole()
    t.match([got.status, got.headers['x-gateway-count']], [200, 'estimated'])
  }
  t.match(viewOf(gw), [{ reason: 'no_money', wait: TEN_MINUTES }, { state: 'healthy' }],
    'a key that may not count may do everything else')
})

const imagesYaml = (url: string): string => yaml([url], '', 'auth, schema-validate, channel-router, billing-meter, ' +
  'error-normalize').replace('dialect: messages', 'dialect: images').replace('kind: text', 'kind: image')
  .replace(/ +context: .*\n +max_output: .*\n/, '').replace(/price: .*/, 'price: [{ usd: "0.04" }]')

t.test('F1: images, also in a 200', async (t) => {
  for (const says of [poor, json(QUOTA, 429), json(QUOTA)]) {
    const up = await upstream(t, byKey({ poor: () => says,
      rich: () => json({ created: 1, data: [{ b64_json: 'iVBORw0KGgo=' }] }) }))
    const gw = await gateway(t, imagesYaml(up.url).replace(CALM, several))
    const got = await client(t, gw, '/v1/images/generations').post({ model: 'm1', prompt: 'a cat' }).whole()
    t.equal(got.status, 200, got.text)
    t.match(viewOf(gw)[0], { id: 'poor', state: 'cooling_down', reason: 'no_money' })
    t.strictSame([askedWith(up, 'poor'), askedWith(up, 'rich')], [1, 1])
  }
})

t.test('F1: videos, also in a 200: the account that has no money makes none, so the other is asked', async (t) => {
  for (const says of [poor, json(QUOTA, 429), json(QUOTA)]) {
    const up = await upstream(t, byKey({ poor: () => says,
      rich: () => json({ id: 'task_1', object: 'video', status: 'queued' }) }))
    const gw = await gateway(t, videosYaml(up.url).replace(CALM, several))
    const got = await client(t, gw, '/v1/videos').post({ model: 'clip', prompt: 'a cat' }).whole()
    t.equal(got.status, 200, got.text)
    t.match(viewOf(gw)[0], { id: 'poor', state: 'cooling_down', reason: 'no_money' })
    t.strictSame([askedWith(up, 'poor'), askedWith(up, 'rich')], [1, 1])
  }
})

const ROUTES = `routes:
  - { match: POST /v1/echo, forward: u0, price: free }
  - { match: GET /v1/live, forward: u0, websocket: true, price: free }
`
/** A handshake with the gateway, which its upstream refuses. */
const UPGRADE = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
  'sec-websocket-version': '13', 'x-api-key': KEY }

async function upgrade (t: Test, url: string): Promise<Answered> {
  const agent = new Agent()
  t.teardown(() => { agent.destroy() })
  return await new Call(request(`${url}/v1/live`, { agent, headers: UPGRADE }).end()).whole()
}

t.test('F1: forward routes, WebSockets too: money counts; a key may lack the right to one path only', async (t) => {
  for (const [name, send] of [
    ['POST', async (gw: TestGateway) => await client(t, gw, '/v1/echo').post({}).whole()],
    ['WebSocket', async (gw: TestGateway) => await upgrade(t, gw.url)]
  ] as const) {
    let says: Script = errorReply(401, 'authentication_error', 'invalid x-api-key')
    const up = await upstream(t, () => says)
    const gw = await gateway(t, yaml([up.url], ROUTES), time())
    t.equal((await send(gw)).status, 502, name)
    t.match(viewOf(gw), [{ state: 'healthy' }])
    says = poor
    for (let i = 0; i < 2; i++) {
      const got = await send(gw)
      t.match([got.status, got.headers['retry-after']], [503, '60'], name)
      t.match(got.text, /"code":"service_unavailable"/)
      t.notMatch(got.text, /credit/)
    }
    t.equal(up.requests.length, 2)
    t.match(viewOf(gw), [{ state: 'cooling_down', reason: 'no_money' }])
  }
})
