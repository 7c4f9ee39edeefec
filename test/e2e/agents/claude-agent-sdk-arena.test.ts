// The Claude Agent SDK in the arena. It brings Claude Code once more, 230 MB: here it runs the one that is installed.
import { installed, programAt, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const page = 'docs/customers/clients/claude-agent-sdk.md'
const claude = installed(`@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`)

/** A program that asks once, and prints what the last message says. */
const ask = `
const [prompt, resumes] = process.argv.slice(2)
const more = { permissionMode: 'acceptEdits', allowedTools: ['Bash'], continue: resumes === 'true',
  pathToClaudeCodeExecutable: ${JSON.stringify(claude.path)} }
for await (const message of query({ prompt, options: { ...options, ...more } })) {
  if (message.type !== 'result') continue
  console.log(message.result ?? message.errors)
  process.exitCode = message.is_error ? 1 : 0
}
`

arena({
  name: 'Claude Agent SDK',
  program: claude,
  hands: {
    shell: (command) => ({ name: 'Bash', input: { command, description: 'runs it' } }),
    write: (file_path, content) => ({ name: 'Write', input: { file_path, content } }),
    look: (file_path) => ({ name: 'Read', input: { file_path } })
  },
  start: (_on, { url, model, prompt, resumes }) => ({
    program: [process.execPath, programAt(settings(page, 'js', url).replace("'claude-sonnet'", `'${model}'`) + ask),
      prompt, String(resumes)]
  }),
  compacts: { by: 'error', words: 'create a detailed summary', keeps: 1 },
  beside: 0,
  errors: {
    context: { says: /Prompt is too long/, most: 2 },
    'wrong key': { says: /Not logged in/, most: 1 },
    'no money': { says: /balance of the account/, most: 1 },
    'no money at the vendor': { says: /server-side issue/, most: 2 },
    'rate limit': { says: /All is done/, most: 6, endsWell: true },
    'unknown model': { says: /There is no model/, most: 4 }
  }
})
