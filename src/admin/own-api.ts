// Asks the API of this gateway as a client does: over its listener, with the secret of a key, so that what is tried
// goes the way of every request and is charged like one.
import { type IncomingMessage, request } from 'node:http'

/** Who asks, as clients say it: a key with `allowed_clients` names it, or refuses it. */
export const USER_AGENT = 'gateway-try/1'

export interface Trial {
  readonly path: string
  /** of the key */
  readonly secret: string
  /** what is sent */
  readonly json: Buffer
}

/**
 * @param url of the listener, from this machine
 * @param signal the client has left: the request is given up
 * @returns the head; the body is still to come
 * @throws {Error} there was no answer
 */
export async function askOwnApi (
  url: string,
  { path, secret, json }: Trial,
  signal: AbortSignal
): Promise<IncomingMessage> {
  return await new Promise((resolve, reject) => {
    // A connection of its own: what is given up must not be waited for, nor found half-read by the next one.
    request(`${url}${path}`, { method: 'POST', agent: false, signal, headers: { 'content-type': 'application/json',
      'content-length': json.length, 'user-agent': USER_AGENT, 'x-api-key': secret } })
      .on('response', resolve).on('error', reject).end(json)
  })
}
