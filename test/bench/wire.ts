// HTTP/1.1 messages off a raw socket with as little CPU as we can: the load generator must not be what is measured.

export interface MessageListener {
  head (text: string): void
  body (chunk: Buffer, from: number, to: number): void
  end (): void
}

type State = 'head' | 'length' | 'chunk size' | 'chunk data' | 'chunk end' | 'trailer'

/** Reads one message after another, of Content-Length or chunked; neither (a GET, a 204) is an empty body. */
export class WireReader {
  readonly #listener: MessageListener
  #state: State = 'head'
  #text = ''
  #remaining = 0

  constructor (listener: MessageListener) {
    this.#listener = listener
  }

  read (chunk: Buffer): void {
    let at = 0
    while (at < chunk.length) {
      if (this.#state === 'head') {
        const seen = this.#text.length
        this.#text += chunk.toString('latin1', at)
        const end = this.#text.indexOf('\r\n\r\n', Math.max(0, seen - 3))
        if (end === -1) return
        at += end + 4 - seen
        this.#open(this.#text.slice(0, end))
      } else if (this.#state === 'length' || this.#state === 'chunk data') {
        const to = Math.min(chunk.length, at + this.#remaining)
        this.#listener.body(chunk, at, to)
        this.#remaining -= to - at
        at = to
        if (this.#remaining === 0) {
          if (this.#state === 'length') this.#finish()
          else this.#state = 'chunk end'
        }
      } else {
        const end = chunk.indexOf(10, at)
        this.#text += chunk.toString('latin1', at, end === -1 ? chunk.length : end)
        if (end === -1) return
        at = end + 1
        this.#line(this.#text.trimEnd())
      }
    }
  }

  #open (head: string): void {
    this.#text = ''
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)
    const isChunked = length === null && /\r\ntransfer-encoding: *chunked/i.test(head)
    this.#remaining = Number(length?.[1] ?? 0)
    this.#state = isChunked ? 'chunk size' : 'length'
    this.#listener.head(head)
    if (!isChunked && this.#remaining === 0) this.#finish()
  }

  #line (line: string): void {
    this.#text = ''
    if (this.#state === 'chunk size') {
      this.#remaining = parseInt(line, 16)
      this.#state = this.#remaining === 0 ? 'trailer' : 'chunk data'
    } else if (this.#state === 'chunk end') this.#state = 'chunk size'
    else if (line === '') this.#finish()
  }

  #finish (): void {
    this.#state = 'head'
    this.#listener.end()
  }
}
