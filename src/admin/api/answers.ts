// Schemas of the admin API's answers: what they are built of, and those that several operations share. Shown in the
// OpenAPI document, where each with a title is a component of that name; tests judge every answer by them. Data only.
import type { JsonSchema } from '../../config/plugin-descriptor.ts'
import { newAccount, newKey, type Properties } from './schemas.ts'

/**
 * An object without further fields.
 * @param title its name among the document's components
 * @param optional names of fields that may be absent; the others are always there
 */
export function object (
  title: string,
  description: string,
  properties: Properties,
  optional: readonly string[] = []
): JsonSchema {
  return { title, description, type: 'object', additionalProperties: false, properties,
    required: Object.keys(properties).filter((name) => !optional.includes(name)) }
}

/** One page of a list. @param row has a title */
export function page (row: JsonSchema): JsonSchema {
  return object(`${String(row['title'])}Page`, 'A page of a list.', {
    data: list('The rows.', row),
    next: orNull(text('What to send as `after` for the next page; null: this is the last.'))
  })
}

export function orNull (schema: JsonSchema): JsonSchema {
  return { anyOf: [schema, { type: 'null' }] }
}

export function text (description: string): JsonSchema {
  return { description, type: 'string' }
}

export function whole (description: string): JsonSchema {
  return { description, type: 'integer' }
}

export function number (description: string): JsonSchema {
  return { description, type: 'number' }
}

export function flag (description: string): JsonSchema {
  return { description, type: 'boolean' }
}

export function choice (description: string, values: readonly string[]): JsonSchema {
  return { description, type: 'string', enum: values }
}

export function list (description: string, items: JsonSchema): JsonSchema {
  return { description, type: 'array', items }
}

/** An amount: text, because a number may be rounded where it is read. */
export function money (description: string): JsonSchema {
  return { description, type: 'string', pattern: '^-?\\d+(?:\\.\\d{1,9})?$', examples: ['12.5'] }
}

export function instant (description: string): JsonSchema {
  return { description, type: 'string', format: 'date-time', examples: ['2027-01-31T00:00:00.000Z'] }
}

/** Names that are not known beforehand, and their values. */
export function named (description: string, value: JsonSchema): JsonSchema {
  return { description, type: 'object', additionalProperties: value }
}

/** What was sent, or is not for this API to describe: any JSON. */
export function anything (description: string): JsonSchema {
  return { description, type: 'object', additionalProperties: true }
}

export const error = object('Error', 'What is wrong, and what to do.', {
  error: object('ErrorDetail', 'The error.', {
    message: text('In words for people.'),
    type: text('The kind of error, such as invalid_request_error.'),
    code: text('What programs look at, such as not_found.'),
    param: orNull(text('JSON pointer of the first mistake, or the name of a parameter.')),
    mistakes: list('Each mistake.', object('Mistake', 'One mistake.', {
      path: text('JSON pointer into the body, or the name of a query parameter.'),
      message: text('What is wrong.'),
      hint: text('What may have been meant.')
    }, ['hint'])),
    charged_usd: money('Always 0.'),
    request_id: text('The id of this request, as in the header X-Request-Id.')
  }, ['mistakes', 'charged_usd'])
})

const leftOver = {
  spent_usd: money('What it was charged.'),
  held_usd: money('What its open requests hold.'),
  remaining_usd: orNull(money('What it may still spend; null: no limit.'))
}

function period (name: 'day' | 'month', example: string): JsonSchema {
  const title = name === 'day' ? 'UsageOfDay' : 'UsageOfMonth'
  return object(title, `What a key has spent in its present ${name}.`, {
    [name]: { ...text(`The ${name}, in the key's time zone.`), examples: [example] },
    ...leftOver,
    resets_at: instant('When it ends.')
  })
}

const declaredPlace = { ...text('File and line of gateway.yaml that say it; absent: none does, or no gateway runs.'),
  examples: ['gateway.yaml:41'] }

/** A field of an answer. */
export function declaredAt (place: { readonly file: string, readonly line: number } | undefined): object {
  return place === undefined ? {} : { declared_at: `${place.file}:${place.line}` }
}

/** What a key has spent, holds, and may still spend. */
export const keyUsage: Properties = {
  ...leftOver,
  this_day: period('day', '2027-01-31'),
  this_month: period('month', '2027-01')
}

/** Settings in answers: with their defaults filled in. */
function settings (schema: JsonSchema): { readonly properties: Properties, readonly optional: readonly string[] } {
  const { properties, required } = schema as { readonly properties: Properties, readonly required: readonly string[] }
  const all = Object.entries(properties)
  return {
    properties: Object.fromEntries(all.map(([name, { default: _default, ...one }]) => [name, one])),
    optional: all.flatMap(([name, one]) => one['default'] === undefined && !required.includes(name) ? [name] : [])
  }
}

const { properties: keySettings, optional: optionalOfKey } = settings({ ...newKey,
  required: ['id', 'account', 'tags'] })
const keyFields: Properties = {
  ...keySettings,
  declared: flag('true: it stands in gateway.yaml, and is read-only here.'),
  declared_at: declaredPlace,
  state: choice('Whether it is served.', ['active', 'frozen', 'expired']),
  shown: text('Beginning and end of its secret.'),
  version: whole('Counts its changes; the ETag is the same number.'),
  created_at: instant('When it was made.'),
  old_secret_until: instant('Until when an older secret works as well.'),
  ...keyUsage
}
/** What a key of gateway.yaml, or one that is not of it, does not have. */
const OF_MANAGED = ['declared_at', 'shown', 'version', 'created_at', 'old_secret_until']

export const keyAnswer = object('Key', 'A key, what it has spent, and what it may still spend.', keyFields,
  [...optionalOfKey, ...OF_MANAGED])

const warnings = list('What is only odd.', object('Warning', 'What is hardly meant, and is done all the same.', {
  path: text('JSON pointer into the body.'),
  message: text('What is odd.'),
  hint: text('What may have been meant.')
}, ['hint']))

export const changedKey = object('ChangedKey', 'A key after a change.', { ...keyFields, warnings },
  [...optionalOfKey, ...OF_MANAGED, 'warnings'])

/** Its usage is absent where the store can't tell it: the secret is told only now. */
export const keyWithSecret = object('KeyWithSecret', 'A key with its new secret, which is told only now.', {
  ...keyFields, secret: text('What the client sends.'), warnings
}, [...optionalOfKey, ...OF_MANAGED, ...Object.keys(keyUsage), 'warnings'])

export const deletedKey = object('DeletedKey', 'A key that was ended for ever.', {
  id: text('Its id, which is never used again.'),
  deleted: flag('Always true.')
})

const { properties: accountSettings, optional: optionalOfAccount } = settings({ ...newAccount,
  required: ['id', 'name', 'tags'] })

export const accountAnswer = object('Account', 'An account and its balance.', {
  ...accountSettings,
  declared: flag('true: it stands in gateway.yaml, and is read-only here, but for its money.'),
  declared_at: declaredPlace,
  state: choice('Whether its keys are served.', ['active', 'suspended', 'closed']),
  version: whole('Counts its changes; the ETag is the same number.'),
  created_at: instant('When it was made.'),
  balance_usd: money('The sum of its entries.'),
  held_usd: money('What its open requests hold.'),
  available_usd: money('The balance less what is held.'),
  open_holds: whole('Requests and videos that hold money.')
}, [...optionalOfAccount, 'declared_at', 'version', 'created_at'])

/** @param done the field that tells whether the reference was new */
export function booked (title: string, done: string): JsonSchema {
  return object(title, 'What was booked.', {
    account: text('The account.'),
    reference: text('As it was sent.'),
    amount_usd: money('As it was sent.'),
    reason: text('As it was sent.'),
    [done]: flag('false: it was before, under the same reference, and nothing was changed.'),
    balance_usd: money('The balance after it.')
  }, ['reason'])
}

export const usageAnswer = object('Usage', 'What was used, each token in exactly one class.', {
  input: whole('Tokens that come from no cache.'),
  cache_read: whole('Tokens read from a cache.'),
  cache_write_5m: whole('Tokens written to a cache, with a life of 5 minutes or of an unknown one.'),
  cache_write_1h: whole('Tokens written to a cache, with a life of 1 hour.'),
  output: whole('Tokens.'),
  extras: named('Counted extras, such as web_search or image.', number('How many.'))
})

export const entryAnswer = object('Entry', 'An entry of the ledger.', {
  id: text('Sorts as text in the order of writing.'),
  kind: choice('What it is.', ['credit', 'refund', 'debit', 'settle', 'adjust', 'shortfall']),
  account: text('The account.'),
  key: text('The key; absent: it was booked by an operator.'),
  reference: text('The id of the request, or the kind, account and reference of a booking.'),
  amount_usd: money('The change of the balance.'),
  shortfall_usd: money('Of a shortfall: what the answer cost beyond its hold, which the operator bears.'),
  at: instant('When it was written.'),
  model: text('The model, or the route where no model was called.'),
  channel: text('The channel that answered.'),
  usage: usageAnswer,
  usage_source: choice('Who has counted.', ['provider', 'estimated']),
  price_version: text('The price that it was computed with.'),
  day: text('The calendar day that it counts for, in the key\'s time zone.'),
  reason: text('Of a booking: why.')
}, ['key', 'shortfall_usd', 'model', 'channel', 'usage', 'usage_source', 'price_version', 'day', 'reason'])

function price (description: string): JsonSchema {
  return { description, type: 'string', pattern: '^\\d+(?:\\.\\d{1,12})?$', examples: ['0.0125'] }
}

/** A price as it stands in gateway.yaml, for one time. */
export const priceAnswer: JsonSchema = { description: 'As in gateway.yaml.', anyOf: [
  { description: 'It costs nothing.', type: 'string', enum: ['free'] },
  object('TokenPrice', 'US dollars per 1M tokens.', {
    input: price('Input that comes from no cache.'),
    output: price('Output.'),
    cache_read: price('Read from a cache; absent: as input.'),
    cache_write: price('Written to a cache; absent: as input.'),
    cache_write_5m: price('Written with a life of 5 minutes; absent: as cache_write.'),
    cache_write_1h: price('Written with a life of 1 hour; absent: as cache_write.'),
    extras: named('US dollars per use of what is counted.', { anyOf: [price('Per use.'),
      object('BoundedUse', 'A price per use, and a bound for requests without one.', {
        usd: price('Per use.'),
        most: number('Uses that a request may make which sets no limit itself.')
      }, ['most'])] })
  }, ['cache_read', 'cache_write', 'cache_write_5m', 'cache_write_1h', 'extras']),
  list('Of images and videos: the first row that fits a request.', object('PriceRow', 'A variant.', {
    when: named('Values of parameters; absent: every request.', text('A value.')),
    usd: price('Per delivered image.'),
    usd_per_second: price('Per second of video.')
  }, ['when', 'usd', 'usd_per_second']))
] }

export const problemAnswer = object('Problem', 'A mistake in the configuration, or what is odd in it.', {
  file: text('The file, as the operator wrote it.'),
  line: whole('From 1.'),
  column: whole('From 1.'),
  path: text('JSON pointer into the configuration.'),
  message: text('The problem, and what was expected.'),
  hint: text('The remedy.')
}, ['hint'])
