// An upstream that writes what a test says, byte for byte, and calls to it: by the fast lane, or by undici alone.
import { createServer, type LookupFunction, type Server, type Socket } from 'node:net'
import { once } from 'node:events'
import type { IncomingHttpHeaders } from 'node:http'
import { setImmediate } from 'node:timers/promises'
import type { UpstreamFailure } from '../../src/core/plugin.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { type CallListener, type CallRequest, UpstreamCall } from '../../src/upstream/transport/call.ts'
import { connectionsOf, Upstreams } from '../../src/upstream/pool.ts'
import type { Connections } from '../../src/upstream/transport/connections.ts'
import { upstreamConfig } from './exchange.ts'
import { listening } from './transport.ts'

interface Test {
  teardown (work: () => unknown): void
}

/** What a caller can tell of an answer. */
export interface Fate {
  readonly status: number | undefined
  readonly headers: IncomingHttpHeaders | undefined
  readonly body: string
  /** `end`, or kind and code of the failure */
  readonly end: string
}

export const POST: CallRequest = { method: 'POST', path: '/v1/messages', body: '{"a":1}',
  headers: { 'content-type': 'application/json', 'x-api-key': 'k' } }

/** @param number of the request, from 0; of its connection; what came of it */
export type Answer = (socket: Socket, asked: { readonly number: number, readonly connection: number,
  readonly text: string }) => void

export interface RawUpstream {
  readonly server: Server
  readonly port: number
  /** all bytes of each connection */
  readonly received: string[]
  readonly sockets: readonly Socket[]
}

/** @param answer called for each whole request */
export async function rawUpstream (t: Test, answer: Answer): Promise<RawUpstream> {
  const received: string[] = []
  const sockets: Socket[] = []
  let requests = 0
  const server = createServer((socket) => {
    const connection = sockets.push(socket.setNoDelay(true)) - 1
    received.push('')
    let text = ''
    socket.on('data', (bytes) => {
      text += bytes.toString('latin1')
      received[connection] += bytes.toString('latin1').replaceAll(/^host: 127.0.0.1:\d+/gm, 'host: it')
      const head = text.indexOf('\r\n\r\n')
      if (head === -1 || text.length - head - 4 < Number(/^content-length: (\d+)/im.exec(text)?.[1] ?? 0)) return
      const asked = { number: requests++, connection, text }
      text = ''
      answer(socket, asked)
    })
  })
  return { server, port: await listening(t, server), received, sockets }
}

export interface Caller {
  readonly upstream: Upstream
  readonly connections: Connections
  ask (request?: CallRequest): Promise<Fate>
  /** @param listener overrides what the caller listens to */
  call (request: CallRequest, listener: Partial<CallListener>): UpstreamCall
}

export function caller (
  t: Test, port: number, fastLane: boolean,
  { lookup, timeouts = {}, host = '127.0.0.1' }: { readonly lookup?: LookupFunction,
    readonly timeouts?: Partial<Upstream['config']['timeouts']>, readonly host?: string } = {}
): Caller {
  const upstreams = new Upstreams(lookup)
  upstreams.fastLane = fastLane
  t.teardown(async () => { await upstreams.destroy() })
  const patient = { connect: 20_000, first_byte: 20_000, idle: 20_000, connection_age: 60_000, total: 60_000,
    usage: 20_000, websocket_idle: 20_000 }
  const upstream = upstreams.open('u0', upstreamConfig({ url: `http://${host}:${port}`,
    timeouts: { ...patient, ...timeouts } }))
  const call = (request: CallRequest, listener: Partial<CallListener>): UpstreamCall =>
    new UpstreamCall(upstream, request, { onHead () {}, onData () {}, onEnd () {}, onFailure () {}, ...listener })
  return {
    upstream, call,
    connections: connectionsOf(upstream),
    async ask (request = POST) {
      const { promise, resolve } = Promise.withResolvers<Fate>()
      let [status, headers, body]: [number | undefined, IncomingHttpHeaders | undefined, string] =
        [undefined, undefined, '']
      let isOver = false
      const over = (end: string): void => {
        if (isOver) throw new Error(`the call ended twice: ${end}`)
        isOver = true
        resolve({ status, headers: headers && { ...headers }, body, end })
      }
      call(request, {
        onHead (...[itsStatus, itsHeaders]) { status = itsStatus; headers = itsHeaders },
        onData (bytes) { body += bytes.toString('latin1') },
        onEnd () { over('end') },
        onFailure (failure) { over(said(failure)) }
      })
      const fate = await promise
      // Undici uses a connection again when a turn has passed; the next call of a test finds it.
      for (let turn = 0; turn < 3; turn++) await setImmediate()
      return fate
    }
  }
}

/** Kind and code. */
export function said (failure: UpstreamFailure): string {
  const cause = 'cause' in failure ? failure.cause : undefined
  return `${failure.kind} ${(cause as { readonly code?: string }).code ?? String(cause)}`
}

/** Until the other side has seen the end of all but so many connections. */
export async function closedBut (open: number, { sockets }: RawUpstream): Promise<void> {
  const isOpen = (socket: Socket): boolean => !socket.destroyed && !socket.readableEnded
  while (sockets.filter(isOpen).length > open) {
    await Promise.race(sockets.filter(isOpen).map(async (socket) => {
      await Promise.race([once(socket, 'close'), once(socket, 'end')])
    }))
  }
}
