// The admin API behind its listener: finds the operation, checks the body's shape, answers. Knows no sockets: without a
// running gateway, commands call it directly.
import { version as gatewayVersion } from '../../base/package.ts'
import { UnknownOutcome } from '../../accounts/directory.ts'
import { accountOperations } from './accounts.ts'
import { anything } from './answers.ts'
import { bookOperations } from './books.ts'
import { configOperations } from './config.ts'
import { eventOperations } from './events.ts'
import { isBody, keyOperations } from './keys.ts'
import { fleetOperations } from './fleet.ts'
import { linkOperations } from './links.ts'
import { openapi } from './openapi.ts'
import { explainOperations } from './explain.ts'
import {
  type ApiAnswer, type ApiParts, type ApiRequest, BODY_LIMIT, checkRole, type Operation, readQuery
} from './operation.ts'
import { priceOperations } from './prices.ts'
import { Refusal } from './refusal.ts'
import { requestOperations } from './requests.ts'
import { seriesOperations } from './series.ts'
import { storeOperations } from './store.ts'
import { summaryOperations } from './summary.ts'
import { tokenOperations } from './tokens.ts'
import { trialOperations } from './trial.ts'
import { upstreamOperations } from './upstreams.ts'
import { videoOperations } from './videos.ts'

const PREFIX = '/admin/v1'

interface Routed {
  readonly pattern: readonly string[]
  readonly byMethod: ReadonlyMap<string, Operation>
}

/** What its listener has to know of an operation before it answers. */
export interface Traits {
  /** most bytes of a body */
  readonly bodyLimit: number
  /** Its answer may wait for an upstream, or follow what happens. */
  readonly isStream: boolean
  readonly isCostly: boolean
  readonly cuts: string | undefined
}

export class AdminApi {
  /** describes the API, in OpenAPI 3.1 */
  readonly document: Readonly<Record<string, unknown>>
  readonly #routes: readonly Routed[]

  constructor (parts: ApiParts) {
    const operations = [...keyOperations(parts), ...accountOperations(parts), ...bookOperations(parts),
      ...seriesOperations(parts), ...tokenOperations(parts), ...explainOperations(parts), ...fleetOperations(parts),
      ...requestOperations(parts.requests),
      ...(parts.links === undefined ? [] : linkOperations(parts.links)),
      ...(parts.upstreams === undefined ? [] : upstreamOperations(parts.upstreams, parts.services)),
      ...priceOperations(parts), ...videoOperations(parts),
      ...(parts.running === undefined ? [] : [...configOperations(parts.running),
        ...summaryOperations(parts, parts.running), ...eventOperations(parts, parts.running),
        ...storeOperations(parts.services.directory, parts.running), ...trialOperations(parts, parts.running.api)])]
    operations.push({
      method: 'GET', path: '/openapi.json', name: 'getOpenapi', summary: 'This document.',
      gives: anything('A document of OpenAPI 3.1.'),
      answer: () => ({ status: 200, body: this.document })
    })
    this.document = openapi(operations, gatewayVersion)
    this.#routes = [...new Set(operations.map(({ path }) => path))].map((path) => ({
      pattern: (PREFIX + path).split('/'),
      byMethod: new Map(
        operations.filter((operation) => operation.path === path).map((operation) => [operation.method, operation])
      )
    }))
  }

  knows (path: string): boolean {
    return this.#find(path) !== undefined
  }

  traits (path: string, method: string): Traits {
    const operation = this.#find(path)?.route.byMethod.get(getOf(method))
    return { bodyLimit: operation?.bodyLimit ?? BODY_LIMIT, isStream: operation?.isStream === true,
      isCostly: operation?.isCostly === true, cuts: operation?.cuts }
  }

  /** @throws {Refusal} what is wrong, and what to do */
  async answer (request: ApiRequest): Promise<ApiAnswer> {
    const found = this.#find(request.path)
    if (found === undefined) {
      throw new Refusal('not_found',
        'There is nothing at this address. GET /admin/v1/openapi.json lists what there is.')
    }
    const { route, id } = found
    const operation = route.byMethod.get(getOf(request.method))
    if (operation === undefined) {
      const allow = [...route.byMethod.keys()].join(', ')
      throw new Refusal('method_not_allowed', `This address takes ${allow} only.`, { headers: { allow } })
    }
    checkRole(operation, request.by)
    if (operation.isGrave === true && request.isProved === false) {
      throw new Refusal('proof_needed', 'Give your token again for this: you gave it more than five minutes ago.')
    }
    if (operation.query === undefined) readQuery(request.query, [])
    // A rotation without a body is one without grace.
    const body = operation.takes === undefined ? undefined : request.body ?? {}
    if (operation.takes !== undefined && !isBody(body)) {
      throw new Refusal('invalid_request', 'The body must be a JSON object.')
    }
    try {
      return await operation.answer({ ...request, body, id })
    } catch (thrown) {
      if (!(thrown instanceof UnknownOutcome)) throw thrown
      throw new Refusal('outcome_unknown',
        `It is not known whether this was changed: ${thrown.message}. Read it again, ` +
        'and repeat the change if it is not there.',
        { cause: thrown, headers: { 'retry-after': '2' } })
    }
  }

  #find (path: string): { readonly route: Routed, readonly id: string } | undefined {
    const steps = path.split('/')
    for (const route of this.#routes) {
      const { pattern } = route
      let id = ''
      if (
        pattern.length !== steps.length ||
        !pattern.every((step, i) => step === '{id}' ? steps[i] !== '' : step === steps[i])
      ) continue
      const at = pattern.indexOf('{id}')
      if (at !== -1) {
        try { id = decodeURIComponent(steps[at]!) } catch { return undefined }
      }
      return { route, id }
    }
    return undefined
  }
}

function getOf (method: string): string {
  return method === 'HEAD' ? 'GET' : method
}
