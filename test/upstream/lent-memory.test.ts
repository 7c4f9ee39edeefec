// Bodies whose memory is used again: no upstream ever reads in one what belongs to another, whatever happens on the way
// to it, and memory that nobody reads any more is not thrown away.
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createSecureServer, type ServerHttp2Stream } from 'node:http2'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { SharedPages } from '../../src/core/body-memory.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { UpstreamCall } from '../../src/upstream/transport/call.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { authority, listening, reaching } from '../support/transport.ts'
import { until } from '../support/until.ts'
import { message } from '../support/upstream.ts'

const ANSWER = JSON.stringify(message('hi'))
const asAnswer = (json: string): string =>
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${json.length}\r\n\r\n${json}`
const HTTP_ANSWER = asAnswer(ANSWER)
const HTTP_COUNT = asAnswer('{"input_tokens":5}')

/** Memory that is overwritten as soon as it may be. */
class Overwritten {
  readonly #memory: Buffer
  readonly pieces: readonly Buffer[]
  returned = 0
  readonly isGone = false

  /** @param piece bytes of each */
  constructor (bytes: number, piece: number) {
    this.#memory = Buffer.from(new SharedArrayBuffer(bytes)).fill('A')
    this.pieces = Array.from({ length: Math.ceil(bytes / piece) }, (_, i) =>
      this.#memory.subarray(i * piece, Math.min(bytes, (i + 1) * piece)))
  }

  lend (): () => void {
    return () => {
      this.returned++
      this.#memory.fill('X')
    }
  }
}

const isIntact = (body: Buffer): boolean => body.equals(Buffer.alloc(body.length, 'A'))

interface Written {
  readonly memory: Overwritten
  readonly call: UpstreamCall
  /** how it ended */
  readonly end: Promise<string>
}

function write (upstream: Upstream, bytes: number, piece: number): Written {
  const memory = new Overwritten(bytes, piece)
  const { promise: end, resolve } = Promise.withResolvers<string>()
  const body = { pieces: memory.pieces, memory }
  const call = new UpstreamCall(upstream, { method: 'POST', path: '/', headers: {}, body }, {
    onHead () {},
    onData () {},
    onEnd: () => { resolve('answered') },
    onFailure: ({ kind }) => { resolve(kind) }
  })
  return { memory, call, end }
}

/** Bytes that the system takes for an upstream that reads none. */
async function capacityOf (port: number): Promise<number> {
  const socket = connect({ host: '127.0.0.1', port })
  try {
    await once(socket, 'connect')
    for (let rest = 0; rest < 10;) {
      socket.write(Buffer.alloc(16_384))
      if (socket.writableLength === 0) continue
      await setTimeout(20)
      rest = socket.writableLength === 0 ? 0 : rest + 1
    }
    return socket.bytesWritten - socket.writableLength
  } finally {
    socket.destroy()
  }
}

const only = async (t: Test, url: string, more = ''): Promise<Upstream> =>
  (await gateway(t, more === '' ? yaml([url]) : reaching(url, more), { files: { 'ca.pem': authority.ca } }))
    .live.current().upstreams.get('u0')!

t.test('a body that an upstream reads later than it is written', async (t) => {
  let reads = Promise.resolve()
  const bodies: Buffer[] = []
  const server = createServer((socket) => {
    const body: Buffer[] = []
    let left = Infinity
    socket.pause()
    void reads.then(() => { socket.resume() })
    socket.on('data', (chunk: Buffer) => {
      const head = left === Infinity ? chunk.indexOf('\r\n\r\n') + 4 : 0
      if (left === Infinity) left = Number(/content-length: (\d+)/i.exec(chunk.toString('latin1', 0, head))?.[1])
      body.push(chunk.subarray(head))
      left -= chunk.length - head
      if (left > 0) return
      bodies.push(Buffer.concat(body))
      socket.end(HTTP_ANSWER.replace('\r\n', '\r\nconnection: close\r\n'))
    })
  })
  const port = await listening(t, server)
  const upstream = await only(t, `http://127.0.0.1:${port}`)
  let read = (): void => {}
  const stop = (): void => {
    const { promise, resolve } = Promise.withResolvers<void>()
    ;[reads, read] = [promise, resolve]
  }
  stop()
  const capacity = await capacityOf(port)
  // The last pieces of some of them wait in the process while undici takes the body for written.
  for (const piece of [20_000, 65_535, 65_536, 300_000]) {
    stop()
    const sizes = Array.from({ length: 24 }, (_, i) => Math.max(1, capacity + (i - 12) * 40_000))
    const all = sizes.map((size) => write(upstream, size, piece))
    await setTimeout(300)
    read()
    t.strictSame(new Set(await Promise.all(all.map(async ({ end }) => await end))), new Set(['answered']))
    t.strictSame(all.map(({ memory: { returned } }) => returned), sizes.map(() => 1), 'each is given back once')
    t.strictSame(bodies.map(({ length }) => length).toSorted((a, b) => a - b), sizes)
    t.ok(bodies.splice(0).every(isIntact), 'nobody has written to it before it was read')
  }
})

t.test('a body that is not written to its end keeps its memory', async (t) => {
  const fates: Readonly<Record<string, (socket: Socket, written: () => Written) => void>> = {
    'the upstream has broken the connection': (socket) => { socket.resetAndDestroy() },
    'it has answered, and reads no more': (socket) => { socket.pause().write(HTTP_ANSWER) },
    'the gateway has given it up': (socket, written) => {
      socket.pause()
      written().call.abort()
    }
  }
  for (const [what, happens] of Object.entries(fates)) {
    const server = createServer((socket) => {
      socket.once('data', () => { happens(socket, () => made) })
    })
    const made = write(await only(t, `http://127.0.0.1:${await listening(t, server)}`), 30_000_000, 262_144)
    if (!what.startsWith('the gateway')) await made.end
    await setTimeout(50)
    t.equal(made.memory.returned, 0, what)
  }
})

t.test('HTTP/2: a body is read later than it is written, or not at all', async (t) => {
  let bodies: Buffer[] = []
  const server = createSecureServer(authority.issue('127.0.0.1'))
  server.on('stream', (stream: ServerHttp2Stream) => {
    const chunks: Buffer[] = []
    stream.on('error', () => {})
    stream.pause()
    void setTimeout(100).then(() => {
      if (bodies.length % 3 === 2) {
        bodies.push(Buffer.alloc(0))
        stream.close(8)
      } else stream.resume()
    })
    stream.on('data', (chunk: Buffer) => { chunks.push(chunk) })
    stream.on('end', () => {
      bodies.push(Buffer.concat(chunks))
      stream.respond({ ':status': 200, 'content-type': 'application/json' })
      stream.end(ANSWER)
    })
  })
  const port = await listening(t, server as unknown as Server)
  const upstream = await only(t, `https://127.0.0.1:${port}`, 'tls: { ca: "${file:ca.pem}" }, http2: auto')
  for (const piece of [20_000, 262_144]) {
    const all = Array.from({ length: 12 }, (_, i) => write(upstream, 200_000 + i * 65_000, piece))
    const ends = await Promise.all(all.map(async ({ end }) => await end))
    t.ok(ends.includes('answered'))
    t.ok(bodies.every(isIntact), 'nobody has written to it before it was read')
    t.ok(all.every(({ memory: { returned } }, i) => ends[i] !== 'answered' || returned === 1))
    bodies = []
  }
})

/** Each image is of one of them. */
const LETTERS = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZ']

t.test('many clients at once: each upstream reads what its client has sent', async (t) => {
  const mixed: string[] = []
  let asked = 0
  let whole = 0
  /** Reads, as badly as upstreams do. */
  const server = createServer((socket) => {
    const read: Buffer[] = []
    let left = Infinity
    let answer = HTTP_ANSWER
    const turn = asked++ % 7
    const check = (): void => {
      for (const [, image = ''] of Buffer.concat(read.splice(0)).toString('latin1').matchAll(/"data":"([^"]*)/g)) {
        if (image !== '' && image !== image[0]!.repeat(image.length)) mixed.push(`${turn}: ${image.length}`)
      }
    }
    socket.on('error', () => {}).on('close', check)
    socket.on('data', (chunk: Buffer) => {
      read.push(chunk)
      if (left === Infinity) {
        const end = chunk.indexOf('\r\n\r\n') + 4
        const head = chunk.toString('latin1', 0, end)
        left = end + Number(/content-length: (\d+)/i.exec(head)?.[1])
        answer = head.includes('/count_tokens') ? HTTP_COUNT : HTTP_ANSWER
        if (turn === 1) socket.write(answer.replace('200 OK', '500 Broken'))
        if (turn === 2) socket.write(answer)
      }
      left -= chunk.length
      if (turn === 3 && read.length > 10) { socket.resetAndDestroy(); return }
      if (turn < 5) {
        socket.pause()
        void setTimeout(turn).then(() => socket.resume())
      }
      if (left > 0) return
      whole++
      check()
      left = Infinity
      if (turn !== 1 && turn !== 2) socket.write(answer)
    })
  })
  const port = await listening(t, server)
  const gw: TestGateway = await gateway(t, yaml([`http://127.0.0.1:${port}`])
    .replace('dialect: messages,', 'dialect: messages, count_tokens: true,'))
  const memory = gw.live.current().bodies!.memory as SharedPages
  const made = new Set<Buffer>()
  const { take } = SharedPages.prototype
  memory.take = () => {
    const page = take.call(memory)
    made.add(page)
    return page
  }
  const image = (letter: string, bytes: number): unknown =>
    ({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: letter.repeat(bytes) } })
  const statuses: Record<string, number> = {}
  let sent = 0
  const one = async (i: number): Promise<void> => {
    const letter = LETTERS[i % LETTERS.length]!
    const bytes = 4 * (60_000 + i * 37_199 % 700_000)
    sent += bytes
    const leaving = new AbortController()
    const asked = fetch(`${gw.url}/v1/messages${i % 4 === 3 ? '/count_tokens' : ''}`, {
      method: 'POST',
      signal: leaving.signal,
      headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm1', max_tokens: 9,
        messages: [{ role: 'user', content: [image(letter, bytes), image(letter, 4 * (i % 3) * 20_000 + 4)] }] })
    })
    if (i % 5 === 4) void setTimeout(i % 40).then(() => { leaving.abort() })
    const status = await asked.then(async (answer) => {
      await answer.arrayBuffer()
      return String(answer.status)
    }, () => 'left')
    statuses[status] = (statuses[status] ?? 0) + 1
  }
  const rest = Array.from({ length: 80 }, (_, i) => i)
  await Promise.all(Array.from({ length: 6 }, async () => {
    for (let i = rest.shift(); i !== undefined; i = rest.shift()) await one(i)
  }))
  await until(() => gw.server.inFlight === 0)
  t.strictSame(mixed, [])
  t.ok(statuses['200']! > 20 && whole > 20, JSON.stringify(statuses))
  const pages = sent / 262_144
  t.ok(made.size < pages / 2, `${made.size} pages for bodies of ${Math.round(pages)}`)
})

t.test('a body whose client leaves on the way gives its memory back', async (t) => {
  const gw = await gateway(t, yaml(['http://127.0.0.1:1']))
  const memory = gw.live.current().bodies!.memory as SharedPages
  const made = new Set<Buffer>()
  const { take } = SharedPages.prototype
  memory.take = () => {
    const page = take.call(memory)
    made.add(page)
    return page
  }
  const port = Number(new URL(gw.url).port)
  for (let i = 0; i < 10; i++) {
    const client = connect({ host: '127.0.0.1', port }).on('error', () => {})
    client.write(`POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${KEY}\r\ncontent-type: application/json\r\n` +
      `content-length: 9000000\r\n\r\n{"model":"m1","messages":[{"role":"user","content":"${'A'.repeat(3_000_000)}`)
    await until(() => gw.server.inFlight === 1)
    await setTimeout(50)
    client.destroy()
    await until(() => gw.server.inFlight === 0)
  }
  t.ok(made.size > 0 && made.size < 30, `${made.size} pages for ten bodies of 12 at most`)
})

const SLOW = (name: string): string => `
export default { name: '${name}', create: () => ({
  perAttempt: () => ({ async onUpstreamRequest () { await new Promise((resolve) => setTimeout(resolve, 700)) } })
}) }
`

t.test('a count that begins after its client was told an error has no body any more, and takes no other\'s', async (t) => {
  const bodies: string[] = []
  const server = createHttpServer((req, res) => {
    let body = ''
    req.on('data', (chunk: Buffer) => { body += chunk.toString() }).on('end', () => {
      bodies.push(body)
      res.end('{"input_tokens":5}')
    })
  })
  const port = await listening(t, server)
  const gw = await gateway(t, yaml([`http://127.0.0.1:${port}`], 'hook_timeout: 1s\n')
    .replace('dialect: messages,', 'dialect: messages, count_tokens: true,')
    .replace('pipeline: [auth,', 'pipeline: [auth, { use: ./slow.ts }, { use: ./late.ts },'),
  { files: { 'slow.ts': SLOW('slow'), 'late.ts': SLOW('late') } })
  const ask = async (letter: string, model: string): Promise<number> => {
    const answer = await fetch(`${gw.url}/v1/messages/count_tokens`, { method: 'POST',
      headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages: [{ role: 'user', content: [
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: letter.repeat(1_000_000) } }] }] }) })
    await answer.text()
    return answer.status
  }
  t.equal(await ask('A', 'm1'), 500)
  await ask('B', 'none')
  await setTimeout(2000)
  t.notOk(bodies.some((body) => body.includes('BBBB')), `${bodies.length} bodies`)
})
