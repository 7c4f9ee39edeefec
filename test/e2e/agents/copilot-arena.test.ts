// GitHub's Copilot CLI in the arena: messages style in front of a vendor of chat completions, and the other way round.
import { dirname, join } from 'node:path'
import { installed, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const page = 'docs/customers/clients/copilot.md'
const program = installed(`@github/copilot-${process.platform}-${process.arch}/copilot`)

arena({
  name: 'Copilot CLI',
  program,
  hands: {
    shell: (command) => ({ name: 'bash', input: { command, description: 'runs it' } }),
    write: (path, text) => ({ name: 'create', input: { path, file_text: text } })
  },
  start: (on, { url, model, prompt, resumes, vendor }) => ({
    program: [program.path, '--silent', '--allow-all-tools', ...resumes ? ['--continue'] : ['--attachment', on.picture],
      '--prompt', prompt],
    exports: settings(page, 'sh', url, vendor === 'chat' ? 1 : 0).replace('MODEL=claude-sonnet', `MODEL=${model}`),
    // It unpacks 235 MB of itself there.
    env: { COPILOT_CACHE_HOME: join(dirname(program.path), '.cache') }
  }),
  sees: (picture) => picture,
  beside: 0,
  errors: {
    context: { says: /prompt as too long/, most: 1 },
    'wrong key': { says: /Authentication failed/, most: 1 },
    'no money': { says: /balance of the account/, most: 1 },
    'no money at the vendor': { says: /service is unavailable/, most: 2 },
    'rate limit': { says: /All is done/, most: 6, endsWell: true },
    'unknown model': { says: /There is no model/, most: 1 }
  }
})
