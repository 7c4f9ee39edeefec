// `gateway status`: what needs somebody.
import { isMap } from '../../config/yaml/position.ts'
import { ofRunning } from '../answer.ts'
import { card } from '../print.ts'
import { complain, print } from '../stdout.ts'
import type { Noun } from '../verb.ts'

const STATUS_NOTE =
  '  What needs somebody, and the numbers of the last minutes. Exit code 0: nothing needs anybody; 1: something does.\n'

export const status: Noun = {
  '': {
    takes: [], note: STATUS_NOTE,
    async run (client, { json }) {
      const found = await ofRunning(client, 'GET', '/summary')
      const { problems } = found as unknown as { readonly problems: readonly { readonly message: string }[] }
      await print(json ? JSON.stringify(found) + '\n' : statusCard(found))
      if (!json) for (const { message } of problems) complain(message)
      return problems.length === 0 ? 0 : 1
    }
  }
}

/** The summary, a line for each of its parts. */
function statusCard (
  { at, live, day, open_holds, config, upstreams, store, fleet }: Readonly<Record<string, unknown>>
): string {
  const part = (value: unknown): Readonly<Record<string, unknown>> => isMap(value) ? value : {}
  const numbers = ({ requests, errors, spent_usd: spent }: Readonly<Record<string, unknown>>): string =>
    requests === undefined ? '-' : `${String(requests)} requests, ${String(errors)} errors, $${String(spent)}`
  const first = part(part(live)['first_token_ms'])
  return card({
    at,
    last_five_minutes: numbers(part(live)),
    last_24_hours: numbers(part(day)),
    first_token_ms: first['p50'] === undefined ? null : `${String(first['p50'])} (p95 ${String(first['p95'])})`,
    requests_in_flight: part(live)['requests_in_flight'],
    open_holds,
    generation: part(config)['generation'],
    hash: part(config)['hash'],
    targets: part(upstreams)['targets'],
    processes: part(fleet)['processes'],
    store: part(store)['trouble'] !== null ? 'can\'t be written'
      : part(store)['is_up'] === true ? 'answers' : 'does not answer'
  })
}
