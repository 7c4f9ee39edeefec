// Turns the nodes of one YAML file into a plain value with a position for every part of it: aliases, merge keys and
// ${...} resolved.
import { type Alias, isAlias, isMap as isYamlMap, isScalar, isSeq, type Node, type ParsedNode, type Scalar,
  visit } from 'yaml'
import type { Findings } from './findings.ts'
import { type Env, interpolate, resolveCore } from './interpolate.ts'
import { formatPointer, isMap, type Part, type Path, type Spot, type TextFile } from './position.ts'
import type { ReadText } from './read-text.ts'

/** Most nodes made by aliases: a "billion laughs" is refused, a thousand models that share a price by alias are not. */
const MAX_ALIASED_NODES = 100_000
const MAX_DEPTH = 64

/** The tools of the conversion. */
export interface Means {
  /** undefined: what a ${...} stands for is not looked at */
  readonly env: Env | undefined
  readonly readText: ReadText
  readonly findings: Findings
}

export function convert (file: TextFile, contents: ParsedNode, means: Means): Part {
  return new Conversion(file, resolveAliases(file, contents, means.findings), means).walk(contents, [], false)
}

/** Resolved in the order of the document, because an anchor may be set again. */
function resolveAliases (file: TextFile, contents: ParsedNode, findings: Findings): ReadonlyMap<Alias, Node> {
  const anchors = new Map<string, Node>()
  const targets = new Map<Alias, Node>()
  visit(contents, {
    Alias (_, alias) {
      const target = anchors.get(alias.source)
      if (target !== undefined) {
        targets.set(alias, target)
        return
      }
      findings.fail({ file, offset: alias.range?.[0] ?? 0 }, '',
        `there is no anchor &${alias.source} above this alias`)
    },
    Node (_, node) {
      if (!isAlias(node) && node.anchor !== undefined) anchors.set(node.anchor, node)
    }
  })
  return targets
}

class Conversion {
  readonly #file: TextFile
  readonly #targets: ReadonlyMap<Alias, Node>
  readonly #means: Means
  /** nodes on the way from the root */
  readonly #open = new Set<Node>()
  #aliased = 0

  constructor (file: TextFile, targets: ReadonlyMap<Alias, Node>, means: Means) {
    this.#file = file
    this.#targets = targets
    this.#means = means
  }

  walk (node: Node, path: Path, inAlias: boolean): Part {
    const at = this.#spotOf(node)
    if (inAlias && ++this.#aliased === MAX_ALIASED_NODES) {
      return this.#refuse(at, path, 'aliases repeat more than 100,000 values', 'write fewer or smaller aliases')
    }
    if (this.#aliased >= MAX_ALIASED_NODES) return { value: null, tree: { at } }
    if (path.length > MAX_DEPTH) return this.#refuse(at, path, 'nested too deeply')
    if (isAlias(node)) return this.#walkAlias(node, at, path)
    this.#open.add(node)
    try {
      if (isYamlMap(node)) return this.#walkMap(node.items, at, path, inAlias)
      if (isSeq(node)) return this.#walkList(node.items as Node[], at, path, inAlias)
      return this.#walkScalar(node as Scalar, at, path)
    } finally {
      this.#open.delete(node)
    }
  }

  #spotOf (node: Node): Spot {
    return { file: this.#file, offset: node.range?.[0] ?? 0 }
  }

  #refuse (spot: Spot, path: Path, message: string, hint?: string): Part {
    this.#means.findings.fail(spot, formatPointer(path), message, hint)
    return { value: null, tree: { at: spot } }
  }

  #walkAlias (alias: Alias, at: Spot, path: Path): Part {
    const target = this.#targets.get(alias)
    if (target === undefined) return { value: null, tree: { at } }
    if (this.#open.has(target)) {
      return this.#refuse(at, path, `the alias *${alias.source} stands inside of what it repeats`)
    }
    return this.walk(target, path, true)
  }

  #walkMap (
    items: readonly { readonly key: unknown, readonly value: unknown }[],
    at: Spot,
    path: Path,
    inAlias: boolean
  ): Part {
    const value: Record<string, unknown> = {}
    const tree = { at, children: new Map() }
    const merged: Part[] = []
    for (const pair of items) {
      if (!isScalar(pair.key)) continue                  // the parser has reported it
      const name = String(pair.key.value)
      const key = this.#spotOf(pair.key)
      const child = pair.value === null
        ? { value: null, tree: { at: key } }
        : this.walk(pair.value as Node, [...path, name], inAlias)
      if (name === '<<') {
        merged.push(...this.#mergeSources(child, key, path))
        continue
      }
      // an own property of this name would change the prototype in careless code
      if (name === '__proto__') { this.#refuse(key, path, 'the key "__proto__" is not allowed'); continue }
      value[name] = child.value
      tree.children.set(name, { ...child.tree, key })
    }
    for (const part of merged) {
      for (const [name, inherited] of Object.entries(part.value as Record<string, unknown>)) {
        if (Object.hasOwn(value, name)) continue
        value[name] = inherited
        tree.children.set(name, part.tree.children?.get(name))
      }
    }
    return { value, tree }
  }

  /** "<<: *name" and "<<: [*a, *b]": keys that are written out win, then the earlier map. */
  #mergeSources (child: Part, key: Spot, path: Path): Part[] {
    const parts = Array.isArray(child.value)
      ? child.value.map((value: unknown, index) => ({ value, tree: child.tree.children!.get(String(index))! }))
      : [child]
    const maps = parts.filter((part) => isMap(part.value))
    if (maps.length < parts.length) this.#refuse(key, path, '"<<" takes a map, or a list of maps, such as "<<: *name"')
    return maps
  }

  #walkList (items: readonly Node[], at: Spot, path: Path, inAlias: boolean): Part {
    const parts = items.map((item, index) => this.walk(item, [...path, index], inAlias))
    return { value: parts.map(({ value }) => value),
      tree: { at, children: new Map(parts.map(({ tree }, index) => [String(index), tree])) } }
  }

  #walkScalar (node: Scalar, at: Spot, path: Path): Part {
    if (typeof node.value !== 'string') {
      return { value: node.value, tree: { at, text: node.source ?? String(node.value) } }
    }
    const { env, readText, findings } = this.#means
    const found = interpolate(node.value, this.#file.path, env, readText)
    if (found === undefined) return { value: node.value, tree: { at, text: node.value } }
    for (const { message, hint } of found.problems) findings.report(at, formatPointer(path), message, hint)
    const { isUnread } = found
    const isBroken = isUnread || found.problems.length > 0
    const tree = { at, text: found.text, origin: found.origin, isUnread, isBroken }
    if (found.isSecret && found.problems.length === 0) findings.secretTexts.push(found.text)
    return { value: found.whole && node.type === 'PLAIN' ? resolveCore(found.text) : found.text, tree }
  }
}
