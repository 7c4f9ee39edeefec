// Reads a multipart/form-data body: fields as text, files as uploads; limits while reading. The only file that uses
// @fastify/busboy.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { Busboy, type BusboyFileStream, type BusboyHeaders, type BusboyInstance, type Dicer } from '@fastify/busboy'
import { checkCharset, checkSize } from './request-body.ts'
import { sayContinue } from '../base/expect-continue.ts'
import { type BodyLimits, tooLarge } from '../core/body-memory.ts'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'
import type { Body } from '../core/facts.ts'
import { Upload } from '../core/upload.ts'
import { isRecord } from '../base/json.ts'

/** A form of an images or videos API has some twenty of each. */
const MOST_FIELDS = 100
const MOST_FILES = 32
/** Bytes of a text field: a prompt has at most 32,000 characters. */
const FIELD_BYTES = 256 * 1024
/** Of the head of a part. */
const MOST_HEADERS = 32

/** Fields that are no text in JSON: in a form everything is. */
const NUMBERS = new Set(['n', 'partial_images', 'output_compression'])
const FLAGS = new Set(['stream'])

export function isForm (req: IncomingMessage): boolean {
  return /^multipart\/form-data\s*(?:;|$)/i.test(req.headers['content-type'] ?? '')
}

/**
 * Files are in the body as `Upload`, under their fields: always in a list, except where a field is an object's
 * (`name[key]`). They are removed when the exchange is over, however it ends. Memory is taken for what is not on disk.
 * @throws {GatewayError} request_too_large, bad_request, request_timeout, queue_full; the reason of an abort
 */
export async function readForm (
  req: IncomingMessage,
  res: ServerResponse,
  limits: BodyLimits,
  exchange: Exchange,
  taken: (bytes: number) => void
): Promise<Body> {
  checkCharset(req)
  const { length, decoder } = checkSize(req, limits.limit)
  if (length !== undefined) limits.memory.check(Math.min(length, FIELD_BYTES))
  const parser = createParser(req)
  const { temporary, log } = exchange.snapshot.services
  const uploads: Upload[] = []
  const open = new Set<BusboyFileStream>()
  exchange.onFinish(async () => {
    await Promise.all(uploads.map((upload) =>
      upload.remove().catch((err: unknown) => {
        log.error({ request_id: exchange.id, err }, 'a temporary file could not be removed')
      })
    ))
  })
  sayContinue(req, res)

  const form = new Form()
  const files: Promise<void>[] = []
  /** of all, in memory */
  let held = 0
  const hold = (bytes: number): void => {
    if (bytes > held) limits.memory.take(bytes - held)
    else limits.memory.give(held - bytes)
    taken(bytes - held)
    held = bytes
  }
  let text = 0
  let isOver = false
  /**
   * Not when it is over: then its end gives back what was taken, and a file that is still written changes nothing of
   * that.
   */
  const holdAll = (): void => { if (!isOver) hold(text + uploads.reduce((sum, upload) => sum + upload.inMemory, 0)) }

  await new Promise<void>((resolve, reject) => {
    const source = decoder === undefined ? req : req.pipe(decoder)
    let received = 0
    let size = 0
    const timer = setTimeout(() => {
      fail(new GatewayError('request_timeout', { headers: { connection: 'close' } }))
    }, limits.idle)
    const stop = (): void => {
      isOver = true
      clearTimeout(timer)
      req.off('data', onReceived)
      source.off('data', onData)
      exchange.offAbort(onLeft)
    }
    const fail = (error: unknown): void => {
      if (isOver) return
      stop()
      source.unpipe(parser)
      if (decoder !== undefined) { req.unpipe(decoder); decoder.destroy() }
      parser.on('error', () => {}).destroy()
      for (const stream of open) stream.destroy()
      req.resume()                                            // what still comes is thrown away
      reject(error)
    }
    const onReceived = (chunk: Buffer): void => {
      timer.refresh()
      received += chunk.length
      if (received > limits.limit) fail(tooLarge(limits.limit))
    }
    const onData = (chunk: Buffer): void => {
      size += chunk.length
      if (size > limits.limit) fail(tooLarge(limits.limit))
    }
    const onLeft = (): void => {
      fail(exchange.abortReason)
    }
    const tooMany = (what: string): void => {
      fail(new GatewayError('bad_request', { message: `The form has too many ${what}. Send fewer.` }))
    }

    listenWithin(parser, fail)
    parser.on('field', (name: string | undefined, value, nameTruncated, valueTruncated) => {
      if (isOver) return
      if (!name) {
        fail(unnamed())
        return
      }
      if (nameTruncated || valueTruncated) {
        fail(
          new GatewayError('invalid_request', {
            message: `The field ${JSON.stringify(name.slice(0, 40))} is longer than ${FIELD_BYTES} bytes. Shorten it.`,
            param: name.slice(0, 40)
          })
        )
        return
      }
      text += name.length + value.length
      try {
        holdAll()
        form.add(name, readText(name, value))
      } catch (error) {
        fail(error)
      }
    })
    parser.on('file', (name: string | undefined, stream, filename, _encoding, type) => {
      const upload = new Upload(filename, type, temporary)
      // Errors of the parser reach each open file too; the parser's own are reported.
      stream.on('error', () => {})
      if (isOver) { stream.resume(); return }
      open.add(stream)
      if (!name) { fail(unnamed()); return }
      uploads.push(upload)
      form.addFile(name, upload)
      files.push(fill(upload, stream, holdAll).finally(() => { open.delete(stream) }))
      files.at(-1)!.catch(fail)
    })
    parser.on('partsLimit', () => { tooMany('parts') })
    parser.on('filesLimit', () => { tooMany('files') })
    parser.on('fieldsLimit', () => { tooMany('fields') })
    parser.on('error', (cause: unknown) => { fail(unreadable(cause)) })
    parser.on('finish', () => {
      Promise.all(files).then(() => {
        if (isOver) return
        stop()
        resolve()
      }, fail)
    })
    decoder?.on('error', (cause) => {
      fail(
        new GatewayError('bad_request', {
          message: 'The request body could not be decompressed. Check the Content-Encoding.',
          cause
        })
      )
    })
    exchange.onAbort(onLeft)
    if (exchange.abortReason !== undefined) { onLeft(); return }
    req.on('data', onReceived)
    source.on('data', onData)
    source.pipe(parser)
  })
  exchange.record.body_at = performance.now()
  return form.body
}

/** @throws {GatewayError} bad_request: no boundary */
function createParser (req: IncomingMessage): BusboyInstance {
  try {
    return new Busboy({
      headers: req.headers as BusboyHeaders,
      limits: { fields: MOST_FIELDS, files: MOST_FILES, parts: MOST_FIELDS + MOST_FILES, fieldSize: FIELD_BYTES,
        fieldNameSize: 200, headerPairs: MOST_HEADERS }
    })
  } catch (cause) {
    throw new GatewayError('bad_request', {
      message: 'The Content-Type multipart/form-data has no boundary. Let your HTTP client set this header.',
      cause
    })
  }
}

/** What Busboy (3.2) has within, and its types do not tell. */
interface Within {
  readonly _parser: { readonly parser: Dicer }
}

/**
 * Busboy tells nobody of the parts that it skips, because it can't read their heads: no field of a client may be lost.
 */
function listenWithin (parser: BusboyInstance, fail: (error: GatewayError) => void): void {
  const inner = (parser as unknown as Within)._parser.parser
  let headless = 0
  inner.on('part', (part: Readable) => {
    headless++
    // Behind Busboy's own listener, which takes the data of what it does not skip.
    part.once('header', () => { if (part.listenerCount('data') > 0) headless--; else fail(unnamed()) })
  })
  inner.on('finish', () => { if (headless > 0) fail(unnamed()) })
}

function unreadable (cause: unknown): GatewayError {
  return new GatewayError('bad_request', {
    message: 'The form could not be read: it ends in the middle, or is no multipart/form-data.',
    cause
  })
}

/** The parser's types say that every part has a name; it passes those on that have none. */
function unnamed (): GatewayError {
  return new GatewayError('bad_request', {
    message: 'A part of the form has no name. Give each one: Content-Disposition: form-data; name="…".'
  })
}

/** The parser waits while a chunk is written: so no more than that is ever read ahead. */
async function fill (upload: Upload, stream: Readable, changed: () => void): Promise<void> {
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    await upload.add(chunk)
    changed()
  }
  await upload.end()
}

function readText (name: string, value: string): unknown {
  if (NUMBERS.has(name) && /^\d{1,9}$/.test(value)) return Number(value)
  if (FLAGS.has(name) && (value === 'true' || value === 'false')) return value === 'true'
  return value
}

/** Names as official SDKs write them: `image[]` is an item of a list, `mask[image_url]` a field of an object. */
class Form {
  readonly #fields = new Map<string, unknown>()

  get body (): Body {
    return Object.fromEntries(this.#fields)
  }

  add (name: string, value: unknown): void {
    const [, outer, inner] = /^([^[\]]+)\[([^[\]]*)\]$/.exec(name) ?? []
    if (outer === undefined) { this.#fields.set(name, value) }
    else if (inner === '') { this.#push(outer, value) }
    else {
      this.#fields.set(outer, {
        ...(isRecord(this.#fields.get(outer)) ? this.#fields.get(outer) as object : {}),
        [inner!]: value
      })
    }
  }

  addFile (name: string, upload: Upload): void {
    this.#push(/^([^[\]]+)\[\]$/.exec(name)?.[1] ?? name, upload)
  }

  #push (name: string, value: unknown): void {
    const before = this.#fields.get(name)
    this.#fields.set(name, Array.isArray(before) ? [...before as unknown[], value] : [value])
  }
}
