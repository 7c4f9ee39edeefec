// What makes a vendor charge more than its price of tokens. Refused unless the model has a price for it (design.md part 6):
// what is not priced would be given away.
import { GatewayError } from '../errors.ts'
import type { TokenPrice } from '../config/config.ts'
import { clientTools } from './bound.ts'

/** Fields of the body, with the values that cost nothing extra; and the name of their price in `extras`. */
const FIELDS: Readonly<Record<string, readonly unknown[]>> = {
  speed: [null, 'standard'],
  service_tier: [null, 'auto', 'standard_only'],
  inference_geo: [null],
  container: [null],
  mcp_servers: [null],
  fallbacks: [null]
}

/** Runs at the vendor, for the tokens alone. */
const TOOL_SEARCH = /^tool_search_/

/**
 * @param prices of every channel that may serve the request
 * @throws {GatewayError} invalid_request, naming the field
 */
export function refuseSurcharges (body: Readonly<Record<string, unknown>>, prices: readonly (TokenPrice | 'free')[]): void {
  const isPriced = (name: string): boolean => prices.every((price) => price === 'free' || price.extras?.[name] !== undefined)
  for (const name in FIELDS) {
    const value = body[name]
    if (value === undefined || FIELDS[name]!.includes(value) || (Array.isArray(value) && value.length === 0) || isPriced(name)) continue
    throw refusal(`The field "${name}" changes the price of this model, and it is not sold here with it. Leave it out.`, name)
  }
  if (!Array.isArray(body['tools'])) return
  for (const [index, tool] of body['tools'].entries()) {
    const type: unknown = (tool as { type?: unknown } | null)?.type
    if (typeof type !== 'string' || clientTools.test(type) || TOOL_SEARCH.test(type)) continue
    // web_search_20250305 is priced as web_search
    const name = type.replace(/_\d{8}$/, '')
    if (!isPriced(name)) throw refusal(`The tool "${name.slice(0, 60)}" runs at the provider for a price of its own, and this model is not sold with it. Leave it out.`, `tools[${index}].type`)
  }
}

function refusal (message: string, param: string): GatewayError {
  return new GatewayError('invalid_request', { message, param })
}
