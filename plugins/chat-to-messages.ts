// chat-to-messages: chat completions in front of messages style. Translates the request on its way down, the answer on its way
// up; errors are error-normalize's, prices billing-meter's, and what a chat body may hold schema-validate's.
import type { Exchange } from '../src/exchange.ts'
import { fact, Model } from '../src/facts.ts'
import { definePlugin } from '../src/plugin.ts'
import { isRecord } from '../src/json-value.ts'
import type { Asked as AskedFor } from './chat-to-messages/chat.ts'
import { type Frame, toCompletion } from './chat-to-messages/reply.ts'
import { toMessages } from './chat-to-messages/request.ts'
import { toChunks } from './chat-to-messages/stream.ts'

/** There only if this plugin translated the request. Private to it. */
const Asked = fact<AskedFor>('chat-to-messages')

export const chatToMessages = definePlugin({
  name: 'chat-to-messages',
  reads: [Model],
  writes: [Asked],
  create (_options, _config, { now }) {
    const frame = (exchange: Exchange): Frame => ({
      // The same 24 characters as in the request id: what a client noted of an answer finds the line in the log.
      id: `chatcmpl-${exchange.id.slice(exchange.id.indexOf('_') + 1)}`,
      created: Math.floor(now() / 1000),
      model: exchange.request.body.model
    })
    return {
      onRequest (exchange) {
        const { endpoint } = exchange.route
        if (endpoint.kind !== 'model' || endpoint.style !== 'chat' || (endpoint.gives ?? 'text') !== 'text') return
        const { body, stream } = exchange.request
        const translated = toMessages(body, stream, exchange.get(Model), exchange.blobs)
        exchange.set(Asked, translated.asked)
        exchange.request = { body: translated.body, stream }
      },

      onReply (reply, exchange) {
        const asked = exchange.find(Asked)
        // What a plugin answered in its own words stays as it is.
        if (asked === undefined || reply.kind !== 'json' || !isRecord(reply.body) || reply.body.type !== 'message') return
        return { ...reply, body: toCompletion(reply.body, frame(exchange), asked) }
      },

      onStream (exchange) {
        const asked = exchange.find(Asked)
        return asked === undefined ? undefined : toChunks(frame(exchange), asked)
      }
    }
  }
})
