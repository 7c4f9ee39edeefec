// What addresses and queries of lists say.
import type { Exchange } from '../core/exchange.ts'
import { GatewayError } from '../errors.ts'

const LARGEST_PAGE = 100
const STANDARD_PAGE = 20

export interface Page {
  readonly limit: number
  readonly order: 'asc' | 'desc'
  readonly after: string | undefined
}

/** The id in the path; '' where the path goes on behind it. */
export function idIn ({ route, received }: Exchange): string {
  const segments = route.path.split('/')
  const path = received.path.replace(/\/$/, '').split('/')
  return path.length === segments.length ? path[segments.findIndex((segment) => segment.startsWith('{'))]! : ''
}

/** @throws {GatewayError} invalid_request */
export function readPage (query: string): Page {
  const asked = new URLSearchParams(query)
  const limit = readLimit(asked.get('limit') || undefined)
  const order = asked.get('order') || 'desc'
  if (order !== 'asc' && order !== 'desc') {
    throw new GatewayError('invalid_request', { message: '"order" must be asc or desc.', param: 'order' })
  }
  return { limit, order, after: asked.get('after') || undefined }
}

function readLimit (text: string | undefined): number {
  if (text === undefined) return STANDARD_PAGE
  const limit = /^\d{1,3}$/.test(text) ? Number(text) : 0
  if (limit < 1 || limit > LARGEST_PAGE) {
    throw new GatewayError('invalid_request', { message: `"limit" must be a whole number from 1 to ${LARGEST_PAGE}.`,
      param: 'limit' })
  }
  return limit
}
