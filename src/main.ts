// The command line: joins the shipped plugins with the commands. The only file of src that imports plugins.
import path from 'node:path'
import { runCommand } from './commands/run.ts'
import { complained } from './commands/stdout.ts'

/** .ts in a checkout, .js in the packed build: as this file. */
const pluginsUrl = new URL(`../plugins/index${path.extname(import.meta.url)}`, import.meta.url).href

// Node has them as getters, and each use would be a call: thirty for a request.
for (const [name, value] of Object.entries({ performance, Buffer, process })) {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true })
}

const args = process.argv.slice(2)
process.exitCode = await runCommand(args, {
  plugins: async () => (await import('../plugins/index.ts')).plugins,
  pluginsUrl
})
// A server does not wait for a reader of its error messages.
if (args[0] !== 'start') await complained()
process.exit()
