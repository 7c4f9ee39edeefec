// Reads a JSON request body: limits while reading, decompression, one parse. The bytes are not kept after the parse,
// except those of a large body, which a thread parses.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Transform } from 'node:stream'
import zlib from 'node:zlib'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'
import type { BodyThreads } from '../core/body-step.ts'
import { ApiKey, type Body } from '../core/facts.ts'
import { SHARED_FROM, type Share } from '../core/body-shares.ts'
import { type BodyLimits, Chunks, SharedChunks, tooLarge } from '../core/body-memory.ts'
import { sayContinue } from '../base/expect-continue.ts'
import { atEndOfTurn } from '../base/end-of-turn.ts'
import { JsonGuard } from '../base/json-limits.ts'
import { base64In } from '../core/large-strings.ts'
import { mark } from '../base/stall-marks.ts'
import { after, type Awaitable } from '../base/awaitable.ts'
import { Alarm } from '../base/wheel.ts'
import { parseBody } from './parse-body.ts'

/**
 * The window that RFC 9659 allows a content encoding, 8 MiB. A frame may ask for 128 MiB, which is memory of the
 * decoder beside that of the body.
 */
const ZSTD = { params: { [zlib.constants.ZSTD_d_windowLogMax]: 23 } }

/** Decoders by the names of RFC 9110 8.4.1; official SDKs may compress what they send, and agents do. */
const decoders: Readonly<Record<string, () => Transform>> = {
  gzip: () => zlib.createGunzip(),
  'x-gzip': () => zlib.createGunzip(),
  deflate: () => zlib.createInflate(),
  br: () => zlib.createBrotliDecompress(),
  zstd: () => zlib.createZstdDecompress(ZSTD)
}

/** @throws {GatewayError} bad_request */
function checkType (req: IncomingMessage): void {
  const type = req.headers['content-type']
  // curl users often send none.
  if (type !== undefined && !/^application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i.test(type)) {
    throw new GatewayError('bad_request', {
      message: `The Content-Type is ${JSON.stringify(type.slice(0, 80))}; this address takes JSON. Send the header ` +
        '"Content-Type: application/json".'
    })
  }
}

/**
 * Refuses other charsets: JSON is UTF-8 (RFC 8259 8.1), and so are forms here; bytes of another charset would be
 * misread.
 * @throws {GatewayError} bad_request
 */
export function checkCharset ({ headers: { 'content-type': type = '' } }: IncomingMessage): void {
  for (const [, charset] of type.matchAll(/;\s*charset\s*=\s*"?([^\s";]+)/gi)) {
    if (!/^utf-?8$/i.test(charset!)) {
      throw new GatewayError('bad_request', {
        message: `The charset of the Content-Type is ${JSON.stringify(charset!.slice(0, 40))}; this address takes ` +
          'UTF-8. Encode the body in UTF-8, and say so or nothing.'
      })
    }
  }
}

/**
 * Refuses a body by its head alone, where that suffices.
 * @throws {GatewayError} request_too_large, bad_request
 */
export function checkSize (
  req: IncomingMessage,
  limit: number
): { readonly length: number | undefined, readonly decoder: Transform | undefined } {
  const text = req.headers['content-length']
  const length = text === undefined ? undefined : Number(text)
  if (length !== undefined && length > limit) throw tooLarge(limit)
  const encoding = req.headers['content-encoding']?.trim().toLowerCase() ?? 'identity'
  if (encoding === 'identity') return { length, decoder: undefined }
  const decoder = Object.hasOwn(decoders, encoding) ? decoders[encoding] : undefined
  if (decoder === undefined) {
    throw new GatewayError('bad_request', {
      message: `The Content-Encoding ${JSON.stringify(encoding.slice(0, 40))} is not supported. Send ` +
        `${Object.keys(decoders).join(', ')} or none.`
    })
  }
  return { length: undefined, decoder: decoder() }
}

/** The error of a body that a decoder gave up. */
export function undecodable (cause: Error & { readonly code?: string }): GatewayError {
  return new GatewayError('bad_request', {
    message: cause.code === 'ZSTD_error_frameParameter_windowTooLarge'
      ? 'The request body is compressed with a window of more than 8 MiB (RFC 9659). Compress it with a smaller one.'
      : 'The request body could not be decompressed. Check the Content-Encoding.',
    cause
  })
}

/**
 * Reads and parses the body. The caller gives back its memory: `exchange.bodyBytes`.
 * @param threads of large bodies, and the memory of those; undefined: all are parsed here
 * @param readsInThreads whether threads may parse this one
 * @throws {GatewayError} request_too_large, bad_request, request_timeout, queue_full; the abort reason
 */
export function readBody (
  req: IncomingMessage,
  res: ServerResponse,
  limits: BodyLimits,
  exchange: Exchange,
  threads?: BodyThreads,
  readsInThreads = threads !== undefined
): Promise<Body> {
  checkType(req)
  checkCharset(req)
  const { length, decoder } = checkSize(req, limits.limit)
  // A body that does not fit is refused before it is sent; but a mere announcement takes no memory from others.
  const reserve = (bytes: number): void => {
    if (bytes <= exchange.bodyBytes) return
    limits.memory.take(bytes - exchange.bodyBytes)
    exchange.bodyBytes = bytes
  }
  if (length !== undefined) limits.memory.check(length)
  const { shares } = limits.memory
  let share: Share | undefined
  const keep = (own: Share | undefined): Share => {
    if (own === undefined) throw tooMany()
    exchange.onFinish(() => { own.end() })
    return share = own
  }
  /** One that announces no length is known to be large only when it is, so it does not wait. */
  const takeShare = (bytes: number): void => {
    if (bytes < SHARED_FROM) return
    share ??= keep(shares.take(payerOf(exchange), bytes))
    if (!share.grow(bytes)) throw tooMany()
  }
  if (length !== undefined && length >= SHARED_FROM) {
    return shares.wait(payerOf(exchange), length, limits.idle, exchange).then((own) => {
      keep(own)
      exchange.throwIfAborted()
      return receive()
    })
  }
  return receive()

  function receive (): Promise<Body> {
    sayContinue(req, res)
    const guard = new JsonGuard()
    const small = new Chunks()
    let large: SharedChunks | undefined
    /** a thread is */
    let isPrepared = false
    let size = 0
    let received = 0
    return new Promise((resolve, reject) => {
      const source = decoder === undefined ? req : req.pipe(decoder)
      const idle = new Alarm(() => {
        fail(new GatewayError('request_timeout', { headers: { connection: 'close' } }))
      })
      idle.set(limits.idle)
      const fail = (error: unknown): void => {
        stop()
        if (decoder !== undefined) { req.unpipe(decoder); decoder.destroy() }
        req.resume()                                            // discards the rest
        reject(error)
      }
      /** Before the decoder. */
      const onReceived = (chunk: Buffer): void => {
        idle.set(limits.idle)
        received += chunk.length
        if (received > limits.limit) fail(tooLarge(limits.limit))
      }
      const onData = (chunk: Buffer): void => {
        if (decoder === undefined) idle.set(limits.idle)
        try {
          size += chunk.length
          if (size > limits.limit) throw tooLarge(limits.limit)
          takeShare(size)
          reserve(size)
          guard.push(chunk)
          ;(large ?? small).add(chunk)
          if (threads === undefined || size < threads.least) return
          large ??= moveToPages(threads)
          if (isPrepared || !isForThread(guard.longBytes)) return
          isPrepared = true
          threads.prepare()
        } catch (error) {
          fail(error)
        }
      }
      const onEnd = (): void => {
        stop()
        exchange.record.body_at = performance.now()
        atEndOfTurn(() => {
          try {
            exchange.throwIfAborted()
            resolve(parsed())
          } catch (error) {
            reject(error)
          }
        })
      }
      /** Its memory is used again when the exchange is over, whether or not the rest of the body comes. */
      const moveToPages = ({ memory }: BodyThreads): SharedChunks => {
        const chunks = new SharedChunks(memory, small.take())
        exchange.onFinish(() => { chunks.end() })
        return chunks
      }
      /** What is in a body besides its base64 takes time. */
      const isForThread = (base64: number): boolean => readsInThreads && size - base64 >= threads!.least
      const parsed = (): Awaitable<Body> => {
        mark('body', exchange)
        if (large === undefined) {
          const pieces = small.all()
          return parseBody(pieces, base64In(pieces, guard.longStrings), exchange.blobs)
        }
        const memory = large
        return after(memory.all(), (pieces) => {
          exchange.throwIfAborted()
          const base64 = base64In(pieces, guard.longStrings)
          const parse = (): Body => {
            mark('body', exchange)
            exchange.blobs.memory = memory
            return parseBody(pieces, base64, exchange.blobs)
          }
          return isForThread(base64.reduce((sum, { start, end }) => sum + end - start, 0))
            ? after(threads!.open(exchange, { pieces, memory, base64 }), (body) => body ?? parse())
            : parse()
        })
      }
      const onBroken = (cause: Error): void => { fail(undecodable(cause)) }
      const onLeft = (): void => {
        fail(exchange.abortReason)
      }
      const stop = (): void => {
        idle.off()
        if (decoder !== undefined) req.off('data', onReceived)
        source.off('data', onData).off('end', onEnd)
        decoder?.off('error', onBroken).on('error', () => {})   // zlib may report once more after destroy
        exchange.offAbort(onLeft)
      }
      if (decoder !== undefined) req.on('data', onReceived)
      source.on('data', onData).on('end', onEnd)
      decoder?.on('error', onBroken)
      exchange.onAbort(onLeft)
      if (exchange.abortReason !== undefined) onLeft()
    })
  }
}

/** Where there are no keys, it is an address. */
function payerOf (exchange: Exchange): string {
  return exchange.find(ApiKey)?.account.id ?? exchange.received.address
}

function tooMany (): GatewayError {
  return new GatewayError('queue_full', {
    message: 'The bodies of your requests that run take as much memory as one account may have. Try again in {wait}.'
  })
}
