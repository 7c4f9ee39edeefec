// Marks of messages style that say how far a prompt is cached, for vendors of chat style that take them: OpenRouter and
// LiteLLM on parts of messages and on tools, LiteLLM on calls too.
import type { Exchange } from '../../core/exchange.ts'
import { isRecord, type Json } from '../../base/json.ts'
import { EarlierCalls } from './call-ids.ts'

/** @returns the mark of what a block becomes, as a field; empty: it has none, or its vendor takes none */
export type MarkOf = (block: Json) => Json

const NOTHING: Json = Object.freeze({})
const LONG = '1h'

export function noMark (): Json {
  return NOTHING
}

export function marksIn (body: Json): MarkOf {
  const mark = { cache_control: { type: 'ephemeral', ...(hasLongMarks(body) && { ttl: LONG }) } }
  return ({ cache_control: own }) => isRecord(own) ? mark : NOTHING
}

/** Parts of which the last one has the mark, unless it has one. */
export function withMark (parts: readonly Json[], mark: Json): readonly Json[] {
  const last = parts.at(-1)
  return last === undefined || mark === NOTHING ? parts : parts.with(parts.length - 1, { ...last, ...mark })
}

export function isMarked ({ cache_control: mark }: Json): boolean {
  return mark !== undefined
}

/**
 * Whether all marks ask for an hour, which has another price. These vendors report how many tokens they have written,
 * and not for how long, so all marks of a request get the same life: an hour where all ask for it, or five minutes.
 */
function hasLongMarks (body: Json): boolean {
  let isLong = false
  for (const { cache_control: mark } of blocksIn(body)) {
    if (!isRecord(mark)) continue
    if (mark.ttl !== LONG) return false
    isLong = true
  }
  return isLong
}

/** By request: some vendors report usage with each chunk. */
const known = new WeakMap<Exchange, boolean>()

/** Also for an answer that is read where the request's body is not. */
export function writesLong (exchange: Exchange): boolean {
  const sent = exchange.find(EarlierCalls)?.writesLong ?? known.get(exchange)
  if (sent !== undefined) return sent
  const isLong = hasLongMarks(exchange.request.body)
  known.set(exchange, isLong)
  return isLong
}

/** All that may have a mark, the body included. */
function * blocksIn (body: Json): Generator<Json> {
  yield body
  const { tools, system, messages } = body
  for (const list of [tools, system]) yield * recordsIn(list)
  for (const { content } of recordsIn(messages)) {
    for (const block of recordsIn(content)) {
      yield block
      yield * recordsIn(block.content)
    }
  }
}

function recordsIn (list: unknown): readonly Json[] {
  return Array.isArray(list) ? list.filter(isRecord) : []
}
