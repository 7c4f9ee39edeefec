// Translates a message into a response, as JSON.
import { isRecord, type Json } from '../../src/base/json.ts'
import { readUsage } from '../../src/money/usage.ts'
import { costOf } from '../../src/translation/cost.ts'
import { thinkingTokens } from '../../src/translation/thinking.ts'
import type { Seal } from './items.ts'
import { incompleteReason, Output, type OutputListener } from './output.ts'
import { type Frame, responseOf, responseUsage, type State } from './response.ts'
import type { ResponseShape } from './shape.ts'

const unheard: OutputListener = { begun () {}, said () {}, ended () {} }

/**
 * @param charged what it cost, in decimal US dollars, if that is known
 * @throws {GatewayError} the model called a tool that may not be called
 */
export function toResponse (message: Json, frame: Frame, shape: ResponseShape, seal: Seal, charged?: unknown): Json {
  const output = new Output(frame.id, shape, seal, unheard)
  const blocks: readonly unknown[] = Array.isArray(message.content) ? message.content : []
  blocks.forEach((block, i) => {
    if (!isRecord(block)) return
    output.start(i, block)
    output.stop(i)
  })
  output.end(message.stop_reason, message.stop_details)
  const usage = { ...responseUsage(readUsage(message.usage), thinkingTokens(message.usage) ?? 0), ...costOf(charged) }
  const reason = incompleteReason(message.stop_reason)
  const state: State = reason === undefined ? { status: 'completed', usage } : { status: 'incomplete', reason, usage }
  return { ...responseOf(frame, shape.echo, state), output: output.items }
}
