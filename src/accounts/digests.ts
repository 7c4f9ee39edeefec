// Looks up items by the SHA-256 of their secret; holds no secret. In constant time, whatever the number of items.
import { hash, timingSafeEqual } from 'node:crypto'

export class Digests<T> {
  /** By the first 48 bits of the digest: what a lookup's timing reveals is of no use without inverting SHA-256. */
  readonly #entries = new Map<number, { readonly digest: Buffer, readonly value: T }[]>()

  add (digest: Buffer, value: T): void {
    const bucket = bucketOf(digest)
    const entries = this.#entries.get(bucket)
    if (entries === undefined) this.#entries.set(bucket, [{ digest, value }])
    else entries.push({ digest, value })
  }

  find (digest: Buffer): T | undefined {
    const entries = this.#entries.get(bucketOf(digest))
    if (entries === undefined) return undefined
    for (const entry of entries) if (timingSafeEqual(entry.digest, digest)) return entry.value
    return undefined
  }

  delete (digest: Buffer): void {
    const bucket = bucketOf(digest)
    const left = (this.#entries.get(bucket) ?? []).filter((entry) => !entry.digest.equals(digest))
    if (left.length === 0) this.#entries.delete(bucket)
    else this.#entries.set(bucket, left)
  }
}

export function digestOf (secret: string): Buffer {
  return hash('sha256', secret, 'buffer')
}

/** The same in hexadecimal: a quarter of a buffer's memory. */
export function hexDigestOf (secret: string): string {
  return hash('sha256', secret, 'hex')
}

function bucketOf (digest: Buffer): number {
  return digest.readUIntLE(0, 6)
}
