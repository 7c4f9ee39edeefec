// Several credentials at one upstream: which one goes, which is put aside and for how long, and that none of them is
// ever to be read.
import t from 'tap'
import { type Call, client, errorOf, fate } from '../support/client.ts'
import { startClock } from '../support/clock.ts'
import { CALM, gateway, messagesRequest, type TestGateway } from '../support/gateway.ts'
import { ANSWER_NANOS, counted, inTurn, isOverloaded, metric, text, time } from '../support/resilience.ts'
import { until } from '../support/until.ts'
import { answer, errorReply, json, raw, status, upstream, type Received, type Script,
  type Upstream } from '../support/upstream.ts'
import { client as videoClient, videosYaml } from '../support/videos.ts'

const several =
  'credentials: [{ id: one, headers: { X-Api-Key: secret-value-one } }, { id: two, headers: { X-Api-Key: secret-value-two } }], retries: { attempts: 0, max_backoff: 1ms }'
const keysOf = ({ requests }: Upstream): readonly unknown[] => requests.map(({ headers }) => headers['x-api-key'])
const byKey = (scripts: Readonly<Record<string, () => Script>>) => ({ headers }: Received): Script =>
  scripts[String(headers['x-api-key']).split('-').at(-1)!]!()

t.test('one that is limited gives way to the other at once, and comes back', async (t) => {
  const clock = time()
  const up = await upstream(t,
    byKey({ one: inTurn(errorReply(429, 'rate_limit_error', 'no', { 'retry-after': '30' }), answer('one')),
      two: () => answer('two') }))
  const gw = await gateway(t, text([up.url], several), clock)
  const got = await client(t, gw).post(messagesRequest).whole()
  t.match(got.json, { content: [{ text: 'two' }] })
  t.match(await fate(gw, got.id), { line: { attempts: 2, credential: 'two', outcome: 'completed' },
    charged: ANSWER_NANOS, openHolds: 0 })
  t.match(await counted(gw, 'gateway_upstream_retries_total'), [
    'gateway_upstream_retries_total{upstream="u0",reason="credential"} 1'
  ])
  t.strictSame(await metric(gw, 'gateway_upstream_credential_aside'), [
    'gateway_upstream_credential_aside{upstream="u0",credential="one"} 1',
    'gateway_upstream_credential_aside{upstream="u0",credential="two"} 0'
  ])
  const told = await (await fetch(`${gw.urls.admin}/admin/v1/upstreams`, {
    headers: { authorization: 'Bearer test-admin-token' }
  })).json()
  t.strictSame(told, {
    data: [{
      id: 'u0',
      dialect: 'messages',
      maintenance: false,
      queue: null,
      targets: [{
        model: 'vendor-m1',
        breaker: 'closed',
        running: 0,
        ended: 1,
        failed: 0,
        wait_ms: 0,
        last_error: { at: new Date(clock.now()).toISOString(), request_id: got.id, credential: 'one',
          cause: 'status 429',
          said: '{"type":"error","error":{"type":"rate_limit_error","message":"no"},"request_id":"[redacted]"}' }
      }],
      credentials: [
        { id: 'one', running: 0, state: 'cooling_down', reason: 'limited',
          until: new Date(clock.now() + 30_000).toISOString(), wait_ms: 30_000 },
        { id: 'two', running: 0, state: 'healthy', reason: null, until: null, wait_ms: 0 }
      ]
    }],
    next: null
  })
  await client(t, gw).post(messagesRequest).whole()
  await clock.advance(30_000)
  t.match((await client(t, gw).post(messagesRequest).whole()).json, { content: [{ text: 'one' }] })
  t.strictSame(keysOf(up), ['secret-value-one', 'secret-value-two', 'secret-value-two', 'secret-value-one'])
})

t.test('one that is revoked is put aside; its value is nowhere to be read', async (t) => {
  const up = await upstream(t,
    byKey({ one: () => errorReply(401, 'authentication_error', 'invalid x-api-key secret-value-one'),
      two: () => answer('two') }))
  const gw = await gateway(t, text([up.url], several))
  for (let i = 0; i < 3; i++) t.equal((await client(t, gw).post(messagesRequest).whole()).status, 200)
  t.strictSame(keysOf(up), ['secret-value-one', 'secret-value-two', 'secret-value-two', 'secret-value-two'])
  t.match(gw.logged.filter(({ msg }) => String(msg).includes('refuses a credential')), [{ upstream: 'u0',
    credential: 'one', status: 401, level: 40 }])
  const shown =
    await (await fetch(`${gw.urls.admin}/admin/v1/config`, { headers: { authorization: 'Bearer test-admin-token' } }))
      .text()
  t.match(shown, /"credentials":\[\{"id":"one","headers":\{"X-Api-Key":"\*\*\*"\}\}/)
  t.notMatch(JSON.stringify(gw.logged) + shown + (await metric(gw, '')).join('\n'), /secret-value/)
})

t.test('the page of a firewall is no word of the vendor\'s: what is in a prompt puts none aside', async (t) => {
  let body: Script = [status(403, { 'content-type': 'text/html' }),
    raw('<!DOCTYPE html><h1>Sorry, you have been blocked</h1>')]
  const up = await upstream(t, byKey({ one: () => body, two: () => answer('two') }))
  const gw = await gateway(t, text([up.url], several))
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 502)
  t.strictSame(keysOf(up), ['secret-value-one'], 'nor is it tried with the next')
  t.match(gw.services.upstreams.health.credentials(gw.live.current()), [{ id: 'one', wait: 0 }, { id: 'two', wait: 0 }])
  body = errorReply(403, 'permission_error', 'no')
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 200)
  t.match(gw.services.upstreams.health.credentials(gw.live.current()), [{ id: 'one', wait: Number }, { id: 'two',
    wait: 0 }])
  t.strictSame(keysOf(up), ['secret-value-one', 'secret-value-one', 'secret-value-two'])
})

t.test('what an upstream says of one does not reach a client', async (t) => {
  const up = await upstream(t, errorReply(400, 'invalid_request_error', 'secret-value-two: messages.0 is wrong'))
  const gw = await gateway(t, text([up.url], several))
  const got = await client(t, gw).post(messagesRequest).whole()
  t.match(errorOf(got).message, /messages\.0 is wrong/)
  t.notMatch(got.text, /secret-value/)
})

t.test('a request asks with each of them once, though the one that was limited may be used again', async (t) => {
  const clock = time()
  const waiting: ((script: Script) => void)[] = []
  const up = await upstream(t, ({ headers }) => up.requests.length > 3
    ? answer(String(headers['x-api-key']).split('-').at(-1)!)
    : new Promise<Script>((resolve) => { waiting.push(resolve) }))
  const gw = await gateway(t, text([up.url], several), clock)
  const calls = []
  for (const many of [1, 2, 3]) {
    calls.push(client(t, gw).post(messagesRequest))
    await until(() => waiting.length === many)
  }
  const [first, second, third] = calls as [Call, Call, Call]
  t.strictSame(keysOf(up), ['secret-value-one', 'secret-value-two', 'secret-value-one'])
  const limited = errorReply(429, 'rate_limit_error', 'no')
  waiting[0]!(limited)
  t.match((await first.whole()).json, { content: [{ text: 'two' }] })
  // What the third is told was true when the first was told it: nothing is put aside anew.
  await clock.advance(1000)
  waiting[2]!(limited)
  t.match((await third.whole()).json, { content: [{ text: 'two' }] })
  waiting[1]!(answer('two'))
  t.equal((await second.whole()).status, 200)
  t.strictSame(keysOf(up).slice(3), ['secret-value-two', 'secret-value-two'])
})

t.test('all of them out', async (t) => {
  const clock = time()
  const up = await upstream(t,
    byKey({ one: () => errorReply(401, 'authentication_error', 'no'),
      two: inTurn(errorReply(429, 'rate_limit_error', 'no', { 'retry-after': '9' }), answer('two')) }))
  const gw = await gateway(t, text([up.url], several), clock)
  isOverloaded(t, await client(t, gw).post(messagesRequest).whole(), 9)
  isOverloaded(t, await client(t, gw).post(messagesRequest).whole(), 9)
  t.equal(up.requests.length, 2)
  await clock.advance(9000)
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 200)
})

t.test('a new value under the old name is used at once', async (t) => {
  const up = await upstream(t,
    ({ headers }) =>
      headers['x-api-key'] === 'renewed' ? answer('well') : errorReply(401, 'authentication_error', 'no'))
  const gw = await gateway(t, text([up.url], several))
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 503)
  await gw.rewrite(text([up.url], several.replaceAll(/secret-value-\w+/g, 'renewed')))
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 200)
})

t.test('a video is asked for, and fetched, with the one that made it', async (t) => {
  const clock = startClock(() => running !== undefined && running.services.videos.asking > 0)
  let running: TestGateway | undefined = undefined
  const asked: string[] = []
  const up = await upstream(t, ({ method, path, headers }) => {
    asked.push(`${method} ${String(headers['x-api-key'])}`)
    if (method === 'POST') {
      return headers['x-api-key'] === 'secret-value-one'
        ? errorReply(429, 'rate_limit_error', 'no')
        : json({ id: 'task_1', object: 'video', status: 'queued' })
    }
    return path.endsWith('/content')
      ? [status(200, { 'content-type': 'video/mp4' }), raw('film')]
      : json({ id: 'task_1', object: 'video', status: 'completed', progress: 100 })
  })
  const gw = running = await gateway(t, videosYaml(up.url).replace(CALM, several), clock)
  const { create, ended, ask } = videoClient(gw, clock)
  const { id } = await create('a cat')
  t.equal((await ended(id)).status, 'completed')
  t.equal((await ask('GET', `/videos/${id}/content`)).body, 'film')
  t.equal((await ask('DELETE', `/videos/${id}`)).status, 200)
  await until(() => asked.length === 5)
  t.strictSame(
    asked,
    [
      'POST secret-value-one', 'POST secret-value-two', 'GET secret-value-two', 'GET secret-value-two',
      'DELETE secret-value-two'
    ]
  )
})
