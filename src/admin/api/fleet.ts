// The processes that serve clients from the same store, and whether all of them run the same configuration.
import type { ApiParts, Operation } from './operation.ts'

export function fleetOperations ({ processes }: ApiParts): readonly Operation[] {
  return [{
    method: 'GET',
    path: '/fleet',
    name: 'listProcesses',
    summary:
      'The processes that serve clients from this store, and how each is. `is_converged`: all run the same ' +
        'configuration, by its hash; each counts its generations for itself.',
    async answer () {
      const data = await processes()
      return { status: 200, body: { is_converged: new Set(data.map(({ hash }) => hash)).size <= 1, data } }
    }
  }]
}
