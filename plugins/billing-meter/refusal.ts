// What the store has refused, in words: with the numbers that were compared, and what helps
// (src/README.md#say-numbers).
import { GatewayError } from '../../src/errors.ts'
import type { ApiKey } from '../../src/core/facts.ts'
import { nameLimit } from '../../src/accounts/key-limits.ts'
import { formatUsd, type Nanos } from '../../src/money/nanos.ts'
import type { HoldResult } from '../../src/store/store.ts'

export type Refusal = HoldResult & { readonly kind: 'refused' }

/** Whose money is held, and when that was. */
export interface Owner {
  readonly key: ApiKey['key']
  readonly lowBalance: Nanos
  readonly at: number
  /** what would make the request cost less, in words; undefined: nothing */
  readonly cheaper: string | undefined
}

/** What has too little in it, in a sentence, and what helps. */
export function purseOf (
  { by, period }: Pick<Refusal, 'by' | 'period'>,
  { key, at }: Owner
): { readonly name: string, readonly cure: string } {
  if (by !== 'usage_limit') return { name: 'the balance of the account', cure: 'add credit' }
  return { name: nameLimit(key, period, at),
    cure: period === undefined ? 'raise the limit' : 'raise the limit, or wait until then' }
}

/**
 * What running requests keep from this one waits for them: of a balance that is `low_balance`, of a limit of the key
 * `rate_limited`.
 * @throws {GatewayError} with the numbers that were compared (src/README.md#say-numbers)
 */
export function heldBy (result: HoldResult, owner: Owner): Nanos {
  if (result.kind === 'held') return result.nanos
  const { by, needed, available, held_by_others: heldByOthers } = result
  const total = available + heldByOthers
  const { name, cure } = purseOf(result, owner)
  if (by === 'low_balance') {
    throw new GatewayError('low_balance', {
      message: `${capital(name)} has $${formatUsd(total)} left, which is less than $${formatUsd(owner.lowBalance)}: ` +
        `so its requests run one at a time. Wait until the running one ends, or ${cure}.`
    })
  }
  const may = `This request may cost up to $${formatUsd(needed)}`
  throw needed <= total
    ? new GatewayError(by === 'usage_limit' ? 'rate_limited' : 'low_balance', {
      message: `${may}, and running requests hold $${formatUsd(heldByOthers)} of the $${formatUsd(total)} that ` +
        `${name} has left. ${advise('wait until one of them ends', owner.cheaper, cure)}`
    })
    : new GatewayError('insufficient_quota', {
      message: `${may}, and ${name} has $${formatUsd(total)} left. ${advise(owner.cheaper, cure)}`
    })
}

/** "Lower max_tokens, or add credit." */
export function advise (...ways: readonly (string | undefined)[]): string {
  const named = ways.filter((way) => way !== undefined)
  const last = named.pop()!
  return `${capital(named.length === 0 ? last : `${named.join(', ')}, or ${last}`)}.`
}

function capital (text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}
