// Where a vendor's API begins: SDKs are told addresses with the version, others without.

/** A version in the address, which vendors put before their own paths: `/v1`, `/v1beta/openai`, `/api/paas/v4`. */
const VERSION = /\/v\d\w*(?:\/|$)/

/** The base path of an upstream with `/v1` at its end, if it names no version itself. */
export function versioned (basePath: string): string {
  return VERSION.test(basePath) ? basePath : `${basePath}/v1`
}
