// Qwen Code in the arena: messages style in front of a vendor of chat completions, and the other way round.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { installed, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const page = 'docs/customers/clients/qwen-code.md'
const program = installed('@qwen-code/qwen-code/cli-entry.js')

arena({
  name: 'Qwen Code',
  program,
  hands: {
    shell: (command) => ({ name: 'run_shell_command', input: { command, description: 'runs it' } }),
    write: (file_path, content) => ({ name: 'write_file', input: { file_path, content } }),
    look: (file_path) => ({ name: 'read_file', input: { file_path } })
  },
  start: ({ home }, { url, model, prompt, resumes, vendor }) => {
    mkdirSync(join(home, '.qwen'), { recursive: true })
    writeFileSync(join(home, '.qwen', 'settings.json'), settings(page, 'json', url).replaceAll('claude-sonnet', model))
    return {
      program: [process.execPath, program.path, '--yolo', '--auth-type', vendor === 'chat' ? 'anthropic' : 'openai',
        ...resumes ? ['--continue'] : [], prompt],
      env: { QWEN_CODE_SUPPRESS_YOLO_WARNING: '1' }
    }
  },
  // It makes a JPEG of it.
  sees: () => '/9j/',
  afterCut: 'completes',
  beside: 0,
  // Each run takes seconds of a processor before its first request.
  errors: {}
})
