// Items of kept responses, by the ids that clients know them by: an item's id leads to its response, so that there is
// no index of items.
import { JsonGuard } from '../base/json-limits.ts'
import { isRecord, type Json, parseJson } from '../base/json.ts'
import type { KeptResponse } from '../store/responses.ts'
import { base64In, type Blobs } from './large-strings.ts'

/** `resp_`, and the part of a request id that is its own. */
const RESPONSE = /^resp_[0-9A-Za-z]{24}$/
/** The same part between the kind of the item and its number; `i`: of the input. */
const ITEM = /^[a-z]+_([0-9A-Za-z]{24})_i?\d{1,6}$/

export function isResponseId (id: unknown): id is string {
  return typeof id === 'string' && RESPONSE.test(id)
}

/** The response that an item of this id is of; undefined: no item of ours has such an id. */
export function responseOfItem (id: unknown): string | undefined {
  const unique = typeof id === 'string' ? ITEM.exec(id)?.[1] : undefined
  return unique === undefined ? undefined : `resp_${unique}`
}

/** Parses what was kept; its base64 stays bytes. @param guard limits all that one request finds together */
export function parseKept (json: Buffer, blobs: Blobs, guard?: JsonGuard): unknown {
  guard?.push(json)
  const own = new JsonGuard()
  own.push(json)
  const base64 = base64In([json], own.longStrings)
  return parseJson((base64.length > 0 ? blobs.lift([json], base64) : json).toString())
}

export function outputIn (response: unknown): readonly Json[] {
  return isRecord(response) && Array.isArray(response['output']) ? response['output'].filter(isRecord) : []
}

const PREFIXES: Readonly<Record<string, string>> = { message: 'msg', function_call: 'fc', function_call_output: 'fco',
  custom_tool_call: 'ctc', custom_tool_call_output: 'ctco', reasoning: 'rs', item_reference: 'ref', compaction: 'cmp' }

/** Items of an input as its client can ask for them: each with an id, messages with a type and parts. */
export function namedInput ({ id: response }: Pick<KeptResponse, 'id'>, input: unknown): readonly Json[] {
  const unique = response.slice('resp_'.length)
  return Array.isArray(input)
    ? input.filter(isRecord).map((item, i) => {
      const type = kindOf(item)
      const id = typeof item['id'] === 'string' && item['id'] !== ''
        ? item['id']
        : `${PREFIXES[type] ?? 'item'}_${unique}_i${i}`
      return type === 'message'
        ? { ...item, id, type, status: item['status'] ?? 'completed', content: partsOf(item) }
        : { ...item, id, type }
    })
    : []
}

/** Messages may leave their type out, and so may references. */
export function kindOf ({ type, role }: Json): string {
  return typeof type === 'string' ? type : typeof role === 'string' ? 'message' : 'item_reference'
}

function partsOf ({ role, content }: Json): unknown {
  if (typeof content !== 'string') return content
  return role === 'assistant'
    ? [{ type: 'output_text', text: content, annotations: [], logprobs: [] }]
    : [{ type: 'input_text', text: content }]
}
