// What upstreams say when they fail: one look at the log or at the admin API tells an operator, and nobody else hears
// of it.
import fc from 'fast-check'
import t from 'tap'
import { saidIn } from '../../src/core/failed-attempt.ts'
import { clientStyles, styles } from '../support/client-styles.ts'
import { client, fate } from '../support/client.ts'
import { CALM, gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { abyss, answer, cut, errorEvent, errorReply, json, messageStart, raw, refusing, status, textBlock, upstream,
  type Script } from '../support/upstream.ts'

interface Shown {
  readonly id: string
  readonly targets: readonly { readonly model: string, readonly last_error: Readonly<Record<string, unknown>> | null }[]
}

async function lastErrors (
  gw: TestGateway
): Promise<Readonly<Record<string, Readonly<Record<string, unknown>> | null>>> {
  const response = await fetch(`${gw.urls.admin}/admin/v1/upstreams`, {
    headers: { authorization: 'Bearer test-admin-token' }
  })
  const { data } = await response.json() as { data: readonly Shown[] }
  return Object.fromEntries(
    data.flatMap(({ id, targets }) => targets.map((target) => [`${id} ${target.model}`, target.last_error]))
  )
}

t.test('a wrong model name at a vendor takes one look, although another target has answered', async (t) => {
  const wrong = await upstream(t, errorReply(404, 'not_found_error', 'model: vendor-m1 was retired, use vendor-m2'))
  const spare = await upstream(t, answer('from the spare'))
  const gw = await gateway(t, yaml([wrong.url, spare.url]))
  t.strictSame(await lastErrors(gw), { 'u0 vendor-m1': null, 'u1 vendor-m1': null })
  for (const [style, stream] of styles.flatMap((style) => [[style, false], [style, true]] as const)) {
    const { path, asking } = clientStyles[style]
    const got = await client(t, gw, path).post(asking({ ...messagesRequest, stream })).whole()
    t.equal(got.status, 200)
    t.match(got.text, /from the spare/)
    t.notMatch(got.text + JSON.stringify(got.headers), /retired|vendor-m/)
    const { line } = await fate(gw, got.id)
    t.match(line, { code: 'ok', upstream: 'u1', attempts: 2,
      failures: [{ upstream: 'u0', model: 'vendor-m1', cause: 'status 404',
        said: /"type":"not_found_error","message":"model: vendor-m1 was retired, use vendor-m2"/ }] })
    t.equal((line['failures'] as unknown[]).length, 1)
    t.match(await lastErrors(gw), {
      'u0 vendor-m1': { at: /^\d{4}-.*Z$/, request_id: got.id, credential: null, cause: 'status 404',
        said: /vendor-m1 was retired/ },
      'u1 vendor-m1': null
    })
  }
})

t.test('each way to fail, with what was said: alone, behind the first words, and on forward routes', async (t) => {
  const cases: Readonly<
    Record<string,
      { readonly script: Script, readonly cause: RegExp, readonly said?: RegExp, readonly stream?: boolean }>
  > = {
    'our key': {
      script: errorReply(401, 'authentication_error', 'invalid x-api-key upstream-secret-0 of sk-ant-api03-abcdef'),
      cause: /^status 401$/,
      said: /invalid x-api-key \[redacted\] of \[redacted\]/
    },
    'our bill': {
      script: errorReply(400, 'invalid_request_error', 'Your credit balance is too low, ops@vendor.example'),
      cause: /^status 400$/,
      said: /Your credit balance is too low, \[redacted\]/
    },
    'a page': {
      script: [status(502, { 'content-type': 'text/html' }), raw(
        '<!DOCTYPE html><html><head><style>p { color: red }</style><title>Bad gateway</title></head><body><p>The origin is <b>down</b>.</p></body></html>'
      )],
      cause: /^status 502$/,
      said: /^Bad gateway The origin is down \.$/
    },
    'a text': {
      script: [status(500, { 'content-type': 'text/plain' }), raw(`out of \n memory ${'of the GPU '.repeat(100)}`)],
      cause: /^status 500$/,
      said: /^out of {2,3}memory (of the GPU )+/
    },
    'no word': { script: status(503), cause: /^status 503$/ },
    'an error event': { script: errorEvent('overloaded_error', 'capacity is gone'), cause: /^error_event$/,
      said: /capacity is gone/, stream: true },
    'an error behind the first words': {
      script: [messageStart(), textBlock(0, 'Hello'), errorEvent('api_error', 'the worker died')],
      cause: /^error_event$/,
      said: /the worker died/,
      stream: true
    },
    'an error as a whole answer': { script: json({ type: 'error', error: { type: 'api_error', message: 'a teapot' } }),
      cause: /^error_event$/, said: /a teapot/ },
    'nonsense': { script: [status(200, { 'content-type': 'application/json' }), raw('{"type":')], cause: /^malformed/ },
    'a cut': { script: cut(), cause: /^reset/ }
  }
  let script: Script = []
  const up = await upstream(t, () => script)
  const gw = await gateway(t, yaml([up.url], 'routes:\n  - { match: "POST /v1/echo", forward: u0, price: free }\n'))
  for (const [name, one] of Object.entries(cases)) {
    await t.test(name, async (t) => {
      gw.heal()
      script = one.script
      const got = await client(t, gw).post({ ...messagesRequest, stream: one.stream === true }).whole()
      const { line } = await fate(gw, got.id)
      const [failure, ...more] = line['failures'] as readonly { readonly said?: string }[]
      t.match(failure, { upstream: 'u0', model: 'vendor-m1', cause: one.cause,
        ...(one.said !== undefined && { said: one.said }) })
      t.equal(more.length, 0)
      if (one.said === undefined) t.notOk('said' in failure!)
      t.ok((failure!.said ?? '').length <= 300)
      const shown = (await lastErrors(gw))['u0 vendor-m1']
      t.match(shown, { request_id: got.id, cause: one.cause, said: failure!.said ?? null })
      t.notMatch(JSON.stringify([line, shown]), /upstream-secret|sk-ant|ops@/)
      if (one.stream === true) return
      gw.heal()
      const response = await fetch(`${gw.url}/v1/echo`, { method: 'POST', headers: { 'x-api-key': KEY }, body: '{}' })
        .catch(() => undefined)
      if (response === undefined || response.status === 200) return
      t.match((await fate(gw, response.headers.get('x-request-id')!)).line, {
        failures: [{ upstream: 'u0', model: 'POST /v1/echo', cause: one.cause,
          ...(one.said !== undefined && { said: one.said }) }]
      })
      t.match((await lastErrors(gw))['u0 POST /v1/echo'], { cause: one.cause })
    })
  }
  await t.test('nobody listens there', async (t) => {
    const gw = await gateway(t, yaml([await refusing()]))
    const got = await client(t, gw).post(messagesRequest).whole()
    t.match((await fate(gw, got.id)).line, { failures: [{ upstream: 'u0', cause: /^refused: ECONNREFUSED/ }] })
  })
})

t.test('an error that can be read and not printed is named by its status, and ends nothing but its request', async (t) => {
  let script: Script = []
  const up = await upstream(t, () => script)
  const gw = await gateway(t,
    yaml([up.url], 'routes:\n  - { match: "POST /v1/echo", forward: u0, price: { usd: "0.01" } }\n').replace(
      'dialect: messages,',
      'dialect: messages, count_tokens: true,'
    ))
  const ways = { '/v1/messages': 502, '/v1/chat/completions': 502, '/v1/responses': 502,
    '/v1/messages/count_tokens': 200, '/v1/echo': 502 }
  for (const code of [403, 500]) {
    for (const [how, end] of [['whole', []], ['cut', cut()]] as const) {
      for (const [path, expected] of Object.entries(ways)) {
        gw.heal()
        script = [status(code, { 'content-type': 'application/json' }), raw(abyss), end]
        const got = await client(t, gw, path).post({ ...messagesRequest, input: 'Hello' }).whole()
        // No credential of ours may use the model, which a path of the client's own choice does not say.
        const isForbidden = code === 403 && expected === 502 && path !== '/v1/echo'
        t.equal(got.status, isForbidden ? 503 : expected, `${path}: ${code}, ${how}`)
        const { line, charged, openHolds } = await fate(gw, got.id)
        t.match(line, { failures: [{ upstream: 'u0', cause: `status ${code}` }] })
        t.strictSame([charged, openHolds], [0n, 0])
      }
    }
  }
  script = [status(200, { 'content-type': 'text/event-stream' }), raw(`event: error\ndata: ${abyss}\n\n`)]
  const got = await client(t, gw).post({ ...messagesRequest, stream: true }).whole()
  t.equal(got.status, 502)
  t.match((await fate(gw, got.id)).line, { failures: [{ upstream: 'u0', cause: 'error_event' }] })
})

t.test('each attempt of a request has its own, with its credential, and no more than twenty are kept', async (t) => {
  let asked = 0
  const up = await upstream(t, () => errorReply(500, 'api_error', `failure ${++asked}`))
  const gw = await gateway(t,
    yaml([up.url, up.url]).replaceAll('retries: { attempts: 0, max_backoff: 1ms }',
      'retries: { attempts: 10, budget: 100, backoff: 1ms, max_backoff: 1ms }')
      .replace(/headers: { x-api-key: "upstream-secret-\d" }/g,
        'credentials: [{ id: first, headers: { x-api-key: upstream-secret-a } }]'))
  const got = await client(t, gw).post(messagesRequest).whole()
  const { line } = await fate(gw, got.id)
  t.equal(line['attempts'], asked)
  t.ok(asked > 1, `${asked} attempts`)
  const failures = line['failures'] as readonly { readonly said: string, readonly credential: string }[]
  t.equal(failures.length, Math.min(20, asked))
  failures.forEach(({ said, credential }, i) => {
    t.ok(said.includes(`failure ${i + 1}"`))
    t.equal(credential, 'first')
  })
  t.ok(Object.values(await lastErrors(gw)).some((last) => String(last!['said']).includes(`failure ${asked}"`)))
})

t.test('who has no failures has no such field, and a client\'s own fault is none', async (t) => {
  const up = await upstream(t, answer('fine'))
  const gw = await gateway(t, yaml([up.url]))
  const got = await client(t, gw).post(messagesRequest).whole()
  t.notOk('failures' in (await fate(gw, got.id)).line)
  await client(t, gw).post({ ...messagesRequest, model: 'none' }).whole()
  const line = await until(() => gw.logged.find(({ code }) => code === 'model_not_found'))
  t.notOk('failures' in line)
})

t.test('whatever an upstream says, and wherever: no secret of the configuration, no key, no more than 300 characters', (t) => {
  const secrets = ['upstream-secret-0', 'a "quoted" \\secret', 'vendor.internal']
  const piece = fc.oneof(fc.string(),
    fc.constantFrom(...secrets, 'sk-proj-abcdefghijklmnop', 'Bearer abcdefghijkl', 'ops@vendor.com', 'org-abcdefghij',
      'x'.repeat(200)))
  const text = fc.array(piece, { maxLength: 30 }).map((pieces) => pieces.join(' '))
  const body = fc.oneof(text,
    fc.record({ error: fc.record({ message: text, type: fc.string(), code: fc.option(fc.integer()) }) }),
    fc.array(text), fc.record({ detail: fc.array(fc.record({ msg: text })) }))
  fc.assert(fc.property(body, (said) => {
    const shown = saidIn({ kind: 'status', status: 500, headers: {}, body: said }, secrets) ?? ''
    for (const secret of [...secrets, 'a \\"quoted\\" \\\\secret', 'sk-proj-abcdefghijklmnop', 'abcdefghijkl',
      'ops@vendor.com']) {
      if (shown.includes(secret)) throw new Error(`${secret} in ${shown}`)
    }
    return shown.length <= 300
  }), { numRuns: 2000 })
  t.equal(saidIn({ kind: 'status', status: 500, headers: {}, body: 'y '.repeat(1000) }, [])?.length, 299)
  t.equal(saidIn({ kind: 'status', status: 500, headers: {}, body: 'z'.repeat(9000) }, [])?.length, 300)
  t.equal(saidIn({ kind: 'incomplete' }, []), undefined)
  t.end()
})

t.test('a stream in the place of an image, where nothing has refused to ask for one: the upstream said nonsense', async (t) => {
  const up = await upstream(t, [messageStart(), textBlock(0, 'a stream')])
  const own = await gateway(t, yaml([up.url]).replace('models:\n', `  img: { url: "${up.url}", dialect: images, ${CALM} }
models:
  - id: pic
    provider: acme
    kind: image
    created: 2025-11-20
    channels: { premium: { price: [{ usd: 0.04 }], targets: [{ upstream: img, model: v }] } }
`))
  const got = await client(t, own, '/v1/images/generations').post({ model: 'pic', prompt: 'x', stream: true }).whole()
  t.equal(got.status, 502)
  t.match(await fate(own, got.id), { line: { failures: [{ upstream: 'img', cause: 'malformed: Error' }] }, charged: 0n,
    openHolds: 0 })
})
