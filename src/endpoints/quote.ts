// POST /v1/quote: the most that a request would cost, and what its key has left to pay it with. The request in the body
// goes through the pipeline as a dry run; the quote itself is an ordinary request: authenticated, and counted. Calls no
// upstream, costs nothing.
import { viewCost, viewLimits, viewPrices } from '../catalog/cost-view.ts'
import { GatewayError } from '../errors.ts'
import type { Routed } from '../core/endpoint.ts'
import { ApiKey, Body, Model, WorstCase } from '../core/facts.ts'
import { rehearse } from '../pipeline/dry-run.ts'
import { json, type JsonReply } from '../core/reply.ts'
import { readQuestion } from './question.ts'

/** Headers of the quote's own body, not of the quoted request. */
const OF_THIS_BODY = /^(?:content-|transfer-encoding$|expect$)/

/** The quoted body, which may be read as its own route says. */
async function openBody (asked: Routed): Promise<Body> {
  return await asked.snapshot.bodies!.openField('body', asked, asked.route.readsInThreads)
}

/**
 * Names no upstream.
 * @throws {GatewayError} the refusal of the request itself, where its price is not known by then; otherwise the refusal
 * is part of the quote
 */
export async function quote (exchange: Routed): Promise<JsonReply> {
  const { path, hasBody } = await readQuestion(exchange)
  const body = !hasBody ? undefined : exchange.large === undefined ? exchange.get(Body)['body'] as Body : openBody
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
