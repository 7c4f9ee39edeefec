// The chunks of a chat completion as bytes. Concatenated from text instead of printed from objects, because it runs for
// every token.
import { SseEvent } from '../../src/core/sse.ts'
import type { Json } from '../../src/base/json.ts'
import type { Frame } from './reply.ts'

const AFTER = ',"finish_reason":null}]}'
const AFTER_TEXT = `}${AFTER}`

export class ChunkWriter {
  readonly #head: string
  readonly #before: string
  readonly #beforeText: string
  readonly #beforeThought: string

  constructor ({ id, created, model }: Frame) {
    this.#head = `{"id":${JSON.stringify(id)},"object":"chat.completion.chunk","created":${created},` +
      `"model":${JSON.stringify(model)},"choices":[`
    this.#before = `${this.#head}{"index":0,"delta":`
    this.#beforeText = `${this.#before}{"content":`
    this.#beforeThought = `${this.#before}{"reasoning_content":`
  }

  /** @param top fields of the chunk itself */
  delta (delta: Json, top?: Json): SseEvent {
    const after = top === undefined ? AFTER : `${AFTER.slice(0, -1)},${JSON.stringify(top).slice(1)}`
    return new SseEvent('', this.#before + JSON.stringify(delta) + after)
  }

  text (text: string): SseEvent {
    return new SseEvent('', this.#beforeText + JSON.stringify(text) + AFTER_TEXT)
  }

  thought (text: string): SseEvent {
    return new SseEvent('', this.#beforeThought + JSON.stringify(text) + AFTER_TEXT)
  }

  /** @returns writes pieces of the arguments of call number k */
  argumentsOf (k: number): (piece: string) => SseEvent {
    const before = `${this.#before}{"tool_calls":[{"index":${k},"function":{"arguments":`
    return (piece) => new SseEvent('', before + JSON.stringify(piece) + '}}]}' + AFTER)
  }

  finish (reason: string): SseEvent {
    return new SseEvent('', `${this.#before}{},"finish_reason":"${reason}"}]}`)
  }

  usage (usage: Json): SseEvent {
    return new SseEvent('', `${this.#head}],"usage":${JSON.stringify(usage)}}`)
  }
}
