// The document of the admin API: every operation says what it takes and gives, in keywords that every reader of JSON
// Schema knows; and the judge that holds all answers to it, in every test of the admin API, sees what does not fit.
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { object, text } from '../../src/admin/api/answers.ts'
import { openapi } from '../../src/admin/api/openapi.ts'
import type { Operation } from '../../src/admin/api/operation.ts'
import { document, judge, judgeAnswers } from '../support/admin-answers.ts'
import { gateway, yaml } from '../support/gateway.ts'

type Schema = Readonly<Record<string, unknown>>

const { schemas } = document.components
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method, operation: operation as unknown as Schema })))
const responses = operations.flatMap(({ operation }) => Object.entries(operation['responses'] as Record<string, {
  readonly content?: Readonly<Record<string, { readonly schema?: Schema }>>
  readonly $ref?: string
}>).map(([status, response]) => ({ name: String(operation['operationId']), status: Number(status), response })))

/** Every schema in a schema, with its path. */
function * within (schema: unknown, path: string): Generator<[string, Schema]> {
  if (typeof schema !== 'object' || schema === null) return
  if (Array.isArray(schema)) {
    for (const [i, one] of schema.entries()) yield * within(one, `${path}/${i}`)
    return
  }
  yield [path, schema as Schema]
  for (const [name, one] of Object.entries(schema)) if (name !== 'examples') yield * within(one, `${path}/${name}`)
}

const all = Object.entries(schemas).flatMap(([name, schema]) => [...within(schema, name)])

t.test('every operation has an id, a tag, a summary, a description, and a schema of its good answer', async (t) => {
  const ids = operations.map(({ operation }) => operation['operationId'])
  t.equal(new Set(ids).size, ids.length)
  for (const { path, method, operation } of operations) {
    for (const name of ['operationId', 'summary', 'description']) {
      t.match(operation[name], /^\S.*[^.\s]|\.$/s, `${method} ${path}: ${name}`)
    }
    t.ok((operation['summary'] as string).length <= 120, `${method} ${path}: ${String(operation['summary'])}`)
    t.equal((operation['tags'] as unknown[]).length, 1, path)
  }
  for (const { name, status, response } of responses.filter(({ status }) => status < 300)) {
    const contents = Object.values(response.content ?? {})
    t.ok(contents.length > 0 && contents.every(({ schema }) => schema !== undefined), `${name} ${status}`)
  }
  t.strictSame(ids.filter((id) => !responses.some(({ name, status }) => name === id && status < 300)), [])
})

t.test('an object of an answer has no fields but its own, unless it says which kind of value they have', async (t) => {
  const open = all.filter(([, schema]) => schema['type'] === 'object' && schema['additionalProperties'] === undefined)
  // the body of a client, in the question of explain and in what is tried
  t.strictSame(open.map(([path]) => path).toSorted(), ['Question/properties/body', 'Trial/properties/body'])
  const anything = all.filter(([, schema]) => schema['additionalProperties'] === true)
  t.strictSame(anything.map(([path]) => path.replace(/\/anyOf\/0$/, '')).toSorted(), ['Change/properties/after',
    'Change/properties/before', 'Configuration/properties/config'])
})

t.test('every field has a description, and every component is used', async (t) => {
  for (const [name, schema] of Object.entries(schemas)) {
    const { properties = {} } = schema as { readonly properties?: Readonly<Record<string, Schema>> }
    for (const [field, one] of Object.entries(properties)) {
      const said = [one, ...(one['anyOf'] as readonly Schema[] | undefined) ?? []]
      t.ok(said.some(({ description, $ref }) => description !== undefined || $ref !== undefined), `${name}.${field}`)
    }
  }
  const text = JSON.stringify(document)
  const known = Object.entries(document.components).flatMap(([kind, parts]) =>
    kind === 'securitySchemes' ? [] : Object.keys(parts).map((name) => `#/components/${kind}/${name}`))
  t.ok(known.length > 30)
  t.strictSame(known.filter((ref) => !text.includes(`"${ref}"`)), [])
})

t.test('only keywords that every reader of JSON Schema knows; examples fit', async (t) => {
  t.notMatch(JSON.stringify(document), /"(?:usd|duration|hint|expected)":(?!\{)|"secret":(?:true|false)/)
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  let judged = 0
  for (const [path, { examples, ...schema }] of all) {
    if (!Array.isArray(examples)) continue
    const fits = ajv.compile({ ...schema, components: document.components })
    for (const example of examples as readonly unknown[]) {
      judged++
      t.ok(fits(example), `${path}: ${JSON.stringify(example)}: ${ajv.errorsText(fits.errors)}`)
    }
  }
  t.ok(judged > 20)
  const { NewKey, KeyChange } = schemas as Readonly<Record<string, { readonly properties: Schema }>>
  t.match(NewKey!.properties, { usage_limit_usd: { type: 'string', pattern: String },
    rate_limit: { type: 'integer', minimum: 0 }, allowed_models: { type: 'array' } })
  t.equal(NewKey!.properties['secret'], undefined)
  t.match(KeyChange!.properties['rate_limit'], { anyOf: [{ type: 'integer' }, { type: 'null' }] })
})

t.test('what does not fit the document is seen: a field too many, one too few, another type, status, header', async (t) => {
  const row = { id: 'acme', name: 'Acme', allow_fallback: true, suspended: false, tags: [], declared: true, state: 'active',
    balance_usd: '1', held_usd: '0', available_usd: '1', open_holds: 0 }
  const { held_usd: _held, ...tooFew } = row
  const headers = { 'x-request-id': 'req_1', 'content-type': 'application/json' }
  const answer = (body: unknown, more: object = {}): string | undefined =>
    judge({ method: 'GET', path: '/admin/v1/accounts/acme', status: 200, headers, text: JSON.stringify(body), ...more })
  t.equal(answer(row), undefined)
  t.equal(answer(row, { headers: { ...headers, etag: '"1"' } }), undefined)
  t.match(answer({ ...row, secret: 'x' }), /additional properties/)
  t.match(answer(tooFew), /required property 'held_usd'/)
  t.match(answer({ ...row, balance_usd: 1 }), /must be string/)
  t.match(answer({ ...row, state: 'asleep' }), /allowed values/)
  t.match(answer(row, { status: 202 }), /getAccount does not say that its status may be 202/)
  t.match(answer(row, { headers: { ...headers, 'content-type': 'text/plain' } }), /may be text\/plain/)
  t.match(answer(row, { headers: { 'content-type': 'application/json' } }), /no request id/)
  t.match(answer(row, { headers: { ...headers, allow: 'GET' } }), /the header allow/)
  t.match(answer({ error: { message: 'x' } }, { status: 404 }), /required property/)
  t.match(answer(row, { method: 'PUT', status: 200 }), /no operation is there/)
})

t.test('two schemas of one title, and a path without a tag, are no document', async (t) => {
  const operation = (path: string, gives: Schema): Operation =>
    ({ method: 'GET', path, name: 'x', summary: 'X.', gives, answer: () => ({ status: 200, body: {} }) })
  const [one, other] = ['a', 'b'].map((name) => object('Same', 'The same.', { [name]: text('A field.') }))
  t.throws(() => openapi([operation('/keys', one!), operation('/usage', other!)], '1'),
    /two schemas have the title Same/)
  t.throws(() => openapi([operation('/nowhere', one!)], '1'), /there is no tag for \/nowhere/)
})

t.test('a gateway of a test whose answer does not fit fails the test', async (t) => {
  const running = await gateway(t, yaml(['simulator:']))
  const failed: string[] = []
  const fail = (message: string): void => { failed.push(message) }
  judgeAnswers({ fail, teardown () {} } as unknown as typeof t, running.urls.admin)
  const { store } = running.services
  const { balance } = store
  Object.assign(store, { balance: () => ({ balance: 0n, held: 0n, open_holds: '0' }) })
  const headers = { authorization: 'Bearer test-admin-token' }
  await fetch(`${running.urls.admin}/admin/v1/accounts/acme`, { headers })
  Object.assign(store, { balance })
  await fetch(`${running.urls.admin}/admin/v1/accounts/acme`, { headers })
  t.match(failed, [/^GET \/admin\/v1\/accounts\/acme: .*open_holds must be integer/])
  t.equal(failed.length, 1)
  judgeAnswers(t, running.urls.admin)
})
