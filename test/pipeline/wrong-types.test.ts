// A wrong type in the place of every documented field of every route, one after the other and several at once: a 400
// that names the field, in the format of its address, or an answer; never a 500, nobody is asked, and nothing stays
// held.
import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { dialectNames } from '../../src/config/sections/dialects.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { fieldsOf, type JsonType, ROUTES, VALUES, withValue } from '../fuzz/fields.ts'
import { CALM, gateway, KEY, type TestGateway, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'

const SHIPPED =
  'auth, key-policy, rate-limit: { default_rpm: 0, default_concurrency: 0 }, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'
const TYPES = Object.keys(VALUES) as JsonType[]
/** `String(…)` of it throws. */
const NO_TEXT = { toString: 1, valueOf: 1 }

const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, videoMs: 0, keepRequests: 1 })
t.teardown(() => simulator.close())
let asked = 0
simulator.events.on('open', ({ method }) => { if (method === 'POST') asked++ })

function configuration (pipeline: string): string {
  const upstreams = dialectNames.map((dialect) =>
    `  ${dialect}: { url: "${simulator.url}", dialect: ${dialect}, ${CALM}, headers: { x-api-key: secret, authorization: "Bearer secret" } }\n`
  ).join('')
  const model = (id: string, upstream: string, price: string, more: string): string =>
    `  - { id: ${id}, provider: acme, created: 2025-01-01, accepts: [text, image], ${more}, channels: { premium: { price: ${price}, targets: [{ upstream: ${upstream}, model: vendor }] } } }\n`
  const tokens = 'context: 200000, max_output: 4096, thinking: budget, structured_outputs: true'
  return yaml([], '', pipeline).replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${upstreams}models:\n` +
    model('text', 'messages', '{ input: 3, output: 15 }', tokens) +
    model('chat', 'chat', '{ input: 3, output: 15 }', tokens) +
    model('image', 'images', '[{ usd: 0.04 }]',
      'kind: image, parameters: { resolution: { values: [1K], default: 1K, max_pixels: { 1K: 1100000 } }, tier: { values: [lite] } }') +
    model('clip', 'videos', '[{ usd_per_second: 0.1 }]',
      'kind: video, parameters: { size: { values: [1280x720], default: 1280x720 }, seconds: { values: [4], default: 4 } }'))
}

const shipped = await gateway(t, configuration(SHIPPED), { isForgetful: true })
const unchecked = await gateway(t, configuration(SHIPPED.replace('schema-validate, ', '')), { isForgetful: true })

interface Told {
  readonly status: number
  readonly code: string
  readonly param: string | null | undefined
  readonly message: string
  /** what is wrong with how the error is written */
  readonly odd: string | undefined
}

async function post ({ url }: TestGateway, path: string, body: string | FormData): Promise<Told> {
  const headers = { 'x-api-key': KEY, ...(typeof body === 'string' && { 'content-type': 'application/json' }) }
  const response = await fetch(url + path, { method: 'POST', headers, body })
  const text = await response.text()
  const { status } = response
  if (status < 300) return { status, code: '', param: null, message: '', odd: undefined }
  const { type, error, request_id: outer } = JSON.parse(text) as { readonly type?: string, readonly request_id?: string,
    readonly error: { readonly type: string, readonly message: string, readonly code?: string,
      readonly param?: string | null, readonly request_id?: string,
      readonly details?: { readonly error_code: string } } }
  const isMessages = path.startsWith('/v1/messages')
  const id = isMessages ? outer : error.request_id
  const code = isMessages ? error.details?.error_code : error.code
  const isRight = (type === 'error') === isMessages && typeof code === 'string' && typeof error.type === 'string' &&
    id === response.headers.get('x-request-id') && error.message.endsWith(` Request ID: ${id}`)
  return { status, code: code ?? '', param: error.param, message: error.message, odd: isRight ? undefined : text }
}

/** What must never be. */
function fault ({ status, odd, message }: Told): string | undefined {
  if (odd !== undefined) return odd
  return status === 500 || status < 200 || status > 503 ? `${status}: ${message}` : undefined
}

async function isClear (t: Test, ...all: readonly TestGateway[]): Promise<void> {
  for (const gw of all) {
    await until(() => gw.server.inFlight === 0)
    const { store } = gw.services
    // A video that was accepted holds until it is over.
    for (let open = await store.openHolds(); open > 0; open = await store.openHolds()) await setTimeout(20)
    t.match(await store.balance('acme'), { held: 0n, open_holds: 0 })
    t.strictSame(gw.logged.filter(({ level }) => Number(level) >= 50), [], 'nothing failed')
  }
}

void t.test('the requests with every field are taken as they are', async (t) => {
  for (const { path, body } of ROUTES) {
    t.match(await post(shipped, path, JSON.stringify(body)), { status: 200, message: '' },
      `${path} ${JSON.stringify(body).slice(0, 60)}`)
  }
  await isClear(t, shipped)
})

for (const [i, route] of ROUTES.entries()) {
  void t.test(`${route.path} (${i}): a wrong type is a 400 that names its field, in JSON`, async (t) => {
    const before = asked
    const wrong: string[] = []
    let turn = 0
    for (const field of fieldsOf(route)) {
      for (const type of TYPES.filter((one) => one === 'null' ? field.isRequired : !field.takes.includes(one))) {
        const some = VALUES[type]
        // One of its type after the other, and always the object that has no text.
        for (const value of new Set(
          type === 'object' ? [some[turn++ % some.length], NO_TEXT] : [some[turn++ % some.length]]
        )) {
          wrong.push(
            ...refusal(field.name, `${field.path} = ${JSON.stringify(value).slice(0, 60)}`,
              await post(shipped, route.path, JSON.stringify(withValue(route.body, field.at, value))))
          )
        }
      }
    }
    t.strictSame(wrong, [])
    t.ok(turn > 8, `${turn} values`)
    t.equal(asked, before, 'nobody was asked')
    await isClear(t, shipped)
  })

  void t.test(`${route.path} (${i}): null is as good as nothing where a field is optional`, async (t) => {
    for (const { at, path } of fieldsOf(route).filter(({ isRequired }) => !isRequired)) {
      const [told, without] = await Promise.all(
        [null, undefined].map((value) => post(shipped, route.path, JSON.stringify(withValue(route.body, at, value))))
      )
      t.strictSame([told!.status, told!.param, sentence(told!)], [without!.status, without!.param, sentence(without!)],
        path)
    }
    await isClear(t, shipped)
  })
}

function sentence ({ message }: Told): string {
  return message.replace(/ Request ID: .*/, '')
}

/** What is wrong with it, if anything. @param name of the field that is */
function refusal (name: string, what: string, told: Told): string[] {
  const { status, code, message } = told
  const why = fault(told) ??
    (status !== 400
      ? 'it was taken'
      : code !== 'invalid_request' && code !== 'model_required'
        ? code
        : sentence(told).includes(name) ? undefined : `it does not name ${name}`)
  return why === undefined ? [] : [`${what}: ${status} ${message}: ${why}`]
}

/** One to three fields of a request at once, each with any value of any type. */
const anyRequest = fc.constantFrom(...ROUTES).chain((route) => {
  const fields = fieldsOf(route)
  const value = fc.constantFrom(...TYPES).chain((type) =>
    fc.oneof(fc.constantFrom(...VALUES[type]), fc.jsonValue({ maxDepth: 3 }))
  )
  return fc.tuple(fc.constant(route.path),
    fc.array(fc.tuple(fc.constantFrom(...fields), value), { minLength: 1, maxLength: 3 })
      // The innermost first: what is around it may be replaced afterwards.
      .map((changes) =>
        changes.toSorted(([a], [b]) => b.at.length - a.at.length).reduce(
          (body, [{ at }, one]) => withValue(body, at, one),
          route.body
        )
      ))
})

void t.test('any values in several places: no 500, with the shipped plugins and without the one that knows the fields', async (t) => {
  await fc.assert(fc.asyncProperty(anyRequest, async ([path, body]) => {
    for (const gw of [shipped, unchecked]) {
      const wrong = fault(await post(gw, path, JSON.stringify(body)))
      if (wrong !== undefined) {
        throw new Error(`${gw === shipped ? 'shipped' : 'unchecked'} ${path} ${JSON.stringify(body)}: ${wrong}`)
      }
    }
  }), { numRuns: Number(process.env['RUNS'] ?? 300) })
  await isClear(t, shipped, unchecked)
})

void t.test('forms: a file for a text, a text for a file, a list or an object for either: a 400 that names the field', async (t) => {
  const png = new File([Buffer.from('89504e470d0a1a0a', 'hex')], 'a.png', { type: 'image/png' })
  const before = asked
  const texts = ['model', 'prompt', 'user', 'n', 'response_format', 'stream', 'partial_images']
  for (const [path, good, names, file] of [
    ['/v1/images/edits', { model: 'image', prompt: 'a hat', image: png }, [...texts, 'resolution', 'size', 'tier'],
      'image'],
    ['/v1/videos', { model: 'clip', prompt: 'a cat', input_reference: png }, ['model', 'prompt', 'size', 'seconds',
      'stream'], 'input_reference']
  ] as const) {
    const form = (name: string, spelt: string, value: string | File): FormData => {
      const made = new FormData()
      for (const [own, is] of Object.entries(good)) if (own !== name) made.append(own, is as string | File)
      made.append(spelt, value)
      return made
    }
    const isNamed = async (name: string, spelt: string, value: string | File): Promise<void> => {
      t.strictSame(refusal(name, spelt, await post(shipped, path, form(name, spelt, value))), [],
        `${path} ${spelt}=${typeof value === 'string' ? value : 'a file'}`)
    }
    for (const name of names) {
      await isNamed(name, name, png)
      await isNamed(name, `${name}[]`, 'x')
      await isNamed(name, `${name}[toString]`, 'x')
    }
    await isNamed(file, file, 'x')
    await isNamed(file, `${file}[x]`, 'x')
    await isNamed(file, `${file}[]`, 'x')
  }
  t.equal(asked, before, 'nobody was asked')
  await isClear(t, shipped)
})
