// A client's body goes on as it came, but for what is the gateway's: however many fields it has, nobody copies it on
// the way.
import t from 'tap'
import { client, fate } from '../support/client.ts'
import { gateway, messagesRequest, yaml } from '../support/gateway.ts'
import { answer, upstream } from '../support/upstream.ts'

const aliased = 'aliases:\n  - { id: latest, model: m1 }\n'
/** As many as an object may have, with those of the request. */
const many = Object.fromEntries(
  Array.from({ length: 9990 }, (_, i) => [`field ${i} "é"`, { i, list: [i, null, 'é"\\'] }])
)

t.test('all that a body has reaches its upstream, with the model\'s name there', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const gw = await gateway(t, yaml([up.url], aliased))
  const { model: _model, ...rest } = messagesRequest
  const got = await client(t, gw).post({ ...many, ...rest, model: 'latest', temperature: 0.5, system: null }).whole()
  t.match(got, { status: 200, json: { model: 'm1' } })
  t.strictSame(up.requests[0]!.body, { ...many, ...rest, model: 'vendor-m1', temperature: 0.5 })
  t.match((await fate(gw, got.id)).line, { model: 'm1', asked: 'latest' })
})

t.test('a name that an object has by itself is a field like any other', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const gw = await gateway(t, yaml([up.url]))
  const odd = '"toString":1,"constructor":2,"__proto__":{"x":3},"7":4'
  const got = await fetch(`${gw.url}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': 'sk-gw-' + 'k'.repeat(32) },
    body: JSON.stringify(messagesRequest).replace('{', `{${odd},`)
  })
  t.equal(got.status, 200)
  const sent = JSON.parse(up.requests[0]!.bytes.toString()) as Record<string, unknown>
  t.strictSame(
    JSON.stringify(
      Object.entries(sent).filter(([name]) => !['model', 'max_tokens', 'messages'].includes(name)).toSorted()
    ),
    JSON.stringify([['7', 4], ['__proto__', { x: 3 }], ['constructor', 2], ['toString', 1]])
  )
})

const reads = `
export default {
  name: 'reads',
  create: () => ({
    perAttempt: () => ({
      onUpstreamRequest (request) {
        request.headers['x-seen'] = request.body.model + ' ' + Object.keys(request.body).length
        if (request.body.replace) request.body = { ...request.body, system: 'brief' }
      }
    })
  })
}`

t.test('a plugin sees the body as it is sent, and can put another in its place, for this attempt', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const text = yaml([up.url], aliased).replace('error-normalize]', 'error-normalize, { use: ./reads.ts }]')
  const gw = await gateway(t, text, { files: { 'reads.ts': reads } })
  t.equal((await client(t, gw).post({ ...messagesRequest, model: 'latest' }).whole()).status, 200)
  t.strictSame([up.requests[0]!.headers['x-seen'], up.requests[0]!.body], ['vendor-m1 3', { ...messagesRequest,
    model: 'vendor-m1' }])
  t.equal((await client(t, gw).post({ ...messagesRequest, replace: 1 }).whole()).status, 200)
  t.strictSame(up.requests[1]!.body, { ...messagesRequest, model: 'vendor-m1', replace: 1, system: 'brief' })
})
