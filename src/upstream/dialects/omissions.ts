// Defaults for parts that a vendor leaves out of an answer, in messages style. Usage is none of them: what is not
// reported the meter estimates, once, for the client and the bill.
import type { Exchange } from '../../core/exchange.ts'
import { SseEvent } from '../../core/sse.ts'
import type { Json } from '../../base/json.ts'
import { likeRequestId } from '../../base/request-id.ts'

/** Made of the request id's 24 characters, as all ids in answers of the gateway's own. */
export function messageId ({ id }: Exchange): string {
  return likeRequestId('msg_', id)
}

/** Begins the message of a vendor that does not begin it itself. */
export function startOf (exchange: Exchange): SseEvent {
  const message = { id: messageId(exchange), type: 'message', role: 'assistant', model: exchange.request.body.model,
    content: [], stop_reason: null, stop_sequence: null, usage: {} }
  return SseEvent.of('message_start', { type: 'message_start', message })
}

/** A report of usage before the end: the meter reads it, and no client gets it. @param usage of messages style */
export function reportOf (usage: Json): SseEvent {
  return SseEvent.of('message_delta', { type: 'message_delta', delta: {}, usage })
}
