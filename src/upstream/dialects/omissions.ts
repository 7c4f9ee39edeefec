// Defaults for parts that a vendor leaves out of an answer, in messages style.
import type { Exchange } from '../../core/exchange.ts'
import type { Json } from '../../base/json.ts'
import { likeRequestId } from '../../base/request-id.ts'
import { inputEstimate } from '../../tokens/bound.ts'
import { guessed } from '../../money/usage.ts'
import { writtenIn } from '../../protocols/messages.ts'

/** Made of the request id's 24 characters, as all ids in answers of the gateway's own. */
export function messageId ({ id }: Exchange): string {
  return likeRequestId('msg_', id)
}

/** Estimated usage, for a vendor that has not reported any, or not yet. @param characters of output so far */
export function guessUsage (exchange: Exchange, characters: number): Json {
  return { input_tokens: guessInput(exchange), output_tokens: guessOutput(characters), [guessed]: true }
}

export function guessInput (exchange: Exchange): number {
  return inputEstimate(exchange)
}

/** @param characters of output so far */
export function guessOutput (characters: number): number {
  return Math.ceil(characters / 4)
}

/** Characters of a whole answer. */
export function charactersOf (content: readonly unknown[]): number {
  return content.reduce<number>((sum, block) => sum + writtenIn(block).length, 0)
}
