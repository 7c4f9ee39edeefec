// Where a vendor's API begins: SDKs are told addresses with the version, others without.

/** A version in the address, which vendors put before their own paths: `/v1`, `/v1beta/openai`, `/api/paas/v4`. */
const VERSION = /\/v\d\w*(?:\/|$)/
const LAST_VERSION = /\/v\d\w*$/

/** The base path of an upstream in OpenAI's style, with `/v1` at its end if it names no version itself. */
export function versioned (basePath: string): string {
  return VERSION.test(basePath) ? basePath : `${basePath}/v1`
}

/**
 * The same in Anthropic's style. Its SDKs put `/v1` behind whatever they are told, so a version in the midst is a
 * proxy's own (`/v1/ACCOUNT/GATEWAY/anthropic`), and only one at the end is the vendor's.
 */
export function versionedAtEnd (basePath: string): string {
  return LAST_VERSION.test(basePath) ? basePath : `${basePath}/v1`
}

/**
 * A client's own path below a base path: the version with which the one ends and the other begins stands there once.
 */
export function below (basePath: string, path: string): string {
  const version = LAST_VERSION.exec(basePath)?.[0]
  return basePath + (version !== undefined && path.startsWith(`${version}/`) ? path.slice(version.length) : path)
}
