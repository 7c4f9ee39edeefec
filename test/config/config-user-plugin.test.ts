// A plugin of the user's own: found, checked, and loaded anew when its code has changed; and everything that can be
// wrong with it.
import { existsSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { Plugin } from '../../src/core/plugin.ts'
import { loadConfig, type LoadOptions, type LoadResult, type ValidLoad } from '../../src/config/load/load.ts'
import { loadUserPlugin, PluginError } from '../../src/config/load/user-plugin.ts'
import type { Timer } from '../../src/base/timer.ts'
import { pluginsUrl, print } from '../fixtures/config/mistakes.ts'
import { loadHere } from '../support/load-here.ts'
import { until } from '../support/until.ts'

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

/** In the test's own thread, which loads a plugin once; `loadConfig` where its code changes, or harms its thread. */
type Load = typeof loadConfig

async function load (folder: string, by: Load, more: Partial<LoadOptions> = {}): Promise<LoadResult> {
  return await by(join(folder, 'gateway.yaml'), { pluginsUrl, env: {}, ...more })
}

async function valid (t: Test, folder: string, by: Load = loadHere): Promise<ValidLoad> {
  const result = await load(folder, by)
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.problems))
  t.equal(result.kind, 'valid')
  return result
}

async function problems (folder: string, by: Load = loadHere): Promise<string[]> {
  return print(await load(folder, by) as never, folder)
}

t.test('its options are checked by its own schema, and what it imports is watched', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML + '    with: { wait: 3s }\n', 'mine.ts': GOOD, 'word.ts': WORD })
  const { config, files } = await valid(t, folder)
  const [, item] = config.pipeline
  t.match(item, { use: join(folder, 'mine.ts'), with: { loud: true, wait: 3000 }, version: /^[0-9a-f]{16}$/ })
  t.strictSame(files.toSorted(), ['gateway.yaml', 'mine.ts', 'word.ts'].map((name) => join(folder, name)))
})

t.test('it says itself what is wrong with its options, and what it enforces of keys', async (t) => {
  const secret = `sk-gw-${'k'.repeat(32)}`
  const yaml = `${YAML}    with: { word: shout }
accounts: [{ id: acme }]
keys: [{ id: k, account: acme, secret: ${secret}, streaming: false, rate_limit: 9 }]
`
  const folder = t.testdir({
    'gateway.yaml': yaml,
    'mine.ts': `export default {
      name: 'mine', enforces: ['streaming'], create: () => ({}),
      schema: { type: 'object', properties: { word: { type: 'string', description: 'A word.' } } },
      check ({ word }, { keys }, report, warn) {
        report(['word'], \`is \${word}, and there are \${keys.length} keys\`, 'write another')
        warn(['word'], 'never said: the configuration is refused')
      }
    }
`
  })
  t.strictSame(await problems(folder), [
    'gateway.yaml:4:19 /pipeline/1/with/word is shout, and there are 1 keys (write another)',
    'gateway.yaml:6:98 /keys/0/rate_limit limits nothing: rate-limit, which looks at it, is not in pipeline: (add rate-limit below auth)'
  ])
})

t.test('it gets the same gateway as everybody, wherever its file lies', async (t) => {
  const folder = t.testdir({ 'mine.ts': GOOD, 'word.ts': WORD })
  const plugin = await loadUserPlugin(join(folder, 'mine.ts'), 'same')
  const { ApiKey } = await import('../../src/core/facts.ts')
  t.equal(plugin.reads![0], ApiKey, 'a fact is known by its identity')
})

t.test('a change of its code, or of what it imports, is a new version, and the new code runs', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': GOOD, 'word.ts': WORD })
  const said = async (): Promise<[string, string]> => {
    const { config, digest } = await valid(t, folder, loadConfig)
    const { use, version } = config.pipeline[1]!
    const plugin = await loadUserPlugin<Plugin>(use, version!)
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

t.test('behind a symbolic link that is swapped, as in a mounted ConfigMap, the new code runs', async (t) => {
  const folder = t.testdir({ v1: {}, v2: {} })
  const said = async (): Promise<string> => {
    const { config } = await valid(t, folder, loadConfig)
    const [, { use, version }] = config.pipeline as [unknown, ValidLoad['config']['pipeline'][number]]
    const plugin = await loadUserPlugin<Plugin>(use, version!)
    await plugin.create({ loud: true }, config, {} as never).close?.()
    return (globalThis as { readonly said?: string }).said!
  }
  for (const version of ['v1', 'v2']) {
    writeFileSync(join(folder, version, 'gateway.yaml'), YAML)
    writeFileSync(join(folder, version, 'mine.ts'), GOOD.replace('word +', 'word + other +')
      .replace('interface', 'import { createRequire } from \'node:module\'\nconst other = createRequire(import.meta.url)(\'./other.cjs\')\ninterface'))
    writeFileSync(join(folder, version, 'word.ts'), `export const word: string = '${version} '\n`)
    writeFileSync(join(folder, version, 'other.cjs'), `module.exports = '${version} '\n`)
  }
  for (const name of ['gateway.yaml', 'mine.ts', 'word.ts', 'other.cjs']) symlinkSync(
    `..data/${name}`, join(folder, name)
  )
  symlinkSync('v1', join(folder, '..data'))
  t.equal(await said(), 'v1 v1 true')
  symlinkSync('v2', join(folder, '..next'))
  renameSync(join(folder, '..next'), join(folder, '..data'))
  t.equal(await said(), 'v2 v2 true')
})

t.test('CommonJS below it is loaded anew, too', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': 'pipeline:\n  - use: ./mine.mjs\n',
    'mine.mjs': 'import a from "./a.cjs"\nexport default { name: "mine", create: () => ({ value: a }) }\n',
    'a.cjs': 'const b = require("./b.cjs")\nmodule.exports = b.value\n',
    'b.cjs': 'exports.value = 1\n'
  })
  const value = async (): Promise<unknown> => {
    const { config, files } = await valid(t, folder, loadConfig)
    t.equal(files.length, 4)
    const { use, version } = config.pipeline[0]!
    return ((await loadUserPlugin<Plugin>(use, version!)).create({}, config, {} as never) as {
      readonly value?: unknown
    }).value
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
  ['a syntax error in TypeScript has its line', {
    'mine.ts': 'const a: number = 1\nexport default {\n  name: 1 2\n}\n'
  },
    'mine.ts:3:11 /pipeline/1/use cannot be read as code: Expected \',\', got \'numeric literal\' (used at gateway.yaml:3:10)'],
  ['a syntax error in what it imports has its file', { 'mine.ts': 'import "./b.ts"\n', 'b.ts': '\nlet = =\n' },
    /^b\.ts:2:\d+ .*cannot be read as code/],
  ['TypeScript that Node cannot strip', { 'mine.ts': '\nenum A { B }\nexport default {}\n' },
    /^mine\.ts:2:1 .*enum is not supported/],
  ['an import that does not exist', { 'mine.ts': 'import "./gone.ts"\n' },
    /^gateway\.yaml:3:10 .*cannot find ".*gone\.ts", which it imports$/],
  ['an import that lacks a name', { 'mine.ts': 'import { x } from "./b.ts"\n', 'b.ts': 'export {}\n' },
    /^mine\.ts:1:\d+ .*does not provide an export named 'x'/],
  ['no default export', { 'mine.ts': 'export const a = 1\n' },
    'gateway.yaml:3:10 /pipeline/1/use the plugin has no default export: write "export default definePlugin({ ... })"'],
  ['a default export that is no plugin', { 'mine.ts': 'export default 7\n' },
    'gateway.yaml:3:10 /pipeline/1/use the default export must be a plugin: an object with "name" and "create"'],
  ['no name', { 'mine.ts': 'export default { create: () => ({}) }\n' },
    'gateway.yaml:3:10 /pipeline/1/use the plugin needs a "name" of small letters, digits and "-"'],
  ['no create', { 'mine.ts': 'export default { name: "mine" }\n' },
    'gateway.yaml:3:10 /pipeline/1/use the plugin mine needs a function "create"'],
  ['facts that are none', { 'mine.ts': 'export default { name: "mine", reads: ["api-key"], create: () => ({}) }\n' },
    'gateway.yaml:3:10 /pipeline/1/use "reads" of the plugin mine must be a list of facts'],
  ['names that are no list', {
    'mine.ts': 'export default { name: "mine", enforces: "streaming", create: () => ({}) }\n'
  }, 'gateway.yaml:3:10 /pipeline/1/use "enforces" of the plugin mine must be a list of names'],
  ['a check that is no function', { 'mine.ts': 'export default { name: "mine", check: 1, create: () => ({}) }\n' },
    'gateway.yaml:3:10 /pipeline/1/use the "check" of the plugin mine must be a function'],
  ['a check that throws', {
    'mine.ts': 'export default { name: "mine", check () { throw new Error("no") }, create: () => ({}) }\n'
  }, 'gateway.yaml:3:10 /pipeline/1/use the "check" of the plugin mine threw: no'],
  ['the name of a shipped plugin', { 'mine.ts': 'export default { name: "auth", create: () => ({}) }\n' },
    'gateway.yaml:3:10 /pipeline/1/use the plugin calls itself auth, which is the name of a shipped plugin (give it a name of its own)'],
  ['a schema that is none', {
    'mine.ts': 'export default { name: "mine", schema: { type: "objekt" }, create: () => ({}) }\n'
  }, /^gateway\.yaml:3:10 \/pipeline\/1\/use the "schema" of the plugin mine is not a valid JSON Schema: /],
  ['a throw while it is loaded has its line', { 'mine.ts': '\nthrow new Error("boom")\n' },
    'mine.ts:2:7 /pipeline/1/use threw while it was loaded: boom (used at gateway.yaml:3:10)'],
  ['options that it does not have', { 'gateway.yaml': YAML + '    with: { laud: true }\n', 'mine.ts': GOOD,
    'word.ts': WORD }, 'gateway.yaml:4:13 /pipeline/1/with/laud unknown key "laud" (did you mean "loud"?)'],
  ['options although it takes none', { 'gateway.yaml': YAML + '    with: { a: 1 }\n',
    'mine.ts': 'export default { name: "mine", create: () => ({}) }\n' },
    'gateway.yaml:4:13 /pipeline/1/with/a unknown key "a" (nothing can be set here)'],
  ['a fact that nobody writes', {
    'mine.ts':
      'import { Plan } from "model-gateway"\nexport default { name: "mine", reads: [Plan], create: () => ({}) }\n'
  }, 'gateway.yaml:3:10 /pipeline/1/use mine reads plan, which nothing above it writes (add channel-router above it)']
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
  const folder = t.testdir({ 'gateway.yaml': 'pipeline:\n  - use: ./mine.mjs\n',
    'mine.mjs': 'const a = 1\nexport default {\n  name: 1 2\n}\n' })
  t.strictSame(await problems(folder), [
    'mine.mjs:3:11 /pipeline/0/use cannot be read as code: Unexpected number (used at gateway.yaml:2:10)'
  ])
})

t.test('an await at the top that never ends is a problem, and the file is watched', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': 'await new Promise(() => {})\nexport default {}\n' })
  const result = await load(folder, loadHere)
  t.match(print(result as never, folder), [/the plugin did not finish loading within 5 s/])
  t.ok(result.files.includes(join(folder, 'mine.ts')))
})

t.test('a loop that never ends is a problem, and the file is watched', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': YAML,
    'mine.ts': 'import { writeFileSync } from "node:fs"\nwriteFileSync(new URL("looping", import.meta.url), "")\nfor (;;);\n'
  })
  // Its time is over when it loops, however long this machine takes until then.
  const timer: Timer = (_ms, callback) => {
    void until(() => existsSync(join(folder, 'looping'))).then(callback)
    return () => {}
  }
  const result = await load(folder, loadConfig, { timeoutMs: 2000, timer })
  t.match(print(result as never, folder), [
    /^gateway\.yaml:1:1 checking it took longer than 2 s: does a plugin hang while it is loaded\?$/
  ])
  t.ok(result.files.includes(join(folder, 'mine.ts')))
})

t.test('a plugin that ends the process ends only the check', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML, 'mine.ts': 'process.exit(3)\n' })
  t.strictSame(await problems(folder, loadConfig), [
    'gateway.yaml:1:1 the thread that checks it ended early (exit code 3): does a plugin end the process?'
  ])
})

t.test('a plugin that throws behind our back ends only the check', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': YAML,
    'mine.ts': 'setTimeout(() => { throw new Error("late") })\nawait new Promise(() => {})\nexport default {}\n' })
  t.strictSame(await problems(folder, loadConfig), ['gateway.yaml:1:1 the thread that checks it died: late'])
})

t.test('in the main thread a plugin that fails is a PluginError with its place', async (t) => {
  const folder = t.testdir({ 'mine.ts': '\nthrow new Error("boom")\n' })
  await t.rejects(loadUserPlugin(join(folder, 'mine.ts'), 'v1'), { name: 'PluginError', line: 2,
    file: join(folder, 'mine.ts') })
  t.ok(new PluginError('x') instanceof Error)
})
