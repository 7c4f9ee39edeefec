// The dialect `chat` (OpenAI's chat completions): vLLM, Ollama and the many vendors that speak nothing else
// (src/README.md#chat-upstream).
import type { Exchange } from '../../../core/exchange.ts'
import type { Attempt } from '../../../core/facts.ts'
import type { UpstreamRequest } from '../../../core/plugin.ts'
import { requestHeaders } from '../../transport/headers.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { toMessage } from './reply.ts'
import { ownWords, toChat } from './request.ts'
import { sample } from './sample.ts'
import { toEvents } from './stream.ts'
import type { DialectModule } from '../dialect.ts'
import { versioned } from '../versioned.ts'

export const dialect: DialectModule = { encode, decodeReply: toMessage, decodeStream: toEvents, ownWords, sample }

function encode (exchange: Exchange, attempt: Attempt, upstream: Upstream): UpstreamRequest {
  return {
    method: 'POST',
    path: `${versioned(upstream.basePath)}/chat/completions`,
    headers: requestHeaders(upstream, exchange.request.stream),
    body: toChat(exchange, attempt.model, upstream)
  }
}
