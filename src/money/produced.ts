// The tokens of a text that arrives in pieces, counted elsewhere, and only when somebody asks. One per attempt.
import type { TokensThread } from './tokens-thread.ts'
import type { Tokens } from './tokens.ts'

/** Most streams are shorter and end well, and nobody asks how much they produced: so text waits before it is sent anywhere. */
const WAITING = 8 * 1024

/**
 * Keeps less than 8 K characters of the text. The count depends on the text alone, not on how it was cut into pieces. It is the
 * tokenizer's own for the whole text where every slice could be cut before a space (see tokens-worker.ts); each cut elsewhere (no
 * space in 256 characters) moves it by a token or two.
 * Where the thread can't count (it died, hangs, or is busy) it is a guess for the whole text: its UTF-8 bytes / 4, rounded up.
 */
export class Produced {
  readonly #tokens: Tokens
  #rest = ''
  /** of all that is not in `rest` any more */
  #bytes = 0
  /** Where the text went. Undefined: nowhere yet; 'lost': nobody has all of it. */
  #sent: { readonly thread: TokensThread, readonly id: number } | 'lost' | undefined
  #count: Promise<number> | undefined

  constructor (tokens: Tokens) {
    this.#tokens = tokens
  }

  add (text: string): void {
    this.#rest += text
    while (this.#rest.length >= WAITING) {
      this.#send(this.#rest.slice(0, WAITING))
      this.#rest = this.#rest.slice(WAITING)
    }
  }

  /** Of all that was added until now; more may come. Undefined: the thread can't count now. Takes 2 s at most, and never throws. */
  peek (): Promise<number | undefined> | undefined {
    if (this.#sent === 'lost') return undefined
    this.#sent ??= this.#open()
    if (this.#sent === 'lost') return undefined
    const asked = this.#sent.thread.peek(this.#sent.id, this.#rest)
    if (asked === undefined) return undefined
    this.#bytes += Buffer.byteLength(this.#rest)
    this.#rest = ''
    return asked
  }

  /** Of all that was added, with this text, as `count` would say; it is not added. Takes 2 s at most, and never throws. */
  async with (text: string): Promise<number> {
    const told = await this.peek()
    const tokens = told === undefined || this.#sent === undefined || this.#sent === 'lost' ? undefined : await this.#sent.thread.try(this.#sent.id, text)
    return tokens ?? Math.ceil((this.#bytes + Buffer.byteLength(this.#rest + text)) / 4)
  }

  /** Of all that was added until it was asked for the first time. Takes 2 s at most, and never throws. */
  count (): Promise<number> {
    return this.#count ??= this.#end()
  }

  /** Nobody will ask. */
  drop (): void {
    if (this.#count === undefined && this.#sent !== undefined && this.#sent !== 'lost') this.#sent.thread.drop(this.#sent.id)
    this.#sent = 'lost'
    this.#rest = ''
  }

  #send (text: string): void {
    this.#bytes += Buffer.byteLength(text)
    this.#sent ??= this.#open()
    if (this.#sent === 'lost' || this.#sent.thread.add(this.#sent.id, text)) return
    this.#sent.thread.drop(this.#sent.id)
    this.#sent = 'lost'
  }

  #open (): { readonly thread: TokensThread, readonly id: number } | 'lost' {
    const { thread } = this.#tokens
    return thread === undefined ? 'lost' : { thread, id: thread.newId() }
  }

  async #end (): Promise<number> {
    const rest = this.#rest
    const bytes = this.#bytes + Buffer.byteLength(rest)
    if (bytes === 0) return 0
    const sent = this.#sent ?? this.#open()
    this.#sent = 'lost'
    this.#rest = ''
    const tokens = sent === 'lost' ? undefined : await sent.thread.count(sent.id, rest)
    return tokens ?? Math.ceil(bytes / 4)
  }
}
