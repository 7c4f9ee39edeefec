// A client's request body on its way to an upstream, unread.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Transform } from 'node:stream'
import { sayContinue } from '../../base/expect-continue.ts'
import { type BodyLimits, type BodyMemory, Chunks, tooLarge } from '../../core/body-memory.ts'
import { GatewayError, toGatewayError } from '../../errors.ts'

/**
 * Passes a client's body on up to a limit, with a timeout for each next chunk. Until its release it reads and holds the
 * bytes: the end of a client's connection is noticed only while its bytes are read.
 */
export class ClientBody extends Transform {
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  readonly #limit: number
  readonly #memory: BodyMemory
  readonly #idle: number
  #size = 0
  #timer: NodeJS.Timeout | undefined
  /** undefined: bytes pass */
  #held: Chunks | undefined = new Chunks()
  /** bytes taken from the memory for bodies, given back on destroy */
  #taken = 0
  /** the end that came while bytes were held */
  #end: (() => void) | undefined

  constructor (req: IncomingMessage, res: ServerResponse, { limit, idle, memory }: BodyLimits) {
    super()
    this.#req = req
    this.#res = res
    this.#limit = limit
    this.#memory = memory
    this.#idle = idle
  }

  /** All bytes received were taken, and the body is not complete. */
  get waitsForClient (): boolean {
    return this.readableLength === 0 && !this.readableEnded
  }

  /** Starts the timeout and the reading. A no-op after the first call, or on a destroyed body. */
  begin (): void {
    if (this.#timer !== undefined || this.destroyed) return
    this.#timer = setTimeout(() => {
      // Bytes buffered here wait for the upstream: then the client is not the slow side.
      if (!this.waitsForClient) this.#timer!.refresh()
      else this.destroy(new GatewayError('request_timeout', { headers: { connection: 'close' } }))
    }, this.#idle)
    sayContinue(this.#req, this.#res)
    this.#req.pipe(this)
  }

  /** Passes the held bytes on, and the rest as it comes. */
  release (): void {
    const held = this.#held!.all()
    this.#held = undefined
    for (const chunk of held) this.push(chunk)
    this.#end?.()
    this.begin()
  }

  override _transform (chunk: Buffer, _encoding: string, done: (error?: Error | null, chunk?: Buffer) => void): void {
    this.#timer!.refresh()
    this.#size += chunk.length
    if (this.#size > this.#limit) done(tooLarge(this.#limit))
    else if (this.#held === undefined) done(null, chunk)
    else done(this.#hold(this.#held, chunk))
  }

  /** @returns the error that refuses the chunk */
  #hold (held: Chunks, chunk: Buffer): GatewayError | undefined {
    const before = held.taken
    held.add(chunk)
    try {
      this.#memory.take(held.taken - before)
      this.#taken += held.taken - before
      return undefined
    } catch (full) {
      return toGatewayError(full)
    }
  }

  override _flush (done: () => void): void {
    clearTimeout(this.#timer)
    if (this.#held === undefined) done()
    else this.#end = done
  }

  override _destroy (error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.#timer)
    this.#req.unpipe(this)
    this.#memory.give(this.#taken)
    this.#taken = 0
    done(error)
  }
}
