// Finds all regular expressions of the code, and says of one whether a text can make it slow.
import { globSync, readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import { parseSync } from 'oxc-parser'
import { checkSync } from 'recheck'

// In this process and in JavaScript: the package's other ways are a Java archive and programs for some machines.
process.env.RECHECK_SYNC_BACKEND = 'pure'

export interface Expression {
  /** such as "src/core/sse.ts:14" */
  readonly at: string
  readonly source: string
  readonly flags: string
}

export interface Found {
  /** literals, and the patterns of JSON schemas */
  readonly written: readonly Expression[]
  /** `RegExp(…)`, by place; the function is undefined outside of all functions, where it is made at the import */
  readonly made: readonly { readonly at: string, readonly function: string | undefined }[]
  /** patterns of JSON schemas that the code computes, by place */
  readonly computed: readonly string[]
}

interface Node { readonly type: string, readonly start: number, readonly [field: string]: unknown }

/** @param folder of the package @param globs relative to it */
export function expressionsOf (folder: string, globs: readonly string[]): Found {
  const found = globSync([...globs], { cwd: folder }).map((path) => path.replaceAll('\\', '/')).toSorted()
    .map((path) => expressionsIn(path, readFileSync(`${folder}/${path}`, 'utf8')))
  return { written: found.flatMap(({ written }) => written), made: found.flatMap(({ made }) => made),
    computed: found.flatMap(({ computed }) => computed) }
}

export function expressionsIn (path: string, text: string): Found {
  const [written, made, computed] = [[] as Expression[], [] as Found['made'][number][], [] as string[]]
  const placeOf = ({ start }: Node): string => `${path}:${text.slice(0, start).split('\n').length}`
  const walk = (value: unknown, name: string | undefined): void => {
    if (Array.isArray(value)) { for (const one of value) walk(one, name); return }
    if (typeof value !== 'object' || value === null || typeof (value as Partial<Node>).type !== 'string') return
    const node = value as Node
    const key = node.key as { readonly name?: string } | undefined
    let inner = name
    if (node.type === 'Literal' && node.regex !== undefined) {
      const { pattern, flags } = node.regex as { readonly pattern: string, readonly flags: string }
      written.push({ at: placeOf(node), source: pattern, flags })
    } else if (/^(?:New|Call)Expression$/.test(node.type) && (node.callee as { name?: string }).name === 'RegExp') {
      made.push({ at: placeOf(node), function: name })
    } else if (node.type === 'Property' && key?.name === 'pattern') {
      const { type, value: source } = node.value as Node
      if (type === 'Literal' && typeof source === 'string') written.push({ at: placeOf(node), source, flags: 'u' })
      else if (/^(?:TemplateLiteral|BinaryExpression|MemberExpression)$/.test(type)) computed.push(placeOf(node))
    } else if (node.type === 'FunctionDeclaration') inner = (node.id as { readonly name: string }).name
    else if (node.type === 'MethodDefinition') inner = key!.name ?? 'method'
    else if (node.type === 'ArrowFunctionExpression' || node.type === 'FunctionExpression') inner ??= 'function'
    for (const field of Object.keys(node)) walk(node[field], inner)
  }
  walk(parseSync(path, text).program, undefined)
  return { written, made, computed }
}

/** Of a line of a stack, behind the folder: path and line. */
const PLACE = /^([^\s?:]+)(?:\?anew)?(:\d+):/

/** What `new RegExp` makes at the import of files. */
export async function madeAtImport (folder: string, paths: readonly string[]): Promise<readonly Expression[]> {
  const made: Expression[] = []
  const Original = RegExp
  const root = pathToFileURL(`${folder}/`).href
  globalThis.RegExp = new Proxy(Original, {
    construct (target, given, by) {
      const expression = Reflect.construct(target, given, by) as RegExp
      const line = new Error('where').stack!.split('\n').find((one) => one.includes(root) && !one.includes('/test/'))
      const place = line === undefined ? null : PLACE.exec(line.slice(line.indexOf(root) + root.length))
      if (place !== null) made.push({ at: place[1]! + place[2]!, source: expression.source, flags: expression.flags })
      return expression
    }
  })
  try {
    for (const path of paths) await import(`${root}${path}?anew`) // not the module of an earlier test
  } finally {
    globalThis.RegExp = Original
  }
  return made
}

/** A count of more is read as "any number"; of fewer as 3 at most, for the time grows by this factor at most. */
export const MANY = 100

/**
 * What is wrong with an expression; undefined: its time grows like the text. The limits are counts of the checker's
 * own work and no times, so that it says the same on every machine.
 */
export function slowness ({ source, flags }: Omit<Expression, 'at'>): string | undefined {
  const counted = withoutCounts(source)
  // The checker knows neither flag: `y` is tried at one place only, and `d` changes no match.
  const found = checkSync(flags.includes('y') ? `^(?:${counted})` : counted, flags.replace(/[dy]/g, ''), {
    timeout: null, recallTimeout: -1, attackLimit: 10_000_000, attackTimeout: null, incubationTimeout: null,
    maxIteration: 3, maxInitialGenerationSize: 100, maxAttackStringSize: 20_000
  })
  if (found.status === 'safe') return undefined
  return found.status === 'vulnerable' ? found.complexity.summary : `the checker fails: ${found.error.kind}`
}

function withoutCounts (source: string): string {
  return source.replace(/\\.|\[(?:\\.|[^\]\\])*\]|\{(\d+)(,?)(\d*)\}/gs, (all, min?: string, comma = '', max = '') => {
    if (min === undefined) return all
    const least = Math.min(Number(min), 3)
    if (comma === '') return `{${least}}`
    return max === '' || Number(max) > MANY ? `{${least},}` : `{${least},${Math.min(Number(max), 3)}}`
  })
}
