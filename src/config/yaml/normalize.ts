// Brings the configuration into the one form that the schema describes; every value keeps its position.
import { dirname, isAbsolute, resolve } from 'node:path'
import { formatPointer, isMap, type Part, problemAt, type Tree } from './position.ts'
import type { Problem } from '../problem.ts'
import { FORMER_OUTAGE } from '../sections/store.ts'

export interface OwnPlugin {
  /** absolute */
  readonly path: string
  /** JSON pointer of its item */
  readonly pointer: string
  readonly tree: Tree
}

export interface Normalized {
  readonly problems: readonly Problem[]
  /** JSON pointers of mistakes that are reported here, and not by the schema again */
  readonly reported: ReadonlySet<string>
  readonly ownPlugins: readonly OwnPlugin[]
}

export function isPluginPath (use: string): boolean {
  return /^\.{0,2}\//.test(use) || isAbsolute(use) || /\.[cm]?[jt]s$/.test(use)
}

/** Changes the part in place. */
export function normalize (part: Part): Normalized {
  const problems: Problem[] = []
  const reported = new Set<string>()
  const ownPlugins: OwnPlugin[] = []
  const root = part.value as Record<string, unknown>

  // "models:" with everything below it commented out is an empty list
  for (const [name, value] of Object.entries(root)) {
    if (value !== null) continue
    delete root[name]
    part.tree.children?.delete(name)
  }
  renameOutage(root.store)
  nameByIds(root.models)
  nameByIds(root.accounts)
  if (Array.isArray(root.pipeline)) {
    const list = root.pipeline
    const trees = part.tree.children!.get('pipeline')!.children!
    for (const [index, item] of list.entries()) {
      const pointer = formatPointer(['pipeline', index])
      const tree = trees.get(String(index))!
      const found = pipelineItem(item, tree)
      if (typeof found === 'string') {
        reported.add(pointer)
        problems.push(problemAt(tree.at, pointer, found, pipelineHint(item)))
        continue
      }
      list[index] = found.value
      trees.set(String(index), found.tree)
      const { use } = found.value
      if (typeof use !== 'string' || !isPluginPath(use)) continue
      const useTree = found.tree.children!.get('use')!
      const path = resolve(dirname(useTree.at.file.path), use)
      found.value.use = path
      ownPlugins.push({ path, pointer, tree: useTree })
    }
  }
  return { problems, reported, ownPlugins }
}

/** Renames the old values; the tree keeps the written word, for the check. */
function renameOutage (store: unknown): void {
  const outage = isMap(store) ? store.on_outage : undefined
  if (!isMap(outage)) return
  for (const [name, words] of Object.entries(FORMER_OUTAGE)) {
    if (words.includes(outage[name] as string)) outage[name] = 'degrade'
  }
}

function nameByIds (list: unknown): void {
  if (!Array.isArray(list)) return
  for (const item of list) {
    if (isMap(item) && item.name === undefined && typeof item.id === 'string') item.name = item.id
  }
}

/** "auth", "auth: { options }" and "use: ./mine.ts, with: { options }" all become { use, with }. */
function pipelineItem (
  item: unknown,
  tree: Tree
): { readonly value: Record<string, unknown>, readonly tree: Tree } | string {
  if (typeof item === 'string') {
    if (isPluginPath(item)) return `a plugin of your own is written "use: ${item}"`
    return { value: { use: item, with: {} }, tree: { at: tree.at, children: new Map([['use', tree]]) } }
  }
  if (!isMap(item)) return 'must be the name of a plugin, or a name with options'
  const names = Object.keys(item)
  if (names.includes('use')) return { value: { ...item, with: item.with ?? {} }, tree }
  const [name] = names
  if (name === undefined) return 'must be the name of a plugin, or a name with options'
  if (names.length > 1) return `must hold one plugin, found the keys ${names.join(', ')}`
  const options = tree.children!.get(name)!
  const key = options.key ?? options.at
  return {
    value: { use: name, with: item[name] ?? {} },
    tree: { at: tree.at, children: new Map([['use', { at: key, key, text: name }], ['with', options]]) }
  }
}

function pipelineHint (item: unknown): string {
  return isMap(item) && Object.values(item)[0] === null
    ? 'indent the options of a plugin below its name'
    : 'write "- auth", "- auth: { option: value }" or "- use: ./my-plugin.ts"'
}
