// The limits of a request at its model: its output and its input. Bodies have passed their schema.
import type { ClientRequest, Exchange } from '../../src/core/exchange.ts'
import { GatewayError } from '../../src/errors.ts'
import type { OutputLimits, Style } from '../../src/core/style.ts'
import type { Model } from '../../src/core/facts.ts'
import { leastTokens } from './least-tokens.ts'
import { invalid } from './refusal.ts'
import { type Request, turnsOf } from './requests.ts'
import { isRecord } from '../../src/base/json.ts'

/** Types of images: blocks of the messages style, parts of the chat style and of the responses style. */
const IMAGES: ReadonlySet<unknown> = new Set(['image', 'image_url', 'input_image'])
/** Types of files: parts of the chat style and of the responses style. */
const FILES: ReadonlySet<unknown> = new Set(['file', 'input_file'])
const IMAGE_NAME = /\.(?:jpe?g|png|gif|webp)$/i

/** @throws {GatewayError} image_input_not_supported, wherever the image is (src/README.md#own-limits) */
export function checkImages (request: Request, { conversation }: Style, { accepts }: Model): void {
  if (accepts.includes('image')) return
  const turns = turnsOf(request, conversation)
  for (let i = 0; i < turns.length; i++) {
    for (const field of ['content', 'output'] as const) {
      const found = imageIn(turns[i]![field])
      if (found !== undefined) {
        throw new GatewayError('image_input_not_supported', { param: `${conversation}[${i}].${field}${found}` })
      }
    }
  }
}

/** The path of the first image among blocks, or within them: in results of tools, and documents made of blocks. */
function imageIn (blocks: unknown): string | undefined {
  if (!Array.isArray(blocks)) return undefined
  for (let i = 0; i < blocks.length; i++) {
    const block: unknown = blocks[i]
    if (!isRecord(block)) continue
    if (
      IMAGES.has(block['type']) ||
      (FILES.has(block['type']) && isImageFile(isRecord(block['file']) ? block['file'] : block))
    ) return `[${i}]`
    const inContent = imageIn(block['content'])
    if (inContent !== undefined) return `[${i}].content${inContent}`
    const inSource = isRecord(block['source']) ? imageIn(block['source']['content']) : undefined
    if (inSource !== undefined) return `[${i}].source.content${inSource}`
  }
  return undefined
}

/** Whether a file is an image, by its data URL or else by its name. */
function isImageFile ({ file_data: data, filename }: Readonly<Record<string, unknown>>): boolean {
  const type = typeof data === 'string' ? /^data:([^;,]{1,60})[;,]/i.exec(data)?.[1]?.toLowerCase() : undefined
  if (type !== undefined && type !== 'application/octet-stream') return type.startsWith('image/')
  return typeof filename === 'string' && IMAGE_NAME.test(filename)
}

/** The header of an answer whose request asked for more output than the model gives: the limit that holds. */
const LOWERED = 'x-gateway-max-tokens'
/** The smallest thinking budget that vendors take. */
const LEAST_BUDGET = 1024

/**
 * Lowers the output that was asked for, in the body, where the model says so (`over_max_output: clamp`).
 * @param style of the body
 * @param canWarmUp whether every target of the model knows `max_tokens: 0`
 * @throws {GatewayError} invalid_request
 */
export function checkOutput (
  request: Request,
  { outputLimits }: Style,
  exchange: Exchange,
  model: Model,
  canWarmUp: boolean
): void {
  const { received: { headers } } = exchange
  // The field of another style is an unknown field like any other.
  const name = limitOf(request, outputLimits)
  const limit = name && request[name]
  // A translated request without a limit gets a default that fits.
  if (name === undefined || limit == null) return
  // The maximum in GET /v1/models/info.
  const most = model.max_output ?? model.context
  const isOver = most !== undefined && limit > most
  // In the vendor's words (src/README.md#own-limits).
  if (isOver && model.over_max_output === 'refuse') {
    throw new GatewayError('invalid_request', {
      message:
        `${name}: ${limit} > ${most}, which is the maximum allowed number of output tokens for ${model.id}. Lower it.`,
      param: name
    })
  }
  if (limit === 0 && !canWarmUp) {
    throw invalid(name, 'must be at least 1, not 0',
      `0 only warms up a cache, and not every provider of ${model.id} knows that.`)
  }
  checkBudget(request, name, limit, headers)
  if (!isOver) return
  lower(request, name, limit, most)
  checkBudget(request, name, most, headers)
  exchange.answerHeaders[LOWERED] = String(most)
}

/** The first of the limits that a request has. */
function limitOf (request: Request, limits: Style['outputLimits']): keyof OutputLimits | undefined {
  for (const name of limits) if (request[name] != null) return name
  return undefined
}

/**
 * Lowers the limit to the most. A thinking budget that no longer fits keeps its share of the output, so that room for
 * an answer stays. In place, as with nulls: nothing is copied.
 */
function lower (request: Request, name: keyof OutputLimits, limit: number, most: number): void {
  const budget = budgetOf(request)
  if (budget !== undefined && budget >= most && budget < limit) {
    Object.assign(request.thinking!, { budget_tokens: Math.max(LEAST_BUDGET, Math.floor(budget * most / limit)) })
  }
  Object.assign(request, { [name]: most })
}

function budgetOf ({ thinking }: Request): number | undefined {
  return thinking?.type === 'enabled' ? thinking.budget_tokens : undefined
}

function checkBudget (request: Request, name: string, limit: number, headers: ClientRequest['headers']): void {
  const budget = budgetOf(request)
  if (budget === undefined || budget < limit) return
  // The vendor's own exception: then the budget is for all the thinking between the calls of tools, over several
  // answers.
  if (String(headers['anthropic-beta'] ?? '').includes('interleaved-thinking')) return
  throw new GatewayError('invalid_request', {
    message:
      `\`${name}\` must be greater than \`thinking.budget_tokens\`, and ${limit} is not greater than ${budget}. ` +
        'Raise the one or lower the other.',
    param: 'thinking.budget_tokens'
  })
}

/**
 * Refuses a prompt only when it is certainly too long; any other is left to the upstream, which counts. Ignores
 * `max_tokens`: whether input and output together must fit differs between vendors, and between the models of one.
 * @throws {GatewayError} context_length_exceeded
 */
export function checkLength (
  request: Request,
  { conversation }: Style,
  { context }: Model,
  { bodyBytes }: Exchange
): void {
  if (context === undefined) return
  // A token for each 4 bytes is more than `leastTokens` can find: nearly every request ends here.
  if (bodyBytes <= 4 * context) return
  // Context edits may shorten the conversation at the vendor, before the model sees it.
  if (request.context_management != null) return
  const tokens = leastTokens(turnsOf(request, conversation), context)
  if (tokens <= context) return
  // The vendor's sentence: clients look for "prompt is too long", and compute with its numbers.
  throw new GatewayError('context_length_exceeded', {
    message:
      `prompt is too long: at least ${tokens} tokens > ${context} maximum. ` +
        'Shorten it or choose a model with a larger context.',
    param: conversation
  })
}
