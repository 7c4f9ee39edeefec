// A quote's large body is read in a thread, and so is the body of the request in it, as that request's own would be.
// Who asks can't tell, and it costs nothing.
import { strict as assert } from 'node:assert'
import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { gateway, KEY, type TestGateway } from '../support/gateway.ts'
import { options, outcomeOf, stylesYaml } from '../support/large.ts'

type Json = Readonly<Record<string, unknown>>

const RUNS = Number(process.env['RUNS'] ?? 200)
/** Of bodies from 256 KB on. */
const NASTY_RUNS = Number(process.env['RUNS'] ?? 30)
const OPENING = 1_000_000n * 10n ** 9n
const NOBODY = 'http://127.0.0.1:9'

const config = stylesYaml(NOBODY).replace('models:', `  pics: { url: "${NOBODY}", dialect: images }
  films: { url: "${NOBODY}", dialect: videos }
routes:
  - { match: POST /v1/embeddings, forward: pics, price: { usd: 0.25 } }
models:
  - id: nano
    provider: acme
    kind: image
    created: 2025-11-20
    accepts: [text, image]
    parameters: { resolution: { values: [1K, 2K], default: 1K, max_pixels: { 1K: 1100000, 2K: 4200000 } } }
    channels:
      premium:
        price: [{ when: { resolution: 1K }, usd: 0.04 }, { when: { resolution: 2K }, usd: 0.08 }]
        targets: [{ upstream: pics, model: vendor }]
  - id: clip
    provider: acme
    kind: video
    created: 2025-10-06
    parameters: { size: { values: [1280x720, 720x1280], default: 1280x720 }, seconds: { values: [4, 8], default: 4 } }
    channels: { premium: { price: [{ usd_per_second: 0.10 }], targets: [{ upstream: films, model: vendor }] } }`)

interface Pair {
  readonly here: TestGateway
  readonly there: TestGateway
  /** bodies that `there` has parsed in threads, or begun to */
  readonly opened: () => number
  /** @throws the two differ @returns the outcome */
  same (body: Json | string): Promise<Json>
}

/** @param least bytes from which `there` has a thread read a body: those of the product, unless it says others */
async function pair (t: Test, least = 256 * 1024): Promise<Pair> {
  const [here, there] = [await gateway(t, config, { ...options, largeBody: Infinity }),
    await gateway(t, config, { ...options, largeBody: least })]
  const { bodies } = there.services
  let opened = 0
  const open = bodies!.open.bind(bodies)
  Object.assign(bodies!, { open: (...args: Parameters<typeof open>) => { opened++; return open(...args) } })
  const none = { requests: [] }
  return { here, there, opened: () => opened,
    async same (body) {
      const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
      const expected = await outcomeOf(here, none, '/v1/quote', bytes)
      assert.deepEqual(await outcomeOf(there, none, '/v1/quote', bytes), expected)
      return expected
    } }
}

async function costsNothing (t: Test, { here, there }: Pair): Promise<void> {
  for (const { services: { store } } of [here, there]) {
    t.strictSame(await store.balance('acme'), { balance: OPENING, held: 0n, open_holds: 0 })
  }
}

const optional = <T>(made: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(made, { nil: undefined, freq: 3 })
const oftenRight = <T>(made: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ arbitrary: made as fc.Arbitrary<unknown>, weight: 30 },
    { arbitrary: fc.jsonValue({ maxDepth: 2 }), weight: 1 })
/** of which the gateway keeps bytes */
const LONG_PICTURE = `data:image/png;base64,iVBORw0KGgoA${'QUJD'.repeat(17_000)}`
const text = fc.constantFrom('Hello', '', 'ж "quoted" \\ \u2028', 'word '.repeat(2000))
const part = fc.oneof(fc.record({ type: fc.constant('text'), text }),
  fc.record({ type: fc.constant('image_url'), image_url: fc.constant({ url: LONG_PICTURE }) }))
const content = oftenRight(fc.oneof(text, fc.array(part, { minLength: 1, maxLength: 3 })))
const messages = fc.array(fc.record({ role: fc.constantFrom('user', 'user', 'assistant', 'system'), content }),
  { minLength: 1, maxLength: 3 })
const name = oftenRight(fc.constantFrom('m-messages', 'm-chat', 'm-responses', 'latest', 'nano', 'clip', 'none'))
const body = fc.record({ model: name, messages: optional(oftenRight(messages)),
  max_tokens: optional(oftenRight(fc.integer({ min: 1, max: 9000 }))), stream: optional(oftenRight(fc.boolean())),
  input: optional(oftenRight(text)), store: optional(oftenRight(fc.boolean())), prompt: optional(oftenRight(text)),
  previous_response_id: fc.option(fc.constant('resp_1'), { nil: undefined, freq: 12 }),
  n: optional(oftenRight(fc.integer({ min: 1, max: 4 }))), image: optional(fc.constant(LONG_PICTURE)),
  seconds: optional(oftenRight(fc.constantFrom('4', 8))) })
const path = fc.constantFrom('/v1/messages', '/v1/chat/completions', '/v1/responses', '/v1/messages/count_tokens',
  '/v1/responses/input_tokens', '/v1/images/generations', '/v1/images/edits', '/v1/videos', '/v1/embeddings?x=y',
  '/v1/quote', '/v1/models', '/v1/nothing', 'v1/messages', '')
/** Of each route what is right there, as well. */
const right = fc.constantFrom<Json>(
  { path: '/v1/messages', body: { model: 'latest', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] } },
  { path: '/v1/messages/count_tokens', body: { model: 'm-messages', messages: [{ role: 'user', content: 'Hello' }] } },
  { path: '/v1/chat/completions', body: { model: 'm-chat', messages: [{ role: 'user', content: 'Hello' }] } },
  { path: '/v1/responses', body: { model: 'm-chat', input: 'Hello' } },
  { path: '/v1/responses', body: { model: 'm-chat', input: 'Hello', store: false } },
  { path: '/v1/images/generations', body: { model: 'nano', prompt: 'a cat', n: 2 } },
  { path: '/v1/images/edits', body: { model: 'nano', prompt: 'a cat', resolution: '2K', image: LONG_PICTURE } },
  { path: '/v1/videos', body: { model: 'clip', prompt: 'a cat', seconds: '8' } },
  { path: '/v1/embeddings', body: null },
  { path: '/v1/quote', body: { path: '/v1/messages', body: { model: 'latest' } } })
const question = fc.oneof({ arbitrary: right, weight: 5 },
  { arbitrary: fc.record({ path: oftenRight(path), body: oftenRight(body) }), weight: 9 },
  { arbitrary: fc.dictionary(fc.constantFrom('path', 'body', 'boddy', '__proto__', 'then', 'model'),
    fc.jsonValue({ maxDepth: 2 })), weight: 1 })

t.test('any quote, read in a thread, says what it says on the loop: answers, codes and log', async (t) => {
  const both = await pair(t, 1)
  const seen = { priced: 0, free: 0, refused: 0 }
  let sent = 0
  await fc.assert(fc.asyncProperty(question, async (asked) => {
    sent++
    const { status, said } = await both.same(asked as Json)
    assert.notEqual(status, 500)
    if (status !== 200) seen.refused++
    else if (String(said).includes('"max_cost_usd":"0"')) seen.free++
    else seen.priced++
  }), { numRuns: RUNS })
  t.ok(seen.priced > 3 && seen.free > 0 && seen.refused > 3, JSON.stringify(seen))
  t.ok(both.opened() >= sent)
  await costsNothing(t, both)
})

const KEYS = Array.from({ length: 9900 }, (_, i) => `"key${i}":1`).join(',')
/** 300 KB and more as JSON, of what takes time to read. */
const bulk = fc.constantFrom(`[${Array.from({ length: 4 }, () => `{${KEYS}}`).join(',')}]`,
  ...['{}', '"a"', 'null'].map((item) => `[${Array.from({ length: 110_000 }, () => item).join(',')}]`),
  `"/${'a '.repeat(150_000)}"`, `"${'\\u0416'.repeat(60_000)}"`, `1${'0'.repeat(300_000)}`, `${' '.repeat(300_000)}1`)
/** Where it stands: beside the fields of the quote, in their place, or in the request. */
const place = fc.constantFrom('x', 'path', 'body', 'body.x', 'body.x', 'body.x', 'body.model', 'body.messages',
  'body.prompt', 'body.input')
const ordinary = fc.constantFrom(
  ['/v1/messages', { model: '"latest"', max_tokens: '10', messages: '[{"role":"user","content":"Hello"}]' }],
  ['/v1/chat/completions', { model: '"m-chat"', messages: '[{"role":"user","content":"Hello"}]' }],
  ['/v1/responses', { model: '"m-chat"', input: '"Hello"', store: 'false' }],
  ['/v1/responses', { model: '"m-chat"', input: '"Hello"' }],
  ['/v1/messages/count_tokens', { model: '"m-chat"', messages: '[{"role":"user","content":"Hello"}]' }],
  ['/v1/images/generations', { model: '"nano"', prompt: '"a cat"' }],
  ['/v1/videos', { model: '"clip"', prompt: '"a cat"' }],
  ['/v1/quote', {}], ['/v1/embeddings', {}]) as unknown as fc.Arbitrary<readonly [string, Record<string, string>]>

function printed (fields: Readonly<Record<string, string>>): string {
  return `{${Object.entries(fields).map(([name, json]) => `"${name}":${json}`).join(',')}}`
}

t.test('nothing that is large, whatever it is and wherever, is read on the loop', async (t) => {
  const both = await pair(t)
  const seen = { ok: 0, refused: 0 }
  await fc.assert(fc.asyncProperty(ordinary, place, bulk, async ([path, fields], where, value) => {
    const inner = where.startsWith('body.') ? { ...fields, [where.slice(5)]: value } : fields
    const outer = { path: JSON.stringify(path), body: printed(inner), ...(!where.includes('.') && { [where]: value }) }
    const before = both.opened()
    const { status, said } = await both.same(printed(outer))
    assert.ok(both.opened() > before)
    assert.ok(status !== 200 || path === '/v1/embeddings' || both.opened() === before + 2, 'that in it too')
    assert.ok(String(said).length < 20_000)
    if (status === 200) seen.ok++
    else seen.refused++
  }), { numRuns: NASTY_RUNS, examples: ['/v1/messages', '/v1/chat/completions', '/v1/responses'].map((path) =>
    [[path, { model: '"latest"', max_tokens: '10', messages: '[{"role":"user","content":"Hello"}]', input: '"Hello"' }],
      'body.x', `"${'a '.repeat(150_000)}"`]) as never })
  t.ok(seen.ok > 0 && seen.refused > 0, JSON.stringify(seen))
  await costsNothing(t, both)
})

t.test('pictures make no quote large', async (t) => {
  const both = await pair(t)
  const image = `data:image/png;base64,iVBORw0KGgoA${'QU/D'.repeat(100_000)}`
  const asked = { path: '/v1/images/edits', body: { model: 'nano', prompt: 'a cat', image } }
  t.equal((await both.same(asked))['status'], 200)
  t.equal(both.opened(), 0)
  t.equal((await both.same(JSON.stringify(asked).replaceAll('/', '\\/')))['status'], 200)
  t.equal(both.opened(), 2)
})

t.test('one whose client leaves is given up, and the next one is answered', async (t) => {
  const { there } = await pair(t)
  const text = JSON.stringify({ path: '/v1/chat/completions', body: { model: 'm-chat',
    messages: [{ role: 'user', content: 'Hello' }], x: Array.from({ length: 300_000 }, (_, i) => `${i}`) } })
  const ask = async (signal?: AbortSignal): Promise<number> => (await fetch(there.url + '/v1/quote', { method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': KEY }, body: text,
    ...(signal !== undefined && { signal }) })).status
  t.equal(await ask(), 200)
  for (const ms of [5, 15, 30, 60, 100]) {
    const client = new AbortController()
    const asked = ask(client.signal).catch((err: unknown) => (err as Error).name)
    await setTimeout(ms)
    client.abort()
    await asked
  }
  t.equal(await ask(), 200)
  t.equal(there.logged.filter(({ level }) => level === 'error').length, 0)
})
