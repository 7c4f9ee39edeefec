// Video tasks from their creation to their end, as clients see them and as they are charged: on a clock that the test
// moves.
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import type { Rollup } from '../../src/store/rollups.ts'
import { startClock } from '../support/clock.ts'
import { gateway, KEY } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { abyss, cut, errorReply, json, raw, refusing, stall, status, upstream } from '../support/upstream.ts'
import { client, errorIn, OTHER, SECOND, studio, type Video, videosYaml } from '../support/videos.ts'

const FIELDS = ['id', 'object', 'model', 'status', 'progress', 'created_at', 'completed_at', 'expires_at', 'prompt',
  'size', 'seconds', 'remixed_from_video_id', 'error']

void t.test('a video is created, watched, completed and charged once, whether its client asks or not', async (t) => {
  const { gw, ask, clock, simulator, entries } = await studio(t)
  const created = await ask('POST', '/videos', { model: 'clip', prompt: 'a cat [[sim: task_time=60000]]',
    seconds: '8' })
  t.equal(created.status, 200)
  t.equal(created.headers.get('x-gateway-cost-usd'), null, 'C6: its cost is not known yet')
  const { body: video } = created
  t.strictSame(Object.keys(video), FIELDS, 'all thirteen fields')
  t.match(video, { object: 'video', model: 'clip', status: 'queued', progress: 0, completed_at: null, expires_at: null,
    prompt: 'a cat [[sim: task_time=60000]]', size: '1280x720', seconds: '8', remixed_from_video_id: null,
    error: null })
  t.match(video.id, /^video_\w{24}$/)
  t.strictSame(await gw.services.store.balance('acme'), { balance: 100_000_000_000n, held: 800_000_000n,
    open_holds: 1 })
  t.match(simulator.requests[0], { method: 'POST', path: '/v1/videos',
    body: { model: 'sora', prompt: /a cat/, seconds: '8', size: '1280x720' },
    headers: { authorization: 'Bearer upstream-secret' } })

  const seen: Video[] = []
  await clock.until(async () => {
    const { body, headers } = await ask('GET', `/videos/${video.id}`)
    seen.push(body)
    const after = headers.get('openai-poll-after-ms')
    t.equal(after === null, body.status === 'completed', 'who waits is told how long')
    return body.status === 'completed'
  })
  const moves = [...new Set(seen.map(({ status }) => status))]
  t.strictSame(moves, ['queued', 'in_progress', 'completed'])
  t.ok(seen.every(({ progress }, i) => i === 0 || progress >= seen[i - 1]!.progress), 'progress never goes back')
  t.ok(seen.some(({ progress }) => progress > 0 && progress < 100))
  const done = seen.at(-1)!
  t.strictSame(Object.keys(done), [...FIELDS, 'usage'])
  t.match(done, { progress: 100, error: null, usage: { cost: 0.8 } }, 'C6')
  t.ok(seen.every((video) => video.status === 'completed' || !('usage' in video)))
  t.ok(done.completed_at! > done.created_at && done.expires_at! > done.completed_at!)
  t.ok(seen.length > 5, `${seen.length} looks`)

  t.match(await entries(), [{ kind: 'settle', account: 'acme', key: 'acme-dev',
    reference: created.headers.get('x-request-id')!, nanos: -800_000_000n, model: 'clip', channel: 'premium',
    price_version: 'second=0.1', usage: { extras: { video_second: 8 } } }])
  t.equal((await entries()).length, 1)
  t.strictSame(await gw.services.store.balance('acme'), { balance: 99_200_000_000n, held: 0n, open_holds: 0 })
  const asked = simulator.requests.length
  await clock.advance(3_600_000)
  t.equal(simulator.requests.length, asked, 'what is over is not asked for any more')
})

void t.test('C7: a text is no image to begin a video with', async (t) => {
  const { ask, simulator } = await studio(t)
  const got = await ask('POST', '/videos', { model: 'clip', prompt: 'a cat',
    input_reference: { image_url: `data:image/png;base64,${Buffer.from('Hello, world').toString('base64')}` } })
  t.match(errorIn(got), /^400 invalid_request: .*input_reference.image_url" must be an image: its first bytes/)
  t.equal(simulator.requests.length, 0)
})

void t.test('nobody asks: it is charged all the same', async (t) => {
  const { create, clock, entries, gw } = await studio(t)
  await create('a cat')
  await clock.until(async () => (await entries()).length === 1)
  t.equal(await gw.services.store.openHolds(), 0)
  t.match(await (await fetch(`${gw.urls.admin}/metrics`)).text(),
    /gateway_videos_ended_total\{model="clip",channel="premium",end="completed"\} 1\n/)
  t.ok(gw.logged.some(({ msg, charged_usd: charged }) => msg === 'a video is completed' && charged === '0.4'))
})

void t.test('what does not come to a good end costs nothing, and says why', async (t) => {
  for (const [directive, code, said] of [
    ['task_fails', 'server_error', /could not make this video.*Nothing was charged/],
    ['task_status=cancelled', 'server_error', /could not make this video/],
    ['task_vanishes', 'server_error', /has lost this video.*Nothing was charged/]
  ] as const) {
    const { create, ended, entries, gw, ask } = await studio(t)
    const { id } = await create(`a cat [[sim: ${directive}]]`)
    const video = await ended(id)
    t.strictSame(Object.keys(video), [...FIELDS, 'usage'], directive)
    t.match(video, { status: 'failed', completed_at: null, usage: { cost: 0 }, error: { code, message: said } }, directive)
    t.match(video.error!.message, / Request ID: req_\w{24}$/, directive)
    t.strictSame(await entries(), [], directive)
    t.strictSame(await gw.services.store.balance('acme'), { balance: 100_000_000_000n, held: 0n, open_holds: 0 },
      directive)
    t.match(errorIn(await ask('GET', `/videos/${id}/content`)), /^400 invalid_state: The video has failed: /, directive)
  }
})

void t.test('each video is a request or an error of its key, its model and its channel, once, when it is over', async (t) => {
  for (const driver of ['memory', 'embedded']) {
    const { create, ended, gw, clock } = await studio(t, { store: `{ driver: ${driver}, path: ./data }` })
    const { store } = gw.services
    const used = async (): Promise<readonly Rollup[]> => await store.rollups({ by: 'day', from: 0,
      to: clock.now() + 86_400_000, groups: ['account', 'key', 'model', 'channel'], only: {} })
    await create('a cat [[sim: task_stalls]]')
    await ended((await create('a cat')).id)
    for (const directive of ['task_fails', 'task_vanishes']) await ended((await create(`a [[sim: ${directive}]]`)).id)
    const sums = await until(async () => {
      const rollups = await used()
      return rollups.some(({ errors }) => errors === 2) && rollups
    })
    t.match(sums, [{ account: 'acme', key: 'acme-dev', model: 'clip', channel: 'premium', requests: 1, errors: 2,
      nanos: 400_000_000n, usage: { extras: { video_second: 4 } } }], driver)
    t.equal(sums.length, 1)
    t.strictSame((await store.verify()).differences, [])
  }
})

void t.test('a task that its upstream does not know at once is not lost', async (t) => {
  const { create, ended, entries } = await studio(t)
  const { id } = await create('a cat [[sim: poll_status=404 poll_errors=2]]')
  t.match(await ended(id), { status: 'completed' })
  t.equal((await entries()).length, 1)
})

void t.test('a 404 of some minutes loses nothing; one of ten minutes does, and the operator is told', async (t) => {
  const back = await studio(t)
  const { id } = await back.create('a cat [[sim: poll_status=404 poll_errors=8]]')
  t.match(await back.ended(id), { status: 'completed' })
  t.equal((await back.entries()).length, 1)
  t.notOk(back.gw.logged.some(({ alert }) => alert !== undefined))

  const gone = await studio(t)
  const lost = await gone.create('a cat [[sim: task_vanishes]]')
  await gone.ended(lost.id)
  t.equal(gone.gw.logged.filter(({ alert }) => alert === 'video_lost').length, 1)
  t.ok(gone.clock.now() >= (lost.created_at + 600) * 1000)
})

void t.test('a denied task is asked for as often as one that runs, whatever else fails meanwhile: denials have to come in a row', async (t) => {
  const { create, clock, gw, simulator } = await studio(t, { videos: '{ poll_interval: 1s, lost_after: 30s }',
    simulator: { errorRate: 0.2, errorStatuses: [503], seed: 7 } })
  await clock.until(async () => (await create('a cat [[sim: task_vanishes]]').catch(() => undefined)) !== undefined)
  const created = clock.now()
  await clock.until(() => gw.logged.some(({ alert }) => alert === 'video_lost'))
  const took = clock.now() - created
  const asked = simulator.requests.filter(({ method }) => method === 'GET').length
  t.ok(took >= 30_000)
  t.ok(took < asked * 3000, `${asked} questions in ${took} ms`)
})

void t.test('an upstream that says nothing is unknown, not failed (rule video-terminal): until max_age, and then the operator is told', async (t) => {
  for (const fault of ['poll_status=500', 'task_stalls', 'task_status=resting']) {
    const { create, clock, gw, ask, entries } = await studio(t, { videos: '{ poll_interval: 5m }' })
    const { id } = await create(`a cat [[sim: ${fault}]]`)
    const { created_at: start } = (await ask('GET', `/videos/${id}`)).body
    await clock.until(() => clock.now() >= (start + 23.9 * 3600) * 1000)
    const { body: waiting } = await ask('GET', `/videos/${id}`)
    t.ok(waiting.status === 'queued' || waiting.status === 'in_progress', fault)
    t.equal(await gw.services.store.openHolds(), 1, fault)
    t.notOk(gw.logged.some(({ alert }) => alert !== undefined), fault)

    const failed = await clock.until(async () => {
      const { body } = await ask('GET', `/videos/${id}`)
      return body.status === 'failed' && body
    })
    t.ok(clock.now() <= (start + 24 * 3600 + 60) * 1000, fault)
    t.match(failed.error, { code: 'server_error',
      message: /did not tell what became of this video in time. Nothing was charged/ }, fault)
    t.strictSame(await entries(), [], fault)
    t.equal(await gw.services.store.openHolds(), 0, fault)
    t.equal(gw.logged.filter(({ alert }) => alert === 'video_unknown').length, 1, fault)
    t.match(await (await fetch(`${gw.urls.admin}/metrics`)).text(),
      /gateway_videos_ended_total\{model="clip",channel="premium",end="unknown"\} 1\n/, fault)
  }
})

void t.test('an upstream that is away for a while is asked more seldom, and the video is completed when it is back', async (t) => {
  const { create, ended, entries, simulator } = await studio(t)
  const { id } = await create('a cat [[sim: poll_status=503 poll_errors=12 task_time=1000]]')
  t.match(await ended(id), { status: 'completed' })
  t.equal((await entries()).length, 1)
  const polls = simulator.requests.filter(({ path }) =>
    path === `/v1/videos/${String((simulator.requests[0]!.body as { id?: string }).id ?? path.split('/')[3])}`
  )
  const pauses = polls.slice(1).map(({ at }, i) => at - polls[i]!.at)
  t.ok(pauses.at(-1)! > 4 * pauses[0]!, `pauses grow: ${pauses.join()}`)
  t.ok(Math.max(...pauses) <= 75_000, 'but not for ever')
})

void t.test('an upstream that says with its acceptance that it is over: it counts at once, and nobody asks again', async (t) => {
  const clock = startClock(() => false)
  let said: object = {}
  const up = await upstream(t, () => json({ id: 'video_1', object: 'video', ...said }))
  const gw = await gateway(t, videosYaml(up.url), { now: clock.now, timer: clock.timer })
  const { ask, create, entries } = client(gw, clock)
  const over = async (id: string): Promise<Video> => {
    for (;;) {
      const { body } = await ask('GET', `/videos/${id}`)
      if (body.status === 'completed' || body.status === 'failed') return body
      await pause(1)
    }
  }
  for (const word of ['completed', 'succeeded']) {
    said = { status: word, progress: 100 }
    t.match(await over((await create('a cat')).id), { status: 'completed', progress: 100, error: null })
  }
  t.match((await entries()).map(({ nanos }) => nanos), [-400_000_000n, -400_000_000n], 'charged once each')
  for (const word of ['failed', 'cancelled', 'expired']) {
    said = { status: word, error: { code: 'moderation_blocked', message: 'no' } }
    t.match(await over((await create('a cat')).id), { status: 'failed', error: { code: 'content_policy_violation' } })
  }
  t.equal((await entries()).length, 2)
  t.strictSame(await gw.services.store.balance('acme'), { balance: 99_200_000_000n, held: 0n, open_holds: 0 })
  await clock.advance(3_600_000)
  t.ok(up.requests.every(({ method }) => method === 'POST'), 'what is over is not asked for')
})

void t.test('a creation that fails upstream creates nothing', async (t) => {
  const { ask, gw, entries } = await studio(t)
  for (const [directive, said] of [
    ['status=500', /^502 server_error/],
    ['status=429', /^503 model_overloaded/],
    ['status=401', /^503 service_unavailable/],
    ['html', /^502 server_error/],
    ['cut', /^502 server_error/],
    ['empty_body', /^502 empty_response/],
    ['malformed', /^502 server_error/],
    ['content_policy', /^400 content_policy_violation/]
  ] as const) {
    gw.heal()
    const answered = await ask('POST', '/videos', { model: 'clip', prompt: `a cat [[sim: ${directive}]]` })
    t.match(errorIn(answered), said, directive)
    t.equal((answered.body as unknown as { error: { charged_usd: string } }).error.charged_usd, '0', directive)
  }
  t.strictSame((await ask<{ data: unknown[] }>('GET', '/videos')).body.data, [])
  t.strictSame(await entries(), [])
  t.equal(await gw.services.store.openHolds(), 0)
  t.equal(gw.services.videos.size, 0)
})

void t.test('what a request may ask for is checked before anybody is asked', async (t) => {
  const { ask, simulator } = await studio(t)
  for (const [body, said] of [
    [{ model: 'clip' }, /^400 invalid_request: prompt is missing/],
    [{ model: 'clip', prompt: ' ' }, /^400 invalid_request: prompt must be a text/],
    [{ prompt: 'a' }, /^400 model_required/],
    [{ model: 'nobody', prompt: 'a' }, /^400 model_not_found/],
    [{ model: ['clip'], prompt: 'a' }, /^400 invalid_request: The field "model" must be a string/],
    [{ model: 'clip', prompt: 'a', seconds: '' },
      /^400 invalid_request: The field "seconds" must be one of 4, 8 for clip, not ""/],
    [{ model: 'clip', prompt: 'a', seconds: '5' },
      /^400 invalid_request: The field "seconds" must be one of 4, 8 for clip, not "5"/],
    [{ model: 'clip', prompt: 'a', size: '1x1' }, /^400 invalid_request: The field "size" must be one of/],
    [{ model: 'clip', prompt: 'a', stream: true }, /^400 invalid_request: stream must be false/],
    [{ model: 'still', prompt: 'a', input_reference: { image_url: 'https://example.com/a.png' } },
      /^400 image_input_not_supported/],
    [{ model: 'clip', prompt: 'a', input_reference: { file_id: 'file-1' } },
      /^400 invalid_request: input_reference.file_id is not taken here/],
    [{ model: 'clip', prompt: 'a', input_reference: { image_url: 'file:///etc/passwd' } },
      /^400 invalid_request: input_reference.image_url must be/],
    [{ model: 'clip', prompt: 'a', input_reference: [1] }, /^400 invalid_request: input_reference must be one file/]
  ] as const) { t.match(errorIn(await ask('POST', '/videos', body)), said, JSON.stringify(body)) }
  t.match(
    errorIn(await ask('POST', '/chat/completions', { model: 'clip', messages: [{ role: 'user', content: 'a' }] })),
    /^400 invalid_request: "clip" is a video model, and this address takes a text model. Use POST \/v1\/videos/
  )
  t.equal(simulator.requests.length, 0)
})

void t.test('numbers are taken as well as texts, and defaults are written out', async (t) => {
  const { create, simulator } = await studio(t)
  t.match(await create('a cat', { seconds: 8 }), { seconds: '8', size: '1280x720' })
  t.match(await create('a cat', { size: '720x1280', quality: undefined, temperature: 2 }), { seconds: '4',
    size: '720x1280' })
  t.strictSame(simulator.requests.map(({ body }) => body), [
    { model: 'sora', prompt: 'a cat', seconds: '8', size: '1280x720' },
    { model: 'sora', prompt: 'a cat', seconds: '4', size: '720x1280' }
  ], 'what nobody has priced does not travel')
})

void t.test('a model without the cheap channel is premium for keys in cheap mode too', async (t) => {
  const { create, ended, entries } = await studio(t)
  const { id } = await create('a cat', {}, { authorization: `Bearer ${SECOND}` })
  await ended(id)
  t.match(await entries(), [{ key: 'acme-2', channel: 'premium', nanos: -400_000_000n }])
})

void t.test('what is free is listed and has its entry of zero', async (t) => {
  const { create, ended, entries } = await studio(t)
  const { id } = await create('a cat', { model: 'still' })
  await ended(id)
  t.match(await entries(), [{ nanos: 0n, model: 'still', price_version: 'free' }])
})

void t.test('an account that can\'t pay creates nothing; running videos hold what they will cost', async (t) => {
  const { ask, create, simulator } = await studio(t, { balance: '1' })
  await create('one')
  await create('two')
  t.match(errorIn(await ask('POST', '/videos', { model: 'clip', prompt: 'three' })),
    /^429 low_balance: This request may cost up to \$0.4, and running requests hold \$0\.8 of the \$1 that the balance of the account has left\. Wait until one of them ends, ask for a shorter or smaller video, or add credit\./)
  t.equal(simulator.requests.length, 2)
})

void t.test('a task belongs to its account: to any other it does not exist', async (t) => {
  const { ask, create, ended } = await studio(t)
  const { id } = await create('a cat')
  const stranger = { authorization: `Bearer ${OTHER}` }
  const refused = /^404 not_found: There is no such video/
  for (const [method, path] of [['GET', ''], ['GET', '/content'], ['DELETE', ''], ['POST', '/remix']] as const) {
    t.match(errorIn(await ask(method, `/videos/${id}${path}`, undefined, stranger)), refused, `${method} ${path}`)
  }
  await ended(id)
  t.match(errorIn(await ask('DELETE', `/videos/${id}`, undefined, stranger)), refused)
  t.match(errorIn(await ask('GET', `/videos/${id}/content`, undefined, stranger)), refused)
  t.strictSame((await ask<{ data: unknown[] }>('GET', '/videos', undefined, stranger)).body.data, [])
  t.equal((await ask('GET', `/videos/${id}`, undefined, { authorization: `Bearer ${SECOND}` })).status, 200,
    'another key of the account')
  t.match(errorIn(await ask('GET', `/videos/${id}`, undefined, { authorization: 'Bearer sk-gw-nobody' })),
    /^401 unauthorized/)
  t.equal((await ask('GET', `/videos/${id}`)).status, 200)
})

void t.test('addresses: what there is not is 404, and the wrong method 405', async (t) => {
  const { ask, create } = await studio(t)
  const { id } = await create('a cat')
  for (const path of ['/videos/video_none', '/videos/video_none/content', `/videos/${id}/more`,
    `/videos/${id}/content/more`, `/videos/${id}%2f..`]) {
    t.match(errorIn(await ask('GET', path)), /^404 not_found/, path)
  }
  t.match(errorIn(await ask('PUT', `/videos/${id}`)), /^405 bad_request/)
  t.match(errorIn(await ask('POST', `/videos/${id}/content`)), /^405 bad_request/)
  t.match(errorIn(await ask('POST', `/videos/${id}/remix`, { prompt: 'a dog' })),
    /^404 not_found: The provider of this video can't remix it/)
  t.equal((await ask('GET', `/videos/${id}/`)).status, 200, 'a slash at the end')
})

void t.test('the list comes in pages, newest first', async (t) => {
  const { ask, create, clock } = await studio(t)
  interface Page {
    readonly object: string
    readonly data: readonly Video[]
    readonly first_id: string | null
    readonly last_id: string | null
    readonly has_more: boolean
  }
  t.strictSame((await ask<Page>('GET', '/videos')).body, { object: 'list', data: [], first_id: null, last_id: null,
    has_more: false })
  const ids: string[] = []
  for (let i = 0; i < 5; i++) {
    ids.unshift((await create(`cat ${i}`)).id)
    await clock.advance(10)
  }
  const page = async (query: string): Promise<Page> => (await ask<Page>('GET', `/videos${query}`)).body
  const first = await page('?limit=2')
  t.strictSame(
    [first.data.map(({ id }) => id), first.first_id, first.last_id, first.has_more],
    [ids.slice(0, 2), ids[0], ids[1], true]
  )
  t.strictSame(Object.keys(first.data[0]!), FIELDS)
  const second = await page(`?limit=3&after=${first.last_id}`)
  t.strictSame([second.data.map(({ id }) => id), second.has_more], [ids.slice(2), false])
  t.strictSame((await page('?order=asc')).data.map(({ id }) => id), ids.toReversed())
  for (const query of ['?limit=0', '?limit=101', '?limit=x', '?order=up', '?after=video_none']) {
    t.match(errorIn(await ask('GET', `/videos${query}`)), /^400 invalid_request/, query)
  }
})

void t.test('only what is over can be deleted, here and upstream', async (t) => {
  const { ask, create, ended, simulator, entries } = await studio(t)
  const { id } = await create('a cat')
  t.match(errorIn(await ask('DELETE', `/videos/${id}`)),
    /^400 invalid_state: The video is queued, and can only be deleted when it is completed or has failed/)
  await ended(id)
  t.strictSame((await ask('DELETE', `/videos/${id}`)).body, { id, object: 'video.deleted', deleted: true })
  for (const path of ['', '/content']) t.match(errorIn(await ask('GET', `/videos/${id}${path}`)), /^404 not_found/)
  t.match(errorIn(await ask('DELETE', `/videos/${id}`)), /^404 not_found/)
  await simulator.until(() => simulator.requests.some(({ method, status }) => method === 'DELETE' && status === 200))
  t.equal((await entries()).length, 1, 'what was charged stays so')
})

void t.test('an upstream that answers a deletion with what can be read and not printed ends nothing', async (t) => {
  const clock = startClock(() => false)
  const up = await upstream(t, ({ method }) =>
    method === 'POST'
      ? json({ id: 'video_1', object: 'video', status: 'failed' })
      : [status(500, { 'content-type': 'application/json' }), raw(abyss)])
  const gw = await gateway(t, videosYaml(up.url), { now: clock.now, timer: clock.timer })
  const { ask, create } = client(gw, clock)
  const { id } = await create('a cat')
  while ((await ask('GET', `/videos/${id}`)).body.status !== 'failed') await pause(1)
  t.equal((await ask('DELETE', `/videos/${id}`)).status, 200)
  const told = (): unknown =>
    gw.logged.find(({ msg }) => msg === 'a deleted video could not be deleted at its upstream')
  while (told() === undefined) { await pause(1) }
  t.match(told(), { level: 40, upstream_id: 'video_1', why: 'status 500' })
})

void t.test('a reload that takes the upstream away makes its tasks unknown; when it is back they go on', async (t) => {
  const { gw, create, clock, ask, simulator, entries } = await studio(t)
  const { id } = await create('a cat')
  const whole = videosYaml(simulator.url)
  // Another vendor at the same name must not be asked for this one's tasks.
  await gw.rewrite(whole.replace(simulator.url, 'http://127.0.0.1:9'))
  const asked = simulator.requests.length
  await clock.advance(600_000)
  t.match((await ask('GET', `/videos/${id}`)).body, { status: 'queued' })
  t.equal(simulator.requests.length, asked)
  t.ok(gw.logged.some(({ why }) => why === 'the configuration has no upstream of this name at this address'))
  await gw.rewrite(whole)
  await clock.until(async () => (await entries()).length === 1)
  t.match((await ask('GET', `/videos/${id}`)).body, { status: 'completed' })
  await gw.rewrite(whole.replace(simulator.url, 'http://127.0.0.1:9'))
  t.match(errorIn(await ask('GET', `/videos/${id}/content`)),
    /^503 service_unavailable: The provider of this video is not reachable/)
})

void t.test('questions go out a few at a time', async (t) => {
  const { create, clock, simulator, entries } = await studio(t, { rushes: true,
    videos: '{ poll_interval: 1s, poll_concurrency: 3 }', simulator: { firstDelayMs: 50, videoMs: 1000 } })
  let [running, most] = [0, 0]
  simulator.events.on('open', ({ method }) => {
    if (method === 'GET') most = Math.max(most, ++running)
  })
  simulator.events.on('end', ({ method }) => {
    if (method === 'GET') running--
  })
  await Promise.all(Array.from({ length: 20 }, async (_, i) => {
    await create(`cat ${i}`)
  }))
  // a little at a time: each question takes 50 real milliseconds
  for (; (await entries()).length < 20; await pause(5)) {
    await clock.advance(100)
  }
  t.equal(most, 3)
})

void t.test('the key that pays is the one that asked, and polling counts apart from requests', async (t) => {
  const { gw, ask, create } = await studio(t, {
    more: `  - { id: slow, account: acme, secret: sk-gw-${'s'.repeat(32)}, rate_limit: 2, concurrency: 1 }\n`
  })
  const slow = { authorization: `Bearer sk-gw-${'s'.repeat(32)}` }
  const { id } = await create('a cat', {}, slow)
  t.equal((await ask('GET', `/videos/${id}`, undefined, slow)).status, 200,
    'a running task takes no place of running requests')
  await create('a cat', {}, slow)
  t.equal((await ask('POST', '/videos', { model: 'clip', prompt: 'a' }, slow)).status, 429)
  t.equal((await ask('GET', `/videos/${id}`, undefined, slow)).status, 200)
  t.equal(gw.services.tasks.findOpenTask(id)!.key, 'slow')
  t.equal(KEY.length, slow.authorization.length - 7)
})

void t.test('a task that can\'t be recorded, or not in time, is none: the client hears so, and nothing is held', async (t) => {
  const { gw, ask, entries, clock } = await studio(t, { more: 'hook_timeout: 200ms\n' })
  const { tasks } = gw.services
  const open = tasks.openTask.bind(tasks)
  tasks.openTask = () => { throw new Error('the disk is full') }
  t.match(errorIn(await ask('POST', '/videos', { model: 'clip', prompt: 'a cat' })), /^500 server_error/)
  t.equal(await gw.services.store.openHolds(), 0)

  const slow = Promise.withResolvers<void>()
  tasks.openTask = async (task) => {
    await slow.promise
    await open(task)
  }
  t.match(errorIn(await ask('POST', '/videos', { model: 'clip', prompt: 'a cat' })), /^500 server_error/)
  slow.resolve()
  for (; await gw.services.store.openHolds() > 0; await pause(1)) { /* recorded after all, and undone */ }
  t.strictSame(tasks.openTasks(), [])
  t.strictSame((await ask<{ data: unknown[] }>('GET', '/videos')).body.data, [])
  await clock.advance(60_000)
  t.strictSame(await entries(), [])
  t.strictSame(await gw.services.store.balance('acme'), { balance: 100_000_000_000n, held: 0n, open_holds: 0 })

  const failing = Promise.withResolvers<never>()
  tasks.openTask = async () => { await failing.promise }
  t.match(errorIn(await ask('POST', '/videos', { model: 'clip', prompt: 'a cat' })), /^500 server_error/)
  t.equal(await gw.services.store.openHolds(), 1, 'who knows whether it is recorded')
  failing.reject(new Error('the disk is full'))
  for (; await gw.services.store.openHolds() > 0; await pause(1)) { /* given back after all */ }

  tasks.openTask = open
  t.equal((await ask('POST', '/videos', { model: 'clip', prompt: 'a cat' })).status, 200)
})

void t.test('the next target is asked only where the first surely makes no video', async (t) => {
  const clock = startClock()
  const second = await upstream(t,
    ({ method }) => json({ id: 'video_second', object: 'video', status: method === 'POST' ? 'queued' : 'completed' }))
  const cases = [
    ['reset', cut(), 502],
    ['silence', stall(), 502],
    ['no JSON', raw('not JSON'), 502],
    ['an empty answer', status(200), 502],
    ['a proxy', errorReply(504, 'api_error', 'timeout'), 502],
    ['nobody there', undefined, 200],
    ['429', errorReply(429, 'rate_limit_error', 'slow down'), 200],
    ['503', errorReply(503, 'overloaded_error', 'full'), 200],
    ['500', errorReply(500, 'api_error', 'failed'), 200],
    ['401', errorReply(401, 'authentication_error', 'bad key'), 200]
  ] as const
  for (const [what, script, expected] of cases) {
    const url = script === undefined ? await refusing() : (await upstream(t, script)).url
    const text = videosYaml(url)
      .replace('dialect: videos,', 'dialect: videos, timeouts: { first_byte: 300ms },')
      .replace('\nmodels:', `\n  other: { url: "${second.url}", dialect: videos }\nmodels:`)
      .replace('{ upstream: studio, model: sora }',
        '{ upstream: studio, model: sora, weight: 1000000 }, { upstream: other, model: sora, weight: 1 }')
    const gw = await gateway(t, text, { now: clock.now, timer: clock.timer })
    const before = second.requests.length
    const got = await client(gw, clock).ask('POST', '/videos', { model: 'clip', prompt: 'a cat' })
    t.equal(got.status, expected, what)
    t.equal(second.requests.length - before, expected === 200 ? 1 : 0, what)
    t.equal(await gw.services.store.openHolds(), expected === 200 ? 1 : 0, what)
  }
})

void t.test('a client that leaves before it hears the id has its video, and pays for it', async (t) => {
  const { gw, simulator, clock, ask, ended, entries } = await studio(t, { simulator: { firstDelayMs: 300 } })
  const leave = async (prompt: string): Promise<void> => {
    const before = simulator.requests.length
    const leaving = new AbortController()
    const headers = { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' }
    const left = fetch(`${gw.url}/v1/videos`, { method: 'POST', body: JSON.stringify({ model: 'clip', prompt }),
      headers, signal: leaving.signal }).catch(() => 'left')
    await simulator.until(() => simulator.requests.length > before)
    leaving.abort()
    t.equal(await left, 'left')
  }
  await leave('a cat')
  for (; gw.services.tasks.openTasks().length === 0; await pause(1)) { /* the upstream accepts it */ }
  const { data: [video] } = (await ask<{ data: Video[] }>('GET', '/videos')).body
  t.match(await ended(video!.id), { status: 'completed' })
  t.match(await entries(), [{ kind: 'settle', nanos: -400_000_000n }])

  const used = async (): Promise<readonly object[]> =>
    await gw.services.store.rollups({ by: 'day', from: 0, to: clock.now() + 86_400_000, groups: [], only: {} })
  t.match(await used(), [{ requests: 1, errors: 0 }], 'that the client left is no error: the video counts')
  await leave('a cat [[sim: status=500]]')
  for (; await gw.services.store.openHolds() > 0; await pause(1)) { /* refused: nothing is held any more */ }
  await clock.advance(60_000)
  t.equal((await entries()).length, 1)
})

void t.test('a task that its client has not heard of is taken back, however often that takes', async (t) => {
  const { gw, ask, entries, clock } = await studio(t, { more: 'hook_timeout: 200ms\n' })
  const { tasks } = gw.services
  const [open, end] = [tasks.openTask.bind(tasks), tasks.endTask.bind(tasks)]
  const slow = Promise.withResolvers<void>()
  tasks.openTask = async (task) => {
    await slow.promise
    await open(task)
  }
  let failures = 3
  tasks.endTask = (...told) => {
    if (failures-- > 0) throw new Error('the disk is full')
    return end(...told)
  }
  t.match(errorIn(await ask('POST', '/videos', { model: 'clip', prompt: 'a cat [[sim: task_time=1000]]' })),
    /^500 server_error/)
  slow.resolve()
  for (; failures === 3; await pause(1)) { /* recorded after all */ }
  t.match(JSON.parse(tasks.openTasks()[0]!.text), { status: 'failed' }, 'the next process will not charge it either')
  await clock.until(() => tasks.openTasks().length === 0)
  await clock.advance(60_000)
  t.equal(failures, -1)
  t.strictSame(await entries(), [])
  t.match(await gw.services.store.rollups({ by: 'day', from: 0, to: clock.now() + 86_400_000, groups: [], only: {} }),
    [{ requests: 0, errors: 1 }], 'the request has failed, and its task does not count beside it')
  t.strictSame((await ask<{ data: unknown[] }>('GET', '/videos')).body.data, [])
  t.strictSame(await gw.services.store.balance('acme'), { balance: 100_000_000_000n, held: 0n, open_holds: 0 })
  t.ok(
    gw.logged.some(({ msg }) =>
      msg === 'a video that its client has not heard of could not be taken back: it is tried again'
    )
  )
})

void t.test('where a plugin below the meter throws at the end, the client hears of no video, and there is none', async (t) => {
  const clock = startClock()
  const simulator = await startSimulator({ firstDelayMs: 0, now: clock.now, videoMs: 1000 })
  t.teardown(() => simulator.close())
  const atOnce = await upstream(t, () => json({ id: 'video_1', object: 'video', status: 'completed', progress: 100 }))
  for (const { url } of [simulator, atOnce]) {
    const gw = await gateway(t,
      videosYaml(url).replace('{ low_balance_usd: 0 }, error', '{ low_balance_usd: 0 }, { use: ./throws.mjs }, error'),
      {
        now: clock.now,
        timer: clock.timer,
        files: {
          'throws.mjs':
            'export default { name: \'throws\', create: () => ({ onRequest (exchange) { exchange.onSettle(({ kind }) => { if (kind === \'completed\') throw new Error(\'broken\') }) } }) }\n'
        }
      })
    const { ask, entries } = client(gw, clock)
    const answered = await ask('POST', '/videos', { model: 'clip', prompt: 'a cat' })
    t.match(errorIn(answered), /^500 server_error/)
    t.match(answered.body, { error: { charged_usd: /^0(?:\.0+)?$/ } })
    for (; await gw.services.store.openHolds() > 0; await pause(1)) await clock.advance(1000)
    await clock.advance(60_000)
    t.strictSame(await entries(), [])
    t.strictSame(await gw.services.tasks.tasks('acme', { limit: 10, order: 'asc' }), [])
  }
})

void t.test('an end that can\'t be recorded is tried again, and charged once', async (t) => {
  const { gw, create, ended, entries, ask, clock } = await studio(t)
  const { tasks } = gw.services
  const end = tasks.endTask.bind(tasks)
  let failures = 3
  tasks.endTask = (...told) => {
    if (failures-- > 0) throw new Error('the disk is full')
    return end(...told)
  }
  const { id } = await create('a cat [[sim: task_time=1000]]')
  await clock.until(() => failures === 2)
  t.match((await ask('GET', `/videos/${id}`)).body, { status: /^(?:queued|in_progress)$/, completed_at: null },
    'not completed before it is charged')
  t.match(await ended(id), { status: 'completed' })
  t.equal(failures, -1)
  t.equal((await entries()).length, 1)
})

void t.test('an upstream that hangs holds up nobody else\'s tasks', async (t) => {
  const hanging = await upstream(t,
    ({ method }) => method === 'POST' ? json({ id: 'task-1', status: 'queued' }) : stall())
  const clock = startClock()
  const simulator = await startSimulator({ firstDelayMs: 0, now: clock.now, videoMs: 1000 })
  t.teardown(() => simulator.close())
  const gw = await gateway(t, videosYaml(simulator.url, { videos: '{ poll_interval: 1s, poll_concurrency: 1 }' })
    .replace('upstreams:\n', `upstreams:\n  hanging: { url: "${hanging.url}", dialect: videos }\n`)
    .replace('price: free, targets: [{ upstream: studio,', 'price: free, targets: [{ upstream: hanging,'), {
    now: clock.now,
    timer: clock.timer
  })
  const { create, ask, entries } = client(gw, clock)
  for (let i = 0; i < 5; i++) await create('never', { model: 'still' })
  await clock.advance(2000)
  await hanging.nextRequest()
  const { id } = await create('a cat')
  for (; (await entries()).length < 1; await pause(1)) await clock.advance(100)
  t.match((await ask('GET', `/videos/${id}`)).body, { status: 'completed' })
  t.equal(gw.services.videos.asking, 1, 'the one that hangs')
  const { closed } = hanging.requests.at(-1)!
  await gw.stop()
  t.equal(await closed, 'left', 'nor the end of the gateway')
})
