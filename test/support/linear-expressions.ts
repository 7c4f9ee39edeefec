// Which regular expressions of the code are known to grow like the text: linear-expressions.txt has a digest of each,
// because to check all of them takes minutes.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../../src/base/package.ts'
import { type Expression, expressionsOf, MANY, madeAtImport, slowness } from './expressions.ts'

const SCRUBBED = 'a text of at most 4000 characters, of which growth.test.ts has a row'

/** By source: why one that the checker finds slow, or that takes the checker itself long, is harmless. */
export const HARMLESS: Readonly<Record<string, string>> = Object.fromEntries([
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
export const MADE: Readonly<Record<string, RegExp | string>> = {
  'src/core/error-meanings.ts anyOf': 'its alternatives are literals',
  'plugins/error-normalize/index.ts withPublicId': /(?<![\w-])vendor-model(?![\w-])/g,
  'src/admin/web/web.ts given': /(?:^|,)\s*gzip\s*(?:,|$)/,
  'src/core/large-strings.ts begin': /blob-0123456789abcdef01234567:(\d+)\u0001/g
}

export const LINEAR = 'test/fixtures/linear-expressions.txt'

export const found = expressionsOf(packageRoot, ['src/**/*.{ts,js}', 'plugins/**/*.ts'])

/** What modules make when they are imported. */
export const imported = found.made.filter((one) => one.function === undefined)

/** All that are made when modules are imported. It replaces `RegExp` while it runs. */
export async function expressionsMade (): Promise<readonly Expression[]> {
  const made = await madeAtImport(packageRoot, [...new Set(imported.map(({ at }) => at.split(':')[0]!))])
  return made.filter((one) => imported.some(({ at }) => at === one.at))   // not what packages make that are loaded then
}

/** @param made by `expressionsMade` */
export function allExpressions (made: readonly Expression[]): readonly Expression[] {
  const examples = Object.entries(MADE).flatMap(([at, example]) =>
    typeof example === 'string' ? [] : [{ at, source: example.source, flags: example.flags }])
  const schema = JSON.parse(readFileSync(join(packageRoot, 'config', 'gateway.schema.json'), 'utf8')) as unknown
  return distinct([...found.written, ...made, ...examples, ...patternsIn(schema)])
}

/**
 * The text of linear-expressions.txt.
 * @param committed the digests in it are believed
 * @param slow gets what is not linear, and has no reason
 */
export function linearText (all: readonly Expression[], committed: string, slow: string[]): string {
  const linear = new Set(committed.trim().split('\n'))
  const now = new Set<string>()
  for (const one of all) {
    if (HARMLESS[one.source] !== undefined) continue
    const digest = digestOf(one)
    const wrong = linear.has(digest) ? undefined : slowness(one)
    if (wrong === undefined) now.add(digest)
    else slow.push(`${one.at}: /${one.source}/${one.flags}: ${wrong}`)
  }
  return `${[...now].toSorted().join('\n')}\n`
}

function distinct (expressions: readonly Expression[]): readonly Expression[] {
  return [...new Map(expressions.map((one) => [`/${one.source}/${one.flags}`, one])).values()]
}

/** Of the checker and its limit, too: another version checks everything again. */
export function digestOf ({ source, flags }: Expression): string {
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
