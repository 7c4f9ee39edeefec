// The position of each value of the configuration: a tree beside the plain value, so that a path leads to
// file:line:column.
import type { LineCounter } from 'yaml'
import type { Problem } from '../problem.ts'

export interface TextFile {
  /** as the operator would write it */
  readonly name: string
  /** absolute */
  readonly path: string
  readonly lines: LineCounter
}

export interface Spot {
  readonly file: TextFile
  readonly offset: number
}

export interface Tree {
  /** position of the value */
  at: Spot
  /** position of its key, in a map */
  key?: Spot
  /** of a scalar: the text as written, or as ${...} gave it; never through a float */
  text?: string
  /** of a scalar: the ${...} that gave it, which may be printed where the value may not */
  origin?: string
  /** its ${...} gave no value: reported once, where it stands */
  isBroken?: boolean
  /** what its ${...} stands for was not looked at; it counts as broken */
  isUnread?: boolean
  /** of a map by key, of a list by index */
  children?: Map<string, Tree>
}

export type Path = readonly (string | number)[]

export interface Part {
  value: unknown
  tree: Tree
}

export function isMap (value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The subtree at the path, or the nearest one above it that was written (defaults have no position). */
export function findTree (tree: Tree, path: Path): { readonly tree: Tree, readonly exact: boolean } {
  for (const step of path) {
    const child = tree.children?.get(String(step))
    if (child === undefined) return { tree, exact: false }
    tree = child
  }
  return { tree, exact: true }
}

export function parsePointer (pointer: string): string[] {
  return pointer === ''
    ? []
    : pointer.slice(1).split('/').map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}

export function formatPointer (path: Path): string {
  return path.map((step) => '/' + String(step).replaceAll('~', '~0').replaceAll('/', '~1')).join('')
}

export function locate (spot: Spot): { readonly file: string, readonly line: number, readonly column: number } {
  // a file without a line break has no line starts beyond the first; an empty one has none at all
  const { line, col } = spot.file.lines.linePos(spot.offset)
  return { file: spot.file.name, line: Math.max(1, line), column: Math.max(1, col) }
}

/** "gateway.yaml:3:5", for a second position in a message. */
export function printSpot (spot: Spot): string {
  const { file, line, column } = locate(spot)
  return `${file}:${line}:${column}`
}

export function problemAt (spot: Spot, path: string, message: string, hint?: string): Problem {
  return { ...locate(spot), path, message, ...(hint !== undefined && { hint }) }
}
