// Compressed request bodies: decoded wherever the gateway reads a body itself, up to its limit, and passed on as they
// came where it does not.
import { once } from 'node:events'
import { brotliCompressSync, constants, createZstdCompress, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, json, upstream, type Upstream } from '../support/upstream.ts'

const LIMIT = 1024 * 1024
const FORWARD = 'routes: [{ match: POST /v1/own, forward: u0, price: free }]\n'
const IMAGE = `  - { id: image, name: Image, provider: acme, kind: image, created: 2025-10-01,
      channels: { premium: { price: [{ usd: 0.01 }], targets: [{ upstream: images, model: i }] } } }\n`
const hello = { model: 'm1', messages: [{ role: 'user', content: 'Hello' }] }

const encoders = { gzip: gzipSync, 'x-gzip': gzipSync, deflate: deflateSync, br: brotliCompressSync,
  zstd: zstdCompressSync } as const

async function start (t: Test): Promise<{ readonly gw: TestGateway, readonly up: Upstream }> {
  const up = await upstream(t, (received) => {
    switch (received.path) {
      case '/v1/own': return json({ bytes: received.bytes.toString('base64'), coding: received.headers['content-encoding'] })
      case '/v1/images/generations': return json({ created: 1, data: [{ b64_json: PIXEL }] })
      default: return answer('Hi')
    }
  })
  const gw = await gateway(t, yaml([up.url], FORWARD,
    'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize')
    .replace('drain_timeout: 5s', 'drain_timeout: 5s\n  body_limit: 1MB')
    .replace('models:\n', `  images: { url: "${up.url}", dialect: images }\nmodels:\n${IMAGE}`))
  return { gw, up }
}

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

interface Answered { readonly status: number, readonly text: string }

async function send (
  { url }: TestGateway,
  coding: string,
  bytes: Uint8Array,
  path = '/v1/messages',
  type = 'application/json'
): Promise<Answered> {
  const response = await fetch(url + path, { method: 'POST', body: bytes as Uint8Array<ArrayBuffer>,
    headers: { 'x-api-key': KEY, 'content-type': type, 'content-encoding': coding } })
  return { status: response.status, text: await response.text() }
}

/** A frame in which a body is that says so, and how wide its window is. */
async function frame (bytes: Uint8Array, windowLog: number): Promise<Buffer> {
  const encoder = createZstdCompress({ params: { [constants.ZSTD_c_windowLog]: windowLog } })
  const pieces: Buffer[] = []
  encoder.on('data', (piece: Buffer) => { pieces.push(piece) })
  // in two writes: of one that is over at once the encoder knows the size, and asks for no more
  encoder.write(bytes.subarray(0, 10))
  encoder.end(bytes.subarray(10))
  await once(encoder, 'end')
  return Buffer.concat(pieces)
}

const body = Buffer.from(JSON.stringify(messagesRequest))
const zstd = zstdCompressSync(body)

t.test('every address that reads a body takes each coding', async (t) => {
  const { gw, up } = await start(t)
  const form = `--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nimage\r\n--b\r\n` +
    `content-disposition: form-data; name="prompt"\r\n\r\na cat\r\n--b--\r\n`
  const table: readonly (readonly [path: string, body: unknown, type?: string, status?: number])[] = [
    ['/v1/messages', messagesRequest],
    ['/v1/messages/count_tokens', hello],
    ['/v1/chat/completions', hello],
    ['/v1/responses', { model: 'm1', input: 'Hello' }],
    ['/v1/responses/input_tokens', { model: 'm1', input: 'Hello' }],
    ['/v1/quote', { path: '/v1/messages', body: messagesRequest }],
    ['/v1/images/generations', { model: 'image', prompt: 'a cat' }],
    // decoded, since what it lacks is told: the model takes no images
    ['/v1/images/edits', form, 'multipart/form-data; boundary=b', 400]
  ]
  for (const [path, body, type, status = 200] of table) {
    const plain = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
    const expected = await send(gw, 'identity', plain, path, type)
    t.equal(expected.status, status, `${path} ${expected.text}`)
    for (const [coding, encode] of Object.entries(encoders)) {
      const got = await send(gw, coding, encode(plain), path, type)
      t.equal(got.status, status, `${path} ${coding} ${got.text}`)
      if (status === 400) t.equal(asTold(got), asTold(expected))
    }
  }
  t.equal(up.requests.find(({ path }) => path === '/v1/messages')!.headers['content-encoding'], undefined)
})

/** Without the id of the request. */
function asTold ({ text }: Answered): string {
  return text.replace(/req_\w+/g, 'req_')
}

t.test('forwarded bytes stay as they came, whatever they are compressed with', async (t) => {
  const { gw } = await start(t)
  for (const [coding, bytes] of [['zstd', zstd], ['zstd', body], ['gzip, zstd', body], ['compress', body]] as const) {
    const { status, text } = await send(gw, coding, bytes, '/v1/own')
    t.equal(status, 200)
    t.strictSame(JSON.parse(text), { bytes: bytes.toString('base64'), coding })
  }
})

t.test('a bomb is refused before it is decoded, and gives its memory back', async (t) => {
  const { gw, up } = await start(t)
  const spaces = Buffer.alloc(64 * LIMIT, 32)
  for (const [coding, encode] of Object.entries(encoders)) {
    const bomb = encode(spaces)
    t.ok(bomb.length < LIMIT)
    const { status, text } = await send(gw, coding, bomb)
    t.equal(status, 413, coding)
    t.match(text, /larger than 1048576 bytes/)
  }
  const frames = zstdCompressSync(Buffer.alloc(LIMIT / 2, 32))
  const three = Buffer.concat([frames, frames, frames])
  t.match(await send(gw, 'zstd', three), { status: 413 }, 'in several frames')
  t.match(await send(gw, 'zstd', await frame(spaces, 23)), { status: 413 }, 'in a frame that does not say its size')
  const within = Buffer.concat([zstdCompressSync(Buffer.alloc(LIMIT - body.length, 32)), zstd])
  t.match(await send(gw, 'zstd', within), { status: 200 }, 'one byte less than too many')
  t.match(await send(gw, 'zstd', Buffer.concat([zstdCompressSync(Buffer.from(' ')), within])), { status: 413 })
  t.equal(up.requests.length, 1)
  await until(() => gw.server.bodyMemory.used === 0)
})

t.test('a window of more than 8 MiB is memory that nothing counts', async (t) => {
  const { gw } = await start(t)
  t.match(await send(gw, 'zstd', await frame(body, 23)), { status: 200 })
  for (const log of [24, 27]) {
    t.match(await send(gw, 'zstd', await frame(body, log)), { status: 400, text: /window of more than 8 MiB/ })
  }
})

t.test('several frames are one body, and what stands between them for others is skipped', async (t) => {
  const { gw, up } = await start(t)
  const [one, two] = [zstdCompressSync(body.subarray(0, 20)), zstdCompressSync(body.subarray(20))]
  const skipped = Buffer.from([0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 1, 2, 3, 4])
  for (const frames of [[one, two], [skipped, one, skipped, two, skipped], [zstdCompressSync(''), one, two]]) {
    t.match(await send(gw, 'zstd', Buffer.concat(frames)), { status: 200 })
    t.strictSame(up.requests.at(-1)!.body!['messages'], messagesRequest.messages)
  }
  t.match(await send(gw, 'gzip', Buffer.concat([gzipSync(body.subarray(0, 20)), gzipSync(body.subarray(20))])),
    { status: 200 })
})

t.test('what is truncated, lies about its size or is none of it is 400, and nobody is asked', async (t) => {
  const { gw, up } = await start(t)
  const refused = { status: 400, text: /"bad_request".*/s }
  for (const [coding, encode] of Object.entries(encoders)) {
    const whole = encode(body)
    for (const length of [1, 5, Math.floor(whole.length / 2), whole.length - 1]) {
      t.match(await send(gw, coding, whole.subarray(0, length)), refused, `${coding}, ${length} bytes`)
    }
    t.match(await send(gw, coding, Buffer.alloc(0)), refused, `${coding}, nothing`)
    t.match(await send(gw, coding, encode(Buffer.alloc(0))), refused, `${coding} of nothing`)
    t.match(await send(gw, coding, body), { status: 400, text: /could not be decompressed/ }, `no ${coding}`)
  }
  t.match(await send(gw, 'zstd', Buffer.concat([zstd, zstd]).subarray(0, -3)), refused, 'a second frame, cut')
  t.match(await send(gw, 'zstd', Buffer.concat([zstdCompressSync(''), zstd]).subarray(0, -3)), refused)
  // Behind the magic number and the descriptor stands the size, in one byte of 255 at most.
  t.ok(body.length < 256 && zstd[5] === body.length, 'that is where the size is')
  for (const size of [0, 10, body.length - 1, body.length + 1, 255]) {
    const lie = Buffer.from(zstd)
    lie[5] = size
    t.match(await send(gw, 'zstd', lie), { status: 400, text: /could not be decompressed/ }, `size ${size}`)
  }
  t.equal(up.requests.length, 0)
  await until(() => gw.server.bodyMemory.used === 0)
})

t.test('codings that are not known, and several of them, are 400 with those that are', async (t) => {
  const { gw } = await start(t)
  for (const coding of ['compress', 'gzip, zstd', 'zstd, identity', 'toString', '__proto__']) {
    t.match(await send(gw, coding, body), { status: 400, text: /Send gzip, x-gzip, deflate, br, zstd or none/ }, coding)
  }
  t.match(await send(gw, ' ZSTD ', zstd), { status: 200 })
})
