// Images with unmodified clients: the official OpenAI SDK in two majors, and the `ai` package with both of its
// providers.
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, generateImage } from 'ai'
import OpenAI, { toFile } from 'openai'
import * as last6 from 'openai-6'
import t from 'tap'
import { picture } from '../../src/simulator/picture.ts'
import { imageGateway, imageModel, keyOf } from '../support/image-gateway.ts'

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })

const { gw, premium, cheap } = await imageGateway(t, {
  models: imageModel('nano', { premium: 'nano', cheap: 'nano' }) +
    imageModel('down', { premium: 'nano', cheap: 'sim-error-500' })
})
const png = picture('a cat')
const isPng = (bytes: Uint8Array): boolean => Buffer.from(bytes.subarray(1, 4)).toString() === 'PNG'
const fetched = async (url: string | undefined): Promise<Uint8Array> =>
  new Uint8Array(await (await fetch(url!)).arrayBuffer())
const lastBody = (): Readonly<Record<string, unknown>> =>
  premium.requests.at(-1)!.body as Readonly<Record<string, unknown>>

const sdks: readonly (readonly [name: string, SDK: typeof OpenAI, file: typeof toFile])[] = [
  ['openai 7.55', OpenAI, toFile],
  // The same calls; what its types lack or have more is not used here.
  ['openai 6.49', last6.default as unknown as typeof OpenAI, last6.toFile as unknown as typeof toFile]
]

for (const [name, SDK, file] of sdks) {
  t.test(name, async (t) => {
    const client = (key = 'premium'): OpenAI => new SDK({ apiKey: keyOf(key), baseURL: `${gw.url}/v1`, maxRetries: 0 })

    await t.test('model and prompt alone', async (t) => {
      const { data, created, ...more } = await client().images.generate({ model: 'nano', prompt: 'a cat' })
      t.equal(data!.length, 1)
      t.ok(isPng(await fetched(data![0]!.url)))
      t.ok(Number.isInteger(created))
      t.match(more, { channel: 'premium', usage: { total_tokens: 110 } })
    })

    await t.test('several images as base64, and what an answer cost', async (t) => {
      const { data: answer, response, request_id: id } = await client('cheap').images.generate({ model: 'nano',
        prompt: 'a cat', n: 3, size: '2048x2048' as '1024x1024', response_format: 'b64_json', user: 'u-1' })
        .withResponse()
      t.equal(answer.data!.length, 3)
      for (const image of answer.data!) t.ok(isPng(Buffer.from(image.b64_json!, 'base64')))
      t.match(answer, { channel: 'cheap' })
      t.equal(response.headers.get('x-gateway-cost-usd'), '0.09')
      t.match(id, /^req_/)
      t.match(cheap.requests.at(-1)!.body, { n: 3, resolution: '2K', user: 'u-1' })
    })

    await t.test('edits with one file, with several, and with a mask', async (t) => {
      const one = await client().images.edit({ model: 'nano', prompt: 'with a hat',
        image: await file(png, 'cat.png', { type: 'image/png' }) })
      t.ok(isPng(await fetched(one.data![0]!.url)))
      t.match(lastBody(), { model: 'nano', prompt: 'with a hat',
        image: { filename: 'cat.png', content_type: 'image/png', bytes: png.length } })
      const several = await client().images.edit({ model: 'nano', prompt: 'both', n: 2,
        image: [await file(png, 'a.png', { type: 'image/png' }), await file(png, 'b.png', { type: 'image/png' })],
        mask: await file(png, 'm.png', { type: 'image/png' }) })
      t.equal(several.data!.length, 2)
      t.match(lastBody(), { 'image[]': [{ filename: 'a.png' }, { filename: 'b.png' }], mask: { filename: 'm.png' },
        n: '2' })
    })

    await t.test('errors are the SDK\'s own, and none of them is charged', async (t) => {
      const thrown = async (work: PromiseLike<unknown>): Promise<InstanceType<typeof SDK.APIError>> =>
        await work.then(() => {
          throw new Error('nothing was thrown')
        }, (error: unknown) => error as InstanceType<typeof SDK.APIError>)
      const unpriced = await thrown(
        client().images.generate({ model: 'nano', prompt: 'x', size: '8192x8192' as '1024x1024' })
      )
      t.ok(unpriced instanceof SDK.BadRequestError)
      t.match(unpriced, { status: 400, code: 'invalid_request', param: 'size', error: { charged_usd: '0' },
        requestID: /^req_/ })
      const unavailable = await thrown(client('cheap').images.generate({ model: 'down', prompt: 'x' }))
      t.ok(unavailable instanceof SDK.InternalServerError)
      t.match(unavailable, { status: 503, code: 'model_unavailable' })
      const stranger = await thrown(
        new SDK({ apiKey: 'sk-gw-' + 'z'.repeat(32), baseURL: `${gw.url}/v1`, maxRetries: 0 }).images.generate({
          model: 'nano',
          prompt: 'x'
        })
      )
      t.ok(stranger instanceof SDK.AuthenticationError)
      t.match(stranger, { code: 'unauthorized', type: 'authentication_error' })
      const refused = await thrown(client().images.generate({ model: 'nano', prompt: '[[sim: content_policy]] x' }))
      t.match(refused, { status: 400, code: 'content_policy_violation' })
    })

    await t.test('an SDK that retries gets there, and pays once', async (t) => {
      const before = (await gw.services.store.balance('acme')).balance
      let failures = 1
      const retrying = new SDK({
        apiKey: keyOf('premium'),
        baseURL: `${gw.url}/v1`,
        maxRetries: 2,
        fetch: async (url, init) =>
          failures-- > 0
            ? new Response('{}', { status: 500, headers: { 'retry-after-ms': '1' } })
            : await fetch(url as string, init as RequestInit)
      })
      t.equal((await retrying.images.generate({ model: 'nano', prompt: 'a cat' })).data!.length, 1)
      t.equal(before - (await gw.services.store.balance('acme')).balance, 39_000_000n)
    })

    await t.test('the models are listed', async (t) => {
      t.match((await client().models.list()).data.map(({ id }) => id), ['nano', 'down'])
      t.match(await client().models.retrieve('nano'), { id: 'nano', owned_by: 'acme' })
    })
  })
}

const settings = (key: string): { readonly apiKey: string, readonly baseURL: string } => ({
  apiKey: keyOf(key),
  baseURL: `${gw.url}/v1`
})
const providers = {
  '@ai-sdk/openai': (key: string) => createOpenAI(settings(key)).image('nano'),
  '@ai-sdk/openai-compatible': (key: string) =>
    createOpenAICompatible({ name: 'gateway', ...settings(key) }).imageModel('nano')
}

for (const [name, model] of Object.entries(providers)) {
  t.test(name, async (t) => {
    const { images } = await generateImage({ model: model('premium'), prompt: 'a cat', n: 2, size: '1024x1024',
      maxRetries: 0 })
    t.equal(images.length, 2)
    for (const { uint8Array, mediaType } of images) t.strictSame([isPng(uint8Array), mediaType], [true, 'image/png'])

    const edited = await generateImage({ model: model('premium'), prompt: { text: 'with a hat', images: [png] },
      maxRetries: 0 })
    t.ok(isPng(edited.image.uint8Array))
    t.match(lastBody(), { prompt: 'with a hat', image: { bytes: png.length } })

    const error: unknown = await generateImage({ model: model('premium'), prompt: '[[sim: status=500]] a cat',
      maxRetries: 0 }).then(() => undefined, (thrown: unknown) => thrown)
    t.ok(APICallError.isInstance(error))
    t.match(error, { statusCode: 502, isRetryable: true })
  })
}
