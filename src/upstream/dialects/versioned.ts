// The version in the base path of an upstream's API: operators write the address with it or without it.

/** A version in an address, which vendors put before their own paths: `/v1`, `/v1beta/openai`, `/api/paas/v4`. */
const VERSION = /\/v\d\w*(?:\/|$)/
const LAST_VERSION = /\/v\d\w*$/

/** The base path of an upstream in OpenAI's style, with `/v1` appended if it has no version. */
export function versioned (basePath: string): string {
  return VERSION.test(basePath) ? basePath : `${basePath}/v1`
}

/**
 * The base path of an upstream in Anthropic's style. Its SDKs append `/v1` to any address, so a version in the middle
 * is a proxy's own (`/v1/ACCOUNT/GATEWAY/anthropic`), and only one at the end is the vendor's.
 */
export function versionedAtEnd (basePath: string): string {
  return LAST_VERSION.test(basePath) ? basePath : `${basePath}/v1`
}

/** Joins a client's own path to a base path: a version that ends the one and begins the other occurs once. */
export function below (basePath: string, path: string): string {
  const version = LAST_VERSION.exec(basePath)?.[0]
  return basePath + (version !== undefined && path.startsWith(`${version}/`) ? path.slice(version.length) : path)
}
