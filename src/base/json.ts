// Reads of JSON values of unknown types.

export type Json = Readonly<Record<string, unknown>>

/** A JSON object; no array. */
export function isRecord (value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** `null` counts as left out, as clients and vendors mean it. */
export function isGiven (value: unknown): boolean {
  return value !== undefined && value !== null
}

/** The value as an object; of other types one without fields. */
export function asRecord (value: unknown): Json {
  return typeof value === 'object' && value !== null ? value as Json : {}
}

/** Undefined: no such field, or no object. */
export function fieldOf (value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Json)[name] : undefined
}

/**
 * The JSON text of a value; '' where it is nested too deeply to be printed, though it could be parsed.
 * @param fields names of the only fields that are printed; absent: all
 */
export function printed (value: unknown, fields?: string[]): string {
  try {
    return JSON.stringify(value, fields)
  } catch {
    return ''
  }
}

/** Characters of a text, values, and levels of nesting that `briefly` keeps. */
const BRIEF_TEXT = 16 * 1024
const BRIEF_VALUES = 1000
const BRIEF_DEPTH = 32

/** The beginning of a JSON value, without what makes it large: of errors, of which little is read. */
export function briefly (value: unknown): unknown {
  let values = 0
  const shorten = (value: unknown, depth: number): unknown => {
    values++
    if (typeof value === 'string') return value.slice(0, BRIEF_TEXT)
    if (typeof value !== 'object' || value === null) return value
    const kept: [name: string, value: unknown][] = []
    for (const name in value) {
      if (depth === 0 || values >= BRIEF_VALUES) break
      kept.push([name, shorten((value as Json)[name], depth - 1)])
    }
    return Array.isArray(value) ? kept.map(([, item]) => item) : Object.fromEntries(kept)
  }
  return shorten(value, BRIEF_DEPTH)
}

/** @param source the text of a number, a string or another simple value; absent: `value` is a list or an object */
export type Reviver = (name: string, value: unknown, context: { readonly source?: string }) => unknown

/**
 * JSON from outside, which may begin with a byte order mark: .NET and PowerShell write one, and RFC 8259 8.1 lets a
 * parser ignore it.
 * @throws {SyntaxError} positions in its message count from behind the mark
 */
export function parseJson (text: string, revive?: Reviver): unknown {
  return JSON.parse(text.charCodeAt(0) === 0xFEFF ? text.slice(1) : text, revive as Parameters<typeof JSON.parse>[1])
}

/** The parsed text, or the text itself where it is no JSON: upstreams send either with an error. */
export function parseOr (text: string): unknown {
  try {
    return parseJson(text)
  } catch {
    return text
  }
}
