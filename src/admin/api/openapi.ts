// The OpenAPI document of the admin API, made from the table of operations, the schemas that validate bodies and those
// of the answers. Data only.
import type { JsonSchema } from '../../config/plugin-descriptor.ts'
import { error as errorAnswer } from './answers.ts'
import { neededFor, type Operation, ORDERS } from './operation.ts'
import { type RefusalCode, STATUS } from './refusal.ts'
import { toPlain } from './schemas.ts'
import { FORMATS, PERIODS } from './series.ts'

/** The content type of a stream of events. */
export const EVENTS = 'text/event-stream'

type Part = Readonly<Record<string, unknown>>

const PARAMETERS: Readonly<Record<string, JsonSchema>> = {
  state: { name: 'state', in: 'query', description: 'Only those in this state.', schema: { type: 'string' } },
  account: { name: 'account', in: 'query', description: 'Only what belongs to this account.',
    schema: { type: 'string' } },
  tag: { name: 'tag', in: 'query', description: 'Only what has this tag.', schema: { type: 'string' } },
  key: { name: 'key', in: 'query', description: 'Only what belongs to this key.', schema: { type: 'string' } },
  model: { name: 'model', in: 'query', description: 'Only what is about this model.', schema: { type: 'string' } },
  code: { name: 'code', in: 'query', description: 'Only requests that ended with this code; "ok": well.',
    schema: { type: 'string' } },
  status: { name: 'status', in: 'query', description: 'Only requests that were answered with this HTTP status.',
    schema: { type: 'integer' } },
  channel: { name: 'channel', in: 'query', description: 'Only what is of this channel.', schema: { type: 'string' } },
  reference: { name: 'reference', in: 'query', description: 'Only what is of this request, or of the bookings under ' +
    'this reference.', schema: { type: 'string' } },
  destination: { name: 'destination', in: 'query', description: 'Where the copy goes, in words for people: it stands ' +
    'in the audit log.', schema: { type: 'string', maxLength: 300 } },
  from: { name: 'from', in: 'query', description: 'An instant such as 2026-11-21T05:00:00Z, or the beginning of a ' +
    'day such as 2026-11-21.', schema: { type: 'string' } },
  to: { name: 'to', in: 'query', description: 'Until before this: as `from`.', schema: { type: 'string' } },
  order: { name: 'order', in: 'query', description: 'What comes first; `asc` is `oldest`, and `desc` is `newest`.',
    schema: { type: 'string', enum: ORDERS, default: 'oldest' } },
  by: { name: 'by', in: 'query', description: 'The length of a period. Hours are kept for 7 days.',
    schema: { type: 'string', enum: PERIODS, default: 'day' } },
  group: { name: 'group', in: 'query', description: 'By what periods are divided: names of account, key, model and ' +
    'channel, with commas.', schema: { type: 'string' } },
  time_zone: { name: 'time_zone', in: 'query', description: 'Of days and months. Zones other than UTC are for the ' +
    'last 7 days, and made of hours of UTC: an hour belongs to the day in which it begins.',
  schema: { type: 'string', default: 'UTC' } },
  format: { name: 'format', in: 'query', description: 'A table for spreadsheets, or JSON.',
    schema: { type: 'string', enum: FORMATS, default: 'json' } },
  after: { name: 'after', in: 'query', description: '`next` of the page before.', schema: { type: 'string' } },
  limit: { name: 'limit', in: 'query', description: 'Rows at most.',
    schema: { type: 'integer', minimum: 1, maximum: 1000, default: 100 } }
}
const ID = { name: 'id', in: 'path', required: true, description: 'As it is listed.', schema: { type: 'string' } }
const IF_MATCH = { name: 'If-Match', in: 'header',
  description: 'The ETag of what was read: refused with 412 if it was changed since.', schema: { type: 'string' } }

const HEADERS = {
  RequestId: { description: 'The id of this request, which the log of the gateway knows.', required: true,
    schema: { type: 'string' } },
  ETag: { description: 'The version, for If-Match; absent: it stands in gateway.yaml.', schema: { type: 'string' } },
  RetryAfter: { description: 'Seconds after which it may be tried again.', schema: { type: 'integer' } },
  Authenticate: { description: 'Bearer.', schema: { type: 'string' } }
}

/** Errors by status: the name among the components, what it means, and the headers beside those of every answer. */
const ERRORS: Readonly<Record<number, {
  readonly name: string
  readonly description: string
  readonly headers?: Readonly<Record<string, keyof typeof HEADERS>>
}>> = {
  400: { name: 'Invalid', description: 'A parameter or the body is wrong; nothing was changed.' },
  401: { name: 'Unauthorized', description: 'The token is missing, wrong, expired or revoked.',
    headers: { 'WWW-Authenticate': 'Authenticate' } },
  403: { name: 'Forbidden', description: 'The role of the token is not enough; nothing was changed.' },
  404: { name: 'NotFound', description: 'There is none of this id.' },
  409: { name: 'Conflict', description: 'What there is does not allow it; nothing was changed.' },
  412: { name: 'ChangedMeanwhile', description: 'It was changed since it was read; nothing was changed.' },
  413: { name: 'TooLarge', description: 'The body is too large.' },
  429: { name: 'TooMany', description: 'Too many of these run at a time; nothing was done.',
    headers: { 'Retry-After': 'RetryAfter' } },
  500: { name: 'Failed', description: 'The gateway failed; its log has the reason under the request id.' },
  503: { name: 'Unavailable', description: 'The store does not answer; whether a change was made is not known.',
    headers: { 'Retry-After': 'RetryAfter' } }
}

/** Tags by the first step of their paths. */
const TAGS: Readonly<Record<string, readonly [name: string, description: string]>> = {
  keys: ['Keys', 'What clients prove themselves with.'],
  accounts: ['Accounts', 'Who pays, and their money.'],
  ledger: ['Books', 'What was charged and booked.'],
  usage: ['Books', 'What was charged and booked.'],
  audit: ['Audit', 'Who changed what.'],
  explain: ['Requests', 'What happens to requests, and what happened.'],
  requests: ['Requests', 'What happens to requests, and what happened.'],
  try: ['Requests', 'What happens to requests, and what happened.'],
  videos: ['Requests', 'What happens to requests, and what happened.'],
  prices: ['Models', 'What is sold.'],
  links: ['Tokens', 'Who may use this API.'],
  tokens: ['Tokens', 'Who may use this API.'],
  me: ['Tokens', 'Who may use this API.'],
  summary: ['Gateway', 'The gateway itself.'],
  events: ['Gateway', 'The gateway itself.'],
  fleet: ['Gateway', 'The gateway itself.'],
  store: ['Gateway', 'The gateway itself.'],
  config: ['Gateway', 'The gateway itself.'],
  'openapi.json': ['Gateway', 'The gateway itself.'],
  upstreams: ['Upstreams', 'How those who answer fare.']
}

/** @throws {Error} two schemas have the same title, or a path has no tag */
export function openapi (operations: readonly Operation[], version: string): Part {
  const components = new Components()
  const paths: Record<string, Record<string, unknown>> = {}
  for (const operation of operations) {
    const path = paths[`/admin/v1${operation.path}`] ??= {}
    path[operation.method.toLowerCase()] = describe(operation, components)
  }
  const tags = new Map(operations.map((operation) => tagOf(operation)))
  return {
    openapi: '3.1.0',
    info: {
      title: 'Admin API of the model gateway',
      version,
      description: 'Accounts, keys, money and state of one gateway. Errors have one shape; an address or method that ' +
        'is not in this document is answered with 404 or 405. HEAD is taken wherever GET is.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      contact: { name: 'The operator of the gateway' }
    },
    servers: [{ url: '/', description: 'The admin listener that this document came from.' }],
    security: [{ token: [] }],
    tags: [...tags].map(([name, description]) => ({ name, description })),
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer', description: 'The admin token. Each ' +
        'operation names the least role that it takes: viewer, operator or owner.' } },
      ...components.all()
    }
  }
}

function tagOf ({ path }: Operation): readonly [name: string, description: string] {
  const tag = TAGS[path.split('/')[1]!]
  if (tag === undefined) throw new Error(`there is no tag for ${path}`)
  return tag
}

function describe (operation: Operation, components: Components): Part {
  const { path, name, summary, query = [], takes, gives, hasCsv, types, statuses = [200], isBodyOptional, isStream,
    isVersioned, takesVersion } = operation
  const parameters = [...(path.includes('{id}') ? [ID] : []), ...query.map((one) => PARAMETERS[one]),
    ...(takesVersion === true ? [IF_MATCH] : [])]
  const good = {
    description: 'Done.',
    headers: components.headers({ ...(isVersioned === true && { ETag: 'ETag' }) }),
    content: isStream === true
      ? { [EVENTS]: { schema: { type: 'string', contentMediaType: EVENTS, contentSchema: components.schema(gives) } } }
      : types !== undefined
      ? Object.fromEntries(types.map((type) => [type, { schema: gives }]))
      : { 'application/json': { schema: components.schema(gives) },
        ...(hasCsv === true && { 'text/csv': { schema: { type: 'string' } } }) }
  }
  const responses = [...statuses.map((status) => [status, good] as const),
    ...errorsOf(operation).map((status) => [status, components.response(status)] as const)]
  return {
    operationId: name,
    tags: [tagOf(operation)[0]],
    // The first sentence, as far as there are several.
    summary: summary.replace(/(?<=[.;:]) .*$/s, '').replace(/[.;:]$/, ''),
    description: summary,
    security: [{ token: [neededFor(operation)] }],
    ...(parameters.length > 0 && { parameters }),
    ...(takes !== undefined && {
      requestBody: { required: isBodyOptional !== true,
        content: { 'application/json': { schema: components.schema(takes) } } }
    }),
    responses: Object.fromEntries(responses)
  }
}

/** The statuses of the errors that an operation may answer with. */
function errorsOf (operation: Operation): readonly number[] {
  const { method, path, takesVersion, refuses = [] } = operation
  const codes: readonly RefusalCode[] = ['invalid_request', ...(path.includes('{id}') ? ['not_found' as const] : []),
    ...(method === 'GET' ? [] : ['request_too_large' as const]),
    ...(neededFor(operation) === 'viewer' ? [] : ['forbidden' as const]),
    ...(takesVersion === true ? ['changed_meanwhile' as const] : []), ...refuses]
  return [...new Set([401, STATUS.busy, 500, 503, ...codes.map((code) => STATUS[code])])].toSorted((a, b) => a - b)
}

/** What the document names once and refers to: gathered while it is written, so that nothing in it is unused. */
class Components {
  readonly #schemas = new Map<string, JsonSchema>()
  readonly #responses = new Map<string, Part>()
  readonly #headers = new Map<string, Part>()

  /** A schema in which each part with a title is a reference. */
  schema (schema: JsonSchema): JsonSchema {
    return toPlain(schema, ({ title, ...plain }) => {
      if (typeof title !== 'string') return plain
      const known = this.#schemas.get(title)
      if (known !== undefined && JSON.stringify(known) !== JSON.stringify(plain)) {
        throw new Error(`two schemas have the title ${title}`)
      }
      this.#schemas.set(title, plain)
      return { $ref: `#/components/schemas/${title}` }
    })
  }

  /** Those of every answer, and more. */
  headers (more: Readonly<Record<string, keyof typeof HEADERS>>): Part {
    return Object.fromEntries(
      Object.entries({ 'X-Request-Id': 'RequestId' as const, ...more }).map(([name, header]) => {
        this.#headers.set(header, HEADERS[header])
        return [name, { $ref: `#/components/headers/${header}` }]
      })
    )
  }

  response (status: number): Part {
    const { name, description, headers = {} } = ERRORS[status]!
    this.#responses.set(name, { description, headers: this.headers(headers),
      content: { 'application/json': { schema: this.schema(errorAnswer) } } })
    return { $ref: `#/components/responses/${name}` }
  }

  all (): Part {
    const sorted = (parts: ReadonlyMap<string, Part>): Part =>
      Object.fromEntries([...parts].toSorted(([a], [b]) => a < b ? -1 : 1))
    return { schemas: sorted(this.#schemas), responses: sorted(this.#responses), headers: sorted(this.#headers) }
  }
}
