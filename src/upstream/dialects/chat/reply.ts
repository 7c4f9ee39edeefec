// Translates a chat completion into a message.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isErrorBody } from '../../../core/vendor-error.ts'
import { noAnswer, UnusableCall } from '../error-reply.ts'
import { CallIds, SeenCalls } from '../call-ids.ts'
import { cutsCalls, type Finish, graver } from '../finish.ts'
import { argumentsOf, callFields, callsIn, choicesIn, finishOf, ownFields, readSpoken, type Spoken, stopOf,
  topFields } from './answer.ts'
import { asRecord, isGiven, isRecord, type Json } from '../../../base/json.ts'
import { isTorn } from '../json-end.ts'
import { callInput, textIn } from '../json.ts'
import { chatCall, isChatClient, withChatFields } from '../../../protocols/chat.ts'
import { Signatures } from './signatures.ts'
import { usageOf } from './usage.ts'
import { messageId } from '../omissions.ts'

interface ToolUse {
  readonly type: 'tool_use'
  readonly id: string
  readonly name: string
  readonly input: Json
}

/** @throws {UpstreamErrorBody} the vendor's error, in an answer's status; {Error} it is no chat completion */
export function toMessage (completion: unknown, exchange: Exchange, upstream: Upstream): Json {
  if (!isRecord(completion)) throw noAnswer(completion, 'the answer is no object')
  const choices = choicesIn(completion).toSorted(byIndex)
  const said = choices.map(saidIn)
  const broken = choices.find((one) => finishOf(one) === 'error')
  if (broken !== undefined) throw new Error(`the answer ends in "${String(broken.finish_reason)}"`)
  const finish = choices.map(finishOf).find(isGiven)
  const { thought, text, refusal } = spokenIn(said)
  const hasRefusal = refusal !== '' && !isChatClient(exchange)
  const signatures = isChatClient(exchange) ? undefined : new Signatures(exchange, upstream)
  for (const one of said) signatures?.readMessage(one, false)
  const { calls, isCut } = readCalls(said, finish, exchange, upstream, signatures)
  const signature = signatures?.take() ?? ''
  const content = [
    ...(thought + signature === '' ? [] : [{ type: 'thinking', thinking: thought, signature }]),
    ...(text === '' && !hasRefusal ? [] : [{ type: 'text', text: hasRefusal ? text + refusal : text }]),
    ...calls
  ]
  const owns = said.flatMap((one) => ownFields(one, exchange) ?? [])
  const own = owns.length === 0 ? undefined : Object.assign({}, ...owns) as Json
  const reported = usageOf(completion, choices.find(({ usage }) => isGiven(usage)), exchange, upstream)
  const hasContent = content.length > 0 || own !== undefined
  const stop = stopOf(isCut ? graver(finish, 'max_tokens') : finish,
    choices.map(({ stop_reason: vendors }) => vendors).find(isGiven),
    { hasCalls: calls.length > 0, hasContent, hasRefusal }, reported, exchange)
  const isNone = stop.stop_reason === null && (!Array.isArray(completion.choices) || isErrorBody(completion))
  if (isNone) throw noAnswer(completion, 'the answer is no chat completion')
  return withChatFields({
    id: messageId(exchange),
    type: 'message',
    role: 'assistant',
    model: exchange.request.body.model,
    content,
    ...stop,
    usage: reported ?? {}
  }, own, topFields(completion, exchange))
}

function byIndex ({ index: one }: Json, { index: other }: Json): number {
  return typeof one === 'number' && typeof other === 'number' ? one - other : 0
}

/** What a choice says: its message, which some vendors call otherwise. */
function saidIn ({ message, delta, text }: Json): Json {
  return isRecord(message) ? message : isRecord(delta) ? delta : { content: text }
}

/** Of each kind what the first choice says that has any. */
function spokenIn (said: readonly Json[]): Spoken {
  const spoken = said.map(readSpoken)
  const first = (kind: keyof Spoken): string => spoken.find((one) => one[kind] !== '')?.[kind] ?? ''
  return { thought: first('thought'), text: first('text'), refusal: first('refusal') }
}

interface CallsRead {
  readonly calls: readonly ToolUse[]
  /** the limit has cut one, which is no call */
  readonly isCut: boolean
}

/**
 * The calls of all choices. One that is there twice is one call: the same id, or the same place, name and input.
 * @throws {UnusableCall} a call has no name, or arguments that are no JSON object
 */
function readCalls (
  said: readonly Json[], finish: Finish | undefined, exchange: Exchange, upstream: Upstream,
  signatures: Signatures | undefined
): CallsRead {
  const ids = new CallIds(exchange, upstream)
  const seen = new SeenCalls()
  const calls: ToolUse[] = []
  let isCut = false
  for (const [choice, message] of said.entries()) {
    for (const call of callsIn(message)) {
      const name = textIn(asRecord(call.function).name)
      const text = argumentsOf(call.function)
      if (name === '' && text.trim() === '') continue
      if (name === '') throw new UnusableCall('nameless')
      // Half a call is one that the limit has cut, whatever the finish reason: vLLM's is that of a whole one.
      const input = callInput(text, cutsCalls(finish) || (finish !== undefined && isTorn(text)))
      if (input === undefined) { isCut = true; continue }
      const theirs = textIn(call.id)
      // A vendor that neither names nor counts its calls may mean the same one twice.
      const isMarked = theirs !== '' || isGiven(call.index)
      const place = `${theirs === '' ? choice : theirs} ${String(call.index)}`
      if (isMarked && seen.isRepeated(place, { name, input })) continue
      const id = ids.next(theirs, name)
      signatures?.readCall(id, call)
      const own = callFields(call, exchange)
      calls.push({ type: 'tool_use', id, name, input, ...(own !== undefined && { [chatCall]: own }) })
    }
  }
  return { calls, isCut }
}
