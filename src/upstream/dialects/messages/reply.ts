// Completes a whole answer of messages style (src/README.md#message-shape): vendors that imitate the style leave parts
// out.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { asRecord, isRecord, type Json } from '../../../base/json.ts'
import { isErrorBody } from '../../../core/vendor-error.ts'
import { saysSomething } from '../../../protocols/messages.ts'
import { CallIds, SeenCalls } from '../call-ids.ts'
import { noAnswer, UpstreamErrorBody } from '../error-reply.ts'
import { cutsCalls, type Finish, isCounted, readFinish, stopReason } from '../finish.ts'
import { messageId } from '../omissions.ts'
import { WholeBlocks, withId } from './blocks.ts'
import { sealBlock } from './thoughts.ts'

/** @throws {UpstreamErrorBody} the vendor's error, in an answer's status; {Error} it is no message */
export function toMessage (body: unknown, exchange: Exchange, upstream: Upstream): Json {
  if (!isRecord(body)) throw noAnswer(body, 'the answer is no object')
  const { content: said, type, usage } = body
  if (!Array.isArray(said) && isErrorBody(body)) throw new UpstreamErrorBody(body)
  if ((type ?? 'message') !== 'message') throw new Error('the answer is not a message')
  const finish = finishOf(body)
  if (finish === 'error') throw new Error(`the answer ends in "${String(body.stop_reason)}"`)
  const content = contentOf(said, cutsCalls(finish), exchange, upstream)
  const hasContent = content.some(saysSomething)
  const isAnswer = finish !== undefined || hasContent || isCounted(usage)
  const reason = stopReason(finish, content.some(isToolUse), hasContent, isAnswer)
  if (reason === null && type === undefined && said === undefined) throw new Error('the answer is not a message')
  const message: Record<string, unknown> = body               // just parsed, and not shared
  message.id = idOf(body, exchange)
  message.type = 'message'
  message.role = 'assistant'
  message.model = exchange.request.body.model
  message.content = content
  message.stop_reason = reason
  message.stop_sequence = body.stop_sequence ?? null
  message.usage = asRecord(usage)
  return message
}

/** A word that is unknown here is one that the vendor has added to the style, of which its clients may know. */
export function finishOf ({ stop_reason: word }: Json): Finish | undefined {
  return readFinish(word, typeof word === 'string' ? word : undefined)
}

/** The blocks are completed in the list in which they came. */
function contentOf (said: unknown, isShort: boolean, exchange: Exchange, upstream: Upstream): readonly Json[] {
  const content = listOf(said)
  const blocks = new WholeBlocks(exchange)
  // Made with the first call: most answers have none.
  let calls: Calls | undefined
  let length = 0
  for (const said of content) {
    const block = blocks.fill(said, isShort)
    if (block === undefined) continue
    const own = isToolUse(block) ? (calls ??= new Calls(exchange, upstream)).own(block, said) : block
    if (own !== undefined) content[length++] = sealBlock(own, exchange, upstream)
  }
  if (length < content.length) content.length = length        // a slow call of the engine
  return content as readonly Json[]
}

/** The calls of one answer. */
class Calls {
  readonly #seen = new SeenCalls()
  readonly #ids: CallIds

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#ids = new CallIds(exchange, upstream)
  }

  /** @returns with the client's id; undefined: the same call with the vendor's own id was there before */
  own (block: Json, said: unknown): Json | undefined {
    const { id, name, input } = block
    const isRepeated = isRecord(said) && said.id === id && this.#seen.isRepeated(id as string, { name, input })
    return isRepeated ? undefined : withId(block, this.#ids)
  }
}

function listOf (said: unknown): unknown[] {
  if (said === undefined || said === null) return []
  if (Array.isArray(said)) return said
  return [isRecord(said) && typeof said.type === 'string' ? said
    : { type: 'text', text: typeof said === 'string' ? said : JSON.stringify(said) }]
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
