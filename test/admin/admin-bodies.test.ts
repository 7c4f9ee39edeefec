// A generator of bodies for the admin API: a key that stands twice in one of its objects, at any depth and in any
// spelling, is refused before anything changes; every other body is judged by its schema. Never a 500.
import fc from 'fast-check'
import t from 'tap'
import { repeatedKey } from '../../src/base/repeated-key.ts'
import { codePoint } from '../support/code-point.ts'
import { gateway, yaml } from '../support/gateway.ts'

const SEEDED = process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }
const HEADERS = { authorization: 'Bearer test-admin-token', 'content-type': 'application/json' }

/** A JSON text, written key by key so that one may come twice. */
interface Written { readonly text: string, readonly repeated: boolean }

const word = fc.oneof(
  fc.constantFrom('id', 'name', 'account', 'amount_usd', 'reference', 'a"b', 'a\\', '{', ',', '😀', '__proto__', ''),
  fc.string({ unit: codePoint, maxLength: 6 })
)
const { value } = fc.letrec<{ value: Written, object: Written, list: Written }>((tie) => ({
  value: fc.oneof({ maxDepth: 3 },
    fc.oneof(word, fc.integer(), fc.boolean(), fc.constant(null))
      .map((plain) => ({ text: JSON.stringify(plain), repeated: false })), tie('object'), tie('list')),
  list: fc.array(tie('value'), { maxLength: 3 }).map((items) => ({
    text: `[${items.map(({ text }) => text).join(', ')}]`,
    repeated: items.some(({ repeated }) => repeated)
  })),
  object: fc.array(fc.tuple(word, fc.boolean(), tie('value')), { maxLength: 4 }).map((members) => ({
    text: `{ ${members.map(([key, isEscaped, { text }]) => `${isEscaped ? escaped(key) : JSON.stringify(key)} : ${text}`).join(',\n')} }`,
    repeated: members.some(([, , { repeated }]) => repeated) ||
      new Set(members.map(([key]) => key)).size < members.length
  }))
}))

/** The same key in another spelling. */
function escaped (key: string): string {
  return `"${[...Array(key.length).keys()].map((i) => `\\u${key.charCodeAt(i).toString(16).padStart(4, '0')}`).join('')}"`
}

t.test('finds it wherever it is, and nowhere else', async (t) => {
  fc.assert(fc.property(value, ({ text, repeated }) => {
    JSON.parse(text)
    return (repeatedKey(text) !== undefined) === repeated
  }), { numRuns: 5000, ...SEEDED })
  t.equal(repeatedKey('{"a":{"a":1},"b":["a","a",{"a":2}]}'), undefined)
  t.equal(repeatedKey('{"a":1,"\\u0061":2}'), 'a')
})

t.test('bodies at random: a key twice is 400 and changes nothing, and no body is a 500', async (t) => {
  const running = await gateway(t, yaml(['simulator:']))
  const before = await running.services.store.balance('acme')
  const post = async (path: string, body: string): Promise<Response> =>
    await fetch(`${running.urls.admin}/admin/v1${path}`, { method: 'POST', headers: HEADERS, body })
  const twice = await post('/accounts/acme/credits', '{"amount_usd":"1","reference":"r","amount_usd":"1000"}')
  t.equal(twice.status, 400)
  t.match(await twice.json(), {
    error: { code: 'invalid_request', message: /The body has the key "amount_usd" twice\. Send it once\./ }
  })
  await fc.assert(
    fc.asyncProperty(value, fc.constantFrom('/accounts', '/keys', '/accounts/acme/credits', '/explain', '/tokens'),
      async ({ text, repeated }, path) => {
        const response = await post(path, text)
        const { error } = await response.json() as { readonly error?: { readonly message: string } }
        // Now and then one is whole: then it is done.
        if (response.status >= 500 || (repeated && response.status !== 400)) {
          throw new Error(`${response.status} for ${text}`)
        }
        if (repeated !== / twice\. Send it once\./.test(error?.message ?? '')) {
          throw new Error(`${error?.message} for ${text}`)
        }
      }),
    { numRuns: 200, ...SEEDED }
  )
  t.strictSame(await running.services.store.balance('acme'), before)
})
