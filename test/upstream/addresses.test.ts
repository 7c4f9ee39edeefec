// F4: hosts with several addresses, of which some are slow or dead.
import { connect as connectTcp, createServer, type LookupFunction, type Socket } from 'node:net'
import t from 'tap'
import { connectToAny } from '../../src/upstream/transport/addresses.ts'
import type { Dial } from '../../src/upstream/transport/connect.ts'
import { caller, rawUpstream } from '../support/raw-upstream.ts'
import { listening } from '../support/transport.ts'

type Asked = Parameters<Dial>[0]
type Callback = Parameters<Dial>[1]

const names = (...addresses: readonly string[]): LookupFunction => (_name, _options, callback) => {
  callback(null, addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })))
}

function asked (port: number): Asked {
  return { hostname: 'vendor.test', host: `vendor.test:${port}`, protocol: 'http:', port: String(port) }
}

async function dialed (dial: Dial, port: number): Promise<{ socket: Socket | null, error: Error | null }> {
  return await new Promise((resolve) => {
    dial(asked(port), (...[error, socket]) => { resolve({ error, socket }) })
  })
}

const refused = (): Error => Object.assign(new Error('no'), { code: 'ECONNREFUSED' })

t.test('F4: a slow address is not given up for a dead one behind it', async (t) => {
  const server = createServer()
  const port = await listening(t, server)
  const tried: string[] = []
  const slow = Promise.withResolvers<void>()
  const connect = (({ hostname }: Asked, callback: Callback): Socket => {
    tried.push(hostname)
    if (hostname !== '127.0.0.1') {
      queueMicrotask(() => { callback(refused(), null); slow.resolve() })
      return connectTcp(9, '127.0.0.1').on('error', () => {})
    }
    const socket = connectTcp(port, hostname)
    void slow.promise.then(() => { setImmediate(() => { callback(null, socket) }) })
    return socket
  }) as unknown as Dial
  const { socket, error } = await dialed(connectToAny(connect, names('127.0.0.1', '::1'), 20_000), port)
  t.equal(error, null)
  t.notOk(socket?.destroyed)
  t.strictSame(tried, ['127.0.0.1', '::1'])
  socket?.destroy()
})

t.test('F4: addresses are tried in turns of their families, all of them, and only so long', async (t) => {
  const tried: string[] = []
  const sockets: Socket[] = []
  const failing = (({ hostname }: Asked, callback: Callback): Socket => {
    tried.push(hostname)
    queueMicrotask(() => { callback(refused(), null) })
    return connectTcp(9, '127.0.0.1').on('error', () => {})
  }) as unknown as Dial
  const all = names('127.0.0.1', '127.0.0.2', '127.0.0.3', '::1', '::2')
  const { error } = await dialed(connectToAny(failing, all, 20_000), 9)
  t.match(error, { code: 'ECONNREFUSED' })
  t.strictSame(tried, ['127.0.0.1', '::1', '127.0.0.2', '::2', '127.0.0.3'])

  const never = ((): Socket => {
    sockets.push(connectTcp(9, '127.0.0.1').on('error', () => {}))
    return sockets.at(-1)!
  }) as unknown as Dial
  const late = await dialed(connectToAny(never, names('127.0.0.1', '::1'), 300), 9)
  t.match(late.error, { code: 'UND_ERR_CONNECT_TIMEOUT' })
  t.ok(sockets.length > 0 && sockets.every(({ destroyed }) => destroyed), 'nothing is left')

  const mute = await dialed(connectToAny(never, () => {}, 50), 9)
  t.match(mute.error, { code: 'UND_ERR_CONNECT_TIMEOUT' }, 'a resolver that does not answer')
  const nowhere = await dialed(connectToAny(never, names(), 20_000), 9)
  t.match(nowhere.error, /has no address/)
  const throwing = (() => { throw new Error('settings') }) as unknown as Dial
  t.match((await dialed(connectToAny(throwing, names('127.0.0.1'), 20_000), 9)).error, /settings/)
})

t.test('F4: over both lanes the first address that answers is used', async (t) => {
  const answer = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
  const upstream = await rawUpstream(t, (socket) => { socket.write(answer) })
  for (const fastLane of [true, false]) {
    const lookup = names('127.0.0.9', '127.0.0.1', '127.0.0.8')
    const { ask } = caller(t, upstream.port, fastLane, { host: 'vendor.test', lookup })
    t.strictSame([(await ask()).end, (await ask()).body], ['end', 'ok'])
  }
  t.equal(upstream.sockets.length, 2, 'each used its connection again')
})

t.test('F6: a hint of a long keep-alive is heeded for a minute', async (t) => {
  const { AnswerHeads } = await import('../../src/upstream/transport/lane/answer-heads.ts')
  for (const [seconds, ms] of [[5, 3000], [62, 60_000], [600, 60_000], [86_400, 60_000]] as const) {
    const heads = new AnswerHeads()
    const head = Buffer.from(`HTTP/1.1 200 OK\r\nkeep-alive: timeout=${seconds}\r\ncontent-length: 0\r\n\r\n`)
    t.equal(heads.read(head, head.length), head.length)
    t.equal(heads.idleMs, ms, `the lane: ${seconds} s`)
  }
  for (const fastLane of [true, false]) {
    const upstream = await rawUpstream(t, (socket) => {
      socket.write('HTTP/1.1 200 OK\r\nkeep-alive: timeout=600\r\ncontent-length: 0\r\n\r\n')
    })
    t.equal((await caller(t, upstream.port, fastLane).ask()).end, 'end')
  }
})
