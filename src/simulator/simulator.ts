// A model vendor that is not one: a real HTTP server that speaks a vendor's dialects, has a vendor's faults, and keeps
// a log. To try the gateway without an account, to test it, and to rehearse what a bad day of a vendor does to it.
import { createHash } from 'node:crypto'
import { once, type EventEmitter } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { chatDialect } from './chat.ts'
import { deliverEvents, deliverFile, deliverJson, misbehave, spoil, type Delivery } from './deliver.ts'
import { isObject, VendorError, type Answer, type Asked, type Dialect, type Endpoint } from './dialect.ts'
import { applyHabit, habitNamed, readAs } from './habits.ts'
import { FaultInjector, type FaultOptions } from './fault-injector.ts'
import { UnknownDirective, type Faults } from './faults.ts'
import { parseForm } from './form.ts'
import { imagesDialect } from './images.ts'
import { messagesDialect } from './messages.ts'
import { plainDialect } from './plain.ts'
import { responsesDialect } from './responses.ts'
import { RequestLog, type Ending, type LogEvents, type RequestRecord } from './request-log.ts'
import { newRequestId, vendorError, vendorHeaders } from './vendor.ts'
import { checkVendor, errorBodyOf, vendorNamed, VendorRefusal } from './vendors.ts'
import { videosDialect } from './videos.ts'
import { ClientLeft, Wire } from './wire.ts'

export interface SimulatorOptions extends FaultOptions {
  /** loopback unless told otherwise */
  readonly host?: string
  /** 0, the default: any free one */
  readonly port?: number
  /** the only key that is let in; without it any key is */
  readonly key?: string
  /** the only values of anthropic-beta that are let in; without it any are */
  readonly betas?: readonly string[]
  /** milliseconds until a model says its first word; 200 by default */
  readonly firstDelayMs?: number
  /** milliseconds before each token; 20 by default */
  readonly tokenDelayMs?: number
  readonly contextTokens?: number
  /** images come as links to this simulator; base64 by default */
  readonly imageLinks?: boolean
  /** milliseconds that a video takes; 10,000 by default */
  readonly videoMs?: number
  /** of a video's file; 200,000 by default */
  readonly videoBytes?: number
  /** how many requests the log remembers; 10,000 by default */
  readonly keepRequests?: number
  /** bodies of more bytes are not kept in the log; 64 KiB by default */
  readonly keepBodyBytes?: number
}

export interface Simulator {
  /** `http://127.0.0.1:PORT` */
  readonly url: string
  /** the last ones, oldest first */
  readonly requests: readonly RequestRecord[]
  readonly events: EventEmitter<LogEvents>
  /** Waits until `seen` returns something; it is asked again whenever the log changes. */
  until<T> (seen: () => T | undefined | false): Promise<T>
  /** Closes every connection too. */
  close (): Promise<void>
}

/** As the vendor: larger bodies are 413. */
const bodyLimit = 32 * 1024 * 1024

/** @throws {UnknownDirective} `faults` is not understood */
export async function startSimulator (options: SimulatorOptions = {}): Promise<Simulator> {
  const injector = new FaultInjector(options)
  const log = new RequestLog(options.keepRequests ?? 10_000)

  const server = createServer()
  // A stalled request is a fault that was asked for; the client decides when it has waited enough.
  server.requestTimeout = 0
  server.listen(options.port ?? 0, options.host ?? '127.0.0.1')
  await once(server, 'listening')
  const address = server.address() as AddressInfo
  const url = `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`
  const vendor = new Vendor(options, injector, log, url)
  server.on('request', (request, response) => { void vendor.serve(request, response) })

  return {
    url,
    requests: log.requests,
    events: log.events,
    until: (seen) => log.until(seen),
    async close () {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    }
  }
}

function dialectsOf (options: SimulatorOptions): readonly Dialect[] {
  const { key, betas, contextTokens = 200_000, now = Date.now } = options
  return [
    messagesDialect({ key, betas, contextTokens, now }),
    chatDialect({ key, contextTokens, now }),
    responsesDialect({ key, contextTokens, now }),
    imagesDialect({ now, links: options.imageLinks ?? false }),
    videosDialect({ now, videoMs: options.videoMs ?? 10_000, videoBytes: options.videoBytes ?? 200_000 }),
    plainDialect
  ]
}

class Vendor {
  readonly #injector: FaultInjector
  readonly #log: RequestLog
  readonly #url: string
  readonly #dialects: readonly Dialect[]
  readonly #firstDelayMs: number
  readonly #tokenDelayMs: number
  readonly #keepBodyBytes: number
  readonly #now: () => number

  constructor (options: SimulatorOptions, injector: FaultInjector, log: RequestLog, url: string) {
    this.#injector = injector
    this.#log = log
    this.#url = url
    this.#dialects = dialectsOf(options)
    this.#firstDelayMs = options.firstDelayMs ?? 200
    this.#tokenDelayMs = options.tokenDelayMs ?? 20
    this.#keepBodyBytes = options.keepBodyBytes ?? 64 * 1024
    this.#now = options.now ?? Date.now
  }

  /** Never rejects: whatever happens, the record ends, and the client gets an answer or a closed connection. */
  async serve (request: IncomingMessage, response: ServerResponse): Promise<void> {
    const wire = new Wire(response)
    const { pathname, search } = splitUrl(request.url ?? '/')
    const record = this.#log.open(newRequestId(), this.#now(), request.method ?? '', pathname, request.headers)
    try {
      this.#log.end(record, await this.#answer(request, search, wire, record))
    } catch (error) {
      if (!(error instanceof ClientLeft) && !wire.hasLeft) record.failure = error
      wire.cut()
      this.#log.end(record, record.failure === undefined ? 'client_left' : 'error')
    }
  }

  async #answer (request: IncomingMessage, query: string, wire: Wire, record: RequestRecord): Promise<Ending> {
    const { method, path, id: requestId } = record
    const { dialect, endpoint } = findEndpoint(this.#dialects, method, path)
    const body = await this.#read(request, endpoint, record)
    const healthy: Delivery = { wire, log: this.#log, record, faults: {}, firstDelayMs: this.#firstDelayMs,
      tokenDelayMs: this.#tokenDelayMs, headers: vendorHeaders(requestId), url: this.#url }
    let faulty = healthy
    let made: Answer | Ending
    try {
      const faults = this.#chooseFaults(endpoint, body, query, record)
      faulty = { ...healthy, faults, firstDelayMs: faults.first_delay === undefined ? healthy.firstDelayMs : 0,
        tokenDelayMs: faults.delay ?? healthy.tokenDelayMs }
      made = await misbehave(faulty) ?? answerOf(dialect, endpoint, body, query, record, faults)
    } catch (error) {
      if (!(error instanceof VendorError)) throw error
      record.refusal = error instanceof VendorRefusal ? `${error.rule}: ${error.message}` : error.message
      const vendor = record.faults.vendor === undefined ? undefined : vendorNamed(record.faults.vendor)
      await deliverJson({ kind: 'json', status: error.status, headers: { ...error.headers, ...vendor?.headers },
        body: vendor === undefined ? dialect.errorBody(error, requestId) : errorBodyOf(vendor, error, requestId) },
      healthy)
      return 'error'
    }
    return typeof made === 'string' ? made : await deliver(made, dialect, faulty)
  }

  /** @returns what the endpoint wants of the body, parsed */
  async #read (request: IncomingMessage, endpoint: Endpoint | undefined, record: RequestRecord): Promise<unknown> {
    const { kept, bytes, sha256 } = await readBody(request, endpoint?.keepsBody === true)
    record.body_bytes = bytes
    record.body_sha256 = sha256
    const form = parseForm(record.headers['content-type'], kept)
    const body = form ?? parseJson(kept)
    if (form !== undefined || bytes <= this.#keepBodyBytes) record.body = body
    if (isObject(body)) {
      if (typeof body['model'] === 'string') record.model = body['model']
      record.stream = body['stream'] === true
    }
    return body
  }

  /** @throws {VendorError} a directive is not known */
  #chooseFaults (endpoint: Endpoint | undefined, body: unknown, query: string, record: RequestRecord): Faults {
    try {
      const faults = this.#injector.choose(endpoint, body, record.model, query)
      if (faults.habit !== undefined) habitNamed(faults.habit)
      if (faults.vendor !== undefined) vendorNamed(faults.vendor)
      return record.faults = faults
    } catch (error) {
      throw error instanceof UnknownDirective ? new VendorError(400, error.message) : error
    } finally {
      this.#log.read(record)
    }
  }
}

/** @throws {VendorError} */
function answerOf (
  dialect: Dialect,
  endpoint: Endpoint | undefined,
  body: unknown,
  query: string,
  { id: requestId, method, path, headers, body_bytes: bodyBytes, body_sha256: bodySha256 }: RequestRecord,
  faults: Faults
): Answer {
  if (faults.status !== undefined) throw vendorError(faults.status, faults.retry_after)
  if (endpoint === undefined) throw new VendorError(404, 'Not found')
  if (bodyBytes > bodyLimit && endpoint.keepsBody) throw vendorError(413)
  if (endpoint.keepsBody && body === undefined) throw new VendorError(400, 'The request body is not valid JSON')
  const asked: Asked = { requestId, method, path, query, headers, body, bodyBytes, bodySha256, faults }
  if (faults.vendor !== undefined) checkVendor(vendorNamed(faults.vendor), dialect.name, asked)
  const habit = faults.habit === undefined ? undefined : habitNamed(faults.habit)
  const made = habit === undefined ? endpoint.answer(asked)
    : applyHabit(habit, endpoint.answer(readAs(habit, asked)), dialect.name)
  // There is no stream whose first event could be an error.
  if (
    made.kind === 'json' && (faults.error_event_first === true || faults.error_event_after !== undefined)
  ) throw vendorError(529)
  return made
}

async function deliver (made: Answer, dialect: Dialect, delivery: Delivery): Promise<Ending> {
  const { record, faults } = delivery
  if (made.kind === 'json') {
    const result = await deliverJson(made, delivery)
    return result === 'whole' ? 'complete' : result === 'cut' ? 'cut' : 'error'
  }
  if (made.kind === 'file') return await deliverFile(made, record.method, delivery)
  const { emissions, ending } = spoil(made.emissions, faults, dialect, record.id)
  return await deliverEvents(emissions, delivery) === 'cut' ? 'cut' : ending
}

function findEndpoint (
  dialects: readonly Dialect[],
  method: string,
  path: string
): { readonly dialect: Dialect, readonly endpoint?: Endpoint } {
  for (const dialect of dialects) {
    const endpoint = dialect.endpoints[`${method} ${path}`] ?? dialect.endpoints[`* ${path}`] ??
      dialect.find?.(method, path)
    if (endpoint !== undefined) return { dialect, endpoint }
  }
  const [first] = dialects
  if (first === undefined) throw new Error('a simulator without a dialect')
  return { dialect: first }
}

/** Reads to the end even what it refuses, so that an answer is not overtaken by a reset of the connection. */
async function readBody (
  request: IncomingMessage,
  keeps: boolean
): Promise<{ readonly kept: Buffer, readonly bytes: number, readonly sha256: string }> {
  const hash = createHash('sha256')
  let chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      bytes += chunk.length
      hash.update(chunk)
      if (bytes > bodyLimit) chunks = []
      else if (keeps) chunks.push(chunk)
    }
  } catch {
    throw new ClientLeft()
  }
  return { kept: Buffer.concat(chunks), bytes, sha256: hash.digest('hex') }
}

function parseJson (bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString())
  } catch {
    return undefined
  }
}

/** Not `new URL`: `//host/path` is a path here, and nothing is normalised that a forward route is tested with. */
function splitUrl (url: string): { readonly pathname: string, readonly search: string } {
  const at = url.indexOf('?')
  return at === -1 ? { pathname: url, search: '' } : { pathname: url.slice(0, at), search: url.slice(at) }
}
