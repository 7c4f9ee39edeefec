// Health of upstreams as the processes of this gateway see it: targets and credentials that are not used at present,
// and for how long.
import type { FailedAttempt } from '../../core/upstream.ts'
import { type CredentialView, nameOf } from '../../upstream/limits/health.ts'
import { choice, flag, instant, list, number, object, orNull, page, text, whole } from './answers.ts'
import {
  type ApiAnswer, type ApiParts, type Call, type Operation, pageOf, readQuery, type UpstreamParts
} from './operation.ts'
import { Refusal } from './refusal.ts'
import { credentialReset, judge } from './schemas.ts'

const QUERY = ['after', 'limit']

const upstream = object('Upstream', 'An upstream and how it fares.', {
  id: text('Its name in upstreams:.'),
  dialect: text('What it speaks.'),
  maintenance: flag('true: it is as if it were not there.'),
  queue: orNull(object('Queue', 'Its places, of which `limits` gives each process so many; null: it has no limits.', {
    running: whole('Requests that have one.'),
    waiting: whole('Requests that wait for one.'),
    most_running: whole('Places of each process.'),
    most_waiting: whole('Requests that may wait in each process.')
  })),
  targets: list('Its models, and the routes that are forwarded there.', object('Target', 'A target.', {
    model: text('The model, or the forward route.'),
    breaker: choice('Whether it is asked.', ['closed', 'half_open', 'open']),
    running: whole('Attempts that run.'),
    ended: whole('Attempts that ended within the window of the breaker.'),
    failed: whole('Those of them that failed.'),
    wait_ms: number('Milliseconds until it is asked again.'),
    last_error: orNull(object('FailedAttempt', 'The last failure since the process started.', {
      at: instant('When.'),
      request_id: text('In which request.'),
      credential: orNull(text('With which credential; null: there is only one.')),
      cause: text('Such as "status 404".'),
      said: orNull(text('What the upstream said, 300 characters without secrets; null: nothing.'))
    }))
  })),
  credentials: list('Its accounts.', object('Credential', 'An account at an upstream.', {
    id: text('Its name; headers: the only one.'),
    running: whole('Attempts that run.'),
    state: choice('cooling_down: it is not used. probing: one request finds out whether it is accepted again.',
      ['healthy', 'cooling_down', 'probing']),
    reason: orNull(choice('no_money: its account has no money. bad_key: its key is wrong, revoked or expired. ' +
      'forbidden: it may not use a model. limited: it has used up a rate. null: it is healthy.',
    ['no_money', 'bad_key', 'forbidden', 'limited'])),
    until: orNull(instant('When its cooldown ends; null: none runs.')),
    wait_ms: number('Milliseconds until it is used again.')
  }))
})
const reset = object('CredentialsReset', 'What was reset.', {
  upstream: text('The upstream.'),
  credentials: list('The credentials that are used again.', text('A name.'))
})

export function upstreamOperations (
  { view, live, reset: resetIn }: UpstreamParts, { now, directory }: ApiParts['services']
): readonly Operation[] {
  return [{
    method: 'GET',
    path: '/upstreams',
    name: 'listUpstreams',
    isCostly: true,
    query: QUERY,
    gives: page(upstream),
    summary:
      'All upstreams of the configuration and how they fare: what each target had of requests within its breaker\'s ' +
        'window, what runs, what waits for a place, in how many milliseconds it is asked again, and what it said when it failed last (the ' +
        'first 300 characters, without secrets). With workers, of all of them: sums, ' +
        'and the worst breaker and the longest wait of any.',
    async answer ({ query: sent }) {
      const query = readQuery(sent, QUERY)
      const seen = await view()
      const targets = Map.groupBy(seen.targets, ({ upstream }) => upstream)
      const credentials = Map.groupBy(seen.credentials, ({ upstream }) => upstream)
      const queues = new Map(seen.queues.map((queue) => [queue.upstream, queue]))
      const { rows, next } = pageOf([...live().upstreams].map(([id, { config }]) => ({ id, config })), query)
      return {
        status: 200,
        body: {
          data: rows.map(({ id, config: { dialect, maintenance, limits } }) => ({
            id,
            dialect,
            maintenance,
            queue: limits === undefined ? null : {
              running: queues.get(id)?.running ?? 0,
              waiting: queues.get(id)?.waiting ?? 0,
              most_running: limits.concurrency,
              most_waiting: limits.queue
            },
            targets: (targets.get(id) ?? []).map(({ model, breaker, running, ended, failed, wait, lastError }) => ({
              model,
              breaker,
              running,
              ended,
              failed,
              wait_ms: wait,
              last_error: shown(lastError)
            })),
            credentials: (credentials.get(id) ?? []).map((one) => credentialView(one, now()))
          })),
          next
        }
      }
    }
  }, {
    method: 'POST',
    path: '/upstreams/{id}/reset',
    name: 'resetCredentials',
    takes: credentialReset,
    isBodyOptional: true,
    gives: reset,
    summary:
      'Ends the cooldown of an upstream\'s credentials, as after a bill was paid: the next request uses them. Of this ' +
        'gateway with its workers; other gateways on the same store find out by their own probes. A new value under ' +
        'the old name needs no reset.',
    async answer ({ id, body, by }: Call): Promise<ApiAnswer> {
      const wanted: unknown = { ...body as object }
      judgeReset(wanted)
      const { credential } = wanted as { readonly credential?: string }
      const names = live().upstreams.get(id)?.credentials.map(nameOf)
      if (names === undefined) {
        throw new Refusal('not_found', `There is no upstream ${id}. GET /admin/v1/upstreams lists them.`)
      }
      if (credential !== undefined && !names.includes(credential)) {
        throw new Refusal('not_found',
          `The upstream ${id} has no credential ${credential}. It has ${names.join(', ')}.`)
      }
      const credentials = credential === undefined ? names : [credential]
      const line = { ...by, what: 'upstream.reset', id, before: null, after: { credentials } }
      await directory.change(() => ({ audit: line }))
      await resetIn({ upstream: id, ...(credential !== undefined && { credential }) })
      return { status: 200, body: { upstream: id, credentials } }
    }
  }]
}

const judgeReset = judge(credentialReset)

function credentialView ({ id, running, state, reason, wait }: CredentialView, now: number): object {
  const until = state === 'cooling_down' ? new Date(now + wait).toISOString() : null
  return { id, running, state, reason: reason ?? null, until, wait_ms: wait }
}

/** Null: no attempt has failed there since the process started. */
function shown (failed: FailedAttempt | undefined): object | null {
  if (failed === undefined) return null
  const { at, request_id: requestId, credential = null, cause, said = null } = failed
  return { at: new Date(at).toISOString(), request_id: requestId, credential, cause, said }
}
