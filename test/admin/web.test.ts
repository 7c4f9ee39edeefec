// The pages of the admin listener over real sockets: their files, signing in, and what others can't do with the cookie
// of somebody who is signed in.
import { once } from 'node:events'
import { type IncomingHttpHeaders, request } from 'node:http'
import { hostname } from 'node:os'
import { buffer } from 'node:stream/consumers'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { preparePages } from '../../src/admin/web/files.ts'
import { isMachineName, siteOf } from '../../src/admin/web/hosts.ts'
import { Sessions } from '../../src/admin/web/sessions.ts'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'

interface Got { readonly status: number, readonly headers: IncomingHttpHeaders, readonly bytes: Buffer,
  readonly json: Record<string, unknown> & { readonly error?: { readonly code: string, readonly message: string } } }

interface Asked { readonly headers?: Readonly<Record<string, string>>, readonly body?: unknown }

const TOKEN = 'test-admin-token'
/** What the pages send with each request. */
const OURS = { 'sec-fetch-site': 'same-origin', 'x-gateway-ui': 'page' }
const MINUTE = 60_000

async function pages (t: Test, more = '', options: object = {}): Promise<TestGateway & {
  ask (method: string, path: string, asked?: Asked): Promise<Got>
  signIn (given?: object): Promise<string>
}> {
  const own = await gateway(t, yaml(['http://127.0.0.1:9'], more).replace('token: test-admin-token',
    'token: test-admin-token, hosts: [gateway.internal]'), options)
  const ask = async (method: string, path: string, { headers = {}, body }: Asked = {}): Promise<Got> => {
    const sent = request(own.urls.admin + path, { method, agent: false, headers })
    sent.end(body === undefined ? undefined : JSON.stringify(body))
    const [response] = await once(sent, 'response')
    const bytes = await buffer(response)
    const isJson = response.headers['content-type'] === 'application/json'
    return { status: response.statusCode, headers: response.headers, bytes,
      json: isJson ? JSON.parse(String(bytes)) : {} }
  }
  return Object.assign(Object.create(own) as TestGateway, {
    urls: own.urls,
    ask,
    async signIn (given: object = { token: TOKEN }) {
      const { status, headers } = await ask('POST', '/ui/session', { headers: OURS, body: given })
      t.equal(status, 200)
      return headers['set-cookie']![0]!.split(';', 1)[0]!
    }
  })
}

void t.test('each file comes from memory, compressed as the browser takes it, and may be kept for ever; nothing else is there', async (t) => {
  const { ask } = await pages(t)
  const index = await ask('GET', '/ui/')
  t.match(index, { status: 200, headers: { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' } })
  const files = [...String(index.bytes).matchAll(/(?:src|href)="(a\/\w+\/[\w.-]+)"/g)].map(([, path]) => path!)
  t.ok(files.length > 8)
  for (const path of files) {
    const plain = await ask('GET', `/ui/${path}`)
    t.equal(plain.status, 200, path)
    t.match(plain.headers, { 'cache-control': 'public, max-age=31536000, immutable', 'x-content-type-options': 'nosniff' })
    for (const [coding, open] of [['br', brotliDecompressSync], ['gzip', gunzipSync]] as const) {
      const packed = await ask('GET', `/ui/${path}`, { headers: { 'accept-encoding': `deflate, ${coding}` } })
      t.match(packed.headers, { 'content-encoding': coding, vary: 'accept-encoding' })
      t.ok(open(packed.bytes).equals(plain.bytes), `${path} ${coding}`)
    }
    t.match(await ask('HEAD', `/ui/${path}`), { status: 200, bytes: { length: 0 } })
    t.notMatch(String(plain.bytes), /https?:\/\/(?!www\.w3\.org|github\.com|127\.0\.0\.1)|sourceMappingURL/, `${path}: nothing from other hosts`)
  }
  t.match(await ask('GET', '/ui'), { status: 308, headers: { location: 'ui/' } })
  for (const wrong of ['/ui/x', '/ui/a/0/main.js', '/ui/../package.json', `/ui/${files[0]}x`, '/ui/a//main.js',
    `/ui/${files[0]!.replace(/[^/]+$/, '..%2Fweb.ts')}`]) {
    t.match(await ask('GET', wrong), { status: 404, json: { error: { code: 'not_found' } } }, wrong)
  }
  t.match(await ask('POST', '/ui/'), { status: 405, headers: { allow: 'GET, HEAD' } })
})

void t.test('each answer below /ui/ forbids scripts, styles and frames of others', async (t) => {
  const { ask } = await pages(t)
  for (const path of ['/ui', '/ui/', '/ui/session', '/ui/nothing']) {
    const { headers } = await ask('GET', path)
    t.equal(headers['content-security-policy'], "default-src 'none'; script-src 'self'; style-src 'self'; " +
      "connect-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
      "require-trusted-types-for 'script'; trusted-types 'none'", path)
    t.match(headers, { 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin', 'cross-origin-resource-policy': 'same-origin' })
  }
})

void t.test('the first view is at most 60 KB gzipped, 25 of them our own code, its plots included', async (t) => {
  const { first, byName, index } = await preparePages()
  const sum = (names: readonly string[]): number => names.reduce((all, name) => all + byName.get(name)!.gzip.length, 0)
  const isOwn = (name: string): boolean => name.endsWith('.js') && !name.startsWith('lib-')
  const main = String(byName.get('main.js')!.plain)
  const needs = (name: string, found = new Set<string>()): ReadonlySet<string> => {
    if (found.has(name)) return found
    found.add(name)
    // The frame loads one page of many; a page all that it names.
    const imports = name === 'main.js' ? /\bfrom ?['"]\.\/([\w-]+\.js)/g : /\b(?:from|import) ?\(?['"]\.\/([\w-]+\.js)/g
    for (const [, to] of String(byName.get(name)!.plain).matchAll(imports)) needs(to!, found)
    return found
  }
  const page = /^const FIRST = '(\w+)'/m.exec(main)![1]!
  const view = [...needs(`${page}.js`, new Set(needs('main.js'))), 'style.css', 'icon.svg']
  t.ok(first.every((name) => view.includes(name)), 'what is loaded beforehand is needed')
  t.notOk(first.includes('lib-uplot.js'), 'plots are loaded where there are some')
  const [all, own] = [sum(view) + index.gzip.length, sum(view.filter(isOwn))]
  t.comment(`${page}: ${all} bytes, own code ${own}; all pages ${sum([...byName.keys()].filter(isOwn))}`)
  t.ok(all <= 60_000)
  t.ok(own <= 25_000)
})

void t.test('a token begins a session: its cookie opens the admin API, in the name and role of the token, until it is signed out', async (t) => {
  const { ask, signIn } = await pages(t)
  t.strictSame((await ask('GET', '/ui/session')).json, { signed_in: false })
  const got = await ask('POST', '/ui/session', { headers: OURS, body: { token: TOKEN } })
  t.match(got.json, { signed_in: true, role: 'owner', token: null, name: /^admin-token / })
  const [set] = got.headers['set-cookie']!
  t.match(set, /^gateway-session-\d+=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict$/)
  const cookie = set!.split(';', 1)[0]!
  const signedIn = { ...OURS, cookie }
  t.match((await ask('GET', '/ui/session', { headers: signedIn })).json, { signed_in: true })
  t.match((await ask('GET', '/admin/v1/me', { headers: signedIn })).json, { role: 'owner' })
  t.match(await ask('POST', '/admin/v1/accounts', { headers: signedIn, body: { id: 'beta' } }), { status: 201 })
  t.match((await ask('GET', '/admin/v1/audit?order=newest', { headers: signedIn })).json, {
    data: [{ what: 'account.create', who: /^admin-token /, address: '127.0.0.1' }] })
  const made = await ask('POST', '/admin/v1/tokens', { headers: signedIn, body: { name: 'Ada', role: 'viewer' } })
  const ada = { ...OURS, cookie: await signIn({ token: made.json['secret'] }) }
  t.match((await ask('GET', '/ui/session', { headers: ada })).json, { name: 'Ada', role: 'viewer' })
  t.match(await ask('POST', '/admin/v1/accounts', { headers: ada, body: { id: 'gamma' } }), { status: 403 })
  t.match(await ask('DELETE', `/admin/v1/tokens/${String(made.json['id'])}`, { headers: signedIn }), { status: 200 })
  t.match(await ask('GET', '/admin/v1/me', { headers: ada }), { status: 401 }, 'a revoked token ends its sessions')

  const out = await ask('DELETE', '/ui/session', { headers: signedIn })
  t.match(out, { status: 200, json: { signed_in: false } })
  t.match(out.headers['set-cookie']![0], /^gateway-session-\d+=; .*Max-Age=0$/)
  t.match(await ask('GET', '/admin/v1/me', { headers: signedIn }), { status: 401 }, 'a stolen cookie after it')
  t.strictSame((await ask('GET', '/ui/session', { headers: signedIn })).json, { signed_in: false })
})

void t.test('a cookie is of use to our pages alone (CSRF)', async (t) => {
  const { ask, signIn } = await pages(t)
  const cookie = await signIn()
  const tries = [{}, { 'sec-fetch-site': 'same-origin' }, { 'x-gateway-ui': 'page' },
    { ...OURS, 'sec-fetch-site': 'same-site' }, { ...OURS, 'sec-fetch-site': 'cross-site' },
    { ...OURS, 'sec-fetch-site': 'none' }]
  for (const headers of tries) {
    for (const [method, path] of [['POST', '/admin/v1/accounts'], ['GET', '/admin/v1/keys'], ['DELETE', '/ui/session'],
      ['POST', '/ui/session'], ['PATCH', '/admin/v1/keys/acme-dev']] as const) {
      t.match(await ask(method, path, { headers: { ...headers, cookie } as Record<string, string>,
        ...(method.startsWith('P') && { body: { id: 'beta', token: TOKEN } }) }),
        path.startsWith('/ui') ? { status: 403, headers: { 'set-cookie': undefined } } : { status: 401 },
        `${method} ${path} ${JSON.stringify(headers)}`)
    }
  }
  t.match(await ask('GET', '/admin/v1/accounts/beta', { headers: { ...OURS, cookie } }), { status: 404 }, 'nothing was done')
  // A program that has a token is not asked, whatever cookie comes with it.
  t.match(await ask('GET', '/admin/v1/me', { headers: { authorization: `Bearer ${TOKEN}`, cookie } }), { status: 200 })
  t.match(await ask('GET', '/admin/v1/me', { headers: { ...OURS, authorization: 'Bearer wrong-token', cookie } }),
    { status: 401 }, 'nor does a cookie make a wrong token right')
})

void t.test('names that are not ours lead nowhere (DNS rebinding), with a cookie or without', async (t) => {
  const { ask, signIn } = await pages(t)
  const cookie = await signIn()
  for (const host of ['evil.example', 'evil.example:9090', '127.0.0.1.evil.example', 'localhost.evil.example',
    'gateway.internal.evil.example', 'x@localhost', '127.0.0.1/x', '[::1']) {
    for (const path of ['/ui/', '/ui/session', '/ui/a/0/main.js']) {
      t.match(await ask('GET', path, { headers: { ...OURS, cookie, host } }), { status: 403 }, `${host} ${path}`)
    }
    t.match(await ask('GET', '/admin/v1/me', { headers: { ...OURS, cookie, host } }), { status: 401 }, host)
    t.match(await ask('POST', '/ui/session', { headers: { ...OURS, host }, body: { token: TOKEN } }), { status: 403 }, host)
  }
  const named = await ask('POST', '/ui/session', { headers: { ...OURS, host: 'gateway.internal' }, body: { token: TOKEN } })
  t.match(named.headers['set-cookie']![0],
    /^__Host-gateway-session=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Secure$/)
})

void t.test('of all hosts only addresses, loopback names and the operator\'s are ours', async (t) => {
  fc.assert(fc.property(fc.domain(), (name) => siteOf(name, ['ours.example']) === undefined))
  fc.assert(fc.property(fc.string(), (text) => {
    const site = siteOf(text, [])
    return site === undefined || /^(?:.*\.)?localhost(?::\d*)?$|^[\d.]+(?::\d*)?$|^\[.*\](?::\d*)?$/i.test(text)
  }))
  fc.assert(fc.property(fc.oneof(fc.ipV4(), fc.ipV6().map((ip) => `[${ip}]`)), fc.integer({ min: 1, max: 65_535 }),
    (ip, port) => siteOf(`${ip}:${port}`, []) !== undefined))
  fc.assert(fc.property(fc.ipV4(), (ip) => siteOf(ip, [])!.isLoopback === ip.startsWith('127.')))
  t.match(siteOf('ours.example:443', ['ours.example']), { cookie: '__Host-gateway-session', isLoopback: false })
  t.match(siteOf('LOCALHOST:9090', []), { cookie: 'gateway-session-9090', isLoopback: true })
})

void t.test('wrong tokens, wrong codes and cookies are told of and slowed as in the API; nothing is let in', async (t) => {
  const own = await pages(t)
  const { ask } = own
  for (let i = 0; i < 2; i++) {
    const given = i % 2 === 0 ? { token: `guess-number-${i}` } : { code: `guess-number-${i}` }
    const got = await ask('POST', '/ui/session', { headers: OURS, body: given })
    t.match(got, { status: 403, headers: { 'set-cookie': undefined } })
    t.notMatch(got.json.error!.message, /guess-number/)
  }
  const metrics = String((await ask('GET', '/metrics')).bytes)
  t.match(metrics, /^gateway_rejected_total\{reason="admin_token"\} 2$/m)
  for (const body of [undefined, [], {}, { token: 1 }, { token: '' }, { code: ['x'] }, 'x']) {
    t.ok([400, 403].includes((await ask('POST', '/ui/session', { headers: OURS, body })).status), JSON.stringify(body))
  }
  for (const cookie of ['', 'x', 'gateway-session-1=', `gateway-session-${new URL(own.urls.admin).port}=`,
    `gateway-session-${new URL(own.urls.admin).port}=${'A'.repeat(43)}`]) {
    t.match(await ask('GET', '/admin/v1/me', { headers: { ...OURS, cookie } }), { status: 401 }, cookie)
  }
})

void t.test('a session ends when nobody uses it, and after half a day however much; what a page asks by itself is no use', async (t) => {
  let now = Date.parse('2026-11-23T08:00:00Z')
  const { ask, signIn } = await pages(t, '', { now: () => now })
  const is = async (cookie: string, how = 'page'): Promise<boolean> =>
    (await ask('GET', '/admin/v1/me', { headers: { ...OURS, 'x-gateway-ui': how, cookie } })).status === 200
  const idle = await signIn()
  now += 30 * MINUTE - 1
  t.ok(await is(idle))
  now += 30 * MINUTE - 1
  t.ok(await is(idle, 'background'), 'it was used')
  now += 1
  t.notOk(await is(idle), 'what a page asked by itself has not prolonged it')
  now -= 1
  t.notOk(await is(idle), 'over is over')
  const used = await signIn()
  for (let passed = 0; passed < 12 * 60 - 20; passed += 20) {
    now += 20 * MINUTE
    t.ok(await is(used))
  }
  now += 20 * MINUTE
  t.notOk(await is(used))
})

void t.test('what is grave wants the token again; with a token of its own a program is not asked', async (t) => {
  let now = Date.parse('2026-11-23T08:00:00Z')
  const { ask, signIn } = await pages(t, '', { now: () => now })
  const headers = { ...OURS, cookie: await signIn() }
  await ask('POST', '/admin/v1/keys', { headers, body: { id: 'k1', account: 'acme' } })
  const grave: readonly (readonly [string, string, object?])[] = [
    ['POST', '/admin/v1/accounts/acme/credits', { amount_usd: '1', reference: 'r' }],
    ['POST', '/admin/v1/accounts/acme/debits', { amount_usd: '1', reference: 'r', reason: 'x' }],
    ['POST', '/admin/v1/accounts/acme/refunds', { amount_usd: '1', reference: 'r', reason: 'x' }],
    ['POST', '/admin/v1/tokens', { name: 'Ada', role: 'viewer' }],
    ['POST', '/admin/v1/links'],
    ['DELETE', '/admin/v1/keys/k1']
  ]
  now += 5 * MINUTE
  for (const [method, path, body] of grave) {
    t.match(await ask(method, path, { headers, body }), { status: 403, json: { error: { code: 'proof_needed' } } }, path)
  }
  t.match(await ask('PATCH', '/admin/v1/keys/k1', { headers, body: { frozen: true } }), { status: 200 }, 'this is not')
  const again = await ask('POST', '/ui/session', { headers, body: { token: TOKEN } })
  t.match(again, { status: 200, headers: { 'set-cookie': undefined } }, 'the session goes on')
  for (const [method, path, body] of grave) {
    t.ok((await ask(method, path, { headers, body })).status < 300, path)
  }
  now += 6 * MINUTE
  t.match(await ask('POST', '/admin/v1/accounts/acme/credits', { headers: { authorization: `Bearer ${TOKEN}` },
    body: { amount_usd: '1', reference: 'by-token' } }), { status: 201 })
})

void t.test('a link signs in once, within ten minutes, as the one who made it', async (t) => {
  let now = Date.parse('2026-11-23T08:00:00Z')
  const { ask, signIn } = await pages(t, '', { now: () => now })
  const bearer = { authorization: `Bearer ${TOKEN}` }
  const made = await ask('POST', '/admin/v1/tokens', { headers: bearer, body: { name: 'Ada', role: 'viewer' } })
  const link = async (headers: Readonly<Record<string, string>>): Promise<string> => {
    const { status, json } = await ask('POST', '/admin/v1/links', { headers })
    t.equal(status, 201)
    return /^\/ui\/#code=([\w-]{43})$/.exec(String(json['path']))![1]!
  }
  const code = await link({ authorization: `Bearer ${String(made.json['secret'])}` })
  const headers = { ...OURS, cookie: await signIn({ code }) }
  t.match((await ask('GET', '/ui/session', { headers })).json, { name: 'Ada', role: 'viewer' })
  t.match(await ask('POST', '/ui/session', { headers: OURS, body: { code } }), { status: 403 }, 'only once')
  const late = await link(bearer)
  now += 10 * MINUTE
  t.match(await ask('POST', '/ui/session', { headers: OURS, body: { code: late } }), { status: 403 })
  t.match(await ask('POST', '/ui/session', { headers: OURS, body: { token: late } }), { status: 403 }, 'it is no token')
})

void t.test('a session is for one person: another\'s token or link begins a new one, and ends it', async (t) => {
  const { ask, signIn } = await pages(t)
  const before = await signIn()
  const made = await ask('POST', '/admin/v1/tokens', { headers: { ...OURS, cookie: before },
    body: { name: 'Ada', role: 'viewer' } })
  const other = await ask('POST', '/ui/session', { headers: { ...OURS, cookie: before },
    body: { token: made.json['secret'] } })
  t.match(other.json, { name: 'Ada' })
  t.ok(other.headers['set-cookie'], 'a cookie of its own')
  t.match(await ask('GET', '/admin/v1/me', { headers: { ...OURS, cookie: before } }), { status: 401 })
})

void t.test('sessions and links are bounded, and whoever makes many pushes out only his own', async (t) => {
  const sessions = new Sessions(() => 0)
  const owner = sessions.open(null)
  const link = sessions.link(null)
  const first = sessions.open('viewer')
  for (let i = 0; i < 2000; i++) {
    sessions.open('viewer')
    sessions.link('viewer')
  }
  t.equal(sessions.find(first, false), undefined)
  t.match(sessions.find(owner, false), { token: null })
  t.match(sessions.take(link.code), { token: null })
  for (let i = 0; i < 2000; i++) sessions.open(`token ${i}`)
  t.equal(sessions.find(owner, false), undefined, 'of all the oldest goes, in the end')
})

t.test('N17: metrics are answered under names that no web site can have, and no others', async (t) => {
  const own = await gateway(t, yaml(['simulator:']))
  const { port } = new URL(own.urls.admin)
  const ask = async (host: string, path = '/metrics'): Promise<{ readonly status: number, readonly text: string }> =>
    await new Promise((resolve, reject) => {
      request({ port, host: '127.0.0.1', path, headers: { host } }, (res) => {
        let text = ''
        res.setEncoding('utf8').on('data', (chunk: string) => { text += chunk })
          .on('end', () => { resolve({ status: res.statusCode!, text }) })
      }).on('error', reject).end()
    })
  for (const host of ['evil.example', 'evil.example:9090', 'gateway.internal.evil.example', 'a.svc.example', '..', '@']) {
    const { status, text } = await ask(host)
    t.equal(status, 421, host)
    t.match(text, /server\.admin\.hosts/)
    t.equal((await ask(host, '/healthz')).status, 200)
    t.equal((await ask(host, '/readyz')).status, 200)
  }
  for (const host of ['127.0.0.1:9090', '10.1.2.3', '[::1]:9090', 'localhost', 'gateway:9090', 'gateway.prod.svc:9090',
    'gateway.prod.svc.cluster.local', 'gateway.local', 'gw.internal', 'GW.Internal', hostname()]) {
    t.equal((await ask(host)).status, 200, host)
  }
  t.ok(isMachineName('gw.example.org', ['gw.example.org']))
  t.notOk(isMachineName('gw.example.org', ['other.example.org']))
})
