// A generator of broken configurations: the shipped gateway.yaml and its models, with one mistake that somebody can
// make, or with several at random. Whatever is wrong is said with a file, a line and a column that exist, and nothing
// breaks.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { env } from 'node:process'
import t from 'tap'
import type { Problem } from '../../src/config/problem.ts'
import { readConfig } from '../../src/config/load/read-config.ts'
import { packageRoot } from '../../src/base/package.ts'
import { seededRandom } from '../../src/simulator/random.ts'

const pluginsUrl = new URL('../../plugins/index.ts', import.meta.url).href
const SEED = Number(env['SEED'] ?? 11)
const COUNT = Number(env['MUTATIONS'] ?? 100)

const random = seededRandom(SEED)
const below = (limit: number): number => Math.floor(random() * limit)
const oneOf = <T>(list: readonly T[]): T => list[below(list.length)]!

const shipped = readFileSync(join(packageRoot, 'gateway.yaml'), 'utf8')
const models = readFileSync(join(packageRoot, 'config/models.yaml'), 'utf8')
const folder = t.testdir()
mkdirSync(join(folder, 'config'))
copyFileSync(join(packageRoot, 'config/models.yaml'), join(folder, 'config/models.yaml'))

interface Verdict { readonly kind: 'valid' | 'invalid', readonly said: readonly Problem[] }

async function judge (main: string, catalogue = models): Promise<Verdict> {
  writeFileSync(join(folder, 'gateway.yaml'), main)
  writeFileSync(join(folder, 'config/models.yaml'), catalogue)
  const verdict = await readConfig({ file: join(folder, 'gateway.yaml'), env: {}, pluginsUrl }, () => {})
  return { kind: verdict.kind, said: verdict.kind === 'invalid' ? verdict.problems : verdict.warnings }
}

/** @returns what is wrong with what was said */
function faults ({ kind, said }: Verdict, texts: Readonly<Record<string, string>>): string[] {
  const found = said.flatMap(({ file, line, column, message, hint = '' }) => {
    const text = texts[file.replace(folder + '/', '')]
    const here = `${file}:${line}:${column} ${message}`
    if (text === undefined) return [`${here}: no such file`]
    const lines = text.split('\n')
    if (line < 1 || line > lines.length) return [`${here}: no such line`]
    if (column < 1 || column > lines[line - 1]!.length + 1) return [`${here}: no such column`]
    return message === '' || /\n|undefined|\[object|could not be checked|\bat \S+\.ts:/.test(message + hint)
      ? [`${here}: is no sentence`]
      : []
  })
  return kind === 'invalid' && said.length === 0 ? ['refused without a word'] : found
}

const SPECIAL = ['"', '\'', '“', '’', '\u00a0', '\u200b', '\t', ':', ': ', '- ', '{', '}', '[', ']', '#', '&a', '*a',
  '!', '%', '@', '`', '|', '>', ',', '\n', '\r', '\0', '\ufeff', '${X}', '<<: ', '---\n', '\\', '😀', '1e999',
  '__proto__: 1\n']

const MUTATIONS: Readonly<Record<string, (text: string) => string>> = {
  'a character is gone' (text) {
    const at = below(text.length)
    return text.slice(0, at) + text.slice(at + 1)
  },
  'something is typed' (text) {
    const at = below(text.length)
    return text.slice(0, at) + oneOf(SPECIAL) + text.slice(at)
  },
  'something is typed over' (text) {
    const at = below(text.length)
    return text.slice(0, at) + oneOf(SPECIAL) + text.slice(at + 1 + below(8))
  },
  'a line is gone': (text) =>
    inLines(text, (lines) => {
      lines.splice(below(lines.length), 1)
    }),
  'lines are pasted twice': (text) =>
    inLines(text, (lines) => {
      const [at, size] = [below(lines.length), 1 + below(6)]
      lines.splice(at + size, 0, ...lines.slice(at, at + size))
    }),
  'lines stand elsewhere': (text) =>
    inLines(text, (lines) => {
      const moved = lines.splice(below(lines.length), 1 + below(4))
      lines.splice(below(lines.length), 0, ...moved)
    }),
  'a line is indented': (text) =>
    inLines(text, (lines) => {
      const at = below(lines.length)
      lines[at] = oneOf([' ', '  ', '\t', '\u00a0\u00a0']) + lines[at]!
    }),
  'a line is less indented': (text) =>
    inLines(text, (lines) => {
      const at = below(lines.length)
      lines[at] = lines[at]!.replace(/^ {1,2}/, '')
    }),
  'the rest is gone': (text) => text.slice(0, below(text.length)),
  'a value is another': (text) =>
    inLines(text, (lines) => {
      const at = below(lines.length)
      lines[at] = lines[at]!.replace(/(: )([^{[#]\S*)/,
        (_, colon: string) => colon + oneOf(['', 'null', '[]', '{}', '-1', '1.5', 'true', '""', 'x', '*x', '~']))
    })
}

function inLines (text: string, change: (lines: string[]) => void): string {
  const lines = text.split('\n')
  change(lines)
  return lines.join('\n')
}

t.test(`${COUNT} of them, with one to three mistakes each; SEED=${SEED}`, async (t) => {
  const kinds = { valid: 0, invalid: 0 }
  for (let i = 0; i < COUNT; i++) {
    const names = Array.from({ length: 1 + below(3) }, () => oneOf(Object.keys(MUTATIONS)))
    const inMain = random() < 0.6
    const broken = names.reduce((text, name) => MUTATIONS[name]!(text), inMain ? shipped : models)
    const texts = inMain
      ? { 'gateway.yaml': broken, 'config/models.yaml': models }
      : { 'gateway.yaml': shipped, 'config/models.yaml': broken }
    const verdict = await judge(texts['gateway.yaml'], texts['config/models.yaml']).catch((thrown: unknown): Verdict => ({
      kind: 'invalid',
      said: [{ file: 'gateway.yaml', line: 0, column: 0, path: '', message: String(thrown) }]
    }))
    kinds[verdict.kind]++
    const wrong = faults(verdict, texts)
    if (wrong.length > 0) t.strictSame(wrong, [], `${i}: ${names.join(', ')}\n${broken}`)
  }
  t.ok(kinds.invalid > COUNT / 4 && kinds.valid > 0, JSON.stringify(kinds))
})

/** Lines of the shipped file that hold this, each with its number. */
function linesWith (pattern: RegExp): { readonly line: number, readonly text: string }[] {
  return shipped.split('\n').flatMap((text, i) =>
    !/^\s*#/.test(text) && pattern.test(text.replace(/ #.*/, '')) ? [{ line: i + 1, text }] : []
  )
}

/** Every place where this mistake can be made; the first thing said must be on its line. */
function everywhere (title: string, pattern: RegExp, change: (text: string) => string, says: RegExp): void {
  t.test(title, async (t) => {
    const places = linesWith(pattern)
    t.ok(places.length >= 2, `${places.length} places`)
    for (const { line, text } of places) {
      const broken = inLines(shipped, (lines) => { lines[line - 1] = change(text) })
      const { said } = await judge(broken)
      t.match(said.find((one) => one.file.endsWith('gateway.yaml')), { line, message: says },
        `${change(text)} is said to be ${JSON.stringify(said.map((one) => [one.line, one.message]))}`)
    }
  })
}

everywhere('a quote that is never closed', /"[^"]*"/, (text) => text.replace(/("[^"]*)"/, '$1'),
  /^this quote is never closed/)
everywhere('a quote that is never closed, of single ones', /"[^"]*"/, (text) => text.replace(/"([^"]*)"/, '\'$1'),
  /^this quote is never closed/)
everywhere('curly quotes', /"[^"]*"/, (text) => text.replace(/"([^"]*)"/, '“$1”'), /^this curly quote is a letter/)
everywhere('curly quotes around a text that had none', /^ *(?:- )?[a-z_]+: [a-z]/,
  (text) => text.replace(/: ([a-z]\S*)/, ': ‘$1’'), /^this curly quote is a letter/)
everywhere('a no-break space in the indentation', /^ +\S/, (text) => text.replace(/^ /, '\u00a0'), /U\+00A0/)
everywhere('a no-break space behind a colon', /^ *(?:- )?[a-z_]+: [^#]/, (text) => text.replace(/: /, ':\u00a0'),
  /U\+00A0/)
everywhere('a no-break space behind a dash', /^ +- /, (text) => text.replace('- ', '-\u00a0'), /U\+00A0/)

t.test('a block that is pasted twice names both places', async (t) => {
  const tops = linesWith(/^[a-z_]+:/)
  t.ok(tops.length >= 5)
  for (const [i, { line, text }] of tops.entries()) {
    const end = (tops[i + 1]?.line ?? shipped.split('\n').length) - 1
    const broken = inLines(shipped, (lines) => {
      lines.splice(end, 0, ...lines.slice(line - 1, end))
    })
    t.match((await judge(broken)).said, [{ line: end + 1, column: 1,
      message: new RegExp(`^this key was set before in the same map, at .*gateway\\.yaml:${line}:1$`) }], text)
  }
})
