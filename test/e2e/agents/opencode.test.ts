// opencode, unmodified, with the providers that its configuration can name: chat completions, messages, responses.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { desk, installed, isPlayed, promptFor, runAgent, scenario, settings, stage } from '../../support/agents.ts'

// Its package brings one of these for each platform; here is the one that all of its kind of processors can run.
const opencode = installed(`opencode-${process.platform}-${process.arch}-baseline/bin/opencode`)
// Its own switches for what it asks of the internet.
const env = { OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_LSP_DOWNLOAD: '1' }

for (const [npm, dialect] of [
  ['@ai-sdk/openai-compatible', 'messages'],
  ['@ai-sdk/anthropic', 'messages'],
  ['@ai-sdk/openai', 'messages'],
  ['@ai-sdk/openai', 'responses']
] as const) {
  t.test(`${npm}, a vendor that speaks ${dialect}: a loop of tools, with a picture, long thoughts and a cut`, { skip: opencode.skip }, async (t) => {
    const at = await stage(t, { dialect })
    const on = desk(t)
    const json = settings('docs/customers/clients/opencode.md', 'json', at.gw.url).replace('@ai-sdk/openai-compatible', npm)
    writeFileSync(join(on.work, 'opencode.json'), json)
    const prompt = promptFor(scenario(on, {
      shell: (command) => ({ name: 'bash', input: { command, description: 'runs it' } }),
      write: (filePath, content) => ({ name: 'write', input: { filePath, content } }),
      look: (filePath) => ({ name: 'read', input: { filePath } })
    }))
    const { code, stdout, stderr } = await runAgent(t, on, [opencode.path, 'run', '--variant', 'high', prompt], { env })
    t.equal(code, 0, 'it ends well', { stderr: stderr.slice(-4000) })
    t.match(stdout, /All is done\./)
    await isPlayed(t, at, on, { thinks: true, keepsThoughts: npm !== '@ai-sdk/openai-compatible', seesPicture: true })
  })
}
