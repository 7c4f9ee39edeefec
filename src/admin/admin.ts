// The admin listener: health, metrics, the live configuration, and the admin API (api/). Answers always, whatever the
// state of the parts that it asks.
import { hash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { GatewayError, isGatewayError, toGatewayError } from '../errors.ts'
import { shapeError } from '../protocols/error-shape.ts'
import { commonStyle } from '../protocols/index.ts'
import { JsonGuard } from '../base/json-limits.ts'
import { createRequestId } from '../base/request-id.ts'
import type { Services } from '../core/services.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { AdminApi } from './api/api.ts'
import { Refusal, refusalBody } from './api/refusal.ts'
import { repeatedKey } from '../base/repeated-key.ts'
import { Strangers } from './wrong-tokens.ts'

export interface AdminParts {
  readonly services: Services & { readonly metrics: Metrics }
  /** the metrics in Prometheus's format */
  readonly metrics: () => Promise<string>
  /** for /admin/v1/config; holds no secret */
  readonly status: () => unknown
  /** why load balancers should send requests elsewhere; empty: ready */
  readonly reasons: () => readonly string[] | Promise<readonly string[]>
  /** '' refuses every request */
  readonly token: string
  readonly api?: AdminApi
}

interface Answer {
  readonly status: number
  readonly type: string
  readonly text: string
  readonly headers?: Readonly<Record<string, string>>
}

interface Address {
  readonly isPublic: boolean
  answer (): Answer | Promise<Answer>
}

const METHODS = ['GET', 'HEAD']

export function adminHandler (
  { services, metrics, status, reasons, token, api }: AdminParts
): (req: IncomingMessage, res: ServerResponse) => void {
  const addresses = new Map<string, Address>([
    // This answer alone shows that the event loop runs.
    ['/healthz', { isPublic: true, answer: () => asJson({ status: 'ok' }) }],
    ['/readyz', { isPublic: true, answer: async () => {
      const found = await reasons()
      return asJson({ ready: found.length === 0, reasons: found }, found.length === 0 ? 200 : 503)
    } }],
    ['/metrics', { isPublic: true,
      answer: async () => ({ status: 200, type: services.metrics.contentType, text: await metrics() }) }],
    ['/admin/v1/config', { isPublic: false, answer: async () => asJson(await status()) }]
  ])
  const strangers = new Strangers(services)
  const expected = hash('sha256', token, 'buffer')
  /** the actor in the audit log: identifies the token, and does not help to guess it */
  const who = `admin-token ${expected.toString('hex').slice(0, 8)}`

  async function answer (req: IncomingMessage): Promise<Answer> {
    const path = (req.url ?? '').split('?', 1)[0]!
    if (api?.knows(path) === true) {
      await refuseStrangers(req, path)
      return await askApi(api, path, req)
    }
    const address = addresses.get(path)
    if (address === undefined) {
      throw new GatewayError('not_found', { message: 'There is nothing at this address of the admin listener.' })
    }
    if (!METHODS.includes(req.method ?? '')) {
      throw new GatewayError('method_not_allowed', { headers: { allow: METHODS.join(', ') } })
    }
    if (!address.isPublic) await refuseStrangers(req, path)
    return await address.answer()
  }

  async function askApi (to: AdminApi, path: string, req: IncomingMessage): Promise<Answer> {
    const query = new URLSearchParams((req.url ?? '').slice(path.length + 1))
    const body = METHODS.includes(req.method ?? '')
      ? undefined
      : await readJson(req, to.bodyLimit(path, req.method ?? ''))
    const { status, body: answered, version } = await to.answer({ method: req.method ?? '', path, query,
      ifMatch: req.headers['if-match'], body, who })
    return { ...asJson(answered, status), ...(version !== undefined && { headers: { etag: `"${version}"` } }) }
  }

  async function refuseStrangers (req: IncomingMessage, path: string): Promise<void> {
    const { authorization } = req.headers
    if (isAdmin(authorization)) return
    // A request without a token is no guess.
    const isPatient = authorization === undefined || await strangers.note(req.socket.remoteAddress ?? '', path)
    throw new GatewayError('authentication_error', {
      message: 'The admin token is missing or wrong. Send it as "Authorization: Bearer TOKEN".',
      ...(!isPatient && { headers: { connection: 'close' } })
    })
  }

  /** Digests have one length, so the comparison reveals nothing about the token. */
  function isAdmin (authorization: string | undefined): boolean {
    const given = /^bearer[ \t]+(\S+)$/i.exec(authorization?.trim() ?? '')?.[1]
    return token !== '' && given !== undefined && timingSafeEqual(hash('sha256', given, 'buffer'), expected)
  }

  return (req, res) => {
    const id = createRequestId()
    res.on('error', () => {})                     // the client left
    req.on('error', () => {})
    answer(req).finally(() => {
      req.resume()
    }).catch((thrown: unknown) => shape(thrown, id, services)).then((answered) => {
      write(req, res, id, answered)
    })
      .catch((err: unknown) => {
        services.log.error({ err, request_id: id }, 'the admin listener could not answer')
        res.destroy()
      })
  }
}

function asJson (body: unknown, status = 200): Answer {
  return { status, type: 'application/json', text: JSON.stringify(body) + '\n' }
}

/** @throws {Refusal} the body is too large, or no JSON. Undefined: no body. */
async function readJson (req: IncomingMessage, limit: number): Promise<unknown> {
  const chunks: Buffer[] = []
  const guard = new JsonGuard()
  let size = 0
  for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > limit) {
      throw new Refusal('request_too_large', `The body is larger than ${limit / 1024} KiB. Send a smaller one.`)
    }
    look(guard, chunk)
    chunks.push(chunk)
  }
  if (size === 0) return undefined
  let text: string
  let body: unknown
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks))
    body = JSON.parse(text)
  } catch (cause) {
    throw new Refusal('invalid_request', 'The body is not JSON in UTF-8. Send a JSON object.', { cause })
  }
  const twice = repeatedKey(text)
  if (twice !== undefined) {
    throw new Refusal('invalid_request',
      `The body has the key ${JSON.stringify(twice.slice(0, 80))} twice. Send it once.`)
  }
  return body
}

/** Applies the limits of client bodies: eight megabytes of "[" take seconds to parse. @throws {Refusal} */
function look (guard: JsonGuard, chunk: Buffer): void {
  try {
    guard.push(chunk)
  } catch (cause) {
    if (!isGatewayError(cause)) throw cause
    throw new Refusal('invalid_request', cause.message, { cause })
  }
}

function shape (thrown: unknown, id: string, { log }: Services): Answer {
  if (thrown instanceof Refusal) {
    if (thrown.cause !== undefined && thrown.status >= 500) {
      log.error({ err: thrown.cause, request_id: id }, 'a change through the admin API may be lost')
    }
    return { ...asJson(refusalBody(thrown, id), thrown.status), headers: thrown.headers }
  }
  const error = toGatewayError(thrown)
  if (error.row === 'server_error') {
    log.error({ err: error.cause ?? error, request_id: id }, 'the admin listener failed')
  }
  const { status, headers, body } = shapeError(error, commonStyle, id)
  return { ...asJson(body, status), headers }
}

function write (req: IncomingMessage, res: ServerResponse, id: string, answer: Answer): void {
  const body = Buffer.from(answer.text)
  res.writeHead(answer.status, {
    ...answer.headers,
    'content-type': answer.type,
    'content-length': body.length,
    'cache-control': 'no-store',
    'x-request-id': id,
    'request-id': id
  })
  res.end(req.method === 'HEAD' ? undefined : body)
}
