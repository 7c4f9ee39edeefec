// Translates a part of a chat message's content into a content block: text, image, file.
import { isRecord, type Json } from '../../src/base/json.ts'
import { cacheControl, invalid } from './chat.ts'
import type { TextFiles } from './text-files.ts'

export type Block = Json

/** Whether a text is only white space: the vendor refuses blocks of it. */
export function isBlank (text: string): boolean {
  return !/\S/.test(text)
}

export function textBlock (text: string): Block {
  return { type: 'text', text }
}

/** Position of a part; its path is made only for an error. */
export interface Place {
  readonly message: number
  readonly part: number
}

function pathOf ({ message, part }: Place): string {
  return `messages[${message}].content[${part}]`
}

/**
 * @returns undefined: the part is empty
 * @throws {GatewayError} invalid_request: it can't be expressed in messages style
 */
export function readPart (part: unknown, mayBeMedia: boolean, files: TextFiles, place: Place): Block | undefined {
  if (!isRecord(part)) throw invalid(pathOf(place), 'must be an object')
  switch (part.type) {
    case 'text': return readText(part.text, part, 'text', place)
    case 'refusal': return readText(part.refusal, part, 'refusal', place)
    case 'image_url': if (mayBeMedia) return readImage(part, place); break
    case 'file': if (mayBeMedia) return readFile(part, files, place)
  }
  throw invalid(`${pathOf(place)}.type`, mayBeMedia ? 'must be "text", "image_url" or "file"' : 'must be "text"')
}

function readText (text: unknown, part: Json, name: string, place: Place): Block | undefined {
  if (typeof text !== 'string') throw invalid(`${pathOf(place)}.${name}`, 'must be a string')
  return isBlank(text) ? undefined : { type: 'text', text, ...cacheControl(part.cache_control) }
}

function readImage (part: Json, place: Place): Block {
  const path = `${pathOf(place)}.image_url`
  const url = isRecord(part.image_url) ? part.image_url.url : part.image_url
  if (typeof url !== 'string') throw invalid(`${path}.url`, 'must be a string')
  if (/^https?:\/\//i.test(url)) {
    return { type: 'image', source: { type: 'url', url }, ...cacheControl(part.cache_control) }
  }
  const inline = parseDataUrl(url)
  if (inline === undefined) throw invalid(`${path}.url`, 'must be an http(s) URL, or "data:<type>;base64,<data>"')
  const block = mediaBlock(inline, part)
  if (block === undefined) {
    throw invalid(`${path}.url`, 'must hold image/jpeg, image/png, image/gif, image/webp or application/pdf')
  }
  return block
}

function readFile (part: Json, files: TextFiles, place: Place): Block | undefined {
  const path = `${pathOf(place)}.file`
  const file = isRecord(part.file) ? part.file : part
  if (typeof file.file_data !== 'string') {
    throw invalid(`${path}.file_data`, 'must be a data URL or base64; there are no files by id here')
  }
  const name = typeof file.filename === 'string' ? file.filename : ''
  const inline = parseDataUrl(file.file_data) ?? { mediaType: UNKNOWN, data: file.file_data }
  const mediaType = inline.mediaType === UNKNOWN ? typeByName(name) : inline.mediaType
  const title = name === '' ? undefined : { title: name }
  const media = mediaBlock({ mediaType, data: inline.data }, part, title)
  if (media !== undefined) return media
  if (!TEXT.test(mediaType)) {
    throw invalid(`${path}.file_data`, 'must be a PDF, an image, or text (text/…, application/json)')
  }
  const text = files.read(inline.data, `${path}.file_data`)
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
