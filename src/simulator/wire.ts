// The simulator's end of one connection: writes that wait for the socket, and notices at once that the client leaves.
import type { ServerResponse } from 'node:http'
import { setImmediate, setTimeout } from 'node:timers/promises'

/** The client is gone; nothing more can be said. */
export class ClientLeft extends Error {}

export class Wire {
  readonly #response: ServerResponse
  readonly #left = new AbortController()

  constructor (response: ServerResponse) {
    this.#response = response
    response.on('error', () => {})           // a write after the client left; `close` says it too
    response.once('close', () => { if (!response.writableFinished) this.#left.abort(new ClientLeft()) })
  }

  get hasHead (): boolean {
    return this.#response.headersSent
  }

  get hasLeft (): boolean {
    return this.#left.signal.aborted
  }

  head (status: number, headers: Readonly<Record<string, string | readonly string[]>>): void {
    this.#response.writeHead(status, headers as Record<string, string | string[]>)
    this.#response.flushHeaders()
  }

  /** A head before the head (RFC 9110, 15.2). */
  interim (status: 100 | 102 | 103): void {
    if (status === 100) this.#response.writeContinue()
    else if (status === 102) this.#response.writeProcessing()
    else this.#response.writeEarlyHints({ link: '</style.css>; rel=preload' })
  }

  /**
   * Resolves when the operating system has the bytes.
   * @param atATime written so many bytes at a time, each as a segment of its own
   * @param everyMs milliseconds before each of them
   * @throws {ClientLeft}
   */
  async write (bytes: Buffer, atATime = bytes.length, everyMs = 0): Promise<void> {
    for (let at = 0; at < bytes.length; at += atATime) {
      await this.wait(everyMs)
      await this.#orLeft(new Promise<void>((resolve, reject) => {
        this.#response.write(bytes.subarray(at, at + atATime), (error) => {
          error ? reject(new ClientLeft()) : resolve()
        })
      }))
      if (atATime < bytes.length) await setImmediate()
    }
  }

  /** @throws {ClientLeft} */
  async wait (ms: number): Promise<void> {
    if (ms > 0) await this.#orLeft(setTimeout(ms, undefined, { signal: this.#left.signal }))
  }

  /** Says nothing more, and lets the client find out. @throws {ClientLeft} always */
  async silence (): Promise<never> {
    return await this.#orLeft(new Promise<never>(() => {}))
  }

  /**
   * Closes the connection in the middle of it all. What was written before arrives: no reset, which could overtake it.
   */
  cut (): void {
    this.#response.destroy()
  }

  /** All is written: a client that hangs up now, with the last byte in its hands, has not left early. */
  async end (): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#response.once('close', resolve)
    this.#response.end(resolve)
    await promise
  }

  /** Not every pending write calls back when its socket dies, so the end of the connection is raced with everything. */
  async #orLeft<T> (work: Promise<T>): Promise<T> {
    const { signal } = this.#left
    let leave!: () => void
    const left = new Promise<never>((_resolve, reject) => {
      leave = () => { reject(new ClientLeft()) }
      if (signal.aborted) leave()
      else signal.addEventListener('abort', leave, { once: true })
    })
    try {
      return await Promise.race([work, left])
    } catch (error) {
      if (signal.aborted) throw new ClientLeft()
      throw error
    } finally {
      signal.removeEventListener('abort', leave)
      work.catch(() => {})
    }
  }
}
