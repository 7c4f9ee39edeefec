// What is estimated of tokens, for tests that say what of: how much has its own tests (test/money/tokens.test.ts).
import { START_RATES, TextCount, type Rates } from '../../src/tokens/text-count.ts'

export function counted (...pieces: readonly string[]): TextCount {
  const count = new TextCount()
  for (const piece of pieces) count.add(piece)
  return count
}

/** Where nothing was learned yet. Four letters of ASCII are one token. */
export function tokensOf (text: string, rates: Rates = START_RATES): number {
  return counted(text).tokens(rates)
}
