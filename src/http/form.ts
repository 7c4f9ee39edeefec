// Reads a multipart/form-data body: fields as text, files as uploads; limits while reading. The only file that uses
// @fastify/busboy.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Readable, Transform } from 'node:stream'
import { Busboy, type BusboyFileStream, type BusboyHeaders, type BusboyInstance, type Dicer } from '@fastify/busboy'
import { checkCharset, checkSize, undecodable } from './request-body.ts'
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
/** Header lines of a part. */
const MOST_HEADERS = 32

/** Fields that are no text in JSON, whereas all fields of a form are. */
const NUMBERS = new Set(['n', 'partial_images', 'output_compression'])
const FLAGS = new Set(['stream'])

export function isForm (req: IncomingMessage): boolean {
  return /^multipart\/form-data\s*(?:;|$)/i.test(req.headers['content-type'] ?? '')
}

/**
 * Reads the form into `body`. Files are in it as `Upload`, under their fields: always in a list, except where a field
 * is an object's (`name[key]`). They are removed when the exchange is over, however it ends. Memory is taken for the
 * parts that are not on disk.
 * @throws {GatewayError} request_too_large, bad_request, request_timeout, queue_full; the abort reason
 */
export async function readForm (
  req: IncomingMessage,
  res: ServerResponse,
  limits: BodyLimits,
  exchange: Exchange
): Promise<Body> {
  checkCharset(req)
  const { length, decoder } = checkSize(req, limits.limit)
  if (length !== undefined) limits.memory.check(Math.min(length, FIELD_BYTES))
  const reader = new FormReader(req, decoder, limits, exchange)
  sayContinue(req, res)
  await reader.read()
  exchange.record.body_at = performance.now()
  return reader.body
}

/** Reads one form, which ends with its last byte or its first error. */
class FormReader {
  readonly #req: IncomingMessage
  readonly #decoder: Transform | undefined
  /** the decompressed body */
  readonly #source: Readable
  readonly #parser: BusboyInstance
  readonly #limits: BodyLimits
  readonly #exchange: Exchange
  readonly #end = Promise.withResolvers<void>()
  readonly #form = new Form()
  readonly #uploads: Upload[] = []
  /** files whose end has not come */
  readonly #open = new Set<BusboyFileStream>()
  readonly #written: Promise<void>[] = []
  /** bytes on the wire */
  #received = 0
  /** bytes of the source */
  #size = 0
  /** characters of text fields and their names */
  #text = 0
  #isOver = false
  #idle: NodeJS.Timeout | undefined
  /** removes the listener for the exchange's abort */
  #unlisten: (() => void) | undefined

  /** @throws {GatewayError} bad_request: no boundary */
  constructor (
    req: IncomingMessage,
    decoder: Transform | undefined,
    limits: BodyLimits,
    exchange: Exchange
  ) {
    this.#req = req
    this.#decoder = decoder
    this.#source = decoder ?? req
    this.#parser = createParser(req)
    this.#limits = limits
    this.#exchange = exchange
    exchange.onFinish(() => this.#removeFiles())
  }

  get body (): Body {
    return this.#form.body
  }

  /** Resolves when `body` is whole. */
  read (): Promise<void> {
    if (this.#decoder !== undefined) this.#req.pipe(this.#decoder)
    this.#idle = setTimeout(() => {
      this.#fail(new GatewayError('request_timeout', { headers: { connection: 'close' } }))
    }, this.#limits.idle)
    this.#listenToParser()
    this.#listenToClient()
    if (!this.#isOver) this.#source.pipe(this.#parser)
    return this.#end.promise
  }

  #listenToParser (): void {
    const parser = this.#parser
    const fail = (error: unknown): void => { this.#fail(error) }
    const tooMany = (what: string): void => {
      fail(new GatewayError('bad_request', { message: `The form has too many ${what}. Send fewer.` }))
    }
    listenWithin(parser, fail)
    parser.on('field', (name: string | undefined, value, isNameCut, isValueCut) => {
      this.#addField(name, value, isNameCut || isValueCut)
    })
    parser.on('file', (name: string | undefined, stream, filename, _encoding, type) => {
      this.#addFile(name, stream, new Upload(filename, type, this.#exchange.snapshot.services.temporary))
    })
    parser.on('partsLimit', () => { tooMany('parts') })
    parser.on('filesLimit', () => { tooMany('files') })
    parser.on('fieldsLimit', () => { tooMany('fields') })
    parser.on('error', (cause: unknown) => { fail(unreadable(cause)) })
    parser.on('finish', () => { Promise.all(this.#written).then(() => { this.#succeed() }, fail) })
  }

  #listenToClient (): void {
    const req = this.#req
    const source = this.#source
    const exchange = this.#exchange
    const onReceived = (chunk: Buffer): void => {
      this.#idle!.refresh()
      this.#received += chunk.length
      if (this.#received > this.#limits.limit) this.#fail(tooLarge(this.#limits.limit))
    }
    const onData = (chunk: Buffer): void => {
      this.#size += chunk.length
      if (this.#size > this.#limits.limit) this.#fail(tooLarge(this.#limits.limit))
    }
    const onLeft = (): void => {
      this.#fail(exchange.abortReason)
    }
    const unlisten = (): void => {
      req.off('data', onReceived)
      source.off('data', onData)
      exchange.offAbort(onLeft)
    }
    this.#unlisten = unlisten
    this.#decoder?.on('error', (cause) => { this.#fail(undecodable(cause)) })
    exchange.onAbort(onLeft)
    if (exchange.abortReason !== undefined) { onLeft(); return }
    req.on('data', onReceived)
    source.on('data', onData)
  }

  #addField (name: string | undefined, value: string, isCut: boolean): void {
    if (this.#isOver) return
    if (!name) {
      this.#fail(unnamed())
      return
    }
    if (isCut) {
      this.#fail(
        new GatewayError('invalid_request', {
          message: `The field ${JSON.stringify(name.slice(0, 40))} is longer than ${FIELD_BYTES} bytes. Shorten it.`,
          param: name.slice(0, 40)
        })
      )
      return
    }
    this.#text += name.length + value.length
    try {
      this.#hold()
      this.#form.add(name, readText(name, value))
    } catch (error) {
      this.#fail(error)
    }
  }

  #addFile (name: string | undefined, stream: BusboyFileStream, upload: Upload): void {
    // Errors of the parser reach each open file too; the parser's own event reports them.
    stream.on('error', () => {})
    if (this.#isOver) { stream.resume(); return }
    this.#open.add(stream)
    if (!name) { this.#fail(unnamed()); return }
    this.#uploads.push(upload)
    this.#form.addFile(name, upload)
    const written = fill(upload, stream, () => { this.#hold() }).finally(() => { this.#open.delete(stream) })
    written.catch((error: unknown) => { this.#fail(error) })
    this.#written.push(written)
  }

  /**
   * Takes or gives back memory for the form's present size. Not after its end, which gives back all of it: a file that
   * is still being written changes nothing.
   */
  #hold (): void {
    if (this.#isOver) return
    const bytes = this.#text + this.#uploads.reduce((sum, upload) => sum + upload.inMemory, 0)
    const held = this.#exchange.bodyBytes
    if (bytes > held) this.#limits.memory.take(bytes - held)
    else this.#limits.memory.give(held - bytes)
    this.#exchange.bodyBytes = bytes
  }

  #succeed (): void {
    if (this.#isOver) return
    this.#stop()
    this.#end.resolve()
  }

  #fail (error: unknown): void {
    if (this.#isOver) return
    this.#stop()
    this.#source.unpipe(this.#parser)
    if (this.#decoder !== undefined) { this.#req.unpipe(this.#decoder); this.#decoder.destroy() }
    this.#parser.on('error', () => {}).destroy()
    for (const stream of this.#open) stream.destroy()
    this.#req.resume()                                        // discards the rest
    this.#end.reject(error)
  }

  #stop (): void {
    this.#isOver = true
    clearTimeout(this.#idle)
    this.#unlisten?.()
  }

  async #removeFiles (): Promise<void> {
    const { log } = this.#exchange.snapshot.services
    await Promise.all(this.#uploads.map((upload) =>
      upload.remove().catch((err: unknown) => {
        log.error({ request_id: this.#exchange.id, err }, 'a temporary file could not be removed')
      })
    ))
  }
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

/** Private parts of Busboy (3.2) without types. */
interface Within {
  readonly _parser: { readonly parser: Dicer }
}

/**
 * Fails on parts that Busboy would silently skip, because it can't read their heads: no field of a client may be lost.
 */
function listenWithin (parser: BusboyInstance, fail: (error: GatewayError) => void): void {
  const inner = (parser as unknown as Within)._parser.parser
  let headless = 0
  inner.on('part', (part: Readable) => {
    headless++
    // After Busboy's own listener, which reads the data of parts that it does not skip.
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

/** Parts without a name are passed on by the parser, though its types say that each has one. */
function unnamed (): GatewayError {
  return new GatewayError('bad_request', {
    message: 'A part of the form has no name. Give each one: Content-Disposition: form-data; name="…".'
  })
}

/** Fills an upload. The parser waits while a chunk is written, so no more than one chunk is read ahead. */
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
