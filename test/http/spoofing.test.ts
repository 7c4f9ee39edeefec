// Who pretends to come from elsewhere: each way that is known to beat the whitelist of addresses or origins of some
// gateway (src/README.md#client-address), as a table. Each row is asked of the pipeline; and over a socket where the
// peer is this machine.
import { request } from 'node:http'
import { networkInterfaces } from 'node:os'
import t, { type Test } from 'tap'
import { auth } from '../../plugins/auth.ts'
import { errorNormalize } from '../../plugins/error-normalize/index.ts'
import { keyPolicy } from '../../plugins/key-policy/index.ts'
import { compileNetworks, parseNetwork } from '../../src/base/ip-address.ts'
import { clientAddress } from '../../src/core/client-address.ts'
import type { KeyConfig } from '../../src/config/config.ts'
import { isGatewayError } from '../../src/errors.ts'
import { Call } from '../support/client.ts'
import { ask, config, exchange, key, snapshot } from '../support/exchange.ts'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'

/** Name and value of each header line, in their order. */
type Lines = readonly (readonly [string, string])[]

interface Attempt {
  readonly attempt: string
  readonly peer: string
  readonly trusted: string
  readonly headers: Lines
  readonly whitelist: string
  /** or the address for which it is taken */
  readonly verdict: string
}

const ALLOWED = 'allowed'
/** No address could be found: refused whatever the whitelist says. */
const NOBODY = 'nobody'

const PROXY = '127.0.0.1/32'
const PROXIES = '127.0.0.1/32 192.0.2.0/24 2001:db8:f::/48'

/** `header` is X-Forwarded-For, or lines "Name: value" separated by "|". */
function row (
  attempt: string,
  peer: string,
  trusted: string,
  header: string,
  whitelist: string,
  verdict: string
): Attempt {
  const lines = header === '' ? [] : header.split('|').map((line): readonly [string, string] => {
    const parts = /^([A-Za-z-]+): (.*)$/s.exec(line)
    return parts === null ? ['X-Forwarded-For', line] : [parts[1]!, parts[2]!]
  })
  return { attempt, peer, trusted, headers: lines, whitelist, verdict }
}

const addresses: readonly Attempt[] = [
  // attempt                                      peer         trusted  headers
  // whitelist       verdict
  row('nothing at all', '127.0.0.1', '', '', '127.0.0.1', ALLOWED),
  row('from elsewhere', '127.0.0.1', '', '', '10.0.0.0/8', '127.0.0.1'),

  // nobody is trusted: no header counts
  row('X-Forwarded-For', '127.0.0.1', '', '10.0.0.9', '10.0.0.0/8', '127.0.0.1'),
  row('X-Real-IP', '127.0.0.1', '', 'X-Real-IP: 10.0.0.9', '10.0.0.0/8', '127.0.0.1'),
  row('CF-Connecting-IP', '127.0.0.1', '', 'CF-Connecting-IP: 10.0.0.9', '10.0.0.0/8', '127.0.0.1'),
  row('Forwarded', '127.0.0.1', '', 'Forwarded: for=10.0.0.9', '10.0.0.0/8', '127.0.0.1'),
  row('all that some proxy sends', '127.0.0.1', '',
    'True-Client-IP: 10.0.0.9|X-Client-IP: 10.0.0.9|Fastly-Client-IP: 10.0.0.9|X-Original-Forwarded-For: 10.0.0.9',
    '10.0.0.0/8', '127.0.0.1'),
  row('a peer who is no proxy of ours', '10.1.1.1', PROXY, '10.0.0.9', '10.0.0.9', '10.1.1.1'),
  row('a header does not shut out either', '127.0.0.1', '', '6.6.6.6', '127.0.0.1', ALLOWED),
  row('nor does garbage', '127.0.0.1', '', 'garbage', '127.0.0.1', ALLOWED),

  // the proxy is trusted: what it appended counts, and nothing else
  row('the proxy saw it', '127.0.0.1', PROXY, '10.0.0.9', '10.0.0.0/8', ALLOWED),
  row('the proxy saw another', '127.0.0.1', PROXY, '203.0.113.9', '10.0.0.0/8', '203.0.113.9'),
  row('written in front of what the proxy saw', '127.0.0.1', PROXY, '10.0.0.9, 203.0.113.9', '10.0.0.0/8',
    '203.0.113.9'),
  row('in a header line of its own', '127.0.0.1', PROXY, '10.0.0.9|203.0.113.9', '10.0.0.0/8', '203.0.113.9'),
  row('and the other way round', '127.0.0.1', PROXY, '203.0.113.9|10.0.0.9', '10.0.0.0/8', ALLOWED),
  row('many of them', '127.0.0.1', PROXY, '10.0.0.9, '.repeat(4000) + '203.0.113.9', '10.0.0.0/8', '203.0.113.9'),
  row('no spaces', '127.0.0.1', PROXY, '10.0.0.9,203.0.113.9', '10.0.0.0/8', '203.0.113.9'),
  row('X-Real-IP beside a trusted proxy', '127.0.0.1', PROXY, 'X-Real-IP: 10.0.0.9', '10.0.0.0/8', '127.0.0.1'),
  row('CF-Connecting-IP beside its header', '127.0.0.1', PROXY, 'CF-Connecting-IP: 10.0.0.9|203.0.113.9', '10.0.0.0/8',
    '203.0.113.9'),
  row('Forwarded beside its header', '127.0.0.1', PROXY, 'Forwarded: for=10.0.0.9|203.0.113.9', '10.0.0.0/8',
    '203.0.113.9'),
  row('the proxy added no header', '127.0.0.1', PROXY, '', '10.0.0.0/8', '127.0.0.1'),

  // chains
  row('through two proxies of ours', '127.0.0.1', PROXIES, '10.0.0.9, 192.0.2.7', '10.0.0.0/8', ALLOWED),
  row('a proxy of ours named by a stranger', '127.0.0.1', PROXIES, '10.0.0.9, 192.0.2.7, 203.0.113.9', '10.0.0.0/8',
    '203.0.113.9'),
  row('proxies of ours alone', '127.0.0.1', PROXIES, '192.0.2.8, 192.0.2.7', '192.0.2.8', ALLOWED),
  row('through one that speaks IPv6', '127.0.0.1', PROXIES, '10.0.0.9, [2001:DB8:F::7]:443', '10.0.0.0/8', ALLOWED),
  row('through one written as IPv4 in IPv6', '127.0.0.1', PROXIES, '10.0.0.9, ::ffff:c000:207', '10.0.0.0/8', ALLOWED),

  // garbage where the client should stand: the walk ends there, whatever is left of it
  row('a name', '127.0.0.1', PROXY, '10.0.0.9, unknown', '0.0.0.0/0', NOBODY),
  row('an obfuscated name', '127.0.0.1', PROXY, '10.0.0.9, _hidden', '0.0.0.0/0', NOBODY),
  row('nothing', '127.0.0.1', PROXY, 'X-Forwarded-For: ', '0.0.0.0/0', NOBODY),
  row('nothing behind a comma', '127.0.0.1', PROXY, '10.0.0.9,', '0.0.0.0/0', NOBODY),
  row('nothing between commas', '127.0.0.1', PROXIES, '10.0.0.9, , 192.0.2.7', '0.0.0.0/0', NOBODY),
  row('two in one', '127.0.0.1', PROXY, '10.0.0.9 203.0.113.9', '0.0.0.0/0', NOBODY),
  row('semicolons', '127.0.0.1', PROXY, '10.0.0.9;203.0.113.9', '0.0.0.0/0', NOBODY),
  row('a network', '127.0.0.1', PROXY, '10.0.0.0/8', '0.0.0.0/0', NOBODY),
  row('hexadecimal', '127.0.0.1', PROXY, '0x0a.0.0.9', '0.0.0.0/0', NOBODY),
  row('octal, or not', '127.0.0.1', PROXY, '010.0.0.9', '0.0.0.0/0', NOBODY),
  row('a short form', '127.0.0.1', PROXY, '10.9', '0.0.0.0/0', NOBODY),
  row('one number', '127.0.0.1', PROXY, '167772169', '0.0.0.0/0', NOBODY),
  row('other digits', '127.0.0.1', PROXY, '\xb910.0.0.9', '0.0.0.0/0', NOBODY),
  row('Forwarded in its place', '127.0.0.1', PROXY, 'for=10.0.0.9', '0.0.0.0/0', NOBODY),
  row('a port that is none', '127.0.0.1', PROXY, '10.0.0.9:http', '0.0.0.0/0', NOBODY),
  row('half a quote', '127.0.0.1', PROXY, '"10.0.0.9', '0.0.0.0/0', NOBODY),
  row('half a bracket', '127.0.0.1', PROXY, '[2001:db8::9', '0.0.0.0/0 ::/0', NOBODY),
  row('half a bracket, and much behind it', '127.0.0.1', PROXY, '[' + ':'.repeat(60_000), '0.0.0.0/0 ::/0', NOBODY),
  row('digits and dots without end', '127.0.0.1', PROXY, '1.'.repeat(30_000) + ':', '0.0.0.0/0 ::/0', NOBODY),
  row('IPv4 in brackets', '127.0.0.1', PROXY, '[10.0.0.9]', '0.0.0.0/0', NOBODY),
  row('a zone that is long', '127.0.0.1', PROXY, 'fe80::1%' + 'z'.repeat(30_000) + '!', '0.0.0.0/0 ::/0', NOBODY),
  row('garbage left of the client', '127.0.0.1', PROXY, 'garbage, 10.0.0.9', '10.0.0.0/8', ALLOWED),

  // one address in many spellings
  row('with a port', '127.0.0.1', PROXY, '10.0.0.9:4711', '10.0.0.9', ALLOWED),
  row('IPv6 with a port', '127.0.0.1', PROXY, '[2001:db8::9]:4711', '2001:db8::/32', ALLOWED),
  row('IPv6 with a port, in quotes', '127.0.0.1', PROXY, '"[2001:db8::9]:4711"', '2001:db8::/32', ALLOWED),
  row('IPv6 in brackets', '127.0.0.1', PROXY, '[2001:db8::9]', '2001:db8::/32', ALLOWED),
  row('IPv6, long', '127.0.0.1', PROXY, '2001:0DB8:0000:0000:0000:0000:0000:0009', '2001:db8::9', ALLOWED),
  row('IPv6 that is not in the network', '127.0.0.1', PROXY, '2001:0DB9::0009', '2001:db8::/32', '2001:db9::9'),
  row('IPv4 in IPv6', '127.0.0.1', PROXY, '::ffff:10.0.0.9', '10.0.0.0/8', ALLOWED),
  row('the same in hexadecimal', '127.0.0.1', PROXY, '::ffff:a00:9', '10.0.0.0/8', ALLOWED),
  row('the same, long', '127.0.0.1', PROXY, '0:0:0:0:0:FFFF:0A00:0009', '10.0.0.0/8', ALLOWED),
  row('the network as IPv4 in IPv6', '127.0.0.1', PROXY, '10.0.0.9', '::ffff:10.0.0.0/104', ALLOWED),
  row('the network in hexadecimal', '127.0.0.1', PROXY, '10.0.0.9', '::ffff:a00:9', ALLOWED),
  row('a whitelist of IPv6 holds no IPv4', '127.0.0.1', PROXY, '::ffff:10.0.0.9', '::/0', '10.0.0.9'),
  row('a whitelist of IPv4 holds no IPv6', '127.0.0.1', PROXY, '2001:db8::9', '0.0.0.0/0', '2001:db8::9'),
  row('what was once IPv4 in IPv6', '127.0.0.1', PROXY, '::10.0.0.9', '10.0.0.0/8', '::10.0.0.9'),
  row('IPv4 behind NAT64 is of who runs it', '127.0.0.1', PROXY, '64:ff9b::10.0.0.9', '10.0.0.0/8', '64:ff9b::a00:9'),
  row('with a zone', '127.0.0.1', PROXY, 'fe80::9%eth0', 'fe80::/10', ALLOWED),
  row('IPv4 in IPv6 with a zone', '127.0.0.1', PROXY, '::ffff:10.0.0.9%eth0', '10.0.0.0/8', ALLOWED),

  // the peer itself in other spellings
  row('a socket of both families', '::ffff:127.0.0.1', '', '10.0.0.9', '127.0.0.0/8', ALLOWED),
  row('a proxy on such a socket', '::ffff:127.0.0.1', PROXY, '10.0.0.9', '10.0.0.0/8', ALLOWED),
  row('a stranger on such a socket', '::ffff:127.0.0.1', '::/0', '10.0.0.9', '10.0.0.0/8', '127.0.0.1'),
  row('IPv6', '::1', '', '127.0.0.1', '127.0.0.1', '::1'),
  row('a proxy that speaks IPv6', '::1', '::1/128', '10.0.0.9', '10.0.0.0/8', ALLOWED),
  row('a proxy on the same link', 'fe80::7%eth0', 'fe80::/10', '10.0.0.9', '10.0.0.0/8', ALLOWED),
  row('a socket that is gone', '', '0.0.0.0/0 ::/0', '10.0.0.9', '0.0.0.0/0 ::/0', NOBODY)
]

const PAGE = 'https://app.example.com'
const origins:
  readonly (readonly [attempt: string, headers: Lines, verdict: 'allowed' | 'refused', whereRequired?: 'refused'])[] = [
    ['the page', [['Origin', PAGE]], 'allowed'],
    ['in capitals', [['Origin', 'HTTPS://App.Example.COM']], 'allowed'],
    ['with the port that it has anyway', [['Origin', PAGE + ':443']], 'allowed'],
    ['a page of another origin in the list', [['Origin', 'http://localhost:3000']], 'allowed'],
    ['no Origin: not a browser', [], 'allowed', 'refused'],
    ['a Referer is no Origin', [['Referer', PAGE + '/']], 'allowed', 'refused'],
    ['another port', [['Origin', PAGE + ':8443']], 'refused'],
    ['the default port of another scheme', [['Origin', PAGE + ':80']], 'refused'],
    ['another scheme', [['Origin', 'http://app.example.com']], 'refused'],
    ['another scheme on its port', [['Origin', 'http://app.example.com:443']], 'refused'],
    ['it begins with the page', [['Origin', PAGE + '.evil.example']], 'refused'],
    ['it ends with the page', [['Origin', 'https://evil-app.example.com']], 'refused'],
    ['a page above it', [['Origin', 'https://example.com']], 'refused'],
    ['a page below it', [['Origin', 'https://x.app.example.com']], 'refused'],
    ['a dot for all', [['Origin', PAGE + '.']], 'refused'],
    ['the page as a name', [['Origin', 'https://app.example.com@evil.example']], 'refused'],
    ['the page as a path', [['Origin', 'https://evil.example/https://app.example.com']], 'refused'],
    ['a path behind the page', [['Origin', PAGE + '/']], 'refused'],
    ['a fragment behind the page', [['Origin', PAGE + '#']], 'refused'],
    ['no scheme', [['Origin', 'app.example.com']], 'refused'],
    ['a page without an origin', [['Origin', 'null']], 'refused'],
    ['empty', [['Origin', '']], 'refused'],
    ['twice', [['Origin', PAGE], ['Origin', 'https://evil.example']], 'refused'],
    ['twice, the page last', [['Origin', 'https://evil.example'], ['Origin', PAGE]], 'refused'],
    ['twice the same', [['Origin', PAGE], ['Origin', PAGE]], 'refused'],
    ['a list', [['Origin', `${PAGE}, https://evil.example`]], 'refused'],
    ['a list of RFC 6454', [['Origin', `${PAGE} https://evil.example`]], 'refused'],
    ['letters that look alike', [['Origin', 'https://\xe0pp.example.com']], 'refused'],
    ['60,000 of them', [['Origin', PAGE + ':443'.repeat(15_000)]], 'refused']
  ]

const secretOf = (index: number): string => 'sk-gw-' + String(index).padStart(32, 'k')
const list = (text: string): readonly string[] => text.split(' ').filter((entry) => entry !== '')
const ORIGINS = { allowed_origins: [PAGE, 'http://localhost:3000'] }

/** What the pipeline says: 'allowed', the code, or for addresses whom it took the client for. */
async function askPipeline (
  restricted: Partial<KeyConfig>,
  peer: string,
  trusted: string,
  headers: Lines,
  isOriginRequired = false
): Promise<string> {
  const of = config({ keys: [key({ ...restricted, secret: secretOf(0) })] })
  const on = snapshot(
    { ...of, server: { ...of.server, trusted_proxies: list(trusted) },
      pipeline: [{ use: 'auth', with: { prefix: 'sk-gw-' } }, { use: 'key-policy',
        with: { require_origin: isOriginRequired, clients: [] } }] },
    [auth, keyPolicy, errorNormalize]
  )
  const grouped: Record<string, string | string[]> = { 'x-api-key': secretOf(0) }
  for (const [name, value] of headers) {
    const before = grouped[name.toLowerCase()]
    grouped[name.toLowerCase()] = before === undefined ? value : [before, value].flat()
  }
  try {
    await ask(exchange(on, { method: 'GET', path: '/v1/models', address: peer, headers: grouped }))
    return ALLOWED
  } catch (thrown) {
    if (!isGatewayError(thrown) || thrown.status !== 403) throw thrown
    return verdictOf(thrown.code, thrown.message)
  }
}

function verdictOf (code: string, message: string): string {
  return code === 'ip_not_allowed'
    ? / from ([\da-f.:]+)\. (?:Add|X-Forwarded-For was not)/.exec(message)?.[1] ?? NOBODY
    : code
}

/** The same over a socket. */
async function askGateway (url: string, secret: string, headers: Lines): Promise<string> {
  const sent = request(url + '/v1/models', { agent: false,
    headers: ['Host', 'gateway', 'x-api-key', secret, ...headers.flat()] })
  const { status, json } = await new Call(sent.end()).whole()
  if (status === 200) return ALLOWED
  const { error } = json as { readonly error: { readonly code: string, readonly message: string } }
  return verdictOf(error.code, error.message)
}

async function boot (
  t: Test,
  listen: string,
  trusted: string,
  keys: readonly Partial<KeyConfig>[],
  policy = 'key-policy'
): Promise<TestGateway> {
  const more = keys.map((restricted, i) =>
    `  - ${JSON.stringify({ id: `k${i}`, account: 'acme', secret: secretOf(i), ...restricted })}\n`
  ).join('')
  return gateway(t,
    yaml(['http://127.0.0.1:9'], more, `auth, ${policy}, channel-router, billing-meter, error-normalize`)
      .replace('api: { listen: "127.0.0.1:0"',
        `trusted_proxies: ${JSON.stringify(list(trusted))}\n  api: { listen: "${listen}"`))
}

/** Where to listen so that this machine has the peer's address, and how it gets there. */
const hasIPv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1') === true)
const sockets: Readonly<Record<string, { readonly listen: string, readonly host: string }>> = {
  '127.0.0.1': { listen: '127.0.0.1:0', host: '127.0.0.1' },
  ...(hasIPv6 &&
    { '::1': { listen: '[::1]:0', host: '[::1]' }, '::ffff:127.0.0.1': { listen: '[::]:0', host: '127.0.0.1' } })
}

t.test('an address is whom a proxy of ours saw, or the peer', async (t) => {
  for (const { attempt, peer, trusted, headers, whitelist, verdict } of addresses) {
    t.equal(await askPipeline({ ip_whitelist: list(whitelist) }, peer, trusted, headers), verdict, attempt)
  }
})

t.test('over sockets too', async (t) => {
  const groups = Map.groupBy(addresses.filter(({ peer }) => peer in sockets),
    ({ peer, trusted }) => `${peer} ${trusted}`)
  for (const rows of groups.values()) {
    const { listen, host } = sockets[rows[0]!.peer]!
    const whitelists = [...new Set(rows.map(({ whitelist }) => whitelist))]
    const { url } = await boot(t, listen, rows[0]!.trusted,
      whitelists.map((whitelist) => ({ ip_whitelist: list(whitelist) })))
    for (const { attempt, headers, whitelist, verdict } of rows) {
      t.equal(
        await askGateway(url.replace(/(?<=\/\/).*(?=:\d+$)/, host), secretOf(whitelists.indexOf(whitelist)), headers),
        verdict,
        attempt
      )
    }
  }
})

t.test('an origin is compared whole', async (t) => {
  const own = await boot(t, '127.0.0.1:0', '', [ORIGINS])
  const strict = await boot(t, '127.0.0.1:0', '', [ORIGINS], '{ key-policy: { require_origin: true } }')
  for (const [attempt, headers, verdict, whereRequired = verdict] of origins) {
    const [lax, required] = [verdict, whereRequired].map((word) => word === 'refused' ? 'origin_not_allowed' : ALLOWED)
    t.equal(await askPipeline(ORIGINS, '127.0.0.1', '', headers), lax, attempt)
    t.equal(await askGateway(own.url, secretOf(0), headers), lax, `${attempt}, over a socket`)
    t.equal(await askPipeline(ORIGINS, '127.0.0.1', '', headers, true), required,
      `${attempt}, where an Origin is required`)
    t.equal(await askGateway(strict.url, secretOf(0), headers), required,
      `${attempt}, where an Origin is required, over a socket`)
  }
})

t.test('a network as people write it, and what is none', async (t) => {
  const read = (text: string): string | undefined => {
    const network = parseNetwork(text)
    return network && `${network.address}/${network.prefix}`
  }
  for (const [text, meant] of [
    ['10.0.0.0/8', '10.0.0.0/8'],
    ['10.0.0.9', '10.0.0.9/32'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['2001:DB8::/32', '2001:db8::/32'],
    ['::1', '::1/128'],
    ['::ffff:10.0.0.0/104', '10.0.0.0/8'],
    ['::ffff:a00:9', '10.0.0.9/32'],
    ['::ffff:0:0/96', '0.0.0.0/0']
  ] as const) { t.equal(read(text), meant) }
  for (const text of [
    '',
    '/',
    '/8',
    '10.0.0.0/',
    '10.0.0.0/33',
    '10.0.0.0/-1',
    '10.0.0.0/08',
    '10.0.0.0/8.0',
    '10.0.0.0/8/8',
    '10.0.0.0/255.0.0.0',
    '10.0.0/8',
    '10.0.0.0-10.0.0.9',
    '10.0.0.*',
    ' 10.0.0.9',
    '10.0.0.9 ',
    '10.0.0.9:80',
    '[::1]',
    '::1/129',
    '::ffff:10.0.0.0/95',
    'fe80::1%eth0',
    'localhost',
    '*',
    '1e1.0.0.0',
    '10.0.0.0/1e1'
  ]) { t.equal(read(text), undefined, text) }
  t.throws(() => compileNetworks(['10.0.0.0/8', 'localhost']), /"localhost" is no address and no network/)
})

t.test('the walk through a header is over at the first stranger, and never longer than the header', async (t) => {
  const everybody = compileNetworks(['0.0.0.0/0'])
  t.equal(
    clientAddress({ address: '127.0.0.1',
      headers: { 'x-forwarded-for': '9.9.9.9, ' + '10.0.0.9, '.repeat(6000) + '10.0.0.9' } }, everybody),
    '9.9.9.9'
  )
  t.equal(clientAddress({ address: '127.0.0.1', headers: { 'x-forwarded-for': ','.repeat(65_000) } }, everybody),
    undefined)
  t.equal(clientAddress({ address: '127.0.0.1', headers: { 'x-forwarded-for': [] } }, everybody), undefined)
})
