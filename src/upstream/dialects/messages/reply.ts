// Completes a whole answer of messages style (src/README.md#message-shape): vendors that imitate the style leave parts
// out.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { isErrorBody } from '../../../core/vendor-error.ts'
import { noAnswer, UpstreamErrorBody } from '../error-reply.ts'
import { messageId } from '../omissions.ts'
import { WholeBlocks } from './blocks.ts'
import { sealBlock } from './thoughts.ts'
import { wholeUsage } from './usage.ts'

/** @throws {UpstreamErrorBody} the vendor's error, in an answer's status; {Error} it is no message */
export function toMessage (body: unknown, exchange: Exchange, upstream: Upstream): Json {
  if (!isRecord(body)) throw noAnswer(body, 'the answer is no object')
  const { content: said, type } = body
  if (!Array.isArray(said) && isErrorBody(body)) throw new UpstreamErrorBody(body)
  if ((type ?? 'message') !== 'message' || (type === undefined && said === undefined)) {
    throw new Error('the answer is not a message')
  }
  const content = contentOf(said, exchange, upstream)
  const message: Record<string, unknown> = body               // just parsed, and not shared
  message.id = idOf(body, exchange)
  message.type = 'message'
  message.role = 'assistant'
  message.model = exchange.request.body.model
  message.content = content
  message.stop_reason = typeof body.stop_reason === 'string' ? body.stop_reason : reasonFor(content.some(isToolUse))
  message.stop_sequence = body.stop_sequence ?? null
  message.usage = wholeUsage(body.usage, exchange, content)
  return message
}

/** The blocks are completed in the list in which they came. */
function contentOf (said: unknown, exchange: Exchange, upstream: Upstream): readonly Json[] {
  const content = listOf(said)
  const blocks = new WholeBlocks(exchange)
  for (let i = 0; i < content.length; i++) content[i] = sealBlock(blocks.fill(content[i]), exchange, upstream)
  return content as readonly Json[]
}

function listOf (said: unknown): unknown[] {
  if (typeof said === 'string') return [{ type: 'text', text: said }]
  if (said === undefined || said === null) return []
  if (!Array.isArray(said)) throw new Error('the content of the answer is no list')
  return said
}

function isToolUse ({ type }: Json): boolean {
  return type === 'tool_use'
}

/** The fields that a message has from its start; the model is the client's. */
export function headOf (message: Json, exchange: Exchange): Json {
  return { id: idOf(message, exchange), type: 'message', role: 'assistant', model: exchange.request.body.model }
}

function idOf ({ id }: Json, exchange: Exchange): string {
  return typeof id === 'string' && id !== '' ? id : messageId(exchange)
}

/** The stop reason for a vendor that sends none. */
export function reasonFor (hasCalls: boolean): string {
  return hasCalls ? 'tool_use' : 'end_turn'
}
