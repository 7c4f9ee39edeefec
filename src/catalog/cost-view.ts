// The cost of a dry-run request and the money that is left to pay it, as JSON: for the key's owner and for the
// operator.
import type { Exchange } from '../core/exchange.ts'
import { modalities } from '../config/sections/modalities.ts'
import { ApiKey, Model, Plan, WorstCase } from '../core/facts.ts'
import { viewUsage } from '../accounts/key-limits.ts'
import { formatUsd } from '../money/nanos.ts'
import { priceAt } from '../money/price-schedule.ts'

type View = Readonly<Record<string, unknown>>

/** The worst case; zeros for an endpoint of the gateway's own, which costs nothing. */
export function viewCost (exchange: Exchange): View {
  const { first, most, input, output } = exchange.find(WorstCase) ?? { first: 0n, most: 0n, input: 0, output: 0 }
  return { max_cost_usd: formatUsd(most), held_at_start_usd: formatUsd(first), max_input_tokens: input,
    max_output_tokens: output }
}

/** Prices of the channels that may answer, in the order of the attempts. Empty: the request did not get that far. */
export function viewPrices (exchange: Exchange): readonly View[] {
  const { attempts } = exchange.find(Plan) ?? { attempts: [] }
  const at = exchange.find(WorstCase)?.at
  if (at === undefined) return []
  return [...new Map(attempts.map(({ channel, sold }) => [channel, sold]))].map(([channel, sold]) => {
    if (modalities[exchange.get(Model).kind].item !== undefined) return { channel, price: sold.price, until: null }
    const { written, until } = priceAt(sold, at)
    const price = written === 'free' ? written : { ...written, from: undefined }
    return { channel, price, until: until === Infinity ? null : new Date(until).toISOString() }
  })
}

/** Money left now to the account and the key. */
export async function viewLimits (exchange: Exchange): Promise<View | null> {
  const owner = exchange.find(ApiKey)
  if (owner === undefined) return null
  const { ledger, snapshot: { services: { now } } } = exchange
  const { balance, held } = await ledger.balance(owner.account.id)
  const { usage_limit_usd: ever = null, usage_limit_day_usd: day = null, usage_limit_month_usd: month = null } =
    owner.key
  return {
    balance_usd: formatUsd(balance),
    available_usd: formatUsd(balance - held),
    usage_limit_usd: ever,
    usage_limit_day_usd: day,
    usage_limit_month_usd: month,
    ...await viewUsage(ledger, owner.key, now())
  }
}
