// GET /files/…: the image behind a link. The link is the permission; without it the file's existence is not revealed.
import { Readable } from 'node:stream'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'
import type { BytesReply, Headers } from '../core/reply.ts'

const PREFIX = '/files/'

/** @throws {GatewayError} not_found: forged, expired, or never made */
export async function sendFile (exchange: Exchange): Promise<BytesReply> {
  const { received: { path, method, headers }, snapshot: { services: { links, now } } } = exchange
  const found = await links.find(path.slice(PREFIX.length))
  if (found === undefined) {
    throw new GatewayError('not_found', {
      message:
        'There is no such file, or its link has expired. Links to images work for a limited time: ' +
          'save what you want to keep.'
    })
  }
  const { name, file: { size, type, isRaster, read }, expires } = found
  const etag = `"${name}"`
  const about: Headers = {
    'accept-ranges': 'bytes',
    etag,
    // Private, because the link is the permission. Not beyond its expiry.
    'cache-control': `private, max-age=${Math.max(0, Math.floor((expires - now()) / 1000))}`,
    'x-content-type-options': 'nosniff',
    // Should a browser render it as a page, it can do nothing and has no origin.
    'content-security-policy': 'default-src \'none\'; sandbox',
    'cross-origin-resource-policy': 'cross-origin',
    'access-control-allow-origin': '*'
  }
  const reply = (status: number, more: Headers, bytes: Readable): BytesReply => ({
    kind: 'bytes',
    status,
    headers: { ...about, ...more },
    bytes
  })
  if (matches(headers['if-none-match'], etag)) return reply(304, {}, Readable.from([]))
  const ifRange = headers['if-range']
  const part = ifRange === undefined || ifRange === etag ? partOf(headers['range'], size) : undefined
  if (part === 'none') {
    return reply(416, { 'content-range': `bytes */${size}`, 'content-length': '0' }, Readable.from([]))
  }
  const { from, to } = part ?? { from: 0, to: size }
  return reply(part === undefined ? 200 : 206, {
    'content-type': type,
    'content-length': String(to - from),
    'content-disposition': `${isRaster ? 'inline' : 'attachment'}; ` +
      `filename="image.${name.slice(name.lastIndexOf('.') + 1)}"`,
    ...(part !== undefined && { 'content-range': `bytes ${from}-${to - 1}/${size}` })
  }, method === 'HEAD' || to === from ? Readable.from([]) : closing(read(from, to), exchange))
}

/**
 * Destroys the stream with the exchange: it is open from here on, and may never be read, because the client leaves or a
 * plugin throws or answers itself.
 */
function closing (bytes: Readable, exchange: Exchange): Readable {
  bytes.on('error', () => {})                                 // the reader gets the error too
  exchange.onFinish(() => { bytes.destroy() })
  return bytes
}

function matches (header: string | readonly string[] | undefined, etag: string): boolean {
  return header !== undefined &&
    String(header).split(',').some((one) => one.trim().replace(/^W\//, '') === etag || one.trim() === '*')
}

/** A single range; for several or an invalid one the whole file may be sent (RFC 9110 14.2). */
function partOf (
  header: string | readonly string[] | undefined,
  size: number
): { readonly from: number, readonly to: number } | 'none' | undefined {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(String(header ?? '')) ?? []
  if (first === '' && last === '') return undefined
  const from = first === '' ? Math.max(0, size - Number(last)) : Number(first)
  const to = first === '' || last === '' ? size : Math.min(size, Number(last) + 1)
  if (first !== '' && last !== '' && Number(last) < Number(first)) return undefined
  return from >= size || to <= from ? 'none' : { from, to }
}
