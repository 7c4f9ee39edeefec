// The chunks of a chat completion as the events of a message: begun with the first chunk, ended when the vendor has
// said why it ended and what it used, or nothing more comes.
import { CHAT_DELTA } from '../../../protocols/chat.ts'
import type { Exchange } from '../../../core/exchange.ts'
import type { StreamTransformer } from '../../../core/plugin.ts'
import { SseEvent } from '../../../core/sse.ts'
import { argumentsOf, CallIds, callsIn, cutsCalls, hasFailed, ownFields, readSpoken, stopOf } from './answer.ts'
import { Blocks, type Call } from './blocks.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { textIn } from './json.ts'
import { JsonEnd } from './json-end.ts'
import { usageOf, withGuessedOutput } from './usage.ts'
import { guessUsage, messageId } from '../omissions.ts'

export function toEvents (exchange: Exchange): StreamTransformer {
  const blocks = new Blocks()
  const calls: Call[] = []
  /** the last of each, by the vendor's count and by the vendor's id */
  const counted = new Map<number, Call>()
  const named = new Map<string, Call>()
  const ids = new CallIds(exchange)
  let characters = 0
  let hasStarted = false
  let isOver = false
  /** Held: vendors send it twice, and usage with the second, or behind it (src/README.md#drain-to-end). */
  let finish: unknown
  let vendorsStop: unknown
  let usage: Json | undefined
  /** the characters that had come with the last report of usage */
  let reportedAt = 0

  function start (): readonly SseEvent[] {
    if (hasStarted) return []
    hasStarted = true
    const message = {
      id: messageId(exchange), type: 'message', role: 'assistant', model: exchange.request.body.model, content: [],
      stop_reason: null, stop_sequence: null, usage: guessUsage(exchange, 0)
    }
    return [SseEvent.of('message_start', { type: 'message_start', message })]
  }

  function end (): readonly SseEvent[] {
    isOver = true
    // With any other reason a client would run the tool with it.
    if (!cutsCalls(finish) && calls.some(({ input }) => !input.isBlank && !input.isWhole)) {
      throw new Error('the arguments of a call are no JSON')
    }
    blocks.end()
    const delta = stopOf(finish, vendorsStop, calls.length > 0, exchange)
    return [
      ...start(),
      ...blocks.take(),
      SseEvent.of('message_delta', { type: 'message_delta', delta, usage: usageSoFar() }),
      SseEvent.of('message_stop', { type: 'message_stop' })
    ]
  }

  /** Of output that came behind the last report nobody has said what it is. */
  function usageSoFar (): Json {
    if (usage === undefined) return guessUsage(exchange, characters)
    return characters === reportedAt ? usage : withGuessedOutput(usage, characters)
  }

  /** What it is of the calls so far; vendors count them, name them, or do neither. */
  function find ({ index, id, function: its }: Json, piece: string): Call | undefined {
    const name = isRecord(its) ? textIn(its.name) : ''
    const theirs = textIn(id)
    const known = typeof index === 'number' ? counted.get(index) : theirs !== '' ? named.get(theirs) : calls.at(-1)
    // A piece that says nothing of itself belongs to the call that was made last.
    if (known === undefined) return name === '' && theirs === '' ? calls.at(-1) : undefined
    if (name === '') return known
    // Gemini counts every call as 0; others repeat the name, or the id, with each piece.
    if (theirs !== '' && known.vendorsId !== '' && theirs !== known.vendorsId) return undefined
    // A name behind a whole input begins another call. Where an index or an id says that it does not, it must bring
    // input of its own.
    const hasMore = piece !== '' || (typeof index !== 'number' && theirs === '')
    const isAnother = known.name !== '' && (known.name !== name || (known.input.isWhole && hasMore))
    return isAnother ? undefined : known
  }

  function readCall (delta: Json): void {
    const its = isRecord(delta.function) ? delta.function : {}
    const piece = argumentsOf(its)
    let call = find(delta, piece)
    if (call === undefined) {
      const theirs = textIn(delta.id)
      call = {
        kind: 'tool_use', index: undefined, isClosed: false, waiting: '', input: new JsonEnd(),
        vendorsId: theirs, id: ids.next(theirs), name: textIn(its.name)
      }
      calls.push(call)
      if (typeof delta.index === 'number') counted.set(delta.index, call)
      if (theirs !== '') named.set(theirs, call)
      blocks.call(call)
    } else if (call.name === '') call.name = textIn(its.name)
    characters += piece.length
    blocks.input(call, piece)
  }

  function readDelta (delta: Json): void {
    const { thought, text } = readSpoken(delta)
    characters += thought.length + text.length
    blocks.say('thinking', thought)
    blocks.say('text', text)
    for (const call of callsIn(delta)) readCall(call)
  }

  function readChunk (chunk: Json): readonly SseEvent[] {
    if (isGiven(chunk.error)) return [SseEvent.of('error', chunk)]
    if (!Array.isArray(chunk.choices)) return []
    // We ask for one answer. A vendor that gives more gets the first read.
    const choice = chunk.choices.find((one) => isRecord(one) && (one.index === 0 || !isGiven(one.index))) as
      | Json
      | undefined
    const reported = usageOf(chunk, choice)
    const out = [...start()]
    const delta = isRecord(choice?.delta) ? choice.delta : {}
    readDelta(delta)
    if (reported !== undefined) {
      usage = reported
      reportedAt = characters
    }
    out.push(...blocks.take())
    const own = ownFields(delta, exchange)
    if (own !== undefined) out.push(SseEvent.of(CHAT_DELTA, { type: CHAT_DELTA, delta: own }))
    if (isGiven(choice?.finish_reason) && choice!.finish_reason !== '') {
      finish = choice!.finish_reason
      vendorsStop = choice!.stop_reason
      if (hasFailed(finish)) {
        return [...out, SseEvent.of('error', { error: { type: 'api_error', message: String(finish) } })]
      }
    }
    // Usage in chunks before the last words is not the last of it.
    if (finish !== undefined && reported !== undefined) out.push(...end())
    return out
  }

  return {
    event (event) {
      if (isOver) return undefined
      const data = event.data.trim()
      if (data === '[DONE]') return end()
      // Words between the chunks ("keepalive", nothing at all) are no part of the answer; a chunk that is broken is.
      const chunk = data.startsWith('{') ? event.json : undefined
      if (event.event === 'error') {
        return SseEvent.of('error', isRecord(chunk) ? chunk : { error: { type: 'api_error', message: data } })
      }
      return isRecord(chunk) ? readChunk(chunk) : undefined
    },
    /** Nothing more comes. Without a reason why it ended, the answer is not whole. */
    end: () => isOver || finish === undefined ? [] : end()
  }
}
