// Every mistake that somebody can make in gateway.yaml, and the exact lines that the gateway says about it. The table
// is test/fixtures/config/mistakes.txt.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { layFiles, mistakesIn, print, read, withResults } from '../fixtures/config/mistakes.ts'

const table = readFileSync(new URL('../fixtures/config/mistakes.txt', import.meta.url), 'utf8')
const mistakes = mistakesIn(table)
/** How a mistake is mended that only has other words now. */
const REWRITE = 'if these lines are right now, "npm run goldens" writes them to test/fixtures/config/mistakes.txt'

t.ok(mistakes.length >= 60, 'the table was read')

for (const { title, files, env, kind, lines } of mistakes) {
  t.test(title, async (t) => {
    const folder = t.testdir()
    layFiles(files, folder)
    const verdict = await read(folder, env)
    t.equal(verdict.kind, kind === 'problems' ? 'invalid' : 'valid')
    t.strictSame(print(verdict, folder).map((line) => line.replaceAll(folder, '.')), lines, REWRITE)
    t.notMatch(JSON.stringify(verdict.kind === 'invalid' ? verdict : verdict.warnings), /hunter2|k{32}|l{32}/,
      'no secret is in it')
  })
}

t.test('the table is rewritten as it is, and where a line is wrong with the right one', async (t) => {
  const [head, ...rest] = table.split(/^(?==== )/m)
  const some = [head!, ...rest.slice(0, 10)].join('')
  t.equal(await withResults(some), some)
  t.equal(await withResults(some.replace('YAML wants spaces', 'YAML wants tabs')), some)
  await t.rejects(withResults(some.replace('\t- auth', '  - auth')), {
    message: /^a tab in the indentation: this configuration is valid now/
  }, 'a mistake that is none any more')
})

t.test('bytes that are not UTF-8 are said to be', async (t) => {
  const folder = t.testdir()
  writeFileSync(join(folder, 'gateway.yaml'), Buffer.from('pipeline: [auth] # caf\xe9\n', 'latin1'))
  t.strictSame(print(await read(folder), folder), ['gateway.yaml:1:1 the file is not UTF-8 text: gateway.yaml'])
})

t.test('a billion laughs are refused before they are laughed', async (t) => {
  let yaml = 'a0: &a0 [x, x, x, x, x, x, x, x, x]\n'
  for (let i = 1; i < 12; i++) yaml += `a${i}: &a${i} [${Array.from({ length: 9 }, () => `*a${i - 1}`).join(', ')}]\n`
  const folder = t.testdir({ 'gateway.yaml': yaml })
  const lines = print(await read(folder), folder)
  t.equal(lines.length, 1)
  t.match(lines[0], /aliases repeat more than 100,000 values \(write fewer or smaller aliases\)$/)
})

t.test('ten thousand brackets are refused in words', async (t) => {
  const folder = t.testdir({ 'gateway.yaml': 'pipeline: ' + '['.repeat(10_000) + ']'.repeat(10_000) + '\n' })
  const lines = print(await read(folder), folder)
  t.match(lines[0], /nested too deeply/)
})
