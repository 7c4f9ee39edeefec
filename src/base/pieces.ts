// Bytes in pieces, and between threads.

/**
 * Encodes a text in pieces of their own memory: a piece is freed when it is sent, and an unsent one keeps no other.
 * @param length of a piece, in characters
 */
export function piecesOf (text: string, length: number): readonly Buffer[] {
  const pieces: Buffer[] = []
  for (let at = 0, end = 0; at < text.length; at = end) {
    end = at + length
    // A surrogate pair must not be split: half of it has no encoding of its own.
    if (/[\uD800-\uDBFF]/.test(text.charAt(end - 1))) end++
    pieces.push(Buffer.from(text.slice(at, end)))
  }
  return pieces
}

/** The bytes as a Buffer: copied between threads, one is a plain array. Nothing is copied here. */
export function bufferOf ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength)
}
