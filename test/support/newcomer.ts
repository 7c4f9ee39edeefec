// What tests need that do as a newcomer does: the shell of the machine, and the curl command that `gateway start`
// prints.
import type { ChildProcess } from 'node:child_process'
import { delimiter } from 'node:path'

/**
 * What to spawn so that the command runs without tap in it: tap's runner puts its loader into every child's
 * NODE_OPTIONS, whatever environment it is given, and tsc dies of that loader. `env` becomes the command, so the pid
 * and signals are its own.
 */
export function untapped (command: string, args: readonly string[]): [string, string[]] {
  return ['env', ['-u', 'NODE_OPTIONS', command, ...args]]
}

/** The environment without anything of this run's npm and tap; `node` is the machine's own, however old. */
export function newcomersEnvironment (): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(([name]) => !/^(npm_|node_options$|tap)/i.test(name))
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => !folder.includes('node_modules'))
  return { ...Object.fromEntries(own), PATH: path.join(delimiter) }
}

/**
 * The command, once it is printed whole (lines that end in a backslash go on). Rejects if the process ends before, with
 * what it said.
 */
export async function printedCurl (gateway: ChildProcess): Promise<string> {
  return await new Promise((resolve, reject) => {
    let output = ''
    const read = (chunk: Buffer): void => {
      output += chunk.toString('latin1') // only searched, and the command is ASCII
      const found = /^\s*(curl (?:[^\n]*\\\n)*[^\n]*[^\\\n])\n/m.exec(output)?.[1]
      if (found !== undefined) resolve(found)
    }
    gateway.stdout?.on('data', read)
    gateway.stderr?.on('data', read)
    gateway.once('error', reject)
    gateway.once('close', (code) => reject(new Error(`it ended with ${code} and printed no curl:\n${output}`)))
  })
}
