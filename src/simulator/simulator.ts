// A model vendor that is not one: a real HTTP server that speaks a vendor's dialects, has a vendor's faults, and keeps
// a log. To try the gateway without an account, to test it, and to rehearse what a bad day of a vendor does to it.
import { createHash } from 'node:crypto'
import { once, type EventEmitter } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { chatDialect } from './chat.ts'
import { deliverEvents, deliverFile, deliverJson, misbehave, spoil, type Delivery } from './deliver.ts'
import { isObject, VendorError, type Answer, type Dialect, type Endpoint } from './dialect.ts'
import { faultsInModel, faultsInText, parseFaults, UnknownDirective, type Faults } from './faults.ts'
import { parseForm } from './form.ts'
import { imagesDialect } from './images.ts'
import { messagesDialect } from './messages.ts'
import { plainDialect } from './plain.ts'
import { seededRandom } from './random.ts'
import { RequestLog, type Ending, type LogEvents, type RequestRecord } from './request-log.ts'
import { newRequestId, vendorError, vendorHeaders } from './vendor.ts'
import { videosDialect } from './videos.ts'
import { ClientLeft, Wire } from './wire.ts'

export interface SimulatorOptions {
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
  /** what every request suffers, as in a directive: `cut_after=5 crlf`; of several, each request gets one */
  readonly faults?: string | readonly string[]
  /** the part of the requests that suffer `faults`, from 0 to 1; 1 by default */
  readonly faultRate?: number
  /** the part of the requests that get an error status, from 0 to 1; 0 by default */
  readonly errorRate?: number
  /** the statuses to choose from */
  readonly errorStatuses?: readonly number[]
  /**
   * milliseconds without faults, then as many with them, in turn; with no others, connections are closed before the
   * head then
   */
  readonly flapMs?: number
  /** of all that is left to chance: the same seed and order of requests, the same faults */
  readonly seed?: number
  /** false: directives in prompts and models' names are only words; for the healthy one of two upstreams */
  readonly directives?: boolean
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
  /** milliseconds since the epoch, for the life of cached prompts and the progress of videos */
  readonly now?: () => number
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
  const {
    host = '127.0.0.1',
    port = 0,
    firstDelayMs = 200,
    tokenDelayMs = 20,
    faultRate = 1,
    errorRate = 0,
    errorStatuses = [429, 500, 503, 529],
    now = Date.now
  } = options
  const ownFaults = [options.faults ?? (options.flapMs === undefined || errorRate > 0 ? '' : 'cut')].flat().map(
    parseFaults
  )
  const startedAt = now()
  const random = seededRandom(options.seed ?? 1)
  const log = new RequestLog(options.keepRequests ?? 10_000)
  const dialects: readonly Dialect[] = [
    messagesDialect({ key: options.key, betas: options.betas, contextTokens: options.contextTokens ?? 200_000, now }),
    chatDialect({ key: options.key, contextTokens: options.contextTokens ?? 200_000, now }),
    imagesDialect({ now, links: options.imageLinks ?? false }),
    videosDialect({ now, videoMs: options.videoMs ?? 10_000, videoBytes: options.videoBytes ?? 200_000 }),
    plainDialect
  ]

  const server = createServer((request, response) => { void serve(request, response) })
  // A stalled request is a fault that was asked for; the client decides when it has waited enough.
  server.requestTimeout = 0
  server.listen(port, host)
  await once(server, 'listening')
  const address = server.address() as AddressInfo
  const url = `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`

  /** Never rejects: whatever happens, the record ends, and the client gets an answer or a closed connection. */
  async function serve (request: IncomingMessage, response: ServerResponse): Promise<void> {
    const wire = new Wire(response)
    const { pathname, search } = splitUrl(request.url ?? '/')
    const record = log.open(newRequestId(), now(), request.method ?? '', pathname, request.headers)
    try {
      log.end(record, await answer(request, search, wire, record))
    } catch (error) {
      if (!(error instanceof ClientLeft) && !wire.hasLeft) record.failure = error
      wire.cut()
      log.end(record, record.failure === undefined ? 'client_left' : 'error')
    }
  }

  async function answer (request: IncomingMessage, query: string, wire: Wire, record: RequestRecord): Promise<Ending> {
    const { method, path, headers, id: requestId } = record
    const { dialect, endpoint } = findEndpoint(dialects, method, path)
    const read = await readBody(request, endpoint?.keepsBody === true)
    record.body_bytes = read.bytes
    record.body_sha256 = read.sha256
    const form = parseForm(headers['content-type'], read.kept)
    const body = form ?? parseJson(read.kept)
    if (form !== undefined || read.bytes <= (options.keepBodyBytes ?? 64 * 1024)) record.body = body
    if (isObject(body)) {
      if (typeof body['model'] === 'string') record.model = body['model']
      record.stream = body['stream'] === true
    }
    const delivery: Delivery = { wire, log, record, faults: {}, firstDelayMs, tokenDelayMs,
      headers: vendorHeaders(requestId), url }

    async function refuse (error: VendorError): Promise<Ending> {
      await deliverJson({ kind: 'json', status: error.status, headers: error.headers,
        body: dialect.errorBody(error, requestId) }, { ...delivery, faults: {} })
      return 'error'
    }

    let faults: Faults
    try {
      faults = chooseFaults(endpoint, body, record.model, query)
    } catch (error) {
      log.read(record)
      if (error instanceof UnknownDirective) return await refuse(new VendorError(400, error.message))
      throw error
    }
    record.faults = faults
    log.read(record)
    const faulty: Delivery = { ...delivery, faults, firstDelayMs: faults.first_delay === undefined ? firstDelayMs : 0,
      tokenDelayMs: faults.delay ?? tokenDelayMs }

    const misbehaved = await misbehave(faulty)
    if (misbehaved !== undefined) return misbehaved
    let made: Answer
    try {
      if (faults.status !== undefined) throw vendorError(faults.status, faults.retry_after)
      if (endpoint === undefined) throw new VendorError(404, 'Not found')
      if (read.bytes > bodyLimit && endpoint.keepsBody) throw vendorError(413)
      if (endpoint.keepsBody && body === undefined) throw new VendorError(400, 'The request body is not valid JSON')
      const asked = { requestId, method, path, query, headers, body, bodyBytes: read.bytes, bodySha256: read.sha256,
        faults }
      made = endpoint.answer(asked)
      // There is no stream whose first event could be an error.
      if (
        made.kind === 'json' && (faults.error_event_first === true || faults.error_event_after !== undefined)
      ) throw vendorError(529)
    } catch (error) {
      if (error instanceof VendorError) return await refuse(error)
      throw error
    }

    if (made.kind === 'json') {
      const result = await deliverJson(made, faulty)
      return result === 'whole' ? 'complete' : result === 'cut' ? 'cut' : 'error'
    }
    if (made.kind === 'file') return await deliverFile(made, method, faulty)
    const { emissions, ending } = spoil(made.emissions, faults, dialect, requestId)
    return await deliverEvents(emissions, faulty) === 'cut' ? 'cut' : ending
  }

  /** @throws {UnknownDirective} */
  function chooseFaults (
    endpoint: Endpoint | undefined,
    body: unknown,
    model: string | undefined,
    query: string
  ): Faults {
    // Drawn for every request, wanted or not: what one request gets does not depend on how others were told to fail.
    const draws = { error: random(), status: random(), fault: random() }
    const told = options.directives === false
      ? {}
      : { ...faultsInModel(model ?? ''), ...faultsInText(endpoint?.prompt(body) ?? ''),
        ...parseFaults(new URLSearchParams(query).get('sim') ?? '') }
    if (isUp()) return told
    const status = errorStatuses[Math.floor(draws.status * errorStatuses.length)]
    return {
      ...(draws.fault < faultRate ? ownFaults[Math.floor(draws.fault / faultRate * ownFaults.length)] : {}),
      ...(draws.error < errorRate && status !== undefined
        ? { status, ...(status === 429 ? { retry_after: 1 } : {}) }
        : {}),
      ...told
    }
  }

  /** Of one that flaps. */
  function isUp (): boolean {
    return options.flapMs !== undefined && Math.floor((now() - startedAt) / options.flapMs) % 2 === 0
  }

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
