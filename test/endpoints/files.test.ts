// Links to images: who gets what is behind one, and until when; and what keeps the files.
import { once } from 'node:events'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { createReadStream, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import t from 'tap'
import { Disk } from '../../src/media/disk.ts'
import { FilesFull } from '../../src/media/file-store.ts'
import type { StoredFile } from '../../src/core/files.ts'
import { imageType } from '../../src/media/image-type.ts'
import { TemporaryFolder } from '../../src/media/temporary.ts'
import { picture } from '../../src/simulator/picture.ts'
import { ask, imageGateway, imageYaml } from '../support/image-gateway.ts'
import { until } from '../support/until.ts'

const HOUR = 3_600_000
const png = picture('a cat')

async function * chunks (...all: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield * all
}

async function readAll (bytes: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = []
  for await (const chunk of bytes) all.push(chunk)
  return Buffer.concat(all)
}

t.test('what a link gives', async (t) => {
  const { gw } = await imageGateway(t)
  const { body } = await ask(gw, { model: 'nano', prompt: 'a cat' })
  const { url } = body.data![0]!
  t.match(url, new RegExp(`^${gw.urls.public}/files/`))
  const whole = await fetch(url!)
  t.match(Object.fromEntries(whole.headers), {
    'content-type': 'image/png',
    'x-content-type-options': 'nosniff',
    'content-security-policy': /sandbox/,
    'cache-control': /^private, max-age=86[34]\d\d$/,
    'content-disposition': 'inline; filename="image.png"',
    'accept-ranges': 'bytes'
  })
  const bytes = Buffer.from(await whole.arrayBuffer())
  t.equal(whole.headers.get('content-length'), String(bytes.length))
  const size = bytes.length
  const etag = whole.headers.get('etag')!
  const table: readonly (readonly [what: string, init: RequestInit, status: number, from: number, to: number])[] = [
    ['a stranger\'s credentials', { headers: { authorization: 'Bearer nonsense' } }, 200, 0, size],
    ['HEAD', { method: 'HEAD' }, 200, 0, 0],
    ['a part', { headers: { range: 'bytes=10-19' } }, 206, 10, 20],
    ['the rest', { headers: { range: `bytes=${size - 5}-` } }, 206, size - 5, size],
    ['the end', { headers: { range: 'bytes=-7' } }, 206, size - 7, size],
    ['a part of a part', { headers: { range: `bytes=0-${size * 2}` } }, 206, 0, size],
    ['beyond', { headers: { range: `bytes=${size}-` } }, 416, 0, 0],
    ['several parts', { headers: { range: 'bytes=0-1,4-5' } }, 200, 0, size],
    ['backwards', { headers: { range: 'bytes=5-2' } }, 200, 0, size],
    ['a part of what it was', { headers: { range: 'bytes=0-1', 'if-range': '"older"' } }, 200, 0, size],
    ['a part of what it is', { headers: { range: 'bytes=0-1', 'if-range': etag } }, 206, 0, 2],
    ['known', { headers: { 'if-none-match': etag } }, 304, 0, 0]
  ]
  for (const [what, init, expected, from, to] of table) {
    const got = await fetch(url!, init)
    t.equal(got.status, expected, what)
    t.equal(Buffer.compare(Buffer.from(await got.arrayBuffer()), bytes.subarray(from, to)), 0, what)
    if (expected === 206) t.equal(got.headers.get('content-range'), `bytes ${from}-${to - 1}/${size}`)
    if (what === 'HEAD') t.equal(got.headers.get('content-length'), String(size))
  }
  t.equal((await fetch(url!, { method: 'POST', body: 'x' })).status, 405)
})

t.test('a client that leaves while its file is looked for leaves nothing open', async (t) => {
  const { gw } = await imageGateway(t)
  const { url } = (await ask(gw, { model: 'nano', prompt: 'a cat' })).body.data![0]!
  const { store } = gw.services.links
  const open = store.open.bind(store)
  const asking = Promise.withResolvers<void>()
  const left = Promise.withResolvers<void>()
  let bytes: Readable | undefined
  const late = async (name: string): Promise<StoredFile> => {
    const file = (await open(name))!
    asking.resolve()
    await left.promise
    return { ...file, read: (from, to) => bytes = file.read(from, to) }
  }
  Object.defineProperty(store, 'open', { value: late })
  let response: ServerResponse | undefined
  const listen = (message: unknown): void => { response = (message as { response: ServerResponse }).response }
  subscribe('http.server.request.start', listen)
  t.teardown(() => unsubscribe('http.server.request.start', listen))
  const leaving = new AbortController()
  const asked = fetch(url!, { signal: leaving.signal })
  await asking.promise
  const closed = once(response!, 'close')
  leaving.abort()
  await t.rejects(asked)
  await closed
  left.resolve()
  await until(() => bytes?.closed)
  t.notOk(response!.headersSent)
})

t.test('a file that can\'t be read before its head is out is an error of ours', async (t) => {
  const { gw } = await imageGateway(t)
  const { url } = (await ask(gw, { model: 'nano', prompt: 'a cat' })).body.data![0]!
  const { store } = gw.services.links
  const found = (await store.open(url!.split('/').at(-1)!))!
  Object.defineProperty(store, 'open', {
    value: async () => ({ ...found, read: () => createReadStream(gw.file).destroy(new Error('EMFILE')) })
  })
  const got = await fetch(url!)
  t.equal(got.status, 500)
  t.match(await got.json(), { error: { code: 'server_error' } })
})

t.test('expired and forged links are 404, and nobody can tell which', async (t) => {
  let clock = Date.parse('2026-11-21T10:00:30Z')
  const { gw } = await imageGateway(t, { now: () => clock })
  const { url } = (await ask(gw, { model: 'nano', prompt: 'a cat' })).body.data![0]!
  const [, end, signature, name] = /\/files\/([^.]+)\.([^/]+)\/(.+)$/.exec(url!)!
  const later = (Number.parseInt(end!, 36) + 3600).toString(36)
  const other = (await ask(gw, { model: 'nano', prompt: 'a dog' })).body.data![0]!.url!.split('/').at(-1)!
  const link = (path: string): string => `${gw.urls.public}/files/${path}`
  const forged = [
    link(`${later}.${signature}/${name}`),
    link(`${end}.${signature}/${other}`),
    link(`${end}.${'A'.repeat(22)}/${name}`),
    link(`${end}.${signature!.slice(1)}/${name}`),
    link(`${end}/${name}`),
    link(name!),
    link(''),
    link(`${end}.${signature}/`),
    link(`${end}.${signature}/..%2f..%2fledger.db`),
    link(`${end}.${signature}/../../admin-token`),
    link(`${end}.${signature}/${name}/x`),
    link(`${end}.${signature}/${name}`.toUpperCase()),
    link(`${end}.${signature}/${name!.replace('png', 'svg')}`)
  ]
  for (const one of forged) t.equal((await fetch(one)).status, 404, one)
  clock += 24 * HOUR - 1000
  t.equal((await fetch(url!)).status, 200, 'a second before its end')
  clock += 2000
  const gone = await fetch(url!)
  t.equal(gone.status, 404)
  t.match(await gone.json(), { error: { code: 'not_found', message: /has expired/ } })
})

t.test('links outlive a restart, and carry the address that clients use', async (t) => {
  const setting = { store: '{ driver: embedded, path: ./data }' }
  const { gw, premium, cheap } = await imageGateway(t, setting)
  const { url } = (await ask(gw, { model: 'nano', prompt: 'a cat' })).body.data![0]!
  await gw.stop()
  const { startGateway } = await import('../../src/gateway/gateway.ts')
  const { plugins } = await import('../../plugins/index.ts')
  const { pino } = await import('pino')
  writeFileSync(gw.file,
    imageYaml(premium.url, cheap.url, setting).replace('public: { listen: "127.0.0.1:0" }',
      'public: { listen: "127.0.0.1:0", url: "https://images.example.com/x" }'))
  const again = await startGateway({ file: gw.file, plugins,
    pluginsUrl: new URL('../../plugins/index.ts', import.meta.url).href, log: pino({ level: 'silent' }) })
  t.teardown(() => again.stop())
  t.equal((await fetch(url!.replace(gw.urls.public, again.urls.public))).status, 200)
  t.match(await again.services.links.keep(chunks(png)), /^https:\/\/images\.example\.com\/x\/files\//)
})

t.test('what is no raster image is never shown by a browser', async (t) => {
  const { gw } = await imageGateway(t)
  const svg = await fetch(
    await gw.services.links.keep(
      chunks(
        Buffer.from('<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
      )
    )
  )
  t.match(Object.fromEntries(svg.headers), { 'content-type': 'image/svg+xml',
    'content-disposition': 'attachment; filename="image.svg"', 'x-content-type-options': 'nosniff',
    'content-security-policy': 'default-src \'none\'; sandbox' })
  for (const [text, type] of [['GIF89a…', 'image/gif'], ['RIFF\x01\x02\x03\x04WEBPVP8 ', 'image/webp'], [
    '\xff\xd8\xff\xe0',
    'image/jpeg'
  ], ['\x00\x00\x00\x1cftypavif', 'image/avif']] as const) {
    t.equal(imageType(Buffer.from(text, 'latin1'))?.type, type)
  }
  for (const text of ['<html><svg></svg></html>', '%PDF-1.7', 'MZ', '', '<!doctype html><svg>', 'PNG',
    '{"error":"x"}']) {
    t.equal(imageType(Buffer.from(text)), undefined, text)
    await t.rejects(gw.services.links.keep(chunks(Buffer.from(text))), { name: 'NotAnImage' })
  }
})

t.test('the store on disk', async (t) => {
  const folder = join(t.testdir(), 'images')
  let clock = 1_000_000 * HOUR
  const open = async (space = 1e6): Promise<Disk> => {
    const disk = new Disk({ folder, space, now: () => clock, onTrouble: (err) => { t.fail(String(err)) } })
    await disk.start()
    t.teardown(() => disk.close())
    return disk
  }
  const disk = await open()
  t.notOk(existsSync(folder), 'nothing is made before something is kept')
  const first = await disk.put(chunks(png.subarray(0, 3), png.subarray(3, 20), png.subarray(20)), clock + 2 * HOUR, 1e6)
  t.equal(disk.used, png.length)
  t.equal((await disk.open(first))!.size, png.length)
  t.strictSame(Buffer.concat(await (await disk.open(first))!.read(2, 9).toArray() as Buffer[]), png.subarray(2, 9))

  await t.rejects(disk.put(chunks(png), clock + HOUR, 100), { name: 'NotAnImage' }, 'larger than it may be')
  await t.rejects(disk.put((async function* () {
    yield png
    throw new Error('the upstream died')
  })(), clock + HOUR, 1e6), /died/)
  await t.rejects((await open(png.length + 10)).put(chunks(png), clock + HOUR, 1e6), { name: 'FilesFull' },
    'what is there was counted')
  t.equal(disk.used, png.length, 'and of what failed nothing is left')
  t.strictSame(readdirSync(folder, { recursive: true }).filter((name) => String(name).endsWith('.part')), [])

  const hour = String(1_000_000 + 5)
  mkdirSync(join(folder, hour))
  writeFileSync(join(folder, hour, 'x.part'), 'what a killed process has left')
  t.equal((await open()).used, png.length)
  t.notOk(existsSync(join(folder, hour, 'x.part')))

  clock += 2 * HOUR
  await disk.sweep()
  t.ok(await disk.open(first), 'not before its end')
  clock += 3 * HOUR
  await disk.sweep()
  t.equal(await disk.open(first), undefined)
  t.equal(disk.used, 0)
  for (const name of ['../secret', `1000003-${'x'.repeat(32)}.exe`, `1000003-${'x'.repeat(31)}/.png`, '']) {
    t.equal(await disk.open(name), undefined, name)
  }
})

t.test('uploads of a process that was killed are removed at the start', async (t) => {
  const folder = join(t.testdir({ uploads: { left: 'x' } }), 'uploads')
  const temporary = new TemporaryFolder(folder, 10)
  await temporary.clear()
  t.notOk(existsSync(folder))
  const file = await temporary.create()
  await file.add(Buffer.from('one'))
  await file.add(Buffer.from('two'))
  await file.close()
  for (let i = 0; i < 2; i++) t.equal((await readAll(file.read())).toString(), 'onetwo', 'as often as needed')
  const other = await temporary.create()
  await t.rejects(other.add(Buffer.alloc(5)), { code: 'queue_full' }, 'all of them together may take so much')
  await file.remove()
  await file.remove()
  await other.add(Buffer.alloc(10))
  await other.remove()
  t.equal(temporary.used, 0)
  t.strictSame(readdirSync(folder), [])
})

t.test('a folder that could not be made is made at the next upload', async (t) => {
  const folder = t.testdir({ data: 'a file where a folder belongs' })
  const temporary = new TemporaryFolder(join(folder, 'data', 'uploads'), 10)
  await t.rejects(temporary.create(), { code: 'ENOTDIR' })
  rmSync(join(folder, 'data'))
  await (await temporary.create()).remove()
})

t.test('no room: an error that says so, and nothing is charged', async (t) => {
  const { gw } = await imageGateway(t)
  await gw.stop()
  const full = await imageGateway(t, { store: '{ driver: embedded, path: ./data }' })
  const { links } = full.gw.services
  t.equal((await ask(full.gw, { model: 'nano', prompt: 'a cat' })).status, 200)
  Object.defineProperty(links.store, 'put', { value: () => Promise.reject(new FilesFull('full')) })
  t.match(await ask(full.gw, { model: 'nano', prompt: 'a cat' }, { key: 'auto_cheap' }), { status: 503,
    body: { error: { code: 'service_unavailable', charged_usd: '0' } }, entries: [], openHolds: 0 })
})

t.test('trouble with our own files is not paid at the next upstream', async (t) => {
  const { gw, asked } = await imageGateway(t)
  Object.defineProperty(gw.services.links.store, 'put', {
    value: () => Promise.reject(Object.assign(new Error('no space left on device'), { code: 'ENOSPC' }))
  })
  t.match(await ask(gw, { model: 'nano', prompt: 'a cat' }, { key: 'auto_cheap' }), { status: 503,
    body: { error: { code: 'service_unavailable', charged_usd: '0' } }, entries: [], openHolds: 0 })
  t.strictSame(asked(), ['cheap'])
})

t.test('without room for links no upstream is asked for what would become one', async (t) => {
  const { gw, asked } = await imageGateway(t, { listener: ', link_space: 1MB' })
  const five = { model: 'nano', prompt: 'a cat', n: 5 }
  t.match(await ask(gw, five, { key: 'auto_cheap' }), { status: 503,
    body: { error: { code: 'service_unavailable', message: /b64_json/, charged_usd: '0' } }, entries: [],
    openHolds: 0 })
  t.strictSame(asked(), [])
  t.match(await ask(gw, { ...five, response_format: 'b64_json' }), { status: 200 })
  t.match(await ask(gw, { ...five, n: 3 }), { status: 200 })
  t.strictSame(asked(), ['premium', 'premium'])
})

t.test('a link is no secret of the log', async (t) => {
  const { gw } = await imageGateway(t)
  const { url } = (await ask(gw, { model: 'nano', prompt: 'a cat' })).body.data![0]!
  await fetch(url!)
  await fetch(url!.replace('/files/', '/filex/'))
  t.notMatch(JSON.stringify(gw.logged), url!.split('/').at(-1)!.slice(8, 30))
  t.notMatch(readFileSync(gw.file, 'utf8'), 'link-secret')
})
