// Continue's CLI in the arena: a long loop with vendors that misbehave, and errors.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { installed, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const program = installed('@continuedev/cli/dist/cn.js')

arena({
  name: 'Continue',
  program,
  hands: {
    shell: (command) => ({ name: 'Bash', input: { command } }),
    write: (filepath, content) => ({ name: 'Write', input: { filepath, content } })
  },
  start ({ work }, { url, model, prompt, resumes, vendor }) {
    const yaml = settings('docs/customers/clients/continue.md', 'yaml', url)
      .replace('model: claude-sonnet', `model: ${model}`)
    writeFileSync(join(work, 'config.yaml'), vendor === 'chat' ? yaml
      : yaml.replace('provider: openai', 'provider: anthropic')
        .replace(/\{ reasoning_effort.*\}/, '{ thinking: { type: enabled, budget_tokens: 8000 } }'))
    return { program: [process.execPath, program.path, '--config', 'config.yaml', '--print', '--auto',
      ...resumes ? ['--resume'] : [], prompt],
    env: { CONTINUE_TELEMETRY_ENABLED: '0', CONTINUE_METRICS_ENABLED: '0' } }
  },
  // It compacts when its own count of tokens comes near its own setting, whatever a vendor says.
  beside: 0,
  errors: {
    context: { says: /Prompt is too long: .*maximum prompt length is 131072/, most: 1 },
    'wrong key': { says: /401 The API key is wrong, frozen or deleted/, most: 1 },
    'no money': { says: /402 .*the balance of the account has \$0 left/, most: 1 },
    // No money at the vendor: it repeats a 503 ten times in 90 s, whatever the header says.
    'rate limit': { says: /All is done/, most: 4, endsWell: true },
    'unknown model': { says: /There is no model \\?"no-such-model/, most: 1 }
  }
})
