// Forms with files over real sockets: what of them reaches the upstream, and the second one after a failure; what is
// refused; and that nothing stays on disk or in memory, however a request ends.
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, readdirSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { dirname, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { Dicer } from '@fastify/busboy'
import t, { type Test } from 'tap'
import { TemporaryFolder } from '../../src/media/temporary.ts'
import { Upload } from '../../src/core/upload.ts'
import { picture } from '../../src/simulator/picture.ts'
import type { TestGateway } from '../support/gateway.ts'
import { ask, imageGateway, imageModel, keyOf, type ImageGateway, type Setting } from '../support/image-gateway.ts'
import { until } from '../support/until.ts'

const EDITS = { path: '/v1/images/edits' }
const STORE = '{ driver: embedded, path: ./data }'
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')
const png = picture('a cat')
/** on disk while its request runs */
const large = picture('a large cat', 1_500_000)

/** With its files in a folder that the test can look into. */
async function edits (t: Test, setting: Setting = {}): Promise<ImageGateway & { onDisk (): readonly string[] }> {
  const all = await imageGateway(t, { store: STORE, ...setting })
  const folder = join(dirname(all.gw.file), 'data', 'uploads')
  return { ...all, onDisk: () => existsSync(folder) ? readdirSync(folder) : [] }
}

function form (fields: Readonly<Record<string, string | Uint8Array[]>>): FormData {
  const made = new FormData()
  const all: typeof fields = { model: 'nano', prompt: 'with a hat', ...fields }
  for (const [name, value] of Object.entries(all)) {
    if (typeof value === 'string') { made.append(name, value) }
    else {
      for (const [i, bytes] of value.entries()) {
        made.append(name, new Blob([bytes as Uint8Array<ArrayBuffer>], { type: 'image/png' }), `picture-${i}.png`)
      }
    }
  }
  return made
}

/** What the vendor was sent, with files as the simulator tells of them. */
function sent (gateway: ImageGateway, channel: 'premium' | 'cheap' = 'premium'): Readonly<Record<string, unknown>> {
  return gateway[channel].requests.at(-1)!.body as Readonly<Record<string, unknown>>
}

t.test('one file and several, a mask, and fields that are no text', async (t) => {
  const all = await edits(t)
  const file = (bytes: Uint8Array, i = 0): object => ({
    filename: `picture-${i}.png`,
    content_type: 'image/png',
    bytes: bytes.length,
    sha256: sha256(bytes)
  })
  const table: readonly (readonly [fields: Parameters<typeof form>[0], sent: object, usd: string])[] = [
    [{ image: [png] }, { model: 'nano', prompt: 'with a hat', image: file(png), resolution: '1K' }, '0.039'],
    [{ 'image[]': [png, large] }, { 'image[]': [file(png), file(large, 1)] }, '0.039'],
    [{ image: [png, large] }, { 'image[]': [file(png), file(large, 1)] }, '0.039'],
    [{ image: [large], mask: [png] }, { image: file(large), mask: file(png) }, '0.039'],
    [{ image: [png], n: '2', size: '2048x2048', stream: 'false', response_format: 'b64_json' }, { n: '2',
      size: '2048x2048', resolution: '2K', response_format: undefined, stream: undefined }, '0.12'],
    [{ image: [png], prompt: 'Ein Hut für die Katze 🎩\r\nund "mehr"' }, {
      prompt: 'Ein Hut für die Katze 🎩\r\nund "mehr"'
    }, '0.039']
  ]
  for (const [fields, expected, usd] of table) {
    const { status, headers, body } = await ask(all.gw, form(fields), EDITS)
    t.equal(status, 200, JSON.stringify(body).slice(0, 200))
    t.equal(headers.get('x-gateway-cost-usd'), usd)
    const got = sent(all)
    for (const [name, value] of Object.entries(expected)) {
      t.strictSame(name === 'image[]' ? got['image[]'] ?? got['image'] : got[name], value, name)
    }
    t.strictSame(all.onDisk(), [])
  }
})

t.test('JSON, in all spellings', async (t) => {
  const all = await edits(t)
  const url = `data:image/png;base64,${png.toString('base64')}`
  const huge = `data:image/png;base64,${large.toString('base64')}`
  const link = 'https://example.com/cat.png'
  const table: readonly (readonly [asked: object, images: readonly string[], mask?: string])[] = [
    [{ images: [{ image_url: url }] }, [url]],
    [{ images: [{ image_url: link }, { image_url: huge }], mask: { image_url: url } }, [link, huge], url],
    [{ image: url }, [url]],
    [{ image: huge }, [huge]],
    [{ image: [url, link] }, [url, link]],
    [{ image: { url: link } }, [link]],
    [{ image: [{ image_url: { url: link } }] }, [link]]
  ]
  for (const [asked, images, mask] of table) {
    const { status, body } = await ask(all.gw, { model: 'nano', prompt: 'with a hat', ...asked }, EDITS)
    t.equal(status, 200, JSON.stringify(body).slice(0, 200))
    const record = all.premium.requests.at(-1)!
    const expected = { model: 'nano', prompt: 'with a hat', resolution: '1K',
      images: images.map((one) => ({ image_url: one })), ...(mask !== undefined && { mask: { image_url: mask } }) }
    // Large bodies are not kept by the simulator: their hash is.
    if (record.body !== undefined) t.strictSame(record.body, expected)
    else t.equal(record.body_bytes, JSON.stringify(expected).length)
  }
})

t.test('the second channel gets the same files after the first has failed', async (t) => {
  const all = await edits(t, { models: imageModel('nano', { premium: 'nano', cheap: 'sim-error-500' }) })
  let onDisk = -1
  all.premium.events.on('open', () => { onDisk = all.onDisk().length })
  const { status, body } = await ask(all.gw, form({ 'image[]': [large, png, large] }), { ...EDITS, key: 'auto_cheap' })
  t.match({ status, channel: body.channel }, { status: 200, channel: 'premium' })
  t.strictSame(all.asked(), ['cheap', 'premium'])
  for (const channel of ['cheap', 'premium'] as const) {
    t.strictSame((sent(all, channel)['image[]'] as { sha256: string }[]).map((file) => file.sha256),
      [large, png, large].map(sha256), channel)
  }
  t.equal(onDisk, 2, 'the large ones were on disk while it ran')
  t.strictSame(all.onDisk(), [], 'and are not any more')
})

t.test('what is refused, and nothing stays', async (t) => {
  const all = await edits(t)
  const many = Object.fromEntries(Array.from({ length: 110 }, (_, i) => [`field${i}`, 'x']))
  const table: readonly (readonly [what: string, body: FormData, code: string, says: RegExp])[] = [
    ['no image', form({}), 'invalid_request', /image" is missing/],
    ['an empty file', form({ image: [Buffer.alloc(0)] }), 'invalid_request', /empty file/],
    ['seventeen images', form({ 'image[]': Array.from({ length: 17 }, () => png) }), 'invalid_request', /at most 16/],
    ['forty files', form({ 'image[]': Array.from({ length: 40 }, () => png) }), 'bad_request', /too many files/],
    ['two masks', form({ image: [png], mask: [png, png] }), 'invalid_request', /"mask" must be one image/],
    ['a file and a link', form({ image: [png], mask: 'https://example.com/m.png' }), 'invalid_request', /not both/],
    ['too many fields', form({ image: [large], ...many }), 'bad_request', /too many fields/],
    ['a field that is too long', form({ image: [large], prompt: 'x'.repeat(300_000) }), 'invalid_request',
      /longer than/],
    ['no model', form({ image: [large], model: '' }), 'model_required', /model/],
    ['an empty value', form({ image: [large], resolution: '' }), 'invalid_request', /1K, 2K, 4K/],
    ['a file for the name of the model', form({ image: [large], model: [png] }), 'invalid_request',
      /"model" must be a string/],
    ['an unknown value', form({ image: [large], resolution: '9K' }), 'invalid_request', /1K, 2K, 4K/],
    ['a word for a number', form({ image: [png], n: 'two' }), 'invalid_request', /whole number/],
    ['a stream', form({ image: [png], stream: 'true' }), 'invalid_request', /not streamed/]
  ]
  for (const [what, body, code, says] of table) {
    t.match(await ask(all.gw, body, EDITS), { status: 400, body: { error: { code, message: says } }, entries: [] },
      what)
    await until(() => all.onDisk().length === 0)
  }
  const json = (asked: object): Promise<unknown> => ask(all.gw, { model: 'nano', prompt: 'x', ...asked }, EDITS)
  t.match(await json({ images: [{ file_id: 'file-1' }] }), { status: 400,
    body: { error: { message: /no Files API/ } } })
  t.match(await json({ image: 'cat.png' }), { status: 400, body: { error: { message: /must be a link/ } } })
  t.match(await json({ image: 'file:///etc/passwd' }), { status: 400, body: { error: { message: /must be a link/ } } })
  t.match(await ask(all.gw, form({})), { status: 400, body: { error: { code: 'bad_request', message: /takes JSON/ } } },
    'generations take no form')
  t.equal(all.gw.server.bodyMemory.used, 0)
  t.strictSame(all.asked(), [])
})

/**
 * Bytes that no FormData would make.
 * @param then when it has happened the client leaves, without having ended its request
 * @returns `left`: the connection broke before an answer
 */
async function raw (
  gw: TestGateway,
  head: Readonly<Record<string, string>>,
  body: Buffer,
  then?: () => Promise<unknown>
): Promise<{ readonly status: number, readonly text: string } | 'left'> {
  const { promise, resolve } = Promise.withResolvers<{ readonly status: number, readonly text: string } | 'left'>()
  const asked = httpRequest(gw.url + EDITS.path, { method: 'POST',
    headers: { authorization: `Bearer ${keyOf('premium')}`, ...head } }, (response) => {
    const chunks: Buffer[] = []
    response.on('data', (chunk: Buffer) => chunks.push(chunk)).on('end', () => {
      resolve({ status: response.statusCode!, text: Buffer.concat(chunks).toString() })
    })
  })
  asked.on('error', () => { resolve('left') })
  asked.write(body)
  if (then === undefined) asked.end()
  else void Promise.race([then(), promise]).then(() => { asked.destroy() })
  return await promise
}

const part = (name: string, value: Buffer | string, more = ''): Buffer =>
  Buffer.concat([Buffer.from(`--b\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n`),
    Buffer.from(value), Buffer.from('\r\n')])
const whole = Buffer.concat([part('model', 'nano'), part('prompt', 'a hat'), part('image', large, '; filename="a.png"'),
  Buffer.from('--b--\r\n')])
const FORM = { 'content-type': 'multipart/form-data; boundary=b' }

t.test('what no honest client sends', async (t) => {
  const all = await edits(t, { server: '  body_limit: 2MB' })
  const refused = (code: string, status = 400): object => ({ status, text: new RegExp(`"code":"${code}"`) })
  t.match(await raw(all.gw, FORM, whole), { status: 200 }, 'a form by hand')
  t.match(await raw(all.gw, FORM, whole.subarray(0, 1_200_000)), refused('bad_request'),
    'that ends in the middle of a file')
  t.match(await raw(all.gw, FORM, whole.subarray(0, 60)), refused('bad_request'), 'in the middle of a head')
  t.match(await raw(all.gw, FORM, Buffer.alloc(0)), refused('bad_request'), 'nothing')
  t.match(await raw(all.gw, FORM, Buffer.from('{"model":"nano"}')), refused('bad_request'),
    'JSON that is called a form')
  t.match(await raw(all.gw, { 'content-type': 'multipart/form-data' }, whole), { ...refused('bad_request'),
    text: /no boundary/ })
  t.match(await raw(all.gw, { 'content-type': 'multipart/form-data; boundary=""' }, whole), refused('bad_request'),
    'an empty boundary')
  t.match(await raw(all.gw, { 'content-type': 'multipart/form-data; boundary=other' }, whole), refused('bad_request'),
    'another boundary')
  t.match(await raw(all.gw, { 'content-type': 'text/plain' }, whole), refused('bad_request'))
  t.match(
    await raw(all.gw, { ...FORM, 'content-length': String(3 * 1024 * 1024) }, Buffer.from('--b'),
      () => new Promise(() => {})),
    refused('request_too_large', 413),
    'too large, by its head'
  )
  for (const disposition of ['form-data', 'form-data; name', 'form-data; name=""', 'form-data; filename="a.png"',
    'form-data; filename', 'form-data; name; filename="a.png"']) {
    t.match(
      await raw(all.gw, FORM,
        Buffer.concat([Buffer.from(`--b\r\nContent-Disposition: ${disposition}\r\n\r\nx\r\n`), whole])),
      { ...refused('bad_request'), text: /has no name/ },
      `a part that is only ${disposition}`
    )
  }
  const heads = {
    'without a head': '\r\nx',
    'without a disposition': 'content-type: text/plain\r\n\r\nx',
    'that is no field': 'content-disposition: attachment; name="prompt"\r\n\r\nx',
    'with half a line': 'content-disposition: form-data; name="a\nb"\r\n\r\nx',
    'whose name breaks a line': 'content-disposition: form-data; name*=utf-8\'\'a%0Ab\r\n\r\nx',
    'whose head has no end': 'content-disposition: form-data; name="prompt"',
    'of nothing': ''
  }
  for (const [what, head] of Object.entries(heads)) {
    t.match(await raw(all.gw, FORM, Buffer.concat([Buffer.from(`--b\r\n${head}\r\n`), whole])), {
      ...refused('bad_request'),
      text: /has no name/
    }, `a part ${what}`)
    t.match(
      await raw(all.gw, FORM, Buffer.concat([whole.subarray(0, -6), Buffer.from(`\r\n--b\r\n${head}\r\n--b--\r\n`)])),
      refused('bad_request'),
      `the last one ${what}`
    )
  }
  const tooLarge = Buffer.concat([part('model', 'nano'), part('prompt', 'x'),
    part('image', randomBytes(3 * 1024 * 1024), '; filename="a.png"'), Buffer.from('--b--\r\n')])
  t.match(await raw(all.gw, FORM, tooLarge), refused('request_too_large', 413), 'too large, by its bytes')
  t.match(await raw(all.gw, FORM, Buffer.concat([part('__proto__', 'x'), part('constructor[prototype]', 'x'), whole])),
    { status: 200 }, 'names that mean something to JavaScript')
  t.match(
    await raw(all.gw, FORM,
      Buffer.concat([part('model', 'nano'), part('prompt', 'a hat'),
        part('image', png, '; filename="../../etc/passwd"'), Buffer.from('--b--\r\n')])),
    { status: 200 },
    'a path for a name'
  )
  t.equal((sent(all)['image'] as { filename: string }).filename, 'passwd')
  t.equal(await raw(all.gw, FORM, whole.subarray(0, 1_300_000), () => until(() => all.onDisk().length === 1)), 'left')
  await until(() => all.onDisk().length === 0 && all.gw.server.bodyMemory.used === 0)
})

t.test('a parser that throws at what it parses is a 400 of that request', async (t) => {
  const all = await edits(t)
  const inner = Dicer.prototype as unknown as { _oninfo (...args: readonly unknown[]): void }
  const { _oninfo: parse } = inner
  t.teardown(() => { inner._oninfo = parse })
  inner._oninfo = function (...args) {
    const [, data] = args as [boolean, Buffer | undefined]
    if (data?.includes('a defect') === true) throw new TypeError('the parser has a defect')
    parse.apply(this, [...args])
  }
  t.match(await raw(all.gw, FORM, Buffer.concat([part('prompt', 'a defect'), whole])), { status: 400,
    text: /"code":"bad_request"/ })
  t.match(
    await raw(all.gw, FORM,
      Buffer.concat([part('image', large, '; filename="a.png"'), part('prompt', 'a defect'), whole])),
    { status: 400, text: /"code":"bad_request"/ }
  )
  t.match(await raw(all.gw, FORM, whole), { status: 200 })
  await until(() => all.onDisk().length === 0 && all.gw.server.bodyMemory.used === 0)
})

t.test('a client that leaves while its file is about to be made: its memory is given back once', async (t) => {
  const all = await edits(t)
  const { temporary } = all.gw.services
  const create = temporary.create.bind(temporary)
  const asking = Promise.withResolvers<void>()
  const left = Promise.withResolvers<void>()
  const made = Promise.withResolvers<void>()
  const late = async (): ReturnType<typeof create> => {
    asking.resolve()
    await left.promise
    const file = await create()
    made.resolve()
    return file
  }
  Object.defineProperty(temporary, 'create', { value: late })
  const { bodyMemory } = all.gw.server
  // little more than what is kept in memory: a socket with more to read would not tell that it is closed
  t.equal(await raw(all.gw, FORM, whole.subarray(0, 1024 * 1024 + 1000), async () => {
    await asking.promise
    t.ok(bodyMemory.used > 0)
  }), 'left')
  await until(() => bodyMemory.used === 0)
  left.resolve()
  await made.promise
  await until(() => all.onDisk().length === 0 && temporary.used === 0)
  await new Promise(setImmediate)
  t.equal(bodyMemory.used, 0)
})

t.test('a file in the smallest pieces is kept in few, and counted with the memory that they take', async (t) => {
  const upload = new Upload('a.png', 'image/png', new TemporaryFolder(join(t.testdir(), 'uploads'), 10))
  for (const byte of png) await upload.add(Buffer.of(byte))
  for (let i = 0; i < 2; i++) {
    const pieces: Buffer[] = []
    for await (const piece of upload.read()) pieces.push(piece)
    t.strictSame(Buffer.concat(pieces), png)
    t.ok(pieces.length <= 3, `${pieces.length} pieces`)
    t.ok(upload.inMemory > pieces.length * 300)
  }
  t.ok(upload.inMemory >= 64 * 1024, 'a page counts as a whole')
  await upload.remove()
  t.equal(upload.inMemory, 0)
})

t.test('a compressed form, and more uploads than the disk may hold', async (t) => {
  const all = await edits(t, { server: '  body_disk: 1MB' })
  const small = Buffer.concat([part('model', 'nano'), part('prompt', 'a hat'), part('image', png, '; filename="a.png"'),
    Buffer.from('--b--\r\n')])
  t.match(await raw(all.gw, { ...FORM, 'content-encoding': 'gzip' }, gzipSync(small)), { status: 200 })
  t.equal((sent(all)['image'] as { sha256: string }).sha256, sha256(png))
  t.match(await raw(all.gw, { ...FORM, 'content-encoding': 'gzip' }, small), { status: 400,
    text: /could not be decompressed/ })
  t.match(await ask(all.gw, form({ image: [large] }), EDITS), { status: 429,
    body: { error: { code: 'queue_full', message: /as many uploads as it can/ } } })
  await until(() => all.onDisk().length === 0 && all.gw.services.temporary.used === 0)
  t.match(await ask(all.gw, form({ image: [png] }), EDITS), { status: 200 })
})

t.test('thirty-one megabytes take next to no memory', async (t) => {
  const all = await edits(t)
  let used = -1
  all.premium.events.on('open', () => { used = all.gw.server.bodyMemory.used })
  const big = picture('a huge cat', 31 * 1024 * 1024)
  const { status, body } = await ask(all.gw, form({ image: [big] }), EDITS)
  t.equal(status, 200, JSON.stringify(body))
  t.equal((sent(all)['image'] as { sha256: string } | undefined)?.sha256 ?? 'not kept', sha256(big))
  t.ok(used >= 0 && used < 64 * 1024, `${used} bytes were held for it`)
  t.strictSame(all.onDisk(), [])
})
