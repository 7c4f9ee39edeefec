// `gateway fleet`: the processes on one store.
import { done } from '../answer.ts'
import { table } from '../print.ts'
import { complain, print } from '../stdout.ts'
import type { Noun } from '../verb.ts'

const FLEET_COLUMNS = ['id', 'host', 'worker', 'pid', 'version', 'generation', 'hash', 'started', 'requests_in_flight',
  'outbox', 'seen_s_ago', 'reasons']

export const fleet: Noun = {
  '': {
    takes: [],
    async run (client, { json }) {
      const { is_converged: isConverged, data } = await done(client, 'GET', '/fleet')
      const rows = data as readonly Readonly<Record<string, unknown>>[]
      if (json) await print(JSON.stringify(rows) + '\n')
      else await print(table(rows, FLEET_COLUMNS))
      if (isConverged !== true) complain('They do not all run the same configuration: compare HASH.')
      return 0
    }
  }
}
