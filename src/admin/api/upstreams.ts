// How upstreams fare, as this process sees it: which targets are left alone, which credentials are put aside, and for how long.
import type { Config } from '../../config/config.ts'
import type { Health } from '../../upstream/health.ts'
import type { Upstream } from '../../upstream/upstream.ts'
import { type Operation, pageOf, readQuery } from './operation.ts'

/** Absent where no gateway runs: nobody is asked there. */
export interface UpstreamParts {
  readonly health: Pick<Health, 'targets' | 'credentials'>
  readonly live: () => { readonly config: Pick<Config, 'models' | 'routes'>, readonly upstreams: ReadonlyMap<string, Upstream> }
}

const QUERY = ['after', 'limit']

export function upstreamOperations ({ health, live }: UpstreamParts): readonly Operation[] {
  return [{
    method: 'GET', path: '/upstreams', name: 'listUpstreams', query: QUERY,
    summary: 'All upstreams of the configuration and how they fare: what each target had of requests within its breaker\'s window, what runs, and in how many milliseconds it is asked again.',
    answer ({ query: sent }) {
      const query = readQuery(sent, QUERY)
      const snapshot = live()
      const targets = Map.groupBy(health.targets(snapshot), ({ upstream }) => upstream)
      const credentials = Map.groupBy(health.credentials(snapshot), ({ upstream }) => upstream)
      const { rows, next } = pageOf([...snapshot.upstreams].map(([id, { config }]) => ({ id, config })), query)
      return {
        status: 200,
        body: {
          data: rows.map(({ id, config: { dialect, maintenance } }) => ({
            id, dialect, maintenance,
            targets: (targets.get(id) ?? []).map(({ model, breaker, running, ended, failed, wait }) => ({ model, breaker, running, ended, failed, wait_ms: wait })),
            credentials: (credentials.get(id) ?? []).map(({ id: name, running, wait }) => ({ id: name, running, wait_ms: wait }))
          })),
          next
        }
      }
    }
  }]
}
