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

/** The parsed text, or the text itself where it is no JSON: upstreams send either with an error. */
export function parseOr (text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
