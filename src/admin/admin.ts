// The admin listener: health, metrics, the admin API (api/), and the pages that use it (web/). Answers always,
// whatever the state of the parts that it asks.
import { timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { setImmediate } from 'node:timers/promises'
import { GatewayError, toGatewayError } from '../errors.ts'
import { shapeError } from '../protocols/error-shape.ts'
import { commonStyle } from '../protocols/index.ts'
import { createRequestId } from '../base/request-id.ts'
import { mark } from '../base/stall-marks.ts'
import type { Networks } from '../base/ip-address.ts'
import type { Directory } from '../accounts/directory.ts'
import { digestOf } from '../accounts/digests.ts'
import { clientAddress } from '../core/client-address.ts'
import type { Services } from '../core/services.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { AdminApi, Traits } from './api/api.ts'
import { EVENTS } from './api/openapi.ts'
import type { ApiAnswer, ApiRequest, Person } from './api/operation.ts'
import { Refusal, refusalBody } from './api/refusal.ts'
import type { Timer } from '../base/timer.ts'
import { type Answer, asJson, type Follow } from './answer.ts'
import { parseAllBut, parseJson, readBytes } from './body.ts'
import { begin, writeBytes } from './byte-answer.ts'
import { Costly, LARGE } from './costly.ts'
import { EventStream } from './event-stream.ts'
import { isMachineName } from './web/hosts.ts'
import { Sessions } from './web/sessions.ts'
import { type SignedIn, Web } from './web/web.ts'
import { Strangers, tooManyGuesses } from './wrong-tokens.ts'

export interface AdminParts {
  readonly services: Services & {
    readonly metrics: Metrics
    readonly directory: Pick<Directory, 'findToken' | 'activeToken' | 'noteUse'>
  }
  /** the metrics in Prometheus's format */
  readonly metrics: () => Promise<string>
  /** why load balancers should send requests elsewhere; empty: ready */
  readonly reasons: () => readonly string[] | Promise<readonly string[]>
  /** of gateway.yaml, or generated: an owner's; '': there is none */
  readonly token: string
  /** whose X-Forwarded-For is believed; absent: nobody's */
  readonly trusted?: Networks
  readonly api: Pick<AdminApi, 'knows' | 'traits' | 'answer'>
  /** who is signed in to the pages; absent: nobody yet */
  readonly sessions?: Sessions
  /** server.admin.hosts */
  readonly hosts?: readonly string[]
  /** of who waits; for tests */
  readonly timer?: Timer
}

interface Asker {
  readonly by: Person
  /** false: the token was given too long ago for what is grave */
  readonly isProved: boolean
  /** Whether it still may ask. To be called later is no use of a session. */
  isKnown (): boolean
}

type Parsed = Partial<Pick<ApiRequest, 'body' | 'cut'>>

const METHODS = ['GET', 'HEAD']
const OF_WORKER = /^worker \d+: /
/** Proxies must not gather events until there are many. */
const UNGATHERED = { 'x-accel-buffering': 'no' }

export function adminHandler (
  { services, metrics, reasons, token, trusted = () => false, api, sessions = new Sessions(services.now),
    hosts = [], timer }: AdminParts
): (req: IncomingMessage, res: ServerResponse) => void {
  /** those that need no token */
  const addresses = new Map<string, (query: URLSearchParams) => Answer | Promise<Answer>>([
    // This answer alone shows that the event loop runs.
    ['/healthz', () => asJson({ status: 'ok' })],
    // As the API server of Kubernetes has it: a balancer may exclude a reason that all gateways share.
    ['/readyz', async (query) => {
      const excluded = new Set(query.getAll('exclude'))
      const found = (await reasons()).filter((reason) => !excluded.has(reason.replace(OF_WORKER, '')))
      return asJson({ ready: found.length === 0, reasons: found }, found.length === 0 ? 200 : 503)
    }],
    ['/metrics', async () => {
      mark('metrics')
      return { status: 200, type: services.metrics.contentType, text: await metrics() }
    }]
  ])
  const strangers = new Strangers(services, timer)
  const costly = new Costly()
  const expected = digestOf(token)
  /** in the audit log: identifies the token, and does not help to guess it */
  const owner = { who: `admin-token ${expected.toString('hex').slice(0, 8)}`, role: 'owner' } as const

  const web = new Web({
    sessions,
    hosts,
    async check (given, req, path) {
      const address = addressOf(req)
      const digest = digestOf(given)
      strangers.check(address, path, digest)
      const person = /^\S+$/.test(given) ? find(digest) : undefined
      if (person === undefined) await noteGuess(address, path)
      else strangers.noteRight(address, digest)
      return person && (person.token ?? null)
    },
    checkGuesses (req, path, code) {
      strangers.check(addressOf(req), path, code === undefined ? undefined : digestOf(code))
    },
    async noteWrong (req, path) { await noteGuess(addressOf(req), path) },
    person: (id) => id === null ? owner : personOf(services.directory.activeToken(id))
  })

  /** Resolves when the guess may be answered. @throws {Refusal} too many wait */
  async function noteGuess (address: string, path: string): Promise<void> {
    if (!await strangers.note(address, path)) throw tooManyGuesses()
  }

  async function answer (req: IncomingMessage, id: string, signal: AbortSignal): Promise<Answer> {
    const work = { id }
    mark('admin', work)
    const path = pathOf(req)
    if (web.knows(path)) return await web.answer(req, path)
    if (api.knows(path)) return await askApi(path, req, await identify(req, path), work, signal)
    const address = addresses.get(path)
    if (address === undefined) {
      throw new GatewayError('not_found', { message: 'There is nothing at this address of the admin listener.' })
    }
    if (!METHODS.includes(req.method ?? '')) {
      throw new GatewayError('method_not_allowed', { headers: { allow: METHODS.join(', ') } })
    }
    if (path === '/metrics' && !isMachineName(req.headers.host, hosts)) throw unknownHost()
    return await address(queryOf(req, path))
  }

  async function askApi (
    path: string, req: IncomingMessage, asker: Asker, work: { readonly id: string }, signal: AbortSignal
  ): Promise<Answer> {
    const { by, isProved, isKnown } = asker
    const method = req.method ?? ''
    const query = queryOf(req, path)
    const ask = async ({ body, cut }: Parsed = {}): Promise<Answer> => {
      // Its client may have left while it waited.
      if (signal.aborted) throw new GatewayError('client_closed')
      mark('admin', work)
      return await printed(await api.answer({ method, path, query, ifMatch: req.headers['if-match'],
        accept: req.headers.accept, body, cut, by, isProved, signal }), method, isKnown)
    }
    const traits = api.traits(path, method)
    const token = by.token ?? ''
    if (!METHODS.includes(method)) return await askWithBody(req, traits, token, ask)
    if (!traits.isCostly) return await ask()
    const leave = costly.enter(token, 'read')
    return await costly.run(token, async () => await ask()).finally(leave)
  }

  async function askWithBody (
    req: IncomingMessage, { bodyLimit: limit, isStream, isCostly, cuts }: Traits, token: string,
    ask: (parsed: Parsed) => Promise<Answer>
  ): Promise<Answer> {
    const length = req.headers['content-length']
    // A body of unknown length may become a large one.
    const mayBeLarge = limit > LARGE && (length === undefined ? req.headers['transfer-encoding'] !== undefined
      : Number(length) > LARGE)
    const leave = mayBeLarge || isCostly ? costly.enter(token, mayBeLarge ? 'body' : 'read') : undefined
    try {
      const chunks = await readBytes(req, limit)
      const size = chunks.reduce((sum, chunk) => sum + chunk.length, 0)
      const bytes = size > LARGE ? size : undefined
      const parse = async (): Promise<Parsed> => size === 0 ? {}
        : bytes !== undefined && cuts !== undefined ? await parseAllBut(cuts, chunks)
        : { body: await parseJson(chunks) }
      if (bytes === undefined && !isCostly) return await ask(await parse())
      // What waits for an upstream waits outside.
      if (isStream) return await ask(await costly.run(token, parse, bytes))
      return await costly.run(token, async () => {
        const parsed = await parse()
        if (bytes !== undefined) await setImmediate()
        return await ask(parsed)
      }, bytes)
    } finally {
      leave?.()
    }
  }

  /** @throws {GatewayError} nobody whose token is known */
  async function identify (req: IncomingMessage, path: string): Promise<Asker> {
    const address = addressOf(req)
    // A request without a token is no guess.
    const digest = req.headers.authorization === undefined ? undefined : digestOf(bearerOf(req) ?? '')
    if (digest !== undefined) strangers.check(address, path, digest)
    const look = (isUse?: boolean): SignedIn | undefined => {
      if (digest === undefined) return web.identify(req, isUse)
      const person = find(digest)
      return person && { person, isProved: true }
    }
    const found = look()
    if (found === undefined) {
      if (digest !== undefined) await noteGuess(address, path)
      throw new GatewayError('authentication_error', {
        message: 'The admin token is missing, wrong, expired or revoked. Send one as "Authorization: Bearer TOKEN".'
      })
    }
    if (digest !== undefined) strangers.noteRight(address, digest)
    return { by: { ...found.person, address }, isProved: found.isProved, isKnown: () => look(false) !== undefined }
  }

  function addressOf ({ headers, socket: { remoteAddress = '' } }: IncomingMessage): string {
    return clientAddress({ address: remoteAddress, headers }, trusted) ?? remoteAddress
  }

  /** Digests have one length, so the comparison reveals nothing about the token. */
  function find (digest: Buffer): Omit<Person, 'address'> | undefined {
    if (token !== '' && timingSafeEqual(digest, expected)) return owner
    return personOf(services.directory.findToken(digest))
  }

  function personOf (found: ReturnType<Directory['findToken']>): Omit<Person, 'address'> | undefined {
    if (found === undefined) return undefined
    services.directory.noteUse(found.id)
    return { who: found.record.name, token: found.id, role: found.record.role }
  }

  return (req, res) => {
    const id = createRequestId()
    res.on('error', () => {})                     // the client left
    req.on('error', () => {})
    const gone = new AbortController()
    res.once('close', () => { gone.abort() })
    answer(req, id, gone.signal).finally(() => {
      req.resume()
    }).catch((thrown: unknown) => shape(thrown, id, services)).then(async (answered) => {
      await write(req, res, id, web.knows(pathOf(req)) ? web.guarded(answered) : answered)
    })
      .catch((err: unknown) => {
        services.log.error({ err, request_id: id }, 'the admin listener could not answer')
        res.destroy()
      })
  }
}

/** Within the turn of its operation: printing a long list takes as long as gathering it. */
async function printed (
  { status, body, type, version, place }: ApiAnswer, method: string, isKnown: () => boolean
): Promise<Answer> {
  if (type !== undefined) {
    if (typeof body === 'string') return { status, type, text: body }
    const bytes = body as AsyncGenerator<Uint8Array>
    return { status, type, text: '', ...(method !== 'HEAD' && { bytes: await begin(bytes) }) }
  }
  if (place !== undefined) return { status, type: EVENTS, text: '', follow: { place, isKnown } }
  return { ...asJson(body, status), ...(version !== undefined && { headers: { etag: `"${version}"` } }) }
}

function bearerOf ({ headers: { authorization = '' } }: IncomingMessage): string | undefined {
  return /^bearer[ \t]+(\S+)$/i.exec(authorization.trim())?.[1]
}

function pathOf ({ url = '' }: IncomingMessage): string {
  return url.split('?', 1)[0]!
}

function queryOf ({ url = '' }: IncomingMessage, path: string): URLSearchParams {
  return new URLSearchParams(url.slice(path.length + 1))
}

function unknownHost (): Refusal {
  return new Refusal('misdirected', 'Metrics are not answered under this name: a web site could have it led here. Use ' +
    'an IP address, or add the name to server.admin.hosts in gateway.yaml.')
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

async function write (req: IncomingMessage, res: ServerResponse, id: string, answer: Answer): Promise<void> {
  if (answer.follow !== undefined) { writeEvents(req, res, id, answer.follow); return }
  if (answer.bytes !== undefined) {
    res.writeHead(answer.status, { 'content-type': answer.type, 'cache-control': 'no-store', connection: 'close',
      ...(answer.type === EVENTS && UNGATHERED), 'x-request-id': id, 'request-id': id })
    await writeBytes(res, answer.bytes)
    return
  }
  const body = typeof answer.text === 'string' ? Buffer.from(answer.text) : answer.text
  res.writeHead(answer.status, {
    'cache-control': 'no-store',
    ...answer.headers,
    'content-type': answer.type,
    'content-length': body.length,
    'x-request-id': id,
    'request-id': id
  })
  res.end(req.method === 'HEAD' ? undefined : body)
}

function writeEvents (req: IncomingMessage, res: ServerResponse, id: string, { place, isKnown }: Follow): void {
  res.on('close', () => { place.leave() })
  // A client that left before has closed it already.
  if (res.destroyed) { place.leave(); return }
  res.writeHead(200, { 'content-type': EVENTS, 'cache-control': 'no-store', ...UNGATHERED,
    'x-request-id': id, 'request-id': id })
  if (req.method === 'HEAD') { res.end(); return }
  place.listen(new EventStream(res, isKnown))
}
