// What the answer of the Responses API needs to know of its request.
import type { Json } from '../../src/base/json.ts'

export interface ResponseShape {
  /** the fields of the request that a response repeats, with the defaults that clients expect, tools as asked */
  readonly echo: Json
  /** the client's tools, by the names that the model was given */
  readonly tools: ReadonlyMap<string, ClientTool>
  /** whether thoughts are shown as summaries */
  readonly showsThoughts: boolean
  /** true: the SDKs parse any content, and throw: it must be the answer, or nothing */
  readonly hasSchema: boolean
  /** a tool of the gateway's own whose input is the answer: the model has no structured outputs */
  readonly answerTool: string | undefined
  /** the only tools that may be called, by the names that the model was given; undefined: all */
  readonly allowed: ReadonlySet<string> | undefined
  /** the answer is one item: a summary of the conversation */
  readonly compacts?: boolean
}

/** A tool as its client knows it. */
export interface ClientTool {
  readonly type: 'function' | 'custom' | 'tool_search' | 'local_shell' | 'shell' | 'apply_patch'
  readonly name: string
  readonly namespace?: string
}

/**
 * The client's tool that a name of the model's means: the name that it was given, or another spelling of it that
 * models make up, such as the name without its namespace. Undefined: there is none, or more than one.
 */
export function toolCalled (name: string, tools: ResponseShape['tools']): ClientTool | undefined {
  const exact = tools.get(name)
  if (exact !== undefined) return exact
  let spelt = spellings.get(tools)
  if (spelt === undefined) spellings.set(tools, spelt = spellingsOf(tools))
  return spelt.get(plain(name))
}

type Spellings = ReadonlyMap<string, ClientTool | undefined>

/** Made for the first name that is no tool's: a request may have thousands of tools, and its answer of such names. */
const spellings = new WeakMap<ResponseShape['tools'], Spellings>()

/** Tools by their name alone, and behind its namespace, without the signs between words. Undefined: several have it. */
function spellingsOf (tools: ResponseShape['tools']): Spellings {
  const found = new Map<string, ClientTool | undefined>()
  for (const tool of tools.values()) {
    const { namespace = '', name } = tool
    for (const spelling of new Set([plain(name), plain(namespace + name)])) {
      found.set(spelling, found.has(spelling) ? undefined : tool)
    }
  }
  return found
}

/** Models write `ns.tool`, `ns/tool`, `functions.ns__tool` or `NS-tool` for `ns__tool`. */
function plain (name: string): string {
  return name.replace(/^functions[.:/]/, '').replace(/[^\p{L}\p{N}]/gu, '').toLowerCase()
}
