// The input of every rule, and reads of values that may not fit the schema.
import type { PluginDescriptor, Report, Role } from '../plugin-descriptor.ts'
import { findTree, isMap, type Path, printSpot, type Tree } from '../yaml/position.ts'
import { quote, show } from '../check/messages.ts'

export interface RuleInput {
  readonly value: Record<string, unknown>
  readonly tree: Tree
  /** by `use`: shipped ones by name, the user's own by absolute path */
  readonly plugins: ReadonlyMap<string, PluginDescriptor>
}

/** The plugin to be added, for a message. */
export function providerOf (role: Role, { plugins }: RuleInput): string {
  return [...plugins.values()].find((plugin) => plugin.provides?.includes(role) === true)?.name ?? role
}

export interface Item { readonly item: Record<string, unknown>, readonly path: Path }

export type { Report }

export function items (value: unknown, name: string): Item[] {
  return Array.isArray(value)
    ? value.flatMap((item: unknown, index) => isMap(item) ? [{ item, path: [name, index] }] : [])
    : []
}

export function at (value: unknown, ...path: string[]): unknown {
  for (const step of path) value = isMap(value) && Object.hasOwn(value, step) ? value[step] : undefined
  return value
}

/** Texts only, without those whose ${...} gave no value. */
export function text (value: unknown, tree: Tree, path: Path): string | undefined {
  const found = findTree(tree, path)
  return typeof value === 'string' && !(found.exact && found.tree.isBroken === true) ? value : undefined
}

export interface Entry {
  readonly entry: string
  readonly here: Path
  /** as a message may show it */
  readonly shown: string
}

/** The texts of a list. */
export function texts (list: unknown, tree: Tree, path: Path): Entry[] {
  return (Array.isArray(list) ? list as readonly unknown[] : []).flatMap((value, index) => {
    const here = [...path, index]
    const entry = text(value, tree, here)
    return entry === undefined ? [] : [{ entry, here, shown: show(entry, findTree(tree, here).tree, false) }]
  })
}

/** @returns the items by the value of their `field` */
export function checkUnique (
  list: readonly Item[],
  field: string,
  noun: string,
  { tree }: RuleInput,
  report: Report
): ReadonlyMap<string, Item> {
  const seen = new Map<string, Item>()
  for (const entry of list) {
    const id = text(entry.item[field], tree, [...entry.path, field])
    if (id === undefined) continue
    const first = seen.get(id)
    if (first === undefined) seen.set(id, entry)
    else report(
      [...entry.path, field],
      `two ${noun} have the id ${quote(id)}; the other is at ` +
      `${printSpot(findTree(tree, [...first.path, field]).tree.at)}`
    )
  }
  return seen
}
