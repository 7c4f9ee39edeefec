// `gateway keys …`, `accounts …`, `tokens …`, `admin …`, `usage …`, `ledger …`, `requests …`, `audit`, `fleet`,
// `status`, `prices`, `videos`, `diff`: the admin API from the shell. Names and types of settings come from the API's
// own schemas.
import { readFileSync } from 'node:fs'
import { parseArgs, type ParseArgsConfig } from 'node:util'
import { LONGEST_PAGE } from '../admin/api/operation.ts'
import { newAccount, newKey, newToken } from '../admin/api/schemas.ts'
import { flatRow, seriesColumns, seriesCsv, type SeriesRow } from '../admin/api/series.ts'
import { isMap } from '../config/yaml/position.ts'
import { nearest } from '../config/check/suggest.ts'
import { formatProblem, type Problem } from '../config/problem.ts'
import type { Judgement } from '../config/state.ts'
import type { JsonSchema } from '../config/plugin-descriptor.ts'
import type { RollupGroup } from '../store/rollups.ts'
import { CommandError, withAdminClient } from './admin-client.ts'
import type { CommandParts } from './command.ts'
import type { AdminAnswer, AdminClient } from './command.ts'
import { print } from './stdout.ts'
import { card, table } from './print.ts'

interface Arguments {
  readonly positionals: readonly string[]
  readonly values: Readonly<Record<string, unknown>>
  readonly json: boolean
}

interface Verb {
  /** names of the positional arguments */
  readonly takes: readonly string[]
  /** how many of them are optional */
  readonly optional?: number
  /** options: settings of a schema, but for those that are positional or fixed; and more */
  readonly settings?: JsonSchema
  readonly fixed?: readonly string[]
  readonly options?: readonly string[]
  /** those of them that may be said several times, or with commas */
  readonly lists?: readonly string[]
  /** options without a value */
  readonly flags?: readonly string[]
  /** required options */
  readonly needs?: readonly string[]
  /** more text of --help */
  readonly note?: string
  /** @returns the exit code */
  run (client: AdminClient, said: Arguments): Promise<number>
}

const KEY_COLUMNS = ['id', 'account', 'state', 'declared', 'spent_usd', 'usage_limit_usd', 'shown']
const FLEET_COLUMNS = ['id', 'host', 'worker', 'pid', 'version', 'generation', 'hash', 'started', 'requests_in_flight',
  'outbox', 'seen_s_ago', 'reasons']
const REQUEST_COLUMNS = ['at', 'request_id', 'key', 'model', 'upstream', 'status', 'code', 'attempts', 'duration_ms',
  'cost_usd']
const ACCOUNT_COLUMNS = ['id', 'name', 'state', 'declared', 'balance_usd', 'held_usd']

const USAGE_COLUMNS = ['key', 'account', 'spent_usd', 'held_usd', 'remaining_usd', 'usage_limit_usd', 'deleted_at']
/** Also in `gateway store`. */
export const DIFFERENCE_COLUMNS = ['of', 'id', 'sum', 'entries_usd', 'kept_usd', 'entries', 'kept', 'where']
const TOKEN_COLUMNS = ['id', 'name', 'role', 'state', 'shown', 'created_at', 'expires_at', 'last_used_at']
const AUDIT_COLUMNS = ['seq', 'at', 'who', 'address', 'what', 'id']

const CLOSE_NOTE =
  '  Ends an account: its keys are refused, and it gets no new ones. Its balance stays, to be refunded or debited.\n'
const AUDIT_NOTE = '  Who changed what, newest first: the last 50 lines, or --limit NUMBER. --json has the whole lines.\n'
const LINK_NOTE =
  '  Prints a link that signs a browser in to the pages of the gateway, as the one whose token this command uses: ' +
    'once, within\n  10 minutes. Whoever has it is signed in, so give it to nobody.\n'
const UPDATE_NOTE =
  '  --unset NAME                     back to the standard: NAME is a setting below; may be said several times\n'

const SERIES = ['from', 'to', 'by', 'group', 'account', 'key', 'model', 'channel', 'time-zone']
const SERIES_NOTE = `  --from, --to     a day such as 2026-11-21, or an instant such as 2026-11-21T05:00:00Z; --to is not included
  --by             hour (of the last 7 days), day or month
  --group          names of account, key, model and channel, with commas
  --time-zone      of days and months, such as Europe/Berlin; others than UTC for the last 7 days
  --csv            a table for spreadsheets
`

const REFUND_NOTE =
  '  Gives money back to the account, once per reference; the id of a request may be one. What its keys have spent, ' +
    'and their usage\n  limits, stay as they are: usage shows what was charged, the ledger what was given back.\n'
const DEBIT_NOTE =
  '  Takes money from the account, once per reference: at most what is available, for no balance goes below zero.\n'

const PRICE_COLUMNS = ['model', 'kind', 'channel', 'enabled', 'price', 'since', 'until', 'then']
const VIDEO_COLUMNS = ['id', 'account', 'model', 'upstream', 'status', 'progress', 'age_s', 'held_usd', 'charged_usd']
const STATUS_NOTE =
  '  What needs somebody, and the numbers of the last minutes. Exit code 0: nothing needs anybody; 1: something does.\n'
const PRICES_NOTE =
  '  US dollars per 1M tokens of input and output, or per image or second of video; and what is announced.\n'
const DIFF_NOTE =
  '  What FILE (- is standard input) would change in the live configuration, which stays as it is. Values from the ' +
    'environment and\n  from secret files are not looked at; files that it includes must be those of the live one. ' +
    'Exit code 1: it can\'t be used.\n'

const REQUESTS_NOTE =
  '  The last requests that the host of this gateway has served, the newest first: 100 of them, or as many as --limit ' +
    'says (at most\n  1000); --after ID goes on. Each host answers for itself. `gateway requests show ID` tells what ' +
    'every upstream said.\n'

/** A request as the API shows it, as far as the table looks into it. */
interface LoggedView extends Readonly<Record<string, unknown>> {
  readonly attempts: readonly Readonly<Record<string, unknown>>[]
}

const NOUNS: Readonly<Record<string, Readonly<Record<string, Verb>>>> = {
  keys: {
    create: {
      takes: ['ID'], optional: 1, settings: newKey,
      async run (client, { positionals: [id], values, json }) {
        const { warnings, secret, ...key } = await done(client, 'POST', '/keys', { ...(id !== undefined && { id }),
          ...settings(values, newKey) })
        for (const warning of Array.isArray(warnings)
          ? warnings as readonly { readonly path: string, readonly message: string }[]
          : []) { console.error(`warning: ${warning.path} ${warning.message}`) }
        return await showSecret({ ...key, secret }, json)
      }
    },
    list: { takes: [], options: ['account', 'tag'],
      run: async (client, said) => await list(client, '/keys', KEY_COLUMNS, said) },
    show: { takes: ['ID'], run: async (client, said) => await one(client, 'GET', 'keys', said) },
    update: update('keys', newKey, ['account']),
    freeze: { takes: ['ID'], run: async (client, said) => await one(client, 'PATCH', 'keys', said, '', { frozen: true }) },
    unfreeze: { takes: ['ID'],
      run: async (client, said) => await one(client, 'PATCH', 'keys', said, '', { frozen: false }) },
    delete: { takes: ['ID'], run: async (client, said) => await one(client, 'DELETE', 'keys', said) },
    rotate: {
      takes: ['ID'], options: ['grace'],
      async run (client, { positionals: [id], values, json }) {
        const rotated = await done(client, 'POST', `/keys/${encodeURIComponent(id!)}/rotate`, {
          ...(values['grace'] !== undefined && { grace: values['grace'] })
        })
        return await showSecret(rotated, json, 'new secret')
      }
    }
  },
  accounts: {
    create: { takes: ['ID'], settings: newAccount,
      run: async (client, { positionals: [id], values, json }) =>
        await show(await done(client, 'POST', '/accounts', { id, ...settings(values, newAccount) }), json) },
    list: { takes: [], options: ['tag'],
      run: async (client, said) => await list(client, '/accounts', ACCOUNT_COLUMNS, said) },
    show: { takes: ['ID'], run: async (client, said) => await one(client, 'GET', 'accounts', said) },
    update: update('accounts', newAccount),
    credit: booking('credited', '/credits', {
      reference: 'Name the payment: --reference TEXT. It is credited once, however often the command is repeated.'
    }),
    refund: booking('refunded', '/refunds', {
      reference:
        'Name the case, or the request: --reference TEXT. It is refunded once, however often the command is repeated.',
      reason: 'Say why: --reason TEXT. It stands in the ledger.'
    }, REFUND_NOTE),
    debit: booking('debited', '/debits', {
      reference: 'Name the case: --reference TEXT. It is debited once, however often the command is repeated.',
      reason: 'Say why: --reason TEXT. It stands in the ledger.'
    }, DEBIT_NOTE),
    suspend: { takes: ['ID'],
      run: async (client, said) => await one(client, 'PATCH', 'accounts', said, '', { suspended: true }) },
    resume: { takes: ['ID'],
      run: async (client, said) => await one(client, 'PATCH', 'accounts', said, '', { suspended: false }) },
    close: { takes: ['ID'], note: CLOSE_NOTE,
      run: async (client, said) => await one(client, 'POST', 'accounts', said, '/close') },
    reopen: { takes: ['ID'], run: async (client, said) => await one(client, 'POST', 'accounts', said, '/reopen') }
  },
  tokens: {
    create: {
      takes: ['NAME'], settings: newToken,
      async run (client, { positionals: [name], values, json }) {
        return await showSecret(await done(client, 'POST', '/tokens', { name, ...settings(values, newToken) }), json)
      }
    },
    list: { takes: [], run: async (client, said) => await list(client, '/tokens', TOKEN_COLUMNS, said) },
    revoke: { takes: ['ID'], run: async (client, said) => await one(client, 'DELETE', 'tokens', said) }
  },
  admin: {
    link: {
      takes: [], note: LINK_NOTE,
      async run (client, { json }) {
        if (client.url === undefined) {
          throw new CommandError('No gateway runs here, and a link signs in to one that does. Start it first.')
        }
        const { path, expires_at: end } = await done(client, 'POST', '/links')
        const url = `${client.url}${String(path)}`
        await print(json ? JSON.stringify({ url, expires_at: end }) + '\n' : `${url}\n`)
        return 0
      }
    }
  },
  audit: {
    '': {
      takes: [], options: ['limit'], note: AUDIT_NOTE,
      async run (client, { values, json }) {
        const rows = await newest(client, '/audit', readCount(values['limit']))
        await print(json ? JSON.stringify(rows) + '\n' : table(rows, AUDIT_COLUMNS))
        return 0
      }
    }
  },
  requests: {
    list: {
      takes: [], options: ['key', 'account', 'model', 'code', 'status', 'after', 'limit'], note: REQUESTS_NOTE,
      async run (client, { values: { json: _json, config: _config, url: _url, ...wanted }, json }) {
        const { data, keep, host } =
          await done(client, 'GET', `/requests?${new URLSearchParams(wanted as Record<string, string>)}`)
        const rows = data as readonly LoggedView[]
        if (json) { await print(JSON.stringify(rows) + '\n'); return 0 }
        await print(table(rows.map((row) => ({ ...row, attempts: row.attempts_begun,
          upstream: row.attempts.at(-1)?.upstream })), REQUEST_COLUMNS))
        if (keep === 0) console.error(`${String(host)} keeps no requests: log.requests.keep is 0.`)
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
  },
  fleet: {
    '': {
      takes: [],
      async run (client, { json }) {
        const { is_converged: isConverged, data } = await done(client, 'GET', '/fleet')
        const rows = data as readonly Readonly<Record<string, unknown>>[]
        if (json) await print(JSON.stringify(rows) + '\n')
        else await print(table(rows, FLEET_COLUMNS))
        if (isConverged !== true) console.error('They do not all run the same configuration: compare HASH.')
        return 0
      }
    }
  },
  status: {
    '': {
      takes: [], note: STATUS_NOTE,
      async run (client, { json }) {
        const found = await ofRunning(client, 'GET', '/summary')
        const { problems } = found as unknown as { readonly problems: readonly { readonly message: string }[] }
        await print(json ? JSON.stringify(found) + '\n' : statusCard(found))
        if (!json) for (const { message } of problems) console.error(message)
        return problems.length === 0 ? 0 : 1
      }
    }
  },
  prices: {
    '': {
      takes: [], options: ['model', 'channel'], note: PRICES_NOTE,
      async run (client, { values, json }) {
        const rows: Record<string, unknown>[] = []
        for await (const page of pages(client, '/prices', values)) rows.push(...page)
        await print(json ? JSON.stringify(rows) + '\n' : table(rows.map(priceRow), PRICE_COLUMNS))
        return 0
      }
    }
  },
  videos: {
    '': { takes: [], options: ['account', 'state'],
      run: async (client, said) => await list(client, '/videos', VIDEO_COLUMNS, said) }
  },
  diff: {
    '': {
      takes: ['FILE'], note: DIFF_NOTE,
      async run (client, { positionals: [file], json }) {
        const found = await ofRunning(client, 'POST', '/config/diff', { text: readText(file!) })
        const { ok, problems, warnings, unread, changes, more_changes: more } = found as unknown as Judgement
        if (json) { await print(JSON.stringify(found) + '\n'); return ok ? 0 : 1 }
        // The gateway knows the text as its own file, and included ones by their names.
        const { source } = await done(client, 'GET', '/config')
        const say = (before: string, problem: Problem): void => {
          console.error(before + formatProblem({ ...problem, file: problem.file === source ? file! : problem.file }))
        }
        for (const problem of problems) say('', problem)
        for (const warning of warnings) say('warning: ', warning)
        for (const value of unread) say('not looked at: ', value)
        await print(changes.map(({ path, what, before, after }) =>
          `${what.padEnd(9)}  ${path}  ${[before, after].filter((value) => value !== undefined).join(' -> ')}\n`
        ).join(''))
        if (more > 0) await print(`and ${more} more\n`)
        if (ok && changes.length === 0) await print('It changes nothing.\n')
        return ok ? 0 : 1
      }
    }
  },
  usage: {
    list: { takes: [], options: ['account'],
      run: async (client, said) => await list(client, '/usage', USAGE_COLUMNS, said) },
    series: {
      takes: [], options: SERIES,
      flags: ['csv'], note: SERIES_NOTE,
      async run (client, { values, json }) {
        const query = new URLSearchParams()
        for (const name of SERIES) {
          if (typeof values[name] === 'string') query.set(name.replaceAll('-', '_'), values[name])
        }
        const found = await done(client, 'GET', `/usage/series?${query}`)
        const { data, group, total } = found as unknown as { readonly data: readonly SeriesRow[],
          readonly group: readonly RollupGroup[], readonly total: SeriesRow }
        await print(
          json
            ? JSON.stringify(found) + '\n'
            : values['csv'] === true ? seriesCsv(data, group) : seriesTable(data, group, total)
        )
        return 0
      }
    }
  },
  ledger: {
    export: {
      takes: [], options: ['account', 'key'],
      async run (client, { values }) {
        for await (const rows of pages(client, '/ledger', values)) {
          await print(rows.map((row) => JSON.stringify(row) + '\n').join(''))
        }
        return 0
      }
    },
    verify: {
      takes: [],
      async run (client, { json }) {
        const found = await done(client, 'POST', '/ledger/verify')
        const { ok, entries, accounts, keys, differences } = found
        if (json) await print(JSON.stringify(found) + '\n')
        else if (ok === true) {
          const counted = `${String(entries)} entries, ${String(accounts)} accounts, ${String(keys)} keys`
          await print(`The ledger is right: ${counted}.\n`)
        } else {
          const listed = table(
            differences as readonly Record<string, unknown>[], DIFFERENCE_COLUMNS
          )
          await print(`The ledger is WRONG: a balance, or a sum of usage, is not that of its entries.\n${listed}`)
        }
        return ok === true ? 0 : 1
      }
    }
  }
}

/** The answer of a gateway that runs. @throws {CommandError} none does, or it has refused */
async function ofRunning (
  client: AdminClient, method: string, address: string, body?: unknown
): Promise<AdminAnswer['body']> {
  const answer = await client.ask(method, '/admin/v1' + address, body)
  if (answer.status === 404) {
    throw new CommandError('No gateway answers, and this is asked of one that runs: start it (gateway start), or ' +
      'name another with --url.')
  }
  return resultOf(answer)
}

function readText (file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (cause) {
    throw new CommandError(`The file can't be read: ${(cause as Error).message}.`, { cause })
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
    store: part(store)['is_up'] === true ? 'answers' : 'is away'
  })
}

/** A price in one cell. */
function priceRow ({ price, announced, ...row }: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const next = Array.isArray(announced) ? announced[0] as Readonly<Record<string, unknown>> | undefined : undefined
  return { ...row, price: shownPrice(price), then: next === undefined ? null : shownPrice(next['price']) }
}

function shownPrice (price: unknown): string {
  if (Array.isArray(price)) {
    return (price as readonly { readonly when?: object, readonly usd?: string, readonly usd_per_second?: string }[])
      .map(({ when = {}, usd, usd_per_second: second }) => [usd ?? `${second}/s`, ...Object.values(when)].join(' '))
      .join('; ')
  }
  return isMap(price) ? `${String(price['input'])} / ${String(price['output'])}` : String(price)
}

/** @returns the exit code: 0 done, 1 refused or failed */
export async function adminCommand (
  noun: string,
  said: readonly string[],
  { locate, ...how }: CommandParts
): Promise<number> {
  const verbs = NOUNS[noun]!
  // Some nouns are the whole command.
  const [verb = '', ...args] = Object.hasOwn(verbs, '') ? ['', ...said] : said
  const found = Object.hasOwn(verbs, verb) ? verbs[verb]! : undefined
  if (found === undefined) {
    const isHelp = ['--help', '-h', 'help'].includes(verb)
    const usage = Object.entries(verbs).map(([name, one]) => `  ${usageOf(noun, name, one)}\n`).join('')
    if (isHelp) { await print(usage); return 0 }
    const near = nearest(verb, Object.keys(verbs))
    const unknown = `There is no command "${noun} ${verb}"${near === undefined ? '.' : `: did you mean "${near}"?`}`
    console.error(`${verb === '' ? `What about ${noun}?` : unknown}\n\n${usage}`)
    return 1
  }
  const { takes, optional = 0 } = found
  const usage = `Usage: ${usageOf(noun, verb, found)}\n${explanations(found)}`
  if (args.includes('--help') || args.includes('-h')) { await print(usage); return 0 }
  let read: ReturnType<typeof readArgs>
  try {
    read = readArgs(found, args)
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS') !== true) throw thrown
    // parseArgs' further sentences are about files that begin with a dash.
    console.error(`${(thrown as Error).message.split('. ')[0]!}${meantOption(found, args)}\n\n${usage}`)
    return 1
  }
  const { values, positionals } = read
  if (positionals.length < takes.length - optional || positionals.length > takes.length) {
    console.error(usage)
    return 1
  }
  const options = { ...locate(values.config as string | undefined), url: values.url as string | undefined, ...how }
  return await withAdminClient(options, async (open) =>
    await found.run(await open(), { positionals, values, json: values.json === true })
  )
}

/** What an unknown option may have meant, as the end of a sentence. */
function meantOption (verb: Verb, args: readonly string[]): string {
  const known = [...Object.keys(optionsOf(verb)), 'json', 'config', 'url']
  for (const arg of args) {
    const [, name] = /^--([^=]+)/.exec(arg) ?? []
    const near = name === undefined || known.includes(name) ? undefined : nearest(name, known)
    if (near !== undefined) return `: did you mean --${near}?`
  }
  return '.'
}

function readArgs (
  verb: Verb,
  args: readonly string[]
): { readonly values: Readonly<Record<string, unknown>>, readonly positionals: readonly string[] } {
  return parseArgs({ args: [...args], allowPositionals: true,
    options: { config: { type: 'string', short: 'c' }, url: { type: 'string' },
      json: { type: 'boolean', default: false }, ...optionsOf(verb) } })
}

function usageOf (noun: string, verb: string, one: Verb): string {
  const { takes, optional = 0 } = one
  const words = takes.map((name, i) => i < takes.length - optional ? name : `[${name}]`)
  const options = [...(one.needs ?? []).map((name) => `--${name} TEXT`),
    ...(one.options ?? []).map((name) => `[--${name} ${name.toUpperCase().replaceAll('-', '_')}]`),
    ...(one.flags ?? []).map((name) => `[--${name}]`)]
  if (one.settings !== undefined) options.push('[SETTINGS]')
  const named = verb === '' ? [] : [verb]
  return ['gateway', noun, ...named, ...words, ...options, '[--json] [--config FILE] [--url URL]'].join(' ')
}

/** The settings, a line each, in the words of their schemas. */
function explanations (verb: Verb): string {
  return (verb.note ?? '') + settable(verb).map(([name, { type, description, enum: values }]) => {
    const value = Array.isArray(values) ? values.join('|')
      : type === 'boolean' ? 'true|false' : type === 'integer' ? 'NUMBER' : type === 'array' ? 'A,B' : 'TEXT'
    return `  ${`--${name.replaceAll('_', '-')} ${value}`.padEnd(32)} ${String(description ?? '')}\n`
  }).join('')
}

function optionsOf (verb: Verb): NonNullable<ParseArgsConfig['options']> {
  const { options = [], lists = [], flags = [], needs = [] } = verb
  const names = [
    ...settable(verb).map(([name, { type }]) => [name.replaceAll('_', '-'), type === 'array'] as const),
    ...[...needs, ...options].map((name) => [name, lists.includes(name)] as const)
  ]
  return Object.fromEntries([
    ...names.map(([name, isList]) => [name, { type: 'string', multiple: isList }] as const),
    ...flags.map((name) => [name, { type: 'boolean' }] as const)
  ])
}

/** The settings that are options. */
function settable ({ settings, takes, fixed = [] }: Verb): [string, JsonSchema][] {
  return propertiesOf(settings).filter(([name]) => name !== 'id' && !takes.includes(name.toUpperCase()) &&
    !fixed.includes(name))
}

function propertiesOf (schema: JsonSchema | undefined): [string, JsonSchema][] {
  return Object.entries(schema?.['properties'] ?? {}) as [string, JsonSchema][]
}

/** Options of the shell as JSON: a list may be one text with commas, or repeated. The API reports wrong values. */
function settings (values: Arguments['values'], schema: JsonSchema): Record<string, unknown> {
  const read: Record<string, unknown> = {}
  for (const [name, { type }] of propertiesOf(schema)) {
    const value = values[name.replaceAll('_', '-')]
    if (Array.isArray(value)) read[name] = words(value as readonly string[])
    else if (typeof value === 'string') {
      const isJson =
        (type === 'integer' && /^\d+$/.test(value)) || (type === 'boolean' && /^(?:true|false)$/.test(value))
      read[name] = isJson ? JSON.parse(value) : value
    }
  }
  return read
}

/** The words of texts with commas. */
function words (texts: readonly string[]): readonly string[] {
  return texts.flatMap((text) => text.split(',')).map((text) => text.trim()).filter((text) => text !== '')
}

/** @throws {CommandError} the API has refused: with its message */
export async function done (
  client: AdminClient,
  method: string,
  address: string,
  body?: unknown
): Promise<AdminAnswer['body']> {
  return resultOf(await client.ask(method, '/admin/v1' + address, body))
}

/** @throws {CommandError} as `done` */
function resultOf (answer: AdminAnswer): AdminAnswer['body'] {
  if (answer.status < 400) return answer.body
  const { error } = answer.body
  const message = isMap(error) && typeof error['message'] === 'string'
    ? error['message']
    : `The gateway answered with status ${answer.status}.`
  throw new CommandError(
    answer.status === 401
      ? `${message}\nThe gateway that answered has another token than this configuration: is it the one that is meant?`
      : message
  )
}

/** @param needs required options, each with the message when it is missing */
function booking (isDone: string, address: string, needs: Readonly<Record<string, string>>, note = ''): Verb {
  const names = Object.keys(needs)
  return {
    takes: ['ID', 'USD'], needs: names, note,
    async run (client, { positionals: [id, amount], values, json }) {
      const missing = names.find((name) => values[name] === undefined)
      if (missing !== undefined) throw new CommandError(needs[missing]!)
      const booked = await done(client, 'POST', `/accounts/${encodeURIComponent(id!)}${address}`, { amount_usd: amount,
        ...Object.fromEntries(names.map((name) => [name, values[name]])) })
      if (booked[isDone] === false) {
        console.error(`The reference ${String(values['reference'])} was ${isDone} before: nothing was changed.`)
      }
      return await show(booked, json)
    }
  }
}

/** Changes settings of a key or an account. */
function update (noun: string, schema: JsonSchema, fixed: readonly string[] = []): Verb {
  return {
    takes: ['ID'], settings: schema, fixed, options: ['unset'], lists: ['unset'], note: UPDATE_NOTE,
    async run (client, said) {
      const unset = words(said.values['unset'] as readonly string[] | undefined ?? [])
      const body = { ...settings(said.values, schema),
        ...Object.fromEntries(unset.map((name) => [name.replaceAll('-', '_'), null])) }
      if (Object.keys(body).length === 0) {
        throw new CommandError(`What should change? Name a setting: "gateway ${noun} update --help" lists them.`)
      }
      return await one(client, 'PATCH', noun, said, '', body)
    }
  }
}

/** @throws {CommandError} it is no number of lines */
function readCount (text: unknown): number {
  if (text === undefined) return 50
  if (typeof text !== 'string' || !/^[1-9]\d{0,8}$/.test(text)) {
    throw new CommandError(`--limit is a number of lines such as 100, and this is ${JSON.stringify(text)}.`)
  }
  return Number(text)
}

/** @param count of rows */
async function newest (
  client: AdminClient,
  address: string,
  count: number
): Promise<readonly Record<string, unknown>[]> {
  const rows: Record<string, unknown>[] = []
  for await (const page of pages(client, address, { order: 'desc' }, Math.min(count, LONGEST_PAGE))) {
    rows.push(...page)
    if (rows.length >= count) break
  }
  return rows.slice(0, count)
}

/** @param name of the secret */
async function showSecret ({ secret, ...row }: AdminAnswer['body'], json: boolean, name = 'secret'): Promise<number> {
  await print(json
    ? JSON.stringify({ ...row, secret }) + '\n'
    : `${card(row)}\n${name}, shown only now:  ${String(secret)}\n`)
  return 0
}

async function one (
  client: AdminClient,
  method: string,
  noun: string,
  { positionals: [id], json }: Arguments,
  more = '',
  body?: unknown
): Promise<number> {
  return await show(await done(client, method, `/${noun}/${encodeURIComponent(id!)}${more}`, body), json)
}

async function show (row: AdminAnswer['body'], json: boolean): Promise<number> {
  await print(json ? JSON.stringify(row) + '\n' : card(row))
  return 0
}

async function list (
  client: AdminClient,
  address: string,
  columns: readonly string[],
  { values, json }: Arguments
): Promise<number> {
  const rows: Record<string, unknown>[] = []
  for await (const page of pages(client, address, values)) rows.push(...page)
  await print(json ? JSON.stringify(rows) + '\n' : table(rows, columns))
  return 0
}

/** Columns in which nothing is are left out. */
function seriesTable (data: readonly SeriesRow[], groups: readonly RollupGroup[], total: SeriesRow): string {
  const sums = flatRow(total)
  const columns = seriesColumns(groups).filter((name) =>
    name !== 'from' && (!(name in sums) || name === 'requests' || name === 'charged_usd' || Number(sums[name]) !== 0)
  )
  return table([...data.map(flatRow), { period: 'total', ...sums }], columns)
}

async function* pages (
  client: AdminClient,
  address: string,
  values: Arguments['values'],
  limit = LONGEST_PAGE
): AsyncGenerator<readonly Record<string, unknown>[]> {
  const query = new URLSearchParams({ limit: String(limit) })
  for (const name of ['account', 'key', 'tag', 'order', 'model', 'channel', 'state']) {
    if (typeof values[name] === 'string') query.set(name, values[name])
  }
  for (;;) {
    const { data, next } = await done(client, 'GET', `${address}?${query}`)
    yield data as readonly Record<string, unknown>[]
    if (typeof next !== 'string') return
    query.set('after', next)
  }
}
