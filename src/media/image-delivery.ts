// Delivers the images that an upstream has made, each as the client wants it: as a link or as base64.
import { setImmediate } from 'node:timers/promises'
import { Blobs } from '../core/large-strings.ts'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'
import { FilesFull, NotAnImage } from './file-store.ts'
import { BadLink } from '../upstream/transport/public-link.ts'
import { fetchImage } from './fetch-image.ts'
import { imageType, SNIFFED_BYTES } from './image-type.ts'
import type { DeliveredImage, MadeImage } from '../core/made-images.ts'
import type { Upstream } from '../core/upstream.ts'

/** Most bytes of all images of an answer in base64: they are in memory until the client has taken them. */
const ANSWER_LIMIT = 96 * 1024 * 1024
/** Bytes of a small image: with less room for links, no upstream is asked for one. */
const SMALL_IMAGE = 256 * 1024
/** Bytes that are decoded in one turn of the event loop. */
const TURN_BYTES = 512 * 1024

/**
 * The images that could be delivered, in their order; the others are not charged.
 * @param blobs of the upstream's answer
 * @throws {GatewayError} service_unavailable: the gateway's files fail or are full, for which another upstream is no
 * help
 */
export async function deliverImages (
  made: readonly MadeImage[],
  blobs: Blobs,
  exchange: Exchange,
  upstream: Upstream
): Promise<readonly DeliveredImage[]> {
  const wantsBase64 = wantsBase64In(exchange)
  const delivered: DeliveredImage[] = []
  for (const image of made) {
    try {
      const { revised_prompt: prompt } = image
      delivered.push({
        ...(wantsBase64
          ? await asBase64(image, blobs, exchange, upstream)
          : await asLink(image, blobs, exchange, upstream)),
        ...(prompt !== undefined && { revised_prompt: prompt })
      })
    } catch (err) {
      exchange.throwIfAborted()
      if (!(err instanceof BadLink || err instanceof NotAnImage)) {
        throw new GatewayError('service_unavailable', { cause: err })
      }
      exchange.snapshot.services.log.warn({ request_id: exchange.id, upstream: upstream.name, err },
        'an image of an upstream could not be delivered, and is not charged')
    }
  }
  return delivered
}

/**
 * Checks the room for links before an upstream is asked, because its images could not be kept. Whether an upstream
 * gives links of its own is known only afterwards.
 * @param count images that are asked for
 * @throws {GatewayError} service_unavailable: there is no room for links
 */
export function checkRoom (count: number, exchange: Exchange): void {
  const { room } = exchange.snapshot.services.links
  if (wantsBase64In(exchange) || room >= count * SMALL_IMAGE) return
  throw new GatewayError('service_unavailable', {
    message:
      'There is no room for more links to images now. Ask for "response_format": "b64_json", or try again in {wait}.',
    retryAfter: 60,
    cause: new FilesFull(`the files have room for ${room} bytes`)
  })
}

/**
 * Clients that take base64 only, and do not ask for it when they edit: Vercel's provider for OpenAI, whose own models
 * give nothing else.
 */
const TAKES_BASE64 = /(?:^|\s)ai-sdk(?:-provider-utils)?\//

function wantsBase64In ({ request: { body }, received: { headers } }: Exchange): boolean {
  const asked = body['response_format'] ?? undefined
  return asked === undefined ? TAKES_BASE64.test(String(headers['user-agent'] ?? '')) : asked === 'b64_json'
}

async function asLink (
  { url, base64 }: MadeImage,
  blobs: Blobs,
  exchange: Exchange,
  upstream: Upstream
): Promise<DeliveredImage> {
  if (base64 === undefined && upstream.config.links !== 'mirror') return { url: checkPassed(url!) }
  const { links } = exchange.snapshot.services
  const link = await links.keep(
    base64 === undefined
      ? fetchImage(url!, { trusted: [upstream.origin], signal: exchange.signal })
      : decode(piecesOf(base64, blobs))
  )
  exchange.onFinish((outcome) => outcome.kind === 'failed' ? links.forget(link) : undefined)
  return { url: link }
}

/** Checks that a link for clients is one of the web. */
function checkPassed (url: string): string {
  if (!/^https?:\/\//i.test(url)) throw new BadLink('the link is not of the web')
  return url
}

async function asBase64 (
  { url, base64 }: MadeImage,
  blobs: Blobs,
  exchange: Exchange,
  upstream: Upstream
): Promise<DeliveredImage> {
  const pieces = base64 === undefined ? await fetchBase64(url!, exchange, upstream) : piecesOf(base64, blobs)
  const first = Buffer.concat(pieces, Math.min(SNIFFED_BYTES, lengthOf(pieces))).toString('latin1')
  if (imageType(Buffer.from(first, 'base64')) === undefined) throw new NotAnImage('its bytes are no image')
  const kept = exchange.answerBlobs ??= new Blobs()
  if (kept.bytes + lengthOf(pieces) > ANSWER_LIMIT) throw new NotAnImage('the answer is too large for base64')
  return { b64_json: kept.keep(pieces) }
}

async function fetchBase64 (url: string, exchange: Exchange, upstream: Upstream): Promise<readonly Buffer[]> {
  const pieces: Buffer[] = []
  let rest = Buffer.alloc(0)
  for await (const chunk of fetchImage(url, { trusted: [upstream.origin], signal: exchange.signal })) {
    const bytes = Buffer.concat([rest, chunk])
    const whole = bytes.length - bytes.length % 3
    pieces.push(Buffer.from(bytes.toString('base64', 0, whole)))
    rest = bytes.subarray(whole)
  }
  pieces.push(Buffer.from(rest.toString('base64')))
  return pieces
}

/** Some vendors send a data URL in the place of base64. */
function piecesOf (base64: string, blobs: Blobs): readonly Buffer[] {
  const plain = base64.replace(/^data:[\w.+/;=-]{1,100};base64,/i, '')
  return blobs.find(plain) ?? [Buffer.from(plain, 'latin1')]
}

function lengthOf (pieces: readonly Buffer[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0)
}

/** Decodes base64 in pieces of any length: four characters are three bytes. Other events pass between the turns. */
export async function * decode (pieces: readonly Buffer[]): AsyncGenerator<Uint8Array> {
  let rest = ''
  let turn = 0
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += TURN_BYTES) {
      const text = rest + piece.toString('latin1', at, at + TURN_BYTES)
      const whole = text.length - text.length % 4
      rest = text.slice(whole)
      yield Buffer.from(text.slice(0, whole), 'base64')
      turn += whole
      if (turn < TURN_BYTES) continue
      turn = 0
      await setImmediate()
    }
  }
  if (rest !== '') yield Buffer.from(rest, 'base64')
}
