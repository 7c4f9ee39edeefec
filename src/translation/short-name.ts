// Names of tools in the form that every vendor takes.
import { hash } from 'node:crypto'

/** The names that every vendor takes: Moonshot and Gemini refuse another beginning than a letter. */
export const VALID_NAME = /^[A-Za-z][\w-]{0,63}$/
const KEPT_LENGTH = 52
const HASH_LENGTH = 10

/** @param key what the name is made of; each key has a name of its own, the same in every process */
export function shortName (name: string, key: string): string {
  // Not as UTF-8, which encodes all lone surrogates alike.
  const digest = hash('sha256', Buffer.from(key, 'utf16le'), 'hex').slice(0, HASH_LENGTH)
  const kept = name.slice(0, KEPT_LENGTH).replace(/[^\w-]/g, '_')
  return `${/^[A-Za-z]/.test(kept) ? '' : 't'}${kept}_${digest}`
}
