// The bytes of a client on their way to an upstream, unread.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Transform } from 'node:stream'
import { sayContinue } from '../../base/expect-continue.ts'
import { type BodyLimits, type BodyMemory, Chunks, tooLarge } from '../../core/body-memory.ts'
import { GatewayError, toGatewayError } from '../../errors.ts'

/**
 * Passes a client's bytes on up to a limit, and does not wait for ever for the next. Read before its release it holds
 * them: of a client whose bytes nobody reads nobody notices either that it has left.
 */
export class ClientBody extends Transform {
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  readonly #limit: number
  readonly #memory: BodyMemory
  readonly #idle: number
  #size = 0
  #timer: NodeJS.Timeout | undefined
  /** undefined: passed on */
  #held: Chunks | undefined = new Chunks()
  /** bytes of the memory that are given back when the last one is gone */
  #taken = 0
  /** what came last while it was held: there is no more */
  #end: (() => void) | undefined

  constructor (req: IncomingMessage, res: ServerResponse, { limit, idle, memory }: BodyLimits) {
    super()
    this.#req = req
    this.#res = res
    this.#limit = limit
    this.#memory = memory
    this.#idle = idle
  }

  /** All that came was taken, and more is to come. */
  get waitsForClient (): boolean {
    return this.readableLength === 0 && !this.readableEnded
  }

  /** Nothing happens where it has begun, or is over. */
  begin (): void {
    if (this.#timer !== undefined || this.destroyed) return
    this.#timer = setTimeout(() => {
      // Bytes that wait here wait for the upstream: then it is not the client who is slow.
      if (!this.waitsForClient) this.#timer!.refresh()
      else this.destroy(new GatewayError('request_timeout', { headers: { connection: 'close' } }))
    }, this.#idle)
    sayContinue(this.#req, this.#res)
    this.#req.pipe(this)
  }

  /** From now on bytes pass. */
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

  /** @returns why it can't */
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
