// Merges an included file into the file that includes it.
import type { Findings } from './findings.ts'
import { formatPointer, isMap, type Part, type Path, printSpot } from './position.ts'

/** Lists are joined, maps are merged, anything that is set twice is an error that names both places. */
export function merge (into: Part, part: Part, path: Path, findings: Findings): void {
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
      merge({ value: target[name], tree: present }, { value, tree }, here, findings)
    } else if (Array.isArray(value) && Array.isArray(target[name])) {
      const list = target[name]
      for (const [index, item] of value.entries()) {
        present.children!.set(String(list.length), tree.children!.get(String(index))!)
        list.push(item)
      }
    } else if (value !== null) {
      findings.report(tree.key ?? tree.at, formatPointer(here),
        `"${name}" is set twice; the other is at ${printSpot(present.key ?? present.at)}`)
    }
  }
}
