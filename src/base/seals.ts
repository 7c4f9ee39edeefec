// Sealed texts: encrypted and authenticated (AES-256-GCM), so that a client that keeps one can neither read nor change
// it. What a text is for, and whose it is, decides its key: it opens for no other purpose and no other account.
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'
import { randomSecret } from './secrets.ts'

/** How every sealed text begins: no base64 does, since "_" is only in base64url. */
const PREFIX = 'gwseal1_'
const CIPHER = 'aes-256-gcm'
const KEY_BYTES = 32
const ID_BYTES = 4
const NONCE_BYTES = 12
const TAG_BYTES = 16
/** Most keys that are kept, of one secret; deriving one takes 7 µs (measured). */
const MOST_KEYS = 4096

/** Whether a text has the form of a sealed one, of this gateway or another. */
export function isSealed (text: string): boolean {
  return text.startsWith(PREFIX)
}

/** Bytes of the value in a text of that form. */
export function sealedBytes (text: string): number {
  return Math.max(0, Math.floor((text.length - PREFIX.length) * 3 / 4) - ID_BYTES - NONCE_BYTES - TAG_BYTES)
}

/** Seals that end with their process. */
export function scratchSeals (): Seals {
  return new Seals([randomSecret()])
}

export class Seals {
  readonly #texts: readonly [string, ...string[]]
  readonly #first: Secret
  /** by their ids; the ids of two random secrets are the same once in four billion times, then the first counts */
  readonly #secrets = new Map<number, Secret>()

  /** @param secrets the first seals, all of them open; with as much chance in each as in a key */
  constructor (texts: readonly [string, ...string[]]) {
    const [first, ...former] = texts
    this.#texts = texts
    this.#first = new Secret(first)
    for (const secret of [this.#first, ...former.map((text) => new Secret(text))]) {
      if (!this.#secrets.has(secret.id)) this.#secrets.set(secret.id, secret)
    }
  }

  /** For the same in another thread of the process. */
  get secrets (): readonly [string, ...string[]] {
    return this.#texts
  }

  /**
   * @param purpose a word: what was sealed for one purpose opens for no other
   * @param account id
   * @returns letters, digits, "_" and "-": the prefix, then base64url of key id, nonce, ciphertext and tag; 50
   * characters and a third more than the UTF-8 bytes of the value
   */
  seal (purpose: string, account: string, value: string): string {
    return PREFIX + this.sealBytes(purpose, account, [value]).toString('base64url')
  }

  /** As `seal`, for what the gateway keeps itself: 32 bytes more than the pieces, one after the other. */
  sealBytes (purpose: string, account: string, pieces: readonly (string | Uint8Array)[]): Buffer {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(CIPHER, this.#first.keyOf(purpose, account), nonce, { authTagLength: TAG_BYTES })
    const sealed = pieces.map((piece) => typeof piece === 'string' ? cipher.update(piece, 'utf8') : cipher.update(piece))
    return Buffer.concat([this.#first.idBytes, nonce, ...sealed, cipher.final(), cipher.getAuthTag()])
  }

  /**
   * The value. Undefined: not sealed, changed, another purpose's or account's, or of a secret that is not known any
   * more. Never throws.
   */
  open (purpose: string, account: string, sealed: string): string | undefined {
    if (!isSealed(sealed)) return undefined
    const text = sealed.slice(PREFIX.length)
    const bytes = Buffer.from(text, 'base64url')
    // One spelling for one value: the decoder reads over what is no base64url.
    return bytes.toString('base64url') === text ? this.openBytes(purpose, account, bytes)?.toString('utf8') : undefined
  }

  /** What `sealBytes` has sealed. Undefined as for `open`. */
  openBytes (purpose: string, account: string, bytes: Buffer): Buffer | undefined {
    if (bytes.length < ID_BYTES + NONCE_BYTES + TAG_BYTES) return undefined
    const secret = this.#secrets.get(bytes.readUInt32BE())
    if (secret === undefined) return undefined
    const [begin, end] = [ID_BYTES + NONCE_BYTES, bytes.length - TAG_BYTES]
    const decipher = createDecipheriv(CIPHER, secret.keyOf(purpose, account), bytes.subarray(ID_BYTES, begin),
      { authTagLength: TAG_BYTES })
    decipher.setAuthTag(bytes.subarray(end))
    const value = decipher.update(bytes.subarray(begin, end))
    try {
      return Buffer.concat([value, decipher.final()])
    } catch {
      return undefined
    }
  }
}

class Secret {
  readonly idBytes: Buffer
  readonly #text: string
  readonly #keys = new Map<string, Buffer>()

  constructor (text: string) {
    this.#text = text
    this.idBytes = this.#derive('key id', ID_BYTES)
  }

  get id (): number {
    return this.idBytes.readUInt32BE()
  }

  /** A key of its own for each account: random nonces of one key must not be used up by all of them. */
  keyOf (purpose: string, account: string): Buffer {
    const name = `key\n${purpose}\n${account}`
    let key = this.#keys.get(name)
    if (key === undefined) {
      if (this.#keys.size >= MOST_KEYS) this.#keys.delete(this.#keys.keys().next().value!)
      this.#keys.set(name, key = this.#derive(name, KEY_BYTES))
    }
    return key
  }

  #derive (name: string, bytes: number): Buffer {
    return Buffer.from(hkdfSync('sha256', this.#text, PREFIX, name, bytes))
  }
}
