// POST /v1/quote: the most that a request would cost, and what its key has left to pay it with. The request in the body
// goes through the pipeline as a dry run; the quote itself is an ordinary request: authenticated, and counted. Calls no
// upstream, costs nothing.
import { suggest } from '../config/check/suggest.ts'
import { viewCost, viewLimits, viewPrices } from '../catalog/cost-view.ts'
import { GatewayError } from '../errors.ts'
import type { Routed } from '../core/endpoint.ts'
import { ApiKey, Body, Model, WorstCase } from '../core/facts.ts'
import { rehearse } from '../pipeline/dry-run.ts'
import { json, type JsonReply } from '../core/reply.ts'
import { isGiven, isRecord } from '../base/json.ts'

const FIELDS = ['path', 'body']

/** Headers of the quote's own body, not of the quoted request. */
const OF_THIS_BODY = /^(?:content-|transfer-encoding$|expect$)/

/**
 * Names no upstream.
 * @throws {GatewayError} the refusal of the request itself, where its price is not known by then; otherwise the refusal
 * is part of the quote
 */
export async function quote (exchange: Routed): Promise<JsonReply> {
  const { path, body } = read(exchange.get(Body))
  const owner = exchange.find(ApiKey)
  // A pipeline without auth: there is no key whose prices apply.
  if (owner === undefined) throw new GatewayError('authentication_error')
  const { received: { headers, address }, snapshot } = exchange
  const { exchange: asked, error, reply } = await rehearse(snapshot, {
    owner, within: exchange, method: 'POST', path, body, address,
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_THIS_BODY.test(name)))
  })
  if (error !== undefined && (error.row === 'server_error' || asked.find(WorstCase) === undefined)) throw error
  return json({
    object: 'quote',
    path,
    model: asked.find(Model)?.id ?? null,
    ...(reply === undefined ? viewCost(asked) : { max_cost_usd: '0' }),
    prices: reply === undefined ? viewPrices(asked) : [],
    allowed: error === undefined,
    refusal: error === undefined
      ? null
      : { code: error.code, type: error.type, message: error.message,
        ...(error.retryAfter !== undefined && { retry_after: error.retryAfter }) },
    limits: await viewLimits(asked)
  })
}

/** @throws {GatewayError} */
function read (question: Body): { readonly path: string, readonly body: Body | undefined } {
  const { path, body } = question
  const unknown = Object.keys(question).find((name) => !FIELDS.includes(name))
  if (path === undefined || unknown !== undefined) {
    const name = (unknown ?? '').slice(0, 40)
    const near = suggest(name, FIELDS) ?? ''
    throw new GatewayError('invalid_request', {
      message: 'A quote is asked for with "path" and "body", such as {"path": "/v1/messages", "body": ' +
        `{"model": …}}${path === undefined ? '' : `; there is no field ${JSON.stringify(name)} (${near})`}.`,
      param: path === undefined ? 'path' : name
    })
  }
  if (typeof path !== 'string' || !path.startsWith('/')) {
    throw new GatewayError('invalid_request', {
      message: 'path must be the address of the request, such as "/v1/messages".',
      param: 'path'
    })
  }
  if (!isGiven(body)) return { path, body: undefined }
  if (!isRecord(body)) {
    throw new GatewayError('invalid_request', {
      message: 'body must be the JSON object that would be sent to that address.',
      param: 'body'
    })
  }
  return { path, body }
}
