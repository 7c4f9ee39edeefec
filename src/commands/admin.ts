// `gateway keys …`, `gateway accounts …`, `gateway ledger …`: the admin API from the shell. Names and types of settings
// come from the API's own schemas.
import { parseArgs, type ParseArgsConfig } from 'node:util'
import { newAccount, newKey } from '../admin/api/schemas.ts'
import { isMap } from '../config/yaml/position.ts'
import { suggest } from '../config/check/suggest.ts'
import type { JsonSchema } from '../config/plugin-descriptor.ts'
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
  /** options: settings of a schema, and more */
  readonly settings?: JsonSchema
  readonly options?: readonly string[]
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
const ACCOUNT_COLUMNS = ['id', 'name', 'state', 'declared', 'balance_usd', 'held_usd']

const REFUND_NOTE =
  '  Gives money back to the account, once per reference; the id of a request may be one. What its keys have spent, ' +
    'and their usage\n  limits, stay as they are: usage shows what was charged, the ledger what was given back.\n'
const DEBIT_NOTE =
  '  Takes money from the account, once per reference: at most what is available, for no balance goes below zero.\n'

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
        await print(
          json
            ? JSON.stringify({ ...key, secret }) + '\n'
            : `${card(key)}\nsecret, shown only now:  ${String(secret)}\n`
        )
        return 0
      }
    },
    list: { takes: [], options: ['account'], run: async (client, said) => await list(client, '/keys', KEY_COLUMNS, said) },
    show: { takes: ['ID'], run: async (client, said) => await one(client, 'GET', 'keys', said) },
    freeze: { takes: ['ID'], run: async (client, said) => await one(client, 'PATCH', 'keys', said, '', { frozen: true }) },
    unfreeze: { takes: ['ID'],
      run: async (client, said) => await one(client, 'PATCH', 'keys', said, '', { frozen: false }) },
    delete: { takes: ['ID'], run: async (client, said) => await one(client, 'DELETE', 'keys', said) },
    rotate: {
      takes: ['ID'], options: ['grace'],
      async run (client, { positionals: [id], values, json }) {
        const { secret, ...key } = await done(client, 'POST', `/keys/${encodeURIComponent(id!)}/rotate`, {
          ...(values['grace'] !== undefined && { grace: values['grace'] })
        })
        await print(
          json
            ? JSON.stringify({ ...key, secret }) + '\n'
            : `${card(key)}\nnew secret, shown only now:  ${String(secret)}\n`
        )
        return 0
      }
    }
  },
  accounts: {
    create: { takes: ['ID'], settings: newAccount,
      run: async (client, { positionals: [id], values, json }) =>
        await show(await done(client, 'POST', '/accounts', { id, ...settings(values, newAccount) }), json) },
    list: { takes: [], run: async (client, said) => await list(client, '/accounts', ACCOUNT_COLUMNS, said) },
    show: { takes: ['ID'], run: async (client, said) => await one(client, 'GET', 'accounts', said) },
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
      run: async (client, said) => await one(client, 'PATCH', 'accounts', said, '', { suspended: false }) }
  },
  fleet: {
    list: {
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
            differences as readonly Record<string, unknown>[], ['of', 'id', 'entries_usd', 'kept_usd', 'where']
          )
          await print(`The ledger is WRONG: a balance is not the sum of its entries.\n${listed}`)
        }
        return ok === true ? 0 : 1
      }
    }
  }
}

/** @returns the exit code: 0 done, 1 refused or failed */
export async function adminCommand (
  noun: string,
  [verb = '', ...args]: readonly string[],
  { locate, ...how }: CommandParts
): Promise<number> {
  const verbs = NOUNS[noun]!
  const found = Object.hasOwn(verbs, verb) ? verbs[verb]! : undefined
  if (found === undefined) {
    const isHelp = ['--help', '-h', 'help'].includes(verb)
    const usage = Object.entries(verbs).map(([name, one]) => `  ${usageOf(noun, name, one)}\n`).join('')
    if (isHelp) { await print(usage); return 0 }
    const near = suggest(verb, Object.keys(verbs), 0)
    const unknown = `There is no command "${noun} ${verb}"${near?.startsWith('did') === true ? `: ${near}` : '.'}`
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
    console.error(`${(thrown as Error).message.split('. ')[0]!}.\n\n${usage}`)
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
    ...(one.options ?? []).map((name) => `[--${name} ${name.toUpperCase()}]`)]
  if (one.settings !== undefined) options.push('[SETTINGS]')
  return ['gateway', noun, verb, ...words, ...options, '[--json] [--config FILE] [--url URL]'].join(' ')
}

/** The settings, a line each, in the words of their schemas. */
function explanations ({ settings, note = '' }: Verb): string {
  return note + propertiesOf(settings).filter(([name]) => name !== 'id').map(([name, { type, description }]) => {
    const value = type === 'boolean' ? 'true|false' : type === 'integer' ? 'NUMBER' : type === 'array' ? 'A,B' : 'TEXT'
    return `  ${`--${name.replaceAll('_', '-')} ${value}`.padEnd(32)} ${String(description ?? '')}\n`
  }).join('')
}

function optionsOf ({ settings, options = [], needs = [] }: Verb): NonNullable<ParseArgsConfig['options']> {
  const names = [
    ...propertiesOf(settings).filter(([name]) => name !== 'id').map(([name, { type }]) =>
      [name.replaceAll('_', '-'), type === 'array'] as const
    ),
    ...[...needs, ...options].map((name) => [name, false] as const)
  ]
  return Object.fromEntries(names.map(([name, isList]) => [name, { type: 'string', multiple: isList }]))
}

function propertiesOf (schema: JsonSchema | undefined): [string, JsonSchema][] {
  return Object.entries(schema?.['properties'] ?? {}) as [string, JsonSchema][]
}

/** Options of the shell as JSON: a list may be one text with commas, or repeated. The API reports wrong values. */
function settings (values: Arguments['values'], schema: JsonSchema): Record<string, unknown> {
  const read: Record<string, unknown> = {}
  for (const [name, { type }] of propertiesOf(schema)) {
    const value = values[name.replaceAll('_', '-')]
    if (Array.isArray(value)) {
      read[name] = (value as readonly string[])
        .flatMap((text) => text.split(','))
        .map((text) => text.trim())
        .filter((text) => text !== '')
    } else if (typeof value === 'string') {
      const isJson =
        (type === 'integer' && /^\d+$/.test(value)) || (type === 'boolean' && /^(?:true|false)$/.test(value))
      read[name] = isJson ? JSON.parse(value) : value
    }
  }
  return read
}

/** @throws {CommandError} the API has refused: with its message */
export async function done (
  client: AdminClient,
  method: string,
  address: string,
  body?: unknown
): Promise<AdminAnswer['body']> {
  const answer = await client.ask(method, '/admin/v1' + address, body)
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

async function* pages (
  client: AdminClient,
  address: string,
  values: Arguments['values']
): AsyncGenerator<readonly Record<string, unknown>[]> {
  const query = new URLSearchParams({ limit: '1000' })
  for (const name of ['account', 'key']) if (typeof values[name] === 'string') query.set(name, values[name])
  for (;;) {
    const { data, next } = await done(client, 'GET', `${address}?${query}`)
    yield data as readonly Record<string, unknown>[]
    if (typeof next !== 'string') return
    query.set('after', next)
  }
}
