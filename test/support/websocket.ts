// An upstream of WebSockets on a real socket, and the least of RFC 6455 that it takes to speak to real clients.
import { createHash } from 'node:crypto'
import { EventEmitter, once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { Identity } from './certificates.ts'

interface Test {
  teardown (work: () => unknown): void
}

export interface Visitor {
  readonly request: IncomingMessage
  readonly socket: Socket
  /** what came behind the head */
  readonly head: Buffer
}

export interface SocketUpstream {
  readonly url: string
  /** so far, oldest first */
  readonly visitors: readonly Visitor[]
  /** The next one that nobody was given yet; waits for it. */
  next (): Promise<Visitor>
}

/**
 * @param greet answers an upgrade; what it does not say is not said
 * @param identity for TLS
 */
export async function socketUpstream (
  t: Test,
  greet: (visitor: Visitor) => void,
  identity?: Identity
): Promise<SocketUpstream> {
  const visitors: Visitor[] = []
  const arrivals = new EventEmitter()
  let given = 0
  const refuse: RequestListener = (_, response) => { response.writeHead(426).end() }
  const server = identity === undefined ? createServer(refuse) : createSecureServer(identity, refuse)
  server.on('upgrade', (request, stream, head) => {
    const socket = stream as Socket
    socket.on('error', () => {}).on('end', () => { socket.end() })
    const visitor = { request, socket, head }
    visitors.push(visitor)
    greet(visitor)
    arrivals.emit('visit')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const { socket } of visitors) socket.destroy()
    server.closeAllConnections()
    server.close()
  })
  return {
    url: `${identity === undefined ? 'http' : 'https'}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    visitors,
    async next () {
      const index = given++
      while (visitors[index] === undefined) await once(arrivals, 'visit')
      return visitors[index]
    }
  }
}

/** Agrees, and says no more. */
export function accept ({ request, socket }: Visitor, headers: Readonly<Record<string, string>> = {}): void {
  const proof = createHash('sha1').update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest('base64')
  const all = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-accept': proof, ...headers }
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\n${Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`
  )
}

/** Agrees, and sends each message back; a close too. */
export function echo (visitor: Visitor): void {
  accept(visitor)
  let rest = visitor.head
  const read = (chunk: Buffer): void => {
    rest = Buffer.concat([rest, chunk])
    for (let frame = cutFrame(rest); frame !== undefined; frame = cutFrame(rest)) {
      rest = frame.rest
      visitor.socket.write(toFrame(frame.opcode, frame.payload))
      if (frame.opcode === 8) visitor.socket.end()
    }
  }
  visitor.socket.on('data', read)
  read(Buffer.alloc(0))
}

/** From a server, which does not mask. */
export function toFrame (opcode: number, payload: Buffer): Buffer {
  const { length } = payload
  const head = length < 126 ? Buffer.from([0x80 | opcode, length]) : Buffer.alloc(length < 65536 ? 4 : 10)
  if (length >= 126) {
    head[0] = 0x80 | opcode
    if (length < 65536) {
      head[1] = 126
      head.writeUInt16BE(length, 2)
    } else {
      head[1] = 127
      head.writeBigUInt64BE(BigInt(length), 2)
    }
  }
  return Buffer.concat([head, payload])
}

/** The first frame of a client, unmasked; undefined while it is not whole. */
function cutFrame (
  bytes: Buffer
): { readonly opcode: number, readonly payload: Buffer, readonly rest: Buffer } | undefined {
  if (bytes.length < 6) return undefined
  const short = bytes[1]! & 0x7f
  const at = short < 126 ? 2 : short === 126 ? 4 : 10
  if (bytes.length < at + 4) return undefined
  const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
  const end = at + 4 + length
  if (bytes.length < end) return undefined
  const mask = bytes.subarray(at, at + 4)
  return { opcode: bytes[0]! & 0xf,
    payload: Buffer.from(bytes.subarray(at + 4, end).map((byte, i) => byte ^ mask[i % 4]!)), rest: bytes.subarray(end) }
}
