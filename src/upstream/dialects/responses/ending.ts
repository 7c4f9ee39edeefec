// How a response ends: its status, in the stop reasons of messages style.
import { isRecord, type Json } from '../../../base/json.ts'
import { type Finish, readFinish } from '../finish.ts'

/** @returns undefined: the vendor does not say */
export function finishOf ({ status, incomplete_details: details }: Json): Finish | undefined {
  if (status !== 'incomplete') return readFinish(status)
  // Of whatever else may cut an answer a client knows no better word than of its length.
  return readFinish(isRecord(details) ? details.reason : undefined) === 'refusal' ? 'refusal' : 'max_tokens'
}
