// Keywords beyond JSON Schema: they check a value as written in YAML, and replace it by the form that the code uses. A
// plugin's own schema may use them too.
import type { Ajv2020, FuncKeywordDefinition } from 'ajv/dist/2020.js'
import type { DataValidationCxt, SchemaValidateFunction } from 'ajv/dist/types/index.js'

const MAX_MS = 500 * 3_600_000             // below the 2^31 - 1 ms where timers overflow

const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** @returns milliseconds, or undefined when it is no duration */
export function parseDuration (text: string): number | undefined {
  const match = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h)$/.exec(text)
  if (match === null) return undefined
  const ms = Number(match[1]) * units[match[2]!]!
  return Number.isInteger(Math.round(ms * 1000) / 1000) ? Math.round(ms) : undefined
}

const powers: Readonly<Record<string, number>> = { B: 1, KB: 1024, MB: 1024 ** 2, GB: 1024 ** 3 }

/** @returns bytes, or undefined when it is no size */
export function parseSize (text: string): number | undefined {
  const match = /^(\d{1,9})(B|KB|MB|GB)$/.exec(text)
  return match === null ? undefined : Number(match[1]) * powers[match[2]!]!
}

/** @returns the mistake in a decimal of US dollars, or undefined */
export function explainUsd (text: string, decimals: number): string | undefined {
  const match = /^(\d+)(?:\.(\d+))?$/.exec(text)
  if (match === null) {
    return /^-/.test(text)
      ? 'must not be negative'
      : 'must be a plain decimal of US dollars such as 0.0125'
  }
  if (match[1]!.length > 15) return 'must have at most 15 digits before the point'
  const digits = (match[2] ?? '').replace(/(?<!0)0+$/, '').length
  return digits > decimals ? `must have at most ${decimals} decimals` : undefined
}

interface Limits { readonly min?: string, readonly max?: string }

type Set = (value: unknown) => void
type Verdict = { readonly value: unknown } | { readonly message: string, readonly hint?: string }

/** A keyword that checks a value and replaces it. */
function converting<Schema> (
  keyword: string,
  judge: (schema: Schema, data: unknown, pointer: string) => Verdict
): FuncKeywordDefinition {
  const validate: SchemaValidateFunction = (
    schema: Schema,
    data: unknown,
    _parent?: unknown,
    at?: DataValidationCxt
  ) => {
    const verdict = judge(schema, data, at?.instancePath ?? '')
    if ('message' in verdict) {
      validate.errors = [{ keyword, message: verdict.message, params: { hint: verdict.hint } }]
      return false
    }
    const set: Set = (value) => {
      if (at !== undefined) {
        ;(at.parentData as Record<string | number, unknown>)[at.parentDataProperty] = value
      }
    }
    set(verdict.value)
    return true
  }
  return { keyword, validate, modifying: true, errors: true }
}

/**
 * @param textOf the text of the scalar at a JSON pointer, as written in the YAML
 * @param noteSecret called with the pointer of every value that must not be printed
 */
export function addKeywords (
  ajv: Ajv2020,
  textOf: (pointer: string) => string | undefined,
  noteSecret: (pointer: string) => void
): void {
  ajv.addKeyword(converting<true | Limits>('duration', (schema, data) => {
    const limits = schema === true ? {} : schema
    if (typeof data !== 'string') {
      return { message: 'must be a duration such as 500ms, 3s, 2m or 1h',
        ...(typeof data === 'number' && { hint: `did you mean ${data}s?` }) }
    }
    const ms = parseDuration(data)
    if (ms === undefined) return { message: 'must be a duration such as 500ms, 3s, 2m or 1h' }
    if (ms < (parseDuration(limits.min ?? '1ms') ?? 0)) return { message: `must be at least ${limits.min ?? '1ms'}` }
    if (ms > (parseDuration(limits.max ?? '') ?? MAX_MS)) return { message: `must be at most ${limits.max ?? '500h'}` }
    return { value: ms }
  }))
  ajv.addKeyword(converting<true | Limits>('size', (schema, data) => {
    const limits = schema === true ? {} : schema
    if (typeof data !== 'string') {
      return { message: 'must be a size such as 512KB, 32MB or 1GB',
        ...(typeof data === 'number' && { hint: `did you mean ${data}B?` }) }
    }
    const bytes = parseSize(data)
    if (bytes === undefined) return { message: 'must be a size such as 512KB, 32MB or 1GB' }
    if (bytes < (parseSize(limits.min ?? '') ?? 1)) return { message: `must be at least ${limits.min ?? '1B'}` }
    if (bytes > (parseSize(limits.max ?? '') ?? 1024 * 1024 ** 3)) {
      return { message: `must be at most ${limits.max ?? '1024GB'}` }
    }
    return { value: bytes }
  }))
  // the schema's number is the decimals that it allows: 12 for prices per unit, 9 for amounts (nano-dollars)
  ajv.addKeyword(converting<number>('usd', (decimals, data, pointer) => {
    if (typeof data !== 'string' && typeof data !== 'number') {
      return { message: 'must be an amount of US dollars such as 0.0125' }
    }
    const text = textOf(pointer) ?? String(data)
    const wrong = explainUsd(text, decimals)
    return wrong === undefined ? { value: text } : { message: wrong }
  }))
  // a value that is compared as text: `4` and `"4"` are equal, and 1.0 is not 1
  ajv.addKeyword(converting<true>('word', (_schema, data, pointer) => {
    if ((typeof data !== 'string' && typeof data !== 'number') || data === '') {
      return { message: 'must be a text or a number' }
    }
    return { value: textOf(pointer) ?? String(data) }
  }))
  ajv.addKeyword({
    keyword: 'secret',
    errors: false,
    validate: (_schema: unknown, _data: unknown, _parent?: unknown, at?: DataValidationCxt) => {
      noteSecret(at?.instancePath ?? '')
      return true
    }
  })
  // for messages only: what was expected, and what to do about it
  ajv.addKeyword({ keyword: 'expected', valid: true })
  ajv.addKeyword({ keyword: 'hint', valid: true })
}
