// auth: who asks, by which header, and what a wrong key hears.
import t from 'tap'
import { auth } from '../../plugins/auth.ts'
import { catalogue, isGatewayError } from '../../src/errors.ts'
import { ApiKey } from '../../src/core/facts.ts'
import { account, ask, config, exchange, key, model, SECRET, services, snapshot } from '../support/exchange.ts'
import { gateway, messagesRequest, yaml } from '../support/gateway.ts'
import { answer, upstream } from '../support/upstream.ts'

type Headers = Readonly<Record<string, string | readonly string[] | undefined>>

const OTHER = 'sk-gw-' + 'Z'.repeat(32)
const WRONG = 'sk-gw-' + 'w'.repeat(32)
const keys = [key(), key({ id: 'acme-other', secret: OTHER })]
const options = { use: 'auth', with: { prefix: 'sk-gw-' } }
const on = snapshot(
  config({ keys, pipeline: [options],
    routes: [{ match: 'POST /v1/images/generations', serve: 'messages' }, { match: 'POST /v1/videos',
      serve: 'messages' }, { match: 'GET /v1/videos/*', serve: 'models' }] }),
  [auth]
)

/** The id of the key that the head is taken for, or the code of the refusal. */
async function tryHead (headers: Headers, path = '/v1/messages', method = 'POST'): Promise<string> {
  const asked = exchange(on, { headers, path, method })
  try {
    await ask(asked)
    return asked.get(ApiKey).key.id
  } catch (thrown) {
    if (!isGatewayError(thrown)) throw thrown
    return `${thrown.status} ${thrown.code} ${thrown.type}`
  }
}

const REFUSED = '401 authentication_error authentication_error'

t.test('both headers work on the main API', async (t) => {
  t.equal(await tryHead({ 'x-api-key': SECRET }), 'acme-dev')
  t.equal(await tryHead({ authorization: `Bearer ${SECRET}` }), 'acme-dev')
  t.equal(await tryHead({ 'x-api-key': OTHER }), 'acme-other')
})

t.test('x-api-key is looked at first, and a well-formed wrong one is refused whatever the bearer token is', async (t) => {
  t.equal(await tryHead({ 'x-api-key': SECRET, authorization: `Bearer ${OTHER}` }), 'acme-dev')
  t.equal(await tryHead({ 'x-api-key': WRONG, authorization: `Bearer ${SECRET}` }), REFUSED)
})

t.test('an x-api-key that is not in our format gives way to the bearer token: tools send dummies', async (t) => {
  for (const dummy of ['', ' ', 'dummy', 'sk-ant-api03-abc', 'sk-gw-short', `${SECRET}x`, SECRET.slice(0, -1) + '-',
    SECRET.toUpperCase()]) {
    t.equal(await tryHead({ 'x-api-key': dummy, authorization: `Bearer ${OTHER}` }), 'acme-other',
      JSON.stringify(dummy))
    t.equal(await tryHead({ 'x-api-key': dummy }), REFUSED, JSON.stringify(dummy))
  }
})

t.test('the scheme is read in any case and with any spacing', async (t) => {
  for (const value of [`bearer ${SECRET}`, `BEARER   ${SECRET}`, `Bearer\t${SECRET}`, `  Bearer ${SECRET}  `]) {
    t.equal(await tryHead({ authorization: value }), 'acme-dev', value)
  }
  t.equal(await tryHead({ 'x-api-key': ` ${SECRET}\t` }), 'acme-dev')
})

t.test('nothing else is a key', async (t) => {
  const bad = ['', 'Bearer', 'Bearer ', SECRET, `Basic ${SECRET}`, `Bearer${SECRET}`, `Bearer ${SECRET} x`,
    `Bearer ${SECRET},${SECRET}`, `Bearer ${WRONG}`, `Bearer "${SECRET}"`, `Bearer ${SECRET}\u0000`,
    'Bearer ' + 'é'.repeat(38)]
  for (const value of bad) { t.equal(await tryHead({ authorization: value }), REFUSED, value) }
  t.equal(await tryHead({}), REFUSED)
})

t.test('a header that came twice names no key', async (t) => {
  t.equal(await tryHead({ 'x-api-key': [SECRET, OTHER] }), REFUSED)
  t.equal(await tryHead({ 'x-api-key': `${SECRET}, ${OTHER}` }), REFUSED, 'as node joins it')
  t.equal(await tryHead({ authorization: [`Bearer ${SECRET}`, `Bearer ${OTHER}`] }), REFUSED)
  t.equal(await tryHead({ 'x-api-key': [SECRET] }), 'acme-dev', 'once, in a list')
})

t.test('whoever is refused hears what to do, and nothing about keys that exist', async (t) => {
  const told = async (headers: Headers): Promise<string> => {
    try { await ask(exchange(on, { headers })) } catch (thrown) { return (thrown as Error).message }
    return 'let in'
  }
  t.match(await told({}), /^No API key was sent\. Send it as/)
  for (const headers of [{ 'x-api-key': 'dummy' }, { 'x-api-key': '' }, { authorization: 'Bearer sk-ant-api03-abc' }, {
    authorization: `Basic ${SECRET}`
  }]) {
    t.match(await told(headers), /^What was sent is not an API key of this gateway: those are "sk-gw-" and 32/,
      JSON.stringify(headers))
  }
  t.match(await told({ authorization: [`Bearer ${SECRET}`, `Bearer ${OTHER}`] }), /^More than one API key/)
  t.equal(await told({ 'x-api-key': WRONG }), catalogue.authentication_error.message)
})

t.test('a header of any size is answered in no time that depends on its square', async (t) => {
  for (const value of [' '.repeat(65_536), 'Bearer ' + ' '.repeat(65_536), 'Bearer ' + 'a'.repeat(65_536),
    'bearer \t'.repeat(8192), SECRET.repeat(1700)]) {
    t.equal(await tryHead({ authorization: value, 'x-api-key': value }), REFUSED)
  }
})

t.test('on image and video addresses the code is unauthorized and the type stays', async (t) => {
  const media = '401 unauthorized authentication_error'
  t.equal(await tryHead({}, '/v1/images/generations'), media)
  t.equal(await tryHead({ authorization: `Bearer ${WRONG}` }, '/v1/videos'), media)
  t.equal(await tryHead({}, '/v1/videos/video_1', 'GET'), media)
  t.equal(await tryHead({}, '/v1/models', 'GET'), REFUSED)
})

t.test('what the plugins get to know of the key is not its secret', async (t) => {
  const asked = exchange(on, { headers: { 'x-api-key': SECRET } })
  await ask(asked)
  const fact = asked.get(ApiKey)
  t.equal(fact.key.secret, '***')
  t.equal(fact.account.id, 'acme')
  t.notOk(JSON.stringify(fact).includes(SECRET))
  t.throws(() => { (fact.key as { secret: string }).secret = 'x' }, 'frozen')
})

t.test('the prefix is an option, and belongs to the format', async (t) => {
  const secret = 'mine_' + 'a'.repeat(32)
  const own = snapshot(config({ keys: [key({ secret })], pipeline: [{ use: 'auth', with: { prefix: 'mine_' } }] }), [
    auth
  ])
  const asked = exchange(own, { headers: { 'x-api-key': secret } })
  await ask(asked)
  t.equal(asked.get(ApiKey).key.id, 'acme-dev')
  await t.rejects(ask(exchange(own, { headers: { 'x-api-key': SECRET } })), { code: 'authentication_error' })
})

t.test('a configuration whose keys could never work is refused, and no message holds a secret', async (t) => {
  const refuse = (more: Parameters<typeof config>[0], expected: RegExp): void => {
    let message = ''
    try { snapshot(config({ pipeline: [options], ...more }), [auth]) } catch (thrown) { message = String(thrown) }
    t.match(message, expected)
    t.notOk(message.includes(SECRET.slice(6)))
  }
  refuse({ keys: [key({ secret: 'sk-gw-too-short' })] },
    /the secret of the key acme-dev is not "sk-gw-" and 32 letters or digits/)
  refuse({ keys: [key({ secret: SECRET.replace('l', '!') })] }, /not "sk-gw-" and 32/)
  refuse({ keys: [key(), key({ id: 'twin' })] }, /the keys acme-dev and twin have the same secret/)
  refuse({ accounts: [] }, /the account acme, which does not exist/)
})

t.test('each of ten thousand keys is found, and no other', async (t) => {
  const many = Array.from({ length: 10_000 },
    (_, i) => key({ id: `key-${i}`, secret: 'sk-gw-' + String(i).padStart(32, 'k') }))
  const own = snapshot(config({ keys: many, models: [model('m', { premium: 'u/m*1' })], pipeline: [options] }), [auth],
    services())
  for (const i of [0, 1, 4999, 9999]) {
    const asked = exchange(own, { headers: { 'x-api-key': many[i]!.secret } })
    await ask(asked)
    t.equal(asked.get(ApiKey).key.id, `key-${i}`)
  }
  await t.rejects(ask(exchange(own, { headers: { 'x-api-key': 'sk-gw-' + '10000'.padStart(32, 'k') } })), {
    code: 'authentication_error'
  })
})

t.test('a frozen key is refused like an unknown one, whatever its account', async (t) => {
  const own = snapshot(config({
    accounts: [account(), account({ id: 'gone', suspended: true })],
    keys: [key({ frozen: true }), key({ id: 'both', account: 'gone', secret: OTHER, frozen: true })],
    pipeline: [options]
  }), [auth])
  for (const secret of [SECRET, OTHER]) {
    const asked = exchange(own, { headers: { 'x-api-key': secret } })
    await t.rejects(ask(asked), { code: 'authentication_error', message: catalogue.authentication_error.message })
    t.equal(asked.find(ApiKey), undefined, 'nobody learns whose it was')
  }
  t.throws(() => snapshot(config({ keys: [key({ frozen: true }), key({ id: 'twin' })], pipeline: [options] }), [auth]),
    /the same secret/, 'thawed, it would be two')
})

t.test('a suspended account is told so before anything else of its key, on every route and in both formats', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const poor = OTHER
  const own = await gateway(t, yaml([up.url], `
  - { id: held, account: held, secret: ${poor}, ip_whitelist: [10.0.0.0/8], allowed_models: [none] }
routes:
  - { match: GET /v1/files, forward: u0, price: free, pipeline: [auth] }
`, 'auth, key-policy, channel-router, billing-meter, error-normalize').replace('accounts:\n',
    'accounts:\n  - { id: held, name: Held, opening_balance_usd: 0, suspended: true }\n'))
  const headers = { 'x-api-key': poor }
  const refused = await own.messages('not even an object', { headers })
  t.equal(refused.status, 402)
  t.match(await refused.json(), { type: 'error',
    error: { type: 'billing_error', details: { error_code: 'account_frozen' }, charged_usd: '0' } })
  for (const path of ['/v1/models', '/v1/models/m1', '/v1/files']) {
    const got = await fetch(own.url + path, { headers })
    t.equal(got.status, 402, path)
    t.match(await got.json(), {
      error: { type: 'billing_error', code: 'account_frozen', message: /^The account is suspended\. / }
    }, path)
  }
  t.equal(up.requests.length, 0)
  t.match(own.logged.findLast((line) => line['status'] === 402), { key_id: 'held' }, 'the log says whose it is')
  t.equal((await own.messages(messagesRequest)).status, 200, 'the others go on')
})

t.test('freezing and suspending hold from the next request on, and so does their end', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const text = yaml([up.url])
  const own = await gateway(t, text)
  const after = async (next: string): Promise<number> => {
    await own.rewrite(next)
    return (await own.messages(messagesRequest)).status
  }
  t.equal(await after(text.replace('opening_balance_usd: 100', 'opening_balance_usd: 100, suspended: true')), 402)
  t.equal(await after(text), 200)
  t.equal(await after(text.replace('id: acme-dev,', 'id: acme-dev, frozen: true,')), 401)
  t.equal(await after(text), 200)
})
