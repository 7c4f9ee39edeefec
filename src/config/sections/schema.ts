// Builders of the sections' schemas: at run time plain JSON Schema, and for TypeScript the type of a value that was
// checked, converted and filled with defaults. Only types are imported of TypeBox: its code, which would make the same
// objects, costs every reload 0.2 s of CPU (measured).
import type { Static, TArray, TObject, TOptional, TRecord, TUnsafe } from 'typebox'
import type { Usd } from '../../money/nanos.ts'

export type Milliseconds = number
export type Bytes = number

const PRICE_DECIMALS = 12                    // money/nanos.ts parsePrice
const AMOUNT_DECIMALS = 9                    // a nano-dollar

/** The type of the values that pass a schema. They are frozen. */
export type Of<Schema extends object> = Frozen<Static<Schema>>

type Frozen<T> = T extends readonly (infer Item)[] ? readonly Frozen<Item>[]
  : T extends object ? { readonly [Key in keyof T]: Frozen<T[Key]> } : T

type Properties = Readonly<Record<string, object>>

interface MapOptions {
  /** Names of required properties. */
  readonly required?: readonly string[]
  readonly default?: object
  readonly minProperties?: number
}

type RequiredOf<Options> = Options extends { readonly required: readonly (infer Name)[] } ? Name : never

/** Properties with a default, and required ones, are always present. */
type MapOf<P extends Properties, Options> = TObject<{
  -readonly [Key in keyof P]: P[Key] extends { readonly default: unknown } ? P[Key]
    : Key extends RequiredOf<Options> ? P[Key] : TOptional<P[Key]>
}> & Pick<Options, keyof Options & 'default'>

/** A map that refuses unknown keys. */
export function map<const P extends Properties, const Options extends MapOptions = {}> (
  description: string, properties: P, options?: Options
): MapOf<P, Options> {
  const schema = { description, type: 'object', additionalProperties: false, properties, ...options }
  return schema as unknown as MapOf<P, Options>
}

/** A map whose keys are names that the file chooses. */
export function record<const Value extends object, const Options extends object = {}> (
  description: string, value: Value, options?: Options
): TRecord<'^.*$', Value> & Options {
  const schema = { description, type: 'object', ...options, additionalProperties: value }
  return schema as unknown as TRecord<'^.*$', Value> & Options
}

export function list<const Item extends object, const Options extends object = {}> (
  description: string, items: Item, options?: Options
): TArray<Item> & Options {
  return { description, type: 'array', ...options, items } as unknown as TArray<Item> & Options
}

type Typed<T, Standard> = TUnsafe<T> & (Standard extends undefined ? unknown : { readonly default: Standard })

/** A schema whose type can't be inferred: keywords of the gateway's own (check/keywords.ts), and branches. */
export function typed<T, Standard = undefined> (schema: object, standard?: Standard): Typed<T, Standard> {
  return { ...schema, ...(standard !== undefined && { default: standard }) } as Typed<T, Standard>
}

export function flag<Standard extends boolean | undefined = undefined> (description: string, standard?: Standard) {
  return typed<boolean, Standard>({ description, type: 'boolean' }, standard)
}

export function choice<const Value extends string, Standard extends Value | undefined = undefined> (
  description: string, values: readonly Value[], standard?: Standard
) {
  return typed<Value, Standard>({ description, enum: values }, standard)
}

interface Limits { readonly min?: string, readonly max?: string }

export function duration (description: string, standard: string, limits: true | Limits = true) {
  return typed<Milliseconds, string>({ description, duration: limits }, standard)
}

/** @param standard undefined: it is optional, and absent then */
export function size<Standard extends string | undefined> (description: string, standard: Standard, limits: Limits) {
  return typed<Bytes, Standard>({ description, size: limits }, standard)
}

/** An amount of US dollars. */
export function usd<Standard extends string | undefined = undefined> (description: string, standard?: Standard) {
  return typed<Usd, Standard>({ description, usd: AMOUNT_DECIMALS }, standard)
}

/** US dollars for a unit. */
export function price (description: string) {
  return typed<Usd>({ description, usd: PRICE_DECIMALS })
}

/** A text, or a number as written in the file. */
export function word (description: string) {
  return typed<string>({ description, word: true })
}

export function id (description: string) {
  return {
    description, type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$',
    expected: 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'
  } as const
}

/** An id, or the beginning of ids. */
export function nameOfMany (description: string) {
  return {
    description, type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}\\*?$',
    expected: 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit, or the beginning of ids ' +
      'with "*" at its end'
  } as const
}

/** A text for people, in one line. @param most characters */
export function line (description: string, most: number) {
  return { description, type: 'string', pattern: `^(?=.*\\S)[^\\p{Cc}\\p{Cs}]{1,${most}}$`,
    expected: `1 to ${most} characters in one line` } as const
}

/** A text that terminals and logs may show. */
export function oneLine (description: string) {
  return { description, type: 'string', pattern: '^[^\\p{Cc}\\p{Cs}]+$',
    expected: 'a text in one line, without control characters' } as const
}

/** Short words of the operator's own, by which lists are filtered. */
export function tags (description: string) {
  return list(description, {
    description: 'A tag, such as team:web.', type: 'string',
    pattern: '^[^\\s,\\p{Cc}\\p{Cs}](?:[^,\\p{Cc}\\p{Cs}]{0,62}[^\\s,\\p{Cc}\\p{Cs}])?$',
    expected: '1 to 64 characters in one line, without a comma, and without a space at either end'
  }, { uniqueItems: true, maxItems: 32 })
}

/** A name for people; where it is missing, normalize() fills in the id. */
export function nameOrId (description: string) {
  return { ...oneLine(description) } as unknown as Typed<string, string>
}

export function maintenance (description: string) {
  return flag(description, false)
}
