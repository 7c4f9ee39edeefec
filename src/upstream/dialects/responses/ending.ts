// How a response ends: its status, in the stop reasons of messages style.
import { isRecord, type Json } from '../../../base/json.ts'

export interface Stop {
  readonly stop_reason: string
  readonly stop_sequence: null
}

/** @param isRefusal a part of the answer says that the model does not want to */
export function stopOf (response: Json, hasCalls: boolean, isRefusal: boolean): Stop {
  const reason = shortBy(response) ?? (isRefusal ? 'refusal' : hasCalls ? 'tool_use' : 'end_turn')
  return { stop_reason: reason, stop_sequence: null }
}

/** The stop reason of an answer that was cut short. Undefined: it was not. */
export function shortBy ({ status, incomplete_details: details }: Json): string | undefined {
  if (status !== 'incomplete') return undefined
  const reason = isRecord(details) ? details.reason : undefined
  // Of whatever else may cut an answer a client knows no better word than of its length.
  return reason === 'content_filter' ? 'refusal' : 'max_tokens'
}
