// Names of tools in the form that every vendor takes.
import { hash } from 'node:crypto'

/** The names that every vendor takes. */
export const VALID_NAME = /^[\w-]{1,64}$/
const KEPT_LENGTH = 52
const HASH_LENGTH = 10

/** @param key what the name is made of; each key has a name of its own, the same in every process */
export function shortName (name: string, key: string): string {
  // Not as UTF-8, which encodes all lone surrogates alike.
  const digest = hash('sha256', Buffer.from(key, 'utf16le'), 'hex').slice(0, HASH_LENGTH)
  return `${name.slice(0, KEPT_LENGTH).replace(/[^\w-]/g, '_')}_${digest}`
}
