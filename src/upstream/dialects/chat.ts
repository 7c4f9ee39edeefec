// The dialect `chat` (OpenAI's chat completions): vLLM, Ollama and the many vendors that speak nothing else (protocol.md B6).
import type { Exchange } from '../../exchange.ts'
import type { Attempt } from '../../facts.ts'
import type { UpstreamRequest } from '../../plugin.ts'
import { ownHeaders } from '../headers.ts'
import type { Upstream } from '../upstream.ts'
import { toMessage } from './chat/reply.ts'
import { toChat } from './chat/request.ts'
import { toEvents } from './chat/stream.ts'
import type { DialectModule } from './index.ts'
import { versioned } from './versioned.ts'

export const chat: DialectModule = { encode, decodeReply: toMessage, decodeStream: toEvents }

function encode (exchange: Exchange, attempt: Attempt, upstream: Upstream): UpstreamRequest {
  return {
    method: 'POST',
    path: `${versioned(upstream.basePath)}/chat/completions`,
    headers: { ...ownHeaders(exchange.request.stream), ...upstream.config.headers },
    body: toChat(exchange, attempt.model, upstream.config.chat ?? {})
  }
}
