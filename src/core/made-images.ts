// Images between the upstream that made them and the client that gets them.
import type { Exchange } from './exchange.ts'
import type { Blobs } from './large-strings.ts'

/** One of `data[]` as an upstream gives it; base64 of 64 KiB and more is a placeholder (large-strings.ts). */
export interface MadeImage {
  readonly url?: string
  readonly base64?: string
  readonly revised_prompt?: string
}

export interface DeliveredImage {
  readonly url?: string
  readonly b64_json?: string
  readonly revised_prompt?: string
}

/** What an upstream has answered. */
export interface MadeImages {
  readonly images: readonly MadeImage[]
  /** of their base64 */
  readonly blobs: Blobs
  /** what is said beside them */
  readonly told: Readonly<Record<string, unknown>>
}

/** How many images a request asks for. */
export function countOf (exchange: Exchange): number {
  const { n } = exchange.request.body
  return typeof n === 'number' ? n : 1
}
