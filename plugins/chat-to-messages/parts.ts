// Translates a part of a chat message's content into a content block: text, image, file.
import { type Block, cacheControl, isBlank } from '../../src/translation/blocks.ts'
import { fileBlock, imageBlock } from '../../src/translation/media.ts'
import { invalid } from '../../src/translation/reads.ts'
import type { TextFiles } from '../../src/translation/text-files.ts'
import { isRecord, type Json } from '../../src/base/json.ts'

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
  const url = isRecord(part.image_url) ? part.image_url.url : part.image_url
  return imageBlock(url, () => `${pathOf(place)}.image_url.url`, part)
}

function readFile (part: Json, files: TextFiles, place: Place): Block | undefined {
  return fileBlock(isRecord(part.file) ? part.file : part, () => `${pathOf(place)}.file.file_data`, part, files)
}
