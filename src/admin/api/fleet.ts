// The processes that serve clients from the same store, and whether all of them run the same configuration.
import { flag, instant, list, number, object, text, whole } from './answers.ts'
import type { ApiParts, Operation } from './operation.ts'

const fleet = object('Fleet', 'The processes that serve clients from one store.', {
  is_converged: flag('true: all run the same configuration.'),
  data: list('The processes, by host and worker.', object('FleetProcess', 'A process.', {
    id: text('Of this run: a restart makes another one.'),
    host: text('Its machine.'),
    pid: whole('Its number there.'),
    worker: whole('Its number among the workers of a primary; absent: it is none.'),
    version: text('Of the gateway.'),
    started: instant('When.'),
    generation: whole('Counts its configurations since its start.'),
    hash: text('Of its configuration.'),
    requests_in_flight: whole('Requests that run.'),
    outbox: whole('Charges that the shared store does not have yet; absent: the store is its own.'),
    reasons: list('Why load balancers should send requests elsewhere; empty: ready.', text('A reason.')),
    seen_s_ago: number('Seconds since it was heard of.')
  }, ['worker', 'outbox']))
})

export function fleetOperations ({ processes }: ApiParts): readonly Operation[] {
  return [{
    method: 'GET',
    path: '/fleet',
    name: 'listProcesses',
    summary:
      'The processes that serve clients from this store, and how each is. `is_converged`: all run the same ' +
        'configuration, by its hash; each counts its generations for itself.',
    gives: fleet,
    async answer () {
      const data = await processes()
      return { status: 200, body: { is_converged: new Set(data.map(({ hash }) => hash)).size <= 1, data } }
    }
  }]
}
