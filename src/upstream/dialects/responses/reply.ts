// Translates a whole response into a message.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { isErrorBody } from '../../../core/vendor-error.ts'
import { CallIds, SeenCalls } from '../call-ids.ts'
import { noAnswer, UnusableCall, UpstreamErrorBody } from '../error-reply.ts'
import { callInput, textIn } from '../json.ts'
import { inclusiveUsage, RESPONSES } from '../inclusive-usage.ts'
import { messageId } from '../omissions.ts'
import { ClientTools } from './client-tools.ts'
import { cutsCalls, type Finish, graver, isCounted, stopReason } from '../finish.ts'
import { isChatClient, withChatFields } from '../../../protocols/chat.ts'
import { finishOf } from './ending.ts'
import { shownIn, signatureOf } from './reasoning.ts'

/** @throws {UpstreamErrorBody} the vendor's error, in an answer's status; {Error} it is no response */
export function toMessage (response: unknown, exchange: Exchange, upstream: Upstream): Json {
  if (!isRecord(response)) throw noAnswer(response, 'the answer is no object')
  const { status, error, output } = response
  // Some say so of an answer that is all there, which was paid for (src/README.md#one-request).
  const isRunning = status === 'queued' || status === 'in_progress'
  const said = isRunning ? undefined : finishOf(response)
  const isOver = status === 'completed' || status === 'incomplete'
  if (!isOver && (status === 'failed' || said === 'error' || isErrorBody({ error }))) {
    throw new UpstreamErrorBody({ error: error ?? {} })
  }
  const items = Array.isArray(output) ? (output as readonly unknown[]).filter(isRecord) : []
  const calls: Calls = { ids: new CallIds(exchange, upstream), seen: new SeenCalls(),
    tools: new ClientTools(exchange, upstream), finish: said }
  const content = items.flatMap((item) => blocksOf(item, calls, exchange, upstream))
  const refusal = items.flatMap(partsOf).map(refusalOf).join('')
  const hasCalls = content.some(({ type }) => type === 'tool_use')
  const finish = refusal !== '' && !isChatClient(exchange) ? graver(calls.finish, 'refusal') : calls.finish
  const usage = inclusiveUsage(response.usage, RESPONSES) ?? {}
  const reason = stopReason(finish, hasCalls, content.length > 0 || refusal !== '', isCounted(usage))
  if (reason === null && isRunning) throw new Error(`the answer is "${status}"`)
  if (reason === null && !Array.isArray(output)) throw noAnswer(response, 'the answer is no response')
  return withChatFields({
    id: messageId(exchange),
    type: 'message',
    role: 'assistant',
    model: exchange.request.body.model,
    content,
    stop_reason: reason,
    stop_sequence: null,
    usage
  }, refusal !== '' && isChatClient(exchange) ? { refusal } : undefined)
}

interface Calls {
  readonly ids: CallIds
  readonly seen: SeenCalls
  readonly tools: ClientTools
  /** how the answer ends: in half a call, where its status does not say so */
  finish: Finish | undefined
}

/** Items of unknown types are no part of the answer that a client could read. */
function blocksOf (item: Json, calls: Calls, exchange: Exchange, upstream: Upstream): readonly Json[] {
  switch (item.type) {
    case 'reasoning': {
      const [thinking, signature] = [shownIn(item), signatureOf(item, exchange, upstream)]
      return thinking === '' && signature === '' ? [] : [{ type: 'thinking', thinking, signature }]
    }
    case 'message': {
      const text = partsOf(item).map((part) => textOfPart(part, exchange)).join('')
      return text === '' ? [] : [{ type: 'text', text }]
    }
    case 'function_call': return callOf(item, calls, argumentsOf(item, calls))
    case 'custom_tool_call': return calls.tools.isCustom(item) ? callOf(item, calls, textOf(item, calls)) : []
  }
  return []
}

/** Nothing of half a call, and of one that is there already. @throws {UnusableCall} it has no name */
function callOf (item: Json, { ids, seen, tools }: Calls, input: Json | undefined): readonly Json[] {
  const name = tools.nameOf(item)
  const theirs = textIn(item.call_id)
  if (input === undefined || (name === '' && theirs === '' && Object.keys(input).length === 0)) return []
  if (name === '') throw new UnusableCall('nameless')
  if (theirs !== '' && seen.isRepeated(theirs, { name, input })) return []
  return [{ type: 'tool_use', id: ids.next(theirs, name), name, input }]
}

export function partsOf ({ content }: Json): readonly Json[] {
  return Array.isArray(content) ? (content as readonly unknown[]).filter(isRecord) : []
}

/** Words of a refusal are words of the answer, except for clients of chat style, which has a field for them. */
export function textOfPart (part: Json, exchange: Exchange): string {
  if (part.type === 'refusal') return isChatClient(exchange) ? '' : refusalOf(part)
  return textIn(part.text)
}

export function refusalOf ({ type, refusal }: Json): string {
  return type === 'refusal' ? textIn(refusal) : ''
}

/** @throws {UnusableCall} they are no JSON object, although the answer was not cut short */
function argumentsOf ({ arguments: given, status }: Json, calls: Calls): Json | undefined {
  if (isRecord(given)) return given
  const input = callInput(textIn(given), cutsCalls(calls.finish) || status === 'incomplete')
  if (input === undefined) calls.finish = graver(calls.finish, 'max_tokens')
  return input
}

function textOf ({ input, status }: Json, calls: Calls): Json | undefined {
  if (status !== 'incomplete') return { input: textIn(input) }
  calls.finish = graver(calls.finish, 'max_tokens')
  return undefined
}
