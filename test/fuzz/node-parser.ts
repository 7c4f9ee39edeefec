// What node's own parser makes of bytes, as our servers configure it: the judge of the lane's reader.
import type { IncomingMessage } from 'node:http'
import { createRequire } from 'node:module'

interface Parser {
  initialize (type: number, resource: object, maxHeaderSize: number, lenientFlags: number): void
  execute (bytes: Buffer): number | Error
  socket: object | null
  maxHeaderPairs: number
  onIncoming: ((req: IncomingMessage) => number) | null
  [callback: number]: (piece: Buffer) => void
}

/** node's module of this name, which its documentation does not have */
interface HttpCommon {
  readonly parsers: { alloc (): Parser }
  readonly HTTPParser: { readonly REQUEST: number, readonly kOnBody: number, readonly kOnMessageComplete: number,
    readonly kLenientNone: number }
}

const { parsers, HTTPParser } = createRequire(import.meta.url)('_http_common') as HttpCommon

export interface Parsed {
  readonly method: string
  readonly version: string
  readonly target: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
  /** the parser keeps the connection, and knows of no upgrade */
  readonly isPlain: boolean
}

export class NodeParser {
  readonly #parser = parsers.alloc()
  #req: IncomingMessage | undefined
  #body = ''
  #begun = 0
  #complete = 0

  constructor () {
    const parser = this.#parser
    parser[HTTPParser.kOnBody | 0] = (piece) => { this.#body += piece.toString('latin1') }
    parser[HTTPParser.kOnMessageComplete | 0] = () => { this.#complete++ }
  }

  /**
   * @returns the request that the bytes are: all of them, and no more are wanted. Else a sentence: what they are
   */
  parse (bytes: Buffer): Parsed | string {
    const parser = this.#parser
    parser.initialize(HTTPParser.REQUEST, {}, 64 * 1024, HTTPParser.kLenientNone | 0)
    parser.socket = {}
    parser.maxHeaderPairs = 2000
    parser.onIncoming = (req) => {
      this.#req = req
      this.#begun++
      return 0
    }
    this.#req = undefined
    this.#body = ''
    this.#begun = this.#complete = 0
    const read = parser.execute(bytes)
    if (read instanceof Error) return `node refuses it: ${read.message}`
    const req = this.#req as IncomingMessage | undefined
    if (req === undefined) return 'node has no head'
    if (this.#begun !== 1) return `node reads ${this.#begun} requests`
    if (this.#complete !== 1) return 'node waits for more of the body'
    if (read !== bytes.length) return `node reads ${read} bytes of ${bytes.length}`
    return { method: req.method!, version: req.httpVersion, target: req.url!, headers: req.headers, body: this.#body,
      isPlain: (req as { upgrade?: boolean }).upgrade !== true }
  }
}
