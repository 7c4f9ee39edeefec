// The chunks of a stream as they are on the wire: the gateway writes their frames itself.
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { blockStart, blockStop, eventBytes, messageEnd, messageStart, step, textDelta, upstream,
  wait, type Script } from '../support/upstream.ts'

const texts = ['plain', 'é, 😀 日本', ' '.repeat(300_000), `${' '.repeat(300_000)}é`, '"\\\n', 'last']
const script: Script = [messageStart(), blockStart(0), ...texts.map((text) => textDelta(0, text)), blockStop(0),
  messageEnd()]

/** A text of any length, for a readable difference. */
function digest (text: string): string {
  return `${text.slice(0, 10)} ${text.length} ${createHash('sha256').update(text).digest('hex')}`
}

function ask (path: string, version: string, headers = ''): string {
  const body = JSON.stringify({ ...messagesRequest, max_tokens: 50_000, stream: true })
  return `POST ${path} HTTP/${version}\r\nhost: x\r\nx-api-key: ${KEY}\r\ncontent-type: application/json\r\n${headers}` +
    `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
}

/** All bytes until the gateway closes. */
async function talk (t: Test, url: string, request: string): Promise<Buffer> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  t.teardown(() => socket.destroy())
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => { chunks.push(chunk) })
  socket.write(request)
  await once(socket, 'close')
  return Buffer.concat(chunks)
}

/** Takes answers apart by their frames, and by nothing else. */
function readAnswers (bytes: Buffer): { head: string, body: string, chunks: number }[] {
  const answers = []
  for (let at = 0; at < bytes.length;) {
    const blank = bytes.indexOf('\r\n\r\n', at)
    const head = bytes.toString('latin1', at, blank)
    at = blank + 4
    const pieces: Buffer[] = []
    for (let size = NaN; size !== 0;) {
      const end = bytes.indexOf('\r\n', at)
      const digits = bytes.toString('latin1', at, end)
      if (!/^[0-9a-f]+$/.test(digits)) throw new Error(`no size of a chunk: ${digits.slice(0, 50)}`)
      size = parseInt(digits, 16)
      if (size > 0) pieces.push(bytes.subarray(end + 2, end + 2 + size))
      if (bytes.toString('latin1', end + 2 + size, end + 4 + size) !== '\r\n') throw new Error('a chunk without an end')
      at = end + 4 + size
    }
    answers.push({ head, body: Buffer.concat(pieces).toString(), chunks: pieces.length })
  }
  return answers
}

function said (body: string): string[] {
  return body.split('\n\n').filter((event) => event.includes('text_delta'))
    .map((event) => (JSON.parse(event.split('data: ')[1]!) as { delta: { text: string } }).delta.text)
}

function saidInChat (body: string): string[] {
  return body.split('\n\n').filter((event) => event.includes('"content":') && !event.includes('"role"'))
    .map((event) => (JSON.parse(event.slice('data: '.length)) as
      { choices: { delta: { content: string } }[] }).choices[0]!.delta.content)
}

for (const [path, read] of [['/v1/messages', said], ['/v1/chat/completions', saidInChat]] as const) {
  t.test(`${path}: every chunk has the size that its frame says, on two streams of one connection`, async (t) => {
    const up = await upstream(t, script)
    const own = await gateway(t, yaml([up.url]))
    const bytes = await talk(t, own.url, ask(path, '1.1') + ask(path, '1.1', 'connection: close\r\n'))
    const answers = readAnswers(bytes)
    t.equal(answers.length, 2)
    for (const { head, body } of answers) {
      t.match(head, /^HTTP\/1\.1 200 OK\r\n/)
      t.match(head, /transfer-encoding: chunked/i)
      t.strictSame(read(body).map(digest), texts.map(digest))
    }
  })

  t.test(`${path}: a client of HTTP/1.0 gets the same without frames`, async (t) => {
    const up = await upstream(t, script)
    const own = await gateway(t, yaml([up.url]))
    const bytes = await talk(t, own.url, ask(path, '1.0'))
    const blank = bytes.indexOf('\r\n\r\n')
    t.notMatch(bytes.toString('latin1', 0, blank), /transfer-encoding/i)
    t.strictSame(read(bytes.toString('utf8', blank + 4)).map(digest), texts.map(digest))
  })
}

t.test('what came of an upstream with one read is one chunk, however many its own chunks were', async (t) => {
  const together = step(({ response }) => {
    const frames = Array.from({ length: 40 }, (_, i) => {
      const event = eventBytes('content_block_delta', { type: 'content_block_delta', index: 0,
        delta: { type: 'text_delta', text: `piece ${i}` } })
      return `${event.length.toString(16)}\r\n${event.toString()}\r\n`
    })
    response.socket!.write(frames.join(''))
  })
  const seen = Promise.withResolvers<void>()
  const up = await upstream(t, [messageStart(), blockStart(0), textDelta(0, 'first'), wait(seen.promise), together,
    blockStop(0), messageEnd()])
  const own = await gateway(t, yaml([up.url]))
  const { hostname, port } = new URL(own.url)
  const socket = connect(Number(port), hostname)
  t.teardown(() => socket.destroy())
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => {
    chunks.push(chunk)
    if (chunk.includes('first')) seen.resolve()
  })
  socket.write(ask('/v1/messages', '1.1', 'connection: close\r\n'))
  await once(socket, 'close')
  const [answer] = readAnswers(Buffer.concat(chunks))
  const events = said(answer!.body)
  t.strictSame(events, ['first', ...Array.from({ length: 40 }, (_, i) => `piece ${i}`)])
  t.ok(answer!.chunks < 10, `${answer!.chunks} chunks`)
})
