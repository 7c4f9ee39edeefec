// Idempotency-Key: one answer and one charge for a name, whoever sends it again, at the same time, later, or after a
// restart.
import { createHash } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { startClock } from '../support/clock.ts'
import { request, settlement } from '../support/embedded-store.ts'
import { gateway, KEY, type TestGateway } from '../support/gateway.ts'
import { folderFor } from '../support/spawned.ts'
import { client, errorIn, OTHER, SECOND, studio, videosYaml, type Answered, type Studio,
  type Video } from '../support/videos.ts'

const NAMED = { 'idempotency-key': 'my-1' }

async function create (
  { ask }: Pick<Studio, 'ask'>,
  more: object = {},
  headers: Readonly<Record<string, string>> = NAMED
): Promise<Answered<Video>> {
  return await ask('POST', '/videos', { model: 'clip', prompt: 'a cat', ...more }, headers)
}

function creations ({ simulator }: Pick<Studio, 'simulator'>): number {
  return simulator.requests.filter(({ method, path }) => method === 'POST' && path.startsWith('/v1/')).length
}

void t.test('the same name and body get the same video, and one charge', async (t) => {
  const s = await studio(t)
  const first = await create(s)
  const again = await create(s)
  t.equal(first.headers.get('idempotent-replayed'), null)
  t.equal(again.headers.get('idempotent-replayed'), 'true')
  t.strictSame([again.status, again.body], [200, first.body])
  t.not(again.headers.get('x-request-id'), first.headers.get('x-request-id'), 'it is a request of its own')
  await s.ended(first.body.id)
  t.strictSame((await create(s)).body, first.body, 'also when the video is completed')
  t.equal(creations(s), 1)
  t.equal((await s.entries()).length, 1)
  t.strictSame(await s.gw.services.store.balance('acme'), { balance: 99_600_000_000n, held: 0n, open_holds: 0 })
})

void t.test('what is the same and what is not', async (t) => {
  const s = await studio(t)
  const { body: { id } } = await create(s, { seconds: '4',
    input_reference: { image_url: 'https://example.com/a.png' } })
  const same = JSON.stringify({ input_reference: { image_url: 'https://example.com/a.png' }, seconds: '4',
    prompt: 'a cat', model: 'clip' }, null, 2)
  const spelled = await fetch(`${s.gw.url}/v1/videos`, { method: 'POST', body: same,
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...NAMED } })
  t.match(await spelled.json(), { id }, 'order and white space are no difference')
  const refused = /^400 invalid_request: This Idempotency-Key was used before with another request/
  for (const body of [{}, { seconds: '8' }, { prompt: 'a dog' }, { user: 'u' }]) {
    t.match(errorIn(await create(s, body)), refused, JSON.stringify(body))
  }
  t.match(
    (await create(s, { seconds: '4', input_reference: { image_url: 'https://example.com/a.png' } }, { ...NAMED,
      authorization: `Bearer ${SECOND}` })).body,
    { id },
    'another key of the account'
  )
  t.not((await create(s, {}, { ...NAMED, authorization: `Bearer ${OTHER}` })).body.id, id, 'another account')
  t.not((await create(s, {}, { 'idempotency-key': 'my-2' })).body.id, id, 'another name')
  t.not((await create(s, {}, {})).body.id, (await create(s, {}, {})).body.id, 'none')
  t.equal(creations(s), 5)
})

void t.test('another key of the account gets the answer only within its own limits: models, and rate of the family', async (t) => {
  const limited = 'sk-gw-' + 'l'.repeat(32)
  const slow = 'sk-gw-' + 's'.repeat(32)
  const s = await studio(t, { families: '{ clips: { rpm: 1 } }', simulator: { firstDelayMs: 100 }, more:
`  - { id: acme-still, account: acme, secret: ${limited}, allowed_models: [still] }
  - { id: acme-slow, account: acme, secret: ${slow} }
` })
  const by = async (secret: string, name: string): Promise<Answered<Video>> =>
    await create(s, {}, { 'idempotency-key': name, authorization: `Bearer ${secret}` })
  const { body: { id } } = await create(s)
  t.match(errorIn(await by(limited, 'my-1')), /^403 model_not_allowed: This key may not use the model "clip"/)
  t.equal((await by(slow, 'my-1')).body.id, id, 'another key without such a limit')
  t.match(errorIn(await by(slow, 'my-1')), /^429 family_rate_limited/, 'a repetition is a request of its key')
  const first = by(SECOND, 'at once')
  await s.simulator.until(() => creations(s) === 2)
  const second = by(limited, 'at once')
  t.strictSame([(await first).status, (await second).status], [200, 403], 'also one that has waited for the first')
  t.equal(creations(s), 2)
})

void t.test('the refusal of one key is not that of another one that has waited for it', async (t) => {
  const limited = 'sk-gw-' + 'l'.repeat(32)
  const s = await studio(t,
    { more: `  - { id: acme-still, account: acme, secret: ${limited}, allowed_models: [still] }\n` })
  const tasks = s.gw.services.tasks as unknown as { answer (...call: unknown[]): unknown }
  const answer = tasks.answer.bind(tasks)
  const looked = Promise.withResolvers<void>()
  const gate = Promise.withResolvers<void>()
  tasks.answer = async (...call) => {
    looked.resolve()
    await gate.promise
    return await answer(...call)
  }
  const by = async (secret: string): Promise<Answered<Video>> =>
    await create(s, {}, { ...NAMED, authorization: `Bearer ${secret}` })
  const first = by(limited)
  await looked.promise
  const second = by(SECOND)
  // Long enough for it to be there; where it is not, it has waited for nobody, and nothing is shown.
  await pause(200)
  gate.resolve()
  t.match(errorIn(await first), /^403 model_not_allowed/)
  t.equal((await second).status, 200)
})

void t.test('large files are compared by what is in them', async (t) => {
  const s = await studio(t)
  const image = (letter: string): object => ({
    input_reference: { image_url: `data:image/png;base64,${letter.repeat(200_000)}` }
  })
  const { body: { id } } = await create(s, image('A'))
  t.equal((await create(s, image('A'))).body.id, id)
  t.match(errorIn(await create(s, image('B'))), /used before with another request/)
  const form = async (bytes: string, name: string): Promise<Answered<Video>> => {
    const data = new FormData()
    data.append('model', 'clip')
    data.append('prompt', 'a cat')
    data.append('input_reference', new Blob([bytes], { type: 'image/png' }), 'a.png')
    const response = await fetch(`${s.gw.url}/v1/videos`, { method: 'POST', body: data,
      headers: { authorization: `Bearer ${KEY}`, 'idempotency-key': name } })
    return { status: response.status, headers: response.headers, body: await response.json() as Video }
  }
  const sent = await form('\0' + 'x'.repeat(3_000_000), 'form')
  t.equal(sent.status, 200, JSON.stringify(sent.body))
  t.equal((await form('\0' + 'x'.repeat(3_000_000), 'form')).body.id, sent.body.id, 'the boundary is another one')
  t.match(errorIn(await form('\0' + 'y'.repeat(3_000_000), 'form')), /used before with another request/)
})

void t.test('a name has 1 to 255 characters', async (t) => {
  const s = await studio(t)
  t.match(errorIn(await create(s, {}, { 'idempotency-key': 'n'.repeat(256) })),
    /^400 invalid_request: The header Idempotency-Key must be sent once, with 1 to 255 characters/)
  t.equal((await create(s, {}, { 'idempotency-key': 'n'.repeat(255) })).status, 200)
  t.match(errorIn(await create(s, {}, { 'idempotency-key': '' })), /^400/)
})

void t.test('failures are not remembered: a retry tries again, and what was refused was not charged', async (t) => {
  const s = await studio(t)
  const failing = { prompt: 'a cat [[sim: status=500]]' }
  t.match(errorIn(await create(s, failing)), /^502/)
  t.match(errorIn(await create(s, failing)), /^502/)
  t.equal(creations(s), 2)
  t.match(errorIn(await create(s, { seconds: '5' })), /^400 invalid_request: The field "seconds"/)
  t.equal((await create(s)).status, 200, 'the name is free')
  t.equal(await s.gw.services.store.openHolds(), 1)
})

void t.test('a hundred at once are one: the others wait for the first, and get what it gets', async (t) => {
  const s = await studio(t, { simulator: { firstDelayMs: 100 } })
  const all = await Promise.all(Array.from({ length: 100 }, async () => await create(s)))
  t.strictSame([...new Set(all.map(({ status }) => status))], [200])
  t.equal(new Set(all.map(({ body }) => body.id)).size, 1)
  t.equal(all.filter(({ headers }) => headers.get('idempotent-replayed') === 'true').length, 99)
  t.equal(creations(s), 1)

  const failing = await Promise.all(
    Array.from({ length: 20 },
      async () =>
        await create(s, { prompt: 'a [[sim: first_delay=300 status=503]]' }, { 'idempotency-key': 'failing' }))
  )
  t.ok(failing.every((answered) => errorIn(answered).startsWith('503 model_overloaded')))
  t.equal(creations(s), 2, 'they failed together')

  const mixed = await Promise.all(
    Array.from({ length: 20 },
      async (_, i) =>
        await create(s, { prompt: `a ${i % 2} [[sim: first_delay=300]]` }, { 'idempotency-key': 'mixed' }))
  )
  t.strictSame(
    mixed.map(({ status }) => status).toSorted(), [...Array<number>(10).fill(200),...Array<number>(10).fill(400)]
  )
  t.equal(creations(s), 3)
})

void t.test('when the first one\'s client leaves while its video is made, the others get that one', async (t) => {
  const s = await studio(t, { simulator: { firstDelayMs: 300 } })
  const leaving = new AbortController()
  const body = JSON.stringify({ model: 'clip', prompt: 'a cat' })
  const headers = { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...NAMED }
  const first = fetch(`${s.gw.url}/v1/videos`, { method: 'POST', body, headers, signal: leaving.signal }).catch(() =>
    'left'
  )
  await s.simulator.until(() => creations(s) === 1)
  const second = create(s)
  const third = create(s)
  leaving.abort()
  t.equal(await first, 'left')
  const [two, three] = await Promise.all([second, third])
  t.strictSame([two.status, two.headers.get('idempotent-replayed')], [200, 'true'])
  t.equal(three.body.id, two.body.id)
  t.equal(creations(s), 1)
  await s.ended(two.body.id)
  t.equal((await s.entries()).length, 1)
})

void t.test('a follower that leaves changes nothing for the others', async (t) => {
  const s = await studio(t, { simulator: { firstDelayMs: 200 } })
  const first = create(s)
  await s.simulator.until(() => creations(s) === 1)
  const leaving = new AbortController()
  const follower = fetch(`${s.gw.url}/v1/videos`, { method: 'POST',
    body: JSON.stringify({ model: 'clip', prompt: 'a cat' }),
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...NAMED }, signal: leaving.signal })
    .catch(() => 'left')
  leaving.abort()
  t.equal(await follower, 'left')
  t.equal((await first).status, 200)
  t.equal(creations(s), 1)
})

void t.test('names are forgotten after a day', async (t) => {
  const s = await studio(t)
  const { body: { id } } = await create(s)
  await s.clock.advance(23 * 3_600_000)
  t.equal((await create(s)).body.id, id)
  await s.clock.advance(3_600_001)
  t.not((await create(s)).body.id, id)
})

void t.test('text requests have no names: their header is not looked at', async (t) => {
  const s = await studio(t)
  t.match(
    errorIn(
      await s.ask('POST', '/chat/completions', { model: 'clip', messages: [] }, { 'idempotency-key': 'n'.repeat(300) })
    ),
    /^400 invalid_request: "clip" is a video model/
  )
})

/** On the same data folder and simulator as the one before. */
async function restarted (
  t: Test,
  url: string,
  folder: string,
  clock: ReturnType<typeof startClock>
): Promise<TestGateway> {
  return await gateway(t, videosYaml(url, { store: `{ driver: embedded, path: "${folder}" }` }), { now: clock.now,
    timer: clock.timer })
}

void t.test('after a restart: the same answer, the same video, one charge', async (t) => {
  const [folder, clock] = [folderFor(t), startClock()]
  const simulator = await startSimulator({ firstDelayMs: 0, now: clock.now })
  t.teardown(() => simulator.close())
  const before = await restarted(t, simulator.url, folder, clock)
  const { body: video } = await create(client(before, clock))
  await before.stop()

  const gw = await restarted(t, simulator.url, folder, clock)
  const s = { gw, simulator, clock, ...client(gw, clock) }
  const again = await create(s)
  t.strictSame([again.body, again.headers.get('idempotent-replayed')], [video, 'true'])
  t.equal(gw.services.videos.size, 1)
  t.match(await s.ended(video.id), { status: 'completed' })
  t.equal(creations(s), 1)
  t.equal((await s.entries()).length, 1)
  t.strictSame((await gw.services.store.verify()).differences, [])
})

void t.test('an answer too large to be kept is not given again, nor charged again', async (t) => {
  const s = await studio(t)
  const body = { model: 'clip', prompt: 'a cat' }
  const canonical = JSON.stringify(Object.fromEntries(Object.entries(body).toSorted()))
  const hash = createHash('sha256').update('POST /v1/videos\n').update(canonical).digest('hex')
  const { services } = s.gw
  await services.store.hold(request('req_before', 5n))
  await (services.tasks as unknown as { keepAnswer(answer: object): Promise<void> }).keepAnswer({ account: 'acme',
    name: 'large', hash, request_id: 'req_before', created: s.clock.now(), text: undefined })
  await services.store.settle(settlement('req_before', 5n))
  t.match(errorIn(await create(s, {}, { 'idempotency-key': 'large' })),
    /^400 invalid_state: This Idempotency-Key was answered and charged before, by the request req_before/)
  t.equal(creations(s), 0)
})

void t.test('an answer that was kept and never charged is not given, also where it could not be dropped', async (t) => {
  const s = await studio(t)
  const { tasks } = s.gw.services
  const store = tasks as typeof tasks & { dropAnswer (): void }
  const [open, drop] = [store.openTask.bind(store), store.dropAnswer.bind(store)]
  store.openTask = store.dropAnswer = () => { throw new Error('the disk is full') }
  t.match(errorIn(await create(s)), /^500 server_error/)
  store.openTask = open
  store.dropAnswer = drop
  const again = await create(s)
  t.strictSame([again.status, again.headers.get('idempotent-replayed')], [200, null])
  t.equal(creations(s), 2)
  t.equal((await create(s)).body.id, again.body.id)
  await s.ended(again.body.id)
  t.equal((await s.entries()).length, 1)
})

void t.test('what can be compared is bounded in its values, and not in its length', async (t) => {
  const s = await studio(t)
  const tooMany = /^400 invalid_request: A request with an Idempotency-Key may hold 10000 values at most/
  t.match(errorIn(await create(s, { list: Array(10_000).fill(1) })), tooMany)
  t.match(errorIn(await create(s, Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`k${i}`, [1]])))),
    tooMany)
  t.equal(creations(s), 0)
  t.equal((await create(s, { list: Array(9_000).fill(1) })).status, 200)

  for (const shift of ['', '.']) {
    // A pair lies across the end of a slice with one of the two.
    const body = { model: 'clip', prompt: `${shift}${'\u{1F408}'.repeat(1_100_000)}` }
    const hash = createHash('sha256').update(`POST /v1/videos\n${JSON.stringify(body)}`).digest('hex')
    const id = `req_${shift}before`
    await s.gw.services.store.hold(request(id, 5n))
    await (s.gw.services.tasks as unknown as { keepAnswer(answer: object): Promise<void> }).keepAnswer({
      account: 'acme',
      name: id,
      hash,
      request_id: id,
      created: s.clock.now(),
      text: undefined
    })
    await s.gw.services.store.settle(settlement(id, 5n))
    t.match(errorIn(await create(s, body, { 'idempotency-key': id })), /answered and charged before/)
  }
})

void t.test('images have names too: one picture, one charge, the same link', async (t) => {
  const simulator = await startSimulator({ firstDelayMs: 50 })
  t.teardown(() => simulator.close())
  const gw = await gateway(t, videosYaml(simulator.url)
    .replace('upstreams:\n',
      `upstreams:\n  pictures: { url: "${simulator.url}", dialect: images, headers: { authorization: "Bearer upstream-secret" } }\n`)
    .replace('models:\n',
      'models:\n  - { id: photo, provider: acme, kind: image, created: 2025-10-06, channels: { premium: { price: [{ usd: 0.04 }], targets: [{ upstream: pictures, model: nano }] } } }\n'))
  const s = { gw, simulator, ...client(gw, startClock()) }
  const draw = async (prompt = 'a cat'): Promise<Answered<{ readonly data: readonly { readonly url: string }[] }>> =>
    await s.ask('POST', '/images/generations', { model: 'photo', prompt, n: 2 }, NAMED)
  const [one, two] = await Promise.all([draw(), draw()])
  t.equal(one.status, 200, JSON.stringify(one.body))
  t.strictSame(two.body, one.body)
  const again = await draw()
  t.strictSame([again.body, again.headers.get('idempotent-replayed'), again.headers.get('x-gateway-cost-usd')], [
    one.body,
    'true',
    null
  ])
  t.match(errorIn(await draw('a dog')), /used before with another request/)
  t.equal(creations(s), 1)
  t.strictSame((await s.entries()).map(({ kind, nanos }) => [kind, nanos]), [['settle', -80_000_000n]])
})
