// Reads whole small requests of HTTP/1.1 (RFC 9112), and takes only those that can't be read in two ways: whatever is
// unusual is node's to judge. No socket here: bytes in, a request or none out.

/** Most bytes of a head, and of a body. */
const MOST_HEAD = 8 * 1024
export const MOST_BODY = 64 * 1024
const MOST_LINES = 64

export interface LaneRequest {
  /** path and query */
  readonly target: string
  /** as node has them: names in lower case, values without white space around them */
  readonly headers: Readonly<Record<string, string>>
  /** the same for all requests of the connection with the same head, but for its length */
  readonly head: object
  /** where the body begins in the bytes; it ends where they do */
  readonly bodyAt: number
}

/** The bytes are the beginning of a request that may be one for the lane; or they never will be. */
export type NoRequest = 'more' | 'foreign'

/** A head that was read, with the empty line, but without the digits of its length. */
interface KnownHead {
  readonly before: Buffer
  readonly after: Buffer
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  /** stands for it: without its bytes, which are among those of others (Buffer's pool) */
  readonly token: object
}

const METHOD = Buffer.from('POST /')
const END = Buffer.from('\r\n\r\n')
/** The origin form, without a fragment. */
const REQUEST_LINE = /^POST (\/[!"$-~]*) HTTP\/1\.1$/
/** A token (RFC 9110 5.6.2). */
const NAME = /^[\w!#$%&'*+.^`|~-]+$/
/** HTAB, SP, VCHAR and obs-text (RFC 9110 5.5). */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
const LENGTH = /^(?:0|[1-9]\d{0,4})$/
const JSON_TYPE = /^application\/json(?:; ?charset=utf-8)?$/i
const MOST_DIGITS = 5
const ZERO = 0x30
const LENGTH_NAME = 'content-length'

/** What these names say changes how a request is read or answered: none is known here, whatever its value. */
const FOREIGN_NAMES: ReadonlySet<string> = new Set(['transfer-encoding', 'te', 'trailer', 'upgrade', 'expect',
  'content-encoding', 'http2-settings', 'proxy-connection', 'keep-alive',
  'set-cookie',                                               // a list in node's headers
  '__proto__'])

/**
 * Reads the requests of one connection. It knows the last head: clients send the same one with each request, but for
 * the length, and what was found good once needs only be compared.
 */
export class RequestReader {
  readonly #mostBody: number
  #known: KnownHead | undefined

  /** @param mostBody bytes, at most MOST_BODY */
  constructor (mostBody = MOST_BODY) {
    this.#mostBody = Math.min(mostBody, MOST_BODY)
  }

  /** @param bytes all that came since the last request */
  read (bytes: Buffer): LaneRequest | NoRequest {
    const digits = this.#known === undefined ? 0 : digitsWithin(bytes, this.#known)
    return digits > 0 ? this.#again(bytes, this.#known!, digits) : this.#first(bytes)
  }

  #again (bytes: Buffer, { before, after, target, headers }: KnownHead, digits: number): LaneRequest | NoRequest {
    const length = bytes.toString('latin1', before.length, before.length + digits)
    return this.#whole(bytes, target, { ...headers, [LENGTH_NAME]: length }, before.length + digits + after.length)
  }

  #first (bytes: Buffer): LaneRequest | NoRequest {
    const end = bytes.indexOf(END)
    if (end === -1) return mayBegin(bytes) ? 'more' : 'foreign'
    if (end > MOST_HEAD) return 'foreign'
    const headers = this.#anew(bytes, bytes.toString('latin1', 0, end + 2))
    return headers === undefined ? 'foreign' : this.#whole(bytes, this.#known!.target, headers, end + END.length)
  }

  #whole (
    bytes: Buffer, target: string, headers: Readonly<Record<string, string>>, bodyAt: number
  ): LaneRequest | NoRequest {
    const length = Number(headers[LENGTH_NAME])
    if (length > this.#mostBody || bytes.length > bodyAt + length) return 'foreign'
    return bytes.length < bodyAt + length ? 'more' : { target, headers, head: this.#known!.token, bodyAt }
  }

  #anew (bytes: Buffer, head: string): Record<string, string> | undefined {
    const lines = head.split('\r\n')
    lines.pop()                                               // behind the last line's end
    const target = REQUEST_LINE.exec(lines[0]!)?.[1]
    if (target === undefined || lines.length > MOST_LINES) return undefined
    const headers: Record<string, string> = {}
    let at = 0
    let lengthAt = -1
    for (const line of lines) {
      if (at > 0) {
        const colon = line.indexOf(':')
        const name = line.slice(0, colon === -1 ? 0 : colon)
        const value = line.slice(colon + 1)
        if (!NAME.test(name) || !VALUE.test(value)) return undefined
        const key = name.toLowerCase()
        // What an object has by itself counts as a duplicate.
        if (headers[key] !== undefined || FOREIGN_NAMES.has(key)) return undefined
        const start = at + colon + 1 + spacesBefore(value)
        // Not a slice of the head: JSON.stringify, which prints some of them for the log, is slow with those.
        headers[key] = bytes.toString('latin1', start, at + line.length - spacesBehind(value, start - at - colon - 1))
        if (key === LENGTH_NAME) lengthAt = start
      }
      at += line.length + 2
    }
    if (!isPlain(headers)) return undefined
    const text = Buffer.from(`${head}\r\n`, 'latin1')
    this.#known = { before: text.subarray(0, lengthAt), after: text.subarray(lengthAt + headers[LENGTH_NAME]!.length),
      target: bytes.toString('latin1', METHOD.length - 1, METHOD.length - 1 + target.length), headers, token: {} }
    return { ...headers }
  }
}

/** @returns number of digits of the length, where the head is apart from them the known one; else 0 */
function digitsWithin (bytes: Buffer, { before, after }: KnownHead): number {
  if (bytes.length < before.length + after.length) return 0
  let end = before.length
  while (end < before.length + MOST_DIGITS && isDigit(bytes[end]!)) end++
  const digits = end - before.length
  if (digits === 0 || (digits > 1 && bytes[before.length] === ZERO) || bytes.length < end + after.length) return 0
  const isKnown = before.compare(bytes, 0, before.length) === 0 && after.compare(bytes, end, end + after.length) === 0
  return isKnown ? digits : 0
}

/** Whether the beginning of a head may be that of a request for the lane. */
function mayBegin (bytes: Buffer): boolean {
  if (bytes.length > MOST_HEAD) return false
  const length = Math.min(bytes.length, METHOD.length)
  return METHOD.compare(bytes, 0, length, 0, length) === 0
}

function isPlain (headers: Readonly<Record<string, string>>): boolean {
  const { host, connection = 'keep-alive', [LENGTH_NAME]: length = '', 'content-type': type = 'application/json' } =
    headers
  return host !== undefined && (connection === 'keep-alive' || connection === 'Keep-Alive') &&
    LENGTH.test(length) && JSON_TYPE.test(type)
}

/** White space of HTTP (RFC 9110 5.5): `String.trim` knows more. */
function spacesBefore (value: string): number {
  let count = 0
  while (count < value.length && isSpace(value.charCodeAt(count))) count++
  return count
}

/** @param before those that are counted already: all, where there is nothing else */
function spacesBehind (value: string, before: number): number {
  let count = 0
  while (count < value.length - before && isSpace(value.charCodeAt(value.length - 1 - count))) count++
  return count
}

function isDigit (byte: number): boolean {
  return byte >= ZERO && byte <= ZERO + 9
}

function isSpace (code: number): boolean {
  return code === 0x20 || code === 0x09
}
