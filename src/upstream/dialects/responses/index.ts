// The dialect `responses` (OpenAI's Responses API): the vendor's newest models, with their reasoning kept across turns
// although nothing is stored there (src/README.md#responses-upstream).
import type { Exchange } from '../../../core/exchange.ts'
import type { Attempt } from '../../../core/facts.ts'
import type { UpstreamRequest } from '../../../core/plugin.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { requestHeaders } from '../../transport/headers.ts'
import type { DialectModule } from '../dialect.ts'
import { versioned } from '../versioned.ts'
import { isUnverified } from './errors.ts'
import { toMessage } from './reply.ts'
import { LEAST_OUTPUT, ownWords, toResponses } from './request.ts'
import { sample } from './sample.ts'
import { toEvents } from './stream.ts'

export const dialect: DialectModule = { encode, decodeReply: toMessage, decodeStream: toEvents, ownWords,
  leastOutput: LEAST_OUTPUT, refusesThoughts: isUnverified, sample }

function encode (exchange: Exchange, attempt: Attempt, upstream: Upstream): UpstreamRequest {
  return {
    method: 'POST',
    path: `${versioned(upstream.basePath)}/responses`,
    headers: requestHeaders(upstream, exchange.request.stream),
    body: toResponses(exchange, attempt, upstream)
  }
}
