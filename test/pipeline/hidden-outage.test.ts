// F2: the 400 of a fallback does not hide an outage (rule hidden-outage): plans of one to four targets, in all orders
// of what can become of a target.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { client, errorOf, type Received as Answered } from '../support/client.ts'
import { CALM, gateway, messagesRequest, type TestGateway, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, cut, errorReply, json, upstream, wait, type Script, type Upstream } from '../support/upstream.ts'
import { videosYaml } from '../support/videos.ts'

const OPEN_S = 20
const refusal = (code: number, message: string): Script => errorReply(code, 'invalid_request_error', message)

/** What targets answer. */
const scripts = {
  ok: answer('well'),
  overloaded: errorReply(503, 'overloaded_error', 'no', { 'retry-after': '7' }),
  broken: errorReply(500, 'api_error', 'no'),
  reset: cut(),
  unpaid: errorReply(402, 'billing_error', 'no'),
  'no such model': errorReply(404, 'not_found_error', 'no'),
  400: refusal(400, 'messages.0.role: no'),
  413: refusal(413, 'no'),
  422: refusal(422, 'messages.0.role: no'),
  context: refusal(400, 'prompt is too long: 200001 tokens > 200000 maximum'),
  policy: refusal(400, 'Output blocked by content filtering policy')
} as const
/** What keeps targets from being asked. */
const states = ['open', 'limited', 'cooling', 'full'] as const

type Outcome = `${keyof typeof scripts}` | typeof states[number]
const outcomes = [...Object.keys(scripts), ...states] as readonly Outcome[]
const REFUSALS: Readonly<Partial<Record<Outcome, string>>> = { 400: 'invalid_request', 413: 'request_too_large',
  422: 'invalid_request', context: 'context_length_exceeded', policy: 'content_policy_violation' }
const isRefusal = (outcome: Outcome): boolean => outcome in REFUSALS

/** What the client gets from targets of one tier each: `ok`, the code of a refusal, or what it can retry. */
function expected (plan: readonly Outcome[]): string {
  const isOut = (outcome: Outcome): boolean => outcome === 'open' || outcome === 'limited' || outcome === 'cooling'
  const able = plan.filter((outcome) => !isOut(outcome))
  const asked = [...able.filter((outcome) => outcome !== 'full'), ...able.filter((outcome) => outcome === 'full')]
  let hasFailed = false
  for (const outcome of asked) {
    if (outcome === 'ok') return 'ok'
    if (outcome === 'policy') return REFUSALS.policy!
    if (!isRefusal(outcome)) { hasFailed = true; continue }
    const isFirst = plan.slice(0, plan.indexOf(outcome)).every(isRefusal)
    if (!hasFailed && isFirst) return REFUSALS[outcome]!
  }
  if (plan.includes('context')) return REFUSALS.context!
  const others = plan.filter((outcome) => !isRefusal(outcome))
  return others.every((outcome) => outcome === 'unpaid' || outcome === 'cooling') ? 'service_unavailable' : 'retryable'
}

const PLACES = [0, 1, 2, 3] as const
const SETTINGS = `retries: { attempts: 0, max_backoff: 1ms }, limits: { concurrency: 1, queue: 0 }, ` +
  `breaker: { failures: 1, ratio: 1, open: ${OPEN_S}s }`

interface Bench {
  readonly gw: TestGateway
  readonly ups: readonly Upstream[]
  /** @returns ends what fills the targets */
  become (plan: readonly Outcome[]): Promise<() => Promise<void>>
}

/** @param priorities of the targets; absent: each has a tier of its own */
async function bench (t: Test, priorities: readonly number[] = PLACES): Promise<Bench> {
  let plays: readonly Outcome[] = []
  let held = Promise.withResolvers<void>()
  const holders = new Set<number>()
  const ups = await Promise.all(PLACES.map(async (place) => await upstream(t, ({ body }) => {
    if (String(body!['model']).startsWith('hold')) { holders.add(place); return [wait(held.promise), answer('held')] }
    return scripts[plays[place] as keyof typeof scripts]
  })))
  const target = (place: number): string =>
    `{ upstream: u${place}, model: vendor-m1, priority: ${priorities[place]!} }`
  const sells = (id: string, targets: readonly string[]): string => `  - { id: ${id}, provider: acme, ` +
    'created: 2025-09-29, context: 200000, max_output: 64000, ' +
    `channels: { premium: { price: { input: 3, output: 15 }, targets: [${targets.join(', ')}] } } }\n`
  const models = [...PLACES.map((last) => sells(`m${last + 1}`, PLACES.slice(0, last + 1).map(target))),
    ...PLACES.map((place) => sells(`hold-${place}`, [`{ upstream: u${place}, model: hold }`]))].join('')
  const text = yaml(ups.map(({ url }) => url)).replaceAll(CALM, SETTINGS)
    .replace(/^ {2}- id: m1\n[^]*?(?=^accounts:)/m, models)
  const gw = await gateway(t, text, { now: () => 1_800_000_000_000 })
  return { gw, ups, async become (plan) {
    gw.heal()
    plays = plan
    const { health } = gw.services.upstreams
    const enter = (place: number) => health.enter(gw.live.current().upstreams.get(`u${place}`)!, 'vendor-m1')!
    const fail = (place: number, status: number): void => {
      enter(place).fail({ kind: 'status', status, headers: { 'retry-after': '9' }, body: {} },
        new GatewayError('upstream_error'))
    }
    for (const [place, outcome] of plan.entries()) {
      if (outcome === 'open') enter(place).fail({ kind: 'reset', cause: undefined }, new GatewayError('upstream_error'))
      if (outcome === 'limited') fail(place, 429)
      if (outcome === 'cooling') fail(place, 402)
    }
    const full = plan.flatMap((outcome, place) => outcome === 'full' ? [place] : [])
    const calls = full.map((place) => client(t, gw).post({ ...messagesRequest, model: `hold-${place}` }))
    await until(() => full.every((place) => holders.has(place)))
    return async () => {
      held.resolve()
      await Promise.all(calls.map(async (call) => await call.whole()))
      held = Promise.withResolvers<void>()
      holders.clear()
    }
  } }
}

/** In the words of `expected`. */
function read (t: Test, got: Answered, plan: readonly Outcome[]): string {
  if (got.status === 200) return 'ok'
  const { code } = errorOf(got)
  if (got.status === 400 || got.status === 413 || code === 'service_unavailable') return code
  t.ok([429, 502, 503].includes(got.status), `${plan.join(', ')}: ${got.status} ${code}`)
  if (got.status !== 502) t.match(got.headers['retry-after'], /^[1-9]\d?$/)
  return 'retryable'
}

t.test('F2: plans of one to four targets, in all orders', async (t) => {
  const { gw, become } = await bench(t)
  const { post } = client(t, gw)
  const send = async (plan: readonly Outcome[], stream: boolean): Promise<string> => {
    const free = await become(plan)
    const got = await post({ ...messagesRequest, model: `m${plan.length}`, stream }).whole()
    await free()
    return read(t, got, plan)
  }
  for (const first of outcomes) {
    t.equal(await send([first], false), expected([first]), first)
    for (const second of outcomes) {
      const plan = [first, second]
      t.equal(await send(plan, outcomes.indexOf(second) % 2 === 0), expected(plan), plan.join(', '))
    }
  }
  const longer = fc.array(fc.constantFrom(...outcomes), { minLength: 3, maxLength: 4 })
  await fc.assert(fc.asyncProperty(longer, fc.boolean(), async (plan, stream) => {
    t.equal(await send(plan, stream), expected(plan), plan.join(', '))
  }), { numRuns: 200, endOnFailure: true })
  t.equal(await gw.services.store.openHolds(), 0)
})

t.test('F2: Retry-After is that of the outage', async (t) => {
  const { gw, become } = await bench(t)
  for (const [plan, status, retryAfter] of [
    [['open', '400'], 503, OPEN_S], [['limited', '400'], 503, 9], [['overloaded', '413'], 503, OPEN_S],
    [['cooling', '422'], 503, 60], [['full', '400'], 429, 1], [['400', 'open'], 400, undefined],
    [['broken', '400', 'open'], 502, undefined], [['open', '400', 'limited'], 503, 9]
  ] as readonly (readonly [readonly Outcome[], number, number | undefined])[]) {
    const free = await become(plan)
    const got = await client(t, gw).post({ ...messagesRequest, model: `m${plan.length}` }).whole()
    await free()
    t.strictSame([got.status, got.headers['retry-after']], [status, retryAfter?.toString()], plan.join(', '))
  }
})

t.test('F2: of equals, one that is out counts, wherever the plan has it; one of a later tier does not', async (t) => {
  for (const [priorities, status] of [[[0, 0, 0, 0], 503], [[0, 1, 2, 3], 400]] as const) {
    const { gw, become } = await bench(t, priorities)
    for (let i = 0; i < 5; i++) {
      const free = await become(['400', 'open'])
      const got = await client(t, gw).post({ ...messagesRequest, model: 'm2' }).whole()
      await free()
      t.equal(got.status, status)
    }
  }
})

t.test('F2: a fallback in another channel', async (t) => {
  const [cheap, premium] = [await upstream(t, scripts.broken), await upstream(t, scripts['400'])]
  const text = yaml([premium.url, cheap.url]).replace(', { upstream: u1, model: vendor-m1, priority: 1 }]',
    ']\n      cheap: { price: { input: 1, output: 5 }, targets: [{ upstream: u1, model: vendor-m1 }] }')
    .replace(/secret: (\S+) \}/, 'secret: $1, routing_mode: auto_cheap }')
  const gw = await gateway(t, text)
  const got = await client(t, gw).post(messagesRequest).whole()
  t.match([got.status, errorOf(got).code], [502, 'server_error'])
  t.strictSame([cheap.requests.length, premium.requests.length], [1, 1])
})

t.test('F2: a target that recovers within max_backoff answers, as if the fallback were not there', async (t) => {
  let turn = 0
  const first = await upstream(t, () => turn++ === 0 ? scripts.broken : scripts.ok)
  const second = await upstream(t, scripts['400'])
  const gw = await gateway(t, yaml([first.url, second.url]).replace(CALM, 'retries: { backoff: 1ms }'))
  t.equal((await client(t, gw).post(messagesRequest).whole()).status, 200)
  t.strictSame([first.requests.length, second.requests.length], [2, 1])
  await t.test('and when it refuses the request itself then, that is the answer', async (t) => {
    turn = 0
    const third = await upstream(t, () => turn++ === 0 ? scripts.broken : refusal(400, 'messages.0: of the first'))
    const own = await gateway(t, yaml([third.url, second.url]).replace(CALM, 'retries: { backoff: 1ms }'))
    const got = await client(t, own).post(messagesRequest).whole()
    t.match([got.status, errorOf(got).message], [400, /of the first/])
  })
})

t.test('F2: images and videos', async (t) => {
  const out = await upstream(t, errorReply(503, 'overloaded_error', 'no', { 'retry-after': '7' }))
  const picky = await upstream(t, json({ error: { type: 'invalid_request_error', message: 'size: no' } }, 400))
  const images = yaml([out.url, picky.url], '', 'auth, schema-validate, channel-router, billing-meter, error-normalize')
    .replaceAll('dialect: messages', 'dialect: images').replace('kind: text', 'kind: image')
    .replace(/ +context: .*\n +max_output: .*\n/, '').replace(/price: .*/, 'price: [{ usd: "0.04" }]')
  const videos = videosYaml(out.url)
    .replace(/( +)studio: (.*)/, (line, space: string, rest: string) =>
      `${line}\n${space}other: ${rest.replace(out.url, picky.url)}`)
    .replace('{ upstream: studio, model: sora }', '{ upstream: studio, model: sora }, ' +
      '{ upstream: other, model: sora, priority: 1 }')
  const ways = [[images, '/v1/images/generations', 'm1'], [videos, '/v1/videos', 'clip']] as const
  for (const [text, path, model] of ways) {
    const before = picky.requests.length
    const gw = await gateway(t, text)
    const got = await client(t, gw, path).post({ model, prompt: 'a cat' }).whole()
    t.match([got.status, got.headers['retry-after']], [503, '7'], path)
    t.equal(picky.requests.length, before + 1)
  }
})
