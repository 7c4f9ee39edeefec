// Reads the usage of a response.
import type { Json } from '../../../base/json.ts'
import { type CountNames, inclusiveUsage } from '../inclusive-usage.ts'

const NAMES: CountNames = { input: 'input_tokens', output: 'output_tokens' }

/** Undefined: nothing was reported. */
export function usageOf (reported: unknown): Json | undefined {
  return inclusiveUsage(reported, NAMES)
}
