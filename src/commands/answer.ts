// What the admin API answers a command: whole, by pages, or with a refusal.
import { LONGEST_PAGE } from '../admin/api/operation.ts'
import { isMap } from '../config/yaml/position.ts'
import { CommandError } from './admin-client.ts'
import type { AdminAnswer, AdminClient } from './command.ts'
import type { Arguments } from './verb.ts'

/** @throws {CommandError} the API has refused: with its message */
export async function done (
  client: AdminClient,
  method: string,
  address: string,
  body?: unknown
): Promise<AdminAnswer['body']> {
  return resultOf(await client.ask(method, '/admin/v1' + address, body))
}

/** The answer of a gateway that runs. @throws {CommandError} none does, or it has refused */
export async function ofRunning (
  client: AdminClient, method: string, address: string, body?: unknown
): Promise<AdminAnswer['body']> {
  const answer = await client.ask(method, '/admin/v1' + address, body)
  if (answer.status === 404) {
    throw new CommandError('No gateway answers, and this is asked of one that runs: start it (gateway start), or ' +
      'name another with --url.')
  }
  return resultOf(answer)
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

export async function* pages (
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
