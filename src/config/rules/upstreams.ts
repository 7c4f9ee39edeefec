// upstreams: URLs, headers, certificates and proxies, and names of upstreams wherever they are used.
import { X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import { isMap, type Path } from '../place.ts'
import { quote } from '../sentence.ts'
import { suggest } from '../suggest.ts'
import { at, checkUnique, type Item, items, type Report, type RuleInput, text } from './input.ts'

/** Belong to one connection, are counted by the client, or say what the gateway itself understands: an upstream's headers cannot set them (RFC 9110 7.6.1). */
const OWN_HEADERS = ['accept-encoding', 'connection', 'content-length', 'expect', 'host', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade']

export function checkUpstreams (input: RuleInput, report: Report, warn: Report): void {
  const { value, tree } = input
  const upstreams = at(value, 'upstreams')
  for (const [name, upstream] of Object.entries(isMap(upstreams) ? upstreams : {})) {
    const url = text(at(upstream, 'url'), tree, ['upstreams', name, 'url'])
    if (url !== undefined && /^https?:/.test(url) && !URL.canParse(url)) report(['upstreams', name, 'url'], 'is not a valid URL')
    warnOfWhole(url, text(at(upstream, 'dialect'), tree, ['upstreams', name, 'dialect']) ?? 'messages', ['upstreams', name, 'url'], warn)
    if (at(upstream, 'chat') !== undefined && at(upstream, 'dialect') !== 'chat') report(['upstreams', name, 'chat'], 'is only for "dialect: chat"', 'remove it, or set the dialect')
    checkTls(at(upstream, 'tls'), url, ['upstreams', name, 'tls'], tree, report)
    const proxy = text(at(upstream, 'proxy'), tree, ['upstreams', name, 'proxy'])
    if (proxy !== undefined && /^http:\/\//.test(proxy) && !isProxy(proxy)) report(['upstreams', name, 'proxy'], 'is not a valid URL', 'such as http://name:password@proxy.example.com:3128; of a password, write "@" as %40 and "%" as %25')
    if (proxy !== undefined && url === 'simulator:') report(['upstreams', name, 'proxy'], 'the simulator is not reached through a proxy', 'remove it', true)
    checkHeaders(at(upstream, 'headers'), ['upstreams', name, 'headers'], report)
    const credentials = items(at(upstream, 'credentials'), 'credentials').map(({ item, path }) => ({ item, path: ['upstreams', name, ...path] }))
    checkUnique(credentials, 'id', 'credentials', input, report)
    for (const { item, path } of credentials) checkHeaders(item.headers, [...path, 'headers'], report)
    warnOfForgotten(credentials, at(upstream, 'headers'), warn)
  }
}

/** What each dialect puts behind the URL. */
const ENDINGS: Readonly<Record<string, RegExp>> = {
  messages: /\/messages(?:\/count_tokens)?\/*$/, chat: /(?:\/chat)?\/completions\/*$/, images: /\/images(?:\/generations|\/edits)?\/*$/, videos: /\/videos\/*$/
}

/** The address of one request, as vendors' pages show it, in the place of the API's. */
function warnOfWhole (url: string | undefined, dialect: string, path: Path, warn: Report): void {
  const ending = url === undefined || !Object.hasOwn(ENDINGS, dialect) ? undefined : ENDINGS[dialect]!.exec(url)?.[0]
  if (ending !== undefined) warn(path, `ends with ${quote(ending)}, which the gateway adds itself`, 'leave it out')
}

/** A header that all credentials have but one, and the upstream does not: it was forgotten, or spelled otherwise. */
function warnOfForgotten (credentials: readonly Item[], common: unknown, warn: Report): void {
  if (credentials.length < 2) return
  const names = credentials.map(({ item }) => namesIn(item.headers))
  for (const name of new Set(names.flatMap((all) => [...all]))) {
    const without = names.findIndex((all) => !all.has(name))
    if (without === -1 || namesIn(common).has(name) || names.some((all, i) => i !== without && !all.has(name))) continue
    warn([...credentials[without]!.path, 'headers'], `all other credentials of this upstream have the header ${quote(name)}`, 'add it, if it is needed there too')
  }
}

function namesIn (headers: unknown): ReadonlySet<string> {
  return new Set(Object.keys(isMap(headers) ? headers : {}).map((name) => name.toLowerCase()))
}

function checkHeaders (headers: unknown, path: Path, report: Report): void {
  const seen = new Map<string, string>()
  for (const header of Object.keys(isMap(headers) ? headers : {})) {
    const lower = header.toLowerCase()
    if (OWN_HEADERS.includes(lower)) report([...path, header], `the header ${lower} is set by the gateway itself`, 'remove it', true)
    const other = seen.get(lower)
    if (other !== undefined) report([...path, header], `the header ${quote(header)} is set twice; the other is ${quote(other)}`, undefined, true)
    seen.set(lower, header)
  }
}

/** Never names what it read: it may be a private key in the wrong place. */
function checkTls (tls: unknown, url: string | undefined, path: Path, tree: RuleInput['tree'], report: Report): void {
  if (!isMap(tls)) return
  if (url !== undefined && !url.startsWith('https:')) report(path, 'is only for https', 'remove it, or write https:// in "url"', true)
  const [ca, cert, key] = (['ca', 'cert', 'key'] as const).map((field) => {
    const pem = text(tls[field], tree, [...path, field])
    return pem?.includes('-----BEGIN ') === true ? pem : undefined         // what is no PEM at all the schema refuses
  })
  if (ca !== undefined && !isCertificate(ca)) report([...path, 'ca'], 'holds no certificate that can be read')
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    report(path, tls.key === undefined ? '"cert" wants its "key"' : '"key" wants its "cert"', 'the two prove the gateway to the upstream', true)
    return
  }
  if (cert === undefined || key === undefined) return
  if (!isCertificate(cert)) { report([...path, 'cert'], 'holds no certificate that can be read'); return }
  try {
    createSecureContext({ cert, key })
  } catch {
    report([...path, 'key'], 'is not the private key of "cert", or is encrypted')
  }
}

function isCertificate (pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0
  } catch {
    return false
  }
}

function isProxy (url: string): boolean {
  try {
    const { username, password, hostname } = new URL(url)
    for (const part of [username, password]) decodeURIComponent(part)     // as who dials will read them: "%C3" and "%A9" are no text, though "%C3%A9" is
    return hostname !== ''
  } catch {
    return false
  }
}

export function checkUpstreamName (name: string | undefined, path: Path, { value }: RuleInput, report: Report): void {
  const upstreams = at(value, 'upstreams')
  const known = isMap(upstreams) ? Object.keys(upstreams) : []
  if (name !== undefined && !known.includes(name)) report(path, `there is no upstream ${quote(name)}`, suggest(name, known) ?? 'add it to upstreams:')
}
