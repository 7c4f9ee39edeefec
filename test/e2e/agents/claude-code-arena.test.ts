// Claude Code in the arena: a long loop with vendors that misbehave, and errors.
import { installed, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const page = 'docs/customers/clients/claude-code.md'
const program = installed(`@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`)

arena({
  name: 'Claude Code',
  program,
  hands: {
    shell: (command) => ({ name: 'Bash', input: { command, description: 'runs it' } }),
    write: (file_path, content) => ({ name: 'Write', input: { file_path, content } }),
    look: (file_path) => ({ name: 'Read', input: { file_path } })
  },
  start: (_on, { url, model, prompt, resumes }) => ({
    program: [program.path, '--print', '--output-format', 'json', '--permission-mode', 'acceptEdits',
      ...resumes ? ['--continue'] : [], '--allowedTools', 'Bash', '--', prompt],
    exports: settings(page, 'sh', url).replace('MODEL=claude-sonnet', `MODEL=${model}`)
  }),
  compacts: { by: 'error', words: 'create a detailed summary', keeps: 1 },
  beside: 0,
  errors: {
    context: { says: /Prompt is too long/i, most: 3 },
    'wrong key': { says: /Not logged in/, most: 2 },
    'no money': { says: /the balance of the account has \$0 left/, most: 2 },
    'no money at the vendor': { says: /The service is unavailable at this moment. Try again in \d+ minutes/, most: 3 },
    'rate limit': { says: /All is done/, most: 5, endsWell: true },
    'unknown model': { says: /There is no model \\?"no-such-model/, most: 4 }
  }
})
