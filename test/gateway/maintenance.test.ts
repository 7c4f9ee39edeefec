// `maintenance: true` on a route, a model, a channel, an upstream: live by reload, 503 `maintenance` for what nobody
// else can serve, and no harm to what was begun before. Over real sockets, for every kind of model.
import { once } from 'node:events'
import { request } from 'node:http'
import t, { type Test } from 'tap'
import { allKinds, askFor, kindsYaml, secretOf, send, type Told } from '../support/all-kinds.ts'
import { type Clock, startClock } from '../support/clock.ts'
import { client, errorOf, fate, namesOf } from '../support/client.ts'
import { gateway, KEY, type TestGateway } from '../support/gateway.ts'
import { explain, quote, stateOf } from '../support/rehearsals.ts'
import { until } from '../support/until.ts'
import { blockStart, blockStop, json, messageEnd, messageStart, textDelta, upstream, wait, type Received, type Script,
  type Upstream } from '../support/upstream.ts'

const KINDS = [['/v1/messages', 'both'], ['/v1/chat/completions', 'both'], ['/v1/responses', 'both'], ['/v1/images/generations', 'nano'], [
  '/v1/videos',
  'clip'
]] as const
const hello = { model: 'sonnet', max_tokens: 50, messages: [{ role: 'user', content: 'Hello' }] }

interface Market {
  readonly gw: TestGateway
  readonly up: Upstream
  /** The file with these replacements, live. */
  change (...replaced: readonly (readonly [from: string, to: string])[]): Promise<void>
}

async function market (
  t: Test,
  { script = allKinds, more = '', clock }: { readonly script?: (request: Received) => Script, readonly more?: string,
    readonly clock?: Clock } = {}
): Promise<Market> {
  const up = await upstream(t, script)
  const text = kindsYaml(up.url, more)
  const gw = await gateway(t, text, clock)
  return {
    gw, up,
    async change (...replaced) {
      await gw.rewrite(replaced.reduce((before, [from, to]) => {
        if (!before.includes(from)) throw new Error(`the file has no ${from}`)
        return before.replace(from, to)
      }, text))
      if (gw.live.status().problems.length > 0) throw new Error(JSON.stringify(gw.live.status().problems))
    }
  }
}

/** What is refused is refused well: with a time to come back, for nothing. */
function isMaintenance (t: Test, { status, code, headers, body }: Told, what: string): void {
  t.equal(`${status} ${code}`, '503 maintenance', what)
  t.equal(headers.get('retry-after'), '60', what)
  t.equal((body['error'] as { charged_usd: string }).charged_usd, '0', what)
}

const modelInMaintenance = (
  id: string
): readonly [string, string] => [`- { id: ${id}, `, `- { id: ${id}, maintenance: true, `]
const upstreamInMaintenance = (
  name: string
): readonly [string, string] => [`  ${name}: { `, `  ${name}: { maintenance: true, `]

t.test('a route: nobody is asked for a key, nothing is spent, and the others are served', async (t) => {
  const route = (more: string): string =>
    `routes:\n  - { match: POST /v1/messages, serve: messages${more} }\n  - { match: POST /v1/embeddings, forward: one, price: { usd: 0.01 } }\n`
  const { gw, up, change } = await market(t, { more: route('') })
  t.equal((await askFor(gw, '/v1/messages', 'sonnet')).status, 200)
  await change(['serve: messages }', 'serve: messages, maintenance: true }'])
  const before = await stateOf(gw)
  const told = await askFor(gw, '/v1/messages', 'sonnet')
  isMaintenance(t, told, 'with a key')
  t.match(told.body, { type: 'error', error: { type: 'api_error' } }, 'in the style of the route')
  t.match(told.message, /^This address is under maintenance\. Try again in 60 seconds\.$/)
  isMaintenance(t, await askFor(gw, '/v1/messages', 'sonnet', {}, 'nobody'), 'with a key that does not exist')
  isMaintenance(t, await send(gw, 'POST', '/v1/messages', undefined), 'without a body')
  t.strictSame(await stateOf(gw), before, 'no request was counted, nothing was held')
  const preflight = await fetch(`${gw.url}/v1/messages`, { method: 'OPTIONS',
    headers: { origin: 'https://app.example.com', 'access-control-request-method': 'POST' } })
  t.equal(preflight.status, 204)
  t.equal(up.requests.length, 1)
  for (const path of ['/v1/chat/completions', '/v1/messages/count_tokens']) {
    t.equal((await askFor(gw, path, 'sonnet')).status, 200, path)
  }
  t.equal((await send(gw, 'POST', '/v1/embeddings', {})).status, 200)

  t.match((await explain(gw, { key: 'acme-dev', body: hello })).body, { allowed: false, steps: [],
    refusal: { status: 503, code: 'maintenance', retry_after: 60 } })
  t.match(await quote(gw, { path: '/v1/messages', body: hello }), { status: 503,
    body: { error: { code: 'maintenance' } } })
  t.match(await fate(gw, told.id), {
    line: { status: 503, code: 'maintenance', route: 'POST /v1/messages', attempts: 0 },
    entries: []
  })

  await change(['forward: one, ', 'forward: one, maintenance: true, '])
  isMaintenance(t, await send(gw, 'POST', '/v1/embeddings', {}), 'a forward route')
  t.equal((await askFor(gw, '/v1/messages', 'sonnet')).status, 200, 'and the first is served again')
})

t.test('a model: who may use it hears of it, of every kind; lists and prices keep it', async (t) => {
  const more = `  - { id: stranger, account: acme, secret: ${secretOf('stranger')}, allowed_models: [opus] }\nvideos: { poll_interval: 10ms }\n`
  const { gw, up, change } = await market(t, { more })
  const video = await askFor(gw, '/v1/videos', 'clip')
  t.equal(video.status, 200)
  await change(...['both', 'nano', 'clip'].map(modelInMaintenance))
  const asked = up.requests.length
  for (const [path, model] of KINDS) {
    for (const key of ['cheap', 'auto-cheap', 'strict', undefined]) {
      isMaintenance(t, await askFor(gw, path, model, {}, key), `${path} ${model} ${key}`)
    }
    t.match(await askFor(gw, path, model, {}, 'stranger'), { status: 403, code: 'model_not_allowed' },
      'a stranger learns nothing')
    t.match(await askFor(gw, path, model, {}, 'nobody'), { status: 401 })
  }
  isMaintenance(t, await askFor(gw, '/v1/messages', 'both', { stream: true }), 'a stream')
  isMaintenance(t, await askFor(gw, '/v1/messages/count_tokens', 'both'), 'a count')
  t.match((await askFor(gw, '/v1/messages', 'both')).message,
    /^The model "both" is under maintenance\. Try again in 60 seconds, or choose another model\.$/)
  t.equal(up.requests.slice(asked).filter(({ method }) => method === 'POST').length, 0)
  t.equal((await askFor(gw, '/v1/messages', 'sonnet')).status, 200)
  t.equal(await gw.services.store.openHolds(), 1, 'that of the video')

  const listed = (await send(gw, 'GET', '/v1/models')).body['data'] as { id: string }[]
  t.strictSame(listed.map(({ id }) => id), ['sonnet', 'opus', 'both', 'nano', 'clip'])
  t.equal((await send(gw, 'GET', '/v1/models/both')).status, 200)
  for (const path of ['/api/public/models-info', '/api/public/media-info']) {
    const { data } = await (await fetch(gw.urls.public + path)).json() as { data: { id: string }[] }
    t.ok(data.some(({ id }) => ['both', 'nano'].includes(id)), path)
  }
  t.match((await explain(gw, { key: 'acme-dev', body: { ...hello, model: 'both' } })).body, { allowed: false,
    refusal: { code: 'maintenance' } })

  // What was begun before goes on: the client may ask, and the upstream is asked.
  const polls = (): number =>
    up.requests.filter(({ method, path }) => method === 'GET' && path === '/studio/v1/videos/video_1').length
  const seen = polls()
  await until(() => polls() > seen)
  t.match((await send(gw, 'GET', `/v1/videos/${String(video.body['id'])}`)).body, { status: 'queued', model: 'clip' })
})

t.test('a channel: the other serves where mode and account allow it, and maintenance is to blame where it alone is', async (t) => {
  const { gw, up, change } = await market(t)
  const where = async (path: string, model: string, key: string | undefined): Promise<string> => {
    const before = up.requests.length
    const told = await askFor(gw, path, model, {}, key)
    if (told.status !== 200) { t.equal(up.requests.length, before); return `${told.status} ${told.code}` }
    return up.requests.at(-1)!.path.split('/')[1]!
  }
  /** Of both models: what is said in their channels. */
  const set = async (premium: string, cheap: string): Promise<void> => {
    await change(...['both', 'nano'].map((model): readonly [string, string] => {
      const line = kindsYaml(up.url).split('\n').find((one) => one.includes(`- { id: ${model}, `))!
      return [line, line.replace('premium: { ', `premium: { ${premium}`).replace('cheap: { ', `cheap: { ${cheap}`)]
    }))
  }
  const PATHS = [['/v1/messages', 'both', 'one', 'two'], ['/v1/chat/completions', 'both', 'one', 'two'], [
    '/v1/responses',
    'both',
    'one',
    'two'
  ], [
    '/v1/images/generations',
    'nano',
    'painter',
    'sketcher'
  ]] as const
  await set('', 'maintenance: true, ')
  for (const [path, model, first] of PATHS) {
    t.equal(await where(path, model, undefined), first, path)
    t.equal(await where(path, model, 'auto-cheap'), first, 'the other serves')
    t.equal(await where(path, model, 'cheap'), model === 'nano' ? '503 model_unavailable' : '503 maintenance',
      'nobody in cheap mode pays the premium price')
    t.match((await askFor(gw, path, model, {}, 'cheap')).message, model === 'nano'
      ? /^The cheap channel cannot generate now\. /
      : /^The cheap channel of this model is under maintenance, /)
    t.equal(await where(path, model, 'strict'), '503 maintenance', 'nor who allows no fallback')
  }
  await set('maintenance: true, ', 'maintenance: true, ')
  for (const [path, model] of PATHS) {
    for (const key of [undefined, 'cheap', 'auto-cheap', 'strict']) {
      t.equal(await where(path, model, key),
        model === 'nano' && key === 'cheap' ? '503 model_unavailable' : '503 maintenance', String(key))
    }
  }
  t.match((await askFor(gw, '/v1/messages', 'both', {}, 'auto-cheap')).message,
    /^The cheap and premium channels of this model are under maintenance, /)
  await set('maintenance: true, ', 'enabled: false, ')
  for (const [path, model] of PATHS) {
    t.equal(await where(path, model, 'auto-cheap'), '503 maintenance', 'what is switched off would not have served')
    t.equal(await where(path, model, 'cheap'), model === 'nano' ? '503 model_unavailable' : '503 channel_unavailable',
      'and where it is what is wanted, it is to blame')
  }
  await set('maintenance: true, ', '')
  for (const [path, model, , second] of PATHS) {
    t.equal(await where(path, model, undefined), '503 maintenance')
    t.equal(await where(path, model, 'auto-cheap'), second)
    t.equal(await where(path, model, 'strict'), second)
  }
  t.match((await askFor(gw, '/v1/messages/count_tokens', 'both')), { status: 200 }, 'tokens are counted all the same')
  t.match((await explain(gw, { key: 'auto-cheap', body: { ...hello, model: 'both' } })).body, {
    allowed: true,
    targets: [{ channel: 'cheap', upstream: 'two', priority: 0, weight: 1 }],
    in_maintenance: [{ channel: 'premium', upstream: 'one', model: 'vendor-big' }]
  })
  const listed = (await send(gw, 'GET', '/v1/models')).body['data'] as { id: string }[]
  t.ok(listed.some(({ id }) => id === 'both'), 'it stays in the list')
})

t.test('an upstream: its targets are left out, and what only it can serve is in maintenance', async (t) => {
  const more =
    'videos: { poll_interval: 10ms }\nroutes:\n  - { match: "GET,POST /v1/realtime", forward: one, websocket: true, price: { usd: 0.01 } }\n'
  const done = { id: 'video_1', object: 'video', status: 'completed', progress: 100 }
  const { gw, up, change } = await market(t, { more,
    script: (asked) =>
      asked.method === 'GET' && asked.path.endsWith('/videos/video_1') ? json(done) : allKinds(asked) })
  const video = await askFor(gw, '/v1/videos', 'clip')
  const id = String(video.body['id'])
  await until(() => gw.logged.some(({ msg }) => msg === 'a video is completed'))
  t.match(await askFor(gw, '/v1/messages/count_tokens', 'sonnet'), { status: 200, body: { input_tokens: 4242 } })
  await change(upstreamInMaintenance('one'), upstreamInMaintenance('sketcher'), upstreamInMaintenance('studio'))
  const asked = up.requests.length

  isMaintenance(t, await askFor(gw, '/v1/messages', 'sonnet'), 'its only target')
  isMaintenance(t, await askFor(gw, '/v1/chat/completions', 'sonnet', { stream: true }), 'for chat clients')
  isMaintenance(t, await askFor(gw, '/v1/videos', 'clip'), 'a video')
  t.match(await askFor(gw, '/v1/images/generations', 'nano', {}, 'cheap'), { status: 503, code: 'model_unavailable',
    message: /^The cheap channel cannot generate now\./ }, 'an image')
  isMaintenance(t, await send(gw, 'POST', '/v1/realtime', {}), 'a forward route')
  isMaintenance(t, await send(gw, 'GET', `/v1/videos/${id}/content`), 'a file that it has')
  const upgrade = request(`${gw.url}/v1/realtime`, {
    headers: { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
      'sec-websocket-version': '13', 'x-api-key': KEY }
  }).end()
  const [refused] = await once(upgrade, 'response') as [{ statusCode: number, resume(): void }]
  refused.resume()
  t.equal(refused.statusCode, 503, 'a WebSocket')
  const count = await askFor(gw, '/v1/messages/count_tokens', 'sonnet')
  t.equal(count.headers.get('x-gateway-count'), 'estimated')
  t.equal(up.requests.length, asked, 'nothing was sent there')
  t.equal((await send(gw, 'GET', `/v1/videos/${id}`)).status, 200, 'what is known is told')

  t.equal((await askFor(gw, '/v1/messages', 'both', {}, 'auto-cheap')).status, 200)
  t.equal(up.requests.at(-1)!.path, '/two/v1/messages')
  t.equal((await askFor(gw, '/v1/images/generations', 'nano', {}, 'auto-cheap')).status, 200)
  t.equal(up.requests.at(-1)!.path, '/painter/v1/images/generations')
  t.match((await explain(gw, { key: 'acme-dev', body: hello })).body, { allowed: false,
    refusal: { code: 'maintenance' },
    in_maintenance: [{ channel: 'premium', upstream: 'one', model: 'vendor-sonnet' }] })
  t.match(await quote(gw, { path: '/v1/messages', body: hello }), { status: 503,
    body: { error: { code: 'maintenance' } } })
  await change()
  for (const [path, model] of KINDS) t.equal((await askFor(gw, path, model)).status, 200, path)
})

t.test('an upstream in maintenance is not asked what became of its videos, and is asked again when it is over', async (t) => {
  const begun: { gw?: TestGateway } = {}
  const clock = startClock(() => (begun.gw?.services.videos.asking ?? 0) > 0)
  const { gw, up, change } = await market(t, { clock })
  begun.gw = gw
  t.equal((await askFor(gw, '/v1/videos', 'clip')).status, 200)
  const polls = (): number => up.requests.filter(({ method }) => method === 'GET').length
  await clock.until(() => polls() > 0)
  await change(upstreamInMaintenance('studio'))
  const seen = polls()
  await clock.until(() => gw.logged.filter(({ why }) => why === 'the upstream is in maintenance').length > 3)
  t.equal(polls(), seen)
  t.equal(gw.services.videos.size, 1, 'and it is not lost')
  await change()
  await clock.until(() => polls() > seen)
})

t.test('a stream that runs when maintenance begins comes to its end, and is paid', async (t) => {
  const release = Promise.withResolvers<void>()
  const { gw, change } = await market(t, {
    script:
      () => [messageStart(), blockStart(0), textDelta(0, 'first'), wait(release.promise), textDelta(0, ' last'),
        blockStop(0), messageEnd({ usage: { input_tokens: 10, output_tokens: 5 } })]
  })
  const running = client(t, gw).post({ ...hello, stream: true })
  await running.sees('first')
  await change(
    modelInMaintenance('sonnet'),
    upstreamInMaintenance('one'),
    ['keys:\n', 'routes: [{ match: POST /v1/messages, serve: messages, maintenance: true }]\nkeys:\n']
  )
  t.equal(errorOf(await client(t, gw).post({ ...hello, stream: true }).whole()).code, 'maintenance')
  release.resolve()
  const whole = await running.whole()
  t.match(namesOf(whole.text), /message_stop$/)
  t.match(await fate(gw, whole.id), { line: { outcome: 'completed', config_generation: 1 }, charged: 105_000n,
    openHolds: 0 })
})

t.test('under traffic each request is either served or told, and nothing stays held', async (t) => {
  const { gw, change } = await market(t)
  let isOver = false
  const seen = new Map<string, number>()
  const ask = async (): Promise<void> => {
    while (!isOver) {
      const { status, code = 'ok' } = await askFor(gw, '/v1/messages', 'sonnet')
      seen.set(`${status} ${code}`, (seen.get(`${status} ${code}`) ?? 0) + 1)
    }
  }
  const clients = Array.from({ length: 4 }, ask)
  for (const changes of [[modelInMaintenance('sonnet')], [], [upstreamInMaintenance('one')], []]) {
    await change(...changes)
    const wanted = changes.length > 0 ? '503 maintenance' : '200 ok'
    const before = seen.get(wanted) ?? 0
    await until(() => (seen.get(wanted) ?? 0) > before + 4)
  }
  isOver = true
  await Promise.all(clients)
  t.strictSame([...seen.keys()].toSorted(), ['200 ok', '503 maintenance'])
  t.equal(await gw.services.store.openHolds(), 0)
})
