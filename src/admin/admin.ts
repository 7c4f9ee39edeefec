// The admin listener: health, metrics, and which configuration is live. Answers always, whatever the parts that it asks do.
import { hash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { GatewayError, shapeError, toGatewayError } from '../errors.ts'
import { createRequestId } from '../request-id.ts'
import type { Services } from '../services.ts'

export interface AdminParts {
  readonly services: Services
  /** for /admin/v1/config; holds no secret */
  readonly status: () => unknown
  /** why requests should go elsewhere; empty: ready */
  readonly ready: () => readonly string[]
  /** '' lets nobody in */
  readonly token: string
}

interface Answer {
  readonly status: number
  readonly type: string
  readonly text: string
}

interface Address {
  readonly isPublic: boolean
  answer (): Answer | Promise<Answer>
}

const METHODS = ['GET', 'HEAD']

export function adminHandler ({ services, status, ready, token }: AdminParts): (req: IncomingMessage, res: ServerResponse) => void {
  const addresses = new Map<string, Address>([
    // The event loop runs, or nobody would answer.
    ['/healthz', { isPublic: true, answer: () => asJson({ status: 'ok' }) }],
    ['/readyz', { isPublic: true, answer: () => { const reasons = ready(); return asJson({ ready: reasons.length === 0, reasons }, reasons.length === 0 ? 200 : 503) } }],
    ['/metrics', { isPublic: true, answer: async () => ({ status: 200, type: services.metrics.contentType, text: await services.metrics.print() }) }],
    ['/admin/v1/config', { isPublic: false, answer: () => asJson(status()) }]
  ])
  const expected = hash('sha256', token, 'buffer')

  async function answer (req: IncomingMessage): Promise<Answer> {
    const path = (req.url ?? '').split('?', 1)[0]!
    const address = addresses.get(path)
    if (address === undefined) throw new GatewayError('not_found', { message: 'There is nothing at this address of the admin listener.' })
    if (!METHODS.includes(req.method ?? '')) throw new GatewayError('method_not_allowed', { headers: { allow: METHODS.join(', ') } })
    if (!address.isPublic && !isAdmin(req.headers.authorization)) throw new GatewayError('authentication_error', { message: 'The admin token is missing or wrong. Send it as "Authorization: Bearer TOKEN".' })
    return await address.answer()
  }

  /** Digests have one length, so the comparison tells nothing about the token. */
  function isAdmin (authorization: string | undefined): boolean {
    const given = /^bearer[ \t]+(\S+)$/i.exec(authorization?.trim() ?? '')?.[1]
    return token !== '' && given !== undefined && timingSafeEqual(hash('sha256', given, 'buffer'), expected)
  }

  return (req, res) => {
    const id = createRequestId()
    req.resume()                                  // no address reads a body
    res.on('error', () => {})                     // the client left: nobody to tell
    req.on('error', () => {})
    answer(req).catch((thrown: unknown) => shape(thrown, id, services)).then((answered) => { write(req, res, id, answered) })
      .catch((err: unknown) => { services.log.error({ err, request_id: id }, 'the admin listener could not answer'); res.destroy() })
  }
}

function asJson (body: unknown, status = 200): Answer {
  return { status, type: 'application/json', text: JSON.stringify(body) + '\n' }
}

function shape (thrown: unknown, id: string, { log }: Services): Answer & { readonly headers: Readonly<Record<string, string>> } {
  const error = toGatewayError(thrown)
  if (error.row === 'server_error') log.error({ err: error.cause ?? error, request_id: id }, 'the admin listener failed')
  const { status, headers, body } = shapeError(error, 'chat', id)
  return { ...asJson(body, status), headers }
}

function write (req: IncomingMessage, res: ServerResponse, id: string, answer: Answer & { readonly headers?: Readonly<Record<string, string>> }): void {
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
