// Reads of JSON values of unknown types.
import { parseWithDigits } from './digits.ts'

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

/** One half of a character, escaped. */
const HALF = /\\u[dD][89a-fA-F]/
/** Both halves: Python escapes all emoji so. Not behind a backslash, which may be escaped. */
const PAIRS = /(?<!\\)\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}/g
/** Both halves, or one by itself; not behind an escaped backslash. Characters that are not escaped are whole: UTF-8. */
const HALVES = /(?<!\\)((?:\\\\)*)\\u[dD](?:[89abAB][\da-fA-F]{2}(\\u[dD][c-fC-F][\da-fA-F]{2})?|[c-fC-F][\da-fA-F]{2})/g

/** @param source the text of a number, a string or another simple value; absent: `value` is a list or an object */
export type Reviver = (name: string, value: unknown, context: { readonly source?: string }) => unknown

/**
 * JSON from outside, as the gateway reads it everywhere. It may begin with a byte order mark: .NET and PowerShell write
 * one, and RFC 8259 8.1 lets a parser ignore it. Half a character becomes U+FFFD, because vendors refuse it, and the
 * whole conversation with it. Numbers in the input of a call keep their digits.
 * @throws {SyntaxError} positions in its message count from behind the mark
 */
export function parseJson (text: string, revive?: Reviver): unknown {
  const json = withoutMark(text)
  if (revive !== undefined) return JSON.parse(wholeCharacters(json), revive as Parameters<typeof JSON.parse>[1])
  return parseWithDigits(mayHaveHalf(json) ? wholeCharacters(json) : json)
}

/**
 * The same of an event, which may end or begin with half a character of a text that others continue.
 * @throws {SyntaxError}
 */
export function parseEvent (text: string): unknown {
  return parseWithDigits(text)
}

/** The same of the input of a call: the arguments that a model has written. @throws {SyntaxError} */
export function parseInput (text: string): unknown {
  return parseWithDigits(wholeCharacters(text), true)
}

/** The input of a call, or the text itself where it is no JSON. */
export function parseInputOr (text: string): unknown {
  try {
    return parseInput(text)
  } catch {
    return text
  }
}

/** The parsed text, or the text itself where it is no JSON: upstreams send either with an error. */
export function parseOr (text: string): unknown {
  try {
    return parseJson(text)
  } catch {
    return text
  }
}

function withoutMark (text: string): string {
  return text.charCodeAt(0) === 0xFEFF ? text.slice(1) : text
}

/** These searches cost less than the regular expression where backslashes are few. */
function mayHaveHalf (json: string): boolean {
  return json.includes('\\ud') || json.includes('\\uD')
}

/** A JSON text without halves of characters. */
export function wholeCharacters (json: string): string {
  return HALF.test(json) && HALF.test(json.replace(PAIRS, '')) ? json.replace(HALVES, wholeCharacter) : json
}

function wholeCharacter (found: string, backslashes: string, second: string | undefined): string {
  return second === undefined ? `${backslashes}\\ufffd` : found
}
