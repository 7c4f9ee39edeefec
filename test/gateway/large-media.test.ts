// Large bodies that ask for images and videos are read in threads, whatever makes them large: a client, an upstream,
// the log and the money can't tell. The event loop has only what it needs, so no such body stops it.
import { strict as assert } from 'node:assert'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { bodyOf, headOf } from '../../src/core/large-body.ts'
import { CALM, finished, gateway, KEY, type TestGateway, yaml } from '../support/gateway.ts'
import { options, outcomeOf } from '../support/large.ts'
import { json, type Received, type Script, upstream, type Upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const RUNS = Number(process.env['RUNS'] ?? 150)
/** Of bodies from 256 KB on. */
const NASTY_RUNS = Number(process.env['RUNS'] ?? 40)
/** nano-dollars */
const OPENING = 1_000_000n * 10n ** 9n
const GENERATIONS = '/v1/images/generations'
const EDITS = '/v1/images/edits'
const VIDEOS = '/v1/videos'

/** Two models; of each the first target fails where the body says so: at BUSY the second is asked, at FAIL none. */
function config (url: string): string {
  const upstreams = ['images', 'videos'].flatMap((dialect) => ['bad', 'good'].map((name) =>
    `  ${dialect}-${name}: { url: "${url}/${name}/v1", dialect: ${dialect}, ${CALM}, headers: { x-api-key: secret } }`))
  const targets = (dialect: string): string =>
    `[{ upstream: ${dialect}-bad, model: vendor, priority: 0 }, { upstream: ${dialect}-good, model: vendor, priority: 1 }]`
  return yaml([], '', 'auth, key-policy, rate-limit, schema-validate, chat-to-messages, channel-router, ' +
    'billing-meter, error-normalize')
    .replace(/upstreams:\n[^]*accounts:/, `videos: { poll_interval: 10m }
upstreams:
${upstreams.join('\n')}
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
        targets: ${targets('images')}
  - id: clip
    provider: acme
    kind: video
    created: 2025-10-06
    accepts: [text, image]
    parameters: { size: { values: [1280x720, 720x1280], default: 1280x720 }, seconds: { values: [4, 8], default: 4 } }
    channels: { premium: { price: [{ usd_per_second: 0.10 }], targets: ${targets('videos')} } }
aliases: [{ id: painter, model: nano }, { id: filmer, model: clip }]
accounts:`)
    .replace('secret: ', 'rate_limit: 1000000, secret: ')
    .replace('opening_balance_usd: 100', 'opening_balance_usd: 1000000')
}

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

function answerTo ({ method, path, bytes }: Received): Script {
  if (method !== 'POST') return json({}, 404)
  const said = bytes.toString()
  const quoted = /(?:FAIL|BUSY)[^"\\]{0,80}/.exec(said)?.[0]
  if (path.startsWith('/bad/') && quoted !== undefined) {
    return json({ error: { message: `could not read: ${quoted}` } }, quoted.startsWith('BUSY') ? 429 : 400)
  }
  if (path.endsWith('/videos')) return json({ id: 'task_1', object: 'video', status: 'queued', progress: 0 })
  return json({ created: 1, data: Array.from({ length: 3 }, () => ({ b64_json: PNG, revised_prompt: 'a cat' })) })
}

/** The upstream's part in making images and videos; what asks how far a video is comes when it wants. */
function creations ({ requests }: Upstream): { readonly requests: readonly Received[] } {
  return { get requests () { return requests.filter(({ method }) => method === 'POST') } }
}

/** Without the ids of videos and the addresses of images, of which each has its own. */
function plain (outcome: Json): Json {
  const shown = (value: unknown): unknown => typeof value === 'string'
    ? value.replace(/video_\w{24}/g, 'VIDEO').replace(/"url":"[^"]*"/g, '"url":"…"') : value
  return Object.fromEntries(Object.entries(outcome).map(([name, value]) => [name, shown(value)]))
}

interface Pair {
  /** reads all bodies on the loop */
  readonly here: TestGateway
  readonly there: TestGateway
  /** bodies that `there` has given to threads */
  readonly opened: () => number
  readonly up: Upstream
  /** @throws the two differ @returns the outcome */
  same (path: string, body: Json | Buffer, headers?: Record<string, string>): Promise<Json>
}

/** @param least bytes from which `there` has a thread read a body: those of the product, unless it says others */
async function pair (t: Test, least = 256 * 1024): Promise<Pair> {
  const up = await upstream(t, answerTo)
  const [here, there] = [await gateway(t, config(up.url), { ...options, largeBody: Infinity }),
    await gateway(t, config(up.url), { ...options, largeBody: least })]
  const { bodies } = there.services
  let opened = 0
  const open = bodies!.open.bind(bodies)
  Object.assign(bodies!, { open: (...args: Parameters<typeof open>) => { opened++; return open(...args) } })
  return { here, there, up, opened: () => opened,
    async same (path, body, headers) {
      const bytes = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body))
      const expected = plain(await outcomeOf(here, creations(up), path, bytes, headers))
      assert.deepEqual(plain(await outcomeOf(there, creations(up), path, bytes, headers)), expected)
      return expected
    } }
}

/** What was charged in all, and is held for videos, is the same on both sides. */
async function sameMoney (t: Test, { here, there }: Pair): Promise<void> {
  const [expected, found] = await Promise.all([here, there].map(({ services: { store } }) => store.balance('acme')))
  t.strictSame(found, expected)
  t.ok(found!.balance < OPENING && found!.held > 0n, 'images are charged, and videos held')
}

const optional = <T>(made: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(made, { nil: undefined, freq: 2 })
const oftenRight = <T>(made: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ arbitrary: made as fc.Arbitrary<unknown>, weight: 30 },
    { arbitrary: fc.jsonValue({ maxDepth: 2 }), weight: 1 })
const word = fc.oneof(
  { arbitrary: fc.constantFrom('a cat', 'FAIL and the words behind it', 'BUSY and those behind it', 'ж "q" \\ \u2028'),
    weight: 6 },
  { arbitrary: fc.string({ unit: 'grapheme', maxLength: 30 }), weight: 1 })
/** of which the gateway keeps bytes, or not: it is short, is broken into lines, or stands in no field for it */
const LONG_PICTURE = `data:image/png;base64,iVBORw0KGgoA${'QUJD'.repeat(17_000)}`
const picture = fc.constantFrom(`data:image/png;base64,${PNG}`, LONG_PICTURE,
  `data:image/png;base64,${`${'QUJD'.repeat(19)}\n`.repeat(900)}`)
const input = oftenRight(fc.oneof(picture, fc.constant('https://example.com/a.png'),
  fc.record({ image_url: oftenRight(picture) }), fc.record({ image_url: fc.record({ url: picture }) }),
  fc.constant({ file_id: 'file_1' })))
const others = fc.dictionary(fc.constantFrom('x', 'then', 'messages', '__proto__', 'metadata', 'tier', 'quality',
  'partial_images', 'style', 'negative_prompt'), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 1 })
const flag = optional(oftenRight(fc.constantFrom(false, null)))

const imageFields = { model: oftenRight(fc.constantFrom('nano', 'painter')), prompt: oftenRight(word),
  n: optional(oftenRight(fc.integer({ min: 1, max: 4 }))), user: optional(oftenRight(word)), stream: flag,
  response_format: optional(oftenRight(fc.constantFrom('url', 'b64_json', null))),
  resolution: optional(oftenRight(fc.constantFrom('1K', '2K', 'auto'))),
  size: optional(oftenRight(fc.constantFrom('1024x1024', '1024x1024', 'auto', '2048x2048', '9x'))) }
const generation = fc.record(imageFields)
const edit = fc.record({ ...imageFields, image: optional(fc.oneof(input, fc.array(input, { maxLength: 3 }))),
  images: optional(fc.array(input, { maxLength: 3 })), mask: optional(input), markup: optional(input) })
const video = fc.record({ model: oftenRight(fc.constantFrom('clip', 'filmer')), prompt: oftenRight(word), stream: flag,
  seconds: optional(oftenRight(fc.constantFrom<unknown>('4', 8, null, 'auto'))),
  size: optional(oftenRight(fc.constantFrom('1280x720', '720x1280', 'auto'))), input_reference: optional(input) })
const request = fc.oneof(fc.tuple(fc.constant(GENERATIONS), fc.tuple(generation, others)),
  fc.tuple(fc.constant(EDITS), fc.tuple(edit, others)), fc.tuple(fc.constant(VIDEOS), fc.tuple(video, others)))

t.test('any body, read in a thread, gives what it gives on the loop: bytes, codes, log and money', async (t) => {
  const both = await pair(t, 1)
  const seen = { ok: 0, refused: 0, failed: 0, again: 0 }
  let sent = 0
  await fc.assert(fc.asyncProperty(request, async ([path, [body, more]]) => {
    sent++
    const { status, line } = await both.same(path, { ...more, ...body }) as { readonly status: number,
      readonly line: Json }
    assert.notEqual(status, 500)
    if (status === 200) seen.ok++
    else seen.refused++
    if (line['failures'] !== undefined) seen.failed++
    if (Number(line['attempts']) > 1) seen.again++
  }), { numRuns: RUNS, examples: [
    [[GENERATIONS, [{ model: 'painter', prompt: 'FAIL', n: 3 }, {}]]],
    [[EDITS, [{ model: 'nano', prompt: 'a cat', images: [{ image_url: LONG_PICTURE }] }, {}]]],
    [[VIDEOS, [{ model: 'filmer', prompt: 'a cat', seconds: '8' }, {}]]],
    [[VIDEOS, [{ model: 'clip', prompt: 'FAIL' }, {}]]],
    [[GENERATIONS, [{ model: 'painter', prompt: 'BUSY' }, {}]]],
    [[VIDEOS, [{ model: 'clip', prompt: 'BUSY' }, {}]]],
    [[VIDEOS, [{ model: 'clip', prompt: '😀'.repeat(32_000) }, {}]]]
  ] as never })
  t.ok(seen.ok > 3 && seen.refused > 0 && seen.failed > 0 && seen.again > 0, JSON.stringify(seen))
  t.equal(both.opened(), sent)
  await sameMoney(t, both)
})

/** Values of 300 KB and more, as JSON, of what takes time to read: objects, keys, strings, escapes, nests. */
const bulk = fc.oneof(
  fc.integer({ min: 1, max: 9 }).map((objects) => {
    const keys = (first: number): string => Array.from({ length: 9900 }, (_, i) => `"key${first + i}":1`).join(',')
    return `[${Array.from({ length: objects + 2 }, (_, i) => `{${keys(i * 10_000)}}`).join(',')}]`
  }),
  fc.constantFrom('{}', '{"a":{"b":1}}', '[]', '["a"]', '"a"', '1', 'null', '{"image_url":"https://example.com/a.png"}')
    .map((item) => `[${Array.from({ length: Math.ceil(300_000 / (item.length + 1)) }, () => item).join(',')}]`),
  fc.integer({ min: 2, max: 50 }).map((deep) =>
    `[${Array.from({ length: Math.ceil(150_000 / deep) }, () => '['.repeat(deep) + ']'.repeat(deep)).join(',')}]`),
  fc.constantFrom('a ', '\\"', '\\u0416', 'ж', '\\ud83d\\ude00', '\\n').map((piece) =>
    `"${piece.repeat(Math.ceil(300_000 / piece.length))}"`),
  fc.constantFrom(`1${'0'.repeat(300_000)}`, `${' '.repeat(300_000)}1`, `{"${'k '.repeat(150_000)}":1}`)
)
/** The field that is so large: one that nobody knows, or one that the gateway reads. */
const place = fc.constantFrom('x', 'x', 'x', 'user', 'prompt', 'model', 'n', 'seconds', 'size', 'resolution', 'stream',
  'response_format', 'images', 'image', 'mask', 'input_reference', 'style')

t.test('nothing that is large, whatever it is, is read on the loop, and it costs what it costs there', async (t) => {
  const both = await pair(t)
  const seen = { ok: 0, refused: 0 }
  let sent = 0
  await fc.assert(fc.asyncProperty(fc.constantFrom(GENERATIONS, EDITS, VIDEOS), place, bulk, fc.boolean(),
    async (path, field, value, isNamed) => {
      const fields: Record<string, string> = { model: path === VIDEOS ? '"clip"' : '"nano"', prompt: '"a cat"',
        ...(path === EDITS && { image: `"data:image/png;base64,${PNG}"` }), [field]: value }
      const text = `{${Object.entries(fields).map(([name, json]) => `"${name}":${json}`).join(',')}}`
      sent++
      const outcome = await both.same(path, Buffer.from(text), isNamed ? { 'idempotency-key': `name ${sent}` } : {})
      assert.equal(both.opened(), sent)
      assert.ok(outcome['status'] === 200 || outcome['status'] === 400, String(outcome['said']))
      if (outcome['status'] === 200) seen.ok++
      else seen.refused++
    }), { numRuns: NASTY_RUNS, examples: [[GENERATIONS, 'x', `"${'a '.repeat(150_000)}"`, true],
    [VIDEOS, 'x', `"${'a '.repeat(150_000)}"`, true], [VIDEOS, 'prompt', `"${'a '.repeat(150_000)}"`, false]] })
  t.ok(seen.ok > 0 && seen.refused > 0, JSON.stringify(seen))
  await sameMoney(t, both)
})

t.test('pictures make no body large, unless their base64 has to be read; what is written to an upstream is the same', async (t) => {
  const both = await pair(t)
  const base64 = 'iVBORw0KGgoA' + 'QU/D'.repeat(100_000)
  const url = `data:image/png;base64,${base64}`
  const edit = { model: 'nano', prompt: 'a cat' }
  const escaped = (body: Json): Buffer => Buffer.from(JSON.stringify(body).replaceAll('/', '\\/'))
  for (const [what, path, body, isLarge] of [
    ['an image', EDITS, { ...edit, image: url }, false],
    ['two of them', EDITS, { ...edit, images: [{ image_url: url }, { image_url: url }] }, false],
    ['that a video begins with', VIDEOS, { model: 'clip', prompt: 'a cat', input_reference: { image_url: url } },
      false],
    ['an image as PHP writes it', EDITS, escaped({ ...edit, image: url }), true],
    ['that a video begins with, as PHP writes it', VIDEOS,
      escaped({ model: 'clip', prompt: 'a cat', input_reference: { image_url: url } }), true],
    ['an image in lines', EDITS, { ...edit, image: `${url}\n` }, true]
  ] as const) {
    const before = both.opened()
    const { status, asked } = await both.same(path, body)
    t.equal(status, 200, what)
    t.equal(both.opened() - before, isLarge ? 1 : 0, what)
    t.ok((asked as readonly { readonly bytes: string }[])[0]!.bytes.includes(base64), what)
  }
})

t.test('Idempotency-Key: of large bodies too the same is answered and charged once, however it is spelled', async (t) => {
  const { there, up, opened } = await pair(t)
  const url = `data:image/png;base64,iVBORw0KGgoA${'QU/D'.repeat(100_000)}`
  const ask = async (body: Json, { path = EDITS, name = 'my-1', spell = JSON.stringify }: { readonly path?: string,
    readonly name?: string, readonly spell?: (body: Json) => string } = {}): Promise<string> => {
    const answer = await fetch(there.url + path, { method: 'POST', body: spell(body),
      headers: { 'content-type': 'application/json', 'x-api-key': KEY, 'idempotency-key': name } })
    const { error } = await answer.json() as { readonly error?: { readonly message: string } }
    await finished(there)
    return `${answer.status} ${answer.headers.get('idempotent-replayed') ?? error?.message ?? 'new'}`
  }
  const body = { model: 'painter', prompt: 'a cat', image: url }
  t.equal(await ask(body), '200 new')
  t.equal(opened(), 0)
  t.equal(await ask(body, { spell: (value) => JSON.stringify(value).replaceAll('/', '\\/') }), '200 true',
    'read on the loop, and in a thread')
  t.equal(opened(), 1)
  const long = { prompt: 'a cat', model: 'painter', x: 'word '.repeat(70_000) }
  t.equal(await ask(long, { path: GENERATIONS, name: 'my-2' }), '200 new')
  t.equal(await ask({ x: long.x, model: 'painter', prompt: 'a cat' },
    { path: GENERATIONS, name: 'my-2', spell: (value) => JSON.stringify(value, null, 2) }), '200 true')
  for (const other of [{ ...long, x: `${long.x}!` }, { ...long, model: 'nano' }, { ...long, n: 2 }]) {
    t.match(await ask(other, { path: GENERATIONS, name: 'my-2' }), /^400 This Idempotency-Key was used before/)
  }
  t.match(await ask({ ...long, x: Array.from({ length: 150_000 }, () => 1) }, { path: GENERATIONS, name: 'my-3' }),
    /^400 A request with an Idempotency-Key may hold 10000 values/)
  t.equal(opened(), 7)
  t.equal(creations(up).requests.length, 2)
  t.strictSame(await there.services.store.balance('acme'),
    { balance: OPENING - 2n * 40_000_000n, held: 0n, open_holds: 0 })
})

t.test('of any body the loop is told little, and reading more is an error', async () => {
  const long = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom<fc.JsonValue>('a '.repeat(100_000),
    Array.from({ length: 10_000 }, () => ({ a: 1 }))))
  const names = ['model', 'stream', 'prompt', 'n', 'response_format', 'image', 'size', 'seconds', 'x', '__proto__']
  fc.assert(fc.property(fc.dictionary(fc.constantFrom(...names), long), fc.constantFrom('image', 'video'),
    (body, modality) => {
      const head = headOf(body, modality)
      assert.ok(JSON.stringify(head).length < 200_000)
      const told = bodyOf(head, modality)
      const known = ['model', 'stream', ...(modality === 'image' ? ['n', 'response_format'] : ['prompt'])]
      for (const name of names) {
        if (!known.includes(name)) { assert.throws(() => told[name], /outside of a body step/); continue }
        const sent = Object.hasOwn(body, name) ? body[name] : undefined
        if (typeof sent === 'string') assert.ok(sent.startsWith(told[name] as string))
        else if (typeof sent === 'object' && sent !== null) assert.equal(JSON.stringify(told[name]).length, 2)
        else assert.equal(told[name], sent)
      }
      assert.throws(() => Object.keys(told), /outside of a body step/)
    }))
})
