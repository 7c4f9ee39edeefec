// chat-to-messages: chat completions on top of messages style. Translates the request on its way down, and the answer
// on its way up; error-normalize shapes errors, billing-meter prices, and schema-validate checks chat bodies.
import { afterWith } from '../../src/base/awaitable.ts'
import { flag } from '../../src/config/sections/schema.ts'
import { bodyStep } from '../../src/core/body-step.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { Body, fact, Model } from '../../src/core/facts.ts'
import { chatStyle } from '../../src/protocols/chat.ts'
import { styleOfBody } from '../../src/protocols/index.ts'
import { ResponsesWords } from '../../src/protocols/responses.ts'
import { definePlugin } from '../../src/core/plugin.ts'
import type { JsonReply } from '../../src/core/reply.ts'
import { replyChange } from '../../src/core/reply-step.ts'
import { isRecord } from '../../src/base/json.ts'
import { likeRequestId } from '../../src/base/request-id.ts'
import type { AnswerShape as AskedFor } from './chat.ts'
import { type Frame, toCompletion } from './reply.ts'
import { includesUsage, toMessages } from './request.ts'
import { toChunks } from './stream.ts'

/** Present only if this plugin translated the request. Private to it. */
const Asked = fact<AskedFor>('chat-to-messages')

/**
 * What a completion needs to know of its request; undefined: none was asked for. A request in words of the Responses
 * API is translated by responses-to-messages, which may stand above or below.
 */
function askedOf (exchange: Exchange): AskedFor | undefined {
  const asked = exchange.find(Asked)
  if (asked !== undefined || exchange.route.style !== chatStyle) return asked
  const words = exchange.find(ResponsesWords)
  return words && { hasUsageChunk: includesUsage(exchange.get(Body)), ...words.answer }
}

const translate = bodyStep('chat-to-messages', (exchange) => {
  const { body, stream } = exchange.request
  const translated = toMessages(body, stream, exchange.get(Model), exchange.blobs)
  exchange.set(Asked, translated.asked)
  exchange.request = { body: translated.body, stream }
})

const complete = replyChange('chat-to-messages', (message, _exchange, frame: Frame, asked: AskedFor, charged: unknown) =>
  toCompletion(message, frame, asked, charged))

function withBody (body: unknown, reply: JsonReply): JsonReply {
  return { ...reply, body }
}

interface Options {
  readonly always_usage?: boolean
}

export const chatToMessages = definePlugin<Options>({
  name: 'chat-to-messages',
  readsInSteps: true,
  schema: {
    properties: {
      always_usage: flag('Whether every stream ends with a chunk of its usage, also for clients that do not ask for it.',
        false)
    }
  },
  reads: [Body, Model],
  writes: [Asked],
  provides: ['chat-completions'],
  create ({ always_usage: alwaysUsage }, _config, { now }) {
    const frame = (exchange: Exchange): Frame => ({
      // The same 24 characters as in the request id: an answer's id leads to its line in the log.
      id: likeRequestId('chatcmpl-', exchange.id),
      created: Math.floor(now() / 1000),
      model: exchange.request.body.model
    })
    return {
      onRequest (exchange) {
        const { endpoint } = exchange.route
        const isText = endpoint.kind === 'model' && (endpoint.modality ?? 'text') === 'text'
        if (!isText || endpoint.style !== chatStyle) return
        // In words of another style, which its own translator has read already, or will.
        const isOthers = exchange.find(ResponsesWords) !== undefined ||
          styleOfBody(exchange.route, exchange.request.body) !== chatStyle
        return isOthers ? undefined : translate(exchange)
      },

      onReply (reply, exchange) {
        const asked = askedOf(exchange)
        // A plugin's own answer stays as it is.
        if (
          asked === undefined || reply.kind !== 'json' || !isRecord(reply.body) || reply.body.type !== 'message'
        ) return
        return afterWith(complete(reply.body, exchange, frame(exchange), asked, reply.headers['x-gateway-cost-usd']),
          withBody, reply)
      },

      onStream (exchange) {
        const asked = askedOf(exchange)
        return asked && toChunks(frame(exchange), alwaysUsage ? { ...asked, hasUsageChunk: true } : asked)
      }
    }
  }
})
