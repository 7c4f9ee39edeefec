// Images over real sockets: which variant a request asks for and what it costs, what is refused, what of an upstream's
// answer counts as delivered, and that nothing is charged that nobody has got.
import t from 'tap'
import { json, upstream } from '../support/upstream.ts'
import { ask, imageGateway, imageModel, keyOf } from '../support/image-gateway.ts'
import { parseUsd } from '../../src/money/nanos.ts'

/** as far as types are told by */
const PNG = Buffer.from('iVBORw0KGgoAAAANSUhEUg==', 'base64')

const LITE = `  - id: feather
    provider: acme
    kind: image
    created: 2025-11-20
    parameters: { resolution: { values: [1K, 2K], default: 1K }, tier: { values: [lite] }, quality: { values: [low, high], default: low } }
    channels:
      premium:
        price:
          - { when: { tier: lite }, usd: 0.01 }
          - { when: { quality: high, resolution: 1K }, usd: 0.08 }
          - { when: { quality: low }, usd: 0.0333333333 }
        targets: [{ upstream: premium, model: feather }]
`

t.test('which variant is asked for, what it costs, and what the upstream is told', async (t) => {
  const { gw, premium } = await imageGateway(t, {
    models: imageModel('nano', { premium: 'vendor-nano', cheap: 'vendor-nano' }) + LITE
  })
  const table: readonly (readonly [asked: object, usd: string, sent: object])[] = [
    [{ model: 'nano' }, '0.039', { resolution: '1K' }],
    [{ model: 'nano', resolution: '2K' }, '0.06', { resolution: '2K' }],
    [{ model: 'nano', resolution: null, size: 'auto', quality: 'auto' }, '0.039', { resolution: '1K', size: undefined,
      quality: undefined }],
    [{ model: 'nano', size: '1024x1024' }, '0.039', { resolution: '1K', size: '1024x1024' }],
    [{ model: 'nano', size: '2048x2048' }, '0.06', { resolution: '2K', size: '2048x2048' }],
    [{ model: 'nano', size: '4096x4096', resolution: '4K' }, '0.12', { resolution: '4K', size: '4096x4096' }],
    [{ model: 'nano', n: 3 }, '0.117', { n: 3 }],
    [{ model: 'feather' }, '0.033333333', { quality: 'low', resolution: '1K' }],
    [{ model: 'feather', n: 10 }, '0.333333333', { n: 10 }],
    [{ model: 'feather', quality: 'high' }, '0.08', { quality: 'high', resolution: '1K' }],
    [{ model: 'feather', tier: 'lite' }, '0.01', { tier: 'lite', resolution: undefined }],
    [{ model: 'feather', tier: 'lite', resolution: '2K' }, '0.01', { tier: 'lite', resolution: '2K' }],
    // fields that change no price: those of the API travel, others stay
    [{ model: 'nano', output_format: 'webp', user: 'u-1', image_size: '8K', num_images: 4, response_format: 'url' },
      '0.039', { output_format: 'webp', user: 'u-1', image_size: undefined, num_images: undefined,
      response_format: undefined }]
  ]
  for (const [asked, usd, sent] of table) {
    const { status, headers, entries } = await ask(gw, { prompt: 'a cat', ...asked })
    t.equal(status, 200, JSON.stringify(asked))
    t.equal(headers.get('x-gateway-cost-usd'), usd, JSON.stringify(asked))
    t.strictSame(entries.map(({ nanos }) => -nanos), [parseUsd(usd)], 'the reported cost is the charged cost')
    const body = premium.requests.at(-1)!.body as Readonly<Record<string, unknown>>
    for (const [name, value] of Object.entries(sent)) t.equal(body[name], value, `${name} of ${JSON.stringify(asked)}`)
  }
  t.equal(premium.requests[0]!.headers.authorization, 'Bearer upstream-secret')
  t.equal((premium.requests[0]!.body as { model: string }).model, 'vendor-nano')
})

t.test('C6: an image answer has its cost in usage, beside the vendor\'s counts and instead of its cost', async (t) => {
  const counts = { input_tokens: 10, total_tokens: 110 }
  const up = await upstream(t, ({ body }) => json({ created: 1,
    data: Array.from({ length: Number(body!['n'] ?? 1) }, () => ({ b64_json: 'iVBORw0KGgoAAAANSUhEUg==' })),
    ...(body!['n'] !== 2 && { usage: { ...counts, cost: 0.02, cost_details: { upstream: 1 } } }) }))
  const { gw } = await imageGateway(t, { models: imageModel('nano', { premium: 'nano' }).replace('upstream: premium',
    'upstream: own'), upstreams: `  own: { url: "${up.url}", dialect: images }\n` })
  t.match(await ask(gw, { model: 'nano', prompt: 'a cat' }), { body: { usage: { ...counts, cost: 0.039 } } })
  t.strictSame((await ask(gw, { model: 'nano', prompt: 'a cat', n: 2 })).body.usage, { cost: 0.078 })
  const { usage } = (await ask(gw, { model: 'nano', prompt: 'a cat' })).body
  t.notOk('cost_details' in usage!)
})

t.test('C8: fields that clients send by habit are ignored by a model without them, and named in a header', async (t) => {
  const { gw, premium } = await imageGateway(t, {
    models: imageModel('nano', { premium: 'vendor-nano', cheap: 'vendor-nano' }) + LITE
  })
  for (const [asked, ignored] of [
    [{ model: 'nano', quality: 'medium' }, 'quality'],
    [{ model: 'nano', quality: 'hd', input_fidelity: 'high' }, 'quality, input_fidelity'],
    [{ model: 'nano', quality: 'auto' }, null],
    [{ model: 'feather', quality: 'high' }, null]
  ] as const) {
    const { status, headers } = await ask(gw, { prompt: 'a cat', ...asked })
    t.equal(status, 200, JSON.stringify(asked))
    t.equal(headers.get('x-gateway-ignored-fields'), ignored, JSON.stringify(asked))
    if (ignored === null) continue
    const body = premium.requests.at(-1)!.body as object
    t.notOk('quality' in body || 'input_fidelity' in body, 'the vendor does not get them')
  }
  t.match(await ask(gw, { model: 'feather', prompt: 'a cat', quality: 'medium' }), { status: 400,
    body: { error: { message: /"quality" must be one of low, high/ } } }, 'a model with the field has its values')
})

t.test('C7: a text or a PDF is no image: it is refused before its vendor is asked', async (t) => {
  const { gw, premium } = await imageGateway(t)
  const auth = { authorization: `Bearer ${keyOf('premium')}` }
  const upload = async (bytes: string, field = 'image'): Promise<Response> => {
    const form = new FormData()
    form.set('model', 'nano')
    form.set('prompt', 'a hat')
    if (field !== 'image') form.set('image', new Blob([PNG]), 'a.png')
    form.set(field, new Blob([Buffer.from(bytes, 'latin1')], { type: 'image/png' }), 'a.png')
    return await fetch(`${gw.url}/v1/images/edits`, { method: 'POST', headers: auth, body: form })
  }
  const link = async (bytes: Uint8Array | string): Promise<Response> =>
    await fetch(`${gw.url}/v1/images/edits`, { method: 'POST', headers: { ...auth, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'nano', prompt: 'a hat',
        images: [{ image_url: `data:image/png;base64,${Buffer.from(bytes).toString('base64')}` }] }) })
  const before = premium.requests.length
  const long = 'All of it is text. '.repeat(20_000)
  for (const got of [await upload('Hello, world\n'), await upload(long), await upload('%PDF-1.7\n\0\x01'),
    await upload('a mask', 'mask'), await link('Hello, world'), await link(long)]) {
    t.equal(got.status, 400)
    t.match(await got.json(), { error: { code: 'invalid_request', message: /must be an image: its first bytes are/ } })
  }
  t.equal(premium.requests.length, before)
  t.equal((await upload(PNG.toString('latin1'))).status, 200)
  t.equal((await link(PNG)).status, 200)
})

t.test('the price that an entry was computed with can be read off it', async (t) => {
  const { gw } = await imageGateway(t, { models: LITE })
  t.match((await ask(gw, { model: 'feather', prompt: 'x', quality: 'high' })).entries, [{
    price_version: 'image=0.08 quality=high resolution=1K'
  }])
})

t.test('what is refused, before anybody is asked', async (t) => {
  const { gw, asked } = await imageGateway(t, {
    models: imageModel('nano', { premium: 'nano', cheap: 'nano', more: 'accepts: [text]' }) + LITE
  })
  const table: readonly (readonly [asked: object, code: string, param: string, says: RegExp])[] = [
    [{ model: 'nano', resolution: '8K' }, 'invalid_request', 'resolution',
      /must be one of 1K, 2K, 4K for nano, not "8K"/],
    [{ model: 'nano', resolution: 2 }, 'invalid_request', 'resolution', /must be one of 1K, 2K, 4K/],
    [{ model: 'nano', resolution: '' }, 'invalid_request', 'resolution', /must be one of 1K, 2K, 4K for nano, not ""/],
    [{ model: 'nano', tier: '' }, 'invalid_request', 'tier', /no lightweight mode/],
    [{ model: 'nano', size: '' }, 'invalid_request', 'size', /WIDTHxHEIGHT/],
    [{ model: 5 }, 'invalid_request', 'model', /"model" must be a string/],
    [{ model: 'nano', resolution: ['1K'] }, 'invalid_request', 'resolution', /must be a string/],
    [{ model: 'nano', size: 'big' }, 'invalid_request', 'size', /WIDTHxHEIGHT/],
    [{ model: 'nano', size: '8192x8192' }, 'invalid_request', 'size', /larger than this model can make/],
    [{ model: 'nano', size: '2048x2048', resolution: '1K' }, 'invalid_request', 'size', /contradict each other/],
    [{ model: 'nano', tier: 'lite' }, 'invalid_request', 'tier', /no lightweight mode/],
    [{ model: 'nano', tier: 'lite' }, 'invalid_request', 'tier', /no lightweight mode/],
    [{ model: 'feather', size: '1024x1024' }, 'invalid_request', 'size', /not sold with the field "size"/],
    [{ model: 'feather', quality: 'high', resolution: '2K' }, 'invalid_request', 'resolution',
      /no price for resolution 2K, quality high.*quality high with resolution 1K/],
    [{ model: 'nano', n: 0 }, 'invalid_request', 'n', /from 1 to 10/],
    [{ model: 'nano', n: 11 }, 'invalid_request', 'n', /from 1 to 10/],
    [{ model: 'nano', n: 1.5 }, 'invalid_request', 'n', /whole number/],
    [{ model: 'nano', stream: true }, 'invalid_request', 'stream', /not streamed/],
    [{ model: 'nano', partial_images: 2 }, 'invalid_request', 'partial_images', /not streamed/],
    [{ model: 'nano', response_format: 'base64' }, 'invalid_request', 'response_format', /url, b64_json/],
    [{ model: 'nano', prompt: ' ' }, 'invalid_request', 'prompt', /says what the image shows/],
    [{ model: 'nano', prompt: 'x'.repeat(32_001) }, 'invalid_request', 'prompt', /at most 32000 characters/],
    [{ model: 'nano', image: 'https://example.com/a.png' }, 'invalid_request', 'image', /images\/edits/],
    [{ model: 'nano', prompt: undefined }, 'invalid_request', 'prompt', /is missing/],
    [{ model: '' }, 'model_required', 'model', /is missing or empty/],
    [{ model: 'nanoo' }, 'model_not_found', 'model', /Did you mean "nano"/]
  ]
  for (const [body, code, param, says] of table) {
    const told = await ask(gw, { prompt: 'a cat', ...body })
    t.match(told, { status: 400, body: { error: { code, param, message: says, charged_usd: '0' } }, entries: [] },
      JSON.stringify(body).slice(0, 100))
  }
  t.match(
    await ask(gw, { model: 'nano', prompt: 'a hat', images: [{ image_url: 'https://example.com/a.png' }] }, {
      path: '/v1/images/edits'
    }),
    { status: 400, body: { error: { code: 'image_input_not_supported', param: 'image' } } }
  )
  t.strictSame(asked(), [])
})

t.test('a model of one kind is not asked at the address of another', async (t) => {
  const text =
    '  - { id: talker, provider: acme, created: 2025-10-01, context: 1000, max_output: 100, channels: { premium: { price: free, targets: [{ upstream: words, model: x }] } } }\n'
  const { gw } = await imageGateway(t, { models: imageModel('nano', { premium: 'nano' }) + text,
    upstreams: '  words: { url: "http://127.0.0.1:9", dialect: messages }\n' })
  t.match(await ask(gw, { model: 'talker', prompt: 'x' }), { status: 400, body: {
    error: { code: 'invalid_request',
      message: /is a text model, and this address takes an image model\. Use POST \/v1\/messages/ }
  } })
  const messages = await fetch(`${gw.url}/v1/messages`, { method: 'POST',
    headers: { 'x-api-key': keyOf('premium'), 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'nano', max_tokens: 5, messages: [{ role: 'user', content: 'x' }] }) })
  t.equal(messages.status, 400)
  t.match(await messages.json(), { type: 'error',
    error: { message: /is an image model, and this address takes a text model\. Use POST \/v1\/images\/generations/ } })
  for (const path of ['/v1/chat/completions', '/v1/messages/count_tokens']) {
    t.match(await ask(gw, { model: 'nano', max_tokens: 5, messages: [{ role: 'user', content: 'x' }] }, { path }), {
      status: 400,
      entries: []
    }, path)
  }
})

t.test('how the images come: what the client asked for, whatever the upstream gives', async (t) => {
  const { gw, premium } = await imageGateway(t)
  for (const gives of ['base64', 'links']) {
    for (const wants of [undefined, 'url', 'b64_json']) {
      const { status, body } = await ask(gw, { model: 'nano',
        prompt: `${gives === 'links' ? '[[sim: links]] ' : ''}a cat`, n: 2, response_format: wants })
      t.equal(status, 200)
      t.type(body.created, 'number')
      t.strictSame(Object.keys(body), ['created', 'data', 'usage', 'channel'])
      for (const image of body.data!) {
        t.strictSame(Object.keys(image), [wants === 'b64_json' ? 'b64_json' : 'url'], `${gives}, ${wants}`)
        const bytes = image.url === undefined
          ? Buffer.from(image.b64_json!, 'base64')
          : Buffer.from(await (await fetch(image.url)).arrayBuffer())
        t.strictSame(bytes.subarray(1, 4).toString(), 'PNG')
        t.equal(bytes.subarray(-8, -4).toString(), 'IEND', 'whole')
        if (image.url !== undefined) {
          t.equal(new URL(image.url).origin, gives === 'links' ? premium.url : gw.urls.public,
            'an upstream\'s link is passed on')
        }
      }
    }
  }
})

t.test('large images arrive whole', async (t) => {
  const { gw } = await imageGateway(t)
  for (const wants of ['url', 'b64_json']) {
    const { status, body } = await ask(gw, { model: 'nano', prompt: '[[sim: image_bytes=5000000]] a cat', n: 2,
      response_format: wants })
    t.equal(status, 200)
    for (const image of body.data!) {
      const bytes = image.url === undefined
        ? Buffer.from(image.b64_json!, 'base64')
        : Buffer.from(await (await fetch(image.url)).arrayBuffer())
      t.equal(bytes.length, 5_000_000, wants)
      t.equal(bytes.subarray(-8, -4).toString(), 'IEND')
    }
  }
})

t.test('charged per delivered image', async (t) => {
  const { gw, asked } = await imageGateway(t)
  const table:
    readonly (readonly [directive: string, n: number, key: string, status: number, usd: string | null, images: number,
      asked: string])[] = [
      ['images=1', 3, 'premium', 200, '0.039', 1, 'premium'],
      ['images=5', 2, 'premium', 200, '0.078', 2, 'premium'],
      ['empty', 2, 'premium', 502, null, 0, 'premium'],
      ['empty', 2, 'auto_cheap', 502, null, 0, 'cheap,premium'],
      ['not_an_image', 2, 'auto_cheap', 502, null, 0, 'cheap,premium'],
      ['malformed', 1, 'auto_cheap', 502, null, 0, 'cheap,premium'],
      ['cut_after=1', 1, 'auto_cheap', 502, null, 0, 'cheap,premium'],
      ['html=502', 1, 'auto_premium', 502, null, 0, 'premium,cheap'],
      ['empty_body', 1, 'auto_premium', 502, null, 0, 'premium,cheap']
    ]
  for (const [directive, n, key, status, usd, images, who] of table) {
    const told = await ask(gw, { model: 'nano', n, prompt: `[[sim: ${directive}]] a cat` }, { key })
    t.strictSame([told.status, told.headers.get('x-gateway-cost-usd'), told.body.data?.length ?? 0, asked().join()], [
      status,
      usd,
      images,
      who
    ], directive)
    t.equal(told.openHolds, 0)
    if (directive === 'empty') t.equal(told.body.error!.code, 'empty_response')
  }
})

t.test('the hold covers all the images of the dearest attempt', async (t) => {
  const { gw, asked } = await imageGateway(t, { balance: '0.07',
    models: imageModel('nano', { premium: 'nano', cheap: 'nano' }) })
  const two = { model: 'nano', prompt: 'a cat', n: 2 }
  t.match(await ask(gw, two, { key: 'auto_cheap' }), { status: 402, body: {
    error: { code: 'insufficient_quota',
      message: /may cost up to \$0\.078, and the balance of the account has \$0\.07 left/ }
  } })
  t.strictSame(asked(), [])
  t.match(await ask(gw, two, { key: 'cheap' }), { status: 200, charged: 40_000_000n })
  t.equal((await gw.services.store.balance('acme')).balance, 30_000_000n)
})

t.test('a client that leaves during a long generation: the upstream is told at once, and nothing is charged', async (t) => {
  const { gw, premium } = await imageGateway(t, { models: imageModel('slow', { premium: 'sim-stall' }) })
  const leaving = new AbortController()
  const asked = fetch(`${gw.url}/v1/images/generations`, {
    method: 'POST',
    signal: leaving.signal,
    headers: { authorization: `Bearer ${keyOf('premium')}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'slow', prompt: 'a cat', n: 4 })
  })
  await premium.until(() => premium.requests.length === 1 && premium.requests[0]!.headers)
  t.match(await gw.services.store.balance('acme'), { held: 156_000_000n, open_holds: 1 })
  leaving.abort()
  await t.rejects(asked)
  await premium.until(() => premium.requests[0]!.ended === 'client_left')
  while ((await gw.services.store.balance('acme')).open_holds > 0) await new Promise(setImmediate)
  t.match(await gw.services.store.balance('acme'), { balance: 100_000_000_000n, held: 0n })
  t.equal(premium.requests.length, 1, 'and nobody else is asked')
})

t.test('what nobody will hear of is not kept', async (t) => {
  const { gw } = await imageGateway(t)
  const { store, links } = gw.services
  t.equal((await ask(gw, { model: 'nano', prompt: 'a cat' })).status, 200)
  const used = links.store.used
  t.ok(used > 0)
  Object.defineProperty(store, 'settle', { value: () => {
    throw new Error('the disk is gone')
  }, configurable: true })
  t.match(await ask(gw, { model: 'nano', prompt: 'a cat', n: 3 }), { status: 500, body: { error: { charged_usd: '0' } },
    openHolds: 0 })
  Reflect.deleteProperty(store, 'settle')
  t.equal(links.store.used, used)
})

t.test('two hundred at once, with failures at random: each is charged once for what it got, or not at all', async (t) => {
  const { gw } = await imageGateway(t, { simulators: { errorRate: 0.3, seed: 7 }, balance: '1000', isForgetful: true })
  const all = await Promise.all(Array.from({ length: 200 }, async (_, i) => {
    const response = await fetch(`${gw.url}/v1/images/generations`, {
      method: 'POST',
      headers: { authorization: `Bearer ${keyOf(['auto_cheap', 'auto_premium', 'cheap', 'premium', 'max'][i % 5]!)}`,
        'content-type': 'application/json' },
      body: JSON.stringify({ model: 'nano', prompt: 'a cat', n: 1 + i % 3, resolution: i % 7 === 0 ? '4K' : '1K' })
    })
    const body = await response.json() as { data?: unknown[], channel?: 'premium' | 'cheap' }
    const each = body.channel === 'cheap' ? 20_000_000n : i % 7 === 0 ? 120_000_000n : 39_000_000n
    return { id: response.headers.get('x-request-id')!,
      nanos: response.status === 200 ? each * BigInt(body.data!.length) : 0n, failed: response.status !== 200 }
  }))
  const failed = all.filter((one) => one.failed).length
  t.ok(failed > 5 && failed < 150, `${failed} failed`)
  const charged = new Map<string, bigint>()
  for await (const { kind, reference, nanos } of gw.services.store.entries()) {
    if (kind === 'settle') charged.set(reference, (charged.get(reference) ?? 0n) - nanos)
  }
  for (const { id, nanos } of all) { t.equal(charged.get(id) ?? 0n, nanos) }
  t.equal(await gw.services.store.openHolds(), 0)
  t.strictSame((await gw.services.store.verify()).differences, [])
})

t.test('the public price tables', async (t) => {
  const text =
    '  - { id: talker, provider: acme, created: 2025-10-01, context: 1000, max_output: 100, channels: { premium: { price: free, targets: [{ upstream: words, model: x }] } } }\n'
  const off = imageModel('late', { premium: 'nano', cheap: 'nano' }).replace('      cheap:\n',
    '      cheap:\n        enabled: false\n')
  const { gw } = await imageGateway(t, {
    models: imageModel('nano', { premium: 'nano', cheap: 'nano' }) + LITE + text + off,
    upstreams: '  words: { url: "http://127.0.0.1:9", dialect: messages }\n'
  })
  const list = async (query = ''): Promise<readonly { readonly id: string }[]> =>
    (await (await fetch(`${gw.urls.public}/api/public/media-info${query}`)).json() as { data: { id: string }[] }).data
  t.strictSame(await list('?channel=cheap'), [{
    id: 'nano',
    display_name: 'nano',
    kind: 'image',
    accepts_images: true,
    parameters: { resolution: { values: ['1K', '2K', '4K'], default: '1K' } },
    prices: [{ when: { resolution: '1K' }, usd_per_image: 0.02 }, { when: { resolution: '2K' }, usd_per_image: 0.03 }]
  }])
  t.strictSame((await list()).map(({ id }) => id), ['nano', 'feather', 'late'])
  t.match((await list()).find(({ id }) => id === 'feather'), {
    accepts_images: false,
    parameters: { tier: { values: ['lite'], default: null } },
    prices: [{ when: { tier: 'lite' }, usd_per_image: 0.01 }, { when: { quality: 'high', resolution: '1K' },
      usd_per_image: 0.08 }, { when: { quality: 'low' }, usd_per_image: 0.0333333333 }]
  })
  const first = await fetch(`${gw.urls.public}/api/public/media-info`)
  t.match(Object.fromEntries(first.headers), { 'access-control-allow-origin': '*',
    'cache-control': 'public, max-age=60' })
  t.equal(
    (await fetch(`${gw.urls.public}/api/public/media-info`, {
      headers: { 'if-none-match': first.headers.get('etag')! }
    })).status,
    304
  )
  const wrong = await fetch(`${gw.urls.public}/api/public/media-info?channel=dear`)
  t.match([wrong.status, await wrong.json()], [400, { error: { code: 'channel_not_allowed' } }])
  const models = await (await fetch(`${gw.urls.public}/api/public/models-info`)).json() as { data: { id: string }[] }
  t.strictSame(models.data.map(({ id }) => id), ['talker'], 'the list of text models keeps its shape')
  const info =
    await (await fetch(`${gw.url}/v1/models/info`, { headers: { authorization: `Bearer ${keyOf('premium')}` } }))
      .json() as { data: { id: string }[] }
  t.strictSame(info.data.map(({ id }) => id), ['talker'])
  const listed = await (await fetch(`${gw.url}/v1/models`, { headers: { authorization: `Bearer ${keyOf('cheap')}` } }))
    .json() as { data: object[] }
  t.match(
    listed.data.map((model) => model),
    [{ id: 'nano', object: 'model', owned_by: 'acme', created: 1_763_596_800 }, { id: 'feather' }, { id: 'talker' }],
    'and the models of a key are all that it may call'
  )
})

t.test('a named creation is charged once, with links and with base64', async (t) => {
  const { gw } = await imageGateway(t)
  const once = async (
    name: string,
    more: object
  ): Promise<
    { readonly status: number,
      readonly body: { readonly data: readonly { readonly url?: string, readonly b64_json?: string }[] } }
  > => {
    const response = await fetch(`${gw.url}/v1/images/generations`, {
      method: 'POST',
      headers: { authorization: `Bearer ${keyOf('premium')}`, 'content-type': 'application/json',
        'idempotency-key': name },
      body: JSON.stringify({ model: 'nano', prompt: 'a cat', ...more })
    })
    return { status: response.status, body: await response.json() as never }
  }
  const first = await once('a', {})
  t.strictSame(await once('a', {}), first)
  t.match(await once('b', { response_format: 'b64_json' }), { status: 200 })
  t.match(await once('b', { response_format: 'b64_json' }), { status: 400,
    body: { error: { code: 'invalid_state', message: /links instead of base64/ } } }, 'too large to be kept')
  t.equal((await gw.services.store.balance('acme')).balance, 100_000_000_000n - 78_000_000n)
})
