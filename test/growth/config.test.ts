// Configurations of growing size, right and wrong: a check costs at most n log n (rule growth).
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { readConfig } from '../../src/config/load/read-config.ts'
import { yaml } from '../support/gateway.ts'
import { growsTooFast } from '../support/growth.ts'

const pluginsUrl = new URL('../../plugins/index.ts', import.meta.url).href
const many = (size: number, line: (i: number) => string): string =>
  Array.from({ length: size }, (_, i) => line(i)).join('\n')
const secret = (i: number): string => `sk-gw-${String(i).padStart(32, '0')}`

/** Sections by number of items. */
const SHAPES: Readonly<Record<string, (size: number) => string>> = {
  keys: (size) => many(size, (i) => `  - { id: key-${i}, account: acme, secret: ${secret(i)} }`),
  'keys of unknown accounts': (size) =>
    many(size, (i) => `  - { id: key-${i}, account: none-${i}, secret: ${secret(i)} }`),
  'keys with one id': (size) => many(size, () => `  - { id: twice, account: acme, secret: ${secret(1)} }`),
  'keys with an unknown field': (size) => many(size, (i) => `  - { id: key-${i}, account: acme, secrte: x }`),
  'allowed models': (size) => `  - { id: key-1, account: acme, secret: ${secret(1)}, allowed_models: [${
    many(size, (i) => `m${i}`).replaceAll('\n', ', ')}] }`,
  aliases: (size) => `aliases:\n${many(size, (i) => `  - { name: alias-${i}, model: m1 }`)}`,
  comments: (size) => many(size, (i) => `# comment ${i}`),
  'lines out of place': (size) => many(size, (i) => `${' '.repeat(i % 7)}- x: [`),
  quotes: (size) => many(size, (i) => `  - { id: "key-${i}", account: 'acme', secret: "${secret(i)}" }`),
  'repeated names': (size) => many(size, () => 'hook_timeout: 5s'),
  'long plain text': (size) => `# ${'x'.repeat(size * 50)}`
}

t.test('what a check of a configuration costs', async (t) => {
  const file = join(t.testdir(), 'gateway.yaml')
  const base = yaml(['http://127.0.0.1:9'])
  for (const [name, shape] of Object.entries(SHAPES)) {
    const wrong = await growsTooFast({ from: 300, input: (size) => `${base}${shape(size)}\n`,
      async run (text: string) {
        writeFileSync(file, text)
        await readConfig({ file, env: {}, pluginsUrl }, () => {})
      } })
    t.equal(wrong, undefined, name)
  }
  const folder = dirname(file)
  const included = (i: number): string => `keys:\n  - { id: of-${i}, account: acme, secret: ${secret(1000 + i)} }\n`
  const INCLUDES: Readonly<Record<string, (size: number) => void>> = {
    'files that are included': (size) => {
      for (let i = 0; i < size; i++) writeFileSync(join(folder, `${i}.yaml`), included(i))
      writeFileSync(file, `include: [${many(size, (i) => `${i}.yaml`).replaceAll('\n', ', ')}]\n${base}`)
    },
    'one file, included often': (size) => {
      writeFileSync(join(folder, 'one.yaml'), included(0))
      writeFileSync(file, `include: [${many(size, () => 'one.yaml').replaceAll('\n', ', ')}]\n${base}`)
    },
    'a large file that is included': (size) => {
      writeFileSync(join(folder, 'one.yaml'), `keys:\n${SHAPES['keys']!(size)}\n`)
      writeFileSync(file, `include: [one.yaml]\n${base}`)
    }
  }
  for (const [name, input] of Object.entries(INCLUDES)) {
    const run = async (): Promise<void> => { await readConfig({ file, env: {}, pluginsUrl }, () => {}) }
    t.equal(await growsTooFast({ from: 50, input, run }), undefined, name)
  }
  for (const [name, anchor] of [['aliases of aliases', '*a0, *a0, *a0, *a0, *a0, *a0, *a0, *a0']] as const) {
    const bomb = `a: &a0 [x]\n${many(12, (i) => `b${i}: &a${i + 1} [${anchor.replaceAll('a0', `a${i}`)}]`)}`
    writeFileSync(file, bomb)
    const verdict = await readConfig({ file, env: {}, pluginsUrl }, () => {})
    t.equal(verdict.kind, 'invalid', name)
  }
})
