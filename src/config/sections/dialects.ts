// The dialects that upstreams speak: one table, with what a check of the configuration asks of each. How one is spoken
// is in src/upstream/dialects, in the folder of its name.
import type { ModelKind } from './modalities.ts'

interface DialectTraits {
  /** what models that are asked in it give */
  readonly kind: ModelKind
  /** what it puts behind an upstream's URL */
  readonly ending: RegExp
  /** the field of an upstream with its options */
  readonly options?: string
  /** `max_tokens: 0` means something in it: it only warms up a cache */
  readonly warmsUp?: true
}

const table = {
  messages: { kind: 'text', ending: /\/messages(?:\/count_tokens)?\/*$/, warmsUp: true },
  chat: { kind: 'text', ending: /(?:\/chat)?\/completions\/*$/, options: 'chat' },
  images: { kind: 'image', ending: /\/images(?:\/generations|\/edits)?\/*$/ },
  videos: { kind: 'video', ending: /\/videos\/*$/ }
} as const satisfies Readonly<Record<string, DialectTraits>>

export type Dialect = keyof typeof table

export const dialects: Readonly<Record<Dialect, DialectTraits>> = table
export const dialectNames = Object.keys(table) as [Dialect, ...Dialect[]]
/** where an upstream names none */
export const [standardDialect] = dialectNames

/** Undefined: there is none of this name. */
export function dialectNamed (name: unknown): DialectTraits | undefined {
  return typeof name === 'string' && Object.hasOwn(dialects, name) ? dialects[name as Dialect] : undefined
}

/** Those in which a kind can be asked for. */
export function dialectsOf (kind: ModelKind): readonly Dialect[] {
  return dialectNames.filter((name) => dialects[name].kind === kind)
}
