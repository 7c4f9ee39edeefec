// `gateway explain`: what the gateway would do with one request, and why. Calls no upstream, charges nothing.
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { isMap } from '../config/yaml/position.ts'
import { done } from './answer.ts'
import type { CommandParts } from './command.ts'
import { CommandError, withAdminClient } from './admin-client.ts'
import { complain, print } from './stdout.ts'
import { card, table } from './print.ts'

const USAGE =
  `Usage: gateway explain --key ID [--route "POST /v1/messages"] [--body @FILE] [--header "name: value"] [--ip ADDRESS] [--json] [--config FILE] [--url URL]

  --key     the id of the key: its secret is not needed
  --route   method and path; default: POST /v1/messages
  --body    the JSON that is sent: @FILE, @- for standard input, or the JSON itself
  --header  what plugins look at, such as "user-agent: curl/8"; may be said several times
  --ip      the address that it comes from; default: 127.0.0.1
`

type Explained = Readonly<Record<string, unknown>>

/** @returns the exit code: 0 the request would be let through; 1 it would be refused, or the command was */
export async function explainCommand (args: readonly string[], { locate, ...how }: CommandParts): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      key: { type: 'string' },
      route: { type: 'string' },
      body: { type: 'string' },
      header: { type: 'string', multiple: true },
      ip: { type: 'string' },
      json: { type: 'boolean', default: false },
      config: { type: 'string', short: 'c' },
      url: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false }
    }
  })
  if (values.help) { await print(USAGE); return 0 }
  if (values.key === undefined) {
    complain(`Whose request would it be? Name a key by its id: --key ID.\n\n${USAGE}`)
    return 1
  }
  const { key } = values
  return await withAdminClient({ ...locate(values.config), url: values.url, ...how }, async (open) => {
    const question = {
      key,
      headers: Object.fromEntries((values.header ?? []).map(readHeader)),
      ...(values.route !== undefined && { route: values.route }),
      ...(values.ip !== undefined && { ip: values.ip }),
      ...(values.body !== undefined && { body: readBody(values.body) })
    }
    const explained = await done(await open(), 'POST', '/explain', question)
    await print(values.json ? JSON.stringify(explained) + '\n' : shown(explained))
    return explained['allowed'] === true ? 0 : 1
  })
}

function readHeader (line: string): [name: string, value: string] {
  const colon = line.indexOf(':')
  if (colon < 1) throw new CommandError(`A header is written "name: value", and this is ${JSON.stringify(line)}.`)
  return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()]
}

/** @throws {CommandError} the file does not exist, or the text is no JSON object */
function readBody (said: string): unknown {
  let text = said
  if (said.startsWith('@')) {
    const file = said.slice(1)
    try {
      text = readFileSync(file === '-' ? 0 : file, 'utf8')
    } catch (cause) {
      throw new CommandError(`The body can't be read: ${(cause as Error).message}.`, { cause })
    }
  }
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch (cause) {
    throw new CommandError(
      `The body is not JSON: ${(cause as Error).message}.` +
        (said.startsWith('@') ? '' : ' A file is named with "@" before it.'),
      { cause }
    )
  }
  if (!isMap(body)) throw new CommandError('The body must be a JSON object.')
  return body
}

function shown (explained: Explained): string {
  const {
    steps,
    targets,
    in_maintenance: left,
    refusal,
    prices,
    limits,
    allowed,
    then,
    key,
    key_state: state,
    account,
    route,
    alias,
    model,
    config_generation: generation,
    max_cost_usd: most,
    held_at_start_usd: first,
    max_input_tokens: input,
    max_output_tokens: output
  } = explained
  const rows = (list: unknown): readonly Explained[] => Array.isArray(list) ? list.filter(isMap) : []
  const said = isMap(refusal) ? refusal : undefined
  const verdict = said === undefined
    ? `would be ${String(then)}`
    : `would be refused with ${String(said['status'])} ${String(said['code'])}`
  const parts = [
    `${String(route)} with the key ${String(key)} (${String(state)}) ${verdict}.\n`,
    said === undefined
      ? ''
      : `${String(said['message'])}${said['cause'] === undefined ? '' : `\n${String(said['cause'])}`}\n`,
    rows(steps).length === 0 ? '' : '\n' + table(rows(steps), ['who', 'hook', 'verdict', 'wrote'])
  ]
  if (rows(targets).length > 0) {
    parts.push('\n' + table(rows(targets), ['channel', 'upstream', 'model', 'priority', 'weight', 'price_version']))
  }
  if (rows(left).length > 0) parts.push('\nIn maintenance:\n' + table(rows(left), ['channel', 'upstream', 'model']))
  const until = rows(prices).map((price) => price['until']).find((instant) => typeof instant === 'string')
  parts.push('\n' + card({
    account,
    ...(alias !== null && { alias }),
    model,
    ...(allowed === true || most !== '0'
      ? { max_cost_usd: most, held_at_start_usd: first, max_input_tokens: input, max_output_tokens: output }
      : {}),
    ...(until !== undefined && { price_changes_at: until }),
    ...(isMap(limits) ? leftOf(limits) : {}),
    config_generation: generation
  }))
  return parts.join('')
}

/** The configured limits only. */
function leftOf (
  { balance_usd, available_usd, remaining_usd: ever, this_day: day, this_month: month }: Explained
): Explained {
  const rest = { key_may_spend_usd: ever, on_this_day_usd: isMap(day) ? day['remaining_usd'] : null,
    in_this_month_usd: isMap(month) ? month['remaining_usd'] : null }
  return { balance_usd, available_usd, ...Object.fromEntries(Object.entries(rest).filter(([, left]) => left !== null)) }
}
