// Content blocks of the inner language as parts of a message in OpenAI's styles: each of these has words of its own.
import { isRecord, type Json } from '../../base/json.ts'
import { withoutAttribution } from '../../core/conversation.ts'
import { type MarkOf, noMark, withMark } from './cache-marks.ts'
import { textIn, unsayable } from './json.ts'
import { isToolChange } from './tool-changes.ts'

export interface PartStyle {
  text (text: string): Json
  /** @param url an address, or the image itself as a data URL */
  image (url: unknown): Json
  /** Undefined: the style has no such files. */
  file (pdf: Pdf): Json | undefined
  /** The place of an address in the client's own request, for a refusal. Undefined, or absent: it is not known. */
  placeOf? (address: string): string | undefined
}

export interface Pdf {
  readonly type: 'base64' | 'url'
  /** a name of some kind */
  readonly title: string
  /** in messages style */
  readonly source: Json
}

/**
 * The texts of a system, but for Claude Code's first: that has another hash in every request, with which no vendor's
 * prefix cache would ever hit.
 * @throws {GatewayError} invalid_request: something else than text is in it
 */
export function systemLines (content: unknown, path: string): string[] {
  return systemParts(content, path, noMark).map(({ text }) => text)
}

interface SystemPart extends Json {
  readonly text: string
}

/** The same, with cache marks. @throws {GatewayError} invalid_request: something else than text is in it */
export function systemParts (content: unknown, path: string, markOf: MarkOf): SystemPart[] {
  const parts = typeof content === 'string' ? [{ text: content }] : partsIn(content, path, markOf)
  return parts.map((part) => ({ ...part, text: withoutAttribution(textIn(part.text)) })).filter(({ text }) => text !== '')
}

function partsIn (blocks: unknown, path: string, markOf: MarkOf): readonly Json[] {
  const all: readonly unknown[] = Array.isArray(blocks) ? blocks : []
  return all.flatMap((block, i) => isToolChange(block) ? [] : readMarked(block, `${path}[${i}]`, TEXTS, markOf))
}

/** An image or a file in a system says nothing there. */
const TEXTS: PartStyle = { text: (text) => ({ text }), image: () => ({}),
  file: ({ type }) => type === 'url' ? undefined : {} }

/** @throws {GatewayError} invalid_request: a block can't be expressed in this style */
export function readParts (
  blocks: unknown, path: string, style: PartStyle, markOf: MarkOf = noMark
): readonly Json[] {
  return Array.isArray(blocks)
    ? blocks.flatMap((block, i) => readMarked(block, `${path}[${i}]`, style, markOf))
    : []
}

/** @throws {GatewayError} invalid_request: the block can't be expressed in this style */
export function readMarked (block: unknown, path: string, style: PartStyle, markOf: MarkOf): readonly Json[] {
  return withMark(readPart(block, path, style), isRecord(block) ? markOf(block) : noMark())
}

/** @throws {GatewayError} invalid_request: the block can't be expressed in this style */
export function readPart (block: unknown, path: string, style: PartStyle): readonly Json[] {
  const { type, text, source } = isRecord(block) ? block : {}
  switch (type) {
    case 'text':
      return textIn(text) === '' ? [] : [style.text(text as string)]
    case 'image':
      if (isRecord(source)) return [style.image(imageUrl(source, `${path}.source`))]
      break
    case 'document':
      return readDocument(block as Json, path, style)
    case 'search_result':
      return readSearchResult(block as Json, path, style)
    // A tool that was loaded on demand: it is among the tools, all of which such a vendor offers to the model.
    case 'tool_reference':
      return [style.text(`Tool loaded: ${textIn((block as Json).tool_name)}`)]
  }
  throw unsayable(`${path}.type`, `is ${JSON.stringify(type ?? null).slice(0, 60)}`)
}

/** @throws {GatewayError} invalid_request: it is at another vendor, such as an uploaded file */
function imageUrl (source: Json, path: string): unknown {
  if (source.type === 'url') return source.url
  if (typeof source.data === 'string') return dataUrl(source)
  throw unsayable(`${path}.type`, `is ${JSON.stringify(source.type ?? null).slice(0, 60)}`)
}

function readDocument ({ source, title, context }: Json, path: string, style: PartStyle): readonly Json[] {
  const { type, media_type: mediaType, data, content } = isRecord(source) ? source : {}
  const about = headsOf([title, context], style)
  if (type === 'text') return [...about, style.text(textIn(data))]
  if (type === 'content') {
    return [...about,
      ...(typeof content === 'string' ? [style.text(content)] : readParts(content, `${path}.source.content`, style))]
  }
  const isPdf = (type === 'base64' && mediaType === 'application/pdf') || type === 'url'
  const name = textIn(title) === '' ? 'document.pdf' : title as string
  const file = isPdf ? style.file({ type, title: name, source: source as Json }) : undefined
  if (file === undefined) {
    const place = isRecord(source) && type === 'url' ? style.placeOf?.(textIn(source.url)) : undefined
    throw unsayable(place ?? `${path}.source`, type === 'url' ? 'is a file by its address' : 'is no PDF and no text')
  }
  return [...about, file]
}

function readSearchResult ({ source, title, content }: Json, path: string, style: PartStyle): readonly Json[] {
  return [...headsOf([title, source], style), ...readParts(content, `${path}.content`, style)]
}

function headsOf (lines: readonly unknown[], style: PartStyle): readonly Json[] {
  return lines.flatMap((line) => textIn(line) === '' ? [] : [style.text(line as string)])
}

/** The data last: it may be the placeholder of bytes (large-strings.ts). */
export function dataUrl ({ media_type: mediaType, data }: Json): string {
  return `data:${textIn(mediaType)};base64,${textIn(data)}`
}
