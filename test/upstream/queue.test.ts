// Requests that wait for a place at an upstream, from socket to socket: who is next, who is refused, what is held and
// charged meanwhile, and that every place is given back, however its request ends.
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startClock, type Clock } from '../support/clock.ts'
import { type Call, client, errorOf, fate, nextFate, type Received as Got } from '../support/client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, cut, errorReply, messageEnd, messageStart, stall, textBlock, upstream, wait, type Received,
  type Script, type Upstream } from '../support/upstream.ts'

const QUIET_KEY = 'sk-gw-' + 'q'.repeat(32)

/** Two accounts, and upstreams with these limits, which all models ask in turn. */
function limited (urls: readonly string[], limits: string, more = ''): string {
  return urls.reduce(
    (text, _url, i) => text.replace(`"upstream-secret-${i}" } }`, `"upstream-secret-${i}" }, limits: { ${limits} } }`),
    yaml(urls, more)
  )
    .replace('accounts:\n', 'accounts:\n  - { id: quiet, name: Quiet, opening_balance_usd: 100 }\n')
    .replace('keys:\n', `keys:\n  - { id: quiet-dev, account: quiet, secret: ${QUIET_KEY} }\n`)
}

/** An upstream that answers when the test says so, in the order that the test wants. */
interface Held extends Upstream {
  /** Answers the request that says so. */
  finish (text: string): void
  /** What those say that have come and are not answered yet, in their order. */
  open (): readonly string[]
}

function textOf ({ body }: Received): string {
  return (body!['messages'] as { content: string }[])[0]!.content
}

async function held (t: Test, script: Script = answer('hi')): Promise<Held> {
  const waiting = new Map<string, () => void>()
  const up = await upstream(t, (request) => {
    const { promise, resolve } = Promise.withResolvers<void>()
    waiting.set(textOf(request), resolve)
    return [wait(promise), script]
  })
  return Object.assign(Object.create(up) as Upstream, {
    finish (text: string) {
      waiting.get(text)!()
      waiting.delete(text)
    },
    open: () => [...waiting.keys()]
  })
}

/** A request of its own connection, which says who it is. */
function ask (t: Test, running: TestGateway, text: string, { key = KEY, stream = false } = {}): Call {
  return client(t, running).post({ ...messagesRequest, stream, messages: [{ role: 'user', content: text }] }, {
    'x-api-key': key
  })
}

async function isWaiting (running: TestGateway, count: number): Promise<void> {
  const { queues } = running.services.upstreams
  await until(() => queues.view().reduce((sum, { waiting }) => sum + waiting, 0) === count)
}

async function sees (up: Held, ...texts: readonly string[]): Promise<void> {
  await until(() => texts.every((text) => up.open().includes(text)))
}

async function settled ({ services: { store } }: TestGateway): Promise<void> {
  while (await store.openHolds() > 0) await turn()
}

async function isServed (t: Test, call: Call): Promise<Got> {
  const got = await call.whole()
  t.equal(got.status, 200)
  return got
}

t.test('the quiet account is served next, though the noisy one has fifty waiting', async (t) => {
  const up = await held(t)
  const running = await gateway(t, limited([up.url], 'concurrency: 1'))
  const first = ask(t, running, 'noisy 0')
  await sees(up, 'noisy 0')
  const noisy = Array.from({ length: 50 }, (_, i) => ask(t, running, `noisy ${i + 1}`))
  await isWaiting(running, 50)
  const quiet = ask(t, running, 'quiet', { key: QUIET_KEY })
  await isWaiting(running, 51)
  t.match(await (await fetch(running.urls.admin + '/metrics')).text(),
    /^gateway_upstream_queue_depth\{upstream="u0"\} 51$/m)
  const told = await fetch(`${running.urls.admin}/admin/v1/upstreams`, { headers: {
    authorization: 'Bearer test-admin-token' } })
  t.match(await told.json(), { data: [{ id: 'u0', queue: { running: 1, waiting: 51, most_running: 1,
    most_waiting: 100 } }] })
  up.finish('noisy 0')
  await isServed(t, first)
  await sees(up, 'quiet')
  t.strictSame(up.open(), ['quiet'], 'one at a time')
  up.finish('quiet')
  const { line, charged } = await fate(running, (await isServed(t, quiet)).id)
  t.match(line, { account: 'quiet', attempts: 1 })
  t.ok(charged > 0n)
  for (let i = 0; i < 50; i++) {
    await until(() => up.open().length === 1)
    up.finish(up.open()[0]!)
  }
  t.same((await Promise.all(noisy.map((call) => call.whole()))).map(({ status }) => status),
    Array.from({ length: 50 }, () => 200))
  t.equal(up.requests.length, 52)
  await settled(running)
})

t.test('a full queue: who comes is refused at once, in the style of the address; another account takes the place of the newest', async (t) => {
  const up = await held(t)
  const running = await gateway(t, limited([up.url], 'concurrency: 1, queue: 2'))
  const first = ask(t, running, 'a1')
  await sees(up, 'a1')
  const [second, third] = [ask(t, running, 'a2'), ask(t, running, 'a3')]
  await isWaiting(running, 2)
  const refused = await ask(t, running, 'a4', { stream: true }).whole()
  t.equal(refused.status, 429)
  t.match(errorOf(refused), { code: 'queue_full', type: 'rate_limit_error', charged: '0', id: refused.id })
  t.match(refused.headers['retry-after'], /^[1-9]\d?$/)
  const chat = await client(t, running, '/v1/chat/completions').post({ model: 'm1',
    messages: [{ role: 'user', content: 'a5' }] }).whole()
  t.match([chat.status, chat.json], [429, { error: { code: 'queue_full', type: 'rate_limit_error' } }])
  const quiet = ask(t, running, 'quiet', { key: QUIET_KEY })
  const newest = await Promise.race([second.whole(), third.whole()])
  t.match(errorOf(newest), { code: 'queue_full', charged: '0' })
  t.strictSame((await fate(running, newest.id)).entries, [])
  up.finish('a1')
  await isServed(t, first)
  for (let i = 0; i < 2; i++) {
    await until(() => up.open().length === 1)
    up.finish(up.open()[0]!)
  }
  await isServed(t, quiet)
  t.equal(up.requests.length, 3)
})

t.test('queue_timeout: who has waited so long is refused, and costs nothing', async (t) => {
  const up = await held(t)
  const clock: Clock = startClock()
  const running = await gateway(t, limited([up.url], 'concurrency: 1, queue_timeout: 4s'), clock)
  const first = ask(t, running, 'first')
  await sees(up, 'first')
  const late = ask(t, running, 'late')
  await isWaiting(running, 1)
  await clock.advance(3999)
  const later = ask(t, running, 'later')
  await isWaiting(running, 2)
  await clock.advance(1)
  const refused = await late.whole()
  t.equal(refused.status, 429)
  t.match(errorOf(refused), { code: 'queue_timeout', type: 'rate_limit_error', charged: '0' })
  t.equal(refused.headers['retry-after'], '8', 'no place has become free for 4 s, and one waits before it')
  const { line, entries, openHolds } = await fate(running, refused.id)
  t.match(line, { code: 'queue_timeout', attempts: 0, outcome: 'failed' })
  t.strictSame(entries, [])
  t.equal(openHolds, 2, 'of the two others')
  up.finish('first')
  await isServed(t, first)
  await sees(up, 'later')
  up.finish('later')
  await isServed(t, later)
})

t.test('a client that leaves, leaves the queue: nothing is held or charged, its upstream never hears of it, and the next one is next', async (t) => {
  const up = await held(t)
  const running = await gateway(t, limited([up.url], 'concurrency: 1'))
  const first = ask(t, running, 'first')
  await sees(up, 'first')
  const left = nextFate(running)
  const gone = ask(t, running, 'gone')
  await isWaiting(running, 1)
  const next = ask(t, running, 'next')
  await isWaiting(running, 2)
  t.equal(await running.services.store.openHolds(), 3)
  gone.leave()
  await isWaiting(running, 1)
  const { line, entries, openHolds } = await left()
  t.match(line, { code: 'client_closed', outcome: 'failed', attempts: 0 })
  t.strictSame(entries, [])
  t.equal(openHolds, 2)
  up.finish('first')
  await isServed(t, first)
  await sees(up, 'next')
  up.finish('next')
  await isServed(t, next)
  t.strictSame(up.requests.map(textOf), ['first', 'next'])
})

t.test('a stream has its place until its end', async (t) => {
  const end = Promise.withResolvers<void>()
  const up = await upstream(t, ({ body }) =>
    body?.['stream'] === true
      ? [messageStart(), textBlock(0, 'The', ' quick'), wait(end.promise), messageEnd()]
      : answer('hi'))
  const running = await gateway(t, limited([up.url], 'concurrency: 1'))
  const stream = ask(t, running, 'stream', { stream: true })
  await stream.sees('quick')
  const next = ask(t, running, 'next')
  await isWaiting(running, 1)
  t.equal(up.requests.length, 1)
  end.resolve()
  t.match((await stream.whole()).text, /message_stop/)
  await isServed(t, next)
})

/** How the first request ends, and what its client does. */
const endings: Readonly<
  Record<string, { readonly script: Script, readonly stream?: true, readonly leaves?: 'waiting' | 'reading' }>
> = {
  'an answer': { script: answer('hi') },
  'a stream': { script: answer('hi'), stream: true },
  'an error': { script: errorReply(500, 'api_error', 'no') },
  'a connection that breaks before the head': { script: cut() },
  'a stream that is cut': { script: [messageStart(), textBlock(0, 'The', ' quick'), cut()], stream: true },
  'a client that leaves before the head': { script: stall(), leaves: 'waiting' },
  'a client that leaves its stream': { script: [messageStart(), textBlock(0, 'The', ' quick'), stall()], stream: true,
    leaves: 'reading' }
}

t.test('however a request ends, its place is given back, once', async (t) => {
  const up = await upstream(t, (request) => endings[textOf(request)]?.script ?? answer('hi'))
  const running = await gateway(t, limited([up.url], 'concurrency: 1'))
  for (const [name, { stream = false, leaves }] of Object.entries(endings)) {
    const [over, asked] = [nextFate(running), up.requests.length]
    const first = ask(t, running, name, { stream })
    await until(() => up.requests.length > asked)
    if (leaves === 'reading') await first.sees('quick')
    const waiting = [ask(t, running, 'second'), ask(t, running, 'third')]
    if (leaves !== undefined) first.leave()
    await over()
    t.same((await Promise.all(waiting.map((call) => call.whole()))).map(({ status }) => status), [200, 200], name)
    t.strictSame(running.services.upstreams.queues.view(), [{ upstream: 'u0', running: 0, waiting: 0 }], name)
    t.equal(running.services.upstreams.queues.hasRoom(running.live.current().upstreams.get('u0')!), true, name)
  }
  // What was produced of a cut answer is counted behind its end.
  await settled(running)
})

t.test('a reload that raises the limit lets in who waits', async (t) => {
  const up = await held(t)
  const running = await gateway(t, limited([up.url], 'concurrency: 1'))
  const calls = ['a', 'b', 'c'].map((text) => ask(t, running, text))
  await isWaiting(running, 2)
  await running.rewrite(limited([up.url], 'concurrency: 3'))
  await sees(up, 'a', 'b', 'c')
  for (const text of ['a', 'b', 'c']) up.finish(text)
  for (const call of calls) await isServed(t, call)
  const { line } = await fate(running, (await calls[2]!.whole()).id)
  t.equal(line['config_generation'], 1, 'it ends on what it began with')
})

t.test('a target with a free place is asked before one that must be waited for', async (t) => {
  const [busy, free] = [await held(t), await held(t)]
  const running = await gateway(t, limited([busy.url, free.url], 'concurrency: 1'))
  const first = ask(t, running, 'first')
  await until(() => busy.open().length + free.open().length === 1)
  const second = ask(t, running, 'second')
  await until(() => busy.open().length + free.open().length === 2)
  const third = ask(t, running, 'third')
  await isWaiting(running, 1)
  t.strictSame([busy.open().length, free.open().length], [1, 1])
  for (const up of [busy, free]) up.finish(up.open()[0]!)
  await isServed(t, first)
  await isServed(t, second)
  await until(() => busy.open().length + free.open().length === 1)
  for (const up of [busy, free]) if (up.open().length > 0) up.finish('third')
  await isServed(t, third)
})

t.test('a drain\'s deadline ends who waits', async (t) => {
  const up = await held(t, stall())
  const running = await gateway(t,
    limited([up.url], 'concurrency: 1').replace('drain_timeout: 5s', 'drain_timeout: 0s'))
  const calls = [ask(t, running, 'runs'), ask(t, running, 'waits')]
  await isWaiting(running, 1)
  await running.drain()
  for (const call of calls) t.match(errorOf(await call.whole()), { code: 'service_unavailable', charged: '0' })
  t.equal(up.requests.length, 1)
})

t.test('forward routes wait at the same gate as models', async (t) => {
  const up = await held(t)
  const running = await gateway(t,
    limited([up.url], 'concurrency: 1, queue: 1', 'routes:\n  - { match: POST /v1/echo, forward: u0, price: free }\n'))
  const first = ask(t, running, 'first')
  await sees(up, 'first')
  const echo = client(t, running, '/v1/echo')
  const body = (text: string): unknown => ({ messages: [{ content: text }] })
  const waiting = echo.post(body('bytes'))
  await isWaiting(running, 1)
  t.equal((await client(t, running, '/v1/echo').post(body('more')).whole()).status, 429)
  up.finish('first')
  await isServed(t, first)
  await sees(up, 'bytes')
  up.finish('bytes')
  await isServed(t, waiting)
})
