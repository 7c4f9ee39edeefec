// Translates the parts of a message's or an output's content into content blocks: texts, images, files.
import { type Block, cacheControl, isBlank, textBlock } from '../../src/translation/blocks.ts'
import { fileBlock, imageBlock, type PathOf } from '../../src/translation/media.ts'
import { invalid } from '../../src/translation/reads.ts'
import type { TextFiles } from '../../src/translation/text-files.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'

/** Cache marks of one request: the vendor takes four at most. */
const MOST_MARKS = 4

/** Reads the parts of one request. */
export class Parts {
  readonly #files: TextFiles
  readonly #marked: Record<string, unknown>[] = []

  constructor (files: TextFiles) {
    this.#files = files
  }

  /**
   * @param content a string or a list of parts
   * @param path of the content; made only for an error
   * @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style
   */
  read (content: unknown, path: PathOf, mayBeMedia: boolean): Block[] {
    if (typeof content === 'string') return isBlank(content) ? [] : [textBlock(content)]
    if (!Array.isArray(content)) throw invalid(path(), 'must be a string or an array of parts')
    const blocks: Block[] = []
    for (let i = 0; i < content.length; i++) {
      const part: unknown = content[i]
      const block = this.#part(part, () => `${path()}[${i}]`, mayBeMedia)
      if (block === undefined) continue
      if (block.cache_control !== undefined) this.#marked.push(block)
      blocks.push(block)
    }
    return blocks
  }

  /** Leaves the last marks, as many as the vendor takes. @param others marks elsewhere in the request */
  limitMarks (others: number): void {
    const excess = Math.max(0, this.#marked.length + others - MOST_MARKS)
    for (const block of this.#marked.slice(0, excess)) delete block.cache_control
  }

  #part (part: unknown, path: PathOf, mayBeMedia: boolean): Block | undefined {
    if (!isRecord(part)) throw invalid(path(), 'must be an object')
    switch (part.type) {
      case 'input_text':
      case 'output_text':
      case 'text': return readText(part.text, part, () => `${path()}.text`)
      case 'refusal': return readText(part.refusal, part, () => `${path()}.refusal`)
      case 'input_image': if (mayBeMedia) return readImage(part, path); break
      case 'input_file': if (mayBeMedia) return readFile(part, path, this.#files); break
    }
    throw invalid(`${path()}.type`, mayBeMedia
      ? 'must be "input_text", "output_text", "refusal", "input_image" or "input_file"'
      : 'must be "input_text", "output_text" or "refusal"')
  }
}

function readText (text: unknown, part: Json, path: PathOf): Block | undefined {
  if (typeof text !== 'string') throw invalid(path(), 'must be a string')
  return isBlank(text) ? undefined : { type: 'text', text, ...cacheControl(markOf(part)) }
}

function readImage (part: Json, path: PathOf): Block {
  refuseId(part, path, 'image_url')
  return imageBlock(part.image_url, () => `${path()}.image_url`, { cache_control: markOf(part) })
}

function readFile (part: Json, path: PathOf, files: TextFiles): Block | undefined {
  refuseId(part, path, 'file_data')
  const mark = { cache_control: markOf(part) }
  if (isGiven(part.file_data) || !isGiven(part.file_url)) {
    return fileBlock(part, () => `${path()}.file_data`, mark, files)
  }
  const { file_url: url, filename } = part
  if (typeof url !== 'string' || !/^https?:\/\//i.test(url)) {
    throw invalid(`${path()}.file_url`, 'must be an http(s) URL')
  }
  return { type: 'document', source: { type: 'url', url },
    ...(typeof filename === 'string' && filename !== '' && { title: filename }), ...cacheControl(mark.cache_control) }
}

function refuseId (part: Json, path: PathOf, instead: string): void {
  if (isGiven(part.file_id) && !isGiven(part[instead])) {
    throw invalid(`${path()}.file_id`, `is not known: there are no files by id here. Send ${instead}`)
  }
}

/** The vendor's own mark, or that of the Responses API. */
function markOf ({ cache_control: own, prompt_cache_breakpoint: mark }: Json): unknown {
  return isGiven(own) ? own : isRecord(mark) && mark.mode === 'explicit' ? EPHEMERAL : undefined
}

const EPHEMERAL: Json = Object.freeze({ type: 'ephemeral' })
