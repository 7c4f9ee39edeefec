// JSON as bytes, for lines that are printed for every request: two thirds of the work of JSON.stringify and of writing
// its text (measured), and no text that the garbage collector has to clear away.

const FIRST_BYTES = 4096
/** Above it numbers are printed by the engine. */
const MOST = Number.MAX_SAFE_INTEGER
const MOST_AMOUNT = BigInt(MOST)
/** Most that is counted in 32 bits, and its digits. */
const MOST_SMALL = 2 ** 31 - 1
const MOST_DIGITS = 10
const [BILLION, BILLION_DIGITS] = [1e9, 9] as const

const [QUOTE, COMMA, ZERO, COLON, BACKSLASH] = [34, 44, 48, 58, 92] as const
/** The first and the last character that ASCII prints. */
const [SPACE, TILDE] = [32, 126] as const

export class JsonBytes {
  #bytes = Buffer.allocUnsafe(FIRST_BYTES)
  #length = 0

  /** What was written is the beginning of it, of `length` bytes; valid until more is written. */
  get bytes (): Buffer {
    return this.#bytes
  }

  get length (): number {
    return this.#length
  }

  clear (): void {
    this.#length = 0
  }

  /** Takes back what was written behind the first bytes. */
  cut (length: number): void {
    this.#length = length
  }

  toString (): string {
    return this.#bytes.toString('utf8', 0, this.#length)
  }

  /** @param json as it is */
  raw (json: string): void {
    const bytes = this.#room(json.length)
    const start = this.#length
    for (let i = 0; i < json.length; i++) {
      const code = json.charCodeAt(i)
      if (code > TILDE) { this.#write(json); return }
      bytes[start + i] = code
    }
    this.#length = start + json.length
  }

  /** The name of another field: a comma before it, a colon behind it. @param name without what JSON escapes */
  name (name: string): void {
    const bytes = this.#room(name.length + 4)
    let at = this.#length
    bytes[at++] = COMMA
    bytes[at++] = QUOTE
    for (let i = 0; i < name.length; i++) bytes[at++] = name.charCodeAt(i)
    bytes[at++] = QUOTE
    bytes[at++] = COLON
    this.#length = at
  }

  /** @param value of a plugin without types it may be anything */
  text (value: string): void {
    if (typeof value !== 'string') { this.value(value); return }
    const bytes = this.#room(value.length + 2)
    let at = this.#length
    bytes[at++] = QUOTE
    for (let i = 0; i < value.length; i++) {
      const code = value.charCodeAt(i)
      if (code < SPACE || code > TILDE || code === QUOTE || code === BACKSLASH) {
        this.#write(JSON.stringify(value))
        return
      }
      bytes[at++] = code
    }
    bytes[at++] = QUOTE
    this.#length = at
  }

  /** Digit by digit, if it has at most three behind the point. @param value as of `text` */
  number (value: number): void {
    if (typeof value !== 'number') { this.value(value); return }
    const thousandths = Math.round(value * 1000)
    if (value >= 0 && value <= MOST && Math.floor(value) === value) this.#whole(value)
    else if (value > 0 && thousandths <= MOST_SMALL && thousandths / 1000 === value) this.#decimal(thousandths)
    else this.value(value)
  }

  /** Without quotes: readers whose numbers are not exact need it as text. */
  amount (value: bigint): void {
    const isNegative = value < 0n
    const size = isNegative ? -value : value
    if (size > MOST_AMOUNT) { this.raw(String(value)); return }
    if (isNegative) this.raw('-')
    this.#whole(Number(size))
  }

  /** Most are empty. */
  object (value: Readonly<Record<string, unknown>>): void {
    for (const _name in value) { this.value(value); return }
    this.raw('{}')
  }

  /** @param value is printed by JSON.stringify, as in a list. @throws what it throws */
  value (value: unknown): void {
    this.#write((JSON.stringify(value) as string | undefined) ?? 'null')
  }

  #decimal (thousandths: number): void {
    const rest = thousandths % 1000
    this.#digits((thousandths - rest) / 1000, 1)
    this.raw('.')
    if (rest % 100 === 0) this.#digits(rest / 100, 1)
    else if (rest % 10 === 0) this.#digits(rest / 10, 2)
    else this.#digits(rest, 3)
  }

  #whole (value: number): void {
    if (value <= MOST_SMALL) { this.#digits(value, 1); return }
    const rest = value % BILLION
    this.#whole((value - rest) / BILLION)
    this.#digits(rest, BILLION_DIGITS)
  }

  /** @param least digits, with zeros before the value */
  #digits (value: number, least: number): void {
    const bytes = this.#room(MOST_DIGITS)
    let count = 1
    for (let rest = value; rest > 9; rest = rest / 10 | 0) count++
    const start = this.#length
    let rest = value | 0
    this.#length += Math.max(count, least)
    for (let at = this.#length - 1; at >= start; at--) {
      const tens = rest / 10 | 0
      bytes[at] = ZERO + rest - tens * 10
      rest = tens
    }
  }

  #write (json: string): void {
    const bytes = this.#room(json.length * 3)                 // UTF-8 of a UTF-16 unit
    this.#length += bytes.write(json, this.#length)
  }

  #room (more: number): Buffer {
    const needed = this.#length + more
    if (needed <= this.#bytes.length) return this.#bytes
    const wider = Buffer.allocUnsafe(Math.max(needed, 2 * this.#bytes.length))
    this.#bytes.copy(wider, 0, 0, this.#length)
    return this.#bytes = wider
  }
}
