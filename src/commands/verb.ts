// The arguments of a command on the admin API: what a verb of a noun takes, how the shell's words are read, and how
// --help tells them. Names and types of settings come from the API's own schemas.
import { parseArgs, type ParseArgsConfig } from 'node:util'
import { nearest } from '../config/check/suggest.ts'
import type { JsonSchema } from '../config/plugin-descriptor.ts'
import type { AdminClient } from './command.ts'

export interface Arguments {
  readonly positionals: readonly string[]
  readonly values: Readonly<Record<string, unknown>>
  readonly json: boolean
}

export interface Verb {
  /** names of the positional arguments */
  readonly takes: readonly string[]
  /** how many of them are optional */
  readonly optional?: number
  /** options: settings of a schema, but for those that are positional or fixed; and more */
  readonly settings?: JsonSchema
  readonly fixed?: readonly string[]
  readonly options?: readonly string[]
  /** those of them that may be said several times, or with commas */
  readonly lists?: readonly string[]
  /** options without a value */
  readonly flags?: readonly string[]
  /** required options */
  readonly needs?: readonly string[]
  /** more text of --help */
  readonly note?: string
  /** @returns the exit code */
  run (client: AdminClient, said: Arguments): Promise<number>
}

/** Its verbs by their names; one alone, named '', is the whole command. */
export type Noun = Readonly<Record<string, Verb>>

export function readArgs (
  verb: Verb,
  args: readonly string[]
): { readonly values: Readonly<Record<string, unknown>>, readonly positionals: readonly string[] } {
  return parseArgs({ args: [...args], allowPositionals: true,
    options: { config: { type: 'string', short: 'c' }, url: { type: 'string' },
      json: { type: 'boolean', default: false }, ...optionsOf(verb) } })
}

/** What an unknown option may have meant, as the end of a sentence. */
export function meantOption (verb: Verb, args: readonly string[]): string {
  const known = [...Object.keys(optionsOf(verb)), 'json', 'config', 'url']
  for (const arg of args) {
    const [, name] = /^--([^=]+)/.exec(arg) ?? []
    const near = name === undefined || known.includes(name) ? undefined : nearest(name, known)
    if (near !== undefined) return `: did you mean --${near}?`
  }
  return '.'
}

export function usageOf (noun: string, verb: string, one: Verb): string {
  const { takes, optional = 0 } = one
  const words = takes.map((name, i) => i < takes.length - optional ? name : `[${name}]`)
  const options = [...(one.needs ?? []).map((name) => `--${name} TEXT`),
    ...(one.options ?? []).map((name) => `[--${name} ${name.toUpperCase().replaceAll('-', '_')}]`),
    ...(one.flags ?? []).map((name) => `[--${name}]`)]
  if (one.settings !== undefined) options.push('[SETTINGS]')
  const named = verb === '' ? [] : [verb]
  return ['gateway', noun, ...named, ...words, ...options, '[--json] [--config FILE] [--url URL]'].join(' ')
}

/** The settings, a line each, in the words of their schemas. */
export function explanations (verb: Verb): string {
  return (verb.note ?? '') + settable(verb).map(([name, { type, description, enum: values }]) => {
    const value = Array.isArray(values) ? values.join('|')
      : type === 'boolean' ? 'true|false' : type === 'integer' ? 'NUMBER' : type === 'array' ? 'A,B' : 'TEXT'
    return `  ${`--${name.replaceAll('_', '-')} ${value}`.padEnd(32)} ${String(description ?? '')}\n`
  }).join('')
}

function optionsOf (verb: Verb): NonNullable<ParseArgsConfig['options']> {
  const { options = [], lists = [], flags = [], needs = [] } = verb
  const names = [
    ...settable(verb).map(([name, { type }]) => [name.replaceAll('_', '-'), type === 'array'] as const),
    ...[...needs, ...options].map((name) => [name, lists.includes(name)] as const)
  ]
  return Object.fromEntries([
    ...names.map(([name, isList]) => [name, { type: 'string', multiple: isList }] as const),
    ...flags.map((name) => [name, { type: 'boolean' }] as const)
  ])
}

/** The settings that are options. */
function settable ({ settings, takes, fixed = [] }: Verb): [string, JsonSchema][] {
  return propertiesOf(settings).filter(([name]) => name !== 'id' && !takes.includes(name.toUpperCase()) &&
    !fixed.includes(name))
}

function propertiesOf (schema: JsonSchema | undefined): [string, JsonSchema][] {
  return Object.entries(schema?.['properties'] ?? {}) as [string, JsonSchema][]
}

/** Options of the shell as JSON: a list may be one text with commas, or repeated. The API reports wrong values. */
export function settings (values: Arguments['values'], schema: JsonSchema): Record<string, unknown> {
  const read: Record<string, unknown> = {}
  for (const [name, { type }] of propertiesOf(schema)) {
    const value = values[name.replaceAll('_', '-')]
    if (Array.isArray(value)) read[name] = words(value as readonly string[])
    else if (typeof value === 'string') {
      const isJson =
        (type === 'integer' && /^\d+$/.test(value)) || (type === 'boolean' && /^(?:true|false)$/.test(value))
      read[name] = isJson ? JSON.parse(value) : value
    }
  }
  return read
}

/** The words of texts with commas. */
export function words (texts: readonly string[]): readonly string[] {
  return texts.flatMap((text) => text.split(',')).map((text) => text.trim()).filter((text) => text !== '')
}
