// The count of a large body with images: what the upstream reads later than it answers is its client's own.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { listening } from '../support/transport.ts'

const COUNT = '{"input_tokens":5}'
const HTTP_COUNT = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${COUNT.length}\r\n\r\n${COUNT}`

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

t.test('an upstream that counts before it has read all', async (t) => {
  let reads = Promise.resolve()
  let isProbe = true
  const bodies: Buffer[] = []
  const open = new Set<Promise<unknown>>()
  const server = createServer((socket) => {
    const body: Buffer[] = []
    if (isProbe) { socket.pause(); return }
    const whole = Promise.withResolvers<void>()
    open.add(whole.promise)
    let left = Infinity
    socket.on('error', () => {}).on('close', () => { bodies.push(Buffer.concat(body)); whole.resolve() })
    socket.on('data', (chunk: Buffer) => {
      if (left === Infinity) {
        left = chunk.indexOf('\r\n\r\n') + 4 +
          Number(/content-length: (\d+)/i.exec(chunk.toString('latin1', 0, 2000))?.[1])
        socket.pause()
        void setTimeout(300).then(() => socket.write(HTTP_COUNT))
        void reads.then(() => { socket.resume() })
      }
      body.push(chunk)
      left -= chunk.length
      if (left <= 0) socket.end()
    })
  })
  const port = await listening(t, server)
  const capacity = await capacityOf(port)
  isProbe = false
  let gw: TestGateway
  const ask = async (letter: string, bytes: number, model = 'm1'): Promise<void> => {
    const answer = await fetch(`${gw.url}/v1/messages/count_tokens`, { method: 'POST',
      headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
      // White space that the upstream does not get: the last page of the body holds 60,000 bytes, which are one write.
      body: ' '.repeat(model === 'none' ? 0 : (262_144 + 60_000 - bytes % 262_144) % 262_144) +
        JSON.stringify({ model, messages: [{ role: 'user', content: [
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: letter.repeat(bytes) } }] }] }) })
    await answer.text()
  }
  const sizes = Array.from({ length: 24 }, (_, i) => (Math.floor(capacity / 4) + (i - 6) * 6_000) * 4)
  for (const size of sizes) {
    const { promise, resolve: letReads } = Promise.withResolvers<void>()
    reads = promise
    open.clear()
    // Another pool: no request waits behind another one.
    gw = await gateway(t, yaml([`http://127.0.0.1:${port}`], 'hook_timeout: 2s\n')
      .replace('dialect: messages,', 'dialect: messages, count_tokens: true,'))
    await ask('A', size)
    await setTimeout(50)
    // Another client's body, which goes nowhere.
    await ask('B', 1_000_000, 'none')
    letReads()
    await Promise.all(open)
  }
  const mixed = bodies.filter((body) => body.includes('BBBBBBBB'))
  t.equal(mixed.length, 0, 'nobody reads what another client has sent')
})
