// The error for an address that does not exist, with a hint: nearly always the base URL of an SDK is wrong, or belongs
// to another one.
import { GatewayError } from '../errors.ts'

/** Characters of a path that a message or the log repeats. */
const SHOWN = 100
/** Strings long enough to be a key that a client has put into the path. */
const KEY_LIKE = /[\w%.~+=-]{24,}/g

/** Hints by the end of a wrong path; the first that matches. */
const HINTS: ReadonlyArray<readonly [RegExp, string]> = [
  [/^\/v1\/v1\/messages/, 'Anthropic\'s SDK and coding agents take the base URL without /v1.'],
  [/^\/v1\/v1\//, 'The base URL has one /v1 too many.'],
  [/^\/messages(?:$|\/)/, 'This client takes the base URL with /v1 at its end.'],
  [/^\/(?:chat\/completions|models|images|videos|embeddings|responses)(?:$|\/)/,
    'OpenAI\'s SDK takes the base URL with /v1 at its end.'],
  [/\/responses$/, 'Use POST /v1/responses.'],
  [/\/completions$/, 'Use POST /v1/chat/completions.'],
  [/\/complete$/, 'Use POST /v1/messages.']
]

/** An unknown path, redacted and shortened for messages. */
export function shownPath (path: string): string {
  const clean = path.slice(0, 10 * SHOWN).replace(KEY_LIKE, '***')
  return clean.length > SHOWN ? clean.slice(0, SHOWN) + '…' : clean
}

/** @param isPublic on the listener of the price list */
export function nowhere (method: string, path: string, isPublic: boolean): GatewayError {
  const hint = isPublic
    ? 'This listener serves GET /api/public/models-info, GET /api/public/media-info and links to images.'
    : HINTS.find(([pattern]) => pattern.test(path))?.[1] ?? 'Check the path; the API lives under /v1.'
  return new GatewayError('not_found', { message: `There is nothing at ${method} ${shownPath(path)}. ${hint}` })
}
