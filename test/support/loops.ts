// Finds the places where a cost can grow with the square of what comes from outside: a loop that reads a whole text or
// list each time, a text or list that is copied to add to it, and a function that calls itself.
import { globSync, readFileSync } from 'node:fs'
import { parseSync } from 'oxc-parser'

export interface Square {
  /** such as "src/core/sse.ts readText" */
  readonly at: string
  readonly line: number
  /** such as "includes in a loop" */
  readonly what: string
}

/** Methods that read a whole text or list, which stands before the dot. */
const READS_OBJECT = new Set(['indexOf', 'lastIndexOf', 'includes', 'find', 'findIndex', 'findLast', 'findLastIndex',
  'filter', 'splice', 'shift', 'unshift', 'concat', 'replace', 'replaceAll', 'split', 'match', 'matchAll', 'search',
  'slice', 'join', 'map', 'flatMap', 'flat', 'forEach', 'reduce', 'reduceRight', 'some', 'every', 'sort', 'toSorted',
  'toReversed', 'toSpliced', 'with', 'trim', 'toLowerCase', 'toUpperCase', 'toString', 'equals', 'copy'])
/** Functions that read a whole text or list, which is their first argument. */
const READS_ARGUMENT = new Set(['test', 'exec', 'stringify', 'parse', 'keys', 'values', 'entries', 'fromEntries',
  'from', 'concat', 'assign', 'structuredClone', 'groupBy', 'Set', 'Map'])
/** Methods that call a function for each item: a loop too. */
const LOOPS = new Set(['map', 'flatMap', 'filter', 'forEach', 'reduce', 'reduceRight', 'some', 'every', 'find',
  'findIndex', 'findLast', 'findLastIndex', 'sort', 'toSorted', 'replace', 'replaceAll', 'groupBy', 'from'])

interface Node { readonly type: string, readonly start: number, readonly [field: string]: unknown }

/** Around a node. */
interface Scope {
  /** the name of the function */
  readonly name: string
  /** how this function is called, and those around it that a variable holds */
  readonly around: ReadonlySet<string>
  readonly inLoop: boolean
  /** names of what belongs to one turn of the loop: all turns together read it once */
  readonly own: ReadonlySet<string>
}

/** @param folder of the package @param rooms folders whose files are read */
export function squaresOf (folder: string, rooms: readonly string[]): readonly Square[] {
  const paths = globSync(rooms.map((room) => `${room}/**/*.ts`), { cwd: folder })
    .map((path) => path.replaceAll('\\', '/')).toSorted()
  return paths.flatMap((path) => squaresIn(path, readFileSync(`${folder}/${path}`, 'utf8')))
}

export function squaresIn (path: string, text: string): readonly Square[] {
  const found: Square[] = []
  const { program } = parseSync(path, text)
  const texts = textsIn(program)

  const walk = (value: unknown, scope: Scope): void => {
    if (Array.isArray(value)) { for (const one of value) walk(one, scope); return }
    if (!isNode(value)) return
    const report = (what: string): void => {
      found.push({ at: `${path} ${scope.name}`, line: text.slice(0, value.start).split('\n').length, what })
    }
    switch (value.type) {
      case 'FunctionDeclaration': return walkFields(value, scopeOf(nameOf(value.id as Node)))
      case 'MethodDefinition': return walkFields(value, scopeOf(nameOf(value.key as Node), callOf(value.key as Node)))
      case 'VariableDeclarator':
        if (!isNode(value.init) || !value.init.type.includes('Function')) break
        return walkFields(value.init, { ...scope, around: new Set([...scope.around, nameOf(value.id as Node)]) })
      case 'ForOfStatement': case 'ForInStatement':
        if (scope.inLoop && !isOwn(value.right, scope)) report('a loop in a loop')
        walk(value.right, scope)
        return walk(value.body, { ...scope, inLoop: true, own: withNames(scope.own, value.left) })
      case 'ForStatement': case 'WhileStatement': case 'DoWhileStatement':
        if (scope.inLoop) report('a loop in a loop')
        return walkFields(value, { ...scope, inLoop: true })
      case 'BlockStatement':
        return walk(value.body, { ...scope, own: withConstants(scope, value.body as readonly Node[]) })
      case 'AssignmentExpression': {
        const left = nameOf(value.left as Node)
        if (scope.inLoop && texts.has(left) && adds(value, left)) report('+= of a text in a loop')
        if (scope.inLoop && value.operator === '=' && spreads(value.right, left)) {
          report('a copy with one more in a loop')
        }
        break
      }
      case 'NewExpression': case 'CallExpression': return call(value, scope, report)
    }
    walkFields(value, scope)
  }
  const walkFields = (node: Node, scope: Scope): void => {
    for (const field of Object.keys(node)) walk(node[field], scope)
  }
  const call = (node: Node, scope: Scope, report: (what: string) => void): void => {
    const callee = node.callee as Node
    const given = node.arguments as readonly Node[]
    const method = callee.type === 'MemberExpression' ? nameOf(callee.property as Node) : nameOf(callee)
    const object = callee.type === 'MemberExpression' ? callee.object as Node : undefined
    const isOwnMethod = object?.type === 'ThisExpression' && scope.around.has(callOf(callee.property as Node))
    if (isOwnMethod || (object === undefined && scope.around.has(method))) report('calls itself')
    const read = object !== undefined && READS_OBJECT.has(method) && !isGlobal(object) ? object
      : READS_ARGUMENT.has(method) ? given[0] : undefined
    if (scope.inLoop && read !== undefined && !isOwn(read, scope)) report(`${method} in a loop`)
    walk(callee, scope)
    for (const one of given) {
      if (!LOOPS.has(method) || !/Function/.test(one.type)) { walk(one, scope); continue }
      const [first, second] = one.params as readonly Node[]
      const item = method.startsWith('reduce') ? second : first
      if (method.startsWith('reduce') && first !== undefined && spreads(one.body, nameOf(first))) {
        report('a copy with one more in a loop')
      }
      walk(one.body, { ...scope, inLoop: true, own: item === undefined ? scope.own : withNames(scope.own, item) })
    }
  }
  walk(program, scopeOf('(file)'))
  return found
}

function scopeOf (name: string, called = name): Scope {
  return { name, around: new Set([called]), inLoop: false, own: new Set() }
}

/** How an object calls its own method. */
function callOf (key: Node): string {
  return `this.${key.type === 'PrivateIdentifier' ? '#' : ''}${nameOf(key)}`
}

function isNode (value: unknown): value is Node {
  return typeof value === 'object' && value !== null && typeof (value as Partial<Node>).type === 'string'
}

function nameOf (node: Node): string {
  if (node.type === 'MemberExpression') return nameOf(node.property as Node)
  return (node as { readonly name?: string }).name ?? ''
}

/** No text and no list of ours. */
function isGlobal (node: Node): boolean {
  return /^(?:JSON|Object|Buffer|Array|Map|Promise|path)$/.test(nameOf(node))
}

/** Whether an expression is of one turn: its root is a name of the turn, or what it is computed from. */
function isOwn (value: unknown, scope: Scope): boolean {
  if (!isNode(value)) return false
  switch (value.type) {
    case 'Identifier': return scope.own.has(nameOf(value))
    case 'Literal': case 'TemplateLiteral': case 'ArrayExpression': case 'ObjectExpression': return true
    case 'MemberExpression': return value.computed === true || isOwn(value.object, scope) // an item of a list
    case 'TSNonNullExpression': case 'TSAsExpression': case 'TSSatisfiesExpression': case 'ChainExpression':
    case 'ParenthesizedExpression': case 'AwaitExpression': return isOwn(value.expression ?? value.argument, scope)
    case 'LogicalExpression': return isOwn(value.left, scope) && isOwn(value.right, scope)
    case 'ConditionalExpression': return isOwn(value.consequent, scope) && isOwn(value.alternate, scope)
    case 'CallExpression': {
      const [callee, [first]] = [value.callee as Node, value.arguments as [Node?]]
      const isMethod = callee.type === 'MemberExpression' && !isGlobal(callee.object as Node)
      return isMethod ? isOwn(callee.object, scope) : isOwn(first, scope)
    }
    default: return false
  }
}

function withNames (own: ReadonlySet<string>, pattern: unknown): ReadonlySet<string> {
  const names = new Set(own)
  const add = (value: unknown): void => {
    if (Array.isArray(value)) { for (const one of value) add(one); return }
    if (!isNode(value)) return
    if (value.type === 'Identifier') names.add(nameOf(value))
    else for (const field of ['declarations', 'id', 'properties', 'value', 'elements', 'argument', 'left']) {
      add(value[field])
    }
  }
  add(pattern)
  return names
}

/** With the constants of a block that are parts of what is of one turn. */
function withConstants (scope: Scope, body: readonly Node[]): ReadonlySet<string> {
  return !scope.inLoop ? scope.own : body.filter(({ type }) => type === 'VariableDeclaration')
    .flatMap(({ declarations }) => declarations as readonly Node[])
    .reduce((own, { id, init }) => isOwn(init, { ...scope, own }) ? withNames(own, id) : own, scope.own)
}

/** Names of variables and fields that begin as a text. */
function textsIn (program: unknown): ReadonlySet<string> {
  const names = new Set<string>()
  const walk = (value: unknown): void => {
    if (Array.isArray(value)) { for (const one of value) walk(one); return }
    if (!isNode(value)) return
    const [name, init] = value.type === 'VariableDeclarator' ? [value.id, value.init]
      : value.type === 'PropertyDefinition' ? [value.key, value.value] : []
    const isText = isNode(init) && (init.type === 'TemplateLiteral' || typeof init.value === 'string')
    if (isText) names.add(nameOf(name as Node))
    for (const field of Object.keys(value)) walk(value[field])
  }
  walk(program)
  return names
}

/** Whether an assignment is `name += …` or `name = … + name`. */
function adds ({ operator, right }: Node, name: string): boolean {
  if (operator === '+=') return true
  const { type, operator: plus, left: first, right: last } = right as Node
  return type === 'BinaryExpression' && plus === '+' && [first, last].some((one) => nameOf(one as Node) === name)
}

/** Whether an expression holds `...name`. */
function spreads (value: unknown, name: string): boolean {
  if (Array.isArray(value)) return value.some((one) => spreads(one, name))
  if (!isNode(value)) return false
  if (value.type === 'SpreadElement' && nameOf(value.argument as Node) === name) return true
  return Object.keys(value).some((field) => spreads(value[field], name))
}
