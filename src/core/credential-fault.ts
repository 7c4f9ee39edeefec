// What a failure says of the operator's account at an upstream: until the operator acts, no request is served with it.
import type { Meaning } from './error-meanings.ts'
import type { UpstreamFailure } from './plugin.ts'
import { errorIn, readError } from './vendor-error.ts'

export type CredentialFault = Extract<Meaning, 'no_money' | 'bad_key'>

/** Undefined: it says nothing of the account. */
export function credentialFaultIn (failure: UpstreamFailure): CredentialFault | undefined {
  if (failure.kind !== 'status' && failure.kind !== 'error_event') return undefined
  const { means } = readError(failure)
  return means === 'no_money' || means === 'bad_key' ? means : undefined
}

/**
 * Whether its words say that the account has no money. For what vendors grant separately, such as counts and the paths
 * of a forward route, the status alone may mean that this is not in the plan.
 */
export function saysNoMoney (failure: UpstreamFailure): boolean {
  return credentialFaultIn(failure) === 'no_money' && 'body' in failure && errorIn(failure.body).means === 'no_money'
}
