// Completes a whole answer of messages style (src/README.md#message-shape): vendors that imitate the style leave parts
// out.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { UpstreamErrorBody } from '../error-reply.ts'
import { messageId } from '../omissions.ts'
import { WholeBlocks } from './blocks.ts'
import { sealBlock } from './thoughts.ts'
import { wholeUsage } from './usage.ts'

/** @throws {UpstreamErrorBody} the vendor's error, in an answer's status; {Error} it is no message */
export function toMessage (body: unknown, exchange: Exchange, upstream: Upstream): Json {
  if (!isRecord(body)) throw new Error('the answer is no object')
  const { content: said, type, error } = body
  if (!Array.isArray(said) && (type === 'error' || isRecord(error))) throw new UpstreamErrorBody(body)
  if ((type ?? 'message') !== 'message' || (type === undefined && said === undefined)) {
    throw new Error('the answer is not a message')
  }
  const blocks = new WholeBlocks(exchange)
  const content = contentOf(said).map((block) => sealBlock(blocks.fill(block), exchange, upstream))
  return Object.assign(body, {                                // just parsed, and not shared
    ...headOf(body, exchange),
    content,
    stop_reason: typeof body.stop_reason === 'string'
      ? body.stop_reason
      : reasonFor(content.some((block) => block.type === 'tool_use')),
    stop_sequence: body.stop_sequence ?? null,
    usage: wholeUsage(body.usage, exchange, content)
  })
}

function contentOf (said: unknown): readonly unknown[] {
  if (typeof said === 'string') return [{ type: 'text', text: said }]
  if (said === undefined || said === null) return []
  if (!Array.isArray(said)) throw new Error('the content of the answer is no list')
  return said
}

/** The fields that a message has from its start; the model is the client's. */
export function headOf ({ id }: Json, exchange: Exchange): Json {
  return { id: typeof id === 'string' && id !== '' ? id : messageId(exchange), type: 'message', role: 'assistant',
    model: exchange.request.body.model }
}

/** The stop reason for a vendor that sends none. */
export function reasonFor (hasCalls: boolean): string {
  return hasCalls ? 'tool_use' : 'end_turn'
}
