// Detects the type of a file by its first bytes: a name or a header can be wrong, or a lie.

export interface FileType {
  readonly type: string
  readonly extension: string
  /** a raster image: it has no parts that a browser would execute */
  readonly isRaster: boolean
}

/** Bytes that the detection reads. */
export const SNIFFED_BYTES = 512

const raster = (type: string, extension: string): FileType => ({ type, extension, isRaster: true })

const PNG = raster('image/png', 'png')
const JPEG = raster('image/jpeg', 'jpg')
const GIF = raster('image/gif', 'gif')
const WEBP = raster('image/webp', 'webp')
const AVIF = raster('image/avif', 'avif')
const SVG: FileType = { type: 'image/svg+xml', extension: 'svg', isRaster: false }

/** @returns undefined: no type of image that models make */
export function imageType (first: Uint8Array): FileType | undefined {
  const head = Buffer.from(first.buffer, first.byteOffset, Math.min(first.byteLength, SNIFFED_BYTES)).toString('latin1')
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return PNG
  if (head.startsWith('\xff\xd8\xff')) return JPEG
  if (/^GIF8[79]a/.test(head)) return GIF
  if (head.startsWith('RIFF') && head.startsWith('WEBP', 8)) return WEBP
  if (/^ftypavi[fs]/.test(head.slice(4))) return AVIF
  // an XML declaration, comments and a doctype may come first
  if (
    /^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--[\s\S]*?-->\s*|<!DOCTYPE svg[^>]*>\s*)*<svg[\s>]/i.test(head)
  ) return SVG
  return undefined
}
