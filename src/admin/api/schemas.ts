// JSON Schemas of the admin API's bodies; those of accounts and keys are gateway.yaml's. They validate bodies, and are
// shown in the OpenAPI document.
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { roles } from '../../accounts/directory.ts'
import { addKeywords } from '../../config/check/keywords.ts'
import { isMap, type Tree } from '../../config/yaml/position.ts'
import { account } from '../../config/sections/accounts.ts'
import { key } from '../../config/sections/keys.ts'
import { line } from '../../config/sections/schema.ts'
import { pointerOf, toSentences } from '../../config/check/messages.ts'
import type { JsonSchema } from '../../config/plugin-descriptor.ts'
import { type Mistake, refuseMistakes } from './refusal.ts'

export type Properties = Readonly<Record<string, JsonSchema>>

const { secret: _secret, ...keyProperties } = propertiesOf(key)
const { opening_balance_usd: _opening, closed: _closed, ...accountProperties } = propertiesOf(account)

function propertiesOf (section: object): Properties {
  return (section as { readonly properties: Properties }).properties
}

/** @param title its name among the document's components @param example a value that fits */
function body (
  title: string,
  description: string,
  properties: Properties,
  required: readonly string[],
  example: object
): JsonSchema {
  return { title, description, type: 'object', additionalProperties: false,
    properties: Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, asText(schema)])),
    required, examples: [example] }
}

/** Money is text: a number may have been rounded before it came here. */
function asText (schema: JsonSchema): JsonSchema {
  return schema.usd === undefined ? schema : { ...schema, type: 'string', hint: 'write it as a text, such as "12.50"' }
}

const expiresAt: JsonSchema = {
  description: 'From then on it is refused; absent: never.',
  type: 'string',
  pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(?:\\.\\d{1,3})?Z$',
  expected: 'a time in UTC such as 2027-01-31T00:00:00Z'
}

export const newKey = body('NewKey', 'A key; its secret is made here.', { ...keyProperties,
  id: { ...keyProperties['id'], description: 'Its name in log and ledger, for ever; absent: one is made.' },
  expires_at: expiresAt }, ['account'], { account: 'acme', usage_limit_month_usd: '50', rate_limit: 60 })
export const newAccount = body('NewAccount', 'Who pays.', accountProperties, ['id'], { id: 'acme', name: 'Acme Ltd' })
export const newToken = body('NewToken', 'A token of the admin API; its secret is made here.', {
  name: line('Of the person or program that has it: stands in the audit log.', 100),
  role: { description: 'viewer: reads; operator: changes all but money and tokens; owner: may do everything.',
    enum: roles },
  expires_at: expiresAt
}, ['name', 'role'], { name: 'Ada Lovelace', role: 'operator' })
export const keyPatch = patch('KeyChange', 'What changes of a key; null: back to the standard.', newKey,
  ['id', 'account'], { frozen: true, usage_limit_usd: null })
export const accountPatch = patch('AccountChange', 'What changes of an account; null: back to the standard.',
  newAccount, ['id'], { suspended: true })
export const rotation = body('Rotation', 'The end of the secret.', {
  grace: { description: 'How long the old secret works on beside the new one.', duration: { min: '0s' }, default: '0s' }
}, [], { grace: '1h' })
const amount: JsonSchema = { description: 'How much.', usd: 9 }
const reference: JsonSchema = { type: 'string', pattern: '^[\\x21-\\x7e]{1,200}$',
  expected: '1 to 200 characters without spaces' }
const reason: JsonSchema = line('Why, in words for people: it stands in ledger and audit log.', 500)

export const credit = body('Credit', 'Money for an account.', {
  amount_usd: amount,
  reference: { description: 'Of the payment: credited once per account, ever, however often it is sent.', ...reference }
}, ['amount_usd', 'reference'], { amount_usd: '25', reference: 'invoice-17' })
export const refund = body('Refund', 'Money that an account is given back.', {
  amount_usd: amount,
  reference: {
    description: 'Of the case, or the id of the request, of which at most the charge is refunded: refunded once per ' +
      'account, ever, however often it is sent.',
    ...reference
  },
  reason
}, ['amount_usd', 'reference', 'reason'], { amount_usd: '0.42', reference: 'ticket-7', reason: 'cut off' })
export const debit = body('Debit', 'Money that is taken from an account.', {
  amount_usd: amount,
  reference: { description: 'Of the case: debited once per account, ever, however often it is sent.', ...reference },
  reason
}, ['amount_usd', 'reference', 'reason'], { amount_usd: '2', reference: 'fee-3', reason: 'a fee' })

export const question = body('Question', 'A request, as its client would send it.', {
  key: { description: 'The id of its key: the secret is not needed.', type: 'string', minLength: 1 },
  route: { description: 'Method and path.', type: 'string', pattern: '^(?:[A-Z]{1,20} )?/\\S*$',
    expected: 'a method and a path such as "POST /v1/messages"', default: 'POST /v1/messages' },
  headers: { description: 'Those that plugins look at, such as user-agent and origin.', type: 'object',
    additionalProperties: { type: 'string' }, default: {} },
  ip: { description: 'The address of its socket.', type: 'string', minLength: 1, default: '127.0.0.1' },
  body: { description: 'What it sends.', type: 'object' }
}, ['key'], {
  key: 'acme-dev',
  body: { model: 'claude-sonnet', max_tokens: 100, messages: [{ role: 'user', content: 'Hello!' }] }
})

export const trial = body('Trial', 'A request to the API of this gateway.', {
  key: { description: 'The id of the key that pays.', type: 'string', minLength: 1 },
  secret: { description: 'The secret of that key: it is kept nowhere.', type: 'string', pattern: '^[\\x21-\\x7e]{1,200}$',
    expected: 'the secret of the key, as its clients send it', secret: true },
  path: { description: 'Of the API.', type: 'string', pattern: '^/v1/[\\w/.-]{1,200}$',
    expected: 'an address of the API such as "/v1/messages"' },
  body: { description: 'What is sent.', type: 'object' }
}, ['key', 'secret', 'path', 'body'], {
  key: 'acme-dev',
  secret: 'sk-gw-00000000000000000000000000000000',
  path: '/v1/messages',
  body: { model: 'claude-sonnet', max_tokens: 100, messages: [{ role: 'user', content: 'Hello!' }] }
})

export const credentialReset = body('CredentialReset', 'Whose cooldown ends.', {
  credential: { description: 'Its name; absent: all credentials of the upstream.', type: 'string', minLength: 1 }
}, [], { credential: 'first' })

export const configText = body('ConfigText', 'A configuration.', {
  text: { description: 'What would stand in gateway.yaml.', type: 'string' }
}, ['text'], { text: 'pipeline: [auth, channel-router, billing-meter, error-normalize]\n' })

/** For the document only: the result of a change is validated by the schema of the whole. */
function patch (
  title: string,
  description: string,
  { properties }: JsonSchema,
  fixed: readonly string[],
  example: object
): JsonSchema {
  const left = Object.entries(properties as Properties)
    .filter(([name]) => !fixed.includes(name))
    .map(([name, { default: _default, ...schema }]) => [name, { anyOf: [schema, { type: 'null' }] }])
  return {
    title,
    description,
    type: 'object',
    additionalProperties: false,
    properties: Object.fromEntries(left) as Properties,
    examples: [example]
  }
}

/** Applies a change to the whole; a null removes a setting, and an unknown name stays in, to be refused. */
export function merge (
  before: Readonly<Record<string, unknown>>,
  change: Readonly<Record<string, unknown>>,
  { properties }: JsonSchema
): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries({ ...before, ...change }).filter(([name, value]) =>
      value !== null || !Object.hasOwn(properties as Properties, name)
    )
  )
}

/** Strict: `Date.parse` takes the 31st of February for the 3rd of March. */
export function isTime (text: string): boolean {
  const day = text.slice(0, 10)
  return !Number.isNaN(Date.parse(text)) && new Date(day).toISOString().startsWith(day)
}

/** Without a position: a body has no lines. */
export const nowhere: Tree = {
  at: {
    file: { name: 'body', path: 'body',
      lines: { linePos: () => ({ line: 1, col: 1 }) } as unknown as Tree['at']['file']['lines'] },
    offset: 0
  }
}

/**
 * @returns validates a value, fills in defaults, and turns durations into milliseconds; changes the value in place.
 * Compiled on demand, because most gateways are never asked. The schemas themselves are validated by a test.
 */
export function judge (schema: JsonSchema): (value: unknown) => void {
  let compiled: ValidateFunction | undefined
  return (value) => {
    const validate = compiled ??= compile(schema)
    if (validate(value)) return
    refuseMistakes(
      toSentences(validate.errors ?? [], nowhere).map((sentence): Mistake => ({
        path: pointerOf(sentence),
        message: sentence.message,
        ...(sentence.hint !== undefined && { hint: sentence.hint })
      }))
    )
  }
}

function compile (schema: JsonSchema): ValidateFunction {
  const ajv = new Ajv2020({
    validateSchema: false, allErrors: true, useDefaults: true, verbose: true, ownProperties: true,
    strict: true, strictTypes: false, strictRequired: false, validateFormats: false, code: { optimize: false }
  })
  addKeywords(ajv, () => undefined, () => {})
  return ajv.compile(schema)
}

const USD = { type: 'string', pattern: '^\\d{1,15}(\\.\\d{1,9})?$' }
const DURATION = { type: 'string', pattern: '^\\d{1,9}(\\.\\d{1,3})?(ms|s|m|h)$' }

/**
 * In keywords of standard JSON Schema.
 * @param put makes what takes the place of each schema in it, the innermost first
 */
export function toPlain (schema: JsonSchema, put: (plain: JsonSchema) => JsonSchema = (plain) => plain): JsonSchema {
  const { usd, duration, expected: _expected, hint: _hint, secret: _secret, ...rest } = schema
  const plain: Record<string, unknown> = { ...rest, ...(usd !== undefined && USD),
    ...(duration !== undefined && DURATION) }
  const deeper = (one: JsonSchema): JsonSchema => toPlain(one, put)
  if (isMap(rest.properties)) {
    plain['properties'] = Object.fromEntries(
      Object.entries(rest.properties as Properties).map(([name, value]) => [name, deeper(value)])
    )
  }
  if (Array.isArray(rest.anyOf)) plain['anyOf'] = (rest.anyOf as readonly JsonSchema[]).map(deeper)
  for (const word of ['items', 'additionalProperties', 'if', 'then',
    'else'] as const) { if (isMap(rest[word])) plain[word] = deeper(rest[word]) }
  return put(plain)
}
