// The JSON Schema of gateway.yaml: the core's own part by hand, and each plugin's options from the plugin. The only place where
// defaults stand. A name is refused until the gateway does what it says. Every property has a description: the reference.
import type { JsonSchema, Plugin } from '../plugin.ts'
import { FROM } from '../stages.ts'

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

function pem (description: string): JsonSchema {
  return { description: `${description} In PEM; \${file:path} reads it from a file.`, type: 'string', pattern: '-----BEGIN [A-Z ]+-----', expected: 'a text in PEM, such as ${file:tls/ca.pem}', secret: true }
}

function name (description: string, expected: string): JsonSchema {
  return { description, type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$', expected }
}

function listen (description: string, standard: string): JsonSchema {
  return { description, type: 'string', default: standard }
}

const server = map('Where the gateway listens, and its limits. A change needs a restart.', {
  workers: { description: 'Processes that share the addresses of clients, on this machine; about one per core. More than one needs "store.driver: redis".', type: 'integer', minimum: 1, maximum: 128, default: 1 },
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
    listen: listen('"host:port"; port 0 takes a free one.', '127.0.0.1:8081'),
    url: { description: 'The address under which clients reach this listener, for links to images; absent: where it listens.', type: 'string', pattern: '^https?://[^\\s?#@]+[^\\s?#@/]$', expected: 'an http or https URL without credentials, query and a slash at its end' },
    link_life: duration('How long a link to an image works.', '24h', { min: '1m' }),
    link_space: size('All images behind links; beyond it no more are made until some expire.', '10GB', { min: '1MB' })
  }, { default: {} }),
  admin: map('The address of the operator: metrics, health, admin API.', {
    listen: listen('"host:port"; port 0 takes a free one. Keep it private.', '127.0.0.1:9090'),
    token: { description: 'Bearer token of the admin API; empty: one is made in the data folder.', type: 'string', default: '', secret: true }
  }, { default: {} }),
  trusted_proxies: {
    description: 'Networks whose X-Forwarded-For is believed.',
    type: 'array',
    default: [],
    items: { description: 'An address, or a network such as 10.0.0.0/8.', type: 'string' }
  },
  body_limit: size('Largest request body, after decompression.', '32MB', { min: '1KB', max: '1GB' }),
  body_memory: size('All request bodies in flight; beyond it requests are refused with queue_full.', '512MB', { min: '1MB' }),
  body_disk: size('What waits on disk: files of forms of more than 1 MB, beyond which requests are refused with queue_full, and answers that their clients are slow to take.', '4GB', { min: '1MB' }),
  answer_memory: { description: 'All answers in flight that are read whole (JSON of more than 64 KB), until their clients have them; beyond it no new ones are asked for (service_unavailable), and those that come wait. Absent: an eighth of the heap\'s limit, at most 512MB.', size: { min: '1MB' } },
  body_rate: size('Least bytes a second of a request body that comes, counted over timeouts.body_idle; a slower one gets request_timeout, and its connection ends. 0B: none.', '512B', { min: '0B', max: '1MB' }),
  overload: map('When the process itself has too much to do: new requests are refused with service_unavailable, those that run go on.', {
    event_loop_delay: duration('How late its event loop is, three times in a row; 0s: never.', '500ms', { min: '0s', max: '1m' }),
    memory: { description: 'Percent of the memory that it may have: of the heap\'s limit, or of memory_limit; 0: never.', type: 'integer', minimum: 0, maximum: 100, default: 90 },
    memory_limit: { description: 'All that the processes of the gateway may have; absent: the limit of the container, if it has one.', size: { min: '64MB' } }
  }, { default: {} }),
  drain_delay: duration('After SIGTERM, how long connections are still accepted while readyz already fails.', '0s', { min: '0s' }),
  drain_timeout: duration('After SIGTERM, how long running requests may take to end.', '30s', { min: '0s' })
}, { default: {} })

function redisUrl (description: string): JsonSchema {
  return { description, type: 'string', pattern: '^rediss?://[^\\s?#]+$', expected: 'a URL that begins with redis:// or rediss://', secret: true }
}

const store = map('Where balances, holds and the ledger live. A change needs a restart.', {
  driver: { description: 'embedded: SQLite in the data folder. redis: shared by any number of gateways. memory: nothing outlives the process.', enum: ['embedded', 'redis', 'memory'], default: 'embedded' },
  path: { description: 'The data folder: the ledger, and what the gateway generates itself; with driver redis, charges that wait for it. One gateway writes to it at a time.', type: 'string', minLength: 1, default: './data' },
  fsync_interval: duration('What a power loss may take of the ledger; a mere kill takes nothing. 0s: nothing either, and every charge waits for the disk.', '100ms', { min: '0s', max: '1m' }),
  windows: { description: 'What rate limits count after anything but a clean stop. full: what was written down, at least once a second, and the most that may have been admitted since (a tenth of a limit at most), so that no limit is passed. forget: nothing.', enum: ['full', 'forget'], default: 'full' },
  url: redisUrl('Address of a Redis server, with its credentials: redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for TLS. Beside sentinels its host does not count.'),
  cluster: { description: 'Addresses of some nodes of a Redis Cluster, in the place of url. All have the credentials of the first.', type: 'array', minItems: 1, items: redisUrl('A node.'), secret: true },
  sentinels: { description: 'Addresses of Redis Sentinels, which know the server, in the place of url.', type: 'array', minItems: 1, items: redisUrl('A Sentinel.'), secret: true },
  sentinel_name: { description: 'What the Sentinels call the server.', type: 'string', minLength: 1 },
  prefix: { description: 'What all keys in Redis begin with: gateways with the same one share everything.', type: 'string', pattern: '^[A-Za-z0-9._-]{1,64}$', expected: 'up to 64 letters, digits and . _ -', default: 'gateway' },
  timeout: duration('How long Redis may take for a command; a slower one is away.', '250ms', { min: '10ms', max: '10s' }),
  on_outage: map('What becomes of requests while Redis is away. What they cost is never forgotten: it waits in the data folder.', {
    auth: { description: 'deny: no key is good, since it may have been frozen meanwhile; requests get auth_unavailable (503). cached: what was known of keys counts.', enum: ['deny', 'cached'], default: 'deny' },
    limits: { description: 'deny: requests of keys with limits get auth_unavailable (503). local: each process counts for itself, so that as many times the limit may pass as there are processes. allow: nobody counts.', enum: ['deny', 'local', 'allow'], default: 'deny' },
    money: { description: 'deny: what costs something gets auth_unavailable (503). leased: each process serves from what it has set aside of the balance before, for at most five minutes; keys with usage limits are refused.', enum: ['deny', 'leased'], default: 'deny' },
    lease_usd: { description: 'With money: leased, what each process sets aside of the balance of each account that it serves, where there is four times as much.', usd: 9, default: '1' }
  }, { default: {} })
}, { default: {} })

/** What is translated, and `n`: all answers would be paid for, and one read. */
const OTHER_FIELD = /^(?!(?:model|messages|max_tokens|max_completion_tokens|temperature|top_p|stop|tools|tool_choice|parallel_tool_calls|reasoning_effort|response_format|user|stream|stream_options|n)$)[A-Za-z][A-Za-z0-9_]{0,63}$/

function headers (description: string): JsonSchema {
  return {
    description,
    type: 'object',
    propertyNames: { pattern: '^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$', expected: 'the name of an HTTP header' },
    additionalProperties: {
      description: 'Value of the header.', type: 'string', pattern: '^[\\t\\x20-\\x7e\\x80-\\xff]*$', expected: 'a text on one line', secret: true
    },
    secret: true
  }
}

function maintenance (description: string): JsonSchema {
  return { description, type: 'boolean', default: false }
}

const upstream = map('A provider that answers requests.', {
  url: {
    description: 'Base address of its API, or "simulator:" for the built-in simulator.',
    type: 'string',
    pattern: '^(?:simulator:|https?://[^\\s?#@]+)$',
    expected: 'an http or https URL without credentials and query, or "simulator:"'
  },
  dialect: { description: 'The API that it speaks.', enum: ['messages', 'chat', 'images', 'videos'], default: 'messages' },
  count_tokens: { description: 'Whether it answers POST /v1/messages/count_tokens; false: the gateway estimates.', type: 'boolean', default: false },
  links: { description: 'What becomes of its links to images. pass: the client gets them. mirror: the gateway fetches the image, and the client gets a link of its public listener.', enum: ['pass', 'mirror'], default: 'pass' },
  headers: { ...headers('Headers sent with every request to it: its credentials.'), default: {} },
  credentials: {
    description: 'Several accounts at this upstream: each request gets the headers of one, in the place of those of the same names above. One that is rate-limited or refused is put aside for a while.',
    type: 'array',
    minItems: 1,
    items: map('One account.', {
      id: name('Its name in log and metrics.', 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'),
      headers: { ...headers('What proves that it is us.'), minProperties: 1 }
    }, { required: ['id', 'headers'] })
  },
  timeouts: map('How long it may take.', {
    connect: duration('To make a connection, TLS included; through a proxy each half.', '3s'),
    first_byte: duration('From the request to the head of the answer, and of a stream to its first event: comments and pings are none.', '60s'),
    idle: duration('Between two pieces of the answer.', '60s'),
    total: duration('From the sending of a request to the last byte of its answer; not of WebSockets and downloads.', '30m'),
    websocket_idle: duration('Without a byte from either side of a WebSocket.', '5m'),
    connection_age: duration('The age at which a connection takes no more requests: a change of DNS is noticed by then.', '5m')
  }, { default: {} }),
  limits: map('How much it gets at a time from each process of the gateway; absent: whatever comes.', {
    concurrency: { description: 'Requests at a time.', type: 'integer', minimum: 1, maximum: 1_000_000 },
    queue: { description: 'Requests that wait for their turn, which accounts take in turns; beyond it: queue_full. 0: none.', type: 'integer', minimum: 0, maximum: 1_000_000, default: 100 },
    queue_timeout: duration('How long one waits; then: queue_timeout.', '10s')
  }, { required: ['concurrency'] }),
  retries: map('When a request is sent again to a target that failed, before anything of an answer has reached the client.', {
    attempts: { description: 'How often one request may be sent to the same target again; 0: never.', type: 'integer', minimum: 0, maximum: 10, default: 2 },
    backoff: duration('Before the first of them; twice as long before each other, with jitter.', '250ms'),
    max_backoff: duration('The longest that is waited: for a backoff, for what the upstream asks for, or for the first of all targets to recover.', '2s'),
    budget: { description: 'Percent of the requests of the last ten seconds that may be sent again, so that an outage is not multiplied.', type: 'integer', minimum: 0, maximum: 100, default: 20 }
  }, { default: {} }),
  breaker: map('When a target is left alone for a while, because it fails.', {
    failures: { description: 'Failures within the window that open it, at least.', type: 'integer', minimum: 1, maximum: 1_000_000, default: 5 },
    ratio: { description: 'Their share of what was sent there, in percent, at least.', type: 'integer', minimum: 1, maximum: 100, default: 50 },
    window: duration('What counts.', '10s', { min: '1s', max: '10m' }),
    open: duration('How long it stays open; then one request tries it. Twice as long after each that failed.', '5s'),
    max_open: duration('How long it stays open at most.', '60s')
  }, { default: {} }),
  maintenance: maintenance('true: nothing is sent to it, as if its targets were not there.'),
  tls: map('How an https upstream proves itself to us, and we to it.', {
    ca: pem('Certificates of the authorities that are believed, in the place of the public ones.'),
    cert: pem('The certificate of the gateway, with its chain; wants "key".'),
    key: pem('The private key of "cert".'),
    server_name: { description: 'The name that is asked for, and looked for in its certificate; absent: the host of the URL.', type: 'string', pattern: '^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$', expected: 'a host name' }
  }, { minProperties: 1 }),
  proxy: {
    description: 'An HTTP proxy that connects us (by CONNECT), with name and password if it wants them; absent: straight.',
    type: 'string', pattern: '^http://[^\\s/?#]+/?$', expected: 'an http URL such as http://name:password@proxy.example.com:3128', secret: true
  },
  // Off by default: Node 26.8 was seen to abort the whole process at the end of an HTTP/2 session (nodejs/node#64850).
  http2: { description: 'auto: HTTP/2 where the upstream is https and offers it, but for forward routes. off: HTTP/1.1.', enum: ['auto', 'off'], default: 'off' },
  chat: map('With "dialect: chat", what differs among its vendors.', {
    max_tokens_field: { description: 'Its name for the most tokens of an answer; absent: max_tokens.', enum: ['max_tokens', 'max_completion_tokens'] },
    reasoning_field: { description: 'The field of a message in which it wants its own thoughts back; absent: it gets none back.', enum: ['reasoning_content', 'reasoning'] },
    include_usage: { description: 'false: it refuses "stream_options"; absent: it is asked there for the usage of a stream.', type: 'boolean' },
    fields: {
      description: 'Fields of a request\'s body that go on to it as they are, such as top_k, min_p or chat_template_kwargs. Name none that raises its price.',
      type: 'array',
      uniqueItems: true,
      items: { description: 'A field that the gateway does not write itself.', type: 'string', pattern: OTHER_FIELD.source, expected: 'the name of a field that the gateway does not write itself' }
    }
  })
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

/** A text, or a number as it stands in the file. */
function word (description: string): JsonSchema {
  return { description, word: true }
}

const priceRow = map('A variant of an image or video model, and what it costs.', {
  when: { description: 'Values of parameters, by name; a parameter that is not named may have any value. Absent: every request.', type: 'object', minProperties: 1, additionalProperties: word('A value of the parameter.') },
  usd: price('US dollars per delivered image.'),
  usd_per_second: price('US dollars per second of video.')
})

const instant = { type: 'string', pattern: FROM.source, expected: 'a day such as 2027-01-31, or an instant with its zone such as 2027-01-31T18:00:00+01:00' }

/** Of prices that follow each other. Only the first may be without `from`, and may be "free": a rule says so (rules/prices.ts). */
const stagedPrice = map('US dollars per 1M tokens, from a day or an instant on.', {
  from: {
    description: 'When it begins to hold, without a reload: a day (midnight in UTC), or an instant with its zone; absent, in the first of a list only: always.',
    ...instant
  },
  ...tokenPrice.properties as Record<string, JsonSchema>
}, { required: ['input', 'output'] })

const priceList: JsonSchema = {
  description: 'An image or video model: the first row that fits a request is its price; what fits none is not sold in this channel. A text model: prices that follow each other; the last that has begun holds.',
  type: 'array',
  minItems: 1,
  items: {
    if: { type: 'object', anyOf: ['from', 'input', 'output'].map((field) => ({ required: [field] })) },
    then: stagedPrice,
    else: { if: { type: 'string' }, then: { const: 'free', expected: '"free" or a map of prices' }, else: { ...priceRow, expected: 'a map of prices' } }
  }
}

/** Not anyOf: a value is converted in the one branch that fits, and there is one sentence when none does. */
function freeOr (prices: JsonSchema): JsonSchema {
  return { description: `${String(prices.description)} Or "free".`, if: { type: 'string' }, then: { const: 'free', expected: '"free" or a map of prices' }, else: { ...prices, expected: '"free" or a map of prices' }, hint: 'a price of nothing is written "price: free"' }
}

const PRICE_FORMS = '"free", a map of prices per 1M tokens, a list of such prices with "from", or a list of prices per image or second'

/** Which of the forms fits the model's kind is for a rule to say: one sentence that names the kind (rules/models.ts). */
const channelPrice: JsonSchema = {
  ...freeOr(tokenPrice),
  description: 'A text model: US dollars per 1M tokens, or a list of such prices that follow each other. An image or video model: a list of variants. Or "free".',
  then: { const: 'free', expected: PRICE_FORMS },
  else: { if: { type: 'array' }, then: priceList, else: { ...tokenPrice, expected: PRICE_FORMS } }
}

const channel = map('One way to sell the model.', {
  enabled: { description: 'false: switched off.', type: 'boolean', default: true },
  maintenance: maintenance('true: as if it were not there; where no other may serve, 503 maintenance.'),
  sticky: { description: 'true: the requests of one conversation go to the same target, whose prompt cache knows it.', type: 'boolean', default: false },
  price: channelPrice,
  targets: {
    description: 'What answers; chosen by weight.',
    type: 'array',
    minItems: 1,
    items: map('A model of an upstream.', {
      upstream: { description: 'A name in upstreams.', type: 'string' },
      model: { description: 'Its name for the model.', type: 'string', minLength: 1 },
      weight: { description: 'Its share of the requests; 0: none.', type: 'integer', minimum: 0, maximum: 1_000_000, default: 1 },
      priority: { description: 'Targets of a higher number are asked when all of a lower one are out, full, or have failed.', type: 'integer', minimum: 0, maximum: 100, default: 0 }
    }, { required: ['upstream', 'model'] })
  }
}, { required: ['price', 'targets'] })

const model = map('A model that clients can ask for.', {
  id: name('What clients send as "model".', 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'),
  name: { description: 'For people; absent: the id.', type: 'string', minLength: 1 },
  provider: { description: 'Who made it.', type: 'string', minLength: 1 },
  kind: { description: 'What it gives.', enum: ['text', 'image', 'video'], default: 'text' },
  created: { description: 'Day of its availability.', type: 'string', pattern: '^\\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\\d|3[01])$', expected: 'a day such as 2025-09-29' },
  family: { description: 'Models that share limits.', type: 'string', minLength: 1 },
  context: { description: 'Tokens of input that fit.', type: 'integer', minimum: 1 },
  max_output: { description: 'Tokens of output at most.', type: 'integer', minimum: 1 },
  default_max_tokens: { description: 'max_tokens of a chat request that names none; absent: the smaller of max_output and 8192.', type: 'integer', minimum: 1 },
  sampling: { description: 'Whether it takes temperature, top_p and top_k; false: they are left out.', type: 'boolean', default: true },
  thinking: { description: 'How it thinks when a chat request sets reasoning_effort: with a budget of tokens, adaptive (as it sees fit), or none.', enum: ['budget', 'adaptive', 'none'], default: 'none' },
  structured_outputs: { description: 'Whether it takes a JSON Schema for its answer; false: a tool is forced in its place.', type: 'boolean', default: false },
  accepts: {
    description: 'What a request may hold.',
    type: 'array',
    minItems: 1,
    uniqueItems: true,
    default: ['text'],
    items: { description: 'A kind of content.', enum: ['text', 'image'] }
  },
  maintenance: maintenance('true: 503 maintenance to who asks for it.'),
  parameters: {
    description: 'Of an image or video model: what a request may choose, by the name of its field.',
    type: 'object',
    propertyNames: { pattern: '^[a-z][a-z0-9_]{0,31}$', expected: 'the name of a field of a request, such as resolution' },
    additionalProperties: map('A field of a request.', {
      values: { description: 'What it may be.', type: 'array', minItems: 1, items: word('A value.') },
      default: word('Of a request that does not name it; absent: it stays unset.'),
      max_pixels: { description: 'Of "resolution": the pixels (width times height) that a value covers. A request that names only a size gets the smallest that covers it.', type: 'object', minProperties: 1, additionalProperties: { description: 'Pixels.', type: 'integer', minimum: 1 } }
    }, { required: ['values'] })
  },
  channels: map('The ways in which it is sold.', { premium: channel, cheap: channel }, { minProperties: 1 })
}, { required: ['id', 'provider', 'created', 'channels'] })

const alias = map('Another name of a model.', {
  id: name('What clients send as "model".', 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'),
  model: {
    description: 'The id of the model that answers; or a list of models that follow each other, of which the last that has begun answers.',
    if: { type: 'array' },
    then: {
      type: 'array',
      minItems: 1,
      items: map('A model, from a day or an instant on.', {
        from: { description: 'When it begins to answer, without a reload: a day (midnight in UTC), or an instant with its zone; absent, in the first of a list only: always.', ...instant },
        model: { description: 'Its id.', type: 'string' }
      }, { required: ['model'] })
    },
    else: { type: 'string', expected: 'the id of a model, or a list of { from, model }' }
  }
}, { required: ['id', 'model'] })

const route = map('A method and path of the API.', {
  match: { description: '"METHOD /path"; a forward route may name several methods, "GET,POST /v1/x", and end in "/*".', type: 'string' },
  serve: { description: 'The endpoint that answers, or "none" to remove the shipped route.', type: 'string' },
  forward: { description: 'The upstream that gets the bytes.', type: 'string' },
  websocket: { description: 'Of a forward route: whether its GET takes WebSockets too. The price is that of the connection.', type: 'boolean' },
  maintenance: maintenance('true: 503 maintenance.'),
  price: freeOr(map('US dollars per request of a forward route.', { usd: price('US dollars per request.') }, { required: ['usd'] })),
  pipeline: {
    description: 'Names of the plugins of this route, in the order of the pipeline; absent: all of them.',
    type: 'array',
    items: { description: 'Name of a plugin.', type: 'string' }
  }
}, { required: ['match'] })

export const account = map('Who pays.', {
  id: name('Its name in keys and ledger.', 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'),
  name: { description: 'For people; absent: the id.', type: 'string', minLength: 1 },
  opening_balance_usd: { description: 'Credited once, ever.', usd: AMOUNT_DECIMALS, default: '0' },
  allow_fallback: { description: 'Whether a failed channel may be replaced by another.', type: 'boolean', default: true },
  suspended: { description: 'true: its keys are refused with account_frozen.', type: 'boolean', default: false }
}, { required: ['id'] })

const CHANNELS = ['premium', 'cheap']

/** An empty one would lock everybody out, or nobody: whoever writes it means something else. */
function some (description: string, items: JsonSchema): JsonSchema {
  return { description, type: 'array', minItems: 1, uniqueItems: true, items, hint: 'leave it out to allow all' }
}

export const key = map('What a client proves itself with.', {
  id: name('Its name in log and ledger.', 'an id of letters, digits and . _ : / @ + - that begins with a letter or digit'),
  account: { description: 'The account that pays.', type: 'string' },
  secret: { description: 'What the client sends: a prefix and 32 letters or digits.', type: 'string', secret: true },
  frozen: { description: 'true: it is refused like an unknown key.', type: 'boolean', default: false },
  usage_limit_usd: { description: 'What it may spend in total; absent: no limit of its own.', usd: AMOUNT_DECIMALS },
  usage_limit_day_usd: { description: 'What it may spend on a calendar day of its time zone; absent: no limit.', usd: AMOUNT_DECIMALS },
  usage_limit_month_usd: { description: 'What it may spend in a calendar month of its time zone; absent: no limit.', usd: AMOUNT_DECIMALS },
  time_zone: { description: 'Where its days and months begin, such as Europe/Berlin; absent: UTC.', type: 'string' },
  rate_limit: { description: 'Requests in any 60 seconds; 0: no limit; absent: default_rpm of rate-limit.', type: 'integer', minimum: 0, maximum: 1_000_000_000 },
  concurrency: { description: 'Requests at a time; 0: no limit; absent: default_concurrency of rate-limit.', type: 'integer', minimum: 0, maximum: 1_000_000 },
  allowed_models: some('The models that it may call; absent: all.', { description: 'An id, or the beginning of ids with "*" at the end.', type: 'string', pattern: '^(?:[^*]+\\*?|\\*)$', expected: 'an id of a model, or the beginning of one with "*" at the end' }),
  allowed_clients: some('The clients that may use it, by what they say of themselves, which can be forged; absent: all.', { description: 'A well-known client such as claude-code, or a user agent with "*" for any characters.', type: 'string', minLength: 1 }),
  ip_whitelist: some('The network addresses that may use it; absent: all.', { description: 'An address, or a network such as 10.0.0.0/8.', type: 'string' }),
  allowed_origins: some('The web pages that may use it from a browser; requests without an Origin are let through; absent: all.', { description: 'Scheme, host and port of a page.', type: 'string', pattern: '^(?:null|[^*]*://[^*]*)$', expected: 'an origin such as https://app.example.com, without "*"' }),
  streaming: { description: 'false: requests for a stream are refused.', type: 'boolean', default: true },
  routing_mode: { description: 'Which channel is asked, and which follows when it fails: premium; cheap; auto_cheap and max: cheap, then premium; auto_premium: premium, then cheap. A model that is not sold in cheap is premium in every mode.', enum: ['premium', 'cheap', 'auto_cheap', 'max', 'auto_premium'], default: 'premium' },
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
      level: { description: 'The least important level that is written.', enum: ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], default: 'info' },
      format: { description: 'How its lines look: "json" for programs, "pretty" for people, or "auto": pretty in a terminal, JSON everywhere else.', enum: ['auto', 'json', 'pretty'], default: 'auto' }
    }, { default: {} }),
    videos: map('How video tasks are watched that upstreams work on.', {
      poll_interval: duration('Between two questions to an upstream about a new task; up to six times as long for an old one.', '5s', { min: '10ms', max: '10m' }),
      poll_concurrency: { description: 'Questions to an upstream at a time.', type: 'integer', minimum: 1, maximum: 1000, default: 20 },
      max_age: duration('A task of which nobody knows by then what became of it has failed, and costs nothing.', '24h', { max: '72h' }),
      lost_after: duration('A task that its upstream has denied for so long (404, three times at least) is lost: it has failed, and costs nothing.', '10m', { max: '72h' }),
      file_life: duration('How long the file of a finished video can be downloaded, unless its upstream says sooner.', '24h'),
      keep: duration('How long after its creation a task that is over is listed.', '480h')
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
    aliases: { description: 'Other names of models, such as claude-latest.', type: 'array', default: [], items: alias },
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
  const { $id: _id, expected: _expected, hint: _hint, secret: _secret, duration: isDuration, size: isSize, usd: isUsd, word: isWord, description, ...rest } = schema
  const about = description === undefined ? {} : { description }
  const standard = 'default' in rest ? { default: rest.default } : {}
  if (isDuration !== undefined) return { ...about, ...standard, ...DURATION }
  if (isSize !== undefined) return { ...about, ...standard, ...SIZE }
  if (isUsd !== undefined) return { ...about, ...standard, ...USD }
  if (isWord !== undefined) return { ...about, ...standard, type: ['string', 'number'] }
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
