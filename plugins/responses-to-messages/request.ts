// Translates a body of the Responses API into messages style (src/README.md#responses-request).
import type { Blobs } from '../../src/core/large-strings.ts'
import type { Model } from '../../src/core/facts.ts'
import { isGiven, type Json } from '../../src/base/json.ts'
import type { ResponsesOwn, ResponsesWords } from '../../src/protocols/responses.ts'
import { composeBody } from '../../src/translation/body.ts'
import { invalid } from '../../src/translation/reads.ts'
import { opaqueId } from '../../src/translation/settings.ts'
import { TextFiles } from '../../src/translation/text-files.ts'
import { chooseTools } from './choice.ts'
import { echoOf } from './echo.ts'
import { endsInTrigger, readInput, readUpdates, type Updates } from './input.ts'
import { Parts } from './parts.ts'
import type { Open } from './reasoning.ts'
import { readFormat, readReasoning, refuseUnserved } from './settings.ts'
import type { ResponseShape } from './shape.ts'
import type { Recalled } from './state.ts'
import { ToolNames } from './tool-names.ts'
import { ToolBox } from './tools.ts'

export interface Translated {
  /** in messages style */
  readonly body: Json
  readonly shape: ResponseShape
  /** types of the client's tools that were left out */
  readonly dropped: readonly string[]
  readonly words: ResponsesWords
  /** for an upstream of the same style */
  readonly own: ResponsesOwn
}

/** What a translation needs beside the body. */
export interface Surroundings {
  readonly stream: boolean
  readonly model: Model
  readonly blobs: Blobs
  readonly open: Open
  /** what the request names and the gateway has; absent: it brings all that it means */
  readonly recalled?: Recalled | undefined
  /** true: a summary is asked for, whatever the input says */
  readonly compacts?: boolean
  /** whether a field may be too long to be repeated in the answer */
  readonly isLong: boolean
}

/** A summary is text, without thoughts. */
const PLAIN: Updates = { reasoning: { effort: 'none' }, text: undefined }

/** @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style */
export function toMessages (
  body: Json, { stream, model, blobs, open, recalled, compacts: isAsked = false, isLong }: Surroundings
): Translated {
  refuseUnserved(body, recalled !== undefined)
  const { input, history } = recalled ?? { input: body.input, history: [] }
  const compacts = isAsked || endsInTrigger(input)
  const maxTokens = readLimit(body.max_output_tokens)
  const names = new ToolNames()
  const box = new ToolBox(names, model.structured_outputs)
  box.add(body.tools, 'tools')
  const asked = readUpdates({ input, reasoning: body.reasoning, text: body.text }, box, history)
  const updates = compacts ? PLAIN : asked
  const parts = new Parts(new TextFiles(blobs, model))
  const { system, turns } = readInput({ input, instructions: body.instructions }, { names, parts, open }, history,
    compacts)
  const { tools, choice, allowed } = chooseTools(compacts ? { tool_choice: 'none' } : body, box)
  const { effort, showsThoughts } = readReasoning(updates.reasoning)
  const format = readFormat(updates.text)
  const hasSchema = format !== undefined && format !== 'object'
  const isCached = model.auto_cache && typeof body.prompt_cache_key === 'string' && body.prompt_cache_key !== ''
  parts.limitMarks(tools.filter((tool) => tool.cache_control !== undefined).length + (isCached ? 1 : 0))
  const { body: messages, answerTool } = composeBody({
    model: body.model, stream, maxTokens, system, turns, tools, choice, effort, format,
    sampling: { temperature: body.temperature, top_p: body.top_p }, stops: [],
    userId: opaqueId(body.safety_identifier) ?? opaqueId(body.user), isCached
  }, model)
  const { clients } = box
  return {
    body: messages,
    shape: { echo: echoOf(body, isLong), tools: clients, showsThoughts, hasSchema, answerTool, allowed, compacts },
    dropped: box.dropped,
    own: { tools: box.declared, ...updates },
    words: { names: clients, answer: { hasSchema, customTools: customOf(clients), answerTool } }
  }
}

function readLimit (limit: unknown): number | undefined {
  if (!isGiven(limit)) return undefined
  if (typeof limit !== 'number') throw invalid('max_output_tokens', 'must be a whole number')
  return limit
}

function customOf (tools: ResponseShape['tools']): ReadonlySet<string> {
  return new Set([...tools].flatMap(([name, { type }]) => type === 'custom' ? [name] : []))
}
