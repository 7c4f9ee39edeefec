// Decodes answers that come compressed although the request did not ask for it, while they arrive. Memory for one is
// bounded by the buffers of its streams: while decoded bytes are not taken, no more are read.
import type { Transform } from 'node:stream'
import { constants, createBrotliDecompress, createGunzip, createInflate, createInflateRaw,
  createZstdDecompress } from 'node:zlib'

/** A truncated answer decodes up to the cut: its reader notices that it is incomplete. */
const ZLIB = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH } as const
const BROTLI = { flush: constants.BROTLI_OPERATION_FLUSH, finishFlush: constants.BROTLI_OPERATION_FLUSH } as const
const ZSTD = { flush: constants.ZSTD_e_flush, finishFlush: constants.ZSTD_e_flush } as const

/** The content coding of an answer. Undefined: identity, or an unknown coding, which is passed on as it is. */
export type Coding = 'gzip' | 'deflate' | 'br' | 'zstd' | undefined

/** @throws {Error} several codings on top of each other: only a hostile server sends that */
export function codingOf (header: string | readonly string[] | undefined): Coding {
  if (header === undefined) return undefined
  const codings = String(header).toLowerCase().split(',').map((coding) => coding.trim().replace(/^x-/, ''))
    .filter(isCoding)
  if (codings.length > 1) throw new Error(`the answer is compressed ${codings.length} times over`)
  return codings[0]
}

function isCoding (name: string): name is NonNullable<Coding> {
  return name === 'gzip' || name === 'deflate' || name === 'br' || name === 'zstd'
}

/** @param first bytes of the body: "deflate" is zlib's format (RFC 9110 8.4.1.2), but some servers send raw deflate */
export function createDecoder (coding: NonNullable<Coding>, first: Buffer = Buffer.from([8])): Transform {
  switch (coding) {
    case 'gzip': return createGunzip(ZLIB)
    case 'deflate': return (first[0]! & 0x0F) === 8 ? createInflate(ZLIB) : createInflateRaw(ZLIB)
    case 'br': return createBrotliDecompress(BROTLI)
    case 'zstd': return createZstdDecompress(ZSTD)
  }
}

export interface InflaterListener {
  onData (chunk: Buffer): void
  /** the decoder takes no more for now, or takes more again */
  onFull (): void
  onDrain (): void
  /** all decoded bytes were passed on */
  onEnd (): void
  onError (cause: Error): void
}

/** The decoder of one answer. After `onEnd`, `onError` or `destroy` no call follows. */
export class Inflater {
  readonly #coding: NonNullable<Coding>
  readonly #listener: InflaterListener
  #decoder: Transform | undefined
  #isPaused = false

  constructor (coding: NonNullable<Coding>, listener: InflaterListener) {
    this.#coding = coding
    this.#listener = listener
  }

  write (chunk: Buffer): void {
    if (chunk.length === 0) return
    this.#decoder ??= this.#open(chunk)
    if (!this.#decoder.write(chunk)) this.#listener.onFull()
  }

  /** Passes on what is still buffered, then calls `onEnd`. */
  end (): void {
    if (this.#decoder === undefined) this.#listener.onEnd()
    else this.#decoder.end()
  }

  pause (): void {
    this.#isPaused = true
    this.#decoder?.pause()
  }

  resume (): void {
    this.#isPaused = false
    this.#decoder?.resume()
  }

  /** Whether buffered output must be taken before more input. */
  get isFull (): boolean {
    return this.#decoder?.writableNeedDrain === true
  }

  destroy (): void {
    this.#decoder?.removeAllListeners().on('error', () => {}).destroy()
  }

  #open (first: Buffer): Transform {
    const { onData, onDrain, onEnd, onError } = this.#listener
    const decoder = createDecoder(this.#coding, first).on('data', onData).on('drain', onDrain).on('end', onEnd).on(
      'error',
      onError
    )
    if (this.#isPaused) decoder.pause()
    return decoder
  }
}
