// Turns errors of the YAML parser into plain words. No excerpt of the file: it may hold a secret.
import type { YAMLError } from 'yaml'

const sentences: Readonly<Record<YAMLError['code'], string>> = {
  ALIAS_PROPS: 'an alias (*name) cannot have an anchor or a tag',
  BAD_ALIAS: 'this alias (*name) is not well formed',
  BAD_COLLECTION_TYPE: 'this tag does not fit the value',
  BAD_DIRECTIVE: 'this % directive is not understood',
  BAD_DQ_ESCAPE: 'unknown escape after \\ in a text in double quotes',
  BAD_INDENT: 'wrong indentation: it must line up with the keys or items around it',
  BAD_PROP_ORDER: 'an anchor or a tag must stand before the value',
  BAD_SCALAR_START: 'a text may not start with this character without quotes',
  BLOCK_AS_IMPLICIT_KEY: 'a second "key: value" on the same line',
  BLOCK_IN_FLOW: 'an indented block inside { } or [ ]',
  DUPLICATE_KEY: 'this key was set before in the same map',
  IMPOSSIBLE: 'this is not YAML',
  KEY_OVER_1024_CHARS: 'a key longer than 1,024 characters',
  MISSING_CHAR: 'something is missing here: a colon after a key, a closing quote or a closing bracket',
  MULTILINE_IMPLICIT_KEY: 'this line is no "key: value"',
  MULTIPLE_ANCHORS: 'a value can have only one anchor',
  MULTIPLE_DOCS: 'a second document starts here ("---"); a configuration is one',
  MULTIPLE_TAGS: 'a value can have only one tag',
  NON_STRING_KEY: 'a key must be plain text',
  RESOURCE_EXHAUSTION: 'nested too deeply',
  TAB_AS_INDENT: 'a tab in the indentation: YAML wants spaces',
  TAG_RESOLVE_FAILED: 'unknown tag',
  UNEXPECTED_TOKEN: 'this is not expected here'
}

const hints: Partial<Readonly<Record<YAMLError['code'], string>>> = {
  BAD_DQ_ESCAPE: 'use single quotes for a text with backslashes',
  BAD_SCALAR_START: 'put the text in quotes',
  BLOCK_AS_IMPLICIT_KEY: 'start a new line, or put a value that contains ": " in quotes',
  DUPLICATE_KEY: 'remove one of the two',
  MULTILINE_IMPLICIT_KEY: 'is its ":" missing, or the space behind it?',
  NON_STRING_KEY: 'a list has one "- item" per line, or stands in [ ]'
}

/** Whether an error leaves the rest of the file readable. */
export function isHarmless (error: YAMLError): boolean {
  return error.code === 'DUPLICATE_KEY' || error.code === 'TAG_RESOLVE_FAILED'
}

const SHAKING: readonly YAMLError['code'][] = ['TAB_AS_INDENT', 'BAD_INDENT', 'MISSING_CHAR', 'MULTILINE_IMPLICIT_KEY',
  'UNEXPECTED_TOKEN']
const SHAKEN: readonly YAMLError['code'][] = ['BAD_INDENT', 'MISSING_CHAR', 'MULTILINE_IMPLICIT_KEY',
  'UNEXPECTED_TOKEN', 'BLOCK_AS_IMPLICIT_KEY', 'BLOCK_IN_FLOW', 'NON_STRING_KEY']

/**
 * Which errors follow from an earlier one: a line out of place makes the parser misread all below it, ten errors for
 * one mistake.
 */
export function consequences (errors: readonly YAMLError[]): ReadonlySet<YAMLError> {
  const first = errors.findIndex(({ code }) => SHAKING.includes(code))
  return new Set(errors.filter(({ code }, at) => first !== -1 && at > first && SHAKEN.includes(code)))
}

/** The parser says "Flow sequence in block collection must be sufficiently indented and end with a ]". */
export function openBracket (error: YAMLError): '{' | '[' | undefined {
  const kind = error.code === 'BAD_INDENT' ? /^Flow (map|seq)/.exec(error.message)?.[1] : undefined
  return kind === undefined ? undefined : kind === 'map' ? '{' : '['
}

export function isRepeat (error: YAMLError): boolean {
  return error.code === 'DUPLICATE_KEY'
}

export function explainYaml (error: YAMLError, text: string): { readonly message: string, readonly hint?: string } {
  const before = text.slice(Math.max(0, error.pos[0] - 1), error.pos[0] + 1)
  if (error.code === 'UNEXPECTED_TOKEN' && before === '${') {
    return { message: sentences[error.code], hint: 'inside { } and [ ] a ${NAME} stands in quotes: "${NAME}"' }
  }
  if (error.code === 'MISSING_CHAR' && error.message.startsWith('Implicit map key')) {
    return { message: 'a ":" is missing after this key' }
  }
  if (error.code === 'MISSING_CHAR' && error.message.startsWith('Sequence item without')) {
    return { message: sentences.BAD_INDENT }
  }
  const bracket = openBracket(error)
  if (bracket !== undefined) return { message: `this ${bracket} is not closed, or what is in it is not indented` }
  // the "key: value" that the parser found is not on this line, but on the next one, which it took for more of this
  // text
  const rest = text.slice(error.pos[0]).split('\n', 1)[0]!
  if (error.code === 'BLOCK_AS_IMPLICIT_KEY' && !/:(?:\s|$)/.test(rest)) {
    return { message: 'the line below this one is indented deeper, as if it belonged to this text',
      hint: 'give both the same indentation' }
  }
  const hint = hints[error.code]
  return { message: sentences[error.code], ...(hint !== undefined && { hint }) }
}
