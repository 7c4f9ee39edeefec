// opencode in the arena: chat completions in front of a vendor of messages style, and the other way round.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { installed, settings } from '../../support/agents.ts'
import { arena } from '../../support/arena.ts'

const page = 'docs/customers/clients/opencode.md'
const program = installed(`opencode-${process.platform}-${process.arch}-baseline/bin/opencode`)

arena({
  name: 'opencode',
  program,
  hands: {
    shell: (command) => ({ name: 'bash', input: { command, description: 'runs it' } }),
    write: (filePath, content) => ({ name: 'write', input: { filePath, content } }),
    look: (filePath) => ({ name: 'read', input: { filePath } })
  },
  start: ({ work }, { url, model, prompt, resumes, vendor }) => {
    const json = settings(page, 'json', url).replaceAll('claude-sonnet', model)
    writeFileSync(join(work, 'opencode.json'),
      vendor === 'chat' ? json.replace('@ai-sdk/openai-compatible', '@ai-sdk/anthropic') : json)
    return {
      program: [program.path, 'run', ...resumes ? ['--continue'] : [], prompt],
      // Its own switches for what it requests from the internet.
      env: { OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_LSP_DOWNLOAD: '1' }
    }
  },
  // Behind the summary it has the model go on with a user's turn of its own.
  compacts: { by: 'usage', words: 'anchored summary' },
  // A title for the conversation.
  beside: 2,
  errors: {
    // A title is requested beside the answer.
    'wrong key': { says: /Error: .*The API key is wrong, frozen or deleted/, most: 2 },
    'no money': { says: /Error: .*the balance of the account has \$0 left/, most: 2 },
    // No money at the vendor: it waits in silence as long as Retry-After says, minutes, and reads no x-should-retry.
    'rate limit': { says: /All is done/, most: 5, endsWell: true },
    'unknown model': { says: /Error: .*There is no model "no-such-model"/, most: 2 },
    // It tries to compact first, which is refused too.
    context: { says: /Error: .*Prompt is too long: .*maximum prompt length is 131072/, most: 3 }
  }
})
