// Refusals of the store in words: with the numbers that were compared, and the remedy (src/README.md#say-numbers).
import { GatewayError } from '../../src/errors.ts'
import type { ApiKey } from '../../src/core/facts.ts'
import { nameLimit } from '../../src/accounts/key-limits.ts'
import { formatUsd, type Nanos } from '../../src/money/nanos.ts'
import type { HoldResult } from '../../src/store/store.ts'

export type Refusal = HoldResult & { readonly kind: 'refused' }

/** The owner of a hold that is refused, and its time. */
export interface Owner {
  readonly key: ApiKey['key']
  readonly lowBalance: Nanos
  readonly at: number
  /** what would make the request cost less, in words; undefined: nothing */
  readonly cheaper: string | undefined
}

/** The balance or limit that is too low, in a sentence, with the remedy. */
export function purseOf (
  { by, period }: Pick<Refusal, 'by' | 'period'>,
  { key, at }: Owner
): { readonly name: string, readonly cure: string } {
  if (by !== 'usage_limit') return { name: 'the balance of the account', cure: 'add credit' }
  return { name: nameLimit(key, period, at),
    cure: period === undefined ? 'raise the limit' : 'raise the limit, or wait until then' }
}

/**
 * The error with the numbers that were compared (src/README.md#say-numbers). Where other running requests hold what
 * this one needs, so that a wait helps, it is `low_balance` for the balance, and `rate_limited` for a limit of the key.
 */
export function refusalOf (refusal: Refusal, owner: Owner): GatewayError {
  const { by, needed, available, held_by_others: heldByOthers } = refusal
  const total = available + heldByOthers
  const { name, cure } = purseOf(refusal, owner)
  if (by === 'low_balance') {
    return new GatewayError('low_balance', {
      message: `${capital(name)} has $${formatUsd(total)} left, which is less than $${formatUsd(owner.lowBalance)}: ` +
        `so its requests run one at a time. Wait until the running one ends, or ${cure}.`
    })
  }
  const may = `This request may cost up to $${formatUsd(needed)}`
  return needed <= total
    ? new GatewayError(by === 'usage_limit' ? 'rate_limited' : 'low_balance', {
      message: `${may}, and running requests hold $${formatUsd(heldByOthers)} of the $${formatUsd(total)} that ` +
        `${name} has left. ${advise('wait until one of them ends', owner.cheaper, cure)}`
    })
    : new GatewayError('insufficient_quota', {
      message: `${may}, and ${name} has $${formatUsd(total)} left. ${advise(owner.cheaper, cure)}`
    })
}

/** Joins remedies: "Lower max_tokens, or add credit." */
export function advise (...ways: readonly (string | undefined)[]): string {
  const named = ways.filter((way) => way !== undefined)
  const last = named.pop()!
  return `${capital(named.length === 0 ? last : `${named.join(', ')}, or ${last}`)}.`
}

function capital (text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}
