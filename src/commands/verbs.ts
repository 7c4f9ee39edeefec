// What several nouns do alike: list, show, change settings, print a secret.
import type { JsonSchema } from '../config/plugin-descriptor.ts'
import { CommandError } from './admin-client.ts'
import { done, pages } from './answer.ts'
import type { AdminAnswer, AdminClient } from './command.ts'
import { card, table } from './print.ts'
import { print } from './stdout.ts'
import { type Arguments, settings, type Verb, words } from './verb.ts'

const UPDATE_NOTE =
  '  --unset NAME                     back to the standard: NAME is a setting below; may be said several times\n'

export async function list (
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

export async function one (
  client: AdminClient,
  method: string,
  noun: string,
  { positionals: [id], json }: Arguments,
  more = '',
  body?: unknown
): Promise<number> {
  return await show(await done(client, method, `/${noun}/${encodeURIComponent(id!)}${more}`, body), json)
}

export async function show (row: AdminAnswer['body'], json: boolean): Promise<number> {
  await print(json ? JSON.stringify(row) + '\n' : card(row))
  return 0
}

/** @param name of the secret */
export async function showSecret (
  { secret, ...row }: AdminAnswer['body'], json: boolean, name = 'secret'
): Promise<number> {
  await print(json
    ? JSON.stringify({ ...row, secret }) + '\n'
    : `${card(row)}\n${name}, shown only now:  ${String(secret)}\n`)
  return 0
}

/** Changes settings of a key or an account. */
export function update (noun: string, schema: JsonSchema, fixed: readonly string[] = []): Verb {
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
