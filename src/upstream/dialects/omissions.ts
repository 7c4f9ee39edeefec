// What the gateway says in the place of a vendor that leaves it out, in messages style.
import type { Exchange } from '../../core/exchange.ts'
import { Model } from '../../core/facts.ts'
import type { Json } from '../../base/json.ts'
import { estimateInput } from '../../tokens/bound.ts'
import { guessed } from '../../money/usage.ts'
import { writtenIn } from '../../protocols/messages.ts'

/** The 24 characters of the request id, as in all ids of answers that we make. */
export function messageId ({ id }: Exchange): string {
  return `msg_${id.slice(id.indexOf('_') + 1)}`
}

/** Of a vendor that has not reported any, or not yet. @param characters that were produced */
export function guessUsage (exchange: Exchange, characters: number): Json {
  return { input_tokens: guessInput(exchange), output_tokens: guessOutput(characters), [guessed]: true }
}

export function guessInput (exchange: Exchange): number {
  return estimateInput(exchange.request.body, exchange.get(Model).context)
}

/** @param characters that were produced */
export function guessOutput (characters: number): number {
  return Math.ceil(characters / 4)
}

/** Of a whole answer. */
export function charactersOf (content: readonly unknown[]): number {
  return content.reduce<number>((sum, block) => sum + writtenIn(block).length, 0)
}
