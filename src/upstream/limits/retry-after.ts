// The retry-after of an upstream, from its headers.

type Headers = Readonly<Record<string, string | string[] | undefined>>

/**
 * @param now milliseconds since the epoch
 * @returns seconds; undefined: it sent none
 */
export function readRetryAfter (headers: Headers, now: () => number): number | undefined {
  const ms = first(headers['retry-after-ms'])
  if (ms !== undefined && /^\d+(?:\.\d+)?$/.test(ms)) return Number(ms) / 1000
  const value = first(headers['retry-after'])
  if (value === undefined) return undefined
  if (/^\d+(?:\.\d+)?$/.test(value)) return Number(value)
  const date = Date.parse(value)                                    // RFC 9110 10.2.3
  return /[a-z]/i.test(value) && !Number.isNaN(date) ? (date - now()) / 1000 : undefined
}

function first (value: string | string[] | undefined): string | undefined {
  return (typeof value === 'string' ? value : value?.[0])?.trim()
}
