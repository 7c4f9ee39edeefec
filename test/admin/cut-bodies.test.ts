// Large bodies with a client's request in them: the request is cut out, and read by a thread or passed on, so that the
// event loop parses no more than the rest.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { membersNamed } from '../../src/base/json-members.ts'
import { allKinds, kindsYaml } from '../support/all-kinds.ts'
import { codePoint } from '../support/code-point.ts'
import { gateway, KEY, type TestGateway } from '../support/gateway.ts'
import { upstream } from '../support/upstream.ts'

const LARGE = 64 * 1024
/** White space says nothing, and makes a body large. */
const SPACE = ' '.repeat(5 * LARGE)

t.test('N16: finds a member of the outermost object, and no other', async (t) => {
  const found = async (name: string, text: string): Promise<readonly string[]> => {
    const json = Buffer.from(text)
    return (await membersNamed(name, json)).map(({ start, end }) => json.toString('utf8', start, end))
  }
  t.strictSame(await found('b', '{"a":{"b":1},"b" : [1,{"b":2}] ,"c":"\\"b\\":"}'), [' [1,{"b":2}] '])
  t.strictSame(await found('b', '{"b":1,"\\u0062":2}'), ['1', '2'])
  t.strictSame(await found('b', '[{"b":1},"b",{"b":2}]'), [])
  t.strictSame(await found('b', `{"a":"${'x'.repeat(900_000)}","b":"${'y'.repeat(300_000)}"}`),
    [`"${'y'.repeat(300_000)}"`], 'over portions')
  const value = fc.jsonValue({ maxDepth: 3, stringUnit: codePoint })
  const objects = fc.dictionary(fc.string({ unit: codePoint }), value)
  await fc.assert(fc.asyncProperty(objects, fc.nat(), async (object, n) => {
    const names = Object.keys(object)
    const name = names[n % names.length] ?? 'b'
    const seen = await found(name, JSON.stringify(object, undefined, n % 3))
    t.strictSame(seen.map((text) => JSON.parse(text) as unknown),
      Object.hasOwn(object, name) ? [JSON.parse(JSON.stringify(object[name]))] : [])
  }))
})

/** The longest text that the event loop has parsed since. */
function watchParser (t: Test): () => number {
  const { parse } = JSON
  let longest = 0
  JSON.parse = (text: string, ...more) => {
    longest = Math.max(longest, text.length)
    return parse(text, ...more) as unknown
  }
  t.teardown(() => { JSON.parse = parse })
  return () => longest
}

async function post (gw: TestGateway, path: string, body: string): Promise<Response> {
  return await fetch(`${gw.urls.admin}/admin/v1${path}`, { method: 'POST', body,
    headers: { authorization: 'Bearer test-admin-token' } })
}

t.test('N16: a large request is explained as a small one, and the event loop does not parse it', async (t) => {
  const gw = await gateway(t, kindsYaml((await upstream(t, allKinds)).url))
  const content = [{ type: 'text', text: 'Hello' }]
  const requests: readonly (readonly [route: string, body: object])[] = [
    ['/v1/messages', { model: 'sonnet', max_tokens: 9, messages: [{ role: 'user', content }] }],
    ['/v1/chat/completions', { model: 'sonnet', messages: [{ role: 'user', content: 'Hello' }] }],
    ['/v1/responses', { model: 'sonnet', input: 'Hello' }],
    ['/v1/images/generations', { model: 'nano', prompt: 'Hello' }],
    ['/v1/videos', { model: 'clip', prompt: 'Hello' }],
    ['/v1/messages', { model: 'sonnet', messages: 'none' }],
    ['/v1/messages', { model: 'unknown', max_tokens: 9, messages: [] }]
  ]
  const longest = watchParser(t)
  for (const [route, body] of requests) {
    const ask = async (space: string): Promise<unknown> => {
      const request = JSON.stringify(body).replace('{', `{${space}`)
      const response = await post(gw, '/explain', `{"key":"acme-dev","\\u0062ody":${request},"route":"POST ${route}"}`)
      t.equal(response.status, 200)
      // A fact that is as large as its body stays in the thread.
      return JSON.parse((await response.text()).replace('"responses-own",', ''))
    }
    const [small, large] = [await ask(''), await ask(SPACE)] as [{ readonly steps: readonly unknown[] }, unknown]
    t.strictSame(large, small, route)
    t.ok(small.steps.length > 1)
  }
  t.ok(longest() < LARGE, `${longest()}`)
})

t.test('N16: what is wrong with a large body is said', async (t) => {
  const gw = await gateway(t, kindsYaml((await upstream(t, allKinds)).url))
  const key = '"key":"acme-dev"'
  for (const [body, status, message] of [
    [`{${key},"body":{${SPACE}},"body":{}}`, 400, /the key "body" twice/],
    [`{${key},"key":"acme-dev","body":{${SPACE}}}`, 400, /the key "key" twice/],
    [`{${key},"ip":"${SPACE}","body":{}}`, 413, /all but its field "body" may have 64 KiB/],
    [`{${key},"body":{${SPACE}}`, 400, /not JSON/],
    [`[${SPACE}]`, 413, /all but its field/]
  ] as const) {
    const response = await post(gw, '/explain', body)
    const { error } = await response.json() as { readonly error: { readonly message: string } }
    t.equal(response.status, status, error.message)
    t.match(error.message, message)
  }
  // Of the request itself, its client would hear it.
  for (const request of [`[${SPACE}]`, `{${SPACE}nothing}`]) {
    const response = await post(gw, '/explain', `{${key},"body":${request}}`)
    t.match(await response.json(), { allowed: false, refusal: { status: 400, code: 'bad_request' } })
  }
})

t.test('N16: a large request that is tried is passed on as it is, and the audit log has its model', async (t) => {
  const gw = await gateway(t, kindsYaml((await upstream(t, allKinds)).url))
  const longest = watchParser(t)
  const request = JSON.stringify({ model: 'sonnet', max_tokens: 9, messages: [{ role: 'user', content: 'Hello' }] })
    .replace('{', `{${SPACE}`)
  const response = await post(gw, '/try',
    JSON.stringify({ key: 'acme-dev', secret: KEY, path: '/v1/messages', body: 0 }).replace('0}', `${request}}`))
  t.match(await response.text(), /"kind":"head","status":200/)
  t.ok(longest() <= LARGE, `${longest()}`)
  const audit = await fetch(`${gw.urls.admin}/admin/v1/audit?order=newest&limit=1`,
    { headers: { authorization: 'Bearer test-admin-token' } })
  t.match(await audit.json(), { data: [{ what: 'key.try', model: 'sonnet' }] })
})
