// The schema: complete, strict, and the same for the gateway and for editors.
import { readFileSync } from 'node:fs'
import { Ajv } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { parse } from 'yaml'
import { plugins } from '../../plugins/index.ts'
import * as adminSchemas from '../../src/admin/api/schemas.ts'
import { composeSchema, editorSchema } from '../../src/config/schema.ts'
import type { JsonSchema } from '../../src/config/plugin-descriptor.ts'
import { configReference, schemaText } from '../../src/tools/config-reference.ts'
import { plugins as fixturePlugins } from '../fixtures/config/plugins.ts'
import { textOfPage } from '../support/pages.ts'

function isSchema (value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Every schema below, with its path. */
function * walk (schema: JsonSchema, path = ''): Generator<[string, JsonSchema]> {
  yield [path, schema]
  for (const [word, value] of Object.entries(schema)) {
    if (word === 'default' || word === 'const' || word === 'enum') continue
    if (word === 'properties' && isSchema(value)) {
      for (const [name, child] of Object.entries(value)) yield * walk(child as JsonSchema, `${path}/${name}`)
    } else if (Array.isArray(value)) {
      for (const [index, child] of value.entries()) if (isSchema(child)) yield * walk(child, `${path}/${word}/${index}`)
    } else if (isSchema(value) && !['duration', 'size'].includes(word)) {
      yield * walk(value, `${path}/${word}`)
    }
  }
}

for (const [name, list] of [['shipped', plugins], ['test', fixturePlugins]] as const) {
  t.test(`every property is described, and every map refuses unknown keys (${name} plugins)`, async (t) => {
    const undescribed: string[] = []
    const open: string[] = []
    for (const [path, schema] of walk(composeSchema(list))) {
      if (!isSchema(schema.properties)) continue
      for (const [key, child] of Object.entries(
        schema.properties
      )) { if (typeof (child as JsonSchema).description !== 'string') undescribed.push(`${path}/${key}`) }
      if (!('additionalProperties' in schema) && !path.includes('/anyOf/')) open.push(path)
    }
    t.strictSame(undescribed, [])
    t.strictSame(open, [])
  })
}

const asWritten = `
include: [config/models.yaml]
server:
  api: { listen: "127.0.0.1:0", timeouts: { hold_head: 10s } }
  body_limit: "\${LIMIT:-32MB}"
  trusted_proxies: ["\${PROXY}"]
hook_timeout: 500ms
log: { level: "\${LEVEL}" }
pipeline:
  - auth
  - rate-limit: { default_rpm: "\${RPM}", window: 10s, price: 0.5 }
  - channel-router:
  - use: billing-meter
  - use: ./mine.ts
    with: { any: [option] }
upstreams: { a: { url: "\${URL}", headers: { x-api-key: "\${KEY}" } } }
models:
  - id: m
    provider: p
    created: 2025-01-01
    channels:
      premium: { price: { input: 0.30, output: "15" }, targets: [{ upstream: a, model: x, weight: "\${WEIGHT}" }] }
      cheap: { enabled: "\${CHEAP}", price: free, targets: [{ upstream: a, model: x }] }
  - { id: n, provider: p, created: 2025-01-01, channels: { premium: { price: [free, { from: 2027-01-01, input: 1, output: "2" }, { from: "\${DAY}", input: 0.5, output: 1 }], targets: [{ upstream: a, model: x }] } } }
aliases: [{ id: latest, model: m }, { id: best, model: [{ model: m }, { from: "\${DAY}", model: n }, { from: 2027-01-01, model: m }] }]
keys:
accounts: [{ id: acme, opening_balance_usd: 25 }]
`

t.test('our own schemas are JSON Schemas, which no check of a configuration or of a body asks again', (t) => {
  const ajv = new Ajv2020({ strict: false })
  const ours = { 'gateway.yaml': composeSchema(plugins, new Map()), ...adminSchemas }
  for (const [name, schema] of Object.entries(ours)) {
    if (typeof schema === 'function') continue
    t.equal(ajv.validateSchema(schema), true, `${name}: ${ajv.errorsText()}`)
  }
  t.equal(ajv.validateSchema({ type: 'number', minimum: 'none' }), false, 'and it would be seen')
  t.end()
})

t.test('editors accept the file as it is written', async (t) => {
  const validate = new Ajv({ allErrors: true, strict: false }).compile(editorSchema(fixturePlugins))
  validate(parse(asWritten))
  t.strictSame(validate.errors, null)
})

t.test('editors refuse what the gateway refuses', async (t) => {
  const validate = new Ajv({ allErrors: true, strict: false }).compile(editorSchema(fixturePlugins))
  for (const yaml of [
    'pipelin: []',
    'pipeline: [oauth]',
    'pipeline: [rate-limit: { default_rmp: 1 }]',
    'pipeline: [rate-limit: { window: 10 }]',
    'hook_timeout: 5',
    'server: { body_limit: 10 }',
    'store: { driver: postgres }',
    'upstreams: { a: {} }',
    'models: [{ id: m }]',
    'log: { level: loud }',
    'keys: [{ id: k, account: a, secret: s, expires: 2027-01-01 }]',
    'keys: [{ id: k, account: a, secret: s, rate_limit: -1 }]',
    'keys: [{ id: k, account: a, secret: s, allowed_origins: [app.example.com] }]',
    'routes: [{ match: GET /x, price: 1 }]',
    'aliases: [{ id: a }]',
    'aliases: [{ id: a, model: [] }]',
    'aliases: [{ id: a, model: [{ from: soon, model: m }] }]',
    'routes: [{ match: GET /x, forward: a, maintenance: soon }]'
  ]) { t.equal(validate(parse(yaml)), false, yaml) }
})

t.test('editors accept the shipped files', async (t) => {
  const validate = new Ajv({ allErrors: true, strict: false }).compile(editorSchema(plugins))
  for (const name of ['gateway.yaml', 'config/models.yaml']) {
    validate(parse(readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8')))
    t.strictSame(validate.errors, null, name)
  }
})

t.test('the committed schema is the one that "npm run schema" writes', async (t) => {
  t.equal(textOfPage('config/gateway.schema.json'), schemaText(plugins), 'run "npm run goldens"')
})

t.test('the page of every name is the one that "npm run schema" writes, and lacks none', async (t) => {
  const page = textOfPage('config/README.md')
  t.equal(page, configReference(plugins), 'run "npm run goldens"')
  const names = [...walk(composeSchema(plugins))].flatMap(([, { properties }]) =>
    isSchema(properties) ? Object.keys(properties) : []
  )
  // `use` and `with` are what a plugin and its options become before they are checked
  const missing = names.filter((name) =>
    !['use', 'with'].includes(name) && !new RegExp(`^(?:## ${name}$|\\| \`[^\`]*[.{,]${name}[},.[\`])`, 'm').test(page)
  )
  t.strictSame(missing, [])
})
