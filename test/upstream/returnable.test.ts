// F8: the headers of answers on forward routes.
import fc from 'fast-check'
import t from 'tap'
import { returnable } from '../../src/upstream/transport/headers.ts'
import { gateway, KEY } from '../support/gateway.ts'
import { reaching } from '../support/transport.ts'
import { json, upstream } from '../support/upstream.ts'

const VENDOR = { origin: 'https://api.vendor.test', basePath: '/base' }

const PASSING = ['openai-processing-ms', 'openai-version', 'x-groq-region', 'x-ms-region', 'cf-ray', 'server', 'via',
  'retry-after', 'link', 'cache-control', 'etag', 'x-vendor-feature', 'x-total-tokens', 'content-language', 'date',
  'content-security-policy', 'x-content-type-options', 'x-ms-request-id', 'x-should-retry', 'deprecation']
const HELD_BACK = ['set-cookie', 'connection', 'keep-alive', 'transfer-encoding', 'upgrade', 'trailer',
  'proxy-authenticate', 'x-request-id', 'request-id', 'x-gateway-cost-usd', 'server-timing', 'alt-svc',
  'strict-transport-security', 'access-control-allow-origin', 'openai-organization', 'openai-project',
  'anthropic-organization-id', 'anthropic-workspace-id', 'x-ms-subscription-id', 'x-ms-deployment-name',
  'x-goog-user-project', 'x-ratelimit-limit-requests', 'x-ratelimit-remaining-tokens', 'ratelimit', 'ratelimit-policy',
  'anthropic-ratelimit-requests-reset', 'anthropic-priority-input-tokens-remaining', 'x-rate-limit-left',
  'x-litellm-key-spend', 'x-openrouter-credits', 'x-amz-server-side-encryption-aws-kms-key-id', 'x-api-key',
  'www-authenticate', 'x-quota-used']

t.test('F8: end-to-end headers pass, and what is the operator\'s or the gateway\'s own does not', async (t) => {
  const all = Object.fromEntries([...PASSING, ...HELD_BACK].map((name) => [name, 'a']))
  t.strictSame(Object.keys(returnable({ ...all, 'set-cookie': ['a'], connection: 'close' }, VENDOR)).toSorted(),
    PASSING.toSorted())
  t.strictSame(returnable({ 'x-hop': '1', 'x-end': '2', connection: 'close, X-Hop' }, VENDOR), { 'x-end': '2' })
})

t.test('F8: any other header passes as it is, in any company', async (t) => {
  const name = fc.stringMatching(/^x-[a-z]{1,4}[0-9]{1,3}$/)
  const value = fc.stringMatching(/^[!-~]([ !-~]{0,20}[!-~])?$/)
  const own = fc.constantFrom(...HELD_BACK.filter((one) => one !== 'set-cookie' && one !== 'connection'))
  fc.assert(fc.property(fc.dictionary(name, value, { noNullPrototype: true }), fc.array(own), (theirs, names) => {
    const headers = { ...Object.fromEntries(names.map((one) => [one, 'secret'])), ...theirs }
    t.strictSame(returnable(headers, VENDOR), theirs)
  }), { numRuns: 50 })
})

t.test('F8: links to the upstream lead to the gateway', async (t) => {
  t.strictSame(returnable({ location: '/base/v1/a', 'operation-location': 'https://api.vendor.test/base/v1/op/1',
    link: '<https://api.vendor.test/base/v1/a?p=2>; rel=next, <https://else.test/>; rel=help' }, VENDOR),
  { location: '/v1/a', 'operation-location': '/v1/op/1',
    link: '</v1/a?p=2>; rel=next, <https://else.test/>; rel=help' })
})

t.test('F8: over the wire, with any status that passes', async (t) => {
  for (const status of [200, 404, 409]) {
    const up = await upstream(t, json({ ok: true }, status, { 'openai-processing-ms': '7', 'openai-organization': 'org-1',
      'x-vendor-feature': 'on', 'x-ratelimit-remaining-requests': '1', 'x-request-id': 'theirs' }))
    const gw = await gateway(t, reaching(up.url, 'trace: false'))
    const { headers, status: got } = await fetch(`${gw.url}/v1/files/a`, { headers: { 'x-api-key': KEY } })
    t.equal(got, status)
    t.strictSame(['openai-processing-ms', 'x-vendor-feature', 'openai-organization', 'x-ratelimit-remaining-requests']
      .map((name) => headers.get(name)), ['7', 'on', null, null])
    t.match(headers.get('x-request-id'), /^req_/)
  }
})
