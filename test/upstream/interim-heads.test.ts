// A8: informational answers (1xx) in front of an answer, which nobody has asked for.
import fc from 'fast-check'
import { createServer as createHttpServer } from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { fetchImage } from '../../src/media/fetch-image.ts'
import { InterimHeads } from '../../src/upstream/transport/interim-heads.ts'
import { gateway } from '../support/gateway.ts'
import { caller, POST, rawUpstream } from '../support/raw-upstream.ts'
import { authority, both, listening, reaching, secure, serve } from '../support/transport.ts'

const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'
const ANSWER = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}'

const interim = fc.record({
  version: fc.constantFrom('1.0', '1.1'),
  status: fc.constantFrom('100', '102', '103', '110', '199'),
  reason: fc.constantFrom(' Continue', ' Early Hints', ' ', ''),
  fields: fc.array(fc.constantFrom('link: </a>; rel=preload', 'x-a:', 'content-length: 3', 'HTTP/1.1: 100'),
    { maxLength: 3 }),
  end: fc.constantFrom('\r\n', '\n')
}).map(({ version, status, reason, fields, end }) =>
  [`HTTP/${version} ${status}${reason}`, ...fields, '', ''].join(end))

/** @param cuts where the bytes of an answer are cut */
function readIn (answer: string, cuts: readonly number[]): string {
  const heads = new InterimHeads()
  heads.begin()
  const bytes = Buffer.from(answer, 'latin1')
  let [text, from] = ['', 0]
  for (const to of [...cuts.map((cut) => cut % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length]) {
    text += heads.read(bytes.subarray(from, to)).toString('latin1')
    from = to
  }
  return text + heads.end().toString('latin1')
}

t.test('A8: heads of 1xx are removed, wherever the bytes are cut, and nothing else', async (t) => {
  const answers = fc.constantFrom(ANSWER, 'HTTP/1.1 101 Switching Protocols\r\n\r\n', 'HTTP/1.1 10', 'HTTP/1.', '1', '',
    'HTTP/1.1 1x0\r\n\r\n', 'HTTP/2.0 100\r\n\r\n', `HTTP/1.1 204 No Content\r\n\r\n${CONTINUE}`, `\r\n${CONTINUE}`)
  fc.assert(fc.property(fc.array(interim, { maxLength: 5 }), answers, fc.array(fc.nat(2000), { maxLength: 8 }),
    (heads, answer, cuts) => readIn(heads.join('') + answer, cuts) === answer), { numRuns: 500 })
  const whole = CONTINUE + CONTINUE.replace('100', '103') + ANSWER
  t.equal(readIn(whole, [...whole].map((_, i) => i)), ANSWER, 'each byte by itself')
})

t.test('A8: so many, and no more', async (t) => {
  t.equal(readIn(CONTINUE.repeat(2000) + ANSWER, []), ANSWER)
  t.ok(readIn(CONTINUE.repeat(20_000) + ANSWER, []).length > ANSWER.length)
  t.ok(readIn(`HTTP/1.1 100 ${'a'.repeat(100_000)}\r\n\r\n${ANSWER}`, []).length > ANSWER.length)
})

t.test('A8: over the lane and over undici, in one request, on a connection that is used again', async (t) => {
  const before = [CONTINUE, CONTINUE.repeat(3), 'HTTP/1.1 102 Processing\r\n\r\n',
    `HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nx-b: c\r\n\r\n${CONTINUE}`]
  for (const fastLane of [true, false]) {
    for (const heads of before) {
      for (const inPieces of [false, true]) {
        const upstream = await rawUpstream(t, (socket) => { void write(socket, heads + ANSWER, inPieces) })
        const { ask } = caller(t, upstream.port, fastLane)
        for (let i = 0; i < 2; i++) {
          const { status, body, end } = await ask()
          t.strictSame([status, body, end], [200, '{}', 'end'], JSON.stringify([fastLane, heads, inPieces]))
        }
        t.equal(upstream.received.join('').split('POST ').length - 1, 2, 'each request was sent once')
      }
    }
  }
})

t.test('A8: an answer that is cut behind 1xx is a failure, and more of them than are meant too', async (t) => {
  for (const fastLane of [true, false]) {
    for (const answer of [CONTINUE, 'HTTP/1.1 1', `${CONTINUE}HTTP/1.1 10`, CONTINUE.repeat(20_000)]) {
      const upstream = await rawUpstream(t, (socket) => { socket.end(answer) })
      const { end } = await caller(t, upstream.port, fastLane).ask({ ...POST, once: true })
      t.match(end, /^reset /, JSON.stringify([fastLane, answer.slice(0, 40)]))
    }
  }
})

t.test('A8: over TLS, through a proxy that says 100 itself, and on a forward route', async (t) => {
  const tls = await secure(t, authority.issue('127.0.0.1'), async (request, response) => {
    response.writeContinue()
    response.writeEarlyHints({ link: '</a>; rel=preload' })
    await serve(request, response)
  })
  const plain = createHttpServer((request, response) => {
    response.writeContinue()
    response.writeProcessing()
    void serve(request, response)
  })
  const url = `http://127.0.0.1:${await listening(t, plain)}`
  const proxy = createServer((near) => {
    near.once('data', (head) => {
      const far = connect(Number(/:(\d+) /.exec(head.toString())![1]), '127.0.0.1')
      near.write(`${CONTINUE}HTTP/1.1 200 Connected\r\n\r\n`)
      near.on('error', () => {}).on('close', () => { far.destroy() })
      far.on('error', () => {}).on('close', () => { near.destroy() })
      near.pipe(far).pipe(near)
    })
  })
  const through = `, proxy: "http://127.0.0.1:${await listening(t, proxy)}"`
  const ca = 'tls: { ca: "${file:ca.pem}" }'
  for (const [to, more] of [[url, 'trace: false'], [url, `trace: false${through}`], [tls.url, ca],
    [tls.url, ca + through]] as const) {
    const gw = await gateway(t, reaching(to, more), { files: { 'ca.pem': authority.ca } })
    for (const response of await both(gw)) t.equal(response.status, 200, `${to} ${more}: ${await response.text()}`)
  }
})

t.test('A8: in front of an image behind a link', async (t) => {
  const server = createHttpServer((_, response) => {
    response.writeContinue()
    response.end('image')
  })
  const origin = `http://127.0.0.1:${await listening(t, server)}`
  const chunks: Uint8Array[] = []
  for await (const chunk of fetchImage(`${origin}/a`, { trusted: [origin], signal: new AbortController().signal })) {
    chunks.push(chunk)
  }
  t.equal(Buffer.concat(chunks).toString(), 'image')
})

async function write (socket: Socket, answer: string, inPieces: boolean): Promise<void> {
  if (!inPieces) { socket.write(answer); return }
  for (const byte of answer) {
    socket.write(byte)
    await setImmediate()
  }
}
