// Finds a value in parsed JSON, to name its place in an error.
import { isRecord } from './json.ts'

/** The path of the first string that is this text, such as `messages[0].content[1].url`. Undefined: there is none. */
export function pathTo (text: string, within: unknown, path = ''): string | undefined {
  if (within === text) return path
  const inner: readonly (readonly [string, unknown])[] = Array.isArray(within)
    ? within.map((value: unknown, i) => [`${path}[${i}]`, value])
    : isRecord(within)
    ? Object.entries(within).map(([name, value]) => [path === '' ? name : `${path}.${name}`, value])
    : []
  for (const [place, value] of inner) {
    const found = pathTo(text, value, place)
    if (found !== undefined) return found
  }
  return undefined
}
