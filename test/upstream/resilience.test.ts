// A gateway whose targets fail, limit and recover: what is asked again, who is left alone, what the client waits for,
// and that only the answer is paid. Clocks stand still until the test moves them.
import t from 'tap'
import { Deadline } from '../../src/upstream/transport/deadline.ts'
import { client, errorOf, fate, namesOf, nextFate, type Received as Answered } from '../support/client.ts'
import { CALM, gateway, KEY, messagesRequest } from '../support/gateway.ts'
import { ask as askForImage, imageGateway } from '../support/image-gateway.ts'
import { ANSWER_NANOS, counted, inTurn, isOverloaded, metric, text, time } from '../support/resilience.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, cut, errorReply, json, messageStart, ping, raw, refusing, stall, status, step, textDelta,
  upstream, wait, type Script } from '../support/upstream.ts'
import { videosYaml } from '../support/videos.ts'

const QUICK = 'retries: { backoff: 1ms }, breaker: { failures: 1000000 }'
const opening: Script = [messageStart(), ping(), blockStart(0)]

t.test('what may pass is asked again, and only the answer is paid', async (t) => {
  const failures: Readonly<Record<string, Script>> = {
    // the first: on a connection that was used before it is a race, which is run again below the attempts
    'a reset': cut(),
    'status 500': errorReply(500, 'api_error', 'no'),
    'status 502': [status(502), raw('<html>')],
    'status 503': errorReply(503, 'overloaded_error', 'no'),
    'status 529': errorReply(529, 'overloaded_error', 'no'),
    'status 408': errorReply(408, 'timeout', 'no'),
    'status 522': status(522),
    'not JSON': [status(200, { 'content-type': 'application/json' }), raw('{')]
  }
  let script = inTurn()
  const up = await upstream(t, () => script())
  const gw = await gateway(t, text([up.url], QUICK), { now: time().now })
  for (const [name, failure] of Object.entries(failures)) {
    await t.test(name, async (t) => {
      gw.heal()
      script = inTurn(failure, failure, answer('well'))
      const got = await client(t, gw).post(messagesRequest).whole()
      t.match(got.json, { content: [{ text: 'well' }] })
      const { line, charged, entries, openHolds } = await fate(gw, got.id)
      t.match(line, { outcome: 'completed', attempts: 3, upstream: 'u0' })
      t.strictSame([charged, entries.length, openHolds], [ANSWER_NANOS, 1, 0])
      t.equal(gw.services.upstreams.health.loadOf('u0', 'vendor-m1'), 0)
    })
  }
  t.strictSame((await counted(gw, 'gateway_upstream_retries_total')).toSorted(),
    ['model_overloaded"} 4', 'upstream_error"} 12'].map((end) =>
      `gateway_upstream_retries_total{upstream="u0",reason="${end}`
    ))
  await t.test('a stream, before its commit', async (t) => {
    gw.heal()
    script = inTurn([opening, cut()], answer('well'))
    const got = await client(t, gw).post({ ...messagesRequest, stream: true }).whole()
    t.equal(namesOf(got.text),
      'message_start ping content_block_start content_block_delta content_block_stop message_delta message_stop')
    t.match(await fate(gw, got.id), { line: { attempts: 2 }, charged: ANSWER_NANOS, openHolds: 0 })
  })
  await t.test('nobody listens', async (t) => {
    const gw = await gateway(t, text([await refusing()], QUICK))
    const got = await client(t, gw).post(messagesRequest).whole()
    t.equal(got.status, 502)
    t.match(await fate(gw, got.id), { line: { attempts: 3, cause: /^refused/ }, entries: [], openHolds: 0 })
  })
})

t.test('what will not pass, or was the request\'s own fault, is not asked again', async (t) => {
  const failures: Readonly<Record<string, readonly [Script, number]>> = {
    'a wrong field': [errorReply(400, 'invalid_request_error', 'messages.0: no'), 400],
    'a content policy': [errorReply(400, 'invalid_request_error', 'Output blocked by content filtering policy'), 400],
    'a redirect': [status(302, { location: '/' }), 502],
    'no such model': [errorReply(404, 'not_found_error', 'model: vendor-m1'), 502],
    'an empty answer': [
      json({ type: 'message', role: 'assistant', content: [], stop_reason: null,
        usage: { input_tokens: 0, output_tokens: 0 } }),
      502
    ],
    'the page of a firewall': [[status(403, { 'content-type': 'text/html' }),
      raw('<h1>Sorry, you have been blocked</h1>')], 502],
    'a revoked credential': [errorReply(401, 'authentication_error', 'no'), 503],
    'silence': [stall(), 502]
  }
  const up = await upstream(t, ({ body }) => failures[String(body?.['case'])]![0])
  const gw = await gateway(t, text([up.url], `${QUICK}, timeouts: { first_byte: 100ms }`))
  for (const [i, [name, [, expected]]] of Object.entries(failures).entries()) {
    await t.test(name, async (t) => {
      const got = await client(t, gw).post({ ...messagesRequest, case: name }).whole()
      t.equal(got.status, expected)
      t.match(await fate(gw, got.id), { line: { attempts: 1 }, entries: [], openHolds: 0 })
      t.equal(up.requests.length, i + 1)
      gw.heal()
    })
  }
})

t.test('another target is asked at once, and the same one only when all have failed', async (t) => {
  const order: number[] = []
  const failing = async (i: number, ...scripts: readonly Script[]): Promise<string> => {
    const next = inTurn(...scripts)
    return (await upstream(t, () => { order.push(i); return next() })).url
  }
  const no = errorReply(500, 'api_error', 'no')
  const gw = await gateway(t,
    text([await failing(0, no, no, answer('well')), await failing(1, no)],
      'retries: { attempts: 1, backoff: 1ms }, breaker: { failures: 1000000 }'))
  const first = await client(t, gw).post(messagesRequest).whole()
  t.equal(first.status, 502)
  t.strictSame(order.splice(0).toSorted(), [0, 0, 1, 1])
  const got = await client(t, gw).post(messagesRequest).whole()
  t.equal(got.status, 200)
  t.strictSame(order, [0])
})

t.test('an outage is not multiplied: repetitions have a budget', async (t) => {
  const up = await upstream(t, errorReply(500, 'api_error', 'no'))
  const gw = await gateway(t, text([up.url], QUICK), { now: () => 1_800_000_000_000 })
  const { post } = client(t, gw)
  for (let i = 0; i < 30; i++) t.equal((await post(messagesRequest).whole()).status, 502)
  t.equal(up.requests.length, 40, 'thirty, and the ten that little traffic may have')
})

t.test('what one request fails with counts once, however often it is asked again', async (t) => {
  const up = await upstream(t,
    ({ body }) => body?.['case'] === 'poison' ? errorReply(500, 'api_error', 'no') : answer('well'))
  const gw = await gateway(t, text([up.url], 'retries: { backoff: 1ms }, breaker: { failures: 2, ratio: 1 }'), {
    now: () => 1_800_000_000_000
  })
  const targets = (): unknown => gw.services.upstreams.health.targets(gw.live.current())
  t.equal((await client(t, gw).post({ ...messagesRequest, case: 'poison' }).whole()).status, 502)
  t.equal(up.requests.length, 3)
  t.match(targets(), [{ breaker: 'closed', failed: 1 }])
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 200)
  t.equal((await client(t, gw).post({ ...messagesRequest, case: 'poison' }).whole()).status, 502)
  t.match(targets(), [{ breaker: 'open' }])
  t.equal(up.requests.length, 5)
})

t.test('a timer that comes before the clock is there takes no repetition away', async (t) => {
  const clock = time()
  let behind = 0
  const up = await upstream(t,
    inTurn(errorReply(429, 'rate_limit_error', 'no', { 'retry-after': '1' }), answer('well')))
  const gw = await gateway(t, text([up.url], 'retries: { attempts: 1, backoff: 1ms }'), {
    now: () => clock.now() - behind,
    timer: clock.timer
  })
  const call = client(t, gw).post(messagesRequest)
  await clock.waits(1000)
  behind = 1
  await clock.advance(1000)
  await clock.waits(1)
  t.equal(up.requests.length, 1)
  await clock.advance(1)
  const got = await call.whole()
  t.equal(got.status, 200)
  t.match((await fate(gw, got.id)).line, { attempts: 2 })
  t.strictSame(await counted(gw, 'gateway_upstream_retries_total'), [
    'gateway_upstream_retries_total{upstream="u0",reason="model_overloaded"} 1'
  ])
})

t.test('the pause that an upstream asks for is kept, if it is short enough', async (t) => {
  const clock = time()
  const busy = errorReply(503, 'overloaded_error', 'no', { 'retry-after-ms': '1700' })
  const up = await upstream(t,
    inTurn(busy, answer('well'), errorReply(503, 'overloaded_error', 'no', { 'retry-after': '3' })))
  const gw = await gateway(t, text([up.url], QUICK), clock)
  const call = client(t, gw).post(messagesRequest)
  await clock.waits(1700)
  t.equal(up.requests.length, 1)
  await clock.advance(1700)
  const got = await call.whole()
  t.equal(got.status, 200)
  t.match((await fate(gw, got.id)).line, { attempts: 2, queue_ms: Number })
  isOverloaded(t, await client(t, gw).post(messagesRequest).whole(), 3)
  t.equal(up.requests.length, 3)
})

t.test('a client that leaves during a pause ends it', async (t) => {
  const clock = time()
  const up = await upstream(t, errorReply(503, 'overloaded_error', 'no', { 'retry-after-ms': '1700' }))
  const gw = await gateway(t, text([up.url], QUICK), clock)
  const left = nextFate(gw)
  const call = client(t, gw).post(messagesRequest)
  await clock.waits(1700)
  call.leave()
  t.match(await left(), { line: { outcome: 'failed', code: 'client_closed', attempts: 1 }, entries: [], openHolds: 0 })
  t.notOk(clock.pauses.has(1700))
  await clock.advance(1700)
  t.equal(up.requests.length, 1)
  t.equal(gw.services.upstreams.health.loadOf('u0', 'vendor-m1'), 0)
})

t.test('a target that fails is left alone, and is tried by one request when its time is over', async (t) => {
  const clock = time()
  let script = errorReply(500, 'api_error', 'no')
  const up = await upstream(t, () => script)
  const gw = await gateway(t, text([up.url], 'retries: { attempts: 0 }'), clock)
  const post = (): ReturnType<ReturnType<typeof client>['post']> => client(t, gw).post(messagesRequest)
  for (let i = 0; i < 5; i++) { t.equal((await post().whole()).status, 502) }
  t.match(await metric(gw, 'gateway_upstream_breaker_state'), [
    'gateway_upstream_breaker_state{upstream="u0",model="vendor-m1"} 2'
  ])
  const refused = await post().whole()
  isOverloaded(t, refused, 5)
  t.match((await fate(gw, refused.id)).line, { attempts: 0, outcome: 'failed' })
  t.equal(up.requests.length, 5)

  await clock.advance(5000)
  t.match(await metric(gw, 'gateway_upstream_breaker_state'), [
    'gateway_upstream_breaker_state{upstream="u0",model="vendor-m1"} 1'
  ])
  t.equal((await post().whole()).status, 502, 'the probe')
  isOverloaded(t, await post().whole(), 10)

  await clock.advance(10_000)
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  script = [wait(released), answer('well')]
  const probe = post()
  await until(() => up.requests.length === 7)
  t.match(await metric(gw, 'gateway_upstream_running'), ['gateway_upstream_running{upstream="u0",model="vendor-m1"} 1'])
  const beside = post()
  for (let i = 0; i < 8; i++) {                               // it waits for the probe, as long as it may
    await clock.waits(250)
    await clock.advance(250)
  }
  isOverloaded(t, await beside.whole(), 3)
  t.equal(up.requests.length, 7)

  await clock.advance(3000)
  script = answer('well')
  t.equal((await post().whole()).status, 200, 'a probe that takes long is not the only one for ever')
  t.match(await metric(gw, 'gateway_upstream_breaker_state'), [
    'gateway_upstream_breaker_state{upstream="u0",model="vendor-m1"} 0'
  ])
  release()
  t.equal((await probe.whole()).status, 200)
  t.match(await metric(gw, 'gateway_upstream_breaker_state'), [
    'gateway_upstream_breaker_state{upstream="u0",model="vendor-m1"} 0'
  ])
  t.equal((await gw.services.store.balance('acme')).balance, 100_000_000_000n - 2n * ANSWER_NANOS)
  t.strictSame(gw.logged.filter(({ msg }) => /^a target/.test(String(msg)))
    .map(({ msg, upstream: name, model }) => [msg, name, model]), [
    ['a target fails: it is left alone for a while', 'u0', 'vendor-m1'], [
      'a target fails: it is left alone for a while',
      'u0',
      'vendor-m1'
    ], ['a target answers again', 'u0', 'vendor-m1']
  ])
})

t.test('a probe whose answer has begun has shown enough, however long the rest takes', async (t) => {
  const clock = time()
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const up = await upstream(t,
    inTurn(errorReply(500, 'api_error', 'no'), [opening, textDelta(0, 'begun'), wait(released), cut()], answer('well')))
  const gw = await gateway(t, text([up.url], 'retries: { attempts: 0 }, breaker: { failures: 1 }'), clock)
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 502)
  await clock.advance(5000)
  const probe = client(t, gw).post({ ...messagesRequest, stream: true })
  await probe.sees('begun')
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 200)
  release()
  t.equal(errorOf(await probe.whole()).code, 'upstream_stream_interrupted')
  isOverloaded(t, await client(t, gw).post(messagesRequest).whole(), 5)
})

t.test('who leaves, what is refused, and a cut that the client made say nothing against a target (rule blame)', async (t) => {
  const up = await upstream(t, ({ body }) =>
    body?.['stream'] === true
      ? [opening, textDelta(0, 'begun'), stall()]
      : errorReply(400, 'invalid_request_error', 'Output blocked by content filtering policy'))
  const gw = await gateway(t, text([up.url], 'breaker: { failures: 1, ratio: 1 }'))
  for (let i = 0; i < 3; i++) {
    t.equal((await client(t, gw).post(messagesRequest).whole()).status, 400)
    const left = nextFate(gw)
    const call = client(t, gw).post({ ...messagesRequest, stream: true })
    await call.sees('begun')
    call.leave()
    t.match((await left()).line, { outcome: 'interrupted', by: 'client' })
  }
  const { health } = gw.services.upstreams
  t.match(health.targets(gw.live.current()), [{ breaker: 'closed', failed: 0, running: 0, wait: 0 }])
})

t.test('everybody out: the Retry-After is that of the soonest to recover, and a retry at that second succeeds', async (t) => {
  const clock = time()
  const limited = (seconds: number): Script =>
    errorReply(429, 'rate_limit_error', 'no', { 'retry-after': String(seconds) })
  const first = await upstream(t, inTurn(limited(7), answer('first')))
  const second = await upstream(t, inTurn(limited(40), answer('second')))
  const gw = await gateway(t, text([first.url, second.url], QUICK), clock)
  isOverloaded(t, await client(t, gw).post(messagesRequest).whole(), 7)
  const refused = await client(t, gw).post({ ...messagesRequest, stream: true }).whole()
  isOverloaded(t, refused, 7)
  t.match((await fate(gw, refused.id)).line, { attempts: 0 })
  t.strictSame([first.requests.length, second.requests.length], [1, 1])
  await clock.advance(7000)
  t.match((await client(t, gw).post(messagesRequest).whole()).json, { content: [{ text: 'first' }] })
  t.equal((await gw.services.store.balance('acme')).balance, 100_000_000_000n - ANSWER_NANOS)
})

t.test('everybody out, but not for long: the request waits', async (t) => {
  const clock = time()
  const up = await upstream(t,
    inTurn(errorReply(429, 'rate_limit_error', 'no', { 'retry-after-ms': '1500' }), answer('well')))
  const gw = await gateway(t, text([up.url], 'retries: { attempts: 0 }'), clock)
  isOverloaded(t, await client(t, gw).post(messagesRequest).whole(), 2)
  const call = client(t, gw).post(messagesRequest)
  await clock.waits(1500)
  await clock.advance(1500)
  const got = await call.whole()
  t.equal(got.status, 200)
  t.match((await fate(gw, got.id)).line, { attempts: 1, queue_ms: Number })
})

t.test('what an upstream may be making, and is paid for, is not asked for twice there', async (t) => {
  for (const [code, times] of [[502, 1], [503, 3]] as const) {
    await t.test(String(code), async (t) => {
      const { gw } = await imageGateway(t, { models: `
  - { id: nano, provider: acme, kind: image, created: 2025-10-01, channels: { premium: { price: [{ usd: 0.04 }], targets: [{ upstream: flaky, model: nano }] } } }
`, upstreams: `  flaky: { url: "${(await upstream(t, () => status(code))).url}", dialect: images, retries: { backoff: 1ms }, breaker: { failures: 1000000 } }\n` })
      const told = await askForImage(gw, { model: 'nano', prompt: 'a cat' })
      t.equal(told.status, code)
      t.match(told, { line: { attempts: times }, entries: [], openHolds: 0 })
    })
  }
})

t.test('a video is posted there again only where none was made for certain', async (t) => {
  const busy = (code: number): Script =>
    json({ error: { message: 'no', type: 'server_error' } }, code, { 'retry-after-ms': '1' })
  let script: Script = []
  const up = await upstream(t, () => script)
  const of = (url: string): ReturnType<typeof gateway> => gateway(t, videosYaml(url).replace(CALM, QUICK))
  const [there, gone] = [await of(up.url), await of(await refusing())]
  for (const [name, gw, code, attempts, posts] of [['408', there, 408, 1, 1], ['500', there, 500, 1, 1], ['503', there,
    503, 1, 1], ['529', there, 529, 1, 1], ['429', there, 429, 3, 3], ['refused', gone, 0, 3, 0]] as const) {
    await t.test(name, async (t) => {
      gw.heal()
      script = busy(code)
      const before = up.requests.length
      const got = await client(t, gw, '/v1/videos').post({ model: 'clip', prompt: 'a cat', seconds: '4' }).whole()
      t.ok(got.status >= 500)
      t.match(await fate(gw, got.id), { line: { attempts }, entries: [], openHolds: 0 })
      t.equal(up.requests.length - before, posts)
    })
  }
})

t.test('a channel that is out is passed over, by the key\'s mode and the account\'s wish', async (t) => {
  const clock = time()
  const cheap = await upstream(t, errorReply(503, 'overloaded_error', 'no', { 'retry-after': '20' }))
  const premium = await upstream(t, answer('premium'))
  const keys = ['auto_cheap', 'cheap', 'strict']
    .map((id, i) => `  - { id: ${id}, account: ${id === 'strict' ? 'strict' : 'acme'}, routing_mode: ${id === 'cheap' ? 'cheap' : 'auto_cheap'}, secret: sk-gw-${String(i).repeat(32)} }\n`)
    .join('')
  const gw = await gateway(t, text([cheap.url, premium.url], QUICK)
    .replace(/targets: \[.*\]/,
      'targets: [{ upstream: u1, model: vendor-m1 }]\n      cheap: { price: { input: 1, output: 1 }, targets: [{ upstream: u0, model: small }] }')
    .replace('accounts:\n', 'accounts:\n  - { id: strict, opening_balance_usd: 1, allow_fallback: false }\n')
    .replace('opening_balance_usd: 100 }', 'opening_balance_usd: 100, allow_fallback: true }')
    .replace(/$/, keys), clock)
  const post = (key: number): Promise<Answered> =>
    client(t, gw).post(messagesRequest, { 'x-api-key': `sk-gw-${String(key).repeat(32)}` }).whole()
  const fallen = await post(0)
  t.match(await fate(gw, fallen.id), { line: { attempts: 2, channel: 'premium', upstream: 'u1' },
    charged: ANSWER_NANOS })
  t.match((await fate(gw, (await post(0)).id)).line, { attempts: 1, channel: 'premium' }, 'it is known to be out')
  isOverloaded(t, await post(1), 20)
  const strict = await post(2)
  t.strictSame([strict.status, errorOf(strict).code], [403, 'fallback_not_allowed'])
  t.equal(cheap.requests.length, 1)
})

t.test('a reload keeps what is known of a target', async (t) => {
  const clock = time()
  const up = await upstream(t, errorReply(503, 'overloaded_error', 'no', { 'retry-after': '20' }))
  const gw = await gateway(t, text([up.url], QUICK), clock)
  isOverloaded(t, await client(t, gw).post(messagesRequest).whole(), 20)
  await gw.rewrite(
    text([up.url], QUICK).replace('drain_timeout', '# changed\n  drain_timeout').replace('name: Model One',
      'name: Model 1')
  )
  t.equal(gw.live.current().generation, 2)
  isOverloaded(t, await client(t, gw).post(messagesRequest).whole(), 20)
  t.equal(up.requests.length, 1)
})

t.test('the total time of an answer is limited', async (t) => {
  const trickling = step(({ response, gone }) => new Promise<void>((resolve) => {
    const timer = setInterval(() => { response.write(': still here\n\n') }, 10)
    gone.addEventListener('abort', () => { clearInterval(timer); resolve() }, { once: true })
  }))
  await t.test('before the commit it is an error, and not asked again', async (t) => {
    const up = await upstream(t, [messageStart(), trickling])
    const gw = await gateway(t, text([up.url], `${QUICK}, timeouts: { total: 200ms }`))
    const got = await client(t, gw).post({ ...messagesRequest, stream: true }).whole()
    t.strictSame([got.status, errorOf(got).code], [502, 'server_error'])
    t.match(await fate(gw, got.id), { line: { attempts: 1, cause: /^total_timeout/ }, entries: [], openHolds: 0 })
  })
  await t.test('after it, the stream is cut', async (t) => {
    const up = await upstream(t, [opening, textDelta(0, 'begun'), trickling])
    const gw = await gateway(t, text([up.url], `${QUICK}, timeouts: { total: 3s }`))
    const got = await client(t, gw).post({ ...messagesRequest, stream: true }).whole()
    t.equal(errorOf(got).code, 'upstream_stream_interrupted')
    t.match((await fate(gw, got.id)).line, { outcome: 'interrupted', by: 'upstream' })
  })
  await t.test('of bytes that are forwarded too', async (t) => {
    const up = await upstream(t, [status(200, { 'content-type': 'text/plain' }), trickling])
    const gw = await gateway(t, text([up.url], `${QUICK}, timeouts: { total: 3s }`) +
      'routes:\n  - { match: POST /v1/bytes, forward: u0, price: free }\n')
    const got = await fetch(`${gw.url}/v1/bytes`, { method: 'POST', headers: { 'x-api-key': KEY } })
    t.equal(got.status, 200)
    await t.rejects(got.text())
    t.match((await fate(gw, got.headers.get('x-request-id')!)).line, { outcome: 'interrupted', by: 'upstream' })
  })
  await t.test('but not for the time that a client holds it back', async (t) => {
    const over: string[] = []
    const resting = new Deadline(200, () => { over.push('resting') })
    resting.rest()
    await new Promise<void>((resolve) => { void new Deadline(400, () => { over.push('running'); resolve() }) })
    t.strictSame(over, ['running'])
    resting.goOn()
    await until(() => over.length === 2)
    const stopped = new Deadline(1, () => { over.push('stopped') })
    stopped.off()
    await new Promise<void>((resolve) => { void new Deadline(5, resolve) })
    t.strictSame(over, ['running', 'resting'])
  })
})

t.test('a forward route: its target is left alone too, and nothing is asked again', async (t) => {
  const clock = time()
  const up = await upstream(t,
    ({ path }) =>
      path === '/v1/other' ? json({}) : path === '/v1/forbidden' ? status(403) : errorReply(500, 'api_error', 'no'))
  const gw = await gateway(t, text([up.url], 'breaker: { failures: 2 }') + `routes:
${['bytes', 'other', 'forbidden'].map((name) => `  - { match: POST /v1/${name}, forward: u0, price: free }\n`).join('')}`, clock)
  const post = (name: string): Promise<Answered> => client(t, gw, `/v1/${name}`).post({}).whole()
  for (let i = 0; i < 2; i++) t.equal((await post('bytes')).status, 502)
  const refused = await post('bytes')
  t.strictSame([refused.status, refused.headers['retry-after']], [503, '5'])
  t.match((await fate(gw, refused.id)).line, { attempts: 0, code: 'model_overloaded' })
  t.equal(up.requests.length, 2)
  t.equal((await post('other')).status, 200, 'another address is another target')
  t.equal((await post('forbidden')).status, 502)
  t.equal((await post('other')).status, 200, 'what is forbidden at one address is not at another')
  await clock.advance(5000)
  t.equal((await post('bytes')).status, 502)
  t.equal(gw.services.upstreams.health.targets(gw.live.current()).reduce((sum, { running }) => sum + running, 0), 0)
})
