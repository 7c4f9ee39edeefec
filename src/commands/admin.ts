// The admin API from the shell, such as `gateway keys list`: each noun has its own file in nouns/.
import { nearest } from '../config/check/suggest.ts'
import { withAdminClient } from './admin-client.ts'
import type { CommandParts } from './command.ts'
import { accounts } from './nouns/accounts.ts'
import { admin } from './nouns/admin.ts'
import { audit } from './nouns/audit.ts'
import { diff } from './nouns/diff.ts'
import { fleet } from './nouns/fleet.ts'
import { keys } from './nouns/keys.ts'
import { ledger } from './nouns/ledger.ts'
import { prices } from './nouns/prices.ts'
import { requests } from './nouns/requests.ts'
import { status } from './nouns/status.ts'
import { tokens } from './nouns/tokens.ts'
import { upstreams } from './nouns/upstreams.ts'
import { usage } from './nouns/usage.ts'
import { videos } from './nouns/videos.ts'
import { complain, print } from './stdout.ts'
import { explanations, meantOption, type Noun, readArgs, usageOf } from './verb.ts'

export const NOUNS: Readonly<Record<string, Noun>> = { accounts, admin, audit, diff, fleet, keys, ledger, prices,
  requests, status, tokens, upstreams, usage, videos }

/** @returns the exit code: 0 done, 1 refused or failed */
export async function adminCommand (
  noun: string,
  said: readonly string[],
  { locate, ...how }: CommandParts
): Promise<number> {
  const verbs = NOUNS[noun]!
  // Some nouns are the whole command, or one of several.
  const isBare = Object.hasOwn(verbs, '') && !Object.hasOwn(verbs, said[0] ?? '')
  const [verb = '', ...args] = isBare ? ['', ...said] : said
  const found = Object.hasOwn(verbs, verb) ? verbs[verb]! : undefined
  if (found === undefined) {
    const isHelp = ['--help', '-h', 'help'].includes(verb)
    const usage = Object.entries(verbs).map(([name, one]) => `  ${usageOf(noun, name, one)}\n`).join('')
    if (isHelp) { await print(usage); return 0 }
    const near = nearest(verb, Object.keys(verbs))
    const unknown = `There is no command "${noun} ${verb}"${near === undefined ? '.' : `: did you mean "${near}"?`}`
    complain(`${verb === '' ? `What about ${noun}?` : unknown}\n\n${usage}`)
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
    complain(`${(thrown as Error).message.split('. ')[0]!}${meantOption(found, args)}\n\n${usage}`)
    return 1
  }
  const { values, positionals } = read
  if (positionals.length < takes.length - optional || positionals.length > takes.length) {
    complain(usage)
    return 1
  }
  const options = { ...locate(values.config as string | undefined), url: values.url as string | undefined, ...how }
  return await withAdminClient(options, async (open) =>
    await found.run(await open(), { positionals, values, json: values.json === true })
  )
}
