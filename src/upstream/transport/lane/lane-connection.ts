// One connection of the lane, for one request at a time.
import type { OnReadOpts, Socket } from 'node:net'
import { errors } from 'undici'
import { memoryFor, put, send } from '../../../base/write-memory.ts'
import type { Dial } from '../connect.ts'
import type { AnswerHeads } from './answer-heads.ts'
import { AnswerReader } from './answer-reader.ts'
import { HandOver } from './hand-over.ts'
import type { Carrier, LaneCall, UsedConnection } from './lane-call.ts'

/** Bytes of a read at most. */
const READ_BYTES = 64 * 1024

/** Most bytes of the line with a body's length, and of the empty one behind it. */
const MOST_OF_LENGTH = 40

const CONNECTION = Symbol('the connection of a socket')
type OwnedSocket = Socket & { [CONNECTION]?: LaneConnection }

/**
 * All sockets read to the same memory, without a stream's machinery: what was read is used up before the next read.
 * Node calls it as a method of the socket.
 */
export const onread: OnReadOpts = {
  buffer: Buffer.allocUnsafeSlow(READ_BYTES),
  callback (this: OwnedSocket, length: number, bytes: Uint8Array) {
    this[CONNECTION]?.onRead(bytes as Buffer, length)
    return true
  }
}

function onEnd (this: OwnedSocket): void { this[CONNECTION]!.onEnd() }
function onError (this: OwnedSocket, error: Error): void { this[CONNECTION]!.onError(error) }
function onClose (this: OwnedSocket): void { this[CONNECTION]!.onClose() }

export interface ConnectionOwner {
  readonly answerHeads: AnswerHeads
  /** Its answer is over: it waits for its next request for so many milliseconds. */
  rest (connection: LaneConnection, ms: number): void
  /** It is closed, or is being closed. */
  remove (connection: LaneConnection): void
  /** Of this call not a byte was sent: it needs another connection. */
  again (call: LaneCall): void
  /** An answer was, or was not, for the lane. */
  recordAnswer (isForLane: boolean): void
}

export class LaneConnection implements Carrier, UsedConnection {
  /** in the owner's list */
  place = 0
  /** `performance.now()` until which it may wait; as long as it does */
  restsUntil = 0
  /** `turnCount()` when its last answer was over */
  restedIn = 0
  /** `performance.now()` */
  readonly bornAt = performance.now()
  bytesRead = 0
  readonly #owner: ConnectionOwner
  readonly #reader: AnswerReader
  #requests = 0
  #socket: Socket | undefined
  #call: LaneCall | undefined
  /** the request was written */
  #isWritten = false
  /** it is not read, because its call is paused */
  #isHalted = false
  /** undici reads the answer */
  #handOver: HandOver | undefined

  constructor (owner: ConnectionOwner) {
    this.#owner = owner
    this.#reader = new AnswerReader(owner.answerHeads)
  }

  /** Connects, and sends the request. @param dial with `onread` */
  open (dial: Dial, asked: Parameters<Dial>[0], call: LaneCall): void {
    this.#call = call
    try {
      dial(asked, (...[error, socket]) => {
        if (error === null) this.#own(socket)
        else this.#fail(error)
      })
    } catch (thrown) {
      this.#fail(thrown as Error)
    }
  }

  #own (socket: OwnedSocket): void {
    if (this.#call === undefined) { socket.on('error', () => {}).destroy(); return }
    this.#socket = socket
    socket[CONNECTION] = this
    socket.on('end', onEnd).on('error', onError).on('close', onClose)
    this.write()
  }

  use (): boolean {
    return this.#requests++ > 0
  }

  get isConnected (): boolean {
    return this.#socket?.destroyed === false
  }

  /** Gives it its next request, which is not written yet. */
  take (call: LaneCall): void {
    this.#call = call
    this.#isWritten = false
    this.#socket!.ref()
  }

  write (): void {
    const call = this.#call
    if (call === undefined) return                            // it was closed meanwhile
    if (!this.isConnected) { this.#fail(new errors.SocketError('closed')); return }
    call.carrier = this
    if (!call.start(this)) return
    this.#isWritten = true
    const { head, body } = call
    if (body === undefined) { this.#socket!.write(`${head}\r\n`, 'latin1'); return }
    const length = Buffer.byteLength(body)
    const bytes = memoryFor(this.#socket!, head.length + MOST_OF_LENGTH + length)
    let at = bytes.write(head, 'latin1')
    at = put(bytes, at, 'content-length: ')
    at = put(bytes, at, String(length))
    at = put(bytes, at, '\r\n\r\n')
    send(this.#socket!, bytes, at + bytes.write(body, at, length === body.length ? 'latin1' : 'utf8'))
  }

  /** Closes it at once. @param error of the request that it has */
  destroy (error: Error): void {
    const call = this.#call
    this.#close()
    call?.fail(error)
  }

  onRead (bytes: Buffer, length: number): void {
    this.bytesRead += length
    if (this.#handOver !== undefined) { this.#handOver.bring(Buffer.from(bytes.subarray(0, length))); return }
    const call = this.#call
    if (call === undefined || !this.#isWritten) {             // nobody has asked
      this.#fail(new errors.SocketError('bad response'))
      return
    }
    this.#reader.read(bytes, length)
    this.#deliver(call)
  }

  onEnd (): void {
    if (this.#handOver !== undefined) this.#handOver.finish()
    else this.#fail(this.#cutBy(new errors.SocketError('other side closed')))
  }

  onError (error: Error): void {
    if (this.#handOver !== undefined) this.#handOver.fail(error)
    else this.#fail('code' in error && error.code === 'ECONNRESET' ? this.#cutBy(error) : error)
  }

  onClose (): void {
    if (this.#handOver === undefined) { this.#fail(new errors.SocketError('closed')); return }
    this.#handOver.close()
    this.#close()
  }

  /**
   * As undici does, what comes next is delivered, and then nothing more. So a call that is paused reads the end of its
   * answer, if that is all there is.
   */
  pause (): void {}

  resume (): void {
    if (!this.#isHalted) return
    this.#isHalted = false
    this.#socket!.resume()
    this.#deliver(this.#call!)
  }

  drop (): void {
    if (this.#isWritten) { this.#close(); return }
    this.#call = undefined
    this.#rest(this.#reader.idleMs)
  }

  /** Passes on what was read, as far as the call takes it. */
  #deliver (call: LaneCall): void {
    if (!this.#pass(call)) {
      if (call.isOver) return
      this.#isHalted = true
      this.#socket!.pause()
      return
    }
    if (this.#reader.phase === 'over') this.#end(call)
    else if (this.#reader.phase === 'foreign') this.#giveAway(call)
  }

  #pass (call: LaneCall): boolean {
    const { headers, status } = this.#reader
    if (headers !== undefined) {
      this.#reader.headers = undefined
      if (!call.takeHead(status, headers)) return false
    }
    const { body } = this.#reader
    if (body === undefined) return true
    this.#reader.body = undefined
    return call.takeBody(body)
  }

  #end (call: LaneCall): void {
    this.#call = undefined
    const { excess, idleMs } = this.#reader
    this.#reader.reset()
    this.#owner.recordAnswer(true)
    if (excess > 0 || idleMs === 0) this.#close()
    else this.#rest(idleMs)
    call.end()
  }

  #giveAway (call: LaneCall): void {
    const handed = this.#reader.handed!
    this.#reader.reset()
    this.#owner.recordAnswer(false)
    this.#handOver = new HandOver(call, this.#socket!, handed, handed.hasHead)
    call.carrier = this.#handOver
  }

  #rest (ms: number): void {
    this.#socket!.unref()
    this.#owner.rest(this, ms)
  }

  #fail (error: Error): void {
    const call = this.#call
    const isUnsent = this.#socket !== undefined && !this.#isWritten
    this.#close()
    if (isUnsent && call !== undefined) this.#owner.again(call)
    else call?.fail(error)
  }

  #close (): void {
    this.#call = undefined
    this.#owner.remove(this)
    this.#socket?.destroy()
  }

  /** The error of an answer that its connection cuts: of one that says `Connection: close`, as undici says it. */
  #cutBy (error: Error): Error {
    const { phase, closes, isChunked } = this.#reader
    if (phase === 'head' || !closes) return error
    return isChunked
      ? new errors.HTTPParserError('Response does not match the HTTP/1.1 protocol (Invalid EOF state)')
      : new errors.ResponseContentLengthMismatchError()
  }
}
