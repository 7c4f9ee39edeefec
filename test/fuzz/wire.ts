// One connection: bytes go out, bytes come back, and what came back is judged.
import { connect } from 'node:net'
import { PATIENCE_MS } from './arena.ts'

export interface Talk {
  /** behind any 100 Continue */
  readonly first: Answer | undefined
  /** all that came, as latin1 */
  readonly text: string
  /** its end did not come, and the connection stayed open */
  readonly isHanging: boolean
}

interface Answer {
  readonly status: string
  readonly fields: string
  readonly body: string
  readonly isWhole: boolean
}

/**
 * Until the other side closes, or the first answer is whole.
 * @param isTorn the connection ends behind the last piece
 */
export async function talk (url: string, send: readonly Buffer[], isTorn = false): Promise<Talk> {
  const { hostname, port } = new URL(url)
  const isHead = /^\s*HEAD\b/.test(Buffer.concat(send).toString('latin1', 0, 100)) // a piece may end within the word
  let text = ''
  return await new Promise((resolve) => {
    const socket = connect({ port: Number(port), host: hostname, noDelay: true })
    const finish = (isHanging: boolean): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve({ first: read(text, isHead), text, isHanging })
    }
    const timer = setTimeout(() => { finish(true) }, PATIENCE_MS)
    socket.setEncoding('latin1').on('error', () => {}).on('close', () => { finish(false) })
    socket.on('data', (chunk: string) => {
      text += chunk
      if (read(text, isHead)?.isWhole === true) finish(false)
    })
    void (async () => {
      for (const piece of send) {
        if (socket.destroyed) return
        socket.write(piece)
        await new Promise(setImmediate)
      }
      if (isTorn) socket.end()
    })()
  })
}

/** The first final answer of what came. */
function read (text: string, isHead: boolean): Answer | undefined {
  const found = /^HTTP\/1\.1 (\d{3}) [^\r]*((?:\r\n[^\r]+)*)\r\n\r\n/.exec(text)
  if (found === null) return undefined
  const [whole, status, fields] = found as unknown as [string, string, string]
  const rest = text.slice(whole.length)
  if (status === '100') return read(rest, isHead)
  if (isHead || status === '204' || status === '304') return { status, fields, body: '', isWhole: true }
  if (/^transfer-encoding: chunked$/im.test(fields)) return { status, fields, ...unchunk(rest) }
  const length = /^content-length: (\d+)$/im.exec(fields)?.[1]
  return { status, fields, body: rest.slice(0, length === undefined ? undefined : Number(length)),
    isWhole: length !== undefined && rest.length >= Number(length) }
}

export interface Verdict {
  /** for counting: a status, or what came in its place */
  readonly what: string
  /** why it is wrong */
  readonly wrong?: string
}

const STREAM_END =
  /(?:^|\n)event: (?:message_stop|error|response\.(?:completed|incomplete|failed))\ndata: .*\n\n$|(?:^|\n)data: (?:\[DONE\]|\{"kind":"end".*)\n\n$/

/**
 * A client must have an answer that says what it is, and a stream must come to an end that its client can read.
 * @param isOurs not a vendor's bytes, forwarded unread
 * @param sent to the API, whose errors have an id, and the format of their address
 */
export function judge ({ first, text, isHanging }: Talk, isOurs = true, sent?: Buffer): Verdict {
  if (isHanging) {
    return { what: 'hangs',
      wrong: `no end of the answer within ${PATIENCE_MS / 1000} s: ${JSON.stringify(text.slice(0, 500))}` }
  }
  // Who was told to go on may have left instead.
  if (/^(?:HTTP\/1\.1 100 Continue\r\n\r\n)*$/.test(text)) return { what: 'closed' }
  if (first === undefined) return { what: 'no head', wrong: `no whole head: ${JSON.stringify(text.slice(0, 500))}` }
  const { status, fields, body, isWhole } = first
  if (!isOurs && status !== '500') return { what: status }
  if (status === '500') return { what: status, wrong: text.slice(0, 2000) }
  const isStream = /^content-type: text\/event-stream/im.test(fields)
  if (isStream && !STREAM_END.test(body)) {
    return { what: status, wrong: `a stream without its end: ${JSON.stringify(body.slice(-500))}` }
  }
  if (
    Number(status) >= 400 && body !== '' && /^content-type: application\/json$/im.test(fields) && !isError(body)
  ) return { what: status, wrong: `an error of no shape: ${body.slice(0, 500)}` }
  const odd = sent === undefined || Number(status) < 400 || !isWhole || isStream || body === ''
    ? undefined
    : oddity(first, sent)
  if (odd !== undefined) return { what: status, wrong: `${odd}: ${text.slice(0, 1000)}` }
  return { what: isStream ? `${status} stream` : isWhole ? status : `${status} cut` }
}

function isError (body: string): boolean {
  try {
    return typeof (JSON.parse(body) as { error?: { message?: unknown } }).error?.message === 'string'
  } catch {
    return false
  }
}

/** What is wrong with an error of the API, if anything. */
function oddity ({ status, fields, body }: Answer, sent: Buffer): string | undefined {
  const { type, error, request_id: outer } = JSON.parse(Buffer.from(body, 'latin1').toString('utf8')) as {
    readonly type?: string,
    readonly error: { readonly message: string, readonly request_id?: string },
    readonly request_id?: string
  }
  const id = /^x-request-id: (\S+)$/im.exec(fields)?.[1]
  const isMessages = type === 'error'
  if (
    id === undefined || (isMessages ? outer : error.request_id) !== id || !error.message.endsWith(` Request ID: ${id}`)
  ) return 'its id is not where it belongs'
  const target = /^[A-Z-]+ (\S+) HTTP\/1\.[01]\r\n/.exec(sent.toString('latin1'))?.[1]
  if (target === undefined) return undefined
  // A path has its case (RFC 9110 4.2.3), a scheme has none.
  const isBelow = /^(?:[Hh][Tt][Tt][Pp]:\/\/[^/?#]*)?\/v1\/messages(?:[/?]|$)/.test(target)
  // What can't be read has no address, and the format of all others.
  const isKnown = /^(?:401|402|403|404|405|413|417|422|429|502|503)$/.test(status)
  return isMessages === isBelow || (!isMessages && !isKnown)
    ? undefined
    : `the ${isMessages ? 'messages' : 'chat'} format at ${target}`
}

function unchunk (text: string): Pick<Answer, 'body' | 'isWhole'> {
  let body = ''
  for (let at = 0; ;) {
    const size = /^([0-9a-f]{1,8})\r\n/i.exec(text.slice(at, at + 12))
    if (size === null) return { body, isWhole: false }
    const length = parseInt(size[1]!, 16)
    at += size[0].length
    body += text.slice(at, at + length)
    at += length + 2
    if (at > text.length) return { body, isWhole: false }
    if (length === 0) return { body, isWhole: true }
  }
}
