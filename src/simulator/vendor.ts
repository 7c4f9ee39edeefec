// A vendor's headers, which reveal too much, and the sentences of its errors.
import { randomBytes, randomUUID } from 'node:crypto'
import { VendorError } from './dialect.ts'

/** Invented, and in the shape of real ones: a gateway that lets one through leaks the operator's account. */
export const organization = '5d3c1a9e-7b42-4f0e-9c65-2f8e1b7a4d30'
export const leakedKey = 'sk-ant-api03-SIMULATED-mZ4vQ8rT1xW6yB2nL0kJ9hG7fD5sA3pE-AA'

export function newRequestId (): string {
  return `req_011C${randomBytes(15).toString('base64url').replaceAll(/[-_]/g, 'x')}`
}

/** None of it is the client's business but the request id, and that has to be replaced by the gateway's. */
export function vendorHeaders (requestId: string): Readonly<Record<string, string | readonly string[]>> {
  return {
    'request-id': requestId,
    'anthropic-organization-id': organization,
    'anthropic-ratelimit-requests-limit': '4000',
    'anthropic-ratelimit-requests-remaining': '3999',
    'cf-ray': `${randomBytes(8).toString('hex')}-ARN`,
    'cf-cache-status': 'DYNAMIC',
    server: 'cloudflare',
    via: '1.1 google',
    'set-cookie': [`__cf_bm=${randomUUID()}; path=/; HttpOnly; Secure; SameSite=None`],
    'strict-transport-security': 'max-age=31536000; includeSubDomains; preload',
    'x-robots-tag': 'none'
  }
}

const sentences: Readonly<Record<number, string>> = {
  400: 'Your request could not be processed.',
  401: `invalid x-api-key: ${leakedKey} (organization ${organization})`,
  402: `The credit balance of organization ${organization} is too low.`,
  403: `Organization ${organization} is not allowed to use this model with the key ${leakedKey}.`,
  404: 'model: not found',
  408: 'Request timeout',
  413: 'Request exceeds the maximum size',
  429: `This request would exceed the rate limit of your organization (${organization}) of 4,000 requests per minute.`,
  500: 'Internal server error',
  503: 'Service unavailable',
  504: 'Request timed out',
  529: 'Overloaded'
}

/** The error that a vendor answers with this status. */
export function vendorError (status: number, retryAfter?: number): VendorError {
  const isTransient = status === 408 || status === 409 || status === 429 || status >= 500
  return new VendorError(status, sentences[status] ?? `Error ${status}`, {
    'x-should-retry': String(isTransient),
    ...(retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) })
  })
}
