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
  if (head.startsWith('GIF87a') || head.startsWith('GIF89a')) return GIF
  if (head.startsWith('RIFF') && head.startsWith('WEBP', 8)) return WEBP
  if (head.startsWith('ftypavif', 4) || head.startsWith('ftypavis', 4)) return AVIF
  return isSvg(head) ? SVG : undefined
}

/** What may stand before the root element, by its beginning, with its end (XML 1.0, production 22). */
const PROLOG = [['<?xml', '>'], ['<!--', '-->'], ['<!doctype svg', '>']] as const

/**
 * Whether the root element is `svg`. Reads each character once: a part of the prolog that has no end ends the search.
 */
function isSvg (head: string): boolean {
  const text = head.toLowerCase()
  let at = skipSpace(text, text.startsWith('\xef\xbb\xbf') ? 3 : 0)
  while (text.startsWith('<', at) && !text.startsWith('<svg', at)) {
    const part = PROLOG.find(([start]) => text.startsWith(start, at))
    if (part === undefined) return false
    const [start, end] = part
    const found = text.indexOf(end, at + start.length)
    if (found === -1) return false
    at = skipSpace(text, found + end.length)
  }
  return text.startsWith('<svg', at) && (text[at + 4] === '>' || isSpace(text[at + 4]))
}

function skipSpace (text: string, from: number): number {
  let at = from
  while (isSpace(text[at])) at++
  return at
}

/** XML 1.0, production 3. */
function isSpace (character: string | undefined): boolean {
  return character === ' ' || character === '\t' || character === '\n' || character === '\r'
}
