// The fields of a request that its response repeats, with the values that clients expect where it has none: some of
// them refuse a response without these.
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { isChoiceWord } from '../../src/translation/tools.ts'
import { boundValue } from '../../src/tokens/bound.ts'

/** Longer instructions are not repeated: no client reads them. */
const LONGEST_INSTRUCTIONS = 64 * 1024

const TEXT: Json = Object.freeze({ format: Object.freeze({ type: 'text' }) })

/** Bytes of another field: with it the answer would be as large as a large body. */
const LONGEST_FIELD = 256 * 1024

/** Whether a body may have such a field, by its size. */
export function mayBeLong ({ bodyBytes }: Exchange): boolean {
  return bodyBytes > LONGEST_FIELD
}

/** @param isLong whether a field may be too long to be repeated */
export function echoOf (body: Json, isLong: boolean): Json {
  const { instructions, reasoning } = body
  const given = (name: string, otherwise: unknown = null): unknown =>
    isGiven(body[name]) && !(isLong && boundValue(body[name], LONGEST_FIELD) > LONGEST_FIELD) ? body[name] : otherwise
  const text = given('text')
  return {
    instructions: typeof instructions === 'string' && instructions.length <= LONGEST_INSTRUCTIONS ? instructions : null,
    metadata: given('metadata', {}),
    parallel_tool_calls: given('parallel_tool_calls', true),
    temperature: given('temperature', 1),
    top_p: given('top_p', 1),
    tool_choice: choiceIn(given('tool_choice', 'auto')),
    tools: toolsOf(given('tools', [])),
    presence_penalty: 0,
    frequency_penalty: 0,
    top_logprobs: 0,
    background: false,
    store: false,
    service_tier: 'default',
    truncation: 'disabled',
    text: isRecord(text) ? { ...TEXT, ...text } : TEXT,
    reasoning: isRecord(reasoning)
      ? { effort: reasoning.effort ?? null, summary: reasoning.summary ?? reasoning.generate_summary ?? null }
      : { effort: null, summary: null },
    max_output_tokens: given('max_output_tokens'),
    max_tool_calls: given('max_tool_calls'),
    previous_response_id: null,
    prompt_cache_key: given('prompt_cache_key'),
    safety_identifier: given('safety_identifier'),
    access_programs: null
  }
}

/**
 * Functions with the fields that the vendor's schema requires, also those within namespaces: a client that checks it
 * rejects a response without them.
 */
function toolsOf (tools: unknown): unknown {
  return Array.isArray(tools) ? tools.map(toolOf) : tools
}

function toolOf (tool: unknown): unknown {
  if (!isRecord(tool)) return tool
  switch (tool.type) {
    case 'function':
      return { description: null, parameters: null, ...tool,
        strict: typeof tool.strict === 'boolean' ? tool.strict : null }
    case 'namespace': return { ...tool, tools: toolsOf(tool.tools) }
  }
  return tool
}

/** A choice of tools as this API has it, in whichever style the client has written it. */
function choiceIn (choice: unknown): unknown {
  const word = isRecord(choice) ? choice.type : choice
  if (isChoiceWord(word)) return word === 'any' ? 'required' : word
  return isRecord(choice) && !isGiven(word) ? { ...choice, type: 'function' } : choice
}
