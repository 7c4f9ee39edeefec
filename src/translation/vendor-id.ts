// Ids of tool calls in the form that vendors of messages style accept.
import { hash } from 'node:crypto'

/**
 * Ids that the vendor accepts, in the length that the strictest host of its style accepts. A chat begun elsewhere has
 * other ids ("functions.f:0").
 */
const TAKEN = /^(?!gw_)[\w-]{1,64}$/
const KEPT_LENGTH = 36
const HASH_LENGTH = 22

/**
 * A deterministic id, so that the vendor's cache of a chat stays valid. A client's id in this format is replaced too,
 * so that it can't collide with one.
 */
export function vendorId (id: string): string {
  if (TAKEN.test(id)) return id
  // Not as UTF-8, which encodes all lone surrogates alike.
  const digest = hash('sha256', Buffer.from(id, 'utf16le'), 'base64url').slice(0, HASH_LENGTH)
  return `gw_${id.slice(0, KEPT_LENGTH).replace(/[^\w-]/g, '_')}_${digest}`
}
