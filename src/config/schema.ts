// The JSON Schema of gateway.yaml: the core's own part by hand, and each plugin's options from the plugin. The only place where
// defaults stand. A name is refused until the gateway does what it says. Every property has a description: the reference.
import type { JsonSchema, Plugin } from '../plugin.ts'

const PRICE_DECIMALS = 12                    // money/nanos.ts parsePrice
const AMOUNT_DECIMALS = 9                    // a nano-dollar

function map (description: string, properties: Record<string, JsonSchema>, more: JsonSchema = {}): JsonSchema {
  return { description, type: 'object', additionalProperties: false, properties, ...more }
}

function duration (description: string, standard: string, limits: true | { readonly min?: string, readonly max?: string } = true): JsonSchema {
  return { description, duration: limits, default: standard }
}

function size (description: string, standard: string, limits: { readonly min?: string, readonly max?: string }): JsonSchema {
  return { description, size: limits, default: standard }
}

function price (description: string): JsonSchema {
  return { description, usd: PRICE_DECIMALS }
}

function name (description: string, expected: string): JsonSchema {
  return { description, type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$', expected }
}

function listen (description: string, standard: string): JsonSchema {
  return { description, type: 'string', default: standard }
}

const server = map('Where the gateway listens, and its limits. A change needs a restart.', {
  api: map('The address that API clients use.', {
    listen: listen('"host:port"; port 0 takes a free one; IPv6 as "[::1]:8080".', '127.0.0.1:8080'),
    timeouts: map('How long a client may take.', {
      headers: duration('From the first byte of a request to the end of its head.', '10s'),
      body_idle: duration('Between two pieces of a request body.', '15s'),
      write_stall: duration('A client that takes nothing for so long has left.', '60s'),
      hold_head: duration('When nothing is committed after so long, the head of the stream is sent, then pings.', '10s'),
      ping: duration('Silence in a stream after which a ping is sent.', '15s')
    }, { default: {} })
  }, { default: {} }),
  public: map('The address of the public pages: model catalogue and links.', {
    listen: listen('"host:port"; port 0 takes a free one.', '127.0.0.1:8081')
  }, { default: {} }),
  admin: map('The address of the operator: metrics, health, admin API.', {
    listen: listen('"host:port"; port 0 takes a free one. Keep it private.', '127.0.0.1:9090'),
    token: { description: 'Bearer token of the admin API; empty: one is made in the data folder.', type: 'string', default: '', secret: true }
  }, { default: {} }),
  trusted_proxies: {
    description: 'Networks (CIDR) whose X-Forwarded-For is believed.',
    type: 'array',
    default: [],
    items: { description: 'A network such as 10.0.0.0/8.', type: 'string' }
  },
  body_limit: size('Largest request body, after decompression.', '32MB', { min: '1KB', max: '1GB' }),
  body_memory: size('All request bodies in flight; beyond it requests are refused with queue_full.', '512MB', { min: '1MB' }),
  drain_delay: duration('After SIGTERM, how long connections are still accepted while readyz already fails.', '0s', { min: '0s' }),
  drain_timeout: duration('After SIGTERM, how long running requests may take to end.', '30s', { min: '0s' })
}, { default: {} })

const store = map('Where balances, holds and the ledger live. A change needs a restart.', {
  driver: { description: 'memory: nothing outlives the process.', enum: ['memory'], default: 'memory' },
  path: { description: 'The data folder, for what the gateway generates itself.', type: 'string', minLength: 1, default: './data' }
}, { default: {} })

const upstream = map('A provider that answers requests.', {
  url: {
    description: 'Base address of its API, or "simulator:" for the built-in simulator.',
    type: 'string',
    pattern: '^(?:simulator:|https?://[^\\s?#@]+)$',
    expected: 'an http or https URL without credentials and query, or "simulator:"'
  },
  dialect: { description: 'The API that it speaks.', enum: ['messages'], default: 'messages' },
  headers: {
    description: 'Headers sent with every request to it: its credentials.',
    type: 'object',
    default: {},
    propertyNames: { pattern: '^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$', expected: 'the name of an HTTP header' },
    additionalProperties: {
      description: 'Value of the header.', type: 'string', pattern: '^[\\t\\x20-\\x7e\\x80-\\xff]*$', expected: 'a text on one line', secret: true
    },
    secret: true
  },
  timeouts: map('How long it may take.', {
    connect: duration('To accept a connection.', '3s'),
    first_byte: duration('From the request to the head of the answer.', '60s'),
    idle: duration('Between two pieces of the answer.', '60s')
  }, { default: {} })
}, { required: ['url'] })

const tokenPrice = map('US dollars per 1M tokens.', {
  input: price('Input tokens that come from no cache.'),
  output: price('Output tokens.'),
  cache_read: price('Input tokens read from a cache; absent: as input.'),
  cache_write: price('Input tokens written to a cache; absent: as input.'),
  cache_write_5m: price('Written with a life of 5 minutes; absent: as cache_write.'),
  cache_write_1h: price('Written with a life of 1 hour; absent: as cache_write.'),
  extras: { description: 'US dollars per use of something that the provider counts, such as web_search.', type: 'object', additionalProperties: price('US dollars per use.') }
}, { required: ['input', 'output'] })

/** Not anyOf: a value is converted in the one branch that fits, and there is one sentence when none does. */
function freeOr (prices: JsonSchema): JsonSchema {
  return { description: `${String(prices.description)} Or "free".`, if: { type: 'string' }, then: { const: 'free', expected: '"free" or a map of prices' }, else: { ...prices, expected: '"free" or a map of prices' }, hint: 'a price of nothing is written "price: free"' }
}

const channel = map('One way to sell the model.', {
  enabled: { description: 'false: switched off.', type: 'boolean', default: true },
  price: freeOr(tokenPrice),
  targets: {
    description: 'What answers; chosen by weight.',
    type: 'array',
    minItems: 1,
    items: map('A model of an upstream.', {
      upstream: { description: 'A name in upstreams.', type: 'string' },
      model: { description: 'Its name for the model.', type: 'string', minLength: 1 },
      weight: { description: 'Its share of the requests; 0: none.', type: 'integer', minimum: 0, maximum: 1_000_000, default: 1 }
    }, { required: ['upstream', 'model'] })
  }
}, { required: ['price', 'targets'] })

const model = map('A model that clients can ask for.', {
  id: name('What clients send as "model".', 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'),
  name: { description: 'For people; absent: the id.', type: 'string', minLength: 1 },
  provider: { description: 'Who made it.', type: 'string', minLength: 1 },
  kind: { description: 'What it gives.', enum: ['text'], default: 'text' },
  created: { description: 'Day of its availability.', type: 'string', pattern: '^\\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\\d|3[01])$', expected: 'a day such as 2025-09-29' },
  family: { description: 'Models that share limits.', type: 'string', minLength: 1 },
  context: { description: 'Tokens of input that fit.', type: 'integer', minimum: 1 },
  max_output: { description: 'Tokens of output at most.', type: 'integer', minimum: 1 },
  accepts: {
    description: 'What a request may hold.',
    type: 'array',
    minItems: 1,
    uniqueItems: true,
    default: ['text'],
    items: { description: 'A kind of content.', enum: ['text', 'image'] }
  },
  channels: map('The ways in which it is sold.', { premium: channel, cheap: channel }, { minProperties: 1 })
}, { required: ['id', 'provider', 'created', 'channels'] })

const route = map('A method and path of the API.', {
  match: { description: '"METHOD /path"; a forward route may name several methods, "GET,POST /v1/x", and end in "/*".', type: 'string' },
  serve: { description: 'The endpoint that answers, or "none" to remove the shipped route.', type: 'string' },
  forward: { description: 'The upstream that gets the bytes.', type: 'string' },
  price: freeOr(map('US dollars per request of a forward route.', { usd: price('US dollars per request.') }, { required: ['usd'] })),
  pipeline: {
    description: 'Names of the plugins of this route, in the order of the pipeline; absent: all of them.',
    type: 'array',
    items: { description: 'Name of a plugin.', type: 'string' }
  }
}, { required: ['match'] })

const account = map('Who pays.', {
  id: name('Its name in keys and ledger.', 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'),
  name: { description: 'For people; absent: the id.', type: 'string', minLength: 1 },
  opening_balance_usd: { description: 'Credited once, ever.', usd: AMOUNT_DECIMALS, default: '0' },
  allow_fallback: { description: 'Whether a failed channel may be replaced by another.', type: 'boolean', default: true }
}, { required: ['id'] })

const CHANNELS = ['premium', 'cheap']

const key = map('What a client proves itself with.', {
  id: name('Its name in log and ledger.', 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'),
  account: { description: 'The account that pays.', type: 'string' },
  secret: { description: 'What the client sends: a prefix and 32 letters or digits.', type: 'string', secret: true },
  usage_limit_usd: { description: 'What it may spend in total; absent: no limit of its own.', usd: AMOUNT_DECIMALS },
  routing_mode: { description: 'Which channel is asked first, and whether another may follow.', enum: ['premium', 'cheap', 'auto_cheap', 'max', 'auto_premium'], default: 'premium' },
  channels: {
    description: 'The channels that it may use at all.',
    type: 'array',
    minItems: 1,
    uniqueItems: true,
    default: CHANNELS,
    items: { description: 'A channel.', enum: CHANNELS }
  }
}, { required: ['id', 'account', 'secret'] })

/** Refuses unknown keys in every map that lists its properties and does not say otherwise. */
function close (schema: JsonSchema): JsonSchema {
  const closed: Record<string, unknown> = { ...schema }
  if (isSchema(schema.properties)) {
    closed.properties = Object.fromEntries(Object.entries(schema.properties).map(([key, value]) => [key, isSchema(value) ? close(value) : value]))
    if (!('additionalProperties' in schema) && !('unevaluatedProperties' in schema)) closed.additionalProperties = false
  }
  if (isSchema(schema.items)) closed.items = close(schema.items)
  if (isSchema(schema.additionalProperties)) closed.additionalProperties = close(schema.additionalProperties)
  return closed
}

function isSchema (value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The schema of a plugin's options: closed, and with an id of its own, so that its "#/..." references stay inside. */
export function optionsSchema (use: string, plugin: Plugin): JsonSchema {
  if (plugin.schema === undefined) return { description: `Options of ${plugin.name}: it takes none.`, type: 'object', properties: {}, additionalProperties: false }
  return { $id: `plugin:${encodeURIComponent(use)}`, type: 'object', description: `Options of ${plugin.name}.`, ...close(plugin.schema) }
}

function item (use: string, plugin: Plugin): JsonSchema {
  return {
    type: 'object',
    required: ['use'],
    additionalProperties: false,
    properties: { use: { description: 'Which plugin.', const: use }, with: optionsSchema(use, plugin) }
  }
}

/**
 * The schema of the whole file after normalize().
 * @param own the user's own plugins, by their absolute path
 */
export function composeSchema (plugins: readonly Plugin[], own: ReadonlyMap<string, Plugin> = new Map()): JsonSchema {
  const items = [...plugins.map((plugin) => item(plugin.name, plugin)), ...[...own].map(([path, plugin]) => item(path, plugin))]
  return withPipeline({
    description: 'What every request passes, top to bottom on the way to the upstream; the top is nearest the client.',
    type: 'array',
    // ajv looks at the one branch that "use" names: one sentence for a mistake, not one per plugin
    items: items.length === 0 ? { not: {} } : { type: 'object', required: ['use'], discriminator: { propertyName: 'use' }, oneOf: items }
  })
}

function withPipeline (pipeline: JsonSchema): JsonSchema {
  return map('Configuration of the model gateway.', {
    server,
    store,
    log: map('What is written to the log.', {
      level: { description: 'The least important level that is written.', enum: ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], default: 'info' }
    }, { default: {} }),
    hook_timeout: duration('The longest that one plugin hook may take before the request fails.', '5s', { max: '1h' }),
    pipeline,
    upstreams: {
      description: 'Providers by name.',
      type: 'object',
      default: {},
      propertyNames: { pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', expected: 'a name of letters, digits and . _ -' },
      additionalProperties: upstream
    },
    models: { description: 'What can be asked for.', type: 'array', default: [], items: model },
    routes: { description: 'Added before the shipped routes.', type: 'array', default: [], items: route },
    accounts: { description: 'Who pays; kept here instead of through the admin API.', type: 'array', default: [], items: account },
    keys: { description: 'What clients prove themselves with.', type: 'array', default: [], items: key }
  }, { required: ['pipeline'] })
}

/** A scalar may also be written as ${NAME}: the editor cannot know what it gives. */
const REPLACED: JsonSchema = { type: 'string', pattern: '\\$\\{' }

const DURATION: JsonSchema = { type: 'string', pattern: '^\\d{1,9}(\\.\\d{1,3})?(ms|s|m|h)$|\\$\\{' }
const SIZE: JsonSchema = { type: 'string', pattern: '^\\d{1,9}(B|KB|MB|GB)$|\\$\\{' }
const USD: JsonSchema = { anyOf: [{ type: 'number', minimum: 0 }, { type: 'string', pattern: '^\\d{1,15}(\\.\\d+)?$|\\$\\{' }] }

/** Keywords with which a value can be refused that a ${...} in its place should not be. */
const STRICT = ['pattern', 'enum', 'const', 'format', 'minLength', 'maxLength']

/** The same rules in terms that an editor knows, for the file as it is written. */
function forEditor (schema: JsonSchema): JsonSchema {
  const { $id: _id, expected: _expected, hint: _hint, secret: _secret, duration: isDuration, size: isSize, usd: isUsd, description, ...rest } = schema
  const about = description === undefined ? {} : { description }
  const standard = 'default' in rest ? { default: rest.default } : {}
  if (isDuration !== undefined) return { ...about, ...standard, ...DURATION }
  if (isSize !== undefined) return { ...about, ...standard, ...SIZE }
  if (isUsd !== undefined) return { ...about, ...standard, ...USD }
  const plain: Record<string, unknown> = { ...rest }
  for (const word of ['properties', '$defs', 'patternProperties'] as const) {
    if (isSchema(rest[word])) plain[word] = Object.fromEntries(Object.entries(rest[word]).map(([key, value]) => [key, isSchema(value) ? forEditor(value) : value]))
  }
  for (const word of ['items', 'additionalProperties', 'if', 'then', 'else', 'not'] as const) if (isSchema(rest[word])) plain[word] = forEditor(rest[word])
  for (const word of ['anyOf', 'oneOf', 'allOf'] as const) if (Array.isArray(rest[word])) plain[word] = rest[word].map((value: JsonSchema) => forEditor(value))
  const isScalar = ['number', 'integer', 'boolean'].includes(String(rest.type)) || (rest.type !== 'object' && rest.type !== 'array' && STRICT.some((word) => word in rest))
  if (!isScalar) return { ...about, ...plain }
  const { default: _default, ...judged } = plain
  return { ...about, ...standard, anyOf: [judged, REPLACED] }
}

/** The schema for editors: the file as it is written, the pipeline in its three spellings. */
export function editorSchema (plugins: readonly Plugin[]): JsonSchema {
  const options = new Map(plugins.map((plugin) => [plugin.name, forEditor(optionsSchema(plugin.name, plugin))]))
  const optional = (schema: JsonSchema): JsonSchema => ({ anyOf: [schema, { type: 'null' }] })
  const { properties, ...root } = withPipeline({
    description: 'What every request passes, top to bottom on the way to the upstream; the top is nearest the client.',
    type: 'array'
  }) as { readonly properties: Record<string, JsonSchema> }
  const edited: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(properties)) edited[key] = optional(forEditor(value))
  edited.pipeline = {
    description: properties.pipeline!.description,
    type: 'array',
    items: {
      anyOf: [
        { description: 'A shipped plugin with its standard options.', enum: [...options.keys()] },
        ...[...options].map(([use, schema]) => ({
          description: `${use} with options.`, type: 'object', additionalProperties: false, required: [use], properties: { [use]: optional(schema) }
        })),
        {
          description: 'A plugin of your own, or a shipped one.',
          type: 'object',
          additionalProperties: false,
          required: ['use'],
          properties: {
            use: { description: 'The path of the file, relative to this one, or the name of a shipped plugin.', type: 'string' },
            with: { description: 'Its options.', type: ['object', 'null'] }
          }
        }
      ]
    }
  }
  edited.include = {
    description: 'More files, relative to this one: their lists are joined to these, their maps are merged.',
    type: ['array', 'null'],
    items: { description: 'Path of a YAML file.', type: 'string' }
  }
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    $comment: 'Generated from the code by "npm run schema". Do not edit.',
    title: 'gateway.yaml',
    ...root,
    // what is missing here may stand in an included file
    required: [],
    properties: edited
  }
}
