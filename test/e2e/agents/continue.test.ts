// Continue's CLI, unmodified, with its two providers that speak our styles. Without a terminal it takes no picture.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { textOfPage } from '../../support/pages.ts'
import { desk, installed, isPlayed, promptFor, runAgent, scenario, settings, stage } from '../../support/agents.ts'

const page = 'docs/customers/clients/continue.md'
/** How its other provider is told to have the model think. */
const thinking = /`(\{ thinking: .*\})`/.exec(textOfPage(page))![1]!
const cn = installed('@continuedev/cli/dist/cn.js')
// Its own switches for what it tells its makers.
const env = { CONTINUE_TELEMETRY_ENABLED: '0', CONTINUE_METRICS_ENABLED: '0' }

for (const provider of ['openai', 'anthropic']) {
  t.test(`${provider}: a loop of tools, with long thoughts and a cut`, { skip: cn.skip }, async (t) => {
    const at = await stage(t)
    const on = desk(t)
    writeFileSync(join(on.work, 'config.yaml'),
      settings(page, 'yaml', at.gw.url).replace('provider: openai', `provider: ${provider}`)
        .replace(/\{ reasoning_effort.*\}/, (effort) => provider === 'openai' ? effort : thinking))
    const prompt = promptFor(scenario(on, {
      shell: (command) => ({ name: 'Bash', input: { command } }),
      write: (filepath, content) => ({ name: 'Write', input: { filepath, content } })
    }))
    const { code, stdout, stderr } = await runAgent(t, on,
      [process.execPath, cn.path, '--config', 'config.yaml', '--print', '--auto', prompt], { env })
    t.equal(code, 0, 'it ends well', { stderr: stderr.slice(-4000) })
    t.match(stdout, /All is done\./)
    await isPlayed(t, at, on, { thinks: true, keepsThoughts: false, seesPicture: false })
  })
}
