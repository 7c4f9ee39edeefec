// Images on their way from an upstream to the client.
import type { Exchange } from './exchange.ts'
import type { Blobs } from './large-strings.ts'

/** An item of `data[]` from an upstream; base64 of 64 KiB and more is a placeholder (large-strings.ts). */
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

/** An upstream's answer. */
export interface MadeImages {
  readonly images: readonly MadeImage[]
  /** the base64 of the images */
  readonly blobs: Blobs
  /** fields of the answer beside the images */
  readonly told: Readonly<Record<string, unknown>>
}

/** The number of images that a request asks for. */
export function countOf (exchange: Exchange): number {
  const { n } = exchange.request.body
  return typeof n === 'number' ? n : 1
}
