// Asks the pipeline what it would do with a request, and does none of it: nobody is called, nothing is held, charged or
// counted. Goes the same way down as a real exchange (`runRequestPhase`), with a ledger that changes nothing.
import type { LeasedSnapshot } from '../core/endpoint.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import { type ClientRequest, type DryRun, Exchange, type Outcome } from '../core/exchange.ts'
import type { Body } from '../core/facts.ts'
import { DryLedger } from './dry-ledger.ts'
import { callHook } from '../core/hooks.ts'
import { nowhere } from '../core/not-found.ts'
import { runRequestPhase, type Turn } from './pipeline.ts'
import type { Reply } from '../core/reply.ts'
import { createRequestId } from '../base/request-id.ts'

export interface Question extends DryRun, Pick<ClientRequest, 'method' | 'headers' | 'address'> {
  /** with its query, if it has one */
  readonly path: string
  /** parsed; undefined: the request has none */
  readonly body: Body | undefined
}

/** One turn on the way down. */
export interface Step {
  /** a plugin, or "core" with the body */
  readonly who: string
  readonly hook: Parameters<Turn>[1]
  /** the last step only may be another than `passed`; `failed`: it threw what it never should */
  readonly verdict: 'passed' | 'answered' | 'refused' | 'failed'
  /** names of facts */
  readonly wrote: readonly string[]
}

export interface Rehearsal {
  /** as it stood at the end: its facts, its request, the headers of its answer */
  readonly exchange: Exchange
  readonly steps: readonly Step[]
  /** what the client would be told; undefined: an answer */
  readonly error: GatewayError | undefined
  /** of the plugin that would answer itself */
  readonly reply: Reply | undefined
}

/**
 * @param snapshot leased by the caller until this has answered
 * @throws {GatewayError} not_found, method_not_allowed: no route takes it
 */
export async function rehearse (
  snapshot: LeasedSnapshot,
  { owner, within, method, path: address, body, ...received }: Question
): Promise<Rehearsal> {
  const mark = address.indexOf('?')
  const path = mark === -1 ? address : address.slice(0, mark)
  const route = snapshot.routes.find(method, path)
  if (route === undefined) {
    const methods = snapshot.routes.methodsAt(path)
    throw methods.length === 0 ? nowhere(method, path, false)
      : new GatewayError('method_not_allowed', {
        message: `This address takes ${methods.join(', ')}, not ${method}.`,
        headers: { allow: methods.join(', ') }
      })
  }
  const exchange = new Exchange(within?.id ?? createRequestId(), route, { ...received, method, path,
    query: mark === -1 ? '' : address.slice(mark) }, snapshot, new DryLedger(snapshot.ledger),
  { owner, ...(within !== undefined && { within }) })
  const turns: { readonly who: string, readonly hook: Step['hook'], readonly facts: number }[] = []
  let reply: Reply | undefined
  let error: GatewayError | undefined
  try {
    const answered = await runRequestPhase(exchange, {
      async readBody () {
        if (body === undefined) {
          throw new GatewayError('bad_request', { message: 'The request body is empty. Send a JSON object.' })
        }
        return body
      }
    }, undefined, (who, hook) => { turns.push({ who, hook, facts: exchange.factNames.length }) })
    if (answered !== undefined) reply = answered
    if (reply?.kind === 'bytes') reply.bytes.destroy()
  } catch (thrown) {
    error = toGatewayError(thrown)
  }
  const wrote = exchange.factNames
  const last = error === undefined
    ? reply === undefined ? 'passed' : 'answered'
    : error.row === 'server_error'
    ? 'failed'
    : 'refused'
  const steps = turns.map(({ who, hook, facts }, i): Step => ({
    who, hook, verdict: i === turns.length - 1 ? last : 'passed', wrote: wrote.slice(facts, turns[i + 1]?.facts)
  }))
  await end(exchange, error ?? new GatewayError('client_closed'))
  return { exchange, steps, error, reply }
}

/** Whoever has taken something gives it back, as after any request that was not answered. */
async function end (exchange: Exchange, error: GatewayError): Promise<void> {
  const outcome: Outcome = { kind: 'failed', error }
  try {
    await callHook(exchange.settle(outcome), 'onSettle', exchange)
  } catch (err) {
    exchange.snapshot.services.log.error({ request_id: exchange.id, err }, 'a dry run could not be ended')
  }
  await exchange.finish(outcome)
}
