// Ids of tool calls in the form that vendors of messages style accept.
import { hash } from 'node:crypto'

/**
 * Ids that the vendor accepts, in the length that the strictest host of its style accepts. A chat begun elsewhere has
 * other ids ("functions.f:0").
 */
const TAKEN = /^(?!gw_)[\w-]{1,64}$/
/**
 * An id that its maker alone gets back, in any length, behind the maker's mark (src/upstream/dialects/call-ids.ts): as
 * it is, as base64, or Kimi's by its number, since "functions.NAME:NUMBER" has the name of the tool.
 */
export const CODED_ID = /^gw(own|enc|num)_([\w-]{4})_([\w-]{1,6000})$/
const KEPT_LENGTH = 36
const HASH_LENGTH = 22

/**
 * A deterministic id, so that the vendor's cache of a chat stays valid. A client's id in this format is replaced too,
 * so that it can't collide with one.
 */
export function vendorId (id: string): string {
  if (TAKEN.test(id) || CODED_ID.test(id)) return id
  // Not as UTF-8, which encodes all lone surrogates alike.
  const digest = hash('sha256', Buffer.from(id, 'utf16le'), 'base64url').slice(0, HASH_LENGTH)
  return `gw_${id.slice(0, KEPT_LENGTH).replace(/[^\w-]/g, '_')}_${digest}`
}
