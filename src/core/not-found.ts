// The error for an address that does not exist, with a hint: nearly always the base URL of an SDK is wrong, or belongs
// to another one.
import { GatewayError } from '../errors.ts'

/** Characters of a path that a message or the log repeats. */
const SHOWN = 100
/** Strings long enough to be a key that a client has put into the path. */
const KEY_LIKE = /[\w%.~+=-]{24,}/g

/** Addresses of APIs that are not spoken here; the first that matches. */
const FOREIGN: ReadonlyArray<readonly [RegExp, string]> = [
  [/^\/v\d\w*\/projects\//, 'Vertex AI'],
  [/^(?:\/upload)?\/v1(?:beta|alpha)\d*\/(?!openai\/)/, 'Gemini'],
  [/:(?:(?:stream)?[gG]enerateContent|countTokens|embedContent|batchEmbedContents|predict(?:LongRunning)?)$/, 'Gemini'],
  [/^\/model\/[^/]+\/(?:invoke|converse)/, 'Bedrock'],
  [/^\/api\/(?:chat|generate|tags|show|embed|embeddings|version|ps)$/, 'Ollama']
]

function foreignHint (path: string): string | undefined {
  const owner = FOREIGN.find(([pattern]) => pattern.test(path))?.[1]
  return owner && `This gateway does not speak the API of ${owner}. It speaks Anthropic's (POST /v1/messages) and ` +
    'OpenAI\'s (POST /v1/chat/completions, POST /v1/responses): set up the client for one of these.'
}

/** Hints by a wrong path; the first that matches. */
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
function nowhere (method: string, path: string, isPublic: boolean): GatewayError {
  const hint = isPublic
    ? 'This listener serves GET /api/public/models-info, GET /api/public/media-info and links to images.'
    : foreignHint(path) ?? HINTS.find(([pattern]) => pattern.test(path))?.[1] ??
      'Check the path; the API lives under /v1.'
  return new GatewayError('not_found', { message: `There is nothing at ${method} ${shownPath(path)}. ${hint}` })
}

/**
 * The error for a request without a route.
 * @param methods those of the routes at this path. At a foreign address they are those of a route whose name in braces
 * matches it by chance (`POST /v1/models/gemini:generateContent`)
 * @param isPublic on the listener of the price list
 */
export function unrouted (method: string, path: string, methods: readonly string[], isPublic: boolean): GatewayError {
  if (methods.length === 0 || foreignHint(path) !== undefined) return nowhere(method, path, isPublic)
  return new GatewayError('method_not_allowed', {
    message: `This address takes ${methods.join(', ')}, not ${method}.`,
    headers: { allow: methods.join(', ') }
  })
}
