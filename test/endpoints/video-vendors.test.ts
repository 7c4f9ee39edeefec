// Videos of vendors that do not answer as OpenAI does, from the task to its charge and its file.
import dns from 'node:dns'
import { createServer as createHttpsServer } from 'node:https'
import { syncBuiltinESMExports } from 'node:module'
import type { TLSSocket } from 'node:tls'
import type { Test } from 'tap'
import t from 'tap'
import { fetchImage } from '../../src/media/fetch-image.ts'
import { type Clock, startClock } from '../support/clock.ts'
import { gateway, KEY, type TestGateway } from '../support/gateway.ts'
import { json, raw, type Received, type Script, status, upstream, type Upstream } from '../support/upstream.ts'
import { authority, listening } from '../support/transport.ts'
import { client, errorIn, type Studio, type Video, videosYaml } from '../support/videos.ts'

interface Vendor extends Omit<Studio, 'simulator'> {
  readonly up: Upstream
  readonly clock: Clock
  readonly gw: TestGateway
  /** of a video of 8 seconds, $0.80 */
  finished (): Promise<Video>
  download (id: string): Promise<{ readonly status: number, readonly headers: Headers, readonly text: string }>
}

interface VendorOptions {
  readonly created?: unknown
  readonly poll?: Script
  /** undefined: the upstream has no such address */
  readonly content?: (request: Received) => Script
  /** further upstreams by their names */
  readonly others?: Readonly<Record<string, string>>
  /** their TLS, and its files */
  readonly tls?: string
  readonly files?: Readonly<Record<string, string>>
}

const BYTES = 'the bytes of a video'
const file = (body = BYTES): Script => [status(200, { 'content-type': 'video/mp4' }), raw(body)]
const to = (location: string, code = 302): Script => status(code, { location })

async function vendor (
  t: Test, { created, poll, content, others = {}, tls = '', files = {} }: VendorOptions
): Promise<Vendor> {
  const up = await upstream(t, (request) => {
    if (request.method === 'POST') return json(created ?? { id: 'task-1', status: 'queued' })
    if (request.path === '/v1/videos/task-1') return poll ?? json({ id: 'task-1', status: 'completed' })
    return content?.(request) ?? status(404)
  })
  let gw: TestGateway | undefined = undefined
  const clock = startClock(() => gw !== undefined && (gw as TestGateway).services.videos.asking > 0)
  gw = await gateway(t, videosYaml(up.url).replace('upstreams:\n', `upstreams:\n${Object.entries(others)
    .map(([name, url]) => `  ${name}: { url: "${url}", dialect: videos${tls} }\n`).join('')}`),
  { files, now: clock.now, timer: clock.timer })
  const { ask, create, ended, entries } = client(gw, clock)
  return {
    up, clock, gw, ask, create, ended, entries,
    finished: async () => await ended((await create('a cat', { seconds: '8' })).id),
    async download (id) {
      const response = await fetch(`${gw!.url}/v1/videos/${id}/content`, {
        headers: { authorization: `Bearer ${KEY}`, range: 'bytes=0-' }
      })
      return { status: response.status, headers: response.headers, text: await response.text() }
    }
  }
}

const charged = async ({ entries }: Pick<Vendor, 'entries'>): Promise<readonly unknown[]> =>
  (await entries()).map(({ nanos, usage }) => [nanos, usage?.extras?.video_second])

void t.test('U6: eight seconds ordered, five delivered: five are billed and shown', async (t) => {
  for (const [told, seconds] of [[{ seconds: '5' }, 5], [{ duration: 5 }, 5], [{ video: { duration: 5.04 } }, 5],
    [{ usage: { video_duration: 5 } }, 5], [{}, 8], [{ seconds: '12' }, 8]] as const) {
    const v = await vendor(t, { poll: json({ id: 'task-1', status: 'completed', ...told }) })
    t.match(await v.finished(), { status: 'completed', seconds: String(seconds) }, JSON.stringify(told))
    t.strictSame(await charged(v), [[BigInt(-100_000_000 * seconds), seconds]])
    t.strictSame(await v.gw.services.store.balance('acme'), { balance: 100_000_000_000n - 100_000_000n * BigInt(seconds),
      held: 0n, open_holds: 0 })
    t.ok(v.gw.logged.some(({ msg, ordered_seconds: ordered }) => msg === 'a video is completed' && ordered === '8'))
  }
})

void t.test('F7: other ids, words and shapes end at once, charged once', async (t) => {
  const link = 'https://cdn.example.com/1.mp4'
  for (const [created, poll] of [
    [{ request_id: 'task-1' }, { status: 'done', video: { url: link, duration: 8 } }],
    [{ request_id: 'task-1' }, { video: { url: link } }],
    [{ code: 0, data: { task_id: 'task-1' } }, { code: 0, data: { task_status: 'SUCCESS' } }],
    [{ id: 'task-1', status: 'success' }, { id: 'task-1', status: 'Frobnicated', output: [link] }],
    [{ output: { task_id: 'task-1' } }, { output: { task_status: 'SUCCEEDED', video_url: link } }],
    [{ id: 'task-1' }, { name: 'task-1', done: true, response: { generatedVideos: [{ video: { uri: link } }] } }]
  ] as const) {
    const v = await vendor(t, { created, poll: json(poll) })
    t.match(await v.finished(), { status: 'completed', progress: 100, error: null }, JSON.stringify(poll))
    t.strictSame(await charged(v), [[-800_000_000n, 8]])
    t.equal(v.up.requests.length, 2)
  }
  for (const poll of [{ status: 'FAILURE' }, { id: 'task-1', error: { code: 'x', message: 'no' } },
    { status: 'Frobnicated', error: 'no' }, { done: true, error: { code: 13, message: 'no' } }]) {
    const v = await vendor(t, { poll: json(poll) })
    t.match(await v.finished(), { status: 'failed', error: { code: 'server_error' } }, JSON.stringify(poll))
    t.strictSame(await charged(v), [])
    t.equal(await v.gw.services.store.openHolds(), 0)
  }
})

void t.test('F7: numeric ids are asked for as they were written', async (t) => {
  const up = await upstream(t, ({ method }) => method === 'POST'
    ? [status(200, { 'content-type': 'application/json' }), raw('{"id":2512292042121000001}')]
    : json({ id: 1, status: 'completed' }))
  const clock = startClock()
  const gw = await gateway(t, videosYaml(up.url), { now: clock.now, timer: clock.timer })
  const { create, ended } = client(gw, clock)
  await ended((await create('a cat')).id)
  t.equal(up.requests.at(-1)!.path, '/v1/videos/2512292042121000001')
})

void t.test('F7: an expiry before the task, as of a number of seconds, makes no paid file unreachable', async (t) => {
  for (const said of [0, 3600, null]) {
    const v = await vendor(t, { poll: json({ status: 'completed', expires_at: said }), content: () => file() })
    const { id } = await v.finished()
    t.match(await v.download(id), { status: 200, text: BYTES }, String(said))
  }
})

void t.test('F7: an unknown word is named in the log, and 202 is "not yet"', async (t) => {
  const v = await vendor(t, { poll: json({ id: 'task-1', status: 'resting' }) })
  const { id } = await v.create('a cat')
  await v.clock.until(() => v.gw.logged.some(({ said }) => said === 'resting'))
  t.match((await v.ask('GET', `/videos/${id}`)).body, { status: 'queued' })
  const named = await vendor(t, { poll: json({ status: 'Frobnicated', video_url: 'https://a.example.com/1.mp4' }) })
  await named.finished()
  t.ok(named.gw.logged.some(({ unknown_status: word }) => word === 'Frobnicated'))
  const accepted = await vendor(t, { poll: status(202) })
  const waiting = await accepted.create('a cat')
  await accepted.clock.until(async () =>
    (await accepted.ask('GET', `/videos/${waiting.id}`)).body.status === 'in_progress')
  t.notOk(accepted.gw.logged.some(({ msg }) => /did not tell/.test(String(msg))))
})

void t.test('F7: content behind redirects is delivered, with credentials at the upstream alone', async (t) => {
  const store = await upstream(t, () => file())
  const v = await vendor(t, {
    others: { store: store.url },
    content: ({ path }) => path.endsWith('/content')
      ? to('/v1/files/1?token=abc')
      : path === '/v1/files/1' ? to('2', 307) : to(`${store.url}/clips/1.mp4?sig=x`, 303)
  })
  const { id } = await v.finished()
  const { status: code, headers, text } = await v.download(id)
  t.strictSame([code, text, headers.get('content-type')], [200, BYTES, 'video/mp4'])
  t.equal(headers.get('location'), null)
  const [one, two] = v.up.requests.slice(-2)
  t.strictSame([one!.url, two!.url], ['/v1/files/1?token=abc', '/v1/files/2'])
  for (const request of [one!, two!]) t.equal(request.headers.authorization, 'Bearer upstream-secret')
  const elsewhere = store.requests[0]!
  t.equal(elsewhere.url, '/clips/1.mp4?sig=x')
  t.match(elsewhere.headers, { range: 'bytes=0-', 'accept-encoding': 'identity', 'user-agent': /^model-gateway/ })
  t.notOk('authorization' in elsewhere.headers)
  t.equal(store.requests.length, 1)
})

void t.test('F7: no redirect leads to an address that is not public, nor further than three times', async (t) => {
  const inner = await upstream(t, () => file('secret'))
  const { port } = new URL(inner.url)
  for (const location of [inner.url, `http://localhost:${port}/`, `http://[::1]:${port}/`, `http://0x7f.1:${port}/`,
    'http://169.254.169.254/latest/meta-data', 'file:///etc/passwd', `http://user:pass@localhost:${port}/`, '//[', '']) {
    const v = await vendor(t, { content: () => to(location) })
    const { id } = await v.finished()
    const { status: code, text } = await v.download(id)
    t.match(text, /"code":"server_error"/, location)
    t.equal(code, 502, location)
  }
  t.equal(inner.requests.length, 0)
  let hops = 0
  const v = await vendor(t, { content: () => { hops++; return hops === 4 ? file() : to(`/v1/hop/${hops}`) } })
  const { id } = await v.finished()
  t.match(await v.download(id), { status: 200, text: BYTES })
  hops = -10
  t.match(await v.download(id), { status: 502 })
  t.equal(hops, -6, 'the first address and three more')
})

void t.test('F7: the link of an answer is where the file is if the upstream has no such address', async (t) => {
  const store = await upstream(t, () => file())
  const poll = json({ status: 'done', video: { url: `${store.url}/1.mp4`, duration: 5 } })
  const v = await vendor(t, { others: { store: store.url }, poll })
  const { id } = await v.finished()
  t.match(await v.download(id), { status: 200, text: BYTES })
  t.equal(store.requests.length, 1)
  t.notOk('authorization' in store.requests[0]!.headers)
  const own = await vendor(t, { others: { store: store.url }, poll, content: () => file('its own') })
  t.match(await own.download((await own.finished()).id), { status: 200, text: 'its own' })
  const gone = await vendor(t, { content: () => status(404) })
  t.match(errorIn(await gone.ask('GET', `/videos/${(await gone.finished()).id}/content`)), /^404 not_found: .*expired/)
})

void t.test('F7: a redirect of an upstream with TLS stays on its own authority', async (t) => {
  const paths: string[] = []
  const port = await listening(t, createHttpsServer(authority.issue('127.0.0.1'), (request, response) => {
    paths.push(`${request.url} ${request.headers.authorization}`)
    request.resume()
    if (request.url!.endsWith('/content')) response.writeHead(302, { location: '/v1/files/1' }).end()
    else if (request.url === '/v1/files/1') response.writeHead(200, { 'content-type': 'video/mp4' }).end(BYTES)
    else response.writeHead(200).end(JSON.stringify({ id: 'task-1', status: 'completed' }))
  }))
  const clock = startClock()
  const gw = await gateway(t, videosYaml(`https://127.0.0.1:${port}`).replace('dialect: videos,',
    'dialect: videos, tls: { ca: "${file:ca.pem}" },'), { files: { 'ca.pem': authority.ca }, now: clock.now,
    timer: clock.timer })
  const { create, ended } = client(gw, clock)
  const { id } = await ended((await create('a cat')).id)
  const response = await fetch(`${gw.url}/v1/videos/${id}/content`, { headers: { authorization: `Bearer ${KEY}` } })
  t.strictSame([response.status, await response.text()], [200, BYTES])
  t.equal(paths.at(-1), '/v1/files/1 Bearer upstream-secret')
})

void t.test('F7: a redirect to another upstream shows it no certificate of the gateway', async (t) => {
  const shown: unknown[] = []
  const { cert, key } = authority.issue('gateway')
  const port = await listening(t, createHttpsServer({ ...authority.issue('127.0.0.1'), ca: authority.ca,
    requestCert: true, rejectUnauthorized: false }, (request, response) => {
    shown.push((request.socket as TLSSocket).getPeerCertificate().subject)
    response.writeHead(200, { 'content-type': 'video/mp4' }).end(BYTES)
  }))
  const v = await vendor(t, { content: () => to(`https://127.0.0.1:${port}/1.mp4`),
    others: { store: `https://127.0.0.1:${port}` },
    tls: ', tls: { ca: "${file:ca.pem}", cert: "${file:cert.pem}", key: "${file:key.pem}" }',
    files: { 'ca.pem': authority.ca, 'cert.pem': cert, 'key.pem': key } })
  t.match(await v.download((await v.finished()).id), { status: 200, text: BYTES })
  t.strictSame(shown, [undefined])
})

void t.test('F5, F7: a link that no connection can be made to for lack of descriptors is 503', async (t) => {
  const { lookup } = dns
  const lacking = Object.assign(new Error('no'), { code: 'EMFILE', syscall: 'connect' })
  dns.lookup = ((host: string, options: object, callback: (error: Error) => void) => {
    if (host === 'files.vendor.test') callback(lacking)
    else (lookup as (...args: unknown[]) => void)(host, options, callback)
  }) as typeof lookup
  syncBuiltinESMExports()
  t.teardown(() => {
    dns.lookup = lookup
    syncBuiltinESMExports()
  })
  const v = await vendor(t, { content: () => to('http://files.vendor.test/1.mp4') })
  const { status: code, text } = await v.download((await v.finished()).id)
  t.match([code, text], [503, /service_unavailable/])
  await t.rejects(async () => {
    for await (const _ of fetchImage('http://files.vendor.test/1.png',
      { trusted: [], signal: AbortSignal.timeout(60_000) })) t.fail('there are no bytes')
  }, { code: 'EMFILE' })
})

void t.test('F7: 202 is not the file, nor is JSON about it', async (t) => {
  let answer: Script = json({}, 202, { 'retry-after': '7' })
  const v = await vendor(t, { content: () => answer })
  const { id } = await v.finished()
  const early = await v.ask('GET', `/videos/${id}/content`)
  t.match(errorIn(early), /^503 service_unavailable: The file of this video is not ready/)
  t.equal(early.headers.get('retry-after'), '7')
  answer = json({ error: { message: 'no' } })
  t.match(errorIn(await v.ask('GET', `/videos/${id}/content`)), /^502 server_error/)
  answer = file()
  t.match(await v.download(id), { status: 200, text: BYTES })
})
