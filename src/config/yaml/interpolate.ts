// ${NAME}, ${NAME:-default} and ${file:/path} in the scalars of gateway.yaml: the only reader of the environment.
import { dirname, resolve } from 'node:path'
import type { ReadText } from './read-text.ts'

export type Env = Readonly<Record<string, string | undefined>>

export interface Interpolated {
  readonly text: string
  /** the whole scalar was one ${...}: its value is read again by the rules of YAML */
  readonly whole: boolean
  /** the ${...} in it, for messages that may not show the value */
  readonly origin: string
  /** from a secret file */
  readonly isSecret: boolean
  /** nothing was looked up: the text is as written */
  readonly isUnread: boolean
  readonly problems: readonly { readonly message: string, readonly hint?: string }[]
}

const PATTERN = /\$\$\{|\$\{([^}]*)\}?/g
const NAME = /^([A-Za-z_]\w*)(?::-(.*))?$/s

/**
 * @param env undefined: neither the environment nor a secret file is looked at
 * @returns undefined when there is nothing to replace
 */
export function interpolate (
  raw: string, yamlPath: string, env: Env | undefined, readText: ReadText
): Interpolated | undefined {
  if (!raw.includes('${')) return undefined
  const problems: { message: string, hint?: string }[] = []
  const origins: string[] = []
  let isSecret = false
  let isUnread = false
  const text = raw.replace(PATTERN, (match, inner: string | undefined) => {
    if (inner === undefined) return '${'
    if (!match.endsWith('}')) {
      problems.push({ message: 'has a "${" without its "}"', hint: 'a literal "${" is written "$${"' })
      return match
    }
    if (inner.startsWith('file:')) {
      origins.push(match)
      if (env === undefined) { isUnread = true; return match }
      isSecret = true
      const read = readText(resolve(dirname(yamlPath), inner.slice('file:'.length)))
      if (read.kind === 'text') return withoutLineEnds(read.text)
      problems.push({ message: `the secret file of ${match} ${read.message}` })
      return match
    }
    const name = NAME.exec(inner)
    if (name === null) {
      problems.push({ message: `"${match}" is not understood`,
        hint: 'known: ${NAME}, ${NAME:-default} and ${file:/path}; a literal "${" is written "$${"' })
      return match
    }
    origins.push(`\${${name[1]!}}`)
    if (env === undefined) { isUnread = true; return match }
    const value = env[name[1]!]
    // as in a shell, ":-" also replaces an empty value
    if (name[2] !== undefined) return value === undefined || value === '' ? name[2] : value
    if (value !== undefined) return value
    problems.push({ message: `the environment variable ${name[1]!} is not set`,
      hint: `set it, or write a default: \${${name[1]!}:-default}` })
    return match
  })
  return { text, whole: /^\$\{[^}]*\}$/.test(raw), origin: origins.join(' '), isSecret, isUnread, problems }
}

/** Reads a plain scalar by the core schema of YAML 1.2 (10.3.2), except for the empty text, which stays a text. */
export function resolveCore (text: string): unknown {
  if (/^(?:~|null|Null|NULL)$/.test(text)) return null
  if (/^(?:true|True|TRUE)$/.test(text)) return true
  if (/^(?:false|False|FALSE)$/.test(text)) return false
  if (
    /^[-+]?\d+$/.test(text) || /^[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?$/.test(text) ||
    /^0o[0-7]+$/.test(text) || /^0x[\da-fA-F]+$/.test(text)
  ) return Number(text)
  return text
}

/** Without the ends of lines at the end. */
function withoutLineEnds (text: string): string {
  let end = text.length
  while (text[end - 1] === '\n') end -= text[end - 2] === '\r' ? 2 : 1
  return text.slice(0, end)
}
