// Health of upstreams as the processes of this gateway see it: targets and credentials that are not used at present,
// and for how long.
import type { FailedAttempt } from '../../core/upstream.ts'
import { type Operation, pageOf, readQuery, type UpstreamParts } from './operation.ts'

const QUERY = ['after', 'limit']

export function upstreamOperations ({ view, live }: UpstreamParts): readonly Operation[] {
  return [{
    method: 'GET',
    path: '/upstreams',
    name: 'listUpstreams',
    query: QUERY,
    summary:
      'All upstreams of the configuration and how they fare: what each target had of requests within its breaker\'s ' +
        'window, what runs, in how many milliseconds it is asked again, and what it said when it failed last (the ' +
        'first 300 characters, without secrets). With workers, of all of them: sums, ' +
        'and the worst breaker and the longest wait of any.',
    async answer ({ query: sent }) {
      const query = readQuery(sent, QUERY)
      const seen = await view()
      const targets = Map.groupBy(seen.targets, ({ upstream }) => upstream)
      const credentials = Map.groupBy(seen.credentials, ({ upstream }) => upstream)
      const { rows, next } = pageOf([...live().upstreams].map(([id, { config }]) => ({ id, config })), query)
      return {
        status: 200,
        body: {
          data: rows.map(({ id, config: { dialect, maintenance } }) => ({
            id,
            dialect,
            maintenance,
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
