// Every regular expression of the code, and every pattern of a JSON schema, takes a time that grows like the text (rule
// growth). The lint looks too, while one writes; this checker finds more.
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { type Expression, expressionsIn, expressionsOf, MANY, madeAtImport, slowness } from '../support/expressions.ts'

const SCRUBBED = 'a text of at most 4000 characters, of which growth.test.ts has a row'

/** By source: why one that the checker finds slow, or that takes the checker itself long, is harmless. */
const HARMLESS: Readonly<Record<string, string>> = Object.fromEntries([
  [/encrypted content\b.{0,200}could not be verified/, 'at most 200 characters at each place, which has 17'],
  [/\b[a-z][a-z0-9+.-]{0,30}:\/\/[^\s"'`<>()]+/, SCRUBBED],
  [/ ?Try again in [^.]*\.$/, 'the sentence of an error, of at most 1000 characters'],
  [/"(?:[^"\\]|\\.)*"|[{}[\],:]/, 'the text is valid JSON: each quotation mark has its end'],
  [/(file:\/\/[^\s()?]+\?v=[^\s():]*):(\d+)(?::(\d+))?/, 'a stack of at most 10,000 characters: row placeIn'],
  [new RegExp(
    String.raw`event: content_block_delta\ndata: \{"type":"content_block_delta","index":[0-9],"delta":` +
    String.raw`\{"type":"(?:text_delta","text|thinking_delta","thinking)":"[^"\\\u0000-\u001F]*"\} *\}\n\n`
  ), 'tried at one place only, and what it repeats does not hold what comes behind: rows SseDecoder']
].map(([expression, reason]) => [(expression as RegExp).source, reason as string]))

/** What a function makes, by file and function: an example, or why it needs none. */
const MADE: Readonly<Record<string, RegExp | string>> = {
  'src/core/error-meanings.ts anyOf': 'its alternatives are literals',
  'plugins/error-normalize/index.ts withPublicId': /(?<![\w-])vendor-model(?![\w-])/g,
  'src/admin/web/web.ts given': /(?:^|,)\s*gzip\s*(?:,|$)/,
  'src/core/large-strings.ts begin': /blob-0123456789abcdef01234567:(\d+)\u0001/g
}

/**
 * Digests of the expressions that the checker has found to be linear, because all of them take it minutes. Each run
 * checks the others, and some of these again. `GOLDENS=write node test/growth/expressions.test.ts` writes the file.
 */
const LINEAR = join(packageRoot, 'test', 'fixtures', 'linear-expressions.txt')
const CHECKED_AGAIN = 20

const found = expressionsOf(packageRoot, ['src/**/*.{ts,js}', 'plugins/**/*.ts'])

function distinct (expressions: readonly Expression[]): readonly Expression[] {
  return [...new Map(expressions.map((one) => [`/${one.source}/${one.flags}`, one])).values()]
}

t.test('each expression is linear, or has a reason', async (t) => {
  const functions = found.made.filter((one) => one.function !== undefined)
  const inFunctions = new Set(functions.map((one) => `${one.at.split(':')[0]!} ${one.function!}`))
  t.strictSame([...inFunctions].toSorted(), Object.keys(MADE).toSorted(), 'what functions make')

  const imported = found.made.filter((one) => one.function === undefined).map(({ at }) => at)
  const made = await madeAtImport(packageRoot, [...new Set(imported.map((at) => at.split(':')[0]!))])
  t.strictSame(imported.filter((at) => !made.some((one) => one.at === at)), [], 'each place has made its own')

  t.strictSame(found.computed.filter((at) => !at.startsWith('src/config/sections/')), [],
    'patterns that are computed stand in the schema of gateway.yaml')

  const examples = Object.entries(MADE).flatMap(([at, example]) =>
    typeof example === 'string' ? [] : [{ at, source: example.source, flags: example.flags }])
  const schema = JSON.parse(readFileSync(join(packageRoot, 'config', 'gateway.schema.json'), 'utf8')) as unknown
  const all = distinct([...found.written, ...made, ...examples, ...patternsIn(schema)])
  const linear = new Set(readFileSync(LINEAR, 'utf8').trim().split('\n'))
  const now: string[] = []
  const slow: string[] = []
  for (const one of all) {
    if (HARMLESS[one.source] !== undefined) continue
    const digest = digestOf(one)
    const isChecked = !linear.has(digest) || Math.random() * all.length < CHECKED_AGAIN
    const wrong = isChecked ? slowness(one) : undefined
    if (wrong === undefined) now.push(digest)
    else slow.push(`${one.at}: /${one.source}/${one.flags}: ${wrong}`)
  }
  if (process.env['GOLDENS'] === 'write') writeFileSync(LINEAR, `${now.toSorted().join('\n')}\n`)
  t.strictSame(slow, [])
  const sources = new Set(all.map(({ source }) => source))
  t.strictSame(Object.keys(HARMLESS).filter((source) => !sources.has(source)), [], 'reasons without an expression')
})

/** Of the checker and its limit, too: another version checks everything again. */
function digestOf ({ source, flags }: Expression): string {
  return createHash('sha256').update(`recheck-4.5.0-${MANY}/${source}/${flags}`).digest('base64url').slice(0, 12)
}

/** All patterns of a schema, at any depth. */
function patternsIn (schema: unknown): readonly Expression[] {
  if (typeof schema !== 'object' || schema === null) return []
  const { pattern, patternProperties } = schema as { readonly pattern?: unknown, readonly patternProperties?: object }
  const here = [...typeof pattern === 'string' ? [pattern] : [], ...Object.keys(patternProperties ?? {})]
  return [...here.map((source) => ({ at: 'gateway.schema.json', source, flags: 'u' })),
    ...Object.values(schema).flatMap(patternsIn)]
}

t.test('N2: the checker finds what is exponential, and what is a square', async (t) => {
  const image = String.raw`^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--[\s\S]*?-->\s*|<!DOCTYPE svg[^>]*>\s*)*<svg[\s>]`
  t.match(slowness({ source: image, flags: 'i' }), /exponential/)
  t.match(slowness({ source: '0+$', flags: '' }), /2nd degree/)
  t.match(slowness({ source: '[a-z]{1,200}@', flags: '' }), /2nd degree/)
  t.equal(slowness({ source: '[a-z]{1,64}@|^[a-z]{1,200}@', flags: '' }), undefined)
})

t.test('the finder finds expressions of each kind', async (t) => {
  const { written, made, computed } = expressionsIn('a.ts', `const a = /x+/g
    const b = new RegExp('y' + a.source)
    function f (z) { return RegExp(z) }
    class C { m () { return (() => new RegExp(this.z))() } }
    const schema = { pattern: '^a$', properties: { of: { pattern: \`^\${a.source}$\` } } }`)
  t.strictSame(written, [{ at: 'a.ts:1', source: 'x+', flags: 'g' }, { at: 'a.ts:5', source: '^a$', flags: 'u' }])
  t.strictSame(made, [{ at: 'a.ts:2', function: undefined }, { at: 'a.ts:3', function: 'f' },
    { at: 'a.ts:4', function: 'm' }])
  t.strictSame(computed, ['a.ts:5'])
})
