// POST /v1/images/generations and /v1/images/edits: the check before an upstream is asked, and the client's answer.
import { isRecord, type Json } from '../base/json.ts'
import type { Exchange } from '../core/exchange.ts'
import { type Attempt, Variant } from '../core/facts.ts'
import { countOf, type MadeImages } from '../core/made-images.ts'
import type { Upstream } from '../core/upstream.ts'
import { checkRoom, deliverImages } from '../media/image-delivery.ts'

/** @throws {GatewayError} service_unavailable: the images could not be kept */
export function prepareImages (exchange: Exchange): void {
  checkRoom(countOf(exchange), exchange)
}

/**
 * The answer with the images that could be delivered. Undefined: none was made.
 * @throws {GatewayError} the gateway's own failure; {Error} none could be delivered, by the upstream's fault
 */
export async function answerImages (
  { images, blobs, told }: MadeImages,
  exchange: Exchange,
  attempt: Attempt,
  upstream: Upstream
): Promise<unknown> {
  if (images.length === 0) return undefined
  const data = await deliverImages(images, blobs, exchange, upstream)
  if (data.length === 0) throw new Error('none of the images could be delivered')
  return { created: Math.floor(exchange.snapshot.services.now() / 1000), data, ...told, ...usageOf(told),
    ...settingsOf(exchange), channel: attempt.channel }
}

/** What an image costs the operator is not for its client. */
function usageOf ({ usage }: MadeImages['told']): Json {
  if (!isRecord(usage)) return {}
  return { usage: Object.fromEntries(Object.entries(usage).filter(([name]) => !/cost/i.test(name))) }
}

/** The settings of the images, including the defaults that applied. */
function settingsOf (exchange: Exchange): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(exchange.find(Variant) ?? {}).filter(([name]) => name === 'size' || name === 'quality')
  )
}
