// Counts tokens of text that was produced: an estimate for answers whose provider did not say. The only user of the tokenizer.
import { createRequire } from 'node:module'
import type * as o200k from 'gpt-tokenizer/encoding/o200k_base'

type Tokenizer = typeof o200k

let tokenizer: Tokenizer | undefined

/**
 * Loads the tokenizer, once: 100 ms and 70 MB. The gateway does it before it listens; the threads that only check
 * configurations import this module and never count.
 */
export function loadTokenizer (): Tokenizer {
  if (tokenizer === undefined) {
    tokenizer = createRequire(import.meta.url)('gpt-tokenizer/encoding/o200k_base') as Tokenizer
    // It remembers each piece that it merged. Its default of 100,000 pieces of up to a slice each is 1 GB, filled by
    // whoever makes a model print noise; 2,000 are at most some 20 MB, and as fast on prose (measured).
    tokenizer.setMergeCacheSize(2000)
  }
  return tokenizer
}

function countTokens (text: string): number {
  // Without this an answer that quotes "<|endoftext|>" makes the tokenizer throw.
  return loadTokenizer().countTokens(text, asPlainText)
}

const asPlainText = { disallowedSpecial: new Set<string>() }

// Byte pair encoding takes time with the square of a run without spaces: 16 KB of "aaaa…" block for 105 ms, 512 characters for
// less than 1 ms (measured). So text is never counted in larger slices than this.
const SLICE = 512

/** Most streams end well, and nobody asks how much they produced: so text waits for a while before it is counted. */
const WAITING = 8 * 1024

/**
 * Counts the tokens of a text that arrives in pieces. Keeps at most 8 K characters of it.
 * The count depends on the text alone, not on how it was cut into pieces. It is the tokenizer's own for the whole text where
 * every slice could be cut before a space; each cut elsewhere (no space in 256 characters) moves it by a token or two.
 */
export class Produced {
  #tokens = 0
  #rest = ''

  add (text: string): void {
    this.#rest += text
    if (this.#rest.length >= WAITING) this.#count()
  }

  #count (): void {
    while (this.#rest.length >= SLICE) {
      const cut = findCut(this.#rest)
      this.#tokens += countTokens(this.#rest.slice(0, cut))
      this.#rest = this.#rest.slice(cut)
    }
  }

  /** Counts what is left each time: ask at the end. */
  get tokens (): number {
    this.#count()
    return this.#tokens + countTokens(this.#rest)
  }
}

/** Where to cut, looking at the first SLICE characters only. */
function findCut (text: string): number {
  // No piece of the o200k pattern goes from a non-space over a U+0020, so a cut there changes no token.
  let space = text.lastIndexOf(' ', SLICE - 1)
  while (space > SLICE / 2) {
    if (!/\s/.test(text[space - 1]!)) return space
    space = text.lastIndexOf(' ', space - 1)
  }
  const last = text.charCodeAt(SLICE - 1)
  const isHalfOfPair = last >= 0xD800 && last <= 0xDBFF
  return isHalfOfPair ? SLICE - 1 : SLICE
}
