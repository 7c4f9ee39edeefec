// What a file is, by its first bytes: what a name or a header says of it can be wrong, or a lie.

export interface FileType {
  readonly type: string
  readonly extension: string
  /** a raster image: nothing in it runs when a browser shows it */
  readonly isRaster: boolean
}

/** As many bytes as are looked at. */
export const SNIFFED_BYTES = 512

const raster = (type: string, extension: string): FileType => ({ type, extension, isRaster: true })

const PNG = raster('image/png', 'png')
const JPEG = raster('image/jpeg', 'jpg')
const GIF = raster('image/gif', 'gif')
const WEBP = raster('image/webp', 'webp')
const AVIF = raster('image/avif', 'avif')
const SVG: FileType = { type: 'image/svg+xml', extension: 'svg', isRaster: false }

/** @returns undefined: no image that a model makes */
export function imageType (first: Uint8Array): FileType | undefined {
  const head = Buffer.from(first.buffer, first.byteOffset, Math.min(first.byteLength, SNIFFED_BYTES)).toString('latin1')
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return PNG
  if (head.startsWith('\xff\xd8\xff')) return JPEG
  if (/^GIF8[79]a/.test(head)) return GIF
  if (head.startsWith('RIFF') && head.startsWith('WEBP', 8)) return WEBP
  if (/^ftypavi[fs]/.test(head.slice(4))) return AVIF
  // XML declaration, comments and doctype may stand before it
  if (
    /^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--[\s\S]*?-->\s*|<!DOCTYPE svg[^>]*>\s*)*<svg[\s>]/i.test(head)
  ) return SVG
  return undefined
}
