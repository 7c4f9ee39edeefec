// The admin API over real sockets, on the real gateway with both stores: accounts and keys are made, used, changed, and
// told of.
import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { document } from '../support/admin-answers.ts'
import { gateway, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { answer, upstream } from '../support/upstream.ts'

interface Answered { readonly status: number, readonly etag: string | null, readonly body: Record<string, unknown> }

interface Admin extends TestGateway {
  ask (method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Answered>
  /** status of a request with this secret */
  use (secret: string, headers?: Readonly<Record<string, string>>): Promise<number>
}

const ALL = 'auth, key-policy, rate-limit, chat-to-messages, channel-router, billing-meter, error-normalize'

async function admin (t: Test, driver = 'memory', options: { readonly now?: () => number } = {}): Promise<Admin> {
  const up = await upstream(t, answer('Hello'))
  const own = await gateway(t, yaml([up.url], '', ALL).replace('driver: memory', `driver: ${driver}`), options)
  return Object.assign(Object.create(own) as TestGateway, {
    async ask (method: string, path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}) {
      const got = await fetch(own.urls.admin + '/admin/v1' + path, {
        method, headers: { authorization: 'Bearer test-admin-token', ...headers },
        ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) })
      })
      t.equal(got.headers.get('cache-control'), 'no-store')
      return { status: got.status, etag: got.headers.get('etag'), body: await got.json() as Record<string, unknown> }
    },
    use: async (secret: string, headers: Readonly<Record<string, string>> = {}) => {
      const got = await own.messages(messagesRequest, { headers: { 'x-api-key': secret, ...headers } })
      await got.text()
      return got.status
    }
  })
}

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: an account and a key are made, spend, are seen, frozen and thawed; the ledger and the audit log know it all`, async (t) => {
    const own = await admin(t, driver)
    const { ask, use } = own
    t.match(await ask('POST', '/accounts', { id: 'beta', name: 'Beta' }), { status: 201, etag: '"1"',
      body: { id: 'beta', name: 'Beta', balance_usd: '0', declared: false, state: 'active' } })
    const made = await ask('POST', '/keys', { id: 'beta-dev', account: 'beta', usage_limit_usd: '5', rate_limit: 60 })
    t.match(made, { status: 201, etag: '"1"',
      body: { id: 'beta-dev', account: 'beta', state: 'active', usage_limit_usd: '5', spent_usd: '0' } })
    const { secret } = made.body as { readonly secret: string }
    t.match(secret, /^sk-gw-[A-Za-z0-9]{32}$/)
    t.equal(await use(secret), 402, 'no balance yet')
    t.match(await ask('POST', '/accounts/beta/credits', { amount_usd: '2.50', reference: 'invoice-1' }), { status: 201,
      body: { credited: true, balance_usd: '2.5' } })
    t.match(await ask('POST', '/accounts/beta/credits', { amount_usd: '2.50', reference: 'invoice-1' }), { status: 200,
      body: { credited: false, balance_usd: '2.5' } }, 'once per reference')
    t.equal(await use(secret), 200)

    const seen = await ask('GET', '/keys/beta-dev')
    const spent = seen.body['spent_usd'] as string
    t.match(spent, /^0\.0+[1-9]\d*$/)
    t.notMatch(JSON.stringify(seen.body), secret, 'shown once')
    const entries = (await ask('GET', '/ledger?account=beta')).body['data'] as Record<string, string>[]
    t.match(entries, [{ kind: 'credit', amount_usd: '2.5', reference: 'credit:beta:invoice-1' }, { kind: 'settle',
      key: 'beta-dev', amount_usd: `-${spent}`, model: 'm1' }])
    t.match((await ask('GET', '/usage?account=beta')).body, {
      data: [{ key: 'beta-dev', spent_usd: spent, usage_limit_usd: '5' }],
      next: null
    })

    t.match(await ask('PATCH', '/keys/beta-dev', { frozen: true }), { status: 200, etag: '"2"',
      body: { state: 'frozen' } })
    t.equal(await use(secret), 401, 'from the next request on')
    t.match(await ask('PATCH', '/keys/beta-dev', { frozen: null }), { status: 200, body: { state: 'active' } })
    t.equal(await use(secret), 200)
    t.match(await ask('PATCH', '/accounts/beta', { suspended: true }), { status: 200, body: { state: 'suspended' } })
    t.equal(await use(secret), 402)
    t.match(await ask('PATCH', '/accounts/beta', { suspended: false }), { status: 200 })

    const rotated = await ask('POST', '/keys/beta-dev/rotate', { grace: '1h' })
    const next = rotated.body['secret'] as string
    t.not(next, secret)
    t.equal(await use(next), 200)
    t.equal(await use(secret), 200, 'in its grace')
    await ask('POST', '/keys/beta-dev/rotate')
    t.equal(await use(secret), 401, 'a rotation without grace ends all before it')
    t.equal(await use(next), 401)

    const spentAll = (await ask('GET', '/keys/beta-dev')).body['spent_usd'] as string
    t.match(await ask('DELETE', '/keys/beta-dev'), { status: 200, body: { deleted: true } })
    const { data: [row, ...others] } = (await ask('GET', '/usage?account=beta')).body as {
      readonly data: readonly Record<string, unknown>[]
    }
    t.match(row, { key: 'beta-dev', account: 'beta', spent_usd: spentAll, deleted_at: /^20.*Z$/ },
      'what it has spent stays')
    t.strictSame(others, [])
    t.match(await ask('GET', '/keys/beta-dev'), { status: 404, body: { error: { code: 'not_found' } } })
    t.match(await ask('POST', '/keys', { id: 'beta-dev', account: 'beta' }), { status: 409,
      body: { error: { code: 'already_exists' } } }, 'its entries are in the ledger')
    t.match(await ask('POST', '/ledger/verify'), { status: 200, body: { ok: true, differences: [] } })

    const log = (await ask('GET', '/audit')).body['data'] as Record<string, unknown>[]
    t.strictSame(
      log.map(({ what }) => what as string),
      [
        'account.create', 'key.create', 'account.credit', 'account.credit_repeated', 'key.change', 'key.change',
        'account.change', 'account.change', 'key.rotate', 'key.rotate', 'key.delete'
      ]
    )
    t.match(log[4], { who: /^admin-token [0-9a-f]{8}$/, id: 'beta-dev', before: { frozen: false },
      after: { frozen: true }, at: /Z$/ })
    for (const hidden of [secret, next, 'sha256']) { t.notMatch(JSON.stringify(log), hidden) }
    t.notMatch(JSON.stringify(own.logged), new RegExp(`${secret}|${next}`))
  })
}

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: money is given back and taken, once per reference and for a reason; ledger and audit log say so, and usage stays`, async (t) => {
    const { ask, use } = await admin(t, driver)
    await ask('POST', '/accounts', { id: 'beta' })
    const { secret } = (await ask('POST', '/keys', { id: 'beta-dev', account: 'beta' })).body as {
      readonly secret: string
    }
    await ask('POST', '/accounts/beta/credits', { amount_usd: '2.50', reference: 'invoice-1' })
    t.equal(await use(secret), 200)
    const { spent_usd: spent } = (await ask('GET', '/keys/beta-dev')).body as { readonly spent_usd: string }
    const refund = { amount_usd: spent, reference: 'req_1', reason: 'cut off: "é"' }
    t.match(await ask('POST', '/accounts/beta/refunds', refund), { status: 201,
      body: { account: 'beta', ...refund, refunded: true, balance_usd: '2.5' } })
    t.match(await ask('POST', '/accounts/beta/refunds', refund), { status: 200,
      body: { refunded: false, balance_usd: '2.5' } })
    const debit = { amount_usd: '2', reference: 'req_1', reason: 'a fee' }
    t.match(await ask('POST', '/accounts/beta/debits', debit), { status: 201,
      body: { ...debit, debited: true, balance_usd: '0.5' } })
    t.match(await ask('POST', '/accounts/beta/debits', debit), { status: 200,
      body: { debited: false, balance_usd: '0.5' } }, 'though there is not so much any more')
    t.match(await ask('POST', '/accounts/beta/debits', { ...debit, reference: 'd2' }), { status: 409, body: {
      error: { code: 'insufficient_balance',
        message:
          'The account beta has a balance of $0.5, of which open requests hold $0: $2 can\'t be taken. Nothing was changed.' }
    } })

    t.match((await ask('GET', '/ledger?account=beta')).body['data'], [
      { kind: 'credit' },
      { kind: 'settle', amount_usd: `-${spent}` },
      { kind: 'refund', amount_usd: spent, reference: 'refund:beta:req_1', reason: 'cut off: "é"' },
      { kind: 'debit', amount_usd: '-2', reference: 'debit:beta:req_1', reason: 'a fee' }
    ])
    t.match((await ask('GET', '/usage?account=beta')).body, { data: [{ key: 'beta-dev', spent_usd: spent }] },
      'what was charged')
    t.match(await ask('POST', '/ledger/verify'), { body: { ok: true, entries: 5 } })
    const log = (await ask('GET', '/audit')).body['data'] as Record<string, unknown>[]
    t.strictSame(
      log.map(({ what }) => what as string).slice(3),
      ['account.refund', 'account.refund_repeated', 'account.debit', 'account.debit_repeated']
    )
    t.match(log[5], { id: 'beta', reference: 'req_1', reason: 'a fee', amount_usd: '2', before: { balance_usd: '2.5' },
      after: { balance_usd: '0.5' } })
  })
}

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: a refund gives back what was paid and no more, under a request's id its charge; another amount under a reference is an error (rule refund-paid)`, async (t) => {
    const { ask, use } = await admin(t, driver)
    const secrets: string[] = []
    for (const id of ['beta', 'gamma']) {
      await ask('POST', '/accounts', { id })
      secrets.push((await ask('POST', '/keys', { id: `${id}-dev`, account: id })).body['secret'] as string)
      await ask('POST', `/accounts/${id}/credits`, { amount_usd: '5', reference: 'invoice-1' })
    }
    const refund = async (id: string, amount: string, reference: string): Promise<Answered> =>
      await ask('POST', `/accounts/${id}/refunds`, { amount_usd: amount, reference, reason: 'x' })
    const above = (said: RegExp): object => ({ status: 409, body: { error: { code: 'above_charge', message: said } } })
    t.match(await refund('beta', '0.000000001', 'ticket-1'), above(/account beta has paid \$0 in all/))
    t.strictSame([await use(secrets[0]!), await use(secrets[0]!), await use(secrets[1]!)], [200, 200, 200])
    const { data: entries } = (await ask('GET', '/ledger')).body as {
      readonly data: readonly { kind: string, account: string, reference: string, amount_usd: string }[]
    }
    const [first, second, others] = entries.filter(({ kind }) => kind === 'settle')
    t.equal(others!.account, 'gamma')
    const cost = first!.amount_usd.slice(1)
    const twice = (2 * Number(cost)).toFixed(9)

    t.match(await refund('beta', '100', others!.reference), above(/account beta was charged \$0 for the request req_/),
      'that of another account')
    t.match(await refund('beta', twice, first!.reference), above(new RegExp(`was charged \\$${cost} for the request`)),
      'though the account has paid as much')
    t.match(await refund('beta', cost, `req_${'0'.repeat(24)}`), above(/was charged \$0 for the request/), 'of nobody')
    t.match(await refund('beta', cost, first!.reference), { status: 201, body: { refunded: true } })
    t.match(await refund('beta', twice, 'ticket-1'), above(new RegExp(`has paid \\$${cost} in all`)),
      'what was given back counts')
    t.match(await refund('beta', cost, second!.reference), { status: 201, body: { balance_usd: '5' } })
    t.match(await refund('beta', cost, 'ticket-1'), above(/has paid \$0 in all/))
    await ask('POST', '/accounts/beta/debits', { amount_usd: '2', reference: 'fee', reason: 'x' })
    t.match(await refund('beta', '2', 'ticket-1'), { status: 201, body: { balance_usd: '5' } }, 'a debit is paid too')

    t.match(await refund('beta', '2', 'ticket-1'), { status: 200, body: { refunded: false } }, 'told again')
    const twoAmounts = (said: RegExp): object => ({ status: 409, body: { error: { code: 'already_exists', message: said } } })
    t.match(await refund('beta', '1', 'ticket-1'), twoAmounts(/"ticket-1" was refunded before with \$2, not with \$1\./))
    t.match(await ask('POST', '/accounts/beta/credits', { amount_usd: '6', reference: 'invoice-1' }),
      twoAmounts(/"invoice-1" was credited before with \$5, not with \$6\. Choose another reference for another credit/))
    t.match(await ask('POST', '/accounts/beta/debits', { amount_usd: '3', reference: 'fee', reason: 'x' }),
      twoAmounts(/"fee" was debited before with \$2, not with \$3/))
    t.match(await ask('GET', '/accounts/beta'), { body: { balance_usd: '5' } })
    t.match(await ask('POST', '/ledger/verify'), { body: { ok: true } })
  })
}

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: a payment whose reference reads like one of another account is refused, not taken for it`, async (t) => {
    const { ask } = await admin(t, driver)
    await ask('POST', '/accounts', { id: 'a' })
    await ask('POST', '/accounts', { id: 'a:b' })
    const pay = async (id: string, reference: string): Promise<Answered> =>
      await ask('POST', `/accounts/${id}/credits`, { amount_usd: '1', reference })
    t.match(await pay('a', 'b:x'), { status: 201, body: { credited: true } })
    t.match(await pay('a', 'b:x'), { status: 200, body: { credited: false } }, 'told again')
    t.match(await pay('a:b', 'x'), { status: 409, body: { error: { code: 'already_exists',
      message: '"credit:a:b:x" stands in the ledger for another account, whose id and reference read the same ' +
        'together. Choose another reference. Nothing was changed.' } } })
    t.match(await pay('a:b', 'y'), { status: 201, body: { balance_usd: '1' } })
    t.match(await pay('a:b', 'y'), { status: 200, body: { credited: false } })
    t.match(await pay('a', 'b:y'), { status: 409 })
    t.match(await ask('GET', '/accounts/a'), { body: { balance_usd: '1' } })
  })
}

t.test('the limits of a managed key hold as those of a declared one, and change with it', async (t) => {
  const { ask, use } = await admin(t)
  const { secret } = (await ask('POST', '/keys', { id: 'k', account: 'acme', ip_whitelist: ['10.0.0.0/8'] })).body as {
    readonly secret: string
  }
  t.equal(await use(secret), 403, 'a declared account may have managed keys')
  await ask('PATCH', '/keys/k', { ip_whitelist: ['127.0.0.1'], allowed_clients: ['claude-code'] })
  t.equal(await use(secret), 403)
  await ask('PATCH', '/keys/k', { allowed_clients: ['mine/*'] })
  t.equal(await use(secret, { 'user-agent': 'mine/1' }), 200)
  await ask('PATCH', '/keys/k', { allowed_models: ['other-*'] })
  t.equal(await use(secret, { 'user-agent': 'mine/1' }), 403)
  await ask('PATCH', '/keys/k', { allowed_models: null, usage_limit_usd: '0.000001' })
  t.equal(await use(secret, { 'user-agent': 'mine/1' }), 402)
  await ask('PATCH', '/keys/k', { usage_limit_usd: null, rate_limit: 1 })
  t.equal(await use(secret, { 'user-agent': 'mine/1' }), 429, 'what was counted before counts')
})

t.test('a client that is taken out of the configuration is none of a managed key\'s any more', async (t) => {
  const own = await admin(t)
  const { ask, use, logged } = own
  const without = readFileSync(own.file, 'utf8')
  const withMine = without.replace(' key-policy,',
    ' { use: key-policy, with: { clients: [{ id: mine, match: [mine] }] } },')
  t.not(withMine, without)
  await own.rewrite(withMine)
  const { secret } = (await ask('POST', '/keys', { id: 'k', account: 'acme', allowed_clients: ['mine', 'curl'] }))
    .body as { readonly secret: string }
  t.equal(await use(secret, { 'user-agent': 'mine' }), 200)
  await own.rewrite(without)
  t.equal(await use(secret, { 'user-agent': 'mine' }), 403)
  t.equal(await use(secret, { 'user-agent': 'curl/8' }), 200, 'the others are')
  t.match(logged.filter(({ level }) => level === 40), [{ key: 'k', client: 'mine' }])
  t.match(await ask('PATCH', '/keys/k', { allowed_clients: ['mine'] }), { status: 400 })
})

t.test('expiry and grace end at their time', async (t) => {
  let time = Date.parse('2027-01-01T00:00:00Z')
  const { ask, use } = await admin(t, 'memory', { now: () => time })
  const { secret } = (await ask('POST', '/keys', { id: 'k', account: 'acme', expires_at: '2027-01-03T00:00:00Z' }))
    .body as { readonly secret: string }
  const { secret: next } = (await ask('POST', '/keys/k/rotate', { grace: '24h' })).body as { readonly secret: string }
  t.equal(await use(secret), 200)
  t.match((await ask('GET', '/keys/k')).body, { old_secret_until: '2027-01-02T00:00:00.000Z' })
  time = Date.parse('2027-01-02T00:00:00Z')
  t.equal(await use(secret), 401)
  t.equal(await use(next), 200)
  time = Date.parse('2027-01-03T00:00:00Z')
  t.equal(await use(next), 401)
  t.match((await ask('GET', '/keys/k')).body, { state: 'expired' })
  await ask('PATCH', '/keys/k', { expires_at: null })
  t.equal(await use(next), 200)
})

t.test('what is wrong is refused whole, with every mistake and what was meant', async (t) => {
  const { ask } = await admin(t)
  for (const [method, path, body, status, said] of [
    ['POST', '/keys', { account: 'acme', rate_limits: 5 }, 400,
      /unknown key "rate_limits" \(did you mean "rate_limit"\?\)/],
    ['POST', '/keys', { account: 'acme', secret: 'x' }, 400, /unknown key "secret"/],
    ['POST', '/keys', {}, 400, /"account" is missing: The account that pays/],
    ['POST', '/keys', { account: 'acm' }, 400, /there is no account "acm" \(did you mean "acme"\?\)/],
    ['POST', '/keys', { account: 'acme', usage_limit_usd: 5 }, 400, /write it as a text/],
    ['POST', '/keys', { account: 'acme', usage_limit_usd: '-5', rate_limit: 'many' }, 400,
      /must not be negative.*must be a whole number/],
    ['POST', '/keys', { account: 'acme', usage_limit_usd: '0.0000000001' }, 400, /at most 9 decimals/],
    ['POST', '/keys', { account: 'acme', ip_whitelist: ['10.1.2.3/8'] }, 400, /one host and a whole network/],
    ['POST', '/keys', { account: 'acme', allowed_clients: ['claud-code'] }, 400,
      /\/allowed_clients\/0 there is no well-known client "claud-code".*did you mean "claude-code"/],
    ['POST', '/keys', { account: 'acme', allowed_origins: ['app.example.com'] }, 400, /must be an origin/],
    ['POST', '/keys', { account: 'acme', expires_at: 'tomorrow' }, 400, /a time in UTC/],
    ['POST', '/keys', { account: 'acme', expires_at: '2027-13-01T00:00:00Z' }, 400, /no time that there is/],
    ['POST', '/keys', { account: 'acme', allowed_models: [] }, 400, /must not be empty \(leave it out to allow all\)/],
    ['POST', '/keys', '{"account":"acme","__proto__":{"frozen":true}}', 400, /unknown key "__proto__"/],
    ['POST', '/keys', '[]', 400, /must be a JSON object/],
    ['POST', '/keys', '{', 400, /not JSON/],
    ['POST', '/keys', `{"account":"${'a'.repeat(300_000)}"}`, 413, /larger than 256 KiB/],
    ['POST', '/keys', { id: 'acme-dev', account: 'acme' }, 409, /declared in gateway\.yaml.*under keys:/],
    ['PATCH', '/keys/acme-dev', { frozen: true }, 409, /declared in gateway\.yaml/],
    ['DELETE', '/keys/acme-dev', undefined, 409, /declared in gateway\.yaml/],
    ['POST', '/keys/acme-dev/rotate', undefined, 409, /declared in gateway\.yaml/],
    ['PATCH', '/accounts/acme', { suspended: true }, 409, /declared in gateway\.yaml/],
    ['POST', '/accounts', { id: 'acme' }, 409, /declared in gateway\.yaml/],
    ['POST', '/accounts', { id: 'a b' }, 400, /an id of letters/],
    ['POST', '/accounts/nobody/credits', { amount_usd: '1', reference: 'r' }, 404, /no account nobody/],
    ['POST', '/accounts/acme/credits', { amount_usd: '0', reference: 'r' }, 400, /more than 0/],
    ['POST', '/accounts/acme/credits', { amount_usd: '9999999999', reference: 'r' }, 400,
      /would make the balance more/],
    ['POST', '/accounts/acme/credits', { amount_usd: '1' }, 400, /"reference" is missing/],
    ['POST', '/accounts/nobody/refunds', { amount_usd: '1', reference: 'r', reason: 'x' }, 404, /no account nobody/],
    ['POST', '/accounts/acme/refunds', { amount_usd: '1', reference: 'r' }, 400, /"reason" is missing/],
    ['POST', '/accounts/acme/refunds', { amount_usd: '1', reference: 'r', reason: ' ' }, 400,
      /reason must be 1 to 500 characters in one line/],
    ['POST', '/accounts/acme/refunds', { amount_usd: '1', reference: 'r', reason: 'x'.repeat(501) }, 400,
      /reason must be 1 to 500/],
    ['POST', '/accounts/acme/refunds', '{"amount_usd":"1","reference":"r","reason":"half of \\ud83d"}', 400,
      /reason must be 1 to 500/],
    ['POST', '/accounts/acme/refunds', { amount_usd: '9999999999', reference: 'r', reason: 'x' }, 409,
      /has paid \$0 in all, less what was given back: at most that can be refunded/],
    ['POST', '/accounts/acme/debits', { amount_usd: '0', reference: 'r', reason: 'x' }, 400, /more than 0/],
    ['POST', '/accounts/acme/debits', { amount_usd: '-1', reference: 'r', reason: 'x' }, 400, /amount_usd/],
    ['POST', '/accounts/acme/debits', { amount_usd: '9999999', reference: 'r', reason: 'x' }, 409,
      /can't be taken\. Nothing was changed/],
    ['PATCH', '/keys/nobody', { frozen: true }, 404, /no key nobody/],
    ['GET', '/keys/nobody', undefined, 404, /no key nobody/],
    ['PUT', '/keys', {}, 405, /takes GET, POST only/],
    ['GET', '/keys?lmit=5', undefined, 400, /did you mean "limit"/],
    ['GET', '/keys?limit=0', undefined, 400, /from 1 to 1000/],
    ['GET', '/keys?limit=1&limit=2', undefined, 400, /came twice/],
    ['GET', '/ledger?after=x', undefined, 400, /the id of an entry/],
    ['GET', '/audit?after=-1', undefined, 400, /the id of a line/]
  ] as const) {
    const got = await ask(method, path, body)
    t.equal(got.status, status, `${method} ${path} ${JSON.stringify(body)?.slice(0, 80)}`)
    t.match(got.body, { error: { message: said, type: 'invalid_request_error', code: String, request_id: /^req_/ } })
  }
  t.strictSame((await ask('GET', '/audit')).body['data'], [], 'nothing was changed')
  await ask('POST', '/keys', { id: 'own', account: 'acme', rate_limit: 5 })
  for (const [change, said] of [[{ rate_limitt: null }, /did you mean "rate_limit"/], [{ account: 'other' },
    /account of a key can't be changed/], [{ id: null }, /id of a key can't be changed/], [{ rate_limit: -1 },
    /must be at least 0/]] as const) {
    t.match(await ask('PATCH', '/keys/own', change), { status: 400, body: { error: { message: said } } })
  }
  t.match((await ask('GET', '/keys/own')).body, { version: 1, rate_limit: 5 })
  for (let i = 0; i < 10; i++) { await ask('POST', '/keys/own/rotate', { grace: '1h' }) }
  t.match(await ask('POST', '/keys/own/rotate', { grace: '1h' }), { status: 400,
    body: { error: { message: /10 old secrets/ } } })
  t.equal((await ask('POST', '/keys/own/rotate')).status, 200)
  t.match((await ask('POST', '/keys', { id: 'k', account: 'acme', allowed_models: ['m2'] })).body, {
    warnings: [{ path: '/allowed_models/0', message: 'there is no model "m2"' }]
  }, 'what is only odd is told')
})

t.test('who has read another version is refused, and of two at once one is', async (t) => {
  const { ask } = await admin(t)
  const { etag } = await ask('POST', '/keys', { id: 'k', account: 'acme' })
  const both = await Promise.all(
    [1, 2].map(async (rate) => (await ask('PATCH', '/keys/k', { rate_limit: rate }, { 'if-match': etag! })).status)
  )
  t.strictSame(both.toSorted(), [200, 412])
  t.match(await ask('DELETE', '/keys/k', undefined, { 'if-match': etag! }), { status: 412,
    body: { error: { code: 'changed_meanwhile' } } })
  t.equal((await ask('PATCH', '/keys/k', { rate_limit: 3 }, { 'if-match': `"9", "2"` })).status, 200)
  t.equal((await ask('PATCH', '/keys/k', { rate_limit: 4 }, { 'if-match': '*' })).status, 200)
})

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: lists come in pages, and lose nobody`, async (t) => {
    const { ask } = await admin(t, driver)
    for (let i = 0; i < 7; i++) { await ask('POST', '/keys', { id: `k${i}`, account: 'acme' }) }
    for (let i = 0; i < 7; i++) { await ask('POST', '/accounts/acme/credits', { amount_usd: '1', reference: `r${i}` }) }
    for (const [path, name, count] of [['/keys', 'id', 8], ['/usage', 'key', 8], ['/audit', 'seq', 14], ['/ledger',
      'id', 8], ['/ledger?account=acme', 'id', 8], ['/ledger?key=k1', 'id', 0], ['/accounts', 'id', 1]] as const) {
      const seen: unknown[] = []
      let after: string | null = ''
      while (after !== null) {
        const { body } = await ask('GET',
          `${path}${path.includes('?') ? '&' : '?'}limit=3${after === '' ? '' : `&after=${after}`}`)
        seen.push(...(body['data'] as Record<string, unknown>[]).map((row) => row[name]))
        after = body['next'] as string | null
      }
      t.equal(new Set(seen).size, count, path)
      t.equal(seen.length, count, path)
    }
  })
}

t.test('strangers get nothing, and the document names every operation', async (t) => {
  const { ask, urls } = await admin(t)
  for (const path of ['/keys', '/accounts/acme', '/ledger', '/openapi.json', '/me', '/tokens']) {
    t.equal((await fetch(`${urls.admin}/admin/v1${path}`)).status, 401, path)
  }
  const wrong = await fetch(`${urls.admin}/admin/v1/keys`, { headers: { authorization: 'Bearer wrong' } })
  t.equal(wrong.status, 401)
  const { body } = await ask('GET', '/openapi.json')
  t.strictSame(body, JSON.parse(JSON.stringify(document)), 'what the answers of all tests are judged by')
  const names = Object.values(document.paths)
    .flatMap((path) => Object.values(path).map(({ operationId }) => operationId))
  t.strictSame(
    names.toSorted(),
    [
      'changeAccount', 'changeKey', 'checkConfig', 'closeAccount', 'compareConfig', 'createAccount', 'createKey',
      'createLink', 'createToken', 'creditAccount', 'debitAccount', 'deleteKey', 'explainRequest', 'followChanges',
      'getAccount', 'getBackup', 'getConfig', 'getKey', 'getMe', 'getOpenapi', 'getRequest', 'getSummary',
      'listAccounts', 'listChanges', 'listEntries', 'listKeys', 'listPrices', 'listProcesses', 'listRequests', 'listTokens',
      'listTryable', 'listUpstreams', 'listUsage', 'listUsageSeries', 'listVideos', 'refundAccount', 'reopenAccount',
      'resetCredentials', 'revokeToken',
      'rotateKey', 'tryRequest', 'verifyLedger'
    ]
  )
})

t.test('a configuration can not declare what was made here: the ledger knows it', async (t) => {
  const own = await admin(t)
  await own.ask('POST', '/accounts', { id: 'beta' })
  const { readFileSync } = await import('node:fs')
  const text = readFileSync(own.file, 'utf8')
  await own.rewrite(text.replace('accounts:\n', 'accounts:\n  - { id: beta }\n'))
  t.match((await own.ask('GET', '/config')).body['problems'], [{ path: '/accounts/0/id',
    message: /the account beta was made through the admin API/ }])
})

void t.test('a secret is told, though the store can\'t tell what was spent: it is told this once', async (t) => {
  const own = await admin(t)
  const { ask, use } = own
  const { store } = own.services
  const { keyUsage } = store
  const away = (): never => { throw new Error('the store is away') }
  t.equal((await ask('POST', '/keys', { id: 'k', account: 'acme' })).status, 201)
  Object.assign(store, { keyUsage: away })
  const made = await ask('POST', '/keys', { id: 'made', account: 'acme' })
  const rotated = await ask('POST', '/keys/k/rotate')
  t.equal((await ask('GET', '/keys/k')).status, 500, 'who only reads hears of it')
  t.equal((await ask('PATCH', '/keys/k', { rate_limit: 5 })).status, 500)
  Object.assign(store, { keyUsage })
  for (const [{ status, body }, expected] of [[made, 201], [rotated, 200]] as const) {
    t.equal(status, expected)
    t.equal(body['spent_usd'], undefined)
    t.equal(await use(body['secret'] as string), 200)
  }
})

void t.test('a body that is nested without end is refused before it is parsed; a day that there is not is no time', async (t) => {
  const { ask } = await admin(t)
  const deep = '['.repeat(100_000) + ']'.repeat(100_000)
  for (const [path, body] of [['/keys', `{"account":"acme","x":${deep}}`],
    ['/explain', `{"key":"acme-dev","body":{"tools":${deep}}}`]] as const) {
    t.match(await ask('POST', path, body), { status: 400, body: { error: { code: 'invalid_request',
      message: 'The request body is nested deeper than 64 levels. Flatten it.' } } })
  }
  for (const day of ['2027-02-31', '2027-04-31', '2027-02-29', '2027-13-01', '2027-01-00']) {
    t.match(await ask('POST', '/keys', { account: 'acme', expires_at: `${day}T00:00:00Z` }), { status: 400,
      body: { error: { message: '/expires_at is no time that there is. Nothing was changed.' } } }, day)
  }
  t.equal((await ask('POST', '/keys', { account: 'acme', expires_at: '2028-02-29T23:59:59.999Z' })).status, 201)
})
