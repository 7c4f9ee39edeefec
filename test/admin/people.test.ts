// Who may do what through the admin API, over real sockets: named tokens with roles, from the first to the last day of
// each; and what a role may not do, for every operation that there is.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { roles, type Role } from '../../src/accounts/directory.ts'
import { digestOf } from '../../src/accounts/digests.ts'
import { codePoint } from '../support/code-point.ts'
import { gateway, KEY, type TestGateway, yaml } from '../support/gateway.ts'

const SEEDED = process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }
const ROOT = 'test-admin-token'
const DAY = 86_400_000

type Body = Readonly<Record<string, unknown>>
interface Answered { readonly status: number, readonly body: Body, readonly text: string }

/** @param token of gateway.yaml, where it is absent */
type Ask = (method: string, path: string, body?: unknown, token?: string) => Promise<Answered>

function asking ({ urls }: TestGateway): Ask {
  return async (method, path, body, token = ROOT) => {
    const got = await fetch(`${urls.admin}/admin/v1${path}`, { method, headers: { authorization: `Bearer ${token}` },
      ...(body !== undefined && { body: JSON.stringify(body) }) })
    const text = await got.text()
    return { status: got.status, text, body: JSON.parse(text) as Body }
  }
}

/** @param now milliseconds since the epoch */
async function desk (t: Test, driver = 'memory', now?: () => number): Promise<TestGateway & { readonly ask: Ask }> {
  const own = await gateway(t, yaml(['simulator:']).replace('driver: memory', `driver: ${driver}`), {
    // Who guesses need not wait here: test/admin/wrong-tokens.test.ts looks at that.
    timer: (_ms, callback) => { const timer = setTimeout(callback, 1).unref(); return () => { clearTimeout(timer) } },
    ...(now !== undefined && { now })
  })
  return Object.assign(Object.create(own) as TestGateway, { ask: asking(own) })
}

async function made (ask: Ask, name: string, role: Role, more: object = {}): Promise<{ id: string, secret: string }> {
  const { status, body } = await ask('POST', '/tokens', { name, role, ...more })
  if (status !== 201) throw new Error(JSON.stringify(body))
  return body as { id: string, secret: string }
}

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: a token is made, shown once, used, seen, revoked; the audit log tells by whom`, async (t) => {
    const own = await desk(t, driver)
    const { ask } = own
    const before = await ask('GET', '/me')
    t.match(before.body, { name: /^admin-token [0-9a-f]{8}$/, role: 'owner', token: null })
    const answered = await ask('POST', '/tokens', { name: 'Ada Lovelace', role: 'owner' })
    t.match(answered, { status: 201, body: { id: /^tok_\w{16}$/, name: 'Ada Lovelace', role: 'owner', state: 'active',
      secret: /^admin-gw-[A-Za-z0-9]{32}$/, shown: /^admin-gw-….{4}$/ } })
    const { id, secret } = answered.body as { readonly id: string, readonly secret: string }
    t.strictSame((await ask('GET', '/me', undefined, secret)).body, { name: 'Ada Lovelace', role: 'owner', token: id })
    t.match(await ask('POST', '/tokens', { name: 'Ada Lovelace', role: 'viewer' }), { status: 409,
      body: { error: { code: 'already_exists', message: /the audit log tells people by their names/ } } })
    t.match(await ask('POST', '/accounts', { id: 'beta' }, secret), { status: 201 })
    const bob = await made((method, path, body) => ask(method, path, body, secret), 'Bob', 'viewer',
      { expires_at: '2999-01-01T00:00:00Z' })

    const listed = await ask('GET', '/tokens')
    t.match(Object.fromEntries((listed.body['data'] as readonly Body[]).map((row) => [row['name'], row])), {
      'Ada Lovelace': { id, role: 'owner', last_used_at: /T\d\d:00:00\.000Z$/ },
      Bob: { id: bob.id, role: 'viewer', expires_at: '2999-01-01T00:00:00Z' }
    })
    t.notMatch(listed.text, new RegExp(`${secret}|${bob.secret}|sha256|${digestOf(secret).toString('hex')}`))

    t.match(await ask('DELETE', `/tokens/${id}`, undefined, secret), { status: 200, body: { state: 'revoked', id } },
      'one\'s own too')
    t.equal((await ask('GET', '/me', undefined, secret)).status, 401, 'at once')
    t.match(await ask('DELETE', `/tokens/${id}`), { status: 404, body: { error: { message: /was revoked before, at 20/ } } })
    t.match(await ask('DELETE', '/tokens/nobody'), { status: 404 })
    t.match(await ask('POST', '/tokens', { name: 'Ada Lovelace', role: 'viewer' }), { status: 201 }, 'the name is free')

    const { body: { data } } = await ask('GET', '/audit')
    const [first, second, third, fourth] = data as readonly Body[]
    t.match(first, { what: 'token.create', who: before.body['name'], role: 'owner', address: '127.0.0.1', id,
      before: null, after: { name: 'Ada Lovelace', role: 'owner' } })
    t.notOk('token' in first!, 'that of gateway.yaml has no id')
    t.match(second, { what: 'account.create', who: 'Ada Lovelace', token: id, role: 'owner', address: '127.0.0.1',
      id: 'beta' })
    t.match(third, { what: 'token.create', who: 'Ada Lovelace', token: id, id: bob.id })
    t.match(fourth, { what: 'token.revoke', who: 'Ada Lovelace', token: id, id, before: { role: 'owner' }, after: null })
    t.strictSame((data as readonly Body[]).map(({ seq }) => seq), [1, 2, 3, 4, 5], 'a last use is no line')
    const newest = await ask('GET', '/audit?order=desc&limit=2')
    t.strictSame((newest.body['data'] as readonly Body[]).map(({ seq }) => seq), [5, 4])
    t.equal(newest.body['next'], '4')
    const rest = await ask('GET', '/audit?order=desc&after=4')
    t.strictSame((rest.body['data'] as readonly Body[]).map(({ seq }) => seq), [3, 2, 1])
    t.equal(rest.body['next'], null)
    t.equal((await ask('GET', '/audit?order=down')).status, 400)
    const said = JSON.stringify([own.logged, data])
    for (const hidden of [secret, bob.secret, 'sha256']) t.notMatch(said, hidden)
  })
}

t.test('a token ends at its time, and none is made for a time that is over or for a role that is not', async (t) => {
  let time = Date.parse('2027-01-01T00:00:00Z')
  const { ask } = await desk(t, 'memory', () => time)
  const { secret } = await made(ask, 'temp', 'operator', { expires_at: '2027-01-02T00:00:00Z' })
  time += DAY - 1
  t.equal((await ask('GET', '/me', undefined, secret)).status, 200)
  time++
  t.equal((await ask('GET', '/me', undefined, secret)).status, 401)
  t.match((await ask('GET', '/tokens')).body['data'], [{ state: 'expired', last_used_at: '2027-01-01T23:00:00.000Z' }])
  t.equal((await made(ask, 'temp', 'operator')).secret.length, secret.length, 'the name is free')
  for (const [wanted, said] of [
    [{ role: 'viewer' }, /"name" is missing/], [{ name: 'x' }, /"role" is missing/],
    [{ name: 'x', role: 'admin' }, /role/], [{ name: 'a\nb', role: 'viewer' }, /1 to 100 characters in one line/],
    [{ name: 'x', role: 'viewer', expires_at: '2027-01-02T00:00:00Z' }, /must be a time to come/],
    [{ name: 'x', role: 'viewer', expires_at: '2027-02-31T00:00:00Z' }, /must be a time to come/],
    [{ name: 'x', role: 'viewer', expires_at: 'soon' }, /a time in UTC/],
    [{ name: 'x', role: 'viewer', secret: 'mine' }, /unknown key "secret"/]
  ] as const) {
    const refused = await ask('POST', '/tokens', wanted)
    t.equal(refused.status, 400, JSON.stringify(wanted))
    t.match((refused.body['error'] as Body)['message'], said)
  }
})

interface Documented { readonly operationId: string, readonly security: readonly [{ readonly token: readonly [Role] }] }

/** Every operation of the document, with the role that it names, and an address for it. */
async function operations (ask: Ask): Promise<readonly {
  readonly method: string, readonly path: string, readonly name: string, readonly needs: Role, readonly line: string
}[]> {
  const { paths } = (await ask('GET', '/openapi.json')).body as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Documented>>>>
  }
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId: name, security: [{ token: [needs] }] }]) => ({
      method: method.toUpperCase(), path: path.replace('/admin/v1', '').replace('{id}', 'nobody'), name, needs,
      line: `${method.toUpperCase()} ${path.replace('/admin/v1', '')}`
    }))
  )
}

/** What only an owner may do: money, and who may do what. */
const OWNERS = /^(?:\w+ \/tokens\b|GET \/store\/backup$|POST \/accounts\/\{id\}\/(?:credits|refunds|debits|reopen)$)/
/** What changes nothing, though it is no GET: a link signs in whoever has asked for it, as who that is. */
const READS = ['POST /explain', 'POST /ledger/verify', 'POST /config/check', 'POST /config/diff', 'POST /links']

t.test('every operation says which role it needs: money and tokens an owner, changes an operator', async (t) => {
  const { ask } = await desk(t)
  const all = await operations(ask)
  t.ok(all.length > 25)
  for (const { line, method, needs } of all) {
    const right = OWNERS.test(line) ? 'owner' : method === 'GET' || READS.includes(line) ? 'viewer' : 'operator'
    t.equal(needs, right, line)
  }
})

t.test('every operation is done for the roles that may, and refused whole to the others', async (t) => {
  const { ask, urls } = await desk(t)
  const all = await operations(ask)
  const bearers = await Promise.all(roles.map(async (role) => ({ role, ...await made(ask, `a ${role}`, role) })))
  for (const { method, path, line, needs } of all) {
    for (const { role, secret } of bearers) {
      // Only the head: an answer may go on for ever.
      const over = new AbortController()
      const got = await fetch(`${urls.admin}/admin/v1${path}`, { method, signal: over.signal,
        headers: { authorization: `Bearer ${secret}` }, ...(method !== 'GET' && { body: '{}' }) })
      const may = roles.indexOf(role) >= roles.indexOf(needs)
      t.equal(got.status === 403, !may, `${role}: ${line} ${got.status}`)
      if (may) t.ok(got.status < 500 && got.status !== 401, `${role}: ${line} ${got.status}`)
      else {
        t.match(await got.json(), { error: { code: 'forbidden', type: 'permission_error', request_id: /^req_/,
          message: `${line.replace(' ', ' /admin/v1')} needs the role ${needs}, and the token "a ${role}" has the role ${role}. Ask an owner for another token.` } })
      }
      over.abort()
    }
  }
  t.strictSame(((await ask('GET', '/audit')).body['data'] as readonly Body[]).map(({ what }) => what),
    ['token.create', 'token.create', 'token.create'], 'what was refused has changed nothing')
})

t.test('no answer to a reader has a secret in it, nor its hash', async (t) => {
  const { ask, urls } = await desk(t)
  const viewer = await made(ask, 'a reader', 'viewer')
  await ask('POST', '/accounts', { id: 'nobody' })
  const { body: { secret: own } } = await ask('POST', '/keys', { id: 'nobody', account: 'nobody' })
  const { body: { secret: next } } = await ask('POST', '/keys/nobody/rotate', { grace: '1h' })
  const secrets = [ROOT, KEY, viewer.secret, own, next, 'upstream-secret-0'] as readonly string[]
  const hidden = [...secrets, ...secrets.map((secret) => digestOf(secret).toString('hex'))]
  let read = 0
  for (const { method, path, line, needs } of await operations(ask)) {
    if (method !== 'GET') continue
    const token = needs === 'viewer' ? viewer.secret : ROOT
    const got = await fetch(`${urls.admin}/admin/v1${path}`, { headers: { authorization: `Bearer ${token}` } })
    // An answer that goes on for ever shows its beginning.
    const isWhole = got.headers.get('content-type') === 'application/json'
    const text = isWhole ? await got.text() : Buffer.from((await got.body!.getReader().read()).value ?? []).toString()
    if (got.status === 200) read++
    t.strictSame(hidden.filter((one) => text.includes(one)), [], line)
  }
  t.ok(read > 8, `${read} were read`)
})

t.test('whatever is made, revoked, used, and whatever time passes: who gets in is who should (generated)', async (t) => {
  let time = Date.parse('2027-01-01T00:00:00Z')
  const { ask } = await desk(t, 'memory', () => time)
  let number = 0
  const step = fc.oneof(
    fc.record({ kind: fc.constant('make' as const), role: fc.constantFrom(...roles),
      days: fc.option(fc.integer({ min: 1, max: 3 })) }),
    fc.record({ kind: fc.constant('revoke' as const), which: fc.nat(9) }),
    fc.record({ kind: fc.constant('wait' as const), ms: fc.constantFrom(1, DAY - 1, DAY, 2 * DAY) }),
    fc.record({ kind: fc.constant('use' as const), which: fc.nat(9) })
  )
  interface Known { readonly id: string, readonly secret: string, readonly role: Role, readonly until: number,
    isRevoked: boolean }
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 12 }), async (steps) => {
    const known: Known[] = []
    for (const one of steps) {
      if (one.kind === 'wait') time += one.ms
      else if (one.kind === 'make') {
        const until = one.days === null ? Infinity : time + one.days * DAY
        const { id, secret } = await made(ask, `n${++number}`, one.role,
          one.days === null ? {} : { expires_at: new Date(until).toISOString() })
        known.push({ id, secret, role: one.role, until, isRevoked: false })
      } else {
        const token = known[one.which % known.length]
        if (token === undefined) continue
        if (one.kind === 'revoke') {
          const { status } = await ask('DELETE', `/tokens/${token.id}`)
          if (status !== (token.isRevoked ? 404 : 200)) throw new Error(`revoked with ${status}`)
          token.isRevoked = true
        }
      }
      for (const { id, secret, role, until, isRevoked } of known) {
        const { status, body } = await ask('GET', '/me', undefined, secret)
        const isIn = !isRevoked && time < until
        if (status !== (isIn ? 200 : 401) || (isIn && (body['role'] !== role || body['token'] !== id))) {
          throw new Error(`${status} ${JSON.stringify(body)} for ${JSON.stringify({ role, until, isRevoked, time })}`)
        }
      }
    }
  }), { numRuns: 25, ...SEEDED })
})

/** As the schema says it, in other words. */
function isTag (text: string): boolean {
  const length = [...text].length
  return length >= 1 && length <= 64 && text.isWellFormed() && !/[,\p{Cc}]/u.test(text) && text.trim() === text
}

t.test('accounts and keys have a contact, a name and tags, by which lists are filtered (generated)', async (t) => {
  const { ask } = await desk(t)
  let number = 0
  const tag = fc.oneof(fc.constantFrom('team:web', 'trial', 'a b', 'ä', '😀', 'x'.repeat(64)),
    fc.string({ unit: 'grapheme', minLength: 1, maxLength: 10 }), fc.string({ unit: codePoint, maxLength: 6 }),
    fc.constantFrom('', ' a', 'a ', 'a,b', 'a\nb', '\ud800', 'x'.repeat(65)))
  await fc.assert(fc.asyncProperty(
    fc.array(tag, { maxLength: 34 }), fc.constantFrom('accounts', 'keys'), async (tags, noun) => {
      const id = `n${++number}`
      const { status, body } = await ask('POST', `/${noun}`, { id, tags, ...(noun === 'keys' && { account: 'acme' }) })
      const isRight = tags.every(isTag) && new Set(tags).size === tags.length && tags.length <= 32
      if (status !== (isRight ? 201 : 400)) throw new Error(`${status} ${JSON.stringify(body)}`)
      if (!isRight) return
      for (const one of tags.slice(0, 3)) {
        const listed = await ask('GET', `/${noun}?limit=1000&tag=${encodeURIComponent(one)}`)
        const rows = listed.body['data'] as readonly { readonly id: string, readonly tags: readonly string[] }[]
        if (!rows.some((row) => row.id === id)) throw new Error(`not found by ${JSON.stringify(one)}`)
        if (!rows.every((row) => row.tags.includes(one))) throw new Error(`too many by ${JSON.stringify(one)}`)
      }
    }
  ), { numRuns: 150, ...SEEDED })
  t.match(await ask('POST', '/accounts', { id: 'beta', contact: 'pay@beta.example', tags: ['trial'] }), { status: 201,
    body: { contact: 'pay@beta.example', tags: ['trial'], state: 'active' } })
  t.match(await ask('PATCH', '/accounts/beta', { contact: null, tags: null }), { status: 200, body: { tags: [] } })
  t.match(await ask('POST', '/keys', { id: 'beta-dev', account: 'beta', name: 'for the test' }), { status: 201,
    body: { name: 'for the test', tags: [] } })
  t.match(await ask('PATCH', '/keys/beta-dev', { name: 'x'.repeat(101) }), { status: 400,
    body: { error: { message: /1 to 100 characters in one line/ } } })
  t.match(await ask('GET', '/accounts/acme'), { body: { tags: [], declared: true } })
})

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: a closed account asks for nothing and gets nothing new; its balance stays, until an owner opens it`, async (t) => {
    const own = await desk(t, driver)
    const { ask } = own
    await ask('POST', '/accounts', { id: 'beta' })
    const { body: { secret } } = await ask('POST', '/keys', { id: 'beta-dev', account: 'beta' })
    const credit = { amount_usd: '5', reference: 'r1' }
    await ask('POST', '/accounts/beta/credits', credit)
    const use = async (): Promise<readonly [number, string]> => {
      const got = await fetch(`${own.url}/v1/models`, { headers: { 'x-api-key': secret as string } })
      return [got.status, await got.text()]
    }
    t.equal((await use())[0], 200)
    const operator = await made(ask, 'an operator', 'operator')
    t.match(await ask('POST', '/accounts/beta/close', undefined, operator.secret), { status: 200,
      body: { state: 'closed', balance_usd: '5' } })
    const [status, said] = await use()
    t.equal(status, 402)
    t.match(said, /"message":"The account is closed\. .*"account_frozen"/)
    const refused = { status: 409, body: { error: { code: 'account_closed', message: /The account beta is closed: it / } } }
    t.match(await ask('POST', '/keys', { account: 'beta' }), refused)
    t.match(await ask('POST', '/accounts/beta/credits', { amount_usd: '5', reference: 'r2' }), refused)
    t.match(await ask('POST', '/accounts/beta/credits', credit), { status: 200, body: { credited: false } },
      'a payment that was credited before')
    t.match(await ask('POST', '/accounts/beta/debits', { amount_usd: '2', reference: 'd', reason: 'paid out' }),
      { status: 201, body: { balance_usd: '3' } })
    t.match(await ask('POST', '/accounts/beta/refunds', { amount_usd: '1', reference: 'd', reason: 'too much' }),
      { status: 201, body: { balance_usd: '4' } })
    t.match(await ask('PATCH', '/accounts/beta', { contact: 'heirs@beta.example' }), { status: 200,
      body: { state: 'closed', contact: 'heirs@beta.example' } }, 'a change does not open it')
    t.match(await ask('PATCH', '/accounts/beta', { closed: false }), { status: 400,
      body: { error: { message: /unknown key "closed"/ } } })
    t.equal((await ask('POST', '/accounts/beta/reopen', undefined, operator.secret)).status, 403)
    t.match(await ask('POST', '/accounts/beta/reopen'), { status: 200, body: { state: 'active' } })
    t.equal((await use())[0], 200)
    t.match(await ask('POST', '/accounts/acme/close'), { status: 409, body: { error: { code: 'read_only' } } })
    t.match(await ask('POST', '/accounts/nobody/close'), { status: 404 })
    const log = (await ask('GET', '/audit?order=desc')).body['data'] as readonly Body[]
    t.match(log.filter(({ what }) => /close|reopen/.test(what as string)), [
      { what: 'account.reopen', who: /^admin-token /, id: 'beta', before: { closed: true } },
      { what: 'account.close', who: 'an operator', token: operator.id, id: 'beta', after: { closed: true } }
    ])
  })
}

t.test('gateway.yaml says the same of its accounts and keys', async (t) => {
  const text = yaml(['simulator:'])
    .replace('name: Acme,', 'name: Acme, contact: "pay@acme.example", tags: [trial], closed: true,')
    .replace('{ id: acme-dev,', '{ id: acme-dev, name: for the test, tags: ["team:web"],')
  const own = await gateway(t, text)
  const ask = asking(own)
  t.match((await ask('GET', '/accounts?tag=trial')).body['data'], [{ id: 'acme', contact: 'pay@acme.example',
    state: 'closed', declared: true }])
  t.match((await ask('GET', '/keys?tag=team:web')).body['data'], [{ id: 'acme-dev', name: 'for the test' }])
  t.strictSame((await ask('GET', '/keys?tag=team')).body['data'], [])
  t.equal((await own.messages({ model: 'm1', max_tokens: 5, messages: [] })).status, 402)
  t.equal((await ask('POST', '/keys', { account: 'acme' })).status, 409)
  await own.rewrite(text.replace('tags: [trial]', 'tags: ["a,b"]'))
  t.match((await ask('GET', '/config')).body['problems'], [{ path: '/accounts/0/tags/0', message: /without a comma/ }])
})
