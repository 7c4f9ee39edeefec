// Translates a chat completion into a message.
import type { Exchange } from '../../../core/exchange.ts'
import { noAnswer } from '../error-reply.ts'
import { CallIds } from '../call-ids.ts'
import { argumentsOf, callsIn, cutsCalls, hasFailed, ownFields, readSpoken, stopOf, withOwnFields } from './answer.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { callInput, textIn } from '../json.ts'
import { usageOf } from './usage.ts'
import { charactersOf, guessUsage, messageId } from '../omissions.ts'

interface ToolUse {
  readonly type: 'tool_use'
  readonly id: string
  readonly name: string
  readonly input: Json
}

/** @throws {UpstreamErrorBody} the vendor's error, in an answer's status; {Error} it is no chat completion */
export function toMessage (completion: unknown, exchange: Exchange): Json {
  const choice: unknown = isRecord(completion) && Array.isArray(completion.choices) ? completion.choices[0] : undefined
  if (!isRecord(completion) || !isRecord(choice) || !isRecord(choice.message)) {
    throw noAnswer(completion, 'the answer is no chat completion')
  }
  const { finish_reason: finish, stop_reason: vendors, message } = choice
  if (hasFailed(finish)) throw new Error(`the answer ends in "${String(finish)}"`)
  const { thought, text } = readSpoken(message)
  const ids = new CallIds(exchange)
  const calls = callsIn(message).map((call) => toBlock(call, cutsCalls(finish), ids.next(textIn(call.id))))
  const content = [
    ...(thought === '' ? [] : [{ type: 'thinking', thinking: thought, signature: '' }]),
    ...(text === '' ? [] : [{ type: 'text', text }]),
    ...calls
  ]
  return withOwnFields({
    id: messageId(exchange),
    type: 'message',
    role: 'assistant',
    model: exchange.request.body.model,
    content,
    ...stopOf(finish, vendors, calls.length > 0, exchange),
    usage: usageOf(completion, choice) ?? guessUsage(exchange, charactersOf(content))
  }, ownFields(message, exchange))
}

/** @throws {Error} its arguments are no JSON object, although the answer was not cut short */
function toBlock (call: Json, isShort: boolean, id: string): ToolUse {
  const named = isRecord(call.function) ? call.function : {}
  return { type: 'tool_use', id, name: textIn(named.name), input: callInput(argumentsOf(named), isShort) }
}
