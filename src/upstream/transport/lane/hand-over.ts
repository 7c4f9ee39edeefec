// Has undici read the rest of an answer that the lane's reader is not sure of: on a socket that swallows the request,
// which was sent already, brings what the upstream has answered so far, and then what still comes.
import type { IncomingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { Client, type Dispatcher } from 'undici'
import { InterimHeads } from '../interim-heads.ts'
import type { Handed } from './answer-reader.ts'
import type { Carrier, LaneCall } from './lane-call.ts'

/** The upstream's socket as undici sees it. */
class AnsweringSocket extends Duplex {
  readonly #upstream: Socket
  /** until the request is written, before which undici takes each byte for one that nobody has asked for */
  #early: Buffer[] | undefined
  readonly #interim = new InterimHeads()
  #hasEnded = false

  constructor (upstream: Socket, replay: readonly Buffer[]) {
    super({ allowHalfOpen: false })
    this.#upstream = upstream
    this.#early = [...replay]
    this.#interim.begin()
    this.on('error', () => {})                                // undici listens a little later
  }

  bring (bytes: Buffer): void {
    if (this.#early !== undefined) { this.#early.push(bytes); return }
    if (!this.destroyed) this.#push(this.#interim.read(bytes))
  }

  /** The upstream sends no more. */
  finish (): void {
    this.#hasEnded = true
    if (this.#early !== undefined || this.destroyed) return
    this.#push(this.#interim.end())
    this.push(null)
  }

  #push (bytes: Buffer): void {
    if (bytes.length > 0 && !this.push(bytes)) this.#upstream.pause()
  }

  /** The upstream's socket is closed. */
  close (): void {
    if (!this.#hasEnded) this.destroy()
  }

  override _read (): void {
    this.#upstream.resume()
  }

  override _write (_bytes: Buffer, _encoding: BufferEncoding, callback: () => void): void {
    callback()
    if (this.#early !== undefined) process.nextTick(() => { this.#replay() })
  }

  override _destroy (error: Error | null, callback: (error: Error | null) => void): void {
    this.#upstream.destroy()
    callback(error)
  }

  #replay (): void {
    const early = this.#early ?? []
    this.#early = undefined
    for (const bytes of early) this.bring(bytes)
    if (this.#hasEnded) this.finish()
  }
}

/** The handler of the request as undici has it: what the lane has delivered is not delivered again. */
export class HandOver implements Carrier, Dispatcher.DispatchHandler {
  readonly #call: LaneCall
  readonly #socket: AnsweringSocket
  #controller: Dispatcher.DispatchController | undefined
  /** the head was delivered */
  #hasHead: boolean
  /** bytes of the body that come again */
  #delivered: number

  /**
   * @param upstream its bytes, end, error and close are to be passed on from now on
   * @param hasHead whether the handler has the answer's head already
   */
  constructor (call: LaneCall, upstream: Socket, { replay, delivered }: Handed, hasHead: boolean) {
    this.#call = call
    this.#hasHead = hasHead
    this.#delivered = delivered
    this.#socket = new AnsweringSocket(upstream, replay)
    // The gateway's own timers watch, as over all of undici's connections.
    const client = new Client('http://upstream', { headersTimeout: 0, bodyTimeout: 0, allowH2: false,
      // Undici does not go on with a request within the call that asks for its connection.
      connect: (_, callback) => { process.nextTick(() => { callback(null, this.#socket as unknown as Socket) }) } })
    client.dispatch({ method: call.body === undefined ? 'GET' : 'POST', path: '/' }, this)
    client.close().catch(() => {})                            // when the answer is over
  }

  bring (bytes: Buffer): void { this.#socket.bring(bytes) }
  finish (): void { this.#socket.finish() }
  close (): void { this.#socket.close() }
  fail (error: Error): void { this.#socket.destroy(error) }

  pause (): void { this.#controller?.pause() }
  resume (): void { this.#controller?.resume() }
  drop (): void { this.#socket.destroy() }

  onRequestStart (controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#call.paused) controller.pause()
  }

  onResponseStart (_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (this.#hasHead || this.#call.isOver) return
    this.#call.handler.onResponseStart(this.#call, status, headers)
  }

  onResponseData (_: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#call.isOver) return
    const again = Math.min(this.#delivered, chunk.length)
    this.#delivered -= again
    if (again < chunk.length) this.#call.handler.onResponseData(this.#call, chunk.subarray(again))
  }

  onResponseEnd (): void { this.#call.end() }
  onResponseError (_: Dispatcher.DispatchController, error: Error): void { this.#call.fail(error) }
}
