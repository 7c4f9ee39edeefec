// Bytes of writes in memory that is used again: whatever a slow client leaves to its socket stays as it was.
import { once } from 'node:events'
import { createServer, connect, type AddressInfo, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { memoryFor, put, send } from '../../src/base/write-memory.ts'

/** Both ends of a connection; the far one does not read. */
async function connection (t: Test): Promise<{ readonly near: Socket, readonly far: Socket }> {
  const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const near = connect((server.address() as AddressInfo).port, '127.0.0.1')
  const [far] = await accepted as [Socket]
  await once(near, 'connect')
  t.teardown(() => { near.destroy(); far.destroy(); server.close() })
  return { near, far }
}

function write (socket: Socket, text: string): void {
  const bytes = memoryFor(socket, text.length)
  send(socket, bytes, put(bytes, 0, text))
}

t.test('what the system does not take at once is not written over by the next write', async (t) => {
  const [slow, quick] = [await connection(t), await connection(t)]
  let [sent, kept] = ['', 0]
  let [read, quickly] = ['', '']
  quick.far.on('data', (chunk: Buffer) => { quickly += chunk.toString('latin1') }).resume()
  for (let i = 0; kept < 20; i++) {
    const text = `${i}:${String.fromCharCode(97 + i % 26).repeat(12_000)}\n`
    write(slow.near, text)
    sent += text
    if (slow.near.writableLength > 0) kept++
    write(quick.near, `${i} to one that reads\n`.padEnd(12_000, '.'))
    if (i % 50 === 49) await new Promise(setImmediate)
    if (i > 20_000) break
  }
  t.equal(kept, 20, 'writes were left to a socket')
  slow.near.end()
  quick.near.end()
  slow.far.on('data', (chunk: Buffer) => { read += chunk.toString('latin1') }).resume()
  await Promise.all([once(slow.far, 'end'), once(quick.far, 'end')])
  t.ok(read === sent, 'all bytes came as they were written')
  t.match(quickly, /^0 to one that reads\n\.+1 to one/)
})

t.test('memory of its own', async (t) => {
  const { near } = await connection(t)
  const [one, other] = [memoryFor(near, 100), memoryFor(near, 100)]
  t.equal(one, other, 'no write, no other memory')
  t.equal(memoryFor(near, 1_000_000).length, 1_000_000, 'for what is long')
  near.cork()
  t.not(memoryFor(near, 100), one, 'where the socket keeps what is written for a while')
  near.uncork()
})

t.test('texts', (t) => {
  const bytes = Buffer.alloc(40)
  t.equal(put(bytes, 2, 'abc'), 5)
  t.equal(put(bytes, 5, 'é'), 6)
  t.equal(put(bytes, 6, 'é'.repeat(20)), 26)
  t.equal(bytes.toString('latin1', 2, 26), `abcé${'é'.repeat(20)}`)
  t.end()
})
