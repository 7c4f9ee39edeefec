// Ids of tool calls. Vendors of chat style make them as they like ("functions.weather:0"), those of messages style
// refuse most of that: a conversation must be able to go on at either, and each vendor must get its own ids back.
import { hash } from 'node:crypto'

const PREFIX = 'gwid_'
const HASHED = 'gwhash_'
/**
 * Ids that vendors of messages style accept. An id with a prefix of the gateway's is replaced too, so that none is
 * mistaken for one.
 */
const TAKEN = /^(?!gw(?:id|hash)_)[\w-]{1,64}$/

/** The id for the client, which sends it back. */
export function clientId (id: string): string {
  if (TAKEN.test(id)) return id
  const coded = PREFIX + Buffer.from(id).toString('base64url')
  return coded.length <= 64 ? coded : HASHED + hash('sha256', id, 'base64url')
}

/** As the vendor made it; but for long ones, which stay what they became for the client. */
export function vendorsId (id: string): string {
  if (!id.startsWith(PREFIX)) return id
  const made = Buffer.from(id.slice(PREFIX.length), 'base64url').toString()
  return clientId(made) === id ? made : id
}
