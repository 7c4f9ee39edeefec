// Finds all mistakes of a configuration at once, each with its position. Used by start, reload and `gateway check`
// alike.
import { Ajv2020, type ErrorObject } from 'ajv/dist/2020.js'
import type { JsonSchema, PluginDescriptor } from '../plugin-descriptor.ts'
import type { Config } from '../config.ts'
import { addKeywords } from './keywords.ts'
import { findTree, formatPointer, parsePointer, problemAt, type Tree } from '../yaml/position.ts'
import { type Problem, sortProblems } from '../problem.ts'
import { applyRules } from '../sections/index.ts'
import { composeSchema, optionsSchema } from '../schema.ts'
import { prune } from './prune.ts'
import { pointerOf, toSentences } from './messages.ts'
import type { Source } from '../yaml/read.ts'

export interface CheckInput {
  /** normalised */
  readonly source: Source
  readonly shipped: readonly PluginDescriptor[]
  /** the user's own plugins that could be loaded, by absolute path */
  readonly own: ReadonlyMap<string, PluginDescriptor>
  /** JSON pointers of items whose mistakes were reported already */
  readonly reported: ReadonlySet<string>
  /** milliseconds since the epoch */
  readonly now: number
}

export interface Checked {
  /** valid only without problems */
  readonly config: Config
  readonly problems: readonly Problem[]
  readonly warnings: readonly Problem[]
  /** JSON pointers of values that must not be printed */
  readonly secrets: readonly string[]
}

interface Compiled {
  validate (value: unknown): readonly ErrorObject[]
}

interface Listeners {
  readonly textOf: (pointer: string) => string | undefined
  readonly noteSecret: (pointer: string) => void
}

const nobody: Listeners = { textOf: () => undefined, noteSecret: () => {} }

/**
 * @param isStranger it includes a schema of a user's plugin, with any keyword
 * @param isChecked whether to validate the schema itself: a test does that for the shipped ones, and it costs more than
 * all the rest
 */
function compile (
  schema: JsonSchema, { isStranger = false, isChecked = false } = {}
): (listeners: Listeners) => Compiled {
  const ajv = new Ajv2020({
    validateSchema: isChecked,
    allErrors: true,
    useDefaults: true,
    discriminator: true,
    verbose: true,
    ownProperties: true,
    strict: true,
    strictTypes: false,
    strictRequired: false,
    strictTuples: false,
    validateFormats: false,
    messages: isStranger, // messages.ts has a message for each keyword of the gateway's own
    code: { optimize: false } // twice as fast to compile, for one use (measured)
  })
  let told = nobody
  addKeywords(ajv, (pointer) => told.textOf(pointer), (pointer) => { told.noteSecret(pointer) })
  const validate = ajv.compile(schema)
  return (listeners) => ({ validate: (value) => {
    told = listeners
    return validate(value) ? [] : validate.errors ?? []
  } })
}

/** The last compiled schema, for processes that check configurations of one kind repeatedly, as tests do. */
let compiled: { readonly text: string, readonly by: (listeners: Listeners) => Compiled } | undefined

function compileOnce (schema: JsonSchema, isStranger: boolean): (listeners: Listeners) => Compiled {
  const text = JSON.stringify(schema)
  if (compiled?.text !== text) compiled = { text, by: compile(schema, { isStranger }) }
  return compiled.by
}

/** @returns why a plugin's schema can't be used; undefined: it can */
export function explainSchema (path: string, plugin: PluginDescriptor): string | undefined {
  try {
    compile(optionsSchema(path, plugin), { isStranger: true, isChecked: true })
    return undefined
  } catch (thrown) {
    return `the "schema" of the plugin ${plugin.name} is not a valid JSON Schema: ` +
      `${thrown instanceof Error ? thrown.message.split('\n', 1)[0]! : String(thrown)}`
  }
}

export function check ({ source, shipped, own, reported, now }: CheckInput): Checked {
  const { tree } = source
  const secrets = new Set(source.secrets)
  const textOf = (pointer: string): string | undefined => {
    const found = findTree(tree, parsePointer(pointer))
    return found.exact ? found.tree.text : undefined
  }
  const noteSecret = (pointer: string): void => { secrets.add(pointer) }
  const schema = prune(composeSchema(shipped, own), [source.value])
  const { validate } = compileOnce(schema, own.size > 0)({ textOf, noteSecret })
  const retypable = structuredClone(source.value)
  let value = source.value as Record<string, unknown>
  let errors = validate(value)
  // `secret: ${KEY}` of digits only was read as a number, but the schema wants a text: the text is still in the tree
  const misread = errors.filter(({ keyword, instancePath, params }) =>
    keyword === 'type' && params.type === 'string' && originOf(tree, instancePath) !== undefined
  )
  if (misread.length > 0) {
    value = retypable as Record<string, unknown>
    for (const { instancePath } of misread) replace(value, parsePointer(instancePath), textOf(instancePath))
    errors = validate(value)
  }
  const problems: Problem[] = [...source.problems]
  for (const sentence of toSentences(errors, tree)) {
    const pointer = pointerOf(sentence)
    if ([...reported].some((known) => pointer === known || pointer.startsWith(known + '/'))) continue
    const { tree: found, exact } = findTree(tree, sentence.path)
    if (exact && found.isBroken === true) continue
    const spot = sentence.atKey || !exact || found.children !== undefined ? found.key ?? found.at : found.at
    problems.push(problemAt(spot, pointer, sentence.message, sentence.hint))
  }
  const plugins = new Map([...shipped.map((plugin) => [plugin.name, plugin] as const), ...own])
  const found = applyRules({ value, tree, plugins }, now)
  problems.push(...found.problems)
  // an option of a plugin that came from the environment may be a credential, whatever its schema says
  for (const [name, child] of tree.children?.get('pipeline')?.children ?? []) {
    noteReplaced(child, `/pipeline/${name}`, secrets)
  }
  return {
    config: value as unknown as Config,
    problems: sortProblems(unique(problems), source.file.name),
    warnings: sortProblems(found.warnings, source.file.name),
    secrets: [...secrets]
  }
}

function originOf (tree: Tree, pointer: string): string | undefined {
  const found = findTree(tree, parsePointer(pointer))
  return found.exact ? found.tree.origin : undefined
}

function replace (value: unknown, path: readonly string[], text: unknown): void {
  let parent = value as Record<string, unknown>
  for (const step of path.slice(0, -1)) parent = parent[step] as Record<string, unknown>
  parent[path.at(-1)!] = text
}

function noteReplaced (tree: Tree, pointer: string, secrets: Set<string>): void {
  if (tree.origin !== undefined) secrets.add(pointer)
  for (const [name, child] of tree.children ?? []) noteReplaced(child, pointer + formatPointer([name]), secrets)
}

function unique (problems: readonly Problem[]): Problem[] {
  const seen = new Set<string>()
  return problems.filter((problem) => {
    const key = JSON.stringify([problem.file, problem.line, problem.column, problem.path, problem.message])
    return !seen.has(key) && seen.add(key)
  })
}
