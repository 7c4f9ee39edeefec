// A plugin of the user's own: found, checked, and loaded anew when its code has changed; and everything that can be wrong with it.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loadConfig, type LoadResult, type ValidLoad } from '../src/config/load.ts'
import { loadUserPlugin, PluginError } from '../src/config/user-plugin.ts'
import { pluginsUrl, print } from './fixtures/config/mistakes.ts'

const YAML = 'pipeline:\n  - auth\n  - use: ./mine.ts\n'
const GOOD = `
import { definePlugin, ApiKey, type Hooks } from 'model-gateway'
import { word } from './word.ts'
interface Options { readonly loud: boolean }
export default definePlugin<Options>({
  name: 'mine',
  schema: { type: 'object', properties: { loud: { type: 'boolean', default: true, description: 'Shouts.' }, wait: { duration: true, description: 'Waits.' } } },
  reads: [ApiKey],
  create: (options): Hooks => ({ close () { (globalThis as Record<string, unknown>).said = word + String(options.loud) } })
})
`
const WORD = 'export const word: string = \'hello \'\n'

async function load (folder: string, timeoutMs?: number): Promise<LoadResult> {
  return await loadConfig(join(folder, 'gateway.yaml'), { pluginsUrl, env: {}, ...(timeoutMs !== undefined && { timeoutMs }) })
}

async function valid (t: Test, folder: string): Promise<ValidLoad> {
  const result = await load(folder)
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.problems))
  t.equal(result.kind, 'valid')
  return result
}

async function problems (folder: string, timeoutMs?: number): Promise<string[]> {
  return print(await load(folder, timeoutMs) as never, folder)
}

t.test('its options are checked by its own schema, and what it imports is watched', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML + '    with: { wait: 3s }\n', 'mine.ts': GOOD, 'word.ts': WORD })
  const { config, files } = await valid(t, folder)
  const [, item] = config.pipeline
  t.match(item, { use: join(folder, 'mine.ts'), with: { loud: true, wait: 3000 }, version: /^[0-9a-f]{16}$/ })
  t.strictSame(files.toSorted(), ['gateway.yaml', 'mine.ts', 'word.ts'].map((name) => join(folder, name)))
})

t.test('it gets the same gateway as everybody, wherever its file lies', async (t) => {
  const folder = t.testdir({ 'mine.ts': GOOD, 'word.ts': WORD })
  const plugin = await loadUserPlugin(join(folder, 'mine.ts'), 'same')
  const { ApiKey } = await import('../src/facts.ts')
  t.equal(plugin.reads![0], ApiKey, 'a fact is known by its identity')
})

t.test('a change of its code, or of what it imports, is a new version, and the new code runs', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': GOOD, 'word.ts': WORD })
  const said = async (): Promise<[string, string]> => {
    const { config, digest } = await valid(t, folder)
    const { use, version } = config.pipeline[1]!
    const plugin = await loadUserPlugin(use, version!)
    await plugin.create({ loud: 1 }, config, {} as never).close!()
    return [(globalThis as Record<string, unknown>).said as string, digest]
  }
  const [first, digest] = await said()
  t.equal(first, 'hello 1')
  t.strictSame(await said(), [first, digest], 'unchanged code keeps its version')
  writeFileSync(join(folder, 'word.ts'), 'export const word: string = \'bye \'\n')
  const [second, other] = await said()
  t.equal(second, 'bye 1')
  t.not(other, digest)
})

t.test('CommonJS below it is loaded anew, too', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': 'pipeline:\n  - use: ./mine.mjs\n',
    'mine.mjs': 'import a from "./a.cjs"\nexport default { name: "mine", create: () => ({ value: a }) }\n',
    'a.cjs': 'const b = require("./b.cjs")\nmodule.exports = b.value\n',
    'b.cjs': 'exports.value = 1\n'
  })
  const value = async (): Promise<unknown> => {
    const { config, files } = await valid(t, folder)
    t.equal(files.length, 4)
    const { use, version } = config.pipeline[0]!
    return ((await loadUserPlugin(use, version!)).create({}, config, {} as never) as { readonly value?: unknown }).value
  }
  t.equal(await value(), 1)
  writeFileSync(join(folder, 'b.cjs'), 'exports.value = 2\n')
  t.equal(await value(), 2)
})

t.test('two plugins share what both import, since a fact is known by its identity', async (t) => {
  const mine = (name: string): string => `import { Shared } from './shared.ts'\nexport default { name: '${name}', ${name === 'one' ? 'writes' : 'reads'}: [Shared], create: () => ({}) }\n`
  const folder = t.testdir({
    'gateway.yaml': 'pipeline:\n  - use: ./one.ts\n  - use: ./two.ts\n',
    'one.ts': mine('one'),
    'two.ts': mine('two'),
    'shared.ts': 'import { fact } from "model-gateway"\nexport const Shared = fact<string>("shared")\n'
  })
  const { config } = await valid(t, folder)
  const [one, two] = await Promise.all(config.pipeline.map(({ use, version }) => loadUserPlugin(use, version!)))
  t.equal(one!.writes![0], two!.reads![0])
})

const wrong: readonly (readonly [title: string, files: Record<string, string>, expected: string | RegExp])[] = [
  ['the file is missing', {}, 'gateway.yaml:3:10 /pipeline/1/use the plugin file does not exist'],
  ['a syntax error in TypeScript has its line', { 'mine.ts': 'const a: number = 1\nexport default {\n  name: 1 2\n}\n' },
    'mine.ts:3:11 /pipeline/1/use cannot be read as code: Expected \',\', got \'numeric literal\' (used at gateway.yaml:3:10)'],
  ['a syntax error in what it imports has its file', { 'mine.ts': 'import "./b.ts"\n', 'b.ts': '\nlet = =\n' }, /^b\.ts:2:\d+ .*cannot be read as code/],
  ['TypeScript that Node cannot strip', { 'mine.ts': '\nenum A { B }\nexport default {}\n' }, /^mine\.ts:2:1 .*enum is not supported/],
  ['an import that does not exist', { 'mine.ts': 'import "./gone.ts"\n' }, /^gateway\.yaml:3:10 .*cannot find ".*gone\.ts", which it imports$/],
  ['an import that lacks a name', { 'mine.ts': 'import { x } from "./b.ts"\n', 'b.ts': 'export {}\n' }, /^mine\.ts:1:\d+ .*does not provide an export named 'x'/],
  ['no default export', { 'mine.ts': 'export const a = 1\n' }, 'gateway.yaml:3:10 /pipeline/1/use the plugin has no default export: write "export default definePlugin({ ... })"'],
  ['a default export that is no plugin', { 'mine.ts': 'export default 7\n' }, 'gateway.yaml:3:10 /pipeline/1/use the default export must be a plugin: an object with "name" and "create"'],
  ['no name', { 'mine.ts': 'export default { create: () => ({}) }\n' }, 'gateway.yaml:3:10 /pipeline/1/use the plugin needs a "name" of small letters, digits and "-"'],
  ['no create', { 'mine.ts': 'export default { name: "mine" }\n' }, 'gateway.yaml:3:10 /pipeline/1/use the plugin mine needs a function "create"'],
  ['facts that are none', { 'mine.ts': 'export default { name: "mine", reads: ["api-key"], create: () => ({}) }\n' }, 'gateway.yaml:3:10 /pipeline/1/use "reads" of the plugin mine must be a list of facts'],
  ['the name of a shipped plugin', { 'mine.ts': 'export default { name: "auth", create: () => ({}) }\n' },
    'gateway.yaml:3:10 /pipeline/1/use the plugin calls itself auth, which is the name of a shipped plugin (give it a name of its own)'],
  ['a schema that is none', { 'mine.ts': 'export default { name: "mine", schema: { type: "objekt" }, create: () => ({}) }\n' },
    /^gateway\.yaml:3:10 \/pipeline\/1\/use the "schema" of the plugin mine is not a valid JSON Schema: /],
  ['a throw while it is loaded has its line', { 'mine.ts': '\nthrow new Error("boom")\n' }, 'mine.ts:2:7 /pipeline/1/use threw while it was loaded: boom (used at gateway.yaml:3:10)'],
  ['options that it does not have', { 'gateway.yaml': YAML + '    with: { laud: true }\n', 'mine.ts': GOOD, 'word.ts': WORD }, 'gateway.yaml:4:13 /pipeline/1/with/laud unknown key "laud" (did you mean "loud"?)'],
  ['options although it takes none', { 'gateway.yaml': YAML + '    with: { a: 1 }\n', 'mine.ts': 'export default { name: "mine", create: () => ({}) }\n' }, 'gateway.yaml:4:13 /pipeline/1/with/a unknown key "a" (nothing can be set here)'],
  ['a fact that nobody writes', { 'mine.ts': 'import { Plan } from "model-gateway"\nexport default { name: "mine", reads: [Plan], create: () => ({}) }\n' },
    'gateway.yaml:3:10 /pipeline/1/use mine reads plan, which nothing above it writes (add channel-router above it)']
]

for (const [title, files, expected] of wrong) {
  t.test(title, async (t) => {
    const folder = t.testdir({ 'gateway.yaml': YAML, ...files })
    const lines = await problems(folder)
    t.equal(lines.length, 1, lines.join('\n'))
    if (typeof expected === 'string') t.equal(lines[0], expected)
    else t.match(lines[0], expected)
  })
}

t.test('a syntax error in JavaScript has its line, too', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': 'pipeline:\n  - use: ./mine.mjs\n', 'mine.mjs': 'const a = 1\nexport default {\n  name: 1 2\n}\n' })
  t.strictSame(await problems(folder), ['mine.mjs:3:11 /pipeline/0/use cannot be read as code: Unexpected number (used at gateway.yaml:2:10)'])
})

t.test('an await at the top that never ends is a problem, and the file is watched', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': 'await new Promise(() => {})\nexport default {}\n' })
  const result = await load(folder)
  t.match(print(result as never, folder), [/the plugin did not finish loading within 5 s/])
  t.ok(result.files.includes(join(folder, 'mine.ts')))
})

t.test('a loop that never ends is a problem, and the file is watched', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': 'for (;;);\n' })
  const result = await load(folder, 2000)
  t.match(print(result as never, folder), [/^gateway\.yaml:1:1 checking it took longer than 2 s: does a plugin hang while it is loaded\?$/])
  t.ok(result.files.includes(join(folder, 'mine.ts')))
})

t.test('a plugin that ends the process ends only the check', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': 'process.exit(3)\n' })
  t.strictSame(await problems(folder), ['gateway.yaml:1:1 the thread that checks it ended early (exit code 3): does a plugin end the process?'])
})

t.test('a plugin that throws behind our back ends only the check', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': 'setTimeout(() => { throw new Error("late") })\nawait new Promise((resolve) => setTimeout(resolve, 1000))\nexport default {}\n' })
  t.strictSame(await problems(folder), ['gateway.yaml:1:1 the thread that checks it died: late'])
})

t.test('a plugin that takes all memory ends only the check', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': 'const all: unknown[] = []\nfor (;;) all.push(new Array(1e6).fill({}))\n' })
  t.match(await problems(folder), [/^gateway\.yaml:1:1 the thread that checks it died: .*memory/])
})

t.test('in the main thread a plugin that fails is a PluginError with its place', async (t) => {
  const folder = t.testdir({ 'mine.ts': '\nthrow new Error("boom")\n' })
  await t.rejects(loadUserPlugin(join(folder, 'mine.ts'), 'v1'), { name: 'PluginError', line: 2, file: join(folder, 'mine.ts') })
  t.ok(new PluginError('x') instanceof Error)
})
