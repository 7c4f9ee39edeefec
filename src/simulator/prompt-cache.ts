// The vendor's prompt cache, and the counts of input tokens: read from it, written to it, and neither.
import { createHash } from 'node:crypto'
import { isObject } from './dialect.ts'
import { blocksOf, type Block, type CacheControl, type MessagesBody } from './messages-body.ts'
import { countTokens, documentTokens, imageTokens } from './tokens.ts'

/** Input tokens in disjoint classes. */
export interface InputTokens {
  readonly uncached: number
  readonly read: number
  readonly written5m: number
  readonly written1h: number
}

interface Segment {
  /** its content, without the mark */
  readonly key: string
  readonly tokens: number
  readonly mark: CacheControl | undefined
}

const lifeMs = { '5m': 5 * 60_000, '1h': 60 * 60_000 }

/**
 * Remembers the prefixes that were marked with cache_control, by hash. Unlike the vendor's it caches prefixes of any
 * length (the vendor wants some 1,000 tokens), so that a short demo shows what a long prompt does.
 */
export class PromptCache {
  /** hash of a prefix -> when it is forgotten */
  readonly #prefixes = new Map<string, { until: number, readonly lifeMs: number }>()
  readonly #now: () => number
  readonly #limit: number

  constructor (now: () => number, limit = 10_000) {
    this.#now = now
    this.#limit = limit
  }

  /** Counts a prompt, and remembers its marked prefixes. */
  count (body: MessagesBody): InputTokens {
    const segments = segmentsOf(body)
    const hashes = prefixHashes(body.model, segments)
    const lastMark = segments.findLastIndex(({ mark }) => mark !== undefined)
    const known = hashes.slice(0, lastMark + 1).findLastIndex((hash) => this.#has(hash))

    const tokens = { uncached: 0, read: 0, written5m: 0, written1h: 0 }
    for (const [index, segment] of segments.entries()) {
      if (index <= known) tokens.read += segment.tokens
      else if (index > lastMark) tokens.uncached += segment.tokens
      else {
        // A segment is written for as long as the next mark at or after it says.
        const mark = segments.slice(index).find((later) => later.mark !== undefined)?.mark
        tokens[mark?.ttl === '1h' ? 'written1h' : 'written5m'] += segment.tokens
      }
    }
    for (const [index, { mark }] of segments.entries()) {
      if (mark !== undefined) this.#remember(hashes[index] ?? '', mark.ttl ?? '5m')
    }
    return tokens
  }

  #has (hash: string): boolean {
    const entry = this.#prefixes.get(hash)
    if (entry === undefined) return false
    if (entry.until <= this.#now()) {
      this.#prefixes.delete(hash)
      return false
    }
    entry.until = this.#now() + entry.lifeMs             // a read begins its life anew
    return true
  }

  #remember (hash: string, ttl: '5m' | '1h'): void {
    this.#prefixes.delete(hash)
    this.#prefixes.set(hash, { until: this.#now() + lifeMs[ttl], lifeMs: lifeMs[ttl] })
    const oldest = this.#prefixes.keys().next()
    if (this.#prefixes.size > this.#limit && oldest.done !== true) this.#prefixes.delete(oldest.value)
  }
}

/** All input tokens of a prompt, cached or not. */
export function countInput (body: MessagesBody): number {
  return segmentsOf(body).reduce((sum, { tokens }) => sum + tokens, 0)
}

/** In the order of the vendor's cache: tools, system, messages. */
function segmentsOf (body: MessagesBody): Segment[] {
  const system: readonly Block[] = typeof body.system === 'string'
    ? [{ type: 'text', text: body.system }]
    : body.system ?? []
  const segments = [
    ...(body.tools ?? []).map((tool) =>
      segment('tool', tool, countTokens(JSON.stringify({ ...tool, cache_control: undefined })))
    ),
    ...system.map((block) => segment('system', block, tokensInBlock(block))),
    ...body.messages.flatMap((message) =>
      blocksOf(message).map((block) => segment(message.role, block, tokensInBlock(block)))
    )
  ]
  // A mark at the top level is one at the last block.
  const last = segments.at(-1)
  if (isObject(body.cache_control) && last !== undefined) {
    segments[segments.length - 1] = { ...last, mark: body.cache_control }
  }
  return segments
}

function segment (place: string, part: { readonly cache_control?: CacheControl | null }, tokens: number): Segment {
  return { key: place + JSON.stringify({ ...part, cache_control: undefined }), tokens,
    mark: part.cache_control ?? undefined }
}

function prefixHashes (model: string, segments: readonly Segment[]): string[] {
  const hash = createHash('sha256').update(model)
  return segments.map(({ key }) => hash.update('\0').update(key).copy().digest('base64'))
}

function tokensInBlock (block: Block): number {
  if (block.type === 'text') return countTokens(String(block['text']))
  if (block.type === 'thinking') return countTokens(String(block['thinking']))
  if (block.type === 'image') return imageTokens
  if (block.type === 'document') return documentTokens
  if (block.type === 'tool_use') return countTokens(String(block['name'])) + countTokens(JSON.stringify(block['input']))
  if (block.type === 'tool_result') {
    const { content } = block
    if (typeof content === 'string') return countTokens(content)
    return Array.isArray(content) ? content.reduce<number>((sum, inner: Block) => sum + tokensInBlock(inner), 0) : 0
  }
  return countTokens(JSON.stringify({ ...block, cache_control: undefined }))
}
