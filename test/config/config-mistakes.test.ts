// Every mistake that somebody can make in gateway.yaml, and the exact lines that the gateway says about it. The table
// is test/fixtures/config/mistakes.txt.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { print, read } from '../fixtures/config/mistakes.ts'

interface Mistake {
  readonly title: string
  readonly files: ReadonlyMap<string, string>
  readonly env: Readonly<Record<string, string>>
  readonly kind: 'problems' | 'warnings'
  readonly lines: readonly string[]
}

const table = readFileSync(new URL('../fixtures/config/mistakes.txt', import.meta.url), 'utf8')
const mistakes = table.split(/^=== /m).slice(1).map(parse)

function parse (text: string): Mistake {
  const [title, ...parts] = text.replace(/\n+(?:## .*\n+)?$/, '\n').split(/^--- /m)
  const sections = new Map(parts.map((part) => [part.slice(0, part.indexOf('\n')), part.slice(part.indexOf('\n') + 1)]))
  const lines = (name: string): string[] => (sections.get(name) ?? '').split('\n').filter((line) => line !== '')
  const kind = sections.has('warnings') ? 'warnings' : 'problems'
  return {
    title: title!.trim(),
    files: new Map([...sections].filter(([name]) => !['env', 'problems', 'warnings'].includes(name))),
    env: Object.fromEntries(
      lines('env').map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)])
    ),
    kind,
    lines: lines(kind)
  }
}

t.ok(mistakes.length >= 60, 'the table was read')

for (const { title, files, env, kind, lines } of mistakes) {
  t.test(title, async (t) => {
    const folder = t.testdir()
    for (const [name, text] of files) {
      mkdirSync(dirname(join(folder, name)), { recursive: true })
      writeFileSync(join(folder, name), text)
    }
    const verdict = await read(folder, env)
    t.equal(verdict.kind, kind === 'problems' ? 'invalid' : 'valid')
    t.strictSame(print(verdict, folder).map((line) => line.replaceAll(folder, '.')), lines)
    t.notMatch(JSON.stringify(verdict.kind === 'invalid' ? verdict : verdict.warnings), /hunter2|k{32}|l{32}/,
      'no secret is in it')
  })
}

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
