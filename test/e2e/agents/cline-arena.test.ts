// Cline's CLI in the arena: messages style in front of a vendor of chat completions, and the other way round.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { installed, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const page = 'docs/customers/clients/cline.md'
// The package `cline` is a script that starts one of these, and 280 MB of libraries that nobody loads then.
const program = installed(`@cline/cli-${process.platform}-${process.arch}/bin/cline`)

arena({
  name: 'Cline',
  program,
  hands: {
    shell: (command) => ({ name: 'run_commands', input: { commands: [command] } }),
    write: (path, text) => ({ name: 'editor', input: { path, new_text: text } }),
    look: (path) => ({ name: 'read_files', input: { files: [{ path }] } })
  },
  start: ({ home }, { url, model, prompt, key }) => {
    const folder = join(home, '.cline', 'data', 'settings')
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, 'providers.json'), settings(page, 'json', url)
      .replace('GATEWAY_KEY', key).replace('claude-sonnet', model))
    return {
      program: [program.path, '--json', '--auto-approve', 'true', prompt],
      env: { CLINE_SESSION_BACKEND_MODE: 'local', CLINE_NO_AUTO_UPDATE: '1' }
    }
  },
  afterCut: 'stops',
  beside: 0,
  // Each run takes seconds of a processor before its first request, so not all of them are here. For a vendor without
  // money it asks six times in a minute, whatever x-should-retry says.
  errors: {
    context: { says: /exceeds the model's context window/, most: 1 },
    'wrong key': { says: /The API key is wrong/, most: 1 },
    'rate limit': { says: /All is done/, most: 6, endsWell: true }
  }
})
