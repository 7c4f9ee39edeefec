// The events of a message with all that they must have, in the order that clients wait for
// (src/README.md#message-shape): vendors that imitate the style leave events out, or fields of them. What is whole
// passes as the bytes that came.
import type { Exchange } from '../../../core/exchange.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { guessedOutput, isCount } from '../../../money/usage.ts'
import type { StreamTransformer } from '../../../core/plugin.ts'
import { SseEvent } from '../../../core/sse.ts'
import { guessOutput } from '../omissions.ts'
import { isCall, WholeBlocks } from './blocks.ts'
import { headOf, reasonFor } from './reply.ts'
import { wholeUsage } from './usage.ts'

/** A content block whose end has not come. */
interface Open {
  /** as the client counts it */
  readonly index: number
  /** as the vendor does, or not at all */
  readonly theirs: unknown
  readonly type: unknown
}

/**
 * The block that a delta belongs to, where the vendor has begun none. Nobody can begin a call for it, whose name is not
 * in its deltas.
 */
const BLOCK_OF: Readonly<Record<string, string>> = { text_delta: 'text', citations_delta: 'text',
  thinking_delta: 'thinking', signature_delta: 'thinking' }

/** The field that says something in a delta, by its type. */
const FIELD_OF: Readonly<Record<string, string>> = { text_delta: 'text', thinking_delta: 'thinking',
  input_json_delta: 'partial_json', signature_delta: 'signature' }

const BEHIND_START = new Set(['content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta',
  'message_stop'])
const KNOWN = new Set([...BEHIND_START, 'message_start', 'ping', 'error'])

type Out = SseEvent | readonly SseEvent[] | undefined

export function toEvents (exchange: Exchange): StreamTransformer {
  const blocks = new WholeBlocks(exchange)
  /** in the order in which they began */
  const open: Open[] = []
  let count = 0
  let hasStarted = false
  let hasCalls = false
  let characters = 0
  /** what was said of the end so far, whether the client has it or not */
  let reason: string | undefined
  let output: number | undefined
  /** of an end that lacks something, until more is said of it, or nothing more comes */
  let unsaid: { readonly data: Json, readonly delta: Json, readonly usage: Json } | undefined
  let hasEnd = false

  /** A second one is the vendor's own affair, but for what it reports. */
  function start ({ message: said, ...data }: Json): Out {
    const message = isRecord(said) ? said : {}
    if (hasStarted) {
      const { output_tokens: _, ...usage } = isRecord(message.usage) ? message.usage : {}
      if (Object.keys(usage).length > 0) unsaid = joined({}, {}, usage)
      return undefined
    }
    hasStarted = true
    const { content, usage } = message
    if (isRecord(usage) && isCount(usage.output_tokens)) output = usage.output_tokens
    const whole = {
      ...message,
      ...headOf(message, exchange),
      content: [],
      stop_reason: message.stop_reason ?? null,
      stop_sequence: message.stop_sequence ?? null,
      usage: wholeUsage(usage, exchange, [])
    }
    const event = SseEvent.of('message_start', { ...data, type: 'message_start', message: whole })
    // As of a turn whose calls a program of the model's has made: they are blocks like all others.
    return Array.isArray(content) && content.length > 0
      ? [event, ...content.flatMap((block: unknown, i) => [...begin(block, i), ...end(open.at(-1))])]
      : event
  }

  /** @param event as it came, if it did @returns its start, and what a vendor has put into that */
  function begin (said: unknown, theirs: unknown, event?: SseEvent, data: Json = {}): SseEvent[] {
    const block = blocks.fill(said)
    const { type, text, thinking } = block
    const ended = open.filter((one) => one.theirs === theirs || !isCall(one.type)).flatMap(end)
    const index = count++
    open.push({ index, theirs, type })
    hasCalls ||= type === 'tool_use'
    const early = type === 'text' && text !== '' ? [delta(index, { type: 'text_delta', text })]
      : type === 'thinking' && thinking !== '' ? [delta(index, { type: 'thinking_delta', thinking })] : []
    const isWhole = event !== undefined && block === said && theirs === index && early.length === 0
    const content = early.length === 0 ? block : type === 'text' ? { ...block, text: '' } : { ...block, thinking: '' }
    return [...ended, isWhole
      ? event
      : SseEvent.of('content_block_start', { ...data, type: 'content_block_start', index, content_block: content }),
      ...early]
  }

  function end (block: Open | undefined): SseEvent[] {
    if (block === undefined) return []
    open.splice(open.indexOf(block), 1)
    return [SseEvent.of('content_block_stop', { type: 'content_block_stop', index: block.index })]
  }

  function delta (index: number, said: Json): SseEvent {
    return SseEvent.of('content_block_delta', { type: 'content_block_delta', index, delta: said })
  }

  /** The one that is meant; without a number the last that may hold it. */
  function find (theirs: unknown, delta?: string): Open | undefined {
    const fitting = delta === undefined ? open : open.filter(({ type }) => mayHold(type, delta))
    return theirs === undefined || theirs === null
      ? fitting.at(-1)
      : fitting.find((one) => one.theirs === theirs) ?? fitting.find((one) => one.theirs === undefined)
  }

  function readDelta (event: SseEvent, data: Json): Out {
    if (!isRecord(data.delta)) throw new Error('a delta holds none')
    const said = data.delta
    const type = said.type ?? Object.keys(FIELD_OF).find((one) => Object.hasOwn(said, FIELD_OF[one]!))
    if (typeof type !== 'string') return undefined
    const field = FIELD_OF[type]
    if (field !== undefined && (said[field] ?? undefined) === undefined) return undefined
    if (field !== undefined && typeof said[field] !== 'string') throw new Error(`"${field}" of a delta is no text`)
    if (field !== undefined && field !== 'signature') characters += (said[field] as string).length
    const block = find(data.index, type)
    if (block !== undefined) {
      return block.index === data.index && said.type === type
        ? event
        : SseEvent.of('content_block_delta', { ...data, type: 'content_block_delta', index: block.index,
          delta: { ...said, type } })
    }
    const begun = BLOCK_OF[type]
    if (begun === undefined) throw new Error('a delta belongs to no content block')
    const before = begin({ type: begun }, data.index)
    return [...before, delta(open.at(-1)!.index, { ...said, type })]
  }

  function readStop (event: SseEvent, data: Json): Out {
    const block = find(data.index)
    if (block === undefined) return undefined
    const [made] = end(block)
    return block.index === data.index ? event : made
  }

  /** All that was said of the end, what came later over what came earlier. */
  function joined (data: Json, said: Json, usage: Json): NonNullable<typeof unsaid> {
    const given = Object.fromEntries(Object.entries(said).filter(([, value]) => value !== null && value !== undefined))
    return { data: { ...unsaid?.data, ...data }, delta: { ...unsaid?.delta, ...given },
      usage: { ...unsaid?.usage, ...usage } }
  }

  function readEnd (event: SseEvent, data: Json): Out {
    const said = isRecord(data.delta) ? data.delta : {}
    const usage = isRecord(data.usage) ? data.usage : {}
    if (typeof said.stop_reason === 'string') reason = said.stop_reason
    if (isCount(usage.output_tokens)) output = usage.output_tokens
    if (unsaid === undefined && typeof said.stop_reason === 'string' && isCount(usage.output_tokens)) {
      hasEnd = true
      const ended = [...open].flatMap(end)
      return ended.length === 0 ? event : [...ended, event]
    }
    unsaid = joined(data, said, usage)
    return undefined
  }

  function readLast (event: SseEvent): Out {
    const before = [...open].flatMap(end)
    if (unsaid !== undefined || !hasEnd) {
      const { data: of, delta: said, usage } = unsaid ?? joined({}, {}, {})
      before.push(SseEvent.of('message_delta', {
        ...of, type: 'message_delta',
        delta: { ...said, stop_reason: reason ?? reasonFor(hasCalls), stop_sequence: said.stop_sequence ?? null },
        usage: isCount(usage.output_tokens) ? usage : hasEnd ? { ...usage, output_tokens: output }
          : { ...usage, output_tokens: Math.max(output ?? 0, guessOutput(characters)), [guessedOutput]: true }
      }))
    }
    return before.length === 0 ? event : [...before, event]
  }

  function read (name: string, event: SseEvent, data: Json): Out {
    switch (name) {
      case 'content_block_start': {
        const made = begin(data.content_block, data.index ?? undefined, event, data)
        return made.length === 1 ? made[0] : made
      }
      case 'content_block_delta': return readDelta(event, data)
      case 'content_block_stop': return readStop(event, data)
      case 'message_delta': return readEnd(event, data)
      case 'message_stop': return readLast(event)
    }
    return event
  }

  return {
    event (event) {
      // Before anybody acts on it: what is not JSON fails the attempt, or breaks the stream, whoever would read it.
      const data = event.json
      if (!isRecord(data)) throw new Error('an event holds no object')
      const name = nameOf(event, data)
      if (name === '') return undefined
      if (name === 'message_start') {
        if (!isRecord(data.message)) throw new Error('message_start holds no message')
        return start(data)
      }
      const named = withName(name, event, data)
      if (hasStarted || !BEHIND_START.has(name)) return read(name, named, data)
      const before = start({}) as SseEvent
      const made = read(name, named, data)
      return made === undefined ? before : made instanceof SseEvent ? [before, made] : [before, ...made]
    }
  }
}

/** Words are no thoughts, and neither is the input of a call. Of types that are new to us nothing is known. */
function mayHold (block: unknown, delta: string): boolean {
  if (isCall(block)) return BLOCK_OF[delta] === undefined
  return block !== 'text' && block !== 'thinking'
    ? true
    : delta !== 'input_json_delta' && (BLOCK_OF[delta] ?? block) === block
}

function nameOf ({ event }: SseEvent, { type }: Json): string {
  return typeof type === 'string' && !KNOWN.has(event) && (event === '' || KNOWN.has(type)) ? type : event
}

/**
 * Official clients drop records without an `event:` line, and read the type of those with one. What is new to us keeps
 * its own.
 */
function withName (name: string, event: SseEvent, data: Json): SseEvent {
  if (event.event === name && (data.type === name || !KNOWN.has(name))) return event
  return data.type === name ? new SseEvent(name, event.data) : SseEvent.of(name, { ...data, type: name })
}
