// Health of upstreams as the processes of this gateway see it: targets and credentials that are not used at present,
// and for how long.
import type { FailedAttempt } from '../../core/upstream.ts'
import { choice, flag, instant, list, number, object, orNull, page, text, whole } from './answers.ts'
import { type Operation, pageOf, readQuery, type UpstreamParts } from './operation.ts'

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
    wait_ms: number('Milliseconds until it is used again.')
  }))
})

export function upstreamOperations ({ view, live }: UpstreamParts): readonly Operation[] {
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
            credentials: (credentials.get(id) ?? []).map(({ id: name, running, wait }) => ({
              id: name,
              running,
              wait_ms: wait
            }))
          })),
          next
        }
      }
    }
  }]
}

/** Null: no attempt has failed there since the process started. */
function shown (failed: FailedAttempt | undefined): object | null {
  if (failed === undefined) return null
  const { at, request_id: requestId, credential = null, cause, said = null } = failed
  return { at: new Date(at).toISOString(), request_id: requestId, credential, cause, said }
}
