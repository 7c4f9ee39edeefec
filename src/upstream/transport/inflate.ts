// Answers that come compressed although nobody asked for that: decoded while they come. No more of one is in memory
// than streams hold at once: while what was decoded is not taken, nothing more is read.
import type { Transform } from 'node:stream'
import { constants, createBrotliDecompress, createGunzip, createInflate, createInflateRaw,
  createZstdDecompress } from 'node:zlib'

/** What was cut short ends where it was cut: whoever reads it sees that it is not whole. */
const ZLIB = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH } as const
const BROTLI = { flush: constants.BROTLI_OPERATION_FLUSH, finishFlush: constants.BROTLI_OPERATION_FLUSH } as const
const ZSTD = { flush: constants.ZSTD_e_flush, finishFlush: constants.ZSTD_e_flush } as const

/** Of an answer, or what its header says of it. Undefined: it is sent as it is, or in a way that nobody knows. */
export type Coding = 'gzip' | 'deflate' | 'br' | 'zstd' | undefined

/** @throws {Error} it is compressed several times over: no server does that but to do harm */
export function codingOf (header: string | readonly string[] | undefined): Coding {
  const codings = String(header ?? '').toLowerCase().split(',').map((coding) => coding.trim().replace(/^x-/, ''))
    .filter(isCoding)
  if (codings.length > 1) throw new Error(`the answer is compressed ${codings.length} times over`)
  return codings[0]
}

function isCoding (name: string): name is NonNullable<Coding> {
  return name === 'gzip' || name === 'deflate' || name === 'br' || name === 'zstd'
}

/**
 * @param first bytes of it: "deflate" is zlib's format (RFC 9110 8.4.1.2), but some servers send it without its head
 */
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
  /** it can take no more, or takes more again */
  onFull (): void
  onDrain (): void
  /** all is handed over */
  onEnd (): void
  onError (cause: Error): void
}

/** One answer. After `onEnd`, `onError` or `destroy` nothing comes any more. */
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

  /** What is still held is handed over, then `onEnd` comes. */
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

  /** Whether it holds what must be taken before it is given more. */
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
