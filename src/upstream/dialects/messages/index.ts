// The dialect `messages` (Anthropic's Messages API), which is also the inner language. Everything passes, except the
// gateway's own fields.
import type { Exchange } from '../../../core/exchange.ts'
import { type Attempt, Model } from '../../../core/facts.ts'
import { askedVersion, DEFAULT_VERSION, messagesStyle } from '../../../protocols/messages.ts'
import type { UpstreamRequest } from '../../../core/plugin.ts'
import { ownHeaders } from '../../transport/headers.ts'
import type { Upstream } from '../../../core/upstream.ts'
import type { DialectModule } from '../dialect.ts'
import { toMessage } from './reply.ts'
import { toEvents } from './stream.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { PassedRequest } from '../passed-body.ts'
import { versionedAtEnd } from '../versioned.ts'

/** The first version that refuses the sampling fields (src/README.md#version-header). */
const NO_SAMPLING_VERSION = '2026-10-21'
const NO_SAMPLING = { temperature: undefined, top_p: undefined, top_k: undefined } as const
/**
 * Beta headers with which a client would get more context than the model is sold with, at a higher price than was held
 * for it.
 */
const LONGER_CONTEXT = /context-\d+m/i
const LONG_CONTEXT = 200_000

export const dialect: DialectModule = {
  encode: (exchange, attempt, upstream) => encode('/messages', exchange.request.stream, exchange, attempt, upstream),

  decodeReply: toMessage,

  decodeStream: toEvents,

  countTokens: {
    encode: (exchange, attempt, upstream) => encode('/messages/count_tokens', false, exchange, attempt, upstream),
    decode (body) {
      const tokens = isRecord(body) ? body.input_tokens : undefined
      if (typeof tokens !== 'number' || !Number.isSafeInteger(tokens) || tokens < 0) {
        throw new Error('the answer is no count of tokens')
      }
      return tokens
    }
  }
}

function encode (
  path: string,
  stream: boolean,
  exchange: Exchange,
  attempt: Attempt,
  upstream: Upstream
): UpstreamRequest {
  const { body } = exchange.request
  const configured = upstream.config.headers['anthropic-version']
  // The header of a chat client has another meaning: its request is in the inner language here.
  const asked = exchange.route.style === messagesStyle ? askedVersion(exchange.received.headers) : DEFAULT_VERSION
  const { sampling: takesSampling, context } = exchange.get(Model)
  const hasSampling = isGiven(body.temperature) || isGiven(body.top_p) || isGiven(body.top_k)
  // The client's version would make the vendor refuse fields that the gateway accepts in every version.
  const version = configured ?? (hasSampling && asked >= NO_SAMPLING_VERSION ? DEFAULT_VERSION : asked)
  const headers: Record<string, string> = {
    ...ownHeaders(stream),
    ...upstream.config.headers,
    // Set, never appended: a doubled version is a 400.
    'anthropic-version': version
  }
  const beta = betas(exchange, upstream.config.headers['anthropic-beta'], context)
  if (beta !== '') headers['anthropic-beta'] = beta
  return new PassedRequest(versionedAtEnd(upstream.basePath) + path, headers, body, {
    ...withoutUnsigned(body),
    ...(!(takesSampling && version < NO_SAMPLING_VERSION) && NO_SAMPLING),
    model: attempt.model
  })
}

/**
 * Removes unsigned thoughts, which come from vendors of chat style: this vendor refuses them, now and on every later
 * turn (src/README.md#signatures). Where the turn whose calls are answered began with one, thinking is disabled: with a
 * budget the vendor insists on a thought there.
 * @returns the changed fields
 */
function withoutUnsigned ({ messages: turns, thinking }: Json): Json {
  if (!Array.isArray(turns) || !turns.some((turn) => isAnswer(turn) && blocksOf(turn).some(isUnsigned))) return {}
  const kept = turns.flatMap((turn: unknown) => {
    const blocks = isAnswer(turn) ? blocksOf(turn) : []
    const others = blocks.filter((block) => !isUnsigned(block))
    return others.length === blocks.length
      ? [turn]
      : others.length === 0
      ? []
      : [{ role: 'assistant', content: others }]
  })
  const [answer, results] = turns.slice(-2) as unknown[]
  const mustThink = isRecord(thinking) && thinking.type === 'enabled' &&
    blocksOf(results).some((block) => isRecord(block) && block.type === 'tool_result')
  return { messages: kept, ...(mustThink && isUnsigned(blocksOf(answer)[0]) && { thinking: { type: 'disabled' } }) }
}

function isAnswer (turn: unknown): boolean {
  return isRecord(turn) && turn.role === 'assistant'
}

function blocksOf (turn: unknown): readonly unknown[] {
  return isRecord(turn) && Array.isArray(turn.content) ? turn.content : []
}

function isUnsigned (block: unknown): boolean {
  return isRecord(block) && block.type === 'thinking' && (typeof block.signature !== 'string' || block.signature === '')
}

/** The configured betas and the client's, each once: the vendor decides which it knows (src/README.md#beta-headers). */
function betas (exchange: Exchange, configured: string | undefined, context: number | undefined): string {
  const asked = exchange.received.headers['anthropic-beta']
  if (asked === undefined) return configured ?? ''
  const split = (list: string): string[] => list.split(',').map((name) => name.trim())
  const wanted = (typeof asked === 'string' ? [asked] : asked).flatMap(split).filter((name) =>
    context === undefined || context > LONG_CONTEXT || !LONGER_CONTEXT.test(name)
  )
  return [...new Set([...split(configured ?? ''), ...wanted])].filter((name) => name !== '').join(',')
}
