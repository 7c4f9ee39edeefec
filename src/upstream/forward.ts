// The second way to an upstream: bytes that nobody here reads. The only file that imports http-proxy-3; its traps
// (style.md 1.7, all of them reproduce on 2.0.1) are met here, each with its number.
import type { Agent, ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import { pipeline, Readable, Transform } from 'node:stream'
import { createProxyServer } from 'http-proxy-3'
import { parseOr } from '../attempt.ts'
import { type BodyLimits, type BodyMemory, Chunks, sayContinue, tooLarge } from '../body.ts'
import { GatewayError, isGatewayError, toGatewayError } from '../errors.ts'
import type { Exchange } from '../exchange.ts'
import { nameFailure } from '../hooks.ts'
import type { UpstreamFailure } from '../plugin.ts'
import { version as gatewayVersion } from '../package-root.ts'
import type { BytesReply } from '../reply.ts'
import type { OwnRequest } from '../routes.ts'
import { admitUnread, failUnread } from './admit.ts'
import { isOfRequest } from './blame.ts'
import { RACE_MS } from './connections.ts'
import { Deadline } from './deadline.ts'
import { failureOf } from './dial.ts'
import { below } from './dialects/versioned.ts'
import { forwardable, returnable } from './headers.ts'
import { codingOf, createDecoder } from './inflate.ts'
import type { Pass } from './pass.ts'
import { credentialOf, type Upstream } from './upstream.ts'

interface Flight {
  /** what travels of the client's head */
  readonly headers: Record<string, string>
  onRequest (request: ClientRequest): void
  onResponse (response: IncomingMessage): void
  onError (error: Error): void
}

const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])

/** Bytes kept of an error's body. */
const ERROR_LIMIT = 64 * 1024

/** A path that could mean another one upstream than here: dot segments, encoded dots and slashes, empty segments, a fragment. */
const ESCAPES = /\/\.{1,2}(?:[/;]|$)|%2e|%2f|%5c|[\\#]|\/\//i

const flights = new WeakMap<IncomingMessage, Flight>()
/** For WebSockets too (tunnel.ts). */
export const proxy = createProxyServer({})
proxy.on('proxyReq', (request, req) => { flights.get(req)?.onRequest(request) })
proxy.on('proxyRes', (response, req) => { flights.get(req)?.onResponse(response) })
// Trap 2: when the client leaves before the head the callback of the call is never called, only this event comes. It may
// come before `exchange.signal` tells; whose fault it was must not depend on that.
proxy.on('econnreset', (cause, req) => { flights.get(req)?.onError(new GatewayError('client_closed', { cause })) })
// Its pass `deleteLength` takes the framing from a chunked DELETE: the body would be read as another request.
proxy.before('web', 'stream', (req) => { req.headers = { ...flights.get(req)?.headers } })

/**
 * Sends the request's bytes on, and resolves with the answer's head and its bytes, unread.
 * @param limits of the request body; its memory holds the bodies of those who wait for their turn
 * @param own what is asked in the place of the client's request, which has no body then
 * @throws {GatewayError} the upstream can't be asked now, failed before its head, or answered with an error; nothing was written to the client
 */
export async function forward (exchange: Exchange, upstreamName: string, req: IncomingMessage, res: ServerResponse, limits: BodyLimits, own?: OwnRequest): Promise<BytesReply> {
  const configured = exchange.snapshot.upstreams.get(upstreamName)!
  refuseEscapes(exchange.received.path)
  // Only `chunked` is a framing of this hop; what else was done to the bytes would reach the upstream unannounced.
  if ((req.headers['transfer-encoding'] ?? 'chunked').trim().toLowerCase() !== 'chunked') {
    throw new GatewayError('bad_request', { message: 'The Transfer-Encoding is not supported. Send "chunked" or a Content-Length.' })
  }
  // Without their framing headers its bytes would be read upstream as another request.
  if (own !== undefined && (req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0)) {
    throw new GatewayError('invalid_request', { message: 'This address takes no request body. Send none.' })
  }
  if (Number(req.headers['content-length'] ?? 0) > limits.limit) throw tooLarge(limits.limit)
  const body = new ClientBody(req, res, limits)
  // Whatever is wrong with it ends the exchange: also while that waits, and behind the head of an answer that came early.
  body.on('error', (error) => { exchange.abort(toGatewayError(error)) })
  // Whoever need not wait has begun by then.
  setImmediate(() => { body.begin() })
  let pass: Pass | undefined
  try {
    // What is asked in a client's place has the credential that its subject was made with, whatever is known of it now.
    if (own === undefined) pass = await admitUnread(exchange, configured)
    return await carry(exchange, pass?.upstream ?? credentialOf(configured, own?.credential).upstream, pass, req, res, body, own)
  } catch (thrown) {
    pass?.leave()                                             // unless it has ended already
    body.destroy()
    throw thrown
  }
}

function carry (exchange: Exchange, upstream: Upstream, pass: Pass | undefined, req: IncomingMessage, res: ServerResponse, body: ClientBody, own: OwnRequest | undefined): Promise<BytesReply> {
  const { metrics } = exchange.snapshot.services
  exchange.throwIfAborted()
  // Trap 6: this switches every call to `fetch`, which hands over answers without their bodies. It is read at each call.
  delete process.env['FORCE_FETCH_PATH']
  exchange.attempts = 1
  exchange.times.body = exchange.times.dispatched = performance.now()
  const announced = Number(req.headers['content-length'] ?? 0)

  return new Promise<BytesReply>((resolve, reject) => {
    /** the head is handed over, or the failure */
    let isDecided = false
    let outgoing: ClientRequest | undefined
    let incoming: IncomingMessage | undefined
    let timer: NodeJS.Timeout | undefined
    /** of its connection, before it was written there */
    let bytesRead = 0
    let writtenAt = 0
    let isAgain = false
    const { first_byte: firstByte, idle: silence, total } = upstream.config.timeouts
    /** how an answer ended that did not end well */
    let broken: UpstreamFailure = { kind: 'reset', cause: new Error('the answer broke off') }
    const deadline = own === undefined ? new Deadline(total, () => { cut('total_timeout', `the answer was not over after ${total} ms`) }) : undefined

    /** Whatever is still open; what is over does not notice. */
    const close = (): void => {
      clearTimeout(timer)
      deadline?.stop()
      pass?.leave()
      exchange.offAbort(onAbort)
      body.destroy()
      req.resume()
      incoming?.destroy()
      outgoing?.destroy()
    }
    const fail = (thrown: GatewayError | UpstreamFailure): void => {
      if (isDecided) return
      isDecided = true
      const error = isGatewayError(thrown) ? thrown : nameFailure(thrown, exchange, upstream.name)
      if (pass !== undefined && !isGatewayError(thrown)) failUnread(pass, thrown, error)
      close()
      metrics.attempt(upstream.name, error.row)
      reject(error)
    }
    const cut = (kind: 'first_byte_timeout' | 'idle_timeout' | 'total_timeout', why: string): void => {
      broken = { kind, cause: new Error(why) }
      if (isDecided) incoming?.destroy(broken.cause as Error)
      else fail(broken)
    }
    /** Before the head: a failure. Behind it: an answer that breaks off. */
    const breakOff = (error: GatewayError): void => { isDecided ? incoming?.destroy(error) : fail(error) }
    const onAbort = (): void => { breakOff(exchange.abortReason!) }
    exchange.onAbort(onAbort)
    // On every path: also when a plugin refuses an answer that is there, or the answer is over before the request is.
    exchange.onFinish(close)

    // Trap 5: proxyTimeout would look like a reset. The upstream's time runs while it has all that the client has sent.
    const awaitHead = (): void => {
      timer = setTimeout(() => {
        if (body.waitsForClient) awaitHead()
        else cut('first_byte_timeout', `no answer for ${firstByte} ms`)
      }, firstByte)
    }

    /** Nobody knows what a second one would do, unless the request says that it does nothing more (RFC 9110 9.2.2). Its body is gone. */
    const isRepeatable = (IDEMPOTENT.has(req.method!) || req.headers['idempotency-key'] !== undefined) && announced === 0 && req.headers['transfer-encoding'] === undefined
    const isLostRace = (): boolean => isRepeatable && !isAgain && !isDecided && incoming === undefined &&
      outgoing?.reusedSocket === true && outgoing.socket?.bytesRead === bytesRead && performance.now() - writtenAt < RACE_MS

    flights.set(req, {
      headers: own === undefined ? forwardable(req.headers) : { ...own.headers },
      onRequest (request) {
        outgoing = request
        bytesRead = request.socket!.bytesRead
        writtenAt = performance.now()
        if (isDecided) request.destroy()
      },
      onError (error) {
        if (!isGatewayError(error) && isLostRace()) {
          isAgain = true
          send(upstream.connections.newAgent, Readable.from([]))
          return
        }
        // An upstream that refuses early often stops reading too; what it said counts.
        if (incoming === undefined) fail(isGatewayError(error) ? error : failureOf(error))
      },
      onResponse (response) {
        if (isDecided) { response.destroy(); return }
        incoming = response
        clearTimeout(timer)
        const status = response.statusCode ?? 0
        if (status < 200 || status > 599) {
          fail({ kind: 'malformed', cause: new Error(`the upstream answered with a status of ${status}`) })
          return
        }
        if (own !== undefined && status === 416) {
          fail(new GatewayError('range_not_satisfiable', { headers: pickRange(response) }))
          return
        }
        const isGood = status < 300 || status === 304
        // What is asked in a client's place is no request of its own: nobody else can act on what is said of it.
        if (!isGood && (own !== undefined || !isOfRequest(status))) {
          timer = setTimeout(() => { response.destroy() }, silence)
          void readError(response).then((text) => { fail({ kind: 'status', status, headers: response.headers, body: parseOr(text) }) })
          return
        }
        isDecided = true
        exchange.times.firstByte = performance.now()
        metrics.attempt(upstream.name, 'ok')
        if (isGood) pass?.begin()
        // A listener for data would start the flow before the writer is there to take it.
        response.pause()
        // Traps 1 and 5: a dead upstream and a silent one must end the answer; our own timer tells them apart. It rests
        // while a slow client holds the bytes back.
        const watch = (): void => {
          clearTimeout(timer)
          timer = setTimeout(() => { cut('idle_timeout', `the upstream was silent for ${silence} ms`) }, silence)
        }
        watch()
        response.on('data', () => { timer!.refresh() }).on('pause', () => { clearTimeout(timer); deadline?.rest() }).on('resume', () => { watch(); deadline?.goOn() })
        response.on('end', () => { if (isGood) pass?.succeed(); else pass?.leave() })
        response.on('close', () => {
          clearTimeout(timer)
          deadline?.stop()
          exchange.times.upstreamEnd = performance.now()
          if (exchange.abortReason === undefined) pass?.fail(broken, new GatewayError('upstream_stream_interrupted', { cause: broken }))
          else pass?.leave()
        })
        resolve({ kind: 'bytes', status, headers: returnable(response.headers, upstream), bytes: response })
      }
    })
    if (exchange.abortReason !== undefined) { onAbort(); return }

    body.release()
    body.on('data', () => { timer?.refresh() })
    awaitHead()
    req.url = own?.path ?? below(upstream.basePath, exchange.received.path + exchange.received.query)
    // Trap 4: http-proxy-3 forwards what is in req.headers, the client's key too. Only the allow-list stays.
    req.headers = { ...flights.get(req)!.headers }
    send(upstream.connections.agent, body)

    function send (agent: Agent, buffer: Readable): void {
      try {
        proxy.web(req, res, {
          target: upstream.origin,
          agent,
          changeOrigin: true,
          // The address as it came: a parsed one is written anew, and means something else to a picky upstream.
          toProxy: true,
          // Trap 1: with its own piping a client of a dead upstream waits for ever. Trap 6: `fetch` is never set.
          selfHandleResponse: true,
          buffer,
          // Trap 3: setting headers in the proxyReq event throws once the request was queued.
          headers: { 'user-agent': `model-gateway/${gatewayVersion}`, ...upstream.config.headers }
        }, (error) => { flights.get(req)?.onError(error) })
      } catch (thrown) {
        fail(toGatewayError(thrown))
      }
    }
  })
}

/** How long the whole is, for a client that asked for what is behind its end (RFC 9110 15.5.17). */
function pickRange ({ headers: { 'content-range': range } }: IncomingMessage): Readonly<Record<string, string>> {
  return range !== undefined && /^bytes \*\/\d+$/.test(range) ? { 'content-range': range } : {}
}

/** @throws {GatewayError} */
export function refuseEscapes (path: string): void {
  if (!ESCAPES.test(path)) return
  throw new GatewayError('invalid_request', { message: 'The path holds dot segments, encoded slashes, empty segments or a fragment. Send it in its plain form.' })
}

/** As much of an answer as is worth keeping, decoded where its client has asked for it compressed. Never rejects. */
export async function readError (response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  try {
    for await (const chunk of decoded(response)) {
      chunks.push(chunk)
      size += chunk.length
      if (size >= ERROR_LIMIT) break
    }
  } catch {
    // The status alone says enough.
  }
  return Buffer.concat(chunks).toString('utf8')
}

async function * decoded (response: IncomingMessage): AsyncIterable<Buffer> {
  const coding = codingOf(response.headers['content-encoding'])
  let decoder: Transform | undefined
  for await (const chunk of response.iterator({ destroyOnReturn: coding === undefined }) as AsyncIterable<Buffer>) {
    if (coding === undefined) { yield chunk; continue }
    decoder = createDecoder(coding, chunk)
    response.unshift(chunk)
    break
  }
  // Its end may be missing: what came is read all the same.
  if (decoder !== undefined) yield * pipeline(response, decoder, () => {})
}

/**
 * Passes a client's bytes on up to a limit, and does not wait for ever for the next. Read before its release it holds them: of a client
 * whose bytes nobody reads nobody notices either that it has left.
 */
class ClientBody extends Transform {
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  readonly #limit: number
  readonly #memory: BodyMemory
  readonly #idle: number
  #size = 0
  #timer: NodeJS.Timeout | undefined
  /** undefined: passed on */
  #held: Chunks | undefined = new Chunks()
  /** bytes of the memory that are given back when the last one is gone */
  #taken = 0
  /** what came last while it was held: there is no more */
  #end: (() => void) | undefined

  constructor (req: IncomingMessage, res: ServerResponse, { limit, idle, memory }: BodyLimits) {
    super()
    this.#req = req
    this.#res = res
    this.#limit = limit
    this.#memory = memory
    this.#idle = idle
  }

  /** All that came was taken, and more is to come. */
  get waitsForClient (): boolean {
    return this.readableLength === 0 && !this.readableEnded
  }

  /** Nothing happens where it has begun, or is over. */
  begin (): void {
    if (this.#timer !== undefined || this.destroyed) return
    this.#timer = setTimeout(() => {
      // Bytes that wait here wait for the upstream: then it is not the client who is slow.
      if (!this.waitsForClient) this.#timer!.refresh()
      else this.destroy(new GatewayError('request_timeout', { headers: { connection: 'close' } }))
    }, this.#idle)
    sayContinue(this.#req, this.#res)
    this.#req.pipe(this)
  }

  /** From now on bytes pass. */
  release (): void {
    const held = this.#held!.all()
    this.#held = undefined
    for (const chunk of held) this.push(chunk)
    this.#end?.()
    this.begin()
  }

  override _transform (chunk: Buffer, _encoding: string, done: (error?: Error | null, chunk?: Buffer) => void): void {
    this.#timer!.refresh()
    this.#size += chunk.length
    if (this.#size > this.#limit) done(tooLarge(this.#limit))
    else if (this.#held === undefined) done(null, chunk)
    else done(this.#hold(this.#held, chunk))
  }

  /** @returns why it can't */
  #hold (held: Chunks, chunk: Buffer): GatewayError | undefined {
    const before = held.taken
    held.add(chunk)
    try {
      this.#memory.take(held.taken - before)
      this.#taken += held.taken - before
      return undefined
    } catch (full) {
      return toGatewayError(full)
    }
  }

  override _flush (done: () => void): void {
    clearTimeout(this.#timer)
    if (this.#held === undefined) done()
    else this.#end = done
  }

  override _destroy (error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.#timer)
    this.#req.unpipe(this)
    this.#memory.give(this.#taken)
    this.#taken = 0
    done(error)
  }
}
