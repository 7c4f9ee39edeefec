// Estimates the tokens of a text from its number of characters of each class. One pass; the text is not kept.

/** Classes of characters that tokenizers treat alike, with the tokens of one character at first, and at most. */
const CLASSES = [
  /** of ASCII */
  { name: 'letter', start: 1 / 4, most: 3 / 4 },
  { name: 'digit', start: 1 / 2, most: 1 },
  /** part of the word behind it */
  { name: 'space', start: 1 / 64, most: 3 / 64 },
  /** new lines and control characters too */
  { name: 'punctuation', start: 3 / 4, most: 1 },
  /** of the two above, equal to the character before it: indentation, lines of dashes */
  { name: 'repetition', start: 1 / 32, most: 3 / 32 },
  /** U+0080 to U+07FF: Cyrillic, Greek, Arabic, Hebrew, Latin letters with accents */
  { name: 'two bytes', start: 3 / 8, most: 9 / 8 },
  /** U+0800 to U+1FFF: the scripts of India, Thai, Georgian, Ethiopic */
  { name: 'syllable', start: 1 / 2, most: 3 / 2 },
  /** from U+2000 on: Chinese, Japanese, Korean, symbols; a pair of surrogates is two */
  { name: 'ideograph', start: 3 / 4, most: 2 }
] as const

/** Indexes of the classes in that list. */
const [LETTER, DIGIT, SPACE, PUNCTUATION] = [0, 1, 2, 3] as const
const [REPETITION, TWO_BYTES, SYLLABLE, IDEOGRAPH] = [4, 5, 6, 7] as const
const SPACES: readonly number[] = [9, 13, 32]

/** In the place of a class: no character of its own, and two ideographs. */
const [CONTINUATION, PAIR] = [8, 9] as const

/** The class of the character that begins with a byte of UTF-8. */
const CLASS = Uint8Array.from({ length: 256 }, (_, byte) => {
  if ((byte >= 65 && byte <= 90) || (byte >= 97 && byte <= 122)) return LETTER
  if (byte >= 48 && byte <= 57) return DIGIT
  if (byte < 128) return SPACES.includes(byte) ? SPACE : PUNCTUATION
  if (byte < 0xC0) return CONTINUATION
  if (byte < 0xE0) return TWO_BYTES
  if (byte < 0xF0) return byte < 0xE2 ? SYLLABLE : IDEOGRAPH
  return PAIR
})

/** Tokens per character, by class. */
export type Rates = readonly number[]

/**
 * The rates before any report: within a third of what the vocabularies o200k and cl100k make of English and of code; of
 * other languages between a quarter less than the fewer and a third more than the more (measured,
 * test/fixtures/token-counts.json).
 */
export const START_RATES: Rates = CLASSES.map(({ start }) => start)
/** No tokenizer makes more tokens than there are bytes, so neither does an estimate. */
export const MOST_RATES: Rates = CLASSES.map(({ most }) => most)
/** As far below the start as the most is above it at most. */
export const LEAST_RATES: Rates = START_RATES.map((rate) => rate / 3)
/** Most tokens that a character is estimated as, whatever its class and the rates. */
export const MOST_RATE = Math.max(...MOST_RATES)

const NONE: readonly number[] = Object.freeze(CLASSES.map(() => 0))
const NOTHING: Counts = { counts: NONE, last: -1 }

/** Characters from which on a text is counted: pieces are counted together. */
const TOGETHER = 128
/** Characters that are counted at once, and their bytes: an array is read at half the price of a string (measured). */
const BLOCK = 1024
const block = Buffer.alloc(3 * BLOCK)

/** What a count has counted; it can be copied between threads. */
export interface Counts {
  /** by class */
  readonly counts: readonly number[]
  /** byte; -1: none */
  readonly last: number
}

/** Counts the characters of a text that arrives in pieces; the result does not depend on the pieces. */
export class TextCount {
  /** `NONE` until there is a text: most answers are counted elsewhere, and taken over */
  #counts: readonly number[]
  /** the last byte */
  #last: number
  /** added, and not counted yet */
  #added = ''

  /** @param before to be continued: it becomes the count's own */
  constructor ({ counts, last }: Counts = NOTHING) {
    this.#counts = counts
    this.#last = last
  }

  /** Goes on from what another count has counted, which becomes its own; it has counted nothing yet. */
  takeOver ({ counts, last }: Counts): void {
    this.#counts = counts
    this.#last = last
  }

  /** So far; to be read at once, and not to be changed. */
  get counted (): Counts {
    this.#count()
    return { counts: this.#counts, last: this.#last }
  }

  add (text: string): void {
    this.#added += text
    if (this.#added.length >= TOGETHER) this.#count()
  }

  #count (): void {
    const text = this.#added
    this.#added = ''
    for (let at = 0; at < text.length; at += BLOCK) this.#countBlock(text.slice(at, at + BLOCK))
  }

  #countBlock (text: string): void {
    const counts = this.#own()
    const length = block.write(text)
    let letters = 0
    let last = this.#last
    for (let i = 0; i < length; i++) {
      const byte = block[i]!
      const kind = CLASS[byte]!
      if (kind === LETTER) letters++
      else if (kind === PAIR) counts[IDEOGRAPH] = counts[IDEOGRAPH]! + 2
      else if (kind !== CONTINUATION) {
        const counted = byte === last && (kind === SPACE || kind === PUNCTUATION) ? REPETITION : kind
        counts[counted] = counts[counted]! + 1
      }
      last = byte
    }
    counts[LETTER] = counts[LETTER]! + letters
    this.#last = last
  }

  #own (): number[] {
    if (this.#counts === NONE) this.#counts = [...NONE]
    return this.#counts as number[]
  }

  /** Counts base64 as letters, unread. */
  addLetters (count: number): void {
    const counts = this.#own()
    counts[LETTER] = counts[LETTER]! + count
  }

  /** An estimate: 0 for no text, and at least 1 for any other; more text never has fewer. */
  tokens (rates: Rates): number {
    const weight = this.weigh(rates)
    return weight === 0 ? 0 : Math.max(1, Math.round(weight))
  }

  /** The estimate with this text, which is not added. */
  tokensWith (text: string, rates: Rates): number {
    const { counts, last } = this.counted
    const copy = new TextCount({ counts: [...counts], last })
    copy.add(text)
    return copy.tokens(rates)
  }

  /** The estimate before it is rounded. */
  weigh (rates: Rates): number {
    this.#count()
    let weight = 0
    for (let kind = 0; kind < rates.length; kind++) weight += this.#counts[kind]! * rates[kind]!
    return weight
  }
}
