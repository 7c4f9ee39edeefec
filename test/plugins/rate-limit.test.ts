// rate-limit: windows, slots, headers, refusals. Over real sockets, on a clock of the test's.
import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import type { Store } from '../../src/store/store.ts'
import { client } from '../support/client.ts'
import { gateway, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, errorReply, json, messageEnd, messageStart, stall, textBlock, upstream, wait, type Script,
  type Upstream } from '../support/upstream.ts'

const stream = { ...messagesRequest, stream: true }

interface Told {
  readonly status: number
  /** of an error */
  readonly code: string | undefined
  readonly message: string
  /** those of the limits, by name */
  readonly headers: Readonly<Record<string, string>>
}

interface Limited extends TestGateway {
  readonly up: Upstream
  readonly clock: { time: number }
  /** what the upstream says, beside the things */
  script: Script
  /** one request with a key, POST /v1/messages if not said otherwise */
  ask (key: string, path?: string, init?: RequestInit): Promise<Told>
}

interface Setup {
  /** settings of keys, by id */
  readonly keys: Readonly<Record<string, string>>
  /** of the plugin */
  readonly options?: string
  /** top-level lines of the configuration */
  readonly more?: string
}

function secretOf (key: string): string {
  return 'sk-gw-' + key.padStart(32, 'k')
}

/** `m1` is of no family, `m2` of the family claude; there are addresses of all kinds, one of them open to everybody. */
function configure ({ keys, options = '{}', more = '' }: Setup, url: string): string {
  const lines = Object.entries(keys).map(([id, settings]) =>
    `  - { id: ${id}, account: acme, secret: ${secretOf(id)}${settings === '' ? '' : `, ${settings}`} }\n`
  )
  const text = yaml([url], `${lines.join('')}routes:
  - { match: "GET,POST,DELETE /v1/things/*", forward: u0, price: free }
  - { match: GET /open/models, serve: models, pipeline: [] }
${more}`, `auth, rate-limit: ${options}, chat-to-messages, channel-router, billing-meter, error-normalize`)
  const model = text.slice(text.indexOf('  - id: m1'), text.indexOf('accounts:'))
  return text.replace('accounts:',
    `${model.replace('id: m1', 'id: m2').replace('accepts:', 'family: claude\n    accepts:')}accounts:`).replace(
      'hold_head: 10s',
      'hold_head: 50ms'
    )
}

async function limited (t: Test, setup: Setup): Promise<Limited> {
  const up = await upstream(t, ({ path }) => path === '/v1/messages' ? gw.script : json({ done: true }))
  const clock = { time: 1_800_000_000_400 }
  const running = await gateway(t, configure(setup, up.url), { now: () => clock.time })
  const gw: Limited = Object.assign(running, {
    up,
    clock,
    script: answer('Hello'),
    async ask (key: string, path = '/v1/messages', init: RequestInit = {}) {
      const isMessages = path === '/v1/messages' || path === '/v1/chat/completions'
      const response = await fetch(running.url + path, {
        ...(isMessages && { method: 'POST', body: JSON.stringify(messagesRequest) }),
        ...init,
        headers: { 'content-type': 'application/json', 'x-api-key': secretOf(key) }
      })
      const text = await response.text()
      const { error } = (text.startsWith('{') ? JSON.parse(text) : {}) as {
        error?: { message: string, code?: string, details?: { error_code: string } }
      }
      return {
        status: response.status,
        code: error?.details?.error_code ?? error?.code,
        message: error?.message ?? '',
        headers: Object.fromEntries([...response.headers].filter(([name]) => /ratelimit|retry-after/.test(name)))
      }
    }
  })
  return gw
}

const family = { body: JSON.stringify({ ...messagesRequest, model: 'm2' }) }

/** How often in a row it is admitted. */
async function admitted (gw: Limited, key: string, path?: string): Promise<number> {
  for (let count = 0; ; count++) if ((await gw.ask(key, path)).status === 429) return count
}

/** Whether none of the key's requests has a slot, once none is running. */
async function isFree (gw: Limited, key: string): Promise<boolean> {
  await until(() => gw.server.inFlight === 0)
  const { store } = gw.services
  const { kind } = await store.admit({ request_id: 'probe', windows: [], slot: { name: `key:${key}`, limit: 1 } })
  await store.leave('probe')
  return kind === 'admitted'
}

await t.test('how often', async (t) => {
  const gw = await limited(t, {
    options: '{ families: { claude: { rpm: 2 }, none: { rpm: 0 } } }',
    keys: {
      minute: 'rate_limit: 2',
      chat: 'rate_limit: 1',
      burst: 'rate_limit: 5',
      counts: 'rate_limit: 5',
      polls: 'rate_limit: 2, concurrency: 1',
      default: '',
      none: 'rate_limit: 0, concurrency: 0',
      ten: 'rate_limit: 10',
      family: 'rate_limit: 5',
      narrow: 'rate_limit: 2',
      tie: 'rate_limit: 3',
      both: 'rate_limit: 3',
      lone: 'rate_limit: 0',
      open: 'rate_limit: 1',
      pipelined: 'rate_limit: 5, concurrency: 3',
      parallel: 'rate_limit: 20, concurrency: 7'
    }
  })

  await t.test('a key makes so many requests in 60 seconds, and is told in every answer how many are left', async (t) => {
    const told = (remaining: number, wait: number, reset: string): Readonly<Record<string, string>> => ({
      'anthropic-ratelimit-requests-limit': '2',
      'anthropic-ratelimit-requests-remaining': String(remaining),
      'anthropic-ratelimit-requests-reset': reset,
      ratelimit: `"key";r=${remaining};t=${wait}`,
      'ratelimit-policy': '"key";q=2;w=60'
    })
    t.strictSame(await gw.ask('minute'), { status: 200, code: undefined, message: '',
      headers: told(1, 60, '2027-01-15T08:01:01Z') }, 'the end of the minute in whole seconds, rounded up')
    gw.clock.time += 20_000
    t.strictSame((await gw.ask('minute')).headers, told(0, 40, '2027-01-15T08:01:21Z'))
    gw.clock.time += 5_500
    const refused = await gw.ask('minute')
    t.strictSame(refused.headers, { ...told(0, 35, '2027-01-15T08:01:21Z'), 'retry-after': '35',
      'retry-after-ms': '34500' })
    t.match(refused, { status: 429, code: 'rate_limited',
      message:
        /^This key has a limit of 2 requests in any 60 seconds, and they are used up\. Try again in 35 seconds\. Request ID: req_/ })
    gw.clock.time += 34_499
    t.match(await gw.ask('minute'), { status: 429, headers: { 'retry-after': '1', 'retry-after-ms': '1' },
      message: /in 1 second\./ })
    gw.clock.time += 1
    t.match(await gw.ask('minute'), { status: 200, headers: told(0, 20, '2027-01-15T08:02:01Z') })
    t.equal(gw.up.requests.length, 3, 'a refused request goes nowhere')
  })

  await t.test('on other addresses the headers and the error are in the style of the other vendor', async (t) => {
    const told = (remaining: number, wait: number, reset: string): Readonly<Record<string, string>> => ({
      'x-ratelimit-limit-requests': '1',
      'x-ratelimit-remaining-requests': String(remaining),
      'x-ratelimit-reset-requests': reset,
      ratelimit: `"key";r=${remaining};t=${wait}`,
      'ratelimit-policy': '"key";q=1;w=60'
    })
    t.strictSame((await gw.ask('chat', '/v1/things/a')).headers, told(0, 60, '1m0s'))
    gw.clock.time += 51_360
    const refused = await gw.ask('chat', '/v1/chat/completions')
    t.match(refused, { status: 429, code: 'rate_limited', message: /Try again in 9 seconds/ })
    t.strictSame(refused.headers, { ...told(0, 9, '8.64s'), 'retry-after': '9', 'retry-after-ms': '8640' })
    gw.clock.time += 8_626
    t.match(await gw.ask('chat', '/v1/things/a'), { status: 429, code: 'rate_limited',
      headers: { ...told(0, 1, '14ms'), 'retry-after': '1', 'retry-after-ms': '14' } })
  })

  await t.test('who fills the limit at once waits for 60 seconds, and then need not wait again', async (t) => {
    t.equal(await admitted(gw, 'burst'), 5)
    t.match(await gw.ask('burst'), { headers: { 'retry-after': '60', 'retry-after-ms': '60000' } })
    gw.clock.time += 60_000
    t.equal(await admitted(gw, 'burst'), 5)
  })

  await t.test('every POST counts, and on a forward route every method', async (t) => {
    const left = async (path: string, init: RequestInit): Promise<unknown> => {
      const { status, headers } = await gw.ask('counts', path, init)
      return [status, headers['ratelimit']]
    }
    t.strictSame(await left('/v1/things/a', { method: 'POST', body: 'x' }), [200, '"key";r=4;t=60'])
    t.strictSame(await left('/v1/things/a', { method: 'DELETE' }), [200, '"key";r=3;t=60'])
    t.strictSame(await left('/v1/messages', { body: '{' }), [400, '"key";r=2;t=60'],
      'one that is refused for its body too')
    t.strictSame(await left('/v1/things/a', {}), [200, '"key";r=1;t=60'])
    t.match(await gw.ask('wrong'), { status: 401, headers: { ratelimit: undefined } })
    t.strictSame(await left('/v1/messages', {}), [200, '"key";r=0;t=60'], 'but not one with a wrong key')
  })

  await t.test('polling does not eat the key\'s requests, and may not go on as it likes', async (t) => {
    const go = Promise.withResolvers<void>()
    gw.script = [wait(go.promise), answer('late')]
    const running = gw.ask('polls')
    await until(() => gw.server.inFlight === 1)
    t.equal(await admitted(gw, 'polls', '/v1/models'), 20, 'ten times as many, while the one slot is taken')
    const refused = await gw.ask('polls', '/v1/models/m1')
    t.match(refused, { status: 429, code: 'rate_limited',
      message: /^For lists and states, this key has a limit of 20 requests in any 60 seconds, and/ })
    t.match(refused.headers, { 'retry-after': '60', 'x-ratelimit-limit-requests': '20', ratelimit: '"polls";r=0;t=60',
      'ratelimit-policy': '"polls";q=20;w=60' })
    go.resolve()
    t.match(await running, { status: 200, headers: { ratelimit: '"key";r=1;t=60' } })
    gw.script = answer('Hello')
    t.match(await gw.ask('polls'), { status: 200, headers: { ratelimit: '"key";r=0;t=60' } })
  })

  await t.test('a key without limits of its own has the defaults; 0 is none', async (t) => {
    t.equal(await admitted(gw, 'default'), 60)
    for (let i = 0; i < 5; i++) {
      t.strictSame(await gw.ask('none'), { status: 200, code: undefined, message: '', headers: {} })
    }
    t.strictSame((await gw.ask('none', '/v1/models')).headers, {}, 'nor are polls counted')
  })

  await t.test('a family\'s limit holds for its models, beside the key\'s', async (t) => {
    t.match(await gw.ask('family', '/v1/messages', family), {
      status: 200,
      headers: {
        'anthropic-ratelimit-requests-limit': '2',
        'anthropic-ratelimit-requests-remaining': '1',
        ratelimit: '"key";r=4;t=60, "family";r=1;t=60',
        'ratelimit-policy': '"key";q=5;w=60, "family";q=2;w=60'
      }
    }, 'the vendor\'s headers tell of the one that is nearer to its end')
    gw.clock.time += 10_000
    t.equal((await gw.ask('family', '/v1/messages', family)).status, 200)
    const refused = await gw.ask('family', '/v1/chat/completions', family)
    t.match(refused, { status: 429, code: 'family_rate_limited',
      message:
        /^For models of the family claude, this key has a limit of 2 requests in any 60 seconds, and they are used up\. Try again in 50 seconds\./ })
    t.match(refused.headers, { 'retry-after': '50', 'retry-after-ms': '50000', 'x-ratelimit-limit-requests': '2',
      'x-ratelimit-remaining-requests': '0', ratelimit: '"key";r=2;t=50, "family";r=0;t=50' })
    t.match(await gw.ask('family'), { status: 200,
      headers: { ratelimit: '"key";r=1;t=50', 'anthropic-ratelimit-requests-limit': '5' } }, 'another model')
    t.match(await gw.ask('ten', '/v1/messages', family), { status: 200 }, 'another key')
  })

  await t.test('where the key is nearer to its end than the family, the vendor\'s headers tell of the key', async (t) => {
    t.equal((await gw.ask('narrow')).status, 200)
    t.match((await gw.ask('narrow', '/v1/messages', family)).headers, { ratelimit: '"key";r=0;t=60, "family";r=1;t=60',
      'anthropic-ratelimit-requests-remaining': '0' })
    t.equal((await gw.ask('tie')).status, 200)
    gw.clock.time += 5000
    t.equal((await gw.ask('tie', '/v1/messages', family)).status, 200)
    t.match((await gw.ask('tie', '/v1/messages', family)).headers, { ratelimit: '"key";r=0;t=55, "family";r=0;t=60',
      'anthropic-ratelimit-requests-limit': '2' }, 'of the one that opens later')
  })

  await t.test('where the key\'s own window is full as well, Retry-After is when both are open', async (t) => {
    for (let i = 0; i < 2; i++) t.equal((await gw.ask('both', '/v1/messages', family)).status, 200)
    gw.clock.time += 600
    const refused = await gw.ask('both', '/v1/messages', family)
    t.match(refused, { status: 429, code: 'family_rate_limited' })
    t.match(refused.headers, { 'retry-after': '60', 'retry-after-ms': '60000',
      ratelimit: '"key";r=0;t=60, "family";r=0;t=60', 'anthropic-ratelimit-requests-limit': '3' },
      'the family alone would be open 600 ms before')
    gw.clock.time += 59_999
    t.match(await gw.ask('both', '/v1/messages', family), { status: 429, code: 'rate_limited' })
    gw.clock.time += 1
    t.equal((await gw.ask('both', '/v1/messages', family)).status, 200)
  })

  await t.test('a key without a limit has that of the family', async (t) => {
    t.match((await gw.ask('lone', '/v1/messages', family)).headers, { ratelimit: '"family";r=1;t=60',
      'ratelimit-policy': '"family";q=2;w=60', 'anthropic-ratelimit-requests-limit': '2' })
    t.equal((await gw.ask('lone', '/v1/messages', family)).status, 200)
    t.match(await gw.ask('lone', '/v1/messages', family), { status: 429, code: 'family_rate_limited',
      headers: { 'retry-after': '60' } })
    t.strictSame((await gw.ask('lone')).headers, {})
  })

  await t.test('streams tell too, one whose head was sent early as well, and so do errors', async (t) => {
    gw.clock.time += 60_000
    const init = { headers: { 'x-api-key': secretOf('ten') } }
    t.equal((await gw.messages(stream, init)).headers.get('ratelimit'), '"key";r=9;t=60')
    gw.script = errorReply(529, 'overloaded_error', 'no', { 'anthropic-ratelimit-requests-limit': '4000',
      'retry-after': '7' })
    t.match(await gw.ask('ten'), { status: 503,
      headers: { 'anthropic-ratelimit-requests-limit': '10', 'anthropic-ratelimit-requests-remaining': '8',
        'retry-after': '7' } }, 'ours, not the upstream\'s')
    t.match(await gw.ask('ten', '/v1/messages', { body: '{}' }), { status: 400, code: 'model_required',
      headers: { ratelimit: '"key";r=7;t=60' } })
    gw.heal()
    const go = Promise.withResolvers<void>()
    gw.script = [wait(go.promise), answer('late')]
    const response = await gw.messages(stream, init)
    t.equal(response.headers.get('ratelimit'), '"key";r=6;t=60', 'before the upstream said anything')
    go.resolve()
    t.match(await response.text(), 'message_stop')
    gw.script = answer('Hello')
  })

  await t.test('where nobody asks for a key nothing is limited', async (t) => {
    for (let i = 0; i < 12; i++) {
      t.strictSame(await gw.ask('open', '/open/models'), { status: 200, code: undefined, message: '', headers: {} })
    }
  })

  await t.test('requests in parallel never pass a limit', async (t) => {
    const go = Promise.withResolvers<void>()
    gw.script = [wait(go.promise), answer('Hello')]
    const codes: (string | undefined)[] = []
    const asked = Array.from({ length: 40 }, async () => { codes.push((await gw.ask('parallel')).code) })
    await until(() => codes.length === 33)
    t.ok(codes.every((code) => code === 'org_queue_full'))
    go.resolve()
    await Promise.all(asked)
    t.equal(codes.filter((code) => code === undefined).length, 7)
    gw.script = answer('Hello')
    t.equal(await admitted(gw, 'parallel'), 13, 'what the slots refused was not counted')
  })

  await t.test('requests that are pipelined on one connection are limited', async (t) => {
    const { hostname, port } = new URL(gw.url)
    const before = gw.up.requests.length
    const socket = connect(Number(port), hostname)
    t.teardown(() => socket.destroy())
    const body = JSON.stringify(messagesRequest)
    const request = (last = ''): string => `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${secretOf('pipelined')}\r\ncontent-length: ${body.length}\r\n${last}\r\n${body}`
    let text = ''
    socket.on('data', (chunk: Buffer) => { text += chunk.toString() })
    socket.write(request().repeat(9) + request('connection: close\r\n'))
    await once(socket, 'close')
    const statuses = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status)
    t.equal(statuses.length, 10)
    const passed = statuses.filter((status) => status === '200').length
    t.ok(passed >= 1 && passed <= 5, `${passed} of 10`)
    t.equal(gw.up.requests.length - before, passed)
    t.ok(await isFree(gw, 'pipelined'))
  })
})

await t.test('how many at a time', async (t) => {
  const setup = { keys: { one: 'concurrency: 1, rate_limit: 0', two: 'concurrency: 2' } }
  const gw = await limited(t, setup)
  const send = client(t, gw)
  const post = (body: unknown): ReturnType<typeof send.post> => send.post(body, { 'x-api-key': secretOf('one') })
  const isRefused = async (t: Test): Promise<void> => {
    t.match(await gw.ask('one'), { status: 429, code: 'org_queue_full',
      message:
        /^This key has 1 request running, and may have 1 at a time\. Try again when one of them has ended\. Request ID/,
      headers: { 'retry-after': '1', 'retry-after-ms': undefined } })
    t.match(await gw.ask('one', '/v1/things/a'), { status: 429, code: 'org_queue_full' })
  }

  await t.test('the slot of a client that leaves before the answer is given back', async (t) => {
    gw.script = stall()
    const call = post(messagesRequest)
    await gw.up.nextRequest()
    await isRefused(t)
    call.leave()
    t.ok(await isFree(gw, 'one'))
  })

  await t.test('and of one that leaves in the middle of a stream', async (t) => {
    gw.script = [messageStart(), textBlock(0, 'first'), stall()]
    const call = post(stream)
    await call.sees('first')
    await isRefused(t)
    call.leave()
    t.ok(await isFree(gw, 'one'))
  })

  for (const [ending, script, status, body] of [
    ['a JSON answer', answer('whole'), 200, messagesRequest],
    ['a stream', answer('whole'), 200, stream],
    ['a stream that is cut', [messageStart(), textBlock(0, 'first')], 200, stream],
    ['an upstream that fails', errorReply(500, 'api_error', 'no'), 502, messagesRequest],
    ['a body that is refused', stall(), 400, { model: 'm1', stream: 'yes' }],
    ['a model that is not there', stall(), 400, { model: 'm9' }]
  ] as const) {
    await t.test(`a client that asks one after the other is never refused: ${ending}`, async (t) => {
      gw.script = script
      for (let i = 0; i < 10; i++) t.equal((await post(body).whole()).status, status)
    })
  }

  await t.test('nor where its bytes are forwarded', async (t) => {
    for (let i = 0; i < 5; i++) t.equal((await gw.ask('one', '/v1/things/a')).status, 200)
    for (let i = 0; i < 5; i++) t.equal((await gw.ask('one', '/v1/things/a%2fb')).status, 400)
  })

  await t.test('a reload does not forget who is running, and a limit that was lowered tells how many are', async (t) => {
    const go = Promise.withResolvers<void>()
    gw.script = [wait(go.promise), answer('late')]
    const asked = [gw.ask('two'), gw.ask('two')]
    await until(() => gw.server.inFlight === 2)
    await gw.rewrite(configure({ keys: { ...setup.keys, two: 'concurrency: 1' } }, gw.up.url))
    t.match(await gw.ask('two'), { status: 429, code: 'org_queue_full',
      message: /^This key has 2 requests running, and may have 1 at a time\./ })
    go.resolve()
    for (const told of await Promise.all(asked)) t.equal(told.status, 200)
    t.equal((await gw.ask('two')).status, 200)
  })

  await t.test('a drained gateway gives them back', async (t) => {
    gw.script = [messageStart(), textBlock(0, 'first'), stall(), messageEnd()]
    const call = post(stream)
    await call.sees('first')
    await isRefused(t)
    await gw.stop()
    await call.whole()
    t.ok(await isFree(gw, 'one'))
  })
})

await t.test('a reload changes a limit and forgets no request', async (t) => {
  const gw = await limited(t, { keys: { one: 'rate_limit: 3' } })
  t.equal(await admitted(gw, 'one'), 3)
  await gw.rewrite(configure({ keys: { one: 'rate_limit: 5' } }, gw.up.url))
  t.equal(await admitted(gw, 'one'), 2)
  await gw.rewrite(configure({ keys: { one: '' }, options: '{ default_rpm: 2 }' }, gw.up.url))
  gw.clock.time += 59_999
  t.match(await gw.ask('one'), { status: 429,
    headers: { 'retry-after': '1', 'anthropic-ratelimit-requests-limit': '2' } })
  gw.clock.time += 1
  t.equal(await admitted(gw, 'one'), 2)

  await t.test('a list of plugins in which it would count for nobody is refused', async (t) => {
    const good = configure({ keys: {} }, gw.up.url)
    for (const [bad, expected] of [
      [good.replace('auth, rate-limit: {}', 'rate-limit: {}, auth'),
        /rate-limit reads api-key, which auth writes later \(move auth above it\)/],
      [good.replace('pipeline: []', 'pipeline: [rate-limit]'),
        /rate-limit reads api-key, which no plugin of this route writes \(add auth\)/]
    ] as const) {
      const before = gw.logged.length
      await gw.rewrite(bad)
      t.match(JSON.stringify(gw.logged.slice(before)), expected)
    }
  })
})

await t.test('when the store is away', async (t) => {
  const gw = await limited(t, { keys: { one: 'rate_limit: 8, concurrency: 1', slow: 'rate_limit: 4, concurrency: 1' },
    options: '{ families: { claude: { rpm: 3 } } }', more: 'hook_timeout: 200ms' })
  const { store } = gw.services
  const admit = store.admit.bind(store)
  const leave = store.leave.bind(store)

  await t.test('nobody is let through, and nobody is told that the key is wrong (rule away-is-503)', async (t) => {
    const failures: Readonly<Record<string, Store['admit']>> = {
      'it throws': () => { throw new Error('the store is away') },
      'it rejects': () => Promise.reject(new Error('the store is away')),
      'its answer is lost': async (admission) => {
        await admit(admission)
        throw new Error('the connection broke')
      },
      'it goes away after the head': (admission) =>
        admission.slot === undefined ? Promise.reject(new Error('the store is away')) : admit(admission)
    }
    for (const [failure, replaced] of Object.entries(failures)) {
      store.admit = replaced
      t.match(await gw.ask('one', '/v1/messages', family), { status: 503, code: 'auth_unavailable',
        message: /^The limits of keys cannot be checked at this moment\./, headers: { 'retry-after': '2' } }, failure)
      store.admit = admit
      t.ok(await isFree(gw, 'one'), 'and a slot that was taken all the same is given back')
    }
    t.equal(gw.up.requests.length, 0)
    t.equal((await gw.ask('one', '/v1/messages', family)).status, 200)
  })

  await t.test('a slot that comes after the request was given up is given back', async (t) => {
    const late = Promise.withResolvers<void>()
    const given = Promise.withResolvers<void>()
    store.admit = async (admission) => { await late.promise; return await admit(admission) }
    store.leave = async (id) => { await leave(id); given.resolve() }
    t.match(await gw.ask('one'), { status: 500, code: 'server_error' }, 'after hook_timeout')
    await until(() => gw.server.inFlight === 0)
    store.admit = admit
    late.resolve()
    await given.promise
    store.leave = leave
    t.ok(await isFree(gw, 'one'))
  })

  await t.test('one that answers with a promise limits as one that answers at once', async (t) => {
    store.admit = async (admission) => await admit(admission)
    store.leave = async (id) => {
      await leave(id)
    }
    for (let i = 0; i < 3; i++) {
      t.match(await gw.ask('slow', '/v1/messages', family), { status: 200,
        headers: { ratelimit: `"key";r=${3 - i};t=60, "family";r=${2 - i};t=60` } })
    }
    t.match(await gw.ask('slow', '/v1/messages', family), { status: 429, code: 'family_rate_limited' })
    t.match(await gw.ask('slow'), { status: 429, code: 'rate_limited' })
    t.ok(await isFree(gw, 'slow'))
  })
})
