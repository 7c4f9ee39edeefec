// Heads of requests to one origin, byte for byte as undici writes them. Nearly all lines are those of the request
// before, so they are checked and put together once.

/** Fields that undici reads, replaces or refuses. */
const SPECIAL = new Set(['host', 'connection', 'content-length', 'transfer-encoding', 'keep-alive', 'upgrade',
  'expect'])

export class RequestHeads {
  readonly #host: string
  #method = ''
  #path = ''
  /** request line and what undici adds */
  #start = ''
  readonly #names: string[] = []
  readonly #values: string[] = []
  readonly #lines: string[] = []
  #head = ''

  /** @param host of the origin, with its port unless that is the usual one */
  constructor (host: string) {
    this.#host = host
  }

  /**
   * All lines but the one of the body's length, which is the last.
   * @returns undefined: undici is to say what becomes of this one
   */
  of (method: string, path: string, headers: Readonly<Record<string, unknown>>): string | undefined {
    let isSame = method === this.#method && path === this.#path
    if (!isSame && !this.#begin(method, path)) return undefined
    let count = 0
    for (const name in headers) {
      const value = headers[name]
      if (name !== this.#names[count] || value !== this.#values[count]) {
        isSame = false
        if (!isField(name, value)) {
          this.#method = ''                                   // what is kept is of no request
          return undefined
        }
        this.#names[count] = name
        this.#values[count] = value
        this.#lines[count] = `${name}: ${value}\r\n`
      }
      count++
    }
    if (isSame && count === this.#lines.length) return this.#head
    this.#names.length = this.#values.length = this.#lines.length = count
    return this.#head = this.#start + this.#lines.join('')
  }

  #begin (method: string, path: string): boolean {
    if (!/^\/[\x21-\x7E]*$/.test(path)) return false
    this.#method = method
    this.#path = path
    this.#start = `${method} ${path} HTTP/1.1\r\nhost: ${this.#host}\r\nconnection: keep-alive\r\n`
    return true
  }
}

function isField (name: string, value: unknown): value is string {
  return typeof value === 'string' && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name) &&
    /^[\t\x20-\x7E\x80-\xFF]*$/.test(value) && !SPECIAL.has(name.toLowerCase())
}
