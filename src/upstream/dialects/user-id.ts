// The name that a client has for its user, as vendors take it.
import { hash } from 'node:crypto'
import { isRecord, type Json } from '../../base/json.ts'
import { textIn } from './json.ts'

/** Characters of the longest name that OpenAI's APIs take. */
const LONGEST = 64

/** '': the request has none. */
export function userId ({ metadata }: Json): string {
  return isRecord(metadata) ? textIn(metadata.user_id) : ''
}

/** Names and addresses of people stay here, as far as they are long: a hash tells them apart as well. */
export function shortUserId (body: Json): string | undefined {
  const user = userId(body)
  if (user === '') return undefined
  return user.length > LONGEST ? hashed(user) : user
}

/** The same for the same user, in every process. */
export function hashed (user: string): string {
  return hash('sha256', user, 'base64url')
}
