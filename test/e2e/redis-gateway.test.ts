// Gateways that share a Redis, as their clients and operators see them: one limit, one balance, one answer for one
// name; and what they say while Redis is away.
import t, { type Test } from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { newPrefix } from '../support/redis-store.ts'
import { redisServer, type RedisServer } from '../support/redis-server.ts'
import { until } from '../support/until.ts'
import { answer, upstream, wait } from '../support/upstream.ts'
import { videosYaml } from '../support/videos.ts'

async function read (
  response: Response
): Promise<{ status: number, code: unknown, text: string, retryAfter: string | null }> {
  const text = await response.text()
  const { error } = text.startsWith('{') ? JSON.parse(text) as { error?: { details?: { error_code?: string } } } : {}
  return { status: response.status, code: error?.details?.error_code, text,
    retryAfter: response.headers.get('retry-after') }
}

async function ready (gw: TestGateway): Promise<unknown> {
  return await (await fetch(`${gw.urls.admin}/readyz`)).json()
}

async function metric (gw: TestGateway, name: string): Promise<number> {
  const text =
    await (await fetch(`${gw.urls.admin}/metrics`, { headers: { authorization: 'Bearer test-admin-token' } })).text()
  return Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)?.[1])
}

async function two (
  t: Test,
  server: RedisServer,
  url: string,
  more: { readonly key?: string, readonly timeout?: string } = {}
): Promise<[TestGateway, TestGateway]> {
  const text = yaml([url], '', 'auth, rate-limit, chat-to-messages, channel-router, billing-meter, error-normalize')
    .replace('store: { driver: memory, path: ./data }', `store: { driver: redis, path: ./data, url: "${server.url}", prefix: ${newPrefix()}, timeout: ${more.timeout ?? '5s'} }`)
    .replace('account: acme, secret:', `account: acme${more.key ?? ''}, secret:`)
  return [await gateway(t, text), await gateway(t, text)]
}

void t.test('one key has one limit, one balance and one ledger, whichever gateway it asks', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const gateways = await two(t, await redisServer(t), up.url, { key: ', rate_limit: 7' })
  const told = await Promise.all(
    Array.from({ length: 20 }, async (_, i) => await read(await gateways[i % 2]!.messages(messagesRequest)))
  )
  t.equal(told.filter(({ status }) => status === 200).length, 7)
  t.ok(
    told.filter(({ status }) => status !== 200).every(({ status, code }) => status === 429 && code === 'rate_limited')
  )
  for (const gw of gateways) {
    const { balance, held } = await gw.services.store.balance('acme')
    t.equal(held, 0n)
    const { entries, differences } = await gw.services.store.verify()
    t.strictSame([entries, differences], [8, []], 'the opening balance was credited once')
    t.ok(balance < 100_000_000_000n)
    t.strictSame(await ready(gw), { ready: true, reasons: [] })
    t.equal(await metric(gw, 'gateway_store_up'), 1)
  }
})

void t.test('what counts is the time of Redis: the clocks of gateways need not agree', async (t) => {
  const server = await redisServer(t, { settings: { 'slowlog-log-slower-than': 0, 'slowlog-max-len': 10_000 } })
  const up = await upstream(t, answer('Hello'))
  const gateways = await two(t, server, up.url, { key: ', rate_limit: 7, concurrency: 2' })
  const ask = async (): Promise<void> => {
    for (const gw of gateways) t.equal((await read(await gw.messages(messagesRequest))).status, 200)
  }
  await ask()                                                 // scripts are sent whole the first time
  await server.ask('SLOWLOG', 'RESET')
  await ask()
  const lines = (await server.ask('SLOWLOG', 'GET', '10000')).split('\n')
  // As below: the time is behind the key.
  const times = lines.flatMap((line, i) =>
    /^eval(?:sha)?$/.test(line) && lines[i + 3]!.includes(':acme}') ? [lines[i + 4]] : [])
  t.ok(times.length >= 4, `${times.length} scripts`)
  t.strictSame(times.filter((time) => time !== ''), [])
})

void t.test('a request asks Redis twice before its upstream is called, and twice afterwards', async (t) => {
  const server = await redisServer(t, { settings: { 'slowlog-log-slower-than': 0, 'slowlog-max-len': 10_000 } })
  // What scripts do inside is logged too. Behind the name of the command come the script, the number of keys, the key,
  // an empty time, and what is asked, or, where nothing is (the sweep that comes every 15 seconds), whose connection it
  // was.
  const asked = async (): Promise<number> =>
    (await server.ask('SLOWLOG', 'GET', '10000')).split('\n').filter((line, i, all) =>
      /^eval(?:sha)?$/.test(line) && all[i + 3]!.includes(':acme}') && !/^127\.0\.0\.1:/.test(all[i + 5]!)
    ).length
  const before: number[] = []
  const up = await upstream(t, async () => {
    before.push(await asked())
    return answer('Hello')
  })
  const [gw] = await two(t, server, up.url)
  await (await gw.messages(messagesRequest)).text()
  await gw.services.store.balance('acme')                     // all that the first one had to say has arrived
  await server.ask('SLOWLOG', 'RESET')
  await (await gw.messages(messagesRequest)).text()
  t.equal(before[1], 2, 'admitted and held')
  await until(async () => await asked() >= 4)
  t.equal(await asked(), 4, 'settled, and its slot given back')
})

void t.test('a request that names itself is served once by two gateways, and answered by both', async (t) => {
  const server = await redisServer(t)
  const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0 })
  t.teardown(() => simulator.close())
  const text = videosYaml(simulator.url, {
    store: `{ driver: redis, path: ./data, url: "${server.url}", prefix: ${newPrefix()}, timeout: 5s }`
  })
  const gateways = [await gateway(t, text), await gateway(t, text)]
  const told = await Promise.all(Array.from({ length: 8 }, async (_, i) => {
    const response = await fetch(`${gateways[i % 2]!.url}/v1/videos`, { method: 'POST',
      body: '{"model":"clip","prompt":"a cat"}',
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', 'idempotency-key': 'once' } })
    return { status: response.status, body: await response.json() as { id: string } }
  }))
  t.ok(told.every(({ status }) => status === 200))
  t.equal(new Set(told.map(({ body: { id } }) => id)).size, 1)
  t.equal(simulator.requests.filter(({ method }) => method === 'POST').length, 1)
  t.equal(await gateways[0]!.services.store.openHolds(), 1)
  const shown = await fetch(`${gateways[1]!.url}/v1/videos/${told[0]!.body.id}`, {
    headers: { authorization: `Bearer ${KEY}` }
  })
  t.match(await shown.json(), { id: told[0]!.body.id, object: 'video' })
})

void t.test('while Redis is away clients are told to come back, and nothing is free; then all goes on', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const server = await redisServer(t)
  const [gw] = await two(t, server, up.url, { timeout: '1s' })
  const made = await fetch(`${gw.urls.admin}/admin/v1/keys`, { method: 'POST',
    headers: { authorization: 'Bearer test-admin-token', 'content-type': 'application/json' },
    body: JSON.stringify({ id: 'managed', account: 'acme' }) })
  const { secret } = await made.json() as { secret: string }
  t.equal((await read(await gw.messages(messagesRequest))).status, 200)
  t.equal((await read(await gw.messages(messagesRequest, { headers: { 'x-api-key': secret } }))).status, 200)
  const before = up.requests.length
  await server.kill()
  await until(() => gw.services.store.health?.isUp === false)
  t.strictSame(await ready(gw), { ready: false, reasons: ['store_away'] })
  t.equal(await metric(gw, 'gateway_store_up'), 0)
  const told = await Promise.all(
    [gw.messages(messagesRequest), gw.messages(messagesRequest, { headers: { 'x-api-key': secret } }),
      gw.messages(messagesRequest, { headers: { 'x-api-key': 'sk-gw-' + 'u'.repeat(32) } })].map(async (response) =>
        await read(await response)
      )
  )
  for (const { status, code, retryAfter } of told) {
    t.strictSame([status, code, Number(retryAfter) > 0], [503, 'auth_unavailable', true],
      'nobody can know whether a key is good')
  }
  t.equal(up.requests.length, before)
  await server.restart()
  await until(() => gw.services.store.health?.isUp)
  t.equal((await read(await gw.messages(messagesRequest, { headers: { 'x-api-key': secret } }))).status, 200)
  t.strictSame(await ready(gw), { ready: true, reasons: [] })
})

void t.test('the ledger is read page by page, and each entry is on one', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const server = await redisServer(t)
  const [gw] = await two(t, server, up.url, {})
  for (let i = 0; i < 3; i++) t.equal((await read(await gw.messages(messagesRequest))).status, 200)
  await until(async () => (await gw.services.store.verify()).entries === 4)
  const seen: string[] = []
  for (let after: string | null = ''; after !== null;) {
    const got = await fetch(
      `${gw.urls.admin}/admin/v1/ledger?limit=1${after === '' ? '' : `&after=${encodeURIComponent(after)}`}`,
      { headers: { authorization: 'Bearer test-admin-token' } }
    )
    t.equal(got.status, 200)
    const page = await got.json() as { readonly data: readonly { readonly kind: string }[],
      readonly next: string | null }
    seen.push(...page.data.map(({ kind }) => kind))
    after = page.next
  }
  t.strictSame(seen, ['credit', 'settle', 'settle', 'settle'])
})

void t.test('limits that go on without Redis say so', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const server = await redisServer(t)
  const [gw] = await two(t, server, up.url, { key: ', rate_limit: 3',
    timeout: '1s, on_outage: { auth: degrade, limits: degrade, money: degrade }' })
  t.equal((await gw.messages(messagesRequest)).headers.get('x-gateway-degraded'), null)
  await server.kill()
  await until(() => gw.services.store.health?.isUp === false)
  const told = [await gw.messages(messagesRequest), await gw.messages(messagesRequest),
    await gw.messages(messagesRequest)]
  t.strictSame(told.map(({ headers }) => headers.get('x-gateway-degraded')), ['limits', 'limits', 'limits'])
  t.strictSame(
    (await Promise.all(told.map(read))).map(({ code }) => code),
    ['auth_unavailable', 'auth_unavailable', 'rate_limited'],
    'nothing was set aside yet; and what was admitted before counts'
  )
  t.strictSame(await ready(gw), { ready: true, reasons: [] })
})

void t.test('an answer that is under way when Redis goes is charged when it is back', async (t) => {
  const go = Promise.withResolvers<void>()
  const up = await upstream(t, [wait(go.promise), answer('Hello')])
  const server = await redisServer(t)
  const [gw] = await two(t, server, up.url, { timeout: '1s' })
  const asked = gw.messages({ ...messagesRequest, stream: true })
  await until(() => up.requests.length > 0)
  await server.kill()
  await until(() => gw.services.store.health?.isUp === false)
  go.resolve()
  t.match(await (await asked).text(), 'message_stop')
  await until(async () => await metric(gw, 'gateway_outbox_pending') === 1)
  await server.restart()
  await until(() => gw.services.store.health?.isUp === true && gw.services.store.health.pending === 0)
  const { entries, differences } = await gw.services.store.verify()
  t.strictSame([entries, differences], [2, []])
  t.equal((await gw.services.store.balance('acme')).held, 0n)
})

