// Claude Code, unmodified, in messages style: a loop of tools from the first question to the last word.
import t from 'tap'
import { desk, installed, isPlayed, promptFor, runAgent, scenario, settings, stage } from '../../support/agents.ts'

const page = 'docs/customers/clients/claude-code.md'
const claude = installed(`@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`)

for (const [name, names, dialect] of [
  ['models of ours', true, 'messages'],
  ['its own names of models, and aliases', false, 'messages'],
  ['models of a vendor that speaks the Responses API', true, 'responses']
] as const) {
  t.test(`a loop of tools, with a picture, long thoughts and a cut: ${name}`, { skip: claude.skip }, async (t) => {
    const at = await stage(t, { more: names ? '' : settings(page, 'yaml'), dialect })
    const on = desk(t)
    const prompt = promptFor(scenario(on, {
      shell: (command) => ({ name: 'Bash', input: { command, description: 'runs it' } }),
      write: (file_path, content) => ({ name: 'Write', input: { file_path, content } }),
      look: (file_path) => ({ name: 'Read', input: { file_path } })
    }))
    const exports = settings(page, 'sh', at.gw.url).split('\n').filter((line) => names || !/MODEL=/.test(line))
    const { code, stdout, stderr } = await runAgent(t, on,
      [claude.path, '--print', '--output-format', 'json', '--permission-mode', 'acceptEdits', '--allowedTools', 'Bash', '--',
        prompt], { exports: exports.join('\n') })
    t.equal(code, 0, 'it ends well', { stderr: stderr.slice(-4000) })
    t.match(JSON.parse(stdout), { is_error: false, result: 'All is done.', permission_denials: [] })
    await isPlayed(t, at, on, { thinks: true, keepsThoughts: true, seesPicture: true })
  })
}
