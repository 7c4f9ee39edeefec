// Large base64 stays bytes on its way through: what arrives upstream means the same, however the body was cut on the way in.
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { BLOB_BYTES, Blobs, hiddenBytes } from '../src/blobs.ts'
import { JsonGuard } from '../src/json-guard.ts'
import { boundInput } from '../src/money/bound.ts'
import { gateway, messagesRequest, yaml } from './gateway.ts'
import { answer, upstream } from './upstream.ts'

const base64 = (bytes: number): string => Buffer.alloc(bytes, 'Zm9vYmFy/+').toString('latin1')
const image = (data: string): unknown => ({ type: 'image', source: { type: 'base64', media_type: 'image/png', data } })
const request = (...content: unknown[]): Record<string, unknown> => ({ ...messagesRequest, messages: [{ role: 'user', content }] })

const whole = (text: string | readonly Buffer[]): string => typeof text === 'string' ? text : Buffer.concat(text).toString()

function lift (json: Buffer, cuts: readonly number[] = []): { skeleton: Buffer, blobs: Blobs } {
  const guard = new JsonGuard()
  const places = [0, ...cuts.map((cut) => cut % json.length).sort((a, b) => a - b), json.length]
  const pieces = places.slice(1).map((end, i) => json.subarray(places[i], end))
  for (const piece of pieces) guard.push(piece)
  const blobs = new Blobs()
  return { skeleton: blobs.lift(pieces, guard.longStrings), blobs }
}

t.test('what is lifted comes back, whatever else is in the body and however it was cut', async (t) => {
  const long = fc.nat(3).map((n) => base64(BLOB_BYTES + n))
  const value = fc.oneof(
    long.map(image),
    long.map((data) => ({ type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } })),
    fc.string({ unit: 'binary' }).map((text) => ({ type: 'text', text })),
    fc.string().map((text) => ({ type: 'text', text: text.repeat(3) + '"\\' + 'é'.repeat(BLOB_BYTES) })),
    fc.constant({ type: 'tool_use', input: { data: 'some words '.repeat(10_000), url: 'x\\"\n'.repeat(30_000) } })
  )
  fc.assert(fc.property(fc.array(value, { maxLength: 4 }), fc.array(fc.nat(), { maxLength: 6 }), fc.constantFrom(undefined, 1), (content, cuts, indent) => {
    const body = request(...content)
    const json = Buffer.from(JSON.stringify(body, null, indent))
    const { skeleton, blobs } = lift(json, cuts)
    t.ok(skeleton.equals(lift(json).skeleton), 'the cuts change nothing')
    t.strictSame(JSON.parse(whole(blobs.join(JSON.stringify(JSON.parse(skeleton.toString()))))), body)
  }), { numRuns: 60 })
})

t.test('images are lifted, and their bytes are still known', async (t) => {
  const data = base64(5_000_000)
  for (const block of [image(data), { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } }]) {
    const json = Buffer.from(JSON.stringify(request(block)))
    const { skeleton } = lift(json)
    t.ok(skeleton.length < 1000, `${skeleton.length} bytes to parse`)
    const hidden: number[] = []
    JSON.parse(skeleton.toString(), (_, value) => { if (typeof value === 'string' && hiddenBytes(value) > 0) hidden.push(hiddenBytes(value)); return value as unknown })
    t.strictSame(hidden, [5_000_000])
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
  const parse = (block: unknown): Record<string, unknown> => JSON.parse(lift(Buffer.from(JSON.stringify(request(block)))).skeleton.toString()) as Record<string, unknown>
  t.ok(boundInput(parse({ type: 'tool_use', id: 't', name: 'n', input: { data: base64(100_000) } })) > 100_000)
  t.ok(boundInput(parse(image(base64(100_000)))) < 2000)
})

t.test('a client can not make us see a blob of its own', async (t) => {
  const forged = JSON.stringify(request({ type: 'text', text: 'blob-000000000000000000000000:0:9999999\x7f' }))
  const { skeleton, blobs } = lift(Buffer.from(forged))
  t.equal(whole(blobs.join(skeleton.toString())), forged)
  t.equal(hiddenBytes('blob-000000000000000000000000:0:9999999\x7f'), 0)
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
