// The simulator's tokens. Not a real tokenizer: a rule that a test or a person can count by hand.

// A word with the white space before it; a word of more than 8 characters is cut into pieces of 8, as real tokenizers
// cut long words. `u`: a piece never ends inside a surrogate pair.
const piece = /\s+\S{0,8}|\S{1,8}/gu

/** The tokens of a text; joined they are the text again. The simulator streams one per event. */
export function tokensOf (text: string): string[] {
  return text.match(piece) ?? []
}

/** The number of tokens that `tokensOf` would make, without making them: a prompt may have megabytes. */
export function countTokens (text: string): number {
  let count = 0
  for (const _ of text.matchAll(piece)) count++
  return count
}

/** Media have a fixed price in tokens, whatever their size. */
export const imageTokens = 1_000
export const documentTokens = 2_000
