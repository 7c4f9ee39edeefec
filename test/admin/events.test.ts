// The events of the admin API over real sockets: what changes is told, once a second at most; who does not read, who is
// gone and who may not listen any more is sent away; and a drain waits for nobody.
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { EventStream } from '../../src/admin/event-stream.ts'
import { startTimer, type Timer } from '../../src/base/timer.ts'
import { gateway, type GatewayTestOptions, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, upstream } from '../support/upstream.ts'

interface Change { readonly seq: number, readonly changed: readonly string[], readonly generation: number }

/** Somebody who listens on a socket of its own. */
interface Ear {
  readonly socket: Socket
  readonly status: () => number
  /** all that came, as text */
  readonly text: () => string
  readonly events: () => readonly Change[]
  readonly isOver: () => boolean
}

/** A second is a moment. */
const quick: Timer = (ms, callback) => startTimer(ms === 1000 ? 10 : ms, callback)

async function serving (
  t: Test, options: Pick<GatewayTestOptions, 'timer' | 'now'> = { timer: quick }
): Promise<TestGateway> {
  const up = await upstream(t, answer('Hello'))
  return await gateway(t, yaml([up.url]), options)
}

function listen (t: Test, own: TestGateway, token = 'test-admin-token', method = 'GET'): Ear {
  return listenWith(t, own, `Authorization: Bearer ${token}`, method)
}

function listenWith (t: Test, own: TestGateway, headers: string, method = 'GET'): Ear {
  const socket = connect(Number(new URL(own.urls.admin).port), '127.0.0.1')
  t.teardown(() => { socket.destroy() })
  let text = ''
  let isOver = false
  socket.setEncoding('utf8').on('data', (chunk: string) => { text += chunk }).on('close', () => { isOver = true })
    .on('error', () => {})
  socket.write(`${method} /admin/v1/events HTTP/1.1\r\nHost: ${new URL(own.urls.admin).host}\r\n${headers}\r\n\r\n`)
  return { socket, text: () => text, isOver: () => isOver || text.includes('\r\n0\r\n\r\n'),
    status: () => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0),
    events: () => [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!) as Change) }
}

async function ask (own: TestGateway, method: string, path: string, body?: object): Promise<Record<string, unknown>> {
  const got = await fetch(`${own.urls.admin}/admin/v1${path}`, { method,
    headers: { authorization: 'Bearer test-admin-token' }, ...(body !== undefined && { body: JSON.stringify(body) }) })
  return await got.json() as Record<string, unknown>
}

t.test('each part that changes is told, with the numbers of the last minutes', async (t) => {
  const own = await serving(t)
  const ear = listen(t, own)
  await until(() => ear.events().length === 1)
  t.match(ear.text(), /^HTTP\/1\.1 200 OK\r\ncontent-type: text\/event-stream\r\n/i)
  t.match(ear.text(), /retry: 3000\n\n[^]*event: change\ndata: /)
  t.match(ear.events()[0], { changed: [], generation: 1, live: { requests: 0 } })
  /** The changes since the last that was asked for. */
  let told = 1
  const next = async (part: string): Promise<Change> => {
    await until(() => ear.events().slice(told).some(({ changed }) => changed.includes(part)))
    told = ear.events().length
    return ear.events().at(-1)!
  }
  await (await own.messages(messagesRequest)).text()
  t.match(await next('requests'), { live: { requests: 1 } })
  await ask(own, 'POST', '/keys', { id: 'k', account: 'acme' })
  await next('keys')
  await ask(own, 'POST', '/accounts', { id: 'beta' })
  await next('accounts')
  await ask(own, 'POST', '/accounts/beta/credits', { amount_usd: '1', reference: 'r' })
  await next('accounts')
  await own.rewrite(yaml(['http://127.0.0.1:1']))
  t.match(await next('config'), { generation: 2 })
  t.equal((await own.messages(messagesRequest)).status >= 500, true)
  await next('upstreams')
  const all = ear.events().map(({ seq }) => seq)
  t.strictSame(all, all.map((_, i) => i), 'none is missing')
})

t.test('at most one a second, for however much happens; comments while nothing does', async (t) => {
  const pending: (() => void)[] = []
  const own = await serving(t, { timer: (ms, callback) => {
    if (ms !== 1000) return startTimer(ms, callback)
    pending.push(callback)
    return () => {}
  } })
  const ear = listen(t, own)
  /** Lets a second go by, again and again, until there is something. */
  const later = async (seen: () => boolean): Promise<void> => {
    await until(() => {
      for (const callback of pending.splice(0)) callback()
      return seen()
    }, 20_000)
  }
  await later(() => ear.events().length === 1)
  for (let i = 0; i < 20; i++) await (await own.messages(messagesRequest)).text()
  t.equal(ear.events().length, 1, 'no second has gone by')
  await later(() => ear.events().length === 2)
  t.match(ear.events()[1], { changed: ['requests'], live: { requests: 20 } })
  await later(() => ear.text().includes(': nothing new\n\n'))
  t.equal(ear.events().length, 2)
  const other = listen(t, own)
  await until(() => other.status() === 200)
  await later(() => other.events().length === 1)
  t.match(other.events()[0], { changed: [], seq: 1 }, 'who comes gets one at once')
  t.equal(ear.events().length, 2)
})

t.test('N16: where all 32 places are taken, a newcomer gets the newest of the token with the most', async (t) => {
  const own = await serving(t)
  const secrets: string[] = []
  for (const name of ['a', 'b', 'c', 'd', 'e']) {
    secrets.push((await ask(own, 'POST', '/tokens', { name, role: 'viewer' }))['secret'] as string)
  }
  const newcomer = secrets.pop()!
  const ears: Ear[] = []
  for (const secret of secrets) {
    for (let i = 0; i < 8; i++) {
      const ear = listen(t, own, secret)
      await until(() => ear.events().length > 0)
      ears.push(ear)
    }
  }
  const others: Ear[] = []
  for (let i = 0; i < 7; i++) {
    const ear = listen(t, own, newcomer)
    await until(() => ear.status() !== 0)
    others.push(ear)
  }
  t.strictSame(others.map((ear) => ear.status()), [200, 200, 200, 200, 200, 200, 429], 'until its share is as large')
  await until(() => ears.filter((ear) => ear.isOver()).length === 6)
  t.strictSame(ears.map((ear) => ear.isOver()), Array.from({ length: 32 }, (_, i) => i % 8 >= (i < 16 ? 6 : 7)))
  t.match(others.at(-1)!.text(), /32 listen already/)
})

t.test('8 listen with one token, and no more; who leaves makes room', async (t) => {
  const own = await serving(t)
  const ears = Array.from({ length: 8 }, () => listen(t, own))
  await until(() => ears.every((ear) => ear.status() === 200))
  const late = listen(t, own)
  await until(() => late.status() !== 0)
  t.equal(late.status(), 429)
  t.match(late.text(), /retry-after: 30/i)
  t.match(late.text(), /8 pages listen with this token already/)
  ears[0]!.socket.destroy()
  ears[1]!.socket.resetAndDestroy()
  await until(async () => {
    const again = listen(t, own)
    await until(() => again.status() !== 0)
    return again.status() === 200
  })
  const heads = Array.from({ length: 50 }, () => listen(t, own, 'test-admin-token', 'HEAD'))
  await until(() => heads.every((head) => head.status() !== 0))
  ears[2]!.socket.destroy()
  await until(async () => {
    const again = listen(t, own)
    await until(() => again.status() !== 0)
    return again.status() === 200
  })
  t.pass('a HEAD keeps no place')
})

t.test('it ends with its token, and after ten minutes', async (t) => {
  const own = await serving(t)
  const { id, secret } = await ask(own, 'POST', '/tokens', { name: 'a viewer', role: 'viewer' }) as
    { readonly id: string, readonly secret: string }
  const [ear, other] = [listen(t, own, secret), listen(t, own)]
  await until(() => ear.events().length > 0 && other.events().length > 0)
  await ask(own, 'DELETE', `/tokens/${id}`)
  await until(() => ear.isOver())
  t.notOk(other.isOver())
  await until(() => other.isOver())
  t.equal(listen(t, own, 'wrong').events().length, 0)
})

t.test('it ends with the session of a page, which is no younger for it', async (t) => {
  let now = Date.parse('2027-01-15T12:00:00Z')
  const own = await serving(t, { timer: quick, now: () => now })
  const page = { 'sec-fetch-site': 'same-origin', 'x-gateway-ui': 'page' }
  const signIn = async (): Promise<string> => {
    const { headers } = await fetch(`${own.urls.admin}/ui/session`, { method: 'POST', headers: page,
      body: JSON.stringify({ token: 'test-admin-token' }) })
    const cookie = headers.get('set-cookie')!.split(';', 1)[0]!
    return `Cookie: ${cookie}\r\nSec-Fetch-Site: same-origin\r\nX-Gateway-UI: page`
  }
  const [mine, other] = [await signIn(), await signIn()]
  const [ear, outside] = [listenWith(t, own, mine), listenWith(t, own, other)]
  await until(() => ear.events().length > 0 && outside.events().length > 0)
  t.equal(listenWith(t, own, mine.replace('same-origin', 'cross-site')).events().length, 0)
  const session = async (method: string, headers: string): Promise<unknown> => {
    const cookie = headers.split('\r\n', 1)[0]!.slice('Cookie: '.length)
    return await (await fetch(`${own.urls.admin}/ui/session`, { method, headers: { ...page, cookie } })).json()
  }
  await session('DELETE', mine)
  await until(() => ear.isOver())
  t.notOk(outside.isOver())
  now += 20 * 60_000
  await setTimeout(100)
  t.notOk(outside.isOver())
  now += 11 * 60_000
  t.match(await session('GET', other), { signed_in: false })
  await until(() => outside.isOver())
  t.pass('nobody has used it for half an hour')
})

t.test('a drain waits for nobody: who listens is sent away, and nobody may come', async (t) => {
  const own = await serving(t)
  const ears = Array.from({ length: 5 }, () => listen(t, own))
  // One that reads nothing.
  ears[4]!.socket.pause()
  await until(() => ears.slice(0, 4).every((ear) => ear.events().length > 0))
  await own.drain()
  await until(() => ears.slice(0, 4).every((ear) => ear.isOver()))
  t.pass('it is over')
})

t.test('a stop cuts all of them', async (t) => {
  const own = await serving(t, {})
  const ear = listen(t, own)
  await until(() => ear.status() === 200)
  await own.stop()
  await until(() => ear.isOver())
  t.pass('it is over')
})

t.test('a store that is away takes only its part', async (t) => {
  const own = await serving(t)
  const ear = listen(t, own)
  await until(() => ear.events().length === 1)
  const { tasks } = own.services
  const { openTasks } = tasks
  Object.assign(tasks, { openTasks: () => { throw new Error('away') } })
  await (await own.messages(messagesRequest)).text()
  Object.assign(tasks, { openTasks })
  await until(() => ear.events().some(({ changed }) => changed.includes('requests')))
  t.notOk(ear.isOver())
})

t.test('who does not read misses events, costs no memory, is told when it reads again, and is cut off after 30 looks', async (t) => {
  const streams: EventStream[] = []
  const responses: ServerResponse[] = []
  const server = createServer((_req, res) => {
    res.on('error', () => {})
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    responses.push(res)
    streams.push(new EventStream(res, () => true))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => { server.close(); server.closeAllConnections() })
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  t.teardown(() => { socket.destroy() })
  let read = ''
  socket.setEncoding('utf8').on('data', (chunk: string) => { read += chunk }).on('error', () => {})
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  await until(() => read.includes('retry:'))
  socket.pause()
  const [stream, res] = [streams[0]!, responses[0]!]
  /** Until what lies between the two is full, and stays so. */
  const fill = async (): Promise<void> => {
    for (let full = 0; full < 50;) {
      if (res.writableNeedDrain) full++
      else { full = 0; res.write(`: ${'x'.repeat(60_000)}\n\n`) }
      await setTimeout(1)
    }
  }
  await fill()
  const kept = res.writableLength
  for (let i = 0; i < 20; i++) t.ok(stream.hear('"missed"', true))
  t.equal(res.writableLength, kept, 'what is missed is not kept')
  socket.resume()
  await until(() => res.writableLength === 0)
  t.equal(stream.hear('"again"', false), true)
  await until(() => read.includes('data: "again"'))
  t.notMatch(read, 'missed', 'though nothing is new in this second, it hears once what it has missed')
  socket.pause()
  await fill()
  let looks = 1
  while (stream.hear('"more"', true)) looks++
  t.equal(looks, 30)
  stream.end()
  t.equal(res.destroyed, true)
})
