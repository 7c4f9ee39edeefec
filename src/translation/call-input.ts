// The arguments of a call in a history: a text in OpenAI's styles, an object in messages style. Both ways together
// change nothing, so a vendor of the client's own style gets the text that came (src/README.md#call-arguments).
import { isRecord, type Json, parseInputOr } from '../base/json.ts'
import { isBlank } from './blocks.ts'

/** The name of a text that is no JSON object, such as arguments that were cut by the limit of the answer. */
const RAW = '_raw'

/** @param text of the client, which its guard has seen */
export function inputOf (text: string): Json {
  if (isBlank(text)) return {}
  const value = parseInputOr(text)
  if (value === null) return {}                               // Go and Python print what has no arguments so
  return isRecord(value) && !isRaw(value) ? value : { [RAW]: text }
}

/** @param input of a client whose style has texts, but which sent an object */
export function objectInput (input: Json): Json {
  return isRaw(input) ? { [RAW]: JSON.stringify(input) } : input
}

/** @param mayBeRaw whether the client's style has texts here: in messages style the name is one like any other */
export function argumentsOf (input: unknown, mayBeRaw: boolean): string {
  return mayBeRaw && isRecord(input) && isRaw(input) ? input[RAW] : JSON.stringify(input ?? {})
}

function isRaw (input: Json): input is { readonly [RAW]: string } {
  return typeof input[RAW] === 'string' && Object.keys(input).length === 1
}
