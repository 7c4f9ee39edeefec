// Access of a command to accounts, keys and ledger: through the admin API of the running gateway, or, when none runs,
// in the data folder itself.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { env } from 'node:process'
import { nearUrl } from '../base/near-url.ts'
import type { Config } from '../config/config.ts'
import { type InvalidLoad, loadConfig } from '../config/load/load.ts'
import { ConfigError } from '../config/problem.ts'
import { ADMIN_LISTEN } from '../config/sections/server.ts'
import { DATA_FOLDER } from '../config/sections/store.ts'
import { hasLedger, traitsOf } from '../store/open.ts'
import type { CommandParts } from './command.ts'
import type { AdminAnswer, AdminClient } from './command.ts'
import { openDirectly } from './offline.ts'
import { complain } from './stdout.ts'

export interface AccessOptions extends Omit<CommandParts, 'locate'> {
  readonly file: string
  /** the folder that store.path is relative to */
  readonly base: string
  /** of a remote gateway: gateway.yaml is not read, and the token comes from the environment */
  readonly url?: string | undefined
}

/** An error in words for the user: printed without a stack. */
export class CommandError extends Error {}

const TOKEN_VARIABLE = 'GATEWAY_ADMIN_TOKEN'
const TIMEOUT_MS = 60_000

/**
 * Runs a command that opens the admin API when its own arguments are read, and closes it.
 * @returns the exit code; 1 where a CommandError was thrown, and printed
 */
export async function withAdminClient (
  options: AccessOptions,
  run: (open: () => Promise<AdminClient>) => Promise<number>
): Promise<number> {
  let client: AdminClient | undefined
  try {
    return await run(async () => client = await openAdminClient(options))
  } catch (thrown) {
    if (!(thrown instanceof CommandError)) throw thrown
    complain(thrown.message)
    return 1
  } finally {
    await client?.close()
  }
}

/** A running gateway; or the configuration and the data folder, where none runs. */
export type Place =
  | { readonly url: string, readonly token: string }
  | { readonly url: undefined, readonly config: Config, readonly folder: string, readonly file: string }

/** @throws {CommandError} there is no access: says what to do */
async function openAdminClient (options: AccessOptions): Promise<AdminClient> {
  const place = await findPlace(options)
  if (place.url !== undefined) return remote(place.url, place.token)
  const { config, folder, file } = place
  const { listen } = config.server.admin
  if (!traitsOf(config.store).isLasting) {
    throw new CommandError(`No gateway answers at ${listen} (server.admin.listen), and what store.driver: ` +
      `${config.store.driver} keeps ends with its process. Start the gateway first.`)
  }
  await refuseMissing(config, folder, `No gateway answers at ${listen}, which is server.admin.listen of ${file}. `)
  try {
    return await openDirectly(config, folder, options.plugins)
  } catch (cause) {
    throw new CommandError(
      `No gateway answers at ${listen} (server.admin.listen), so the data folder was tried: ` +
      `${(cause as Error).message}\nIf a gateway runs at another address, name it: --url http://HOST:PORT, with its ` +
      `token in ${TOKEN_VARIABLE}.`,
      { cause }
    )
  }
}

/**
 * To open a store that is not there would begin an empty one, in which no account has money.
 * @throws {CommandError}
 */
export async function refuseMissing ({ store }: Config, folder: string, tried = ''): Promise<void> {
  if (await hasLedger(store, folder)) return
  throw new CommandError(
    `${tried}There is no ledger in ${folder} (store.path). Run the command in the folder of the gateway, or name its ` +
    'configuration: --config FILE. A new gateway makes its ledger when it starts first.'
  )
}

/** @throws {CommandError} there is no access: says what to do */
export async function findPlace (
  { file, base, url, pluginsUrl, load = loadConfig }: Omit<AccessOptions, 'plugins'>
): Promise<Place> {
  if (url !== undefined) {
    const token = env[TOKEN_VARIABLE] ?? ''
    if (token === '') {
      throw new CommandError(`With --url the admin token comes from the environment: set ${TOKEN_VARIABLE}.`)
    }
    if (!URL.canParse(url) || !/^https?:/.test(url)) {
      throw new CommandError('--url must be the address of an admin listener, such as http://127.0.0.1:9090.')
    }
    return { url: url.replace(/(?<!\/)\/+$/, ''), token }
  }
  const loaded = await load(file, { pluginsUrl, forAccess: true })
  if (loaded.kind === 'invalid') return await placeOfInvalid(loaded, file, base)
  const { config } = loaded
  const folder = path.resolve(base, config.store.path)
  const near = await nearGateway(config.server.admin.listen)
  return near === undefined ? { url: near, config, folder, file }
    : { url: near, token: tokenOf(config.server.admin.token, folder) }
}

/**
 * A gateway goes on while its file is broken, and commands to it do not wait for the file.
 * @throws {CommandError} none answers: says what is wrong in the file
 */
async function placeOfInvalid ({ access, problems }: InvalidLoad, file: string, base: string): Promise<Place> {
  if (access !== undefined) {
    const url = await nearGateway(access.listen ?? ADMIN_LISTEN)
    if (url !== undefined) {
      complain(`${file} can't be used now (\`gateway check\` shows why): the gateway that runs at ${url} is used.`)
      const folder = path.resolve(base, access.path ?? DATA_FOLDER)
      // At the default address another gateway may run: it does not get a token that it would accept.
      const fromOutside = access.listen === undefined ? '' : env[TOKEN_VARIABLE] ?? ''
      return { url, token: tokenOf(access.token ?? fromOutside, folder) }
    }
  }
  throw new CommandError(
    `The configuration can't be used:\n${new ConfigError(problems).message}\nA gateway that runs can be ` +
    `reached without it: --url http://HOST:PORT, with its token in ${TOKEN_VARIABLE}.`
  )
}

/**
 * The gateway with this admin listener; undefined: none answers.
 * @throws {CommandError} another program answers there
 */
async function nearGateway (listen: string): Promise<string | undefined> {
  const near = urlOf(listen)
  return near !== undefined && await answers(near) ? near : undefined
}

/** Undefined: port 0, which is chosen at the start. */
function urlOf (listen: string): string | undefined {
  return listen.endsWith(':0') ? undefined : nearUrl(listen)
}

async function answers (url: string): Promise<boolean> {
  try {
    await (await fetch(`${url}/healthz`, { signal: AbortSignal.timeout(TIMEOUT_MS) })).text()
    return true
  } catch (cause) {
    if (codeOf(cause) === 'ECONNREFUSED') return false
    throw new CommandError(`Something listens at ${url} and does not answer: ${reason(cause)}.`, { cause })
  }
}

/** @param token '': a generated one, in the data folder */
function tokenOf (token: string, folder: string): string {
  if (token !== '') return token
  const file = path.join(folder, 'admin-token')
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (cause) {
    throw new CommandError(
      `The admin token can't be read: ${(cause as Error).message}. Run the command as the user and in the folder of ` +
      `the gateway, or give --url and ${TOKEN_VARIABLE}.`,
      { cause }
    )
  }
}

function remote (url: string, token: string): AdminClient {
  return {
    url,
    async ask (method, address, body) {
      let status: number
      let text: string
      try {
        const response = await fetch(url + address, {
          method,
          signal: AbortSignal.timeout(TIMEOUT_MS),
          headers: { authorization: `Bearer ${token}`,
            ...(body !== undefined && { 'content-type': 'application/json' }) },
          ...(body !== undefined && { body: JSON.stringify(body) })
        })
        status = response.status
        text = await response.text()
      } catch (cause) {
        throw new CommandError(
          `The gateway at ${url} did not answer: ${reason(cause)}.` +
            (method === 'GET' ? '' : ' Whether it did what was asked is unknown: look before you repeat it.'),
          { cause }
        )
      }
      try {
        return { status, body: JSON.parse(text) as AdminAnswer['body'] }
      } catch (cause) {
        throw new CommandError(`What listens at ${url} is not the admin listener of a gateway.`, { cause })
      }
    },
    async close () {}
  }
}

function codeOf (thrown: unknown): string | undefined {
  const cause = (thrown as { readonly cause?: unknown }).cause
  return (cause as { readonly code?: string } | undefined)?.code
}

function reason (thrown: unknown): string {
  return codeOf(thrown) ?? (thrown as Error).message
}
