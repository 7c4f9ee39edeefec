// Finds the places where a loop searches a text or a list each time: where a cost can grow with the square of what
// comes from outside.
import { globSync, readFileSync } from 'node:fs'
import { parseSync } from 'oxc-parser'

export interface Search {
  /** such as "src/core/sse.ts readText" */
  readonly at: string
  readonly line: number
  readonly method: string
}

/** Methods that look at a whole text or list. */
const SEARCHES = new Set(['indexOf', 'lastIndexOf', 'includes', 'find', 'findIndex', 'findLast', 'findLastIndex',
  'filter', 'splice', 'shift', 'unshift', 'concat', 'replaceAll', 'split', 'match', 'matchAll'])
/** Methods that call a function for each item: a loop too. */
const LOOPS = new Set(['map', 'flatMap', 'filter', 'forEach', 'reduce', 'some', 'every', 'find', 'findIndex'])

interface Node { readonly type: string, readonly start: number, readonly [field: string]: unknown }

/** @param folder of the package @param rooms folders whose files are read */
export function searchesInLoops (folder: string, rooms: readonly string[]): readonly Search[] {
  const paths = globSync(rooms.map((room) => `${room}/**/*.ts`), { cwd: folder })
    .map((path) => path.replaceAll('\\', '/')).toSorted()
  return paths.flatMap((path) => {
    const text = readFileSync(`${folder}/${path}`, 'utf8')
    return searchesIn(path, text)
  })
}

export function searchesIn (path: string, text: string): readonly Search[] {
  const found: Search[] = []
  const walk = (value: unknown, name: string, depth: number): void => {
    if (Array.isArray(value)) { for (const one of value) walk(one, name, depth); return }
    if (typeof value !== 'object' || value === null || typeof (value as Partial<Node>).type !== 'string') return
    const node = value as Node
    let [here, deep] = [name, depth]
    if (node.type === 'FunctionDeclaration' || node.type === 'MethodDefinition') {
      here = ((node.id ?? node.key) as { readonly name: string }).name
      deep = 0
    } else if (/^(?:For|While|DoWhile)/.test(node.type)) deep++
    const called = node.type === 'CallExpression' ? node.callee as Node : undefined
    if (called?.type !== 'MemberExpression') {
      for (const field of Object.keys(node)) walk(node[field], here, deep)
      return
    }
    const method = (called.property as { readonly name?: string }).name ?? ''
    if (deep > 0 && SEARCHES.has(method)) {
      found.push({ at: `${path} ${here}`, method, line: text.slice(0, node.start).split('\n').length })
    }
    walk(called, here, deep)
    for (const argument of node.arguments as readonly Node[]) {
      walk(argument, here, LOOPS.has(method) && argument.type.includes('Function') ? deep + 1 : deep)
    }
  }
  walk(parseSync(path, text).program, '(file)', 0)
  return found
}
