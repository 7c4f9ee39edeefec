// Numbers of a JSON text whose digits JSON.parse does not keep: 2512292042121000001, 1.10, -0, 1e400. In the input of a
// call they are the model's or the client's, and nobody here reads them, so they are printed again as they came.
import { randomBytes } from 'node:crypto'

/** Values in which numbers are free of any meaning here, if they are objects. */
const INPUTS = new Set(['input', 'arguments'])
const QUOTED = Array.from(INPUTS, (name) => `"${name}"`)
/** Values in which fields of these names are something else: schemas, whose numbers are those of JSON. */
const SCHEMAS = new Set(['tools', 'functions', 'input_schema', 'parameters', 'schema'])

/** A number that may be printed otherwise, or such characters in a string: long, an exponent, zeros at its end, -0. */
const UNUSUAL = /[:,[]\s*(?:-0[^.]|-?(?:[\d.]{16}|\d+(?:[eE]|\.(?:0{6}|\d*(?:0\D|[eE])))))/g
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?=\s*[,}\]])/y

/** Most numbers of a text that are kept, because each takes a microsecond and 100 bytes; the others are rounded. */
const MOST = 10_000
/** Stands for such a number while the text is parsed: no text from outside can have it. */
const MARK = `digits-${randomBytes(12).toString('hex')}:`

const [BACKSLASH, SPACE, COLON] = [92, 32, 58] as const

/** TypeScript (7.0) does not know it yet. */
const { rawJSON } = JSON as unknown as { readonly rawJSON: (json: string) => object }

/** Whether all numbers of the value are an input's, none is, or those in fields of these names are. */
type Scope = 'input' | 'schema' | 'body'

/**
 * The value of a JSON text in which numbers of inputs keep their digits: they are `JSON.rawJSON`.
 * @param isInput whether all of it is the input of a call
 * @throws {SyntaxError} as JSON.parse
 */
export function parseWithDigits (text: string, isInput = false): unknown {
  const first = isInput ? 0 : firstInput(text)
  if (first === -1) return JSON.parse(text)
  const { json, numbers } = marked(text, first)
  if (numbers.length === 0) return JSON.parse(text)
  try {
    const value: unknown = JSON.parse(json)
    restore(value, numbers, isInput ? 'input' : 'body')
    return value
  } catch {
    return JSON.parse(text)                                   // not JSON, or nested too deeply to be walked
  }
}

/**
 * Position of the name of the first input; -1: there is none. A search for braces costs less than a regular expression,
 * because texts have few of them.
 */
function firstInput (text: string): number {
  for (let brace = text.indexOf('{', 1); brace !== -1; brace = text.indexOf('{', brace + 1)) {
    const colon = behindSpace(text, brace)
    if (text.charCodeAt(colon - 1) !== COLON) continue
    const end = behindSpace(text, colon - 1)
    for (const name of QUOTED) if (text.endsWith(name, end)) return end - name.length
  }
  return -1
}

/** Position behind the last character before this one that is no space. */
function behindSpace (text: string, before: number): number {
  while (text.charCodeAt(before - 1) <= SPACE) before--
  return before
}

interface Marked {
  readonly json: string
  readonly numbers: readonly string[]
}

/** @param from position of the first character that is looked at */
function marked (text: string, from: number): Marked {
  const numbers: string[] = []
  let [json, done] = ['', 0]
  let quote = -1
  /** position behind the last string that was skipped */
  let behind = from
  UNUSUAL.lastIndex = from
  for (let found = UNUSUAL.exec(text); found !== null && numbers.length < MOST; found = UNUSUAL.exec(text)) {
    while (behind <= found.index) {
      if (quote < behind) quote = positionOf(text, behind)
      if (quote > found.index) break
      behind = behindString(text, quote)
    }
    if (behind > found.index) { UNUSUAL.lastIndex = behind; continue }
    let start = found.index + 1
    while (text.charCodeAt(start) <= SPACE) start++
    UNUSUAL.lastIndex = NUMBER.lastIndex = start
    const source = NUMBER.exec(text)?.[0]
    if (source === undefined || String(Number(source)) === source) continue
    json += `${text.slice(done, start)}"${MARK}${numbers.length}"`
    done = start + source.length
    numbers.push(source)
  }
  return { json: json + text.slice(done), numbers }
}

/** Of the next quote; behind the text: there is none. */
function positionOf (text: string, from: number): number {
  const at = text.indexOf('"', from)
  return at === -1 ? text.length : at
}

/** @returns position behind the string that begins with this quote */
function behindString (text: string, quote: number): number {
  for (let end = positionOf(text, quote + 1); end < text.length; end = positionOf(text, end + 1)) {
    let before = end
    while (text.charCodeAt(before - 1) === BACKSLASH && before - 1 > quote) before--
    if ((end - before) % 2 === 0) return end + 1
  }
  return text.length + 1
}

/** Puts the numbers back into the value; not into itself, if it is one. */
function restore (value: unknown, numbers: readonly string[], scope: Scope): void {
  if (typeof value !== 'object' || value === null) return
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) value[i] = restored(value[i], numbers, scope)
    return
  }
  const fields = value as Record<string, unknown>
  for (const name in fields) {
    const field = fields[name]
    if (typeof field !== 'object' && typeof field !== 'string') continue
    fields[name] = restored(field, numbers, scope !== 'body' ? scope : SCHEMAS.has(name) ? 'schema'
      : INPUTS.has(name) && typeof field === 'object' && !Array.isArray(field) ? 'input' : 'body')
  }
}

function restored (value: unknown, numbers: readonly string[], scope: Scope): unknown {
  if (typeof value !== 'string') { restore(value, numbers, scope); return value }
  if (!value.startsWith(MARK)) return value
  const source = numbers[Number(value.slice(MARK.length))]!
  return scope === 'input' ? rawJSON(source) : Number(source)
}
