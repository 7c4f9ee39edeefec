// Translates a whole response into a message.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { CallIds } from '../call-ids.ts'
import { noAnswer, UpstreamErrorBody } from '../error-reply.ts'
import { callInput, textIn } from '../json.ts'
import { charactersOf, guessUsage, messageId } from '../omissions.ts'
import { ClientTools } from './client-tools.ts'
import { shortBy, stopOf } from './ending.ts'
import { shownIn, signatureOf } from './reasoning.ts'
import { usageOf } from './usage.ts'

/** @throws {UpstreamErrorBody} the vendor's error, in an answer's status; {Error} it is no response */
export function toMessage (response: unknown, exchange: Exchange, upstream: Upstream): Json {
  if (!isRecord(response)) throw noAnswer(response, 'the answer is no object')
  const { status, error, output } = response
  const isOver = status === 'completed' || status === 'incomplete'
  if (!isOver && (status === 'failed' || isGiven(error))) throw new UpstreamErrorBody({ error: error ?? {} })
  if (!Array.isArray(output)) throw noAnswer(response, 'the answer is no response')
  if (!isOver && status !== undefined) throw new Error(`the answer is ${JSON.stringify(status).slice(0, 60)}`)
  const calls: Calls = { ids: new CallIds(exchange), tools: new ClientTools(exchange, upstream),
    isShort: shortBy(response) !== undefined }
  const items = (output as readonly unknown[]).filter(isRecord)
  const content = items.flatMap((item) => blocksOf(item, calls, exchange, upstream))
  const hasCalls = content.some(({ type }) => type === 'tool_use')
  return {
    id: messageId(exchange),
    type: 'message',
    role: 'assistant',
    model: exchange.request.body.model,
    content,
    ...stopOf(response, hasCalls, items.some(isRefusal)),
    usage: usageOf(response.usage) ?? guessUsage(exchange, charactersOf(content))
  }
}

interface Calls {
  readonly ids: CallIds
  readonly tools: ClientTools
  /** the answer was cut short, and a call with it, maybe */
  readonly isShort: boolean
}

/** Items of unknown types are no part of the answer that a client could read. */
function blocksOf (item: Json, calls: Calls, exchange: Exchange, upstream: Upstream): readonly Json[] {
  switch (item.type) {
    case 'reasoning': {
      const [thinking, signature] = [shownIn(item), signatureOf(item, exchange, upstream)]
      return thinking === '' && signature === '' ? [] : [{ type: 'thinking', thinking, signature }]
    }
    case 'message': {
      const text = partsOf(item).map(textOfPart).join('')
      return text === '' ? [] : [{ type: 'text', text }]
    }
    case 'function_call': return [callOf(item, calls, argumentsOf(item, calls.isShort))]
    case 'custom_tool_call': return [callOf(item, calls, { input: textIn(item.input) })]
  }
  return []
}

/** @throws {Error} it has no name */
function callOf (item: Json, { ids, tools }: Calls, input: Json): Json {
  const name = tools.nameOf(item)
  if (name === '') throw new Error('a call has no name')
  return { type: 'tool_use', id: ids.next(textIn(item.call_id)), name, input }
}

export function partsOf ({ content }: Json): readonly Json[] {
  return Array.isArray(content) ? (content as readonly unknown[]).filter(isRecord) : []
}

/** Words of a refusal are words of the answer. */
export function textOfPart ({ type, text, refusal }: Json): string {
  return type === 'refusal' ? textIn(refusal) : textIn(text)
}

export function isRefusal (item: Json): boolean {
  return item.type === 'message' && partsOf(item).some(({ type }) => type === 'refusal')
}

/** @throws {Error} they are no JSON object, although the answer was not cut short */
function argumentsOf ({ arguments: given }: Json, isShort: boolean): Json {
  return isRecord(given) ? given : callInput(textIn(given), isShort)
}
