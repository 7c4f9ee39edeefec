// `gateway upstreams`: the targets and credentials of a running gateway, and the end of a credential's cooldown.
import { LONGEST_PAGE } from '../../admin/api/operation.ts'
import { done, ofRunning } from '../answer.ts'
import type { AdminClient } from '../command.ts'
import { card, table } from '../print.ts'
import { print } from '../stdout.ts'
import type { Noun } from '../verb.ts'

const TARGET_COLUMNS = ['upstream', 'model', 'breaker', 'running', 'ended', 'failed', 'wait_ms', 'last_error']
const CREDENTIAL_COLUMNS = ['upstream', 'credential', 'state', 'reason', 'until', 'running']

const RESET_NOTE =
  '  Uses a credential again at once, as after its bill was paid; without CREDENTIAL all of the upstream. Other\n' +
    '  gateways on the same store have cooldowns of their own: name each with --url.\n'

type Row = Readonly<Record<string, unknown>>

/** An upstream as the API shows it, as far as the tables look into it. */
interface UpstreamRow extends Row {
  readonly targets: readonly (Row & { readonly last_error: Row | null })[]
  readonly credentials: readonly Row[]
}

/** @throws {CommandError} no gateway runs */
async function read (client: AdminClient): Promise<readonly UpstreamRow[]> {
  const { data } = await ofRunning(client, 'GET', `/upstreams?limit=${LONGEST_PAGE}`)
  return data as readonly UpstreamRow[]
}

export const upstreams: Noun = {
  '': {
    takes: [],
    async run (client, { json }) {
      const rows = await read(client)
      if (json) { await print(JSON.stringify(rows) + '\n'); return 0 }
      const targets = rows.flatMap(({ id: upstream, targets: all }) =>
        all.map((one) => ({ upstream, ...one, last_error: one.last_error?.['cause'] ?? null })))
      const credentials = rows.flatMap(({ id: upstream, credentials: all }) =>
        all.map(({ id: credential, ...one }) => ({ upstream, credential, ...one })))
      await print(`${table(targets, TARGET_COLUMNS)}\n${table(credentials, CREDENTIAL_COLUMNS)}`)
      return 0
    }
  },
  reset: {
    takes: ['UPSTREAM', 'CREDENTIAL'], optional: 1, note: RESET_NOTE,
    async run (client, { positionals: [upstream, credential], json }) {
      await read(client)
      const body = credential === undefined ? {} : { credential }
      const reset = await done(client, 'POST', `/upstreams/${encodeURIComponent(upstream!)}/reset`, body)
      await print(json ? JSON.stringify(reset) + '\n' : card(reset))
      return 0
    }
  }
}
