// What a vendor must get back of its thoughts as it gave it (a signature, an encrypted thought) travels sealed: no
// other account can use it, and where it would be refused, at an upstream of another family, it is not sent
// (src/README.md#signatures).
import type { Exchange } from '../../core/exchange.ts'
import { ApiKey } from '../../core/facts.ts'
import type { Upstream } from '../../core/upstream.ts'

const PURPOSE = 'thinking'

/** @param original the vendor's own text @returns the text for the inner language, and so for the client */
export function sealThought (exchange: Exchange, upstream: Upstream, original: string): string {
  const { seals } = exchange.snapshot.services
  return seals.seal(PURPOSE, accountOf(exchange), JSON.stringify([familyOf(upstream), original]))
}

/**
 * The vendor's own text. Undefined: it is not for this upstream: not sealed, changed on its way, another account's,
 * thought at an upstream of another family, or of a secret that is gone. Never throws.
 * @param upstream that of the attempt
 */
export function openThought (exchange: Exchange, upstream: Upstream, sealed: string): string | undefined {
  const { seals } = exchange.snapshot.services
  const text = seals.open(PURPOSE, accountOf(exchange), sealed)
  if (text === undefined) return undefined
  const [family, original] = JSON.parse(text) as [string, string]
  return family === familyOf(upstream) ? original : undefined
}

/** No pipeline without auth knows accounts. */
function accountOf (exchange: Exchange): string {
  return exchange.find(ApiKey)?.account.id ?? ''
}

/** Those that share thoughts. The dialect is part of it: no two have the same form of thoughts. */
export function familyOf ({ name, config }: Upstream): string {
  return `${config.dialect} ${config.thinking_family ?? name}`
}
