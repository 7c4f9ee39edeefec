// Codex, unmodified, on the Responses API: the tools that it offers depend on the name of the model.
import { mkdirSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import t from 'tap'
import { KEY } from '../../support/gateway.ts'
import { desk, installed, isPlayed, promptFor, runAgent, scenario, settings, stage, steps,
  type Hands } from '../../support/agents.ts'

const codex = installed('@openai/codex/bin/codex.js')

const shell: Hands['shell'] = (command) => ({ name: 'exec_command', input: { cmd: command } })
/** The hands of a model that calls every tool by JavaScript. @param name of that tool, as the vendor is told it */
function coding (name: string): Hands {
  const js = (code: string): ReturnType<Hands['shell']> => ({ name, input: { input: code } })
  return {
    shell: (command) => js(`text((await tools.exec_command({ cmd: ${JSON.stringify(command)} })).output)`),
    write: (path, text) => js(`text(await tools.apply_patch(${JSON.stringify(
      `*** Begin Patch\n*** Add File: ${basename(path)}\n+${text}\n*** End Patch\n`)}))`)
  }
}

const patching: Hands = {
  shell,
  write: (path, text) => ({ name: 'apply_patch', input: {
    input: `*** Begin Patch\n*** Add File: ${basename(path)}\n+${text}\n*** End Patch\n` } })
}

interface Case {
  readonly model: string
  /** undefined: the one that is built in */
  readonly provider?: string
  readonly hands: Hands
  /** of the vendor; absent: messages */
  readonly dialect?: 'responses'
}

const cases: Readonly<Record<string, Case>> = {
  'functions, of a model that it does not know': {
    model: 'claude-sonnet', provider: 'Gateway',
    hands: { shell, write: (path, text) => shell(`echo ${text} > ${path}`),
      look: (path) => ({ name: 'view_image', input: { path } }),
      also: [{ name: 'multi_agent_v1__wait_agent', input: { targets: ['nobody'] } }] }
  },
  'patches as free text': {
    model: 'gpt-5.5', provider: 'Gateway', hands: patching
  },
  'patches as free text, for a vendor of the same API': {
    model: 'gpt-5.5', provider: 'Gateway', hands: patching, dialect: 'responses'
  },
  'namespaces within the input, and JavaScript that calls tools': {
    model: 'gpt-6-astra', provider: 'Gateway', hands: coding('functions__exec')
  },
  'namespaces within the input, for a vendor of the same API': {
    model: 'gpt-6-astra', provider: 'Gateway', hands: coding('functions.exec'), dialect: 'responses'
  },
  'the provider of the name OpenAI': {
    model: 'claude-sonnet', provider: 'OpenAI', hands: { shell, write: (path, text) => shell(`echo ${text} > ${path}`) }
  },
  'the provider that is built in': {
    model: 'gpt-5.5', hands: { shell, write: (path, text) => shell(`echo ${text} > ${path}`) }
  }
}

for (const [name, { model, provider, hands, dialect }] of Object.entries(cases)) {
  t.test(`a loop of tools, with a picture, long thoughts and a cut: ${name}`, { skip: codex.skip }, async (t) => {
    const at = await stage(t, { more: 'default_model: claude-sonnet', ...dialect !== undefined && { dialect } })
    const on = desk(t)
    mkdirSync(join(on.home, '.codex'))
    const toml = settings('docs/customers/clients/codex.md', 'toml', at.gw.url, provider === undefined ? 1 : 0)
      .replace(/^model = .*/m, `model = "${model}"`).replace('name = "Gateway"', `name = "${provider}"`)
    writeFileSync(join(on.home, '.codex', 'config.toml'),
      `${toml}\n${toml.includes('effort') ? '' : 'model_reasoning_effort = "high"\n'}[analytics]\nenabled = false\n`)
    const { code, stdout, stderr } = await runAgent(t, on, [process.execPath, codex.path, 'exec', '--skip-git-repo-check',
      '--dangerously-bypass-approvals-and-sandbox', ...hands.look === undefined ? ['--image', on.picture] : [], '--',
      promptFor(scenario(on, hands))], { env: { CODEX_API_KEY: KEY } })
    t.equal(code, 0, 'it ends well', { stderr: stderr.slice(-4000) })
    t.equal(stdout.trim(), 'All is done.')
    await isPlayed(t, at, on, { thinks: true, keepsThoughts: true, seesPicture: true })
    // What it says to a call whose name, namespace or kind is not as it declared them.
    const { messages, input } = steps(at).at(-1)!.body as { readonly messages?: unknown, readonly input?: unknown }
    const told = JSON.stringify(messages ?? input)
    t.notMatch(told, /unsupported call|aborted/)
    if (hands.also !== undefined) t.match(told, /invalid agent id nobody/)
    if (dialect === 'responses') t.match(told, /"custom_tool_call"/, 'its tools go on as it declared them')
    const refused = at.gw.logged.filter(({ msg }) => msg === 'refused').map(({ status }) => status)
    t.strictSame(refused, provider === undefined ? [426] : [], 'a WebSocket is asked for by the built-in provider alone')
  })
}
