// The official OpenAI SDKs, unmodified, as clients of /v1/videos: today's major and the one before it.
import { Buffer } from 'node:buffer'
import { createHash } from 'node:crypto'
import OpenAI from 'openai'
import { pollWithResponse } from 'openai/lib/polling'
import { toFile } from 'openai/uploads'
import * as last6 from 'openai-6'
import { toFile as toFile6 } from 'openai-6/uploads'
import t, { type Test } from 'tap'
import { startSimulator, type Simulator } from '../../src/simulator/simulator.ts'
import { gateway, KEY, type TestGateway } from '../support/gateway.ts'
import { OTHER, videosYaml } from '../support/videos.ts'

type Sdk = typeof OpenAI
type ApiError = InstanceType<Sdk['APIError']>

const sdks: readonly { readonly name: string, readonly SDK: Sdk, readonly file: typeof toFile }[] = [
  { name: 'openai 7.55', SDK: OpenAI, file: toFile },
  // The same calls; what its types lack or have more is not used here.
  { name: 'openai 6.49', SDK: last6.default as unknown as Sdk, file: toFile6 as unknown as typeof toFile }
]

interface Scene {
  readonly gw: TestGateway
  readonly simulator: Simulator
  readonly openai: OpenAI
}

async function scene (t: Test, SDK: Sdk): Promise<Scene> {
  const simulator = await startSimulator({ firstDelayMs: 0, videoMs: 400 })
  t.teardown(() => simulator.close())
  const gw = await gateway(t, videosYaml(simulator.url, { videos: '{ poll_interval: 40ms }' }))
  return { gw, simulator, openai: new SDK({ apiKey: KEY, baseURL: `${gw.url}/v1`, maxRetries: 0 }) }
}

/** As the Python SDK's `poll`: how long to wait is read once, and any status that it does not know ends it. */
async function pollAsPython (openai: OpenAI, id: string): Promise<OpenAI.Video> {
  let pause: number | undefined
  for (;;) {
    const { data: video, response } = await openai.videos.retrieve(id, {
      headers: { 'X-Stainless-Poll-Helper': 'true' }
    }).withResponse()
    if (video.status !== 'queued' && video.status !== 'in_progress') return video
    pause ??= Number(response.headers.get('openai-poll-after-ms') ?? 1000)
    await new Promise((resolve) => { setTimeout(resolve, pause) })
  }
}

async function thrown (work: PromiseLike<unknown>): Promise<ApiError> {
  try {
    await work
  } catch (error) {
    return error as ApiError
  }
  throw new Error('nothing was thrown')
}

for (const { name, SDK, file } of sdks) {
  void t.test(`${name}: create, retrieve until it is done, download, list, delete`, async (t) => {
    const { gw, openai } = await scene(t, SDK)
    const created = await openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt: 'a cat', seconds: '8',
      size: '720x1280' })
    t.match(created, { object: 'video', status: 'queued', model: 'clip', seconds: '8', size: '720x1280',
      prompt: 'a cat', error: null })
    t.match((created as { _request_id?: string })._request_id, /^req_/)
    const video = await pollAsPython(openai, created.id)
    t.match(video, { id: created.id, status: 'completed', progress: 100 })

    const response = await openai.videos.downloadContent(video.id)
    t.match(Object.fromEntries(response.headers), { 'content-type': 'video/mp4',
      'content-disposition': `attachment; filename="${video.id}.mp4"` })
    const whole = Buffer.from(await response.arrayBuffer())
    t.equal(whole.length, 200_000)
    const part = await openai.videos.downloadContent(video.id, {}, { headers: { range: 'bytes=199990-' } })
    t.equal(part.status, 206)
    t.ok(Buffer.from(await part.arrayBuffer()).equals(whole.subarray(199_990)))
    const thumbnail = await openai.videos.downloadContent(video.id, { variant: 'thumbnail' })
    t.equal(thumbnail.headers.get('content-type'), 'image/webp')
    await thumbnail.arrayBuffer()

    for (const prompt of ['one', 'two', 'three']) {
      await openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt })
    }
    const listed: string[] = []
    for await (const one of openai.videos.list({ limit: 2 })) listed.push(String(one.prompt))
    t.strictSame(listed, ['three', 'two', 'one', 'a cat'], 'all pages')
    t.match(await openai.videos.delete(video.id), { id: video.id, object: 'video.deleted', deleted: true })
    t.equal((await openai.videos.list({ order: 'asc' })).data.length, 3)
    t.equal((await thrown(openai.videos.retrieve(video.id))).status, 404)
    t.equal(
      -(await entriesOf(gw)).filter(({ reference }) => reference === (created as { _request_id?: string })._request_id)
        .reduce((sum, { nanos }) => sum + nanos, 0n),
      800_000_000n
    )
  })

  void t.test(`${name}: create with a file, and with a link to one`, async (t) => {
    const { simulator, openai } = await scene(t, SDK)
    const bytes = Buffer.concat([Buffer.from('\x89PNG\r\n\x1A\n', 'latin1'), Buffer.alloc(3_000_000, 'png')])
    const video = await openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt: 'a cat', seconds: '4',
      input_reference: await file(bytes, 'start.png', { type: 'image/png' }) })
    t.match(video, { status: 'queued', seconds: '4', prompt: 'a cat' })
    t.match(simulator.requests[0]!.headers['content-type'], /^multipart\/form-data; boundary=/)
    t.match(simulator.requests[0]!.body, {
      model: 'sora',
      prompt: 'a cat',
      seconds: '4',
      size: '1280x720',
      input_reference: { filename: 'start.png', content_type: 'image/png', bytes: bytes.length,
        sha256: createHash('sha256').update(bytes).digest('hex') }
    })
    await openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt: 'a cat',
      input_reference: { image_url: 'https://example.com/start.png' } as never })
    t.match(simulator.requests.filter(({ method }) => method === 'POST')[1]!.body, { model: 'sora', prompt: 'a cat',
      input_reference: { image_url: 'https://example.com/start.png' } })
  })

  void t.test(`${name}: errors are of its classes, and none is tried again that can't succeed`, async (t) => {
    const { gw, simulator } = await scene(t, SDK)
    const openai = new SDK({ apiKey: KEY, baseURL: `${gw.url}/v1`, maxRetries: 2 })
    const { id } = await openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt: 'a cat' })
    const logged = gw.logged.length
    const early = await thrown(openai.videos.downloadContent(id))
    t.match(early, { name: 'Error', status: 400, code: 'invalid_state', type: 'invalid_request_error',
      requestID: /^req_/ })
    t.ok(early instanceof SDK.BadRequestError)
    t.ok(await thrown(openai.videos.delete(id)) instanceof SDK.BadRequestError)
    t.ok(await thrown(openai.videos.retrieve('video_none')) instanceof SDK.NotFoundError)
    t.ok(
      await thrown(new SDK({ apiKey: OTHER, baseURL: `${gw.url}/v1`, maxRetries: 2 }).videos.retrieve(id)) instanceof
        SDK.NotFoundError
    )
    t.ok(await thrown(openai.videos.remix(id, { prompt: 'a dog' })) instanceof SDK.NotFoundError)
    t.ok(
      await thrown(
        openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt: 'a cat', seconds: '5' as '4' })
      ) instanceof SDK.BadRequestError
    )
    t.ok(
      await thrown(new SDK({ apiKey: 'sk-gw-nobody', baseURL: `${gw.url}/v1` }).videos.list()) instanceof
        SDK.AuthenticationError
    )
    t.equal(gw.logged.slice(logged).filter(({ msg }) => msg === 'request').length, 7, 'each was sent once')
    const failing = await openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt: 'a [[sim: task_fails]]' })
    t.match(await pollAsPython(openai, failing.id), { status: 'failed',
      error: { code: 'server_error', message: /Nothing was charged.* Request ID: req_/ } })
    t.equal(simulator.requests.filter(({ method, path }) => method === 'POST' && path === '/v1/videos').length, 2)
  })

  void t.test(`${name}: a retry under the same Idempotency-Key is the same video`, async (t) => {
    const { simulator, openai } = await scene(t, SDK)
    const create = (): PromiseLike<OpenAI.Video> =>
      openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt: 'a cat' }, {
        headers: { 'Idempotency-Key': 'mine' }
      })
    const [one, two] = await Promise.all([create(), create()])
    t.equal(one.id, two.id)
    t.equal((await create()).id, one.id)
    t.equal(simulator.requests.filter(({ method }) => method === 'POST').length, 1)
  })
}

void t.test('the poll helper of openai 7 waits as long as it is told', async (t) => {
  const { openai, gw } = await scene(t, OpenAI)
  const { id } = await openai.videos.create({ model: 'clip' as OpenAI.VideoModel, prompt: 'a cat' })
  const video = await pollWithResponse((headers) => openai.videos.retrieve(id, { headers }), ['queued', 'in_progress'],
    ['completed', 'failed'])
  t.match(video, { id, status: 'completed' })
  // Without the header it would have waited 5 seconds, and been done at the second look.
  t.ok(gw.logged.filter(({ route }) => route === 'GET /v1/videos/{id}').length > 2)
})

async function entriesOf (gw: TestGateway): Promise<{ readonly reference: string, readonly nanos: bigint }[]> {
  const entries: { readonly reference: string, readonly nanos: bigint }[] = []
  for await (const entry of gw.services.store.entries()) entries.push(entry)
  return entries
}
