// error-normalize: the bottom of the list. Names every failure of an upstream by a row of the catalogue, and shapes
// every error for the client. An upstream's message reaches a client only from here, and only where the client can act
// on it.
import { type ErrorCode, GatewayError } from '../../src/errors.ts'
import { shapeError } from '../../src/protocols/error-shape.ts'
import { Charge, Model } from '../../src/core/facts.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { formatUsd } from '../../src/money/nanos.ts'
import { definePlugin, type UpstreamFailure } from '../../src/core/plugin.ts'
import type { Meaning } from '../../src/core/error-meanings.ts'
import { readError, type ToldFailure, type VendorError } from '../../src/core/vendor-error.ts'
import { scrub } from '../../src/base/redact.ts'
import { readRetryAfter } from '../../src/upstream/limits/retry-after.ts'
import { secretsOf } from '../../src/core/upstream-secrets.ts'

export const errorNormalize = definePlugin<Record<never, never>>({
  name: 'error-normalize',
  readsInSteps: true,
  always: true,
  // Reads Charge and Model by `find`: an error may come before either is written.
  create (_options, config, { now }) {
    const secrets = new Map(Object.entries(config.upstreams).map(([name, upstream]) => [name, secretsOf(upstream)]))
    return {
      onUpstreamFailure: (failure, exchange, upstream) =>
        name(failure, now, (text) => scrub(withPublicId(text, exchange), secrets.get(upstream) ?? [])),
      onError (error, exchange) {
        const charge = exchange.find(Charge)
        return shapeError(error, exchange.route.style, exchange.id,
          charge === undefined ? '0' : formatUsd(charge.nanos))
      }
    }
  }
})

type Clean = (text: string) => string

/**
 * Names a failure, which becomes the cause, for the log. Before the commit all failures are retryable, except those
 * that the request itself has caused (src/README.md#channels).
 */
function name (failure: UpstreamFailure, now: () => number, clean: Clean): GatewayError {
  switch (failure.kind) {
    case 'status':
    case 'error_event': return nameError(failure, now, clean)
    case 'exhausted': return new GatewayError('service_unavailable', { cause: failure, retryable: true })
    case 'empty': return new GatewayError('empty_response', { cause: failure })
    // An answer that is whole was paid for (src/README.md#one-request).
    case 'unusable': return new GatewayError('upstream_error', { cause: failure, retryable: failure.isHalf === true })
    case 'incomplete': return new GatewayError('stream_incomplete', { cause: failure, retryable: true })
    default: return new GatewayError('upstream_error', { cause: failure })
  }
}

function nameError (failure: ToldFailure, now: () => number, clean: Clean): GatewayError {
  const said = readError(failure)
  switch (said.status) {
    case 400:
    case 422: return nameRefusal(said, failure, clean)
    case 413: return refuse('request_too_large', said, failure, clean)
    case 429:
    case 503:
    case 529: {
      const retryAfter = readRetryAfter(failure.kind === 'status' ? failure.headers : {}, now) ?? said.retryAfter
      return new GatewayError('model_overloaded', { cause: failure, ...(retryAfter !== undefined && { retryAfter }) })
    }
    // 401, 402, 403: the operator's credentials and bill. 404: the configuration. Never passed on
    // (src/README.md#own-words).
    default: return new GatewayError('upstream_error', { cause: failure })
  }
}

const REFUSALS: { readonly [Name in Meaning]?: ErrorCode } = {
  context: 'context_length_exceeded', policy: 'content_policy_violation', image: 'image_input_not_supported'
}

/** The upstream refused the request itself. */
function nameRefusal (said: VendorError, cause: ToldFailure, clean: Clean): GatewayError {
  const code = REFUSALS[said.means ?? 'invalid'] ?? 'invalid_request'
  if (code === 'image_input_not_supported' || code === 'content_policy_violation') {
    return new GatewayError(code, { cause })
  }
  // Of a page, or of no text, nobody knows what was refused.
  if (said.message === '' && code === 'invalid_request') return new GatewayError('upstream_error', { cause })
  return refuse(code, said, cause, code === 'context_length_exceeded' ? (text) => forAgents(clean(text)) : clean)
}

/**
 * With the upstream's sentence, because it helps: Claude Code computes with the numbers in one
 * (src/README.md#own-words).
 */
function refuse (code: ErrorCode, { message: said, param: field }: VendorError, cause: ToldFailure,
  clean: Clean): GatewayError {
  const message = clean(said)
  const param = field === undefined ? '' : clean(field)
  return new GatewayError(code, { cause, ...(message !== '' && { message }), ...(param !== '' && { param }) })
}

/**
 * The sentence with words that agents look for before they compact a conversation. Claude Code looks for these two,
 * opencode and others for the first one among many.
 */
function forAgents (message: string): string {
  return message === '' || /prompt is too long|exceed context limit/i.test(message) ? message
    : `Prompt is too long: ${message}`
}

/** Replaces the upstream's id of the model by the public one, which the client knows (src/README.md#public-model). */
function withPublicId (text: string, exchange: Exchange): string {
  const publicId = exchange.find(Model)?.id
  const upstreamId = exchange.lastAttempt?.model
  if (publicId === undefined || upstreamId === undefined || publicId === upstreamId) return text
  return text.replace(new RegExp(`(?<![\\w-])${upstreamId.replace(/[^\w]/g, '\\$&')}(?![\\w-])`, 'g'), () => publicId)
}
