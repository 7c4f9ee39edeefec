// Secrets in an upstream's configuration that must be redacted from its messages.
import type { UpstreamConfig } from '../config/config.ts'

/**
 * Longest first, so that none is cut by a shorter one. Short values and dates are left out: they are no secrets and
 * would match plain words.
 */
export function secretsOf (upstream: UpstreamConfig): readonly string[] {
  const found = new Set<string>()
  if (URL.canParse(upstream.url)) {
    const { host, hostname, username, password } = new URL(upstream.url)
    for (const part of [host, hostname, username, password]) if (part.length >= 4) found.add(part)
  }
  const heads = [upstream.headers, ...(upstream.credentials ?? []).map(({ headers }) => headers)]
  for (const value of heads.flatMap((headers) => Object.values(headers))) {
    for (const part of [value, ...value.split(/[\s,]+/)]) {
      if (part.length >= 8 && !/^\d{4}-\d\d-\d\d$/.test(part)) found.add(part)
    }
  }
  return [...found].sort((a, b) => b.length - a.length)
}
