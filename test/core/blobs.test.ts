// Large base64 stays bytes on its way through: what arrives upstream means the same, however the body was cut on the
// way in.
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import type { BodyPieces } from '../../src/core/body-memory.ts'
import { base64In, Blobs } from '../../src/core/large-strings.ts'
import { BLOB_BYTES, JsonGuard } from '../../src/base/json-limits.ts'
import { boundInput as bound } from '../../src/tokens/bound.ts'
import { codePoint } from '../support/code-point.ts'
import { gateway, messagesRequest, yaml } from '../support/gateway.ts'
import { answer, upstream } from '../support/upstream.ts'

const boundInput = (...of: Parameters<typeof bound>): number => bound(...of).tokens

const base64 = (bytes: number): string => Buffer.alloc(bytes, 'Zm9vYmFy/+').toString('latin1')
const image = (data: string): unknown => ({ type: 'image', source: { type: 'base64', media_type: 'image/png', data } })
const request = (...content: unknown[]): Record<string, unknown> => ({
  ...messagesRequest,
  messages: [{ role: 'user', content }]
})

/** The secret of the placeholders differs from request to request. */
const masked = (skeleton: Buffer): string => skeleton.toString().replaceAll(/blob-[0-9a-f]{24}/g, 'blob')

const whole = (text: string | BodyPieces): string =>
  typeof text === 'string' ? text : Buffer.concat(text.pieces).toString()

function lift (json: Buffer, cuts: readonly number[] = []): { skeleton: Buffer, blobs: Blobs } {
  const guard = new JsonGuard()
  const places = [0, ...cuts.map((cut) => cut % json.length).sort((a, b) => a - b), json.length]
  const pieces = places.slice(1).map((end, i) => json.subarray(places[i], end))
  for (const piece of pieces) guard.push(piece)
  const blobs = new Blobs()
  return { skeleton: blobs.lift(pieces, base64In(pieces, guard.longStrings)), blobs }
}

t.test('what is lifted comes back, whatever else is in the body and however it was cut', async (t) => {
  const long = fc.nat(3).map((n) => base64(BLOB_BYTES + n))
  const value = fc.oneof(
    long.map(image),
    long.map((data) => ({ type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } })),
    long.map((data) => ({ type: 'file', file: { file_data: `DATA:Application/PDF;Name=a.pdf;BASE64,${data}` } })),
    fc.string({ unit: codePoint }).map((text) => ({ type: 'text', text })),
    fc.string().map((text) => ({ type: 'text', text: text.repeat(3) + '"\\' + 'é'.repeat(BLOB_BYTES) })),
    fc.constant({ type: 'tool_use', input: { data: 'some words '.repeat(10_000), url: 'x\\"\n'.repeat(30_000) } })
  )
  fc.assert(
    fc.property(fc.array(value, { maxLength: 4 }), fc.array(fc.nat(), { maxLength: 6 }), fc.constantFrom(undefined, 1),
      (content, cuts, indent) => {
        const body = request(...content)
        const json = Buffer.from(JSON.stringify(body, null, indent))
        const { skeleton, blobs } = lift(json, cuts)
        t.equal(masked(skeleton), masked(lift(json).skeleton), 'the cuts change nothing')
        t.strictSame(JSON.parse(whole(blobs.join(JSON.stringify(JSON.parse(skeleton.toString()))))), body)
      }),
    { numRuns: 60 }
  )
})

t.test('images are lifted, and their bytes are still known', async (t) => {
  const data = base64(5_000_000)
  for (const block of [image(data), { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } }]) {
    const json = Buffer.from(JSON.stringify(request(block)))
    const { skeleton, blobs } = lift(json)
    t.ok(skeleton.length < 1000, `${skeleton.length} bytes to parse`)
    const hidden: number[] = []
    JSON.parse(skeleton.toString(), (_, value) => {
      if (typeof value === 'string' && blobs.hiddenBytes(value) > 0) hidden.push(blobs.hiddenBytes(value))
      return value as unknown
    })
    t.strictSame(hidden, [5_000_000])
  }
})

t.test('each image of a list is lifted, and no name of a field behind one', async (t) => {
  const data = base64(BLOB_BYTES)
  for (const [count, body] of [
    [3, { images: [data, `data:image/png;base64,${data}`, data], prompt: data }],
    [2, { image: [data, data, 'https://host/a.png', data] }],
    [1, { mask: data, [data]: data }],
    [1, { x: [{ data }, data, data] }],
    [0, { texts: [data, data] }]
  ] as const) {
    const json = Buffer.from(JSON.stringify(body))
    for (const cuts of [[], [90_000, 70_000, 65_600]]) {
      const { skeleton, blobs } = lift(json, cuts)
      t.equal(skeleton.toString().match(/blob-[0-9a-f]{24}:\d+\x7f/g)?.length ?? 0, count)
      t.equal(whole(blobs.join(skeleton.toString())), json.toString())
    }
  }
})

t.test('however many pieces a body came in, a string is looked for in few of them', async (t) => {
  const json = Buffer.from(JSON.stringify(request(...Array.from({ length: 50 }, () => image(base64(BLOB_BYTES))))))
  let looks = 0
  const pieces = Array.from({ length: Math.ceil(json.length / 4096) }, (_, i) => {
    const piece = json.subarray(4096 * i, 4096 * (i + 1))
    const { length } = piece
    return Object.defineProperty(piece, 'length', { get: () => { looks++; return length } })
  })
  const guard = new JsonGuard()
  for (const piece of pieces) guard.push(piece)
  looks = 0
  const blobs = new Blobs()
  const skeleton = blobs.lift(pieces, base64In(pieces, guard.longStrings))
  t.ok(looks < 10 * pieces.length, `${looks} looks at ${pieces.length} pieces`)
  t.equal(whole(blobs.join(skeleton.toString())), json.toString())
})

t.test('a data URL keeps what stands before its base64, in any case (RFC 2397)', async (t) => {
  const data = base64(BLOB_BYTES)
  for (const head of ['data:image/png;base64,', 'DATA:image/png;BASE64,', 'Data:Image/PNG;Base64,']) {
    const { skeleton, blobs } = lift(Buffer.from(JSON.stringify({ url: head + data })))
    const { url } = JSON.parse(skeleton.toString()) as { url: string }
    t.match(url, new RegExp(`^${head}blob-[0-9a-f]{24}:0\\x7f$`))
    t.equal(blobs.restore(url), head + data)
  }
})

t.test('a text that a plugin would want to read is not lifted', async (t) => {
  for (const block of [
    { type: 'text', text: base64(BLOB_BYTES) },
    { type: 'tool_use', id: 't', name: 'n', input: { data: 'forbidden words '.repeat(10_000) } },
    { type: 'tool_use', id: 't', name: 'n', input: { data: 'naïve'.repeat(20_000) } },
    { type: 'tool_use', id: 't', name: 'n', input: { data: 'a\\nb'.repeat(20_000) } }
  ]) {
    const json = Buffer.from(JSON.stringify(request(block)))
    t.ok(lift(json).skeleton.equals(json))
  }
})

t.test('what is hidden in a tool\'s input is held like any text; in an image it is an image', async (t) => {
  const bound = (block: unknown): number => {
    const { skeleton, blobs } = lift(Buffer.from(JSON.stringify(request(block))))
    return boundInput(JSON.parse(skeleton.toString()) as Record<string, unknown>, 200_000, blobs)
  }
  t.ok(bound({ type: 'tool_use', id: 't', name: 'n', input: { data: base64(100_000) } }) > 100_000)
  t.ok(bound(image(base64(100_000))) < 5000)
})

t.test('a client that has seen a placeholder can not use it in its next request', async (t) => {
  const seen = lift(Buffer.from(JSON.stringify(request(image(base64(100_000)))))).skeleton.toString()
  const placeholder = /blob-[0-9a-f]{24}:0\x7f/.exec(seen)![0]
  const { skeleton, blobs } = lift(
    Buffer.from(JSON.stringify(request(image(base64(100_000)), { type: 'text', text: placeholder })))
  )
  t.equal(blobs.hiddenBytes(placeholder), 0)
  t.equal(whole(blobs.join(skeleton.toString())).length,
    JSON.stringify(request(image(base64(100_000)), { type: 'text', text: placeholder })).length)
})

t.test('what JSON does not allow in a string is parsed, and refused', async (t) => {
  for (const byte of ['\n', '\0', '\t', '\r']) {
    const json = Buffer.from(JSON.stringify(request(image('DATA'))).replace('DATA', base64(70_000) + byte))
    t.throws(() => JSON.parse(lift(json).skeleton.toString()), SyntaxError)
  }
})

t.test('5 MB of image arrive upstream as they were sent', async (t) => {
  const up = await upstream(t, answer('seen'))
  const { messages } = await gateway(t, yaml([up.url]))
  const data = base64(5_000_000)
  const answered = await messages(request(image(data), { type: 'text', text: 'What is it?' }))
  t.equal(answered.status, 200)
  const { body } = up.requests[0]!
  const sent = body as { messages: [{ content: [{ source: { data: string } }, { text: string }] }] }
  const hash = (text: string): string => createHash('sha256').update(text).digest('hex')
  t.equal(hash(sent.messages[0].content[0].source.data), hash(data))
  t.equal(sent.messages[0].content[1].text, 'What is it?')
})
