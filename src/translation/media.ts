// Images and files of a client's message as content blocks, whatever its style calls them.
import { cacheControl, type Block, isBlank } from './blocks.ts'
import { invalid } from './reads.ts'
import type { TextFiles } from './text-files.ts'
import type { Json } from '../base/json.ts'

/** Where something stands; it is made only for an error. */
export type PathOf = () => string

/**
 * @param part that it stands in, for its cache_control
 * @throws {GatewayError} invalid_request: it is neither an address nor a data URL of an image or PDF
 */
export function imageBlock (url: unknown, path: PathOf, part: Json): Block {
  if (typeof url !== 'string') throw invalid(path(), 'must be a string')
  if (/^https?:\/\//i.test(url)) {
    return { type: 'image', source: { type: 'url', url }, ...cacheControl(part.cache_control) }
  }
  const inline = parseDataUrl(url)
  if (inline === undefined) throw invalid(path(), 'must be an http(s) URL, or "data:<type>;base64,<data>"')
  const block = mediaBlock(inline, part)
  if (block === undefined) {
    throw invalid(path(), 'must hold image/jpeg, image/png, image/gif, image/webp or application/pdf')
  }
  return block
}

/**
 * @param file its data as a data URL or base64, and its name
 * @param path of the data
 * @param part that it stands in, for its cache_control
 * @returns undefined: it is a text of white space
 * @throws {GatewayError} invalid_request: it is neither a PDF nor an image nor text
 */
export function fileBlock (
  { file_data: data, filename }: Json,
  path: PathOf,
  part: Json,
  files: TextFiles
): Block | undefined {
  if (typeof data !== 'string') {
    throw invalid(path(), 'must be a data URL or base64; there are no files by id here')
  }
  const name = typeof filename === 'string' ? filename : ''
  const inline = parseDataUrl(data) ?? { mediaType: UNKNOWN, data }
  const mediaType = inline.mediaType === UNKNOWN ? typeByName(name) : inline.mediaType
  const title = name === '' ? undefined : { title: name }
  const media = mediaBlock({ mediaType, data: inline.data }, part, title)
  if (media !== undefined) return media
  if (!TEXT.test(mediaType)) {
    throw invalid(path(), 'must be a PDF, an image, or text (text/…, application/json)')
  }
  const text = files.read(inline.data, path)
  if (isBlank(text)) return undefined
  return { type: 'document', source: { type: 'text', media_type: 'text/plain', data: text }, ...title,
    ...cacheControl(part.cache_control) }
}

interface Inline {
  /** lower case, without parameters */
  readonly mediaType: string
  /** base64, or the placeholder of some (large-strings.ts) */
  readonly data: string
}

/** With the same parameters as in large-strings.ts, so that the rest is the placeholder and nothing else. */
function parseDataUrl (url: string): Inline | undefined {
  const match = /^data:([\w.+-]{1,60}\/[\w.+-]{1,60})(?:;[\w.+=-]{1,60}){0,4};base64,/i.exec(url)
  return match === null ? undefined : { mediaType: match[1]!.toLowerCase(), data: url.slice(match[0].length) }
}

const UNKNOWN = 'application/octet-stream'
const IMAGES: Readonly<Record<string, string>> = {
  'image/jpeg': 'image/jpeg',
  'image/jpg': 'image/jpeg',
  'image/png': 'image/png',
  'image/gif': 'image/gif',
  'image/webp': 'image/webp'
}
const TEXT = /^text\/|^application\/(?:json|xml|yaml|x-yaml|javascript|.+\+(?:json|xml))$/

function mediaBlock ({ mediaType, data }: Inline, part: Json, title?: Json): Block | undefined {
  const image = Object.hasOwn(IMAGES, mediaType) ? IMAGES[mediaType] : undefined
  if (image !== undefined) {
    return { type: 'image', source: { type: 'base64', media_type: image, data }, ...cacheControl(part.cache_control) }
  }
  if (mediaType !== 'application/pdf') return undefined
  return { type: 'document', source: { type: 'base64', media_type: mediaType, data }, ...title,
    ...cacheControl(part.cache_control) }
}

/** The media type of a file without one, by its name. */
function typeByName (name: string): string {
  if (/\.pdf$/i.test(name)) return 'application/pdf'
  const image = /\.(jpe?g|png|gif|webp)$/i.exec(name)?.[1]
  if (image !== undefined) return `image/${image.toLowerCase()}`
  return /\.(?:txt|text|md|markdown|csv|tsv|json|xml|ya?ml|html?|log)$/i.test(name) ? 'text/plain' : UNKNOWN
}
