// Looking into JSON of others, of whose types nothing is known.

export type Json = Readonly<Record<string, unknown>>

/** A JSON object; no array. */
export function isRecord (value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** For clients and vendors `null` is what is left out. */
export function isGiven (value: unknown): boolean {
  return value !== undefined && value !== null
}

/** What has no fields has none that anybody looks for. */
export function asRecord (value: unknown): Json {
  return typeof value === 'object' && value !== null ? value as Json : {}
}

/** Undefined where there is no such field, or no object. */
export function fieldOf (value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Json)[name] : undefined
}

/** Its JSON text; '' where it is nested deeper than that can be printed, though it could be read. */
export function printed (value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch {
    return ''
  }
}

/** JSON where it is JSON, else the text: what upstreams send with an error. */
export function parseOr (text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
