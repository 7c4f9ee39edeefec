// From the name of a file to a configuration or its problems: every step in order. Blocks, and runs the user's plugins:
// only for the worker thread (and for tests of its messages).
import { createHash } from 'node:crypto'
import type { PluginDescriptor } from '../plugin-descriptor.ts'
import { asRecord } from '../../base/json.ts'
import { check, explainSchema } from '../check/check.ts'
import type { Access, InvalidVerdict, Verdict, WorkerInput } from './load.ts'
import { normalize, type OwnPlugin } from '../yaml/normalize.ts'
import { findTree, formatPointer, locate, parsePointer, problemAt, type Tree } from '../yaml/position.ts'
import { type Problem, sortProblems } from '../problem.ts'
import { readSource, type Source } from '../yaml/read.ts'
import { stampSync } from './stamp.ts'
import { hashFiles, loadUserPlugin, PluginError } from './user-plugin.ts'

/** Called with every file that is read or looked for, just before. */
type Note = (path: string, stamp: string) => void

export async function readConfig (input: WorkerInput, note: Note): Promise<Verdict> {
  const source = readSource(input.file, input.env, note, input.sent)
  const refused = (problems: readonly Problem[]): InvalidVerdict => ({ ...invalid(source, problems),
    ...(input.forAccess === true && source.files.length > 0 && { access: accessIn(source.value) }) })
  if (!source.isWhole) return refused(source.problems)
  const { problems, reported, ownPlugins } = normalize(source)
  source.problems.push(...problems)
  const { plugins: shipped } = await import(input.pluginsUrl) as { readonly plugins: readonly PluginDescriptor[] }
  const own = await loadOwn(ownPlugins, shipped, source, note, input.sent?.plugins)
  const checked = check({ source, shipped, own: own.plugins, reported: new Set([...reported, ...own.reported]),
    now: input.now ?? Date.now() })
  if (checked.problems.length > 0) return refused(checked.problems)
  if (own.version !== undefined) {
    for (const item of checked.config.pipeline) {
      if (own.plugins.has(item.use)) {
        Object.assign(item, { version: own.version })
      }
    }
  }
  const { server, store, models, keys, accounts, routes, ...rest } = checked.config
  const lists = { models: slice(models), keys: slice(keys), accounts: slice(accounts), routes: slice(routes) }
  return {
    kind: 'valid',
    parts: { rest: JSON.stringify({ server, store, ...rest }), lists },
    warnings: sortProblems([...checked.warnings, ...source.oddities], source.file.name),
    unread: unreadIn(source.tree, []),
    sources: source.files,
    digest: createHash('sha256').update(JSON.stringify([rest, lists])).digest('hex'),
    secrets: checked.secrets.filter((pointer) => pointer.startsWith('/pipeline/')),
    places: Object.fromEntries([
      ...['/server', '/store',
        ...keys.flatMap(({ allowed_clients: clients }, index) =>
          clients === undefined ? [] : [`/keys/${index}/allowed_clients`]
        )].flatMap((pointer) => placesBelow(source.tree, pointer)),
      ...placesOf(source.tree, 'pipeline', 'use'),
      ...placesOf(source.tree, 'upstreams', 'url'),
      ...placesOf(source.tree, 'accounts', 'opening_balance_usd'),
      ...placesOf(source.tree, 'accounts', 'id'),
      ...placesOf(source.tree, 'keys', 'id'),
      ['', locate(source.tree.at)]
    ])
  }
}

/** Pieces that the main thread parses one per turn of its event loop. */
function slice (list: readonly unknown[]): string[] {
  const texts: string[] = []
  for (let start = 0; start < list.length; start += 50) texts.push(JSON.stringify(list.slice(start, start + 50)))
  return texts
}

interface Own {
  readonly plugins: ReadonlyMap<string, PluginDescriptor>
  readonly version: string | undefined
  readonly reported: readonly string[]
}

/** @param trusted the only ones that may be loaded; absent: all */
async function loadOwn (
  wanted: readonly OwnPlugin[],
  shipped: readonly PluginDescriptor[],
  source: Source,
  note: Note,
  trusted?: readonly string[]
): Promise<Own> {
  const plugins = new Map<string, PluginDescriptor>()
  const tried = new Set<string>()
  const reported: string[] = []
  const files = new Set<string>()
  const noteFile = (path: string): void => {
    if (files.has(path)) return
    files.add(path)
    note(path, stampSync(path))
  }
  for (const { path, pointer, tree } of wanted) {
    const report = (message: string, hint?: string): void => {
      reported.push(pointer)
      source.problems.push(problemAt(tree.at, `${pointer}/use`, message, hint))
    }
    // Loading a plugin runs it.
    if (trusted?.includes(path) === false) {
      report('this plugin is not one of the live configuration, and no other is loaded here')
      continue
    }
    noteFile(path)
    if (tried.has(path)) {                        // listed twice: reported by a rule, if it can be used at all
      if (!plugins.has(path)) reported.push(pointer)
      continue
    }
    tried.add(path)
    try {
      const plugin = await loadUserPlugin(path, 'check', noteFile)
      const wrong = explainSchema(path, plugin)
      if (wrong !== undefined) { report(wrong) }
      else if (shipped.some(({ name }) => name === plugin.name)) {
        report(`the plugin calls itself ${plugin.name}, which is the name of a shipped plugin`,
          'give it a name of its own')
      } else { plugins.set(path, plugin) }
    } catch (thrown) {
      const error = thrown instanceof PluginError ? thrown : new PluginError(String(thrown))
      if (error.line === undefined) { report(error.message); continue }
      const { file, line, column } = locate(tree.at)
      reported.push(pointer)
      source.problems.push({ file: error.file!, line: error.line, column: error.column ?? 1, path: `${pointer}/use`,
        message: error.message, hint: `used at ${file}:${line}:${column}` })
    }
  }
  return { plugins, reported, version: wanted.length === 0 ? undefined : hashFiles(files) }
}

function accessIn (value: unknown): Access {
  const { server, store } = asRecord(value)
  const { listen, token } = asRecord(asRecord(server).admin)
  const found = Object.entries({ listen, token, path: asRecord(store).path })
  // A variable that is not set here, or a secret file that this user can't read.
  return Object.fromEntries(found.filter(([, text]) => typeof text === 'string' && !text.includes('${')))
}

function invalid (source: Source, problems: readonly Problem[]): InvalidVerdict {
  // An oddity of YAML on a line is the cause of the problem there, or, where the text is no YAML, on the next line.
  const isCaused = ({ file, line }: Problem): boolean =>
    source.oddities.some((odd) =>
      odd.file === file && (odd.line === line || (!source.isWhole && odd.line === line - 1))
    )
  const causes = [...problems.filter((problem) => !isCaused(problem)), ...source.oddities]
  return { kind: 'invalid', unread: unreadIn(source.tree, []),
    problems: sortProblems(causes, source.file.name).map((problem) => hide(problem, source.secretTexts)) }
}

/** The last defence: the content of a secret file is in no message, whichever rule wrote it. */
function hide (problem: Problem, secrets: readonly string[]): Problem {
  const clean = (text: string): string =>
    secrets.reduce((left, secret) => secret.length < 4 ? left : left.replaceAll(secret, '***'), text)
  return { ...problem, message: clean(problem.message),
    ...(problem.hint !== undefined && { hint: clean(problem.hint) }) }
}

/** The values that were not looked at. */
function unreadIn (tree: Tree, path: readonly string[]): Problem[] {
  const found = tree.isUnread === true
    ? [problemAt(tree.at, formatPointer(path), `the value of ${tree.origin!} is not looked at here`)]
    : []
  return [...found, ...[...tree.children ?? []].flatMap(([name, child]) => unreadIn(child, [...path, name]))]
}

/** The position of one key in each item of a list or map; that of the item, if the key is not written there. */
function placesOf (tree: Tree, list: string, key: string): [string, ReturnType<typeof locate>][] {
  return [...tree.children?.get(list)?.children ?? []].map(([index, item]) => [
    formatPointer([list, index, key]),
    locate((item.children?.get(key) ?? item).at)
  ])
}

/** The positions of parts that need a restart, or that a plugin may refuse. */
function placesBelow (tree: Tree, pointer: string): [string, ReturnType<typeof locate>][] {
  const found = findTree(tree, parsePointer(pointer))
  const walk = (here: Tree, path: string): [string, ReturnType<typeof locate>][] => [
    [path, locate(here.key ?? here.at)],
    ...[...here.children ?? []].flatMap(([name, child]) => walk(child, path + formatPointer([name])))
  ]
  return found.exact ? walk(found.tree, pointer) : []
}
