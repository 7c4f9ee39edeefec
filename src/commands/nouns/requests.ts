// `gateway requests …`: the last requests of a host, and what each upstream said.
import { done } from '../answer.ts'
import { card, table } from '../print.ts'
import { complain, print } from '../stdout.ts'
import type { Noun } from '../verb.ts'
import { show } from '../verbs.ts'

const REQUEST_COLUMNS = ['at', 'request_id', 'key', 'model', 'upstream', 'status', 'code', 'attempts', 'duration_ms',
  'cost_usd']

const REQUESTS_NOTE =
  '  The last requests that the host of this gateway has served, the newest first: 100 of them, or as many as --limit ' +
    'says (at most\n  1000); --after ID goes on. Each host answers for itself. `gateway requests show ID` tells what ' +
    'every upstream said.\n'

/** A request as the API shows it, as far as the table looks into it. */
interface LoggedView extends Readonly<Record<string, unknown>> {
  readonly attempts: readonly Readonly<Record<string, unknown>>[]
}

export const requests: Noun = {
  list: {
    takes: [], options: ['key', 'account', 'model', 'code', 'status', 'after', 'limit'], note: REQUESTS_NOTE,
    async run (client, { values: { json: _json, config: _config, url: _url, ...wanted }, json }) {
      const { data, keep, host } =
        await done(client, 'GET', `/requests?${new URLSearchParams(wanted as Record<string, string>)}`)
      const rows = data as readonly LoggedView[]
      if (json) { await print(JSON.stringify(rows) + '\n'); return 0 }
      await print(table(rows.map((row) => ({ ...row, attempts: row.attempts_begun,
        upstream: row.attempts.at(-1)?.upstream })), REQUEST_COLUMNS))
      if (keep === 0) complain(`${String(host)} keeps no requests: log.requests.keep is 0.`)
      return 0
    }
  },
  show: {
    takes: ['ID'],
    async run (client, { positionals: [id], json }) {
      const { attempts, ...request } = await done(client, 'GET', `/requests/${encodeURIComponent(id!)}`)
      if (json) return await show({ ...request, attempts }, json)
      const rows = attempts as readonly LoggedView[]
      await print(`${card(request)}\n${table(rows, ['upstream', 'target', 'credential', 'status', 'error', 'said'])}`)
      return 0
    }
  }
}
