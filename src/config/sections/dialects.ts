// The dialects of upstreams, as one table with the properties that checks of the configuration need. Their code is in
// src/upstream/dialects, in the folder of the same name.
import type { ModelKind } from './modalities.ts'

export interface DialectTraits {
  /** kind of the models that are called in it */
  readonly kind: ModelKind
  /** path that it appends to an upstream's URL */
  readonly ending: RegExp
  /** the field of an upstream with its options */
  readonly options?: string
  /** thoughts come signed in it, and go back to upstreams of their family alone (`thinking_family`) */
  readonly signsThoughts?: true
  /** ids of calls that its strictest vendor takes: their length, and whether they are letters, digits, _ and - only */
  readonly callIds?: { readonly longest: number, readonly arePlain?: true }
  /** `max_tokens: 0` is valid in it: it only warms up a cache */
  readonly warmsUp?: true
}

const table = {
  messages: { kind: 'text', ending: /\/messages(?:\/count_tokens)?\/*$/, options: 'messages', warmsUp: true, signsThoughts: true,
    callIds: { longest: 64, arePlain: true } },
  chat: { kind: 'text', ending: /(?:\/chat)?\/completions\/*$/, options: 'chat', callIds: { longest: 40 } },
  responses: { kind: 'text', ending: /\/responses\/*$/, options: 'responses', callIds: { longest: 64 } },
  images: { kind: 'image', ending: /\/images(?:\/generations|\/edits)?\/*$/ },
  videos: { kind: 'video', ending: /\/videos\/*$/ }
} as const satisfies Readonly<Record<string, DialectTraits>>

export type Dialect = keyof typeof table

export const dialects: Readonly<Record<Dialect, DialectTraits>> = table
export const dialectNames = Object.keys(table) as [Dialect, ...Dialect[]]
/** the default */
export const [standardDialect] = dialectNames

/** Undefined: no such dialect. */
export function dialectNamed (name: unknown): DialectTraits | undefined {
  return typeof name === 'string' && Object.hasOwn(dialects, name) ? dialects[name as Dialect] : undefined
}

export type DialectOf<Kind extends ModelKind> =
  { [Name in Dialect]: (typeof table)[Name]['kind'] extends Kind ? Name : never }[Dialect]

/** The dialects in which models of a kind can be called. */
export function dialectsOf<Kind extends ModelKind> (kind: Kind): readonly DialectOf<Kind>[] {
  return dialectNames.filter((name): name is DialectOf<Kind> => dialects[name].kind === kind)
}
