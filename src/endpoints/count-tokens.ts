// POST /v1/messages/count_tokens, and input_tokens of the Responses API: asks the provider that would answer, where it
// can count, and estimates everywhere else. Costs nothing.
import type { IncomingHttpHeaders } from 'node:http'
import { fieldOf, parseOr } from '../base/json.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import type { Routed } from '../core/endpoint.ts'
import { saysNoMoney } from '../core/credential-fault.ts'
import { type Attempt, Plan } from '../core/facts.ts'
import { nameFailure, callHook, unwaited } from '../core/hooks.ts'
import type { UpstreamFailure, UpstreamRequest } from '../core/plugin.ts'
import { json, type JsonReply } from '../core/reply.ts'
import { isErrorBody } from '../core/vendor-error.ts'
import { acquire } from '../upstream/limits/acquire.ts'
import { UpstreamCall } from '../upstream/transport/call.ts'
import { traceFor } from '../upstream/transport/headers.ts'
import type { Permit } from '../upstream/limits/permit.ts'
import { dialectOf } from '../upstream/dialects/index.ts'
import { EncodedRequest, encodeLarge, encodeRequest } from '../upstream/transport/encode-body.ts'
import { upstreamsOf } from '../upstream/pool.ts'
import { estimateInputTokens } from './input-tokens.ts'

/** Most bytes of an answer; a count has twenty, an error some hundred. */
const REPLY_LIMIT = 64 * 1024

/** The header `x-gateway-count` says whether the provider or the gateway has counted. */
export async function countTokens (exchange: Routed): Promise<JsonReply> {
  if (!Array.isArray(exchange.request.body['messages'])) {
    throw new GatewayError('invalid_request', { message: 'The field "messages" must be an array of messages.',
      param: 'messages' })
  }
  const attempt = exchange.find(Plan)?.attempts[0]
  // An endpoint has the time of a hook: a slow provider must leave enough of it for an estimate.
  const limit = exchange.snapshot.config.hook_timeout / 2
  const provided = attempt === undefined ? undefined : await passOn(exchange, attempt, limit)
  return provided === undefined
    ? json({ input_tokens: await estimateInputTokens(exchange, attempt) }, { 'x-gateway-count': 'estimated' })
    : json({ input_tokens: provided }, { 'x-gateway-count': 'provider' })
}

/** The same for a body that was translated, in the words of the Responses API. */
export async function countInput (exchange: Routed): Promise<JsonReply> {
  const { body, headers } = await countTokens(exchange)
  return json({ object: 'response.input_tokens', input_tokens: fieldOf(body, 'input_tokens') }, headers)
}

/**
 * Undefined: the provider does not count, or could not now.
 * @throws {GatewayError} the request itself is wrong, or the client has left
 */
async function passOn (exchange: Routed, attempt: Attempt, ms: number): Promise<number | undefined> {
  const { upstreams, services } = exchange.snapshot
  const { queues, health } = upstreamsOf(services)
  const upstream = upstreams.get(attempt.upstream)!
  const { countTokens: dialect } = dialectOf(upstream)
  if (!upstream.config.count_tokens || dialect === undefined) return undefined
  // A count is not worth a wait, and must not take the place of a message as the probe of a target.
  if (!queues.hasRoom(upstream) || !health.isWell(upstream, attempt.model)) return undefined
  const permit = await acquire(exchange, upstream, attempt.model)
  if (permit === undefined) return undefined
  try {
    const request = exchange.large === undefined
      ? dialect.encode(exchange, attempt, permit.upstream)
      : new EncodedRequest(await encodeLarge(exchange, attempt, permit.upstream, 'count'))
    Object.assign(request.headers, traceFor(permit.upstream, exchange))
    for (const { plugin, call } of exchange.route.hooks.perAttempt) {
      const own = unwaited(call(attempt, exchange), exchange)
      const told = callHook(own.onUpstreamRequest?.(request), plugin, exchange)
      if (told !== undefined) await told
    }
    exchange.throwIfAborted()
    const { record } = exchange
    if (record.attempts++ === 0) record.dispatched_at = performance.now()
    exchange.lastAttempt = attempt
    exchange.credential = permit.credential
    return await ask(exchange, permit, request, dialect.decode, ms)
  } catch (thrown) {
    if (exchange.abortReason !== undefined || !toGatewayError(thrown).retryable) throw thrown
    return undefined
  } finally {
    // Without another verdict: vendors limit and forbid counts separately, and a client can cause any number of them.
    permit.leave()
  }
}

/** @throws {GatewayError} as named by error-normalize */
function ask (
  exchange: Routed,
  permit: Permit,
  request: UpstreamRequest,
  decode: (body: unknown) => number,
  ms: number
): Promise<number> {
  const { upstream } = permit
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  let call: UpstreamCall | undefined = undefined             // undefined: it failed before it was sent
  let status = 0
  let headers: IncomingHttpHeaders = {}
  const chunks: Buffer[] = []
  let size = 0

  function end (): void {
    exchange.record.upstream_end_at = performance.now()
    clearTimeout(timer)
    exchange.offAbort(leave)
    call?.abort()
  }
  function leave (): void {
    end()
    reject(exchange.abortReason)
  }
  function fail (failure: UpstreamFailure): void {
    end()
    const error = nameFailure(failure, exchange, upstream.name)
    // An account without money is out for everything: the next message would find out at the price of a failure.
    if (saysNoMoney(failure)) permit.fail(failure, error)
    exchange.snapshot.services.metrics.attempt(upstream.name, error.row)
    reject(error)
  }
  function read (): void {
    const body = parseOr(Buffer.concat(chunks).toString())
    if (status >= 300) { fail({ kind: 'status', status, headers, body }); return }
    if (isErrorBody(body)) { fail({ kind: 'error_event', body }); return }
    let tokens: number
    try {
      tokens = decode(body)
    } catch (cause) {
      fail({ kind: 'malformed', cause })
      return
    }
    end()
    exchange.snapshot.services.metrics.attempt(upstream.name, 'ok')
    resolve(tokens)
  }

  const { method, path, headers: sent, body } = encodeRequest(request, exchange) // may throw: before anything waits
  const timer = setTimeout(() => {
    fail({ kind: 'first_byte_timeout', cause: new Error(`the upstream had not counted after ${ms} ms`) })
  }, ms)
  exchange.onAbort(leave)
  try {
    call = new UpstreamCall(upstream, { method, path, headers: sent, body }, {
      onHead (itsStatus, itsHeaders) { status = itsStatus; headers = itsHeaders },
      onData (chunk) {
        chunks.push(chunk)
        size += chunk.length
        if (size <= REPLY_LIMIT) return
        if (status >= 300) read()                               // the rest of an error is not worth waiting for
        else fail({ kind: 'malformed', cause: new Error(`the answer is longer than ${REPLY_LIMIT} bytes`) })
      },
      onEnd: read,
      // The status of an error is enough, whatever happens to its body.
      onFailure (failure) { if (status >= 300) read(); else fail(failure) }
    })
  } catch (thrown) {                                          // the request is over, and its memory another's
    end()
    throw thrown
  }
  return promise
}
