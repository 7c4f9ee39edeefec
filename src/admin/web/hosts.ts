// Under which names the pages may be asked for, and what the name says about their cookie. A name that somebody else
// has in the DNS can be made to lead here (DNS rebinding), and a page of his would then be one of ours to the browser:
// so only addresses, loopback names and names of the operator's count.
import { isIP } from 'node:net'
import { hostname } from 'node:os'

export interface Site {
  /** name of the session's cookie */
  readonly cookie: string
  /** true: the browser may be without TLS, because nothing leaves the machine */
  readonly isLoopback: boolean
}

/**
 * Undefined: the name is not ours.
 * @param host the Host header
 * @param names as in server.admin.hosts
 */
export function siteOf (host: string | undefined, names: readonly string[]): Site | undefined {
  const url = urlOf(host)
  if (url === null) return undefined
  const { hostname: name, port } = url
  const isLoopback = name === 'localhost' || name.endsWith('.localhost') || name === '[::1]' || /^127\.[\d.]+$/.test(name)
  const isAddress = isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0
  if (!isLoopback && !isAddress && !names.includes(name)) return undefined
  // Cookies of one host are for all of its ports: by its port each of several gateways here has its own.
  return { cookie: isLoopback ? `gateway-session-${port === '' ? '80' : port}` : '__Host-gateway-session', isLoopback }
}

/** Endings that no public DNS zone has, so that no web site can have such a name led here. */
const PRIVATE = /\.(?:svc|svc\.cluster\.local|cluster\.local|local|internal|localhost)$/

/**
 * Whether metrics may be read under this name. They need no token, so a web page that has its own name led here could
 * read them. Besides `siteOf`, names without a dot (Compose, Docker), private names and the machine's own count.
 * @param host the Host header; absent (HTTP/1.0) it is from no browser
 */
export function isMachineName (host: string | undefined, names: readonly string[]): boolean {
  if (host === undefined || host === '') return true
  const name = urlOf(host)?.hostname.replace(/\.$/, '')
  if (name === undefined) return false
  return !name.includes('.') || PRIVATE.test(name) || name === hostname().toLowerCase() || names.includes(name) ||
    siteOf(host, names) !== undefined
}

function urlOf (host: string | undefined): URL | null {
  return host !== undefined && /^[\w.:[\]-]+$/.test(host) ? URL.parse(`http://${host}`) : null
}

/** @param set a value; '': the cookie ends */
export function cookieOf ({ cookie, isLoopback }: Site, set: string): string {
  return `${cookie}=${set}; Path=/; HttpOnly; SameSite=Strict${isLoopback ? '' : '; Secure'}${set === '' ? '; Max-Age=0'
    : ''}`
}

/** @param cookies the Cookie header */
export function sessionIn (cookies: string | undefined, { cookie }: Site): string | undefined {
  const found = cookies?.split(';').map((pair) => pair.trim()).find((pair) => pair.startsWith(`${cookie}=`))
  return found?.slice(cookie.length + 1)
}
