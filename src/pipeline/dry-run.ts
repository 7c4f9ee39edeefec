// Runs the request phase of the pipeline without effects: no upstream is called, and nothing is held, charged or
// counted. The phase is that of a real exchange (`runRequestPhase`), with a ledger that changes nothing.
import type { LeasedSnapshot, Routed } from '../core/endpoint.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import { type ClientRequest, type DryRun, Exchange, type Outcome } from '../core/exchange.ts'
import type { Body } from '../core/facts.ts'
import { DryLedger } from './dry-ledger.ts'
import { callHook } from '../core/hooks.ts'
import { unrouted } from '../core/not-found.ts'
import { runRequestPhase, type Turn } from './pipeline.ts'
import type { Reply } from '../core/reply.ts'
import { createRequestId } from '../base/request-id.ts'

export interface Question extends DryRun, Pick<ClientRequest, 'method' | 'headers' | 'address'> {
  /** with its query */
  readonly path: string
  /** parsed, or what parses it for the exchange; undefined: no body */
  readonly body: Body | ((exchange: Routed) => Promise<Body>) | undefined
}

/** One hook call of the request phase. */
export interface Step {
  /** the plugin, or "core" for the body */
  readonly who: string
  readonly hook: Parameters<Turn>[1]
  /** only the last step may be other than `passed`; `failed`: an unexpected throw */
  readonly verdict: 'passed' | 'answered' | 'refused' | 'failed'
  /** names of the facts written in this step */
  readonly wrote: readonly string[]
}

export interface Rehearsal {
  /** the exchange at the end of the phase: its facts, its request, the headers of its answer */
  readonly exchange: Exchange
  readonly steps: readonly Step[]
  /** the error that the client would get; undefined: an answer */
  readonly error: GatewayError | undefined
  /** the answer of a plugin, in the place of an upstream's */
  readonly reply: Reply | undefined
}

/**
 * @param snapshot leased by the caller until this has answered
 * @throws {GatewayError} not_found, method_not_allowed: no route matches
 */
export async function rehearse (
  snapshot: LeasedSnapshot,
  { owner, within, turn, method, path: address, body, ...received }: Question
): Promise<Rehearsal> {
  const mark = address.indexOf('?')
  const path = mark === -1 ? address : address.slice(0, mark)
  const route = snapshot.routes.find(method, path)
  if (route === undefined) {
    throw unrouted(method, path, snapshot.routes.methodsAt(path), false)
  }
  const exchange = new Exchange(within?.id ?? createRequestId(), route, { ...received, method, path,
    query: mark === -1 ? '' : address.slice(mark) }, snapshot, new DryLedger(snapshot.ledger),
  { owner, ...(within !== undefined && { within }), ...(turn !== undefined && { turn }) })
  exchange.bodyBytes = within?.bodyBytes ?? Infinity
  const turns: { readonly who: string, readonly hook: Step['hook'], readonly facts: readonly string[] }[] = []
  let reply: Reply | undefined
  let error: GatewayError | undefined
  try {
    const answered = await runRequestPhase(exchange, {
      async readBody () {
        if (body === undefined) {
          throw new GatewayError('bad_request', { message: 'The request body is empty. Send a JSON object.' })
        }
        return isReader(body) ? await body(exchange) : body
      }
    }, undefined, (who, hook) => { turns.push({ who, hook, facts: exchange.factNames }) })
    if (answered !== undefined) reply = answered
    if (reply?.kind === 'bytes') reply.bytes.destroy()
  } catch (thrown) {
    error = toGatewayError(thrown)
  }
  const all = exchange.factNames
  const last = error === undefined
    ? reply === undefined ? 'passed' : 'answered'
    : error.row === 'server_error'
    ? 'failed'
    : 'refused'
  const steps = turns.map(({ who, hook, facts }, i): Step => ({
    who,
    hook,
    verdict: i === turns.length - 1 ? last : 'passed',
    wrote: (turns[i + 1]?.facts ?? all).filter((name) => !facts.includes(name))
  }))
  await end(exchange, error ?? new GatewayError('client_closed'))
  return { exchange, steps, error, reply }
}

function isReader<Reader> (body: Body | Reader): body is Reader {
  return typeof body === 'function'
}

/** Ends the exchange as a failed one, so that plugins release what they have taken. */
async function end (exchange: Exchange, error: GatewayError): Promise<void> {
  const outcome: Outcome = { kind: 'failed', error }
  try {
    await callHook(exchange.settle(outcome), 'onSettle', exchange)
  } catch (err) {
    exchange.snapshot.services.log.error({ request_id: exchange.id, err }, 'a dry run could not be ended')
  }
  await exchange.finish(outcome)
}
