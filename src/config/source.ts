// Reads gateway.yaml and what it includes into one plain value with a place for every part of it. Knows YAML, not the schema.
import { basename, dirname, isAbsolute, join, resolve } from 'node:path'
import { type Alias, isAlias, isMap as isYamlMap, isScalar, isSeq, LineCounter, type Node, type ParsedNode, parseDocument, type Scalar, visit } from 'yaml'
import { type Env, interpolate, resolveCore } from './interpolate.ts'
import { oddities, openQuote } from './odd-text.ts'
import { formatPointer, isMap, locate, type Part, type Path, printSpot, problemAt, type Spot, type TextFile } from './place.ts'
import type { Problem } from './problem.ts'
import { textReader } from './read-text.ts'
import { explainYaml, isConsequence, isHarmless, isRepeat, openBracket } from './yaml-error.ts'

export interface Source extends Part {
  /** the main file */
  readonly file: TextFile
  readonly problems: Problem[]
  /** what is surely not meant, and may be all the same: of what stands on their lines, these are the cause */
  readonly oddities: readonly Problem[]
  /** false: parts of it could not be read, so that looking for more mistakes would only invent some */
  readonly isWhole: boolean
  /** paths (JSON pointers) of values that came out of secret files */
  readonly secrets: ReadonlySet<string>
  /** texts that came out of secret files: never to be printed */
  readonly secretTexts: readonly string[]
}

/** Of a key that was set before in its map. */
interface Repeat {
  readonly offset: number
  /** of the one before */
  readonly first: number
  /** keys behind it that were set before, too */
  more: number
}

/** A laughing billion of aliases is refused; a thousand models that share a price by alias are not. */
const MAX_ALIASED_NODES = 100_000
const MAX_DEPTH = 64

/**
 * @param name the path of the main file, as the operator wrote it
 * @param note told of every file that was asked for
 */
export function readSource (name: string, env: Env, note: (path: string, stamp: string) => void): Source {
  const readText = textReader(note)
  const problems: Problem[] = []
  const odd: Problem[] = []
  const secretTexts: string[] = []
  const readFiles = new Map<string, Spot>()
  let isWhole = true

  function openFile (fileName: string, path: string): { readonly file: TextFile, readonly text: string | undefined, readonly message: string } {
    const file: TextFile = { name: fileName, path, lines: new LineCounter() }
    const read = readText(path)
    return { file, text: read.kind === 'text' ? read.text : undefined, message: read.kind === 'text' ? '' : read.message }
  }

  /** One file, with what it includes merged in. */
  function readFile (file: TextFile, text: string): Part {
    const start: Spot = { file, offset: 0 }
    const empty: Part = { value: {}, tree: { at: start } }
    readFiles.set(file.path, start)
    const document = parse(file, text)
    if (document === undefined) return empty
    const { contents } = document
    if (contents === null || (isScalar(contents) && contents.value === null)) {
      // also what a writer that truncates first looks like for a moment: it must not be taken for "nothing configured"
      problems.push(problemAt(start, '', 'the file is empty'))
      isWhole = false
      return empty
    }
    if (!isYamlMap(contents)) {
      problems.push(problemAt({ file, offset: contents.range[0] }, '', 'the file must be a map of keys such as "models:"'))
      isWhole = false
      return empty
    }
    const part = convert(file, contents, resolveAliases(file, contents))
    part.tree.at = start
    return include(file, part)
  }

  function parse (file: TextFile, text: string): { readonly contents: ParsedNode | null } | undefined {
    let document
    try {
      document = parseDocument(text, { lineCounter: file.lines, prettyErrors: false, stringKeys: true })
    } catch (thrown) {
      // the parser recurses: only thousands of nested brackets get here
      problems.push(problemAt({ file, offset: 0 }, '', thrown instanceof RangeError ? 'nested too deeply' : 'this is not YAML'))
      isWhole = false
      return undefined
    }
    for (const { offset, message, hint } of oddities(text)) odd.push(problemAt({ file, offset }, '', message, hint))
    const lines = new Set<number>()
    const errors = [...document.errors, ...document.warnings]
    const quote = errors.every(isHarmless) ? undefined : openQuote(text)
    const repeats = errors.some(isRepeat) ? repeatedKeys(document.contents) : undefined
    for (const [index, error] of errors.entries()) {
      // all that follows is inside the quote
      if (quote !== undefined && error.pos[0] >= quote.offset) continue
      if (isConsequence(error, errors.slice(0, index))) continue
      if (isRepeat(error) && repeats !== undefined) continue
      const bracket = openBracket(error)
      const opened = bracket === undefined ? undefined : lastOpen(document.contents, text, bracket, error.pos[0])
      const spot = { file, offset: opened ?? error.pos[0] }
      const { line } = locate(spot)
      // one broken bracket makes the parser stumble over the rest of its line
      if (!isHarmless(error) && lines.has(line)) continue
      lines.add(line)
      const { message, hint } = explainYaml(error, text)
      problems.push(problemAt(spot, '', message, hint))
      if (!isHarmless(error)) isWhole = false
    }
    if (quote !== undefined) {
      const { offset, end } = quote
      problems.push(problemAt({ file, offset }, '', end === undefined ? 'this quote is never closed' : `this quote is never closed, or the next one, at ${printSpot({ file, offset: end })}, is one too many`))
      isWhole = false
    }
    for (const { offset, first, more } of repeats ?? []) {
      const there = printSpot({ file, offset: first })
      if (more === 0) problems.push(problemAt({ file, offset }, '', `this key was set before in the same map, at ${there}`, 'remove one of the two'))
      else problems.push(problemAt({ file, offset }, '', `this key and the ${more === 1 ? 'one' : more} after it were set before in the same map, from ${there} on`, 'was a block pasted twice? remove one of the two'))
    }
    return document
  }

  /** Keys that stand twice in a map; those that follow each other both times are one. */
  function repeatedKeys (contents: ParsedNode | null): readonly Repeat[] {
    const found: Repeat[] = []
    visit(contents, {
      Map (_, { items }) {
        const seen = new Map<unknown, number>()
        let run: { readonly repeat: Repeat, readonly last: number, readonly place: number } | undefined
        for (const [index, { key }] of items.entries()) {
          if (!isScalar(key)) continue
          const first = seen.get(key.value)
          if (first === undefined) { seen.set(key.value, index); continue }
          if (run !== undefined && run.last === index - 1 && run.place === first - 1) {
            run.repeat.more++
            run = { repeat: run.repeat, last: index, place: first }
            continue
          }
          const repeat = { offset: key.range?.[0] ?? 0, first: (items[first]!.key as Scalar).range?.[0] ?? 0, more: 0 }
          found.push(repeat)
          run = { repeat, last: index, place: first }
        }
      }
    })
    return found
  }

  /** The parser reports an open bracket where the text goes on; the reader wants to know where it begins. */
  function lastOpen (contents: ParsedNode | null, text: string, bracket: '{' | '[', before: number): number | undefined {
    let last: number | undefined
    visit(contents, {
      Collection (_, { flow, range }) {
        const isOpen = flow === true && range != null && text[range[0]] === bracket && text[range[1] - 1] !== (bracket === '{' ? '}' : ']')
        if (isOpen && range[0] < before) last = range[0]
      }
    })
    return last
  }

  /** In the order of the document, since an anchor may be set again. */
  function resolveAliases (file: TextFile, contents: ParsedNode): ReadonlyMap<Alias, Node> {
    const anchors = new Map<string, Node>()
    const targets = new Map<Alias, Node>()
    visit(contents, {
      Alias (_, alias) {
        const target = anchors.get(alias.source)
        if (target !== undefined) { targets.set(alias, target); return }
        problems.push(problemAt({ file, offset: alias.range?.[0] ?? 0 }, '', `there is no anchor &${alias.source} above this alias`))
        isWhole = false
      },
      Node (_, node) {
        if (!isAlias(node) && node.anchor !== undefined) anchors.set(node.anchor, node)
      }
    })
    return targets
  }

  function convert (file: TextFile, root: Node, targets: ReadonlyMap<Alias, Node>): Part {
    let aliased = 0
    const open = new Set<Node>()

    function spotOf (node: Node): Spot {
      return { file, offset: node.range?.[0] ?? 0 }
    }

    function refuse (spot: Spot, path: Path, message: string, hint?: string): Part {
      problems.push(problemAt(spot, formatPointer(path), message, hint))
      isWhole = false
      return { value: null, tree: { at: spot } }
    }

    function walk (node: Node, path: Path, inAlias: boolean): Part {
      if (inAlias && ++aliased === MAX_ALIASED_NODES) return refuse(spotOf(node), path, 'aliases repeat more than 100,000 values', 'write fewer or smaller aliases')
      if (aliased >= MAX_ALIASED_NODES) return { value: null, tree: { at: spotOf(node) } }
      if (path.length > MAX_DEPTH) return refuse(spotOf(node), path, 'nested too deeply')
      if (isAlias(node)) {
        const target = targets.get(node)
        if (target === undefined) return { value: null, tree: { at: spotOf(node) } }
        if (open.has(target)) return refuse(spotOf(node), path, `the alias *${node.source} stands inside of what it repeats`)
        return walk(target, path, true)
      }
      open.add(node)
      try {
        if (isYamlMap(node)) return walkMap(node.items, spotOf(node), path, inAlias)
        if (isSeq(node)) return walkList(node.items as Node[], spotOf(node), path, inAlias)
        return walkScalar(node as Scalar, path)
      } finally {
        open.delete(node)
      }
    }

    function walkMap (items: readonly { readonly key: unknown, readonly value: unknown }[], at: Spot, path: Path, inAlias: boolean): Part {
      const value: Record<string, unknown> = {}
      const tree = { at, children: new Map() }
      const merged: Part[] = []
      for (const pair of items) {
        if (!isScalar(pair.key)) continue                  // the parser has reported it
        const name = String(pair.key.value)
        const key = spotOf(pair.key)
        const child = pair.value === null ? { value: null, tree: { at: key } } : walk(pair.value as Node, [...path, name], inAlias)
        if (name === '<<') { merged.push(...mergeSources(child, key, path)); continue }
        // an own property of this name would change the prototype in careless code
        if (name === '__proto__') { refuse(key, path, 'the key "__proto__" is not allowed'); continue }
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
    function mergeSources (child: Part, key: Spot, path: Path): Part[] {
      const parts = Array.isArray(child.value)
        ? child.value.map((value: unknown, index) => ({ value, tree: child.tree.children!.get(String(index))! }))
        : [child]
      const maps = parts.filter((part) => isMap(part.value))
      if (maps.length < parts.length) refuse(key, path, '"<<" takes a map, or a list of maps, such as "<<: *name"')
      return maps
    }

    function walkList (items: readonly Node[], at: Spot, path: Path, inAlias: boolean): Part {
      const parts = items.map((item, index) => walk(item, [...path, index], inAlias))
      return { value: parts.map(({ value }) => value), tree: { at, children: new Map(parts.map(({ tree }, index) => [String(index), tree])) } }
    }

    function walkScalar (node: Scalar, path: Path): Part {
      const at = spotOf(node)
      if (typeof node.value !== 'string') return { value: node.value, tree: { at, text: node.source ?? String(node.value) } }
      const found = interpolate(node.value, file.path, env, readText)
      if (found === undefined) return { value: node.value, tree: { at, text: node.value } }
      for (const { message, hint } of found.problems) problems.push(problemAt(at, formatPointer(path), message, hint))
      const tree = { at, text: found.text, origin: found.origin, isBroken: found.problems.length > 0 }
      if (found.isSecret && found.problems.length === 0) secretTexts.push(found.text)
      return { value: found.whole && node.type === 'PLAIN' ? resolveCore(found.text) : found.text, tree }
    }

    return walk(root, [], false)
  }

  function include (file: TextFile, part: Part): Part {
    const { include: names, ...own } = part.value as Record<string, unknown>
    const children = new Map(part.tree.children)
    const tree = children.get('include')
    children.delete('include')
    const whole: Part = { value: own, tree: { ...part.tree, children } }
    if (names === undefined || names === null) return whole
    if (!Array.isArray(names) || names.some((entry) => typeof entry !== 'string')) {
      problems.push(problemAt(tree!.at, '/include', 'must be a list of paths of YAML files', 'such as: include: [config/models.yaml]'))
      isWhole = false
      return whole
    }
    for (const [index, entry] of (names as string[]).entries()) {
      const spot = tree!.children!.get(String(index))!.at
      const path = resolve(dirname(file.path), entry)
      const first = readFiles.get(path)
      if (first !== undefined) {
        problems.push(problemAt(spot, `/include/${index}`, `${basename(path)} is included twice, or includes itself`))
        isWhole = false
        continue
      }
      const opened = openFile(isAbsolute(entry) ? entry : join(dirname(file.name), entry), path)
      if (opened.text === undefined) {
        problems.push(problemAt(spot, `/include/${index}`, `the included file ${opened.message}`))
        isWhole = false
        continue
      }
      merge(whole, readFile(opened.file, opened.text), [])
    }
    return whole
  }

  /** Lists are joined, maps are merged, anything that is set twice is an error that names both places. */
  function merge (into: Part, part: Part, path: Path): void {
    const target = into.value as Record<string, unknown>
    const children = into.tree.children!
    for (const [name, value] of Object.entries(part.value as Record<string, unknown>)) {
      const tree = part.tree.children!.get(name)!
      const present = children.get(name)
      const here = [...path, name]
      if (present === undefined || target[name] === null) {
        target[name] = value
        children.set(name, tree)
      } else if (isMap(value) && isMap(target[name])) {
        merge({ value: target[name], tree: present }, { value, tree }, here)
      } else if (Array.isArray(value) && Array.isArray(target[name])) {
        const list = target[name]
        for (const [index, item] of value.entries()) {
          present.children!.set(String(list.length), tree.children!.get(String(index))!)
          list.push(item)
        }
      } else if (value !== null) {
        problems.push(problemAt(tree.key ?? tree.at, formatPointer(here), `"${name}" is set twice; the other is at ${printSpot(present.key ?? present.at)}`))
      }
    }
  }

  function findSecrets (tree: Part['tree'], path: Path, found: Set<string>): Set<string> {
    for (const [name, child] of tree.children ?? []) findSecrets(child, [...path, name], found)
    if (tree.origin?.includes('${file:') === true) found.add(formatPointer(path))
    return found
  }

  const opened = openFile(name, resolve(name))
  if (opened.text === undefined) {
    problems.push({ file: name, line: 1, column: 1, path: '', message: `the file ${opened.message}` })
    return { file: opened.file, value: {}, tree: { at: { file: opened.file, offset: 0 } }, problems, oddities: odd, isWhole: false, secrets: new Set(), secretTexts }
  }
  const part = readFile(opened.file, opened.text)
  return { file: opened.file, ...part, problems, oddities: odd, isWhole, secrets: findSecrets(part.tree, [], new Set()), secretTexts }
}
