// `gateway diff FILE`: what another configuration would change.
import { readFileSync } from 'node:fs'
import { formatProblem, type Problem } from '../../config/problem.ts'
import type { Judgement } from '../../config/state.ts'
import { CommandError } from '../admin-client.ts'
import { done, ofRunning } from '../answer.ts'
import { complain, print } from '../stdout.ts'
import type { Noun } from '../verb.ts'

const DIFF_NOTE =
  '  What FILE (- is standard input) would change in the live configuration, which stays as it is. Values from the ' +
    'environment and\n  from secret files are not looked at; files that it includes must be those of the live one. ' +
    'Exit code 1: it can\'t be used.\n  --exit-code  exit code 2 if it changes something\n'

export const diff: Noun = {
  '': {
    takes: ['FILE'], note: DIFF_NOTE, flags: ['exit-code'],
    async run (client, { positionals: [file], values, json }) {
      const found = await ofRunning(client, 'POST', '/config/diff', { text: readText(file!) })
      const { ok, problems, warnings, unread, changes, more_changes: more } = found as unknown as Judgement
      const code = !ok ? 1 : values['exit-code'] === true && changes.length > 0 ? 2 : 0
      if (json) { await print(JSON.stringify(found) + '\n'); return code }
      // The gateway knows the text as its own file, and included ones by their names.
      const { source } = await done(client, 'GET', '/config')
      const say = (before: string, problem: Problem): void => {
        complain(before + formatProblem({ ...problem, file: problem.file === source ? file! : problem.file }))
      }
      for (const problem of problems) say('', problem)
      for (const warning of warnings) say('warning: ', warning)
      for (const value of unread) say('not looked at: ', value)
      await print(changes.map(({ path, what, before, after }) =>
        `${what.padEnd(9)}  ${path}  ${[before, after].filter((value) => value !== undefined).join(' -> ')}\n`
      ).join(''))
      if (more > 0) await print(`and ${more} more\n`)
      if (ok && changes.length === 0) await print('It changes nothing.\n')
      return code
    }
  }
}

function readText (file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (cause) {
    throw new CommandError(`The file can't be read: ${(cause as Error).message}.`, { cause })
  }
}
