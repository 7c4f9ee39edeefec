// Joins characters that an upstream has cut in two between the pieces of a text: no event leaves with half a character,
// which a client would keep, and send back to a vendor that refuses it. Real Codex repeats its request for one.
import { asRecord, isGiven, type Json, wholeCharacters } from '../../base/json.ts'
import type { StreamTransformer } from '../../core/plugin.ts'
import { SseEvent } from '../../core/sse.ts'
import type { StreamDecoder } from './dialect.ts'

type Out = ReturnType<StreamTransformer['event']>

/** The field with the text of a delta, by its type. */
const TEXT_OF = { text_delta: 'text', thinking_delta: 'thinking', input_json_delta: 'partial_json' } as const
const HALF_AT_END = /[\uD800-\uDBFF]$/
/** Stands for a half whose other one never came. */
const LOST = '\uFFFD'

/** A decoder of a dialect, whose events it completes. */
export function withWholeCharacters (decode: StreamDecoder): StreamDecoder {
  return decode.end === undefined ? new WholeCharacters(decode) : new EndingWholeCharacters(decode)
}

class WholeCharacters implements StreamDecoder {
  readonly #decode: StreamDecoder
  /** the delta whose text has ended with half a character */
  #half: { readonly data: Json, readonly type: keyof typeof TEXT_OF, readonly text: string } | undefined

  constructor (decode: StreamDecoder) {
    this.#decode = decode
  }

  get isComplete (): boolean {
    return this.#decode.isComplete === true
  }

  event (event: SseEvent): Out {
    return this.#read(this.#decode.event(event))
  }

  #read (made: Out): Out {
    if (made instanceof SseEvent) return this.#half === undefined && isWhole(made) ? made : this.#complete(made)
    return made === undefined ? undefined : this.readAll(made)
  }

  readAll (made: readonly SseEvent[]): readonly SseEvent[] {
    return this.#half === undefined && made.every(isWhole) ? made : made.flatMap((event) => this.#complete(event))
  }

  #complete (event: SseEvent): SseEvent[] {
    if (isBeside(event)) return [withoutHalf(event)]
    const half = this.#half
    this.#half = undefined
    const data = asRecord(event.json)
    const { type } = asRecord(data.delta)
    if (half !== undefined && (data.index !== half.data.index || type !== half.type)) {
      return [saying(half.data, half.type, LOST), ...this.#complete(event)]
    }
    const text = textIn(data)
    if (text === undefined) return [withoutHalf(event)]
    const all = (half?.text ?? '') + text
    const said = all.replace(HALF_AT_END, '')
    if (said !== all) this.#half = { data, type: type as keyof typeof TEXT_OF, text: all.slice(said.length) }
    return said === '' && all !== '' ? [] : [saying(data, type as keyof typeof TEXT_OF, said.toWellFormed())]
  }
}

/** Of a dialect whose streams end without a terminal event too. */
class EndingWholeCharacters extends WholeCharacters {
  readonly #decode: StreamDecoder

  constructor (decode: StreamDecoder) {
    super(decode)
    this.#decode = decode
  }

  end (): readonly SseEvent[] {
    return this.readAll(this.#decode.end!())
  }
}

/**
 * Whether a text may go on behind it: a report of usage, which some vendors send with each piece, a field of chat
 * style, a ping, an event of an unknown type.
 */
function isBeside (event: SseEvent): boolean {
  switch (event.event) {
    case 'message_delta': return !isGiven(asRecord(asRecord(event.json).delta).stop_reason)
    case 'content_block_start':
    case 'content_block_delta':
    case 'content_block_stop':
    case 'message_stop':
    case 'error': return false
    default: return true
  }
}

function withoutHalf (event: SseEvent): SseEvent {
  return isWhole(event) ? event : new SseEvent(event.event, wholeCharacters(event.data))
}

/** Whether no half of a character is in it. */
function isWhole (event: SseEvent): boolean {
  switch (event.event) {
    case 'content_block_delta': return textIn(asRecord(event.json))?.isWellFormed() ?? hasNoHalf(event)
    case 'message_stop':
    case 'content_block_stop': return true
    default: return hasNoHalf(event)
  }
}

function hasNoHalf ({ data }: SseEvent): boolean {
  return wholeCharacters(data) === data
}

/** The text of a delta; undefined: it has none. */
function textIn ({ delta }: Json): string | undefined {
  const fields = asRecord(delta)
  const text = fields[TEXT_OF[fields.type as keyof typeof TEXT_OF]]
  return typeof text === 'string' ? text : undefined
}

function saying (data: Json, type: keyof typeof TEXT_OF, text: string): SseEvent {
  return SseEvent.of('content_block_delta', { ...data, delta: { ...asRecord(data.delta), [TEXT_OF[type]]: text } })
}
