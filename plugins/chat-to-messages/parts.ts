// Translates a part of a chat message's content into a content block: text, image, file.
import { type Block, cacheControl, isBlank } from '../../src/translation/blocks.ts'
import { fileBlock, imageBlock } from '../../src/translation/media.ts'
import { invalid, textAt } from '../../src/translation/reads.ts'
import type { TextFiles } from '../../src/translation/text-files.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'

/** Position of content; its path is made only for an error. */
export interface ContentPlace {
  /** undefined: the system beside the messages */
  readonly message: number | undefined
  /** index of the part that it is the content of */
  readonly outer?: number | undefined
}

/** Position of a part. */
export interface Place extends ContentPlace {
  readonly part: number
}

export function contentPath ({ message, outer }: ContentPlace): string {
  if (message === undefined) return 'system'
  return `messages[${message}].content${outer === undefined ? '' : `[${outer}].content`}`
}

export function pathOf (place: Place): string {
  return `${contentPath(place)}[${place.part}]`
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
    case 'file': if (mayBeMedia) return readFile(part, files, place); break
    case 'image': if (mayBeMedia) return readSource(part, place); break
    case 'document': if (mayBeMedia) return readDocument(part, files, place); break
    case 'document_url': if (mayBeMedia) return readLink(part.document_url, part, files, place); break
    case 'file_url': if (mayBeMedia) return readLink(part.file_url, part, files, place)
  }
  throw invalid(`${pathOf(place)}.type`, mayBeMedia
    ? 'must be "text", "image_url", "file", or a block of messages style'
    : 'must be "text"')
}

function readText (text: unknown, part: Json, name: string, place: Place): Block | undefined {
  if (typeof text !== 'string') throw invalid(`${pathOf(place)}.${name}`, 'must be a string')
  return isBlank(text) ? undefined : { type: 'text', text, ...cacheControl(part.cache_control) }
}

function readImage (part: Json, place: Place): Block {
  const url = isRecord(part.image_url) ? part.image_url.url : part.image_url
  return imageBlock(url, () => `${pathOf(place)}.image_url.url`, part)
}

function readFile (part: Json, files: TextFiles, place: Place): Block | undefined {
  return fileBlock(isRecord(part.file) ? part.file : part, () => `${pathOf(place)}.file.file_data`, part, files)
}

/** An image in messages style. */
function readSource (part: Json, place: Place): Block {
  return imageBlock(addressOf(part.source), () => `${pathOf(place)}.source`, part)
}

/** A document in messages style. */
function readDocument (part: Json, files: TextFiles, place: Place): Block | undefined {
  const { source, title, context } = part
  const { type, data, content } = isRecord(source) ? source : NOTHING
  const about = { ...(typeof title === 'string' && { title }), ...(typeof context === 'string' && { context }) }
  if (type === 'text' || (type === 'content' && typeof content === 'string')) {
    const text = textAt(type === 'text' ? data : content, `${pathOf(place)}.source.data`)
    return isBlank(text) ? undefined : { type: 'document', source: { type: 'text', media_type: 'text/plain', data: text },
      ...about, ...cacheControl(part.cache_control) }
  }
  return readLink(addressOf(source), { ...about, cache_control: part.cache_control }, files, place)
}

/** The address of a source in messages style, or its data as a data URL. */
function addressOf (source: unknown): unknown {
  const { type, url, media_type: mediaType, data } = isRecord(source) ? source : NOTHING
  if (type === 'url') return url
  return typeof data === 'string' ? `data:${String(mediaType)};base64,${data}` : undefined
}

/** A file by its address, as Mistral, Z.ai and others have it: its URL, or an object with it. */
function readLink (link: unknown, part: Json, files: TextFiles, place: Place): Block | undefined {
  const url = isRecord(link) ? link.url : link
  const path = (): string => `${pathOf(place)}.${textIn(part.type) || 'source'}`
  const name = part.title ?? part.document_name ?? part.filename
  if (typeof url !== 'string' || !/^(?:https?:\/\/|data:)/i.test(url)) {
    throw invalid(path(), 'must be an http(s) or data URL')
  }
  if (/^data:/i.test(url)) return fileBlock({ file_data: url, filename: name }, path, part, files)
  return { type: 'document', source: { type: 'url', url }, ...(textIn(name) !== '' && { title: name }),
    ...(isGiven(part.context) && { context: part.context }), ...cacheControl(part.cache_control) }
}

function textIn (value: unknown): string {
  return typeof value === 'string' ? value : ''
}

const NOTHING: Json = Object.freeze({})
