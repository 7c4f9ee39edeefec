// Codex in the arena: a long loop with vendors that misbehave, and errors.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { installed, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const program = installed('@openai/codex/bin/codex.js')
const shell = (command: string) => ({ name: 'exec_command', input: { cmd: command } })

arena({
  name: 'Codex',
  program,
  hands: {
    shell,
    write: (path, text) => shell(`echo ${text} > ${path}`),
    look: (path) => ({ name: 'view_image', input: { path } })
  },
  start ({ home }, { url, model, prompt, resumes }) {
    mkdirSync(join(home, '.codex'), { recursive: true })
    const toml = settings('docs/customers/clients/codex.md', 'toml', url).replace(/^model = .*/m, `model = "${model}"`)
    writeFileSync(join(home, '.codex', 'config.toml'), `${toml}\n[analytics]\nenabled = false\n`)
    return { program: [process.execPath, program.path, 'exec', '--skip-git-repo-check',
      '--dangerously-bypass-approvals-and-sandbox', ...resumes ? ['resume', '--last'] : [], '--', prompt] }
  },
  compacts: { by: 'usage', words: 'CONTEXT CHECKPOINT COMPACTION' },
  beside: 0,
  errors: {
    context: { says: /Codex ran out of room in the model's context window/, most: 1 },
    'wrong key': { says: /unexpected status 401 Unauthorized: The API key is wrong, frozen or deleted/, most: 6 },
    'no money': { says: /ERROR: unexpected status 402 .*the balance of the account has \$0 left/, most: 6 },
    // No money at the vendor: it waits in silence as long as Retry-After says, minutes, and reads no x-should-retry.
    'rate limit': { says: /All is done/, most: 4, endsWell: true },
    'unknown model': { says: /ERROR: There is no model "no-such-model"/, most: 1 }
  }
})
