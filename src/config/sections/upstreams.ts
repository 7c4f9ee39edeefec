// upstreams: URLs, headers, certificates and proxies, and names of upstreams wherever they are used.
import { X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import { isMap, type Path } from '../yaml/position.ts'
import { quote } from '../check/messages.ts'
import { suggest } from '../check/suggest.ts'
import { at, checkUnique, type Item, items, type Report, type RuleInput, text } from './input.ts'
import { dialectNamed, dialectNames, dialects, standardDialect } from './dialects.ts'
import { choice, duration, flag, id, list, maintenance, map, type Of, record } from './schema.ts'

/** Fields that are translated, and `n`: all answers would be paid for, and one read. */
const OWN_FIELDS = [
  'model', 'messages', 'max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'stop', 'tools', 'tool_choice',
  'parallel_tool_calls', 'reasoning_effort', 'response_format', 'user', 'stream', 'stream_options', 'n'
]

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const

function headers<const Options extends object> (description: string, options: Options) {
  return record(description, {
    description: 'Value of the header.', type: 'string', pattern: '^[\\t\\x20-\\x7e\\x80-\\xff]*$',
    expected: 'a text on one line', secret: true
  }, {
    propertyNames: { pattern: '^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$', expected: 'the name of an HTTP header' },
    secret: true, ...options
  })
}

function pem (description: string) {
  return {
    description: `${description} In PEM; \${file:path} reads it from a file.`,
    type: 'string', pattern: '-----BEGIN [A-Z ]+-----',
    expected: 'a text in PEM, such as ${file:tls/ca.pem}', secret: true
  } as const
}

const upstream = map('A provider that answers requests.', {
  url: {
    description: 'Base address of its API, or "simulator:" for the built-in simulator.',
    type: 'string',
    pattern: '^(?:simulator:|https?://[^\\s?#@]+)$',
    expected: 'an http or https URL without credentials and query, or "simulator:"'
  },
  dialect: choice('The API that it speaks.', dialectNames, standardDialect),
  count_tokens: flag('Whether it answers POST /v1/messages/count_tokens; false: the gateway estimates.', false),
  thinking_family: {
    description: 'Upstreams with the same word, and the same dialect, take back each other\'s thoughts (signatures, ' +
      'encrypted reasoning), such as a vendor and a cloud that runs its models; absent: its name, so that no other ' +
      'takes them. Thoughts that an upstream may not have are left out of what it is sent. What the vendor binds to ' +
      'an organization wants credentials of one organization.',
    type: 'string',
    pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
    expected: 'a name of letters, digits and . _ -'
  },
  links: choice(
    'What becomes of its links to images. pass: the client gets them. mirror: the gateway fetches the image, and ' +
    'the client gets a link of its public listener.',
    ['pass', 'mirror'], 'pass'
  ),
  headers: headers('Headers sent with every request to it: its credentials.', { default: {} }),
  credentials: list(
    'Several accounts at this upstream: each request gets the headers of one, in the place of those of the same ' +
    'names above. One that is rate-limited or refused is put aside for a while.',
    map('One account.', {
      id: id('Its name in log and metrics.'),
      headers: headers('What proves that it is us.', { minProperties: 1 })
    }, { required: ['id', 'headers'] }),
    { minItems: 1 }
  ),
  timeouts: map('How long it may take.', {
    connect: duration('To make a connection, TLS included; through a proxy each half.', '3s'),
    first_byte: duration(
      'From the request to the head of the answer, and of a stream to its first event: comments and pings are none.',
      '60s'
    ),
    idle: duration('Between two pieces of the answer.', '60s'),
    total: duration(
      'From the sending of a request to the last byte of its answer; not of WebSockets and downloads.', '30m'
    ),
    usage: duration(
      'How long a stream is read for the usage at its end after its client has left; 0s: it is stopped at once. A ' +
        'longer rest of the answer stops it earlier.',
      '1s', { min: '0s', max: '1m' }
    ),
    websocket_idle: duration('Without a byte from either side of a WebSocket.', '5m'),
    connection_age: duration(
      'The age at which a connection takes no more requests: a change of DNS is noticed by then.', '5m'
    )
  }, { default: {} }),
  limits: map('How much it gets at a time from each process of the gateway; absent: whatever comes.', {
    concurrency: { description: 'Requests at a time.', type: 'integer', minimum: 1, maximum: 1_000_000 },
    queue: {
      description: 'Requests that wait for their turn, which accounts take in turns; beyond it: queue_full. 0: none.',
      type: 'integer', minimum: 0, maximum: 1_000_000, default: 100
    },
    queue_timeout: duration('How long one waits; then: queue_timeout.', '10s')
  }, { required: ['concurrency'] }),
  retries: map('When a request is sent again to a target that failed, before anything of an answer has reached the ' +
    'client.', {
    attempts: {
      description: 'How often one request may be sent to the same target again; 0: never.',
      type: 'integer', minimum: 0, maximum: 10, default: 2
    },
    backoff: duration('Before the first of them; twice as long before each other, with jitter.', '250ms'),
    max_backoff: duration(
      'The longest that is waited: for a backoff, for what the upstream asks for, or for the first of all targets ' +
      'to recover.',
      '2s'
    ),
    budget: {
      description: 'Percent of the requests of the last ten seconds that may be sent again, so that an outage is ' +
        'not multiplied.',
      type: 'integer', minimum: 0, maximum: 100, default: 20
    }
  }, { default: {} }),
  breaker: map('When a target is left alone for a while, because it fails.', {
    failures: {
      description: 'Failures within the window that open it, at least.',
      type: 'integer', minimum: 1, maximum: 1_000_000, default: 5
    },
    ratio: {
      description: 'Their share of what was sent there, in percent, at least.',
      type: 'integer', minimum: 1, maximum: 100, default: 50
    },
    window: duration('What counts.', '10s', { min: '1s', max: '10m' }),
    open: duration('How long it stays open; then one request tries it. Twice as long after each that failed.', '5s'),
    max_open: duration('How long it stays open at most.', '60s')
  }, { default: {} }),
  trace: flag('Whether it is told the trace of each request: traceparent and tracestate (W3C Trace Context).', false),
  maintenance: maintenance('true: nothing is sent to it, as if its targets were not there.'),
  tls: map('How an https upstream proves itself to us, and we to it.', {
    ca: pem('Certificates of the authorities that are believed, in the place of the public ones.'),
    cert: pem('The certificate of the gateway, with its chain; wants "key".'),
    key: pem('The private key of "cert".'),
    server_name: {
      description: 'The name that is asked for, and looked for in its certificate; absent: the host of the URL.',
      type: 'string',
      pattern: '^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$',
      expected: 'a host name'
    }
  }, { minProperties: 1 }),
  proxy: {
    description: 'An HTTP proxy that connects us (by CONNECT), with name and password if it wants them; absent: ' +
      'straight.',
    type: 'string', pattern: '^http://[^\\s/?#]+/?$',
    expected: 'an http URL such as http://name:password@proxy.example.com:3128', secret: true
  },
  // Off by default: Node 26.8 was seen to abort the whole process at the end of an HTTP/2 session (nodejs/node#64850).
  http2: choice(
    'auto: HTTP/2 where the upstream is https and offers it, but for forward routes. off: HTTP/1.1.',
    ['auto', 'off'], 'off'
  ),
  messages: map('With "dialect: messages", what differs among its vendors.', {
    betas: list(
      'Those of a client\'s anthropic-beta that it gets, because it knows them; absent: all. What "headers" says it ' +
      'gets in any case.',
      {
        description: 'The name of a beta, or with "*" at its end the beginning of names.',
        type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\\*?$',
        expected: 'the name of a beta such as interleaved-thinking-2025-05-14, or the beginning of one with "*" at its end'
      },
      { uniqueItems: true }
    ),
    fields: list(
      'Fields of a request beyond the Messages API that go on to it as they are. Name none that raises its price. ' +
      'Other unknown fields are left out; absent: none, but ["*"] for Anthropic and the clouds that serve its API, ' +
      'which refuse unknown fields.',
      {
        description: 'The name of a field, or with "*" at its end the beginning of names; "*": all.',
        type: 'string', pattern: '^(?:\\*|[A-Za-z][A-Za-z0-9_-]{0,63}\\*?)$',
        expected: 'the name of a field, or the beginning of one with "*" at its end'
      },
      { uniqueItems: true }
    ),
    user_id: choice(
      'The client\'s metadata.user_id. hash: it gets a hash of 43 characters instead, for a vendor that limits the ' +
      'length. drop: it gets none.',
      ['pass', 'hash', 'drop'], 'pass'
    ),
    cache_ttl: flag('false: it refuses "ttl" in cache_control, which is left out.', true),
    attribution: flag('false: it does not get the attribution line with which Claude Code begins its system prompt. ' +
      'The line differs in each request, so an imitation that caches prompts never finds one in its cache.', true)
  }),
  chat: map('With "dialect: chat", what differs among its vendors.', {
    max_tokens_field: choice(
      'Its name for the most tokens of an answer; absent: that of a chat client, and max_tokens for all others.', ['max_tokens', 'max_completion_tokens']
    ),
    reasoning_field: choice(
      'The field of a message in which it wants its own thoughts back; absent: it gets none back.',
      ['reasoning_content', 'reasoning']
    ),
    reasoning_tokens: choice(
      'Where it counts thoughts: inside its completion_tokens, or apart from them; absent: its numbers decide, which ' +
      'they can\'t where it counts fewer thoughts than other output and leaves them out of the total.',
      ['inside', 'apart']
    ),
    efforts: list(
      'The values of "reasoning_effort" that its models know: the nearest is sent; absent: what the client asks for, ' +
      'and "none" if it switches thoughts off. With "thinking" among the fields, that is sent in place of "none".',
      choice('One of them.', EFFORTS), { minItems: 1, uniqueItems: true }
    ),
    after_tool: choice(
      'What becomes of the user\'s words right after the result of a tool. fold: they are sent as a part of the ' +
      'result, for vendors that refuse a user\'s message there (Mistral); absent, or pass: they are a message.',
      ['pass', 'fold']
    ),
    cache_control: flag(
      'true: it gets the cache marks of a request (OpenRouter, LiteLLM). A "ttl" of 1h is kept if all marks of the ' +
      'request have it; absent: it gets none.'
    ),
    thought_signatures: choice(
      'google: a call without a thought signature gets Google\'s placeholder, since Gemini 3 refuses calls of other ' +
      'models. drop: it refuses extra_content and reasoning_details, and gets neither; absent: it gets back what a ' +
      'client has of them.',
      ['google', 'drop']
    ),
    call_ids: choice('The ids of calls that it takes. nine_signs: nine letters and digits, as Mistral; absent, or any: ' +
      'up to 40 characters.', ['any', 'nine_signs']),
    call_arguments: choice(
      'Arguments of calls in a conversation that are no JSON object, such as those that the limit of an answer cut. ' +
      'json: it gets {"_raw": …}, because it refuses others, as vLLM and xAI do; absent, or as_written: it gets the text.',
      ['as_written', 'json']
    ),
    omit: list(
      'Fields of the gateway\'s requests that it refuses, and does not get.',
      choice('One of them.', ['frequency_penalty', 'logit_bias', 'parallel_tool_calls', 'presence_penalty', 'seed', 'stop',
        'temperature', 'top_p', 'user']),
      { uniqueItems: true }
    ),
    include_usage: flag('false: it refuses "stream_options"; absent: it is asked there for the usage of a stream.'),
    fields: list(
      'Fields of a request\'s body that go on to it as they are, such as top_k, min_p or chat_template_kwargs. ' +
      'Name none ' +
      'that raises its price.',
      {
        description: 'A field that the gateway does not write itself.',
        type: 'string',
        pattern: `^(?!(?:${OWN_FIELDS.join('|')})$)[A-Za-z][A-Za-z0-9_]{0,63}$`,
        expected: 'the name of a field that the gateway does not write itself'
      },
      { uniqueItems: true }
    )
  }),
  responses: map('With "dialect: responses", what differs among its vendors and models.', {
    efforts: list(
      'The efforts of reasoning that its models know, whatever a client asks for: the nearest is sent; absent: none, ' +
      'low, medium, high and xhigh.',
      choice('One of them.', EFFORTS),
      { minItems: 1, uniqueItems: true }
    ),
    summaries: flag('false: it shows no reasoning (some vendors want to know who asks for it); absent: a client that ' +
      'wants thoughts gets its summaries.'),
    stop_sequences: choice(
      'What becomes of the stop sequences of a request, which this API knows nothing of. refuse: it is left to the ' +
      'next target, or 400; absent, or drop: they are left out.',
      ['drop', 'refuse']
    ),
    client_tools: choice(
      'How it is told of the tools of clients that speak this API too. functions: all as functions, for a vendor that ' +
      'knows no others; absent, or as_declared: as they are, with grammars and namespaces.',
      ['as_declared', 'functions']
    )
  })
}, { required: ['url'] })

export const upstreams = record('Providers by name.', upstream, {
  default: {},
  propertyNames: { pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', expected: 'a name of letters, digits and . _ -' }
})

export type UpstreamConfig = Of<typeof upstream>
export type Dialect = UpstreamConfig['dialect']
export type CredentialConfig = NonNullable<UpstreamConfig['credentials']>[number]
export type UpstreamLimits = NonNullable<UpstreamConfig['limits']>
export type RetriesConfig = UpstreamConfig['retries']
export type BreakerConfig = UpstreamConfig['breaker']
export type TlsConfig = NonNullable<UpstreamConfig['tls']>
export type MessagesConfig = NonNullable<UpstreamConfig['messages']>
export type ChatConfig = NonNullable<UpstreamConfig['chat']>
export type ResponsesConfig = NonNullable<UpstreamConfig['responses']>

/**
 * Headers that an upstream's `headers` can't set: they belong to one connection, are computed by the client, or state
 * what the gateway itself understands (RFC 9110 7.6.1).
 */
const OWN_HEADERS = ['accept-encoding', 'connection', 'content-length', 'expect', 'host', 'keep-alive',
  'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade']

export function checkUpstreams (input: RuleInput, report: Report, warn: Report): void {
  const { value, tree } = input
  const upstreams = at(value, 'upstreams')
  for (const [name, upstream] of Object.entries(isMap(upstreams) ? upstreams : {})) {
    const url = text(at(upstream, 'url'), tree, ['upstreams', name, 'url'])
    if (url !== undefined && /^https?:/.test(url) && !URL.canParse(url)) {
      report(['upstreams', name, 'url'], 'is not a valid URL')
    }
    const dialect = text(at(upstream, 'dialect'), tree, ['upstreams', name, 'dialect']) ?? standardDialect
    warnOfWhole(url, dialect, ['upstreams', name, 'url'], warn)
    checkOptions(upstream, ['upstreams', name], report)
    checkTls(at(upstream, 'tls'), url, ['upstreams', name, 'tls'], tree, report)
    const proxy = text(at(upstream, 'proxy'), tree, ['upstreams', name, 'proxy'])
    if (proxy !== undefined && /^http:\/\//.test(proxy) && !isProxy(proxy)) {
      report(['upstreams', name, 'proxy'], 'is not a valid URL',
        'such as http://name:password@proxy.example.com:3128; of a password, write "@" as %40 and "%" as %25')
    }
    if (proxy !== undefined && url === 'simulator:') {
      report(['upstreams', name, 'proxy'], 'the simulator is not reached through a proxy', 'remove it', true)
    }
    checkHeaders(at(upstream, 'headers'), ['upstreams', name, 'headers'], report)
    const credentials = items(at(upstream, 'credentials'), 'credentials').map(({ item, path }) => ({
      item,
      path: ['upstreams', name, ...path]
    }))
    checkUnique(credentials, 'id', 'credentials', input, report)
    for (const { item, path } of credentials) checkHeaders(item.headers, [...path, 'headers'], report)
    warnOfForgotten(credentials, at(upstream, 'headers'), warn)
  }
}

/** Reports options of a dialect that the upstream does not speak. */
function checkOptions (upstream: unknown, path: Path, report: Report): void {
  for (const dialect of dialectNames) {
    const { options } = dialects[dialect]
    if (options === undefined || at(upstream, options) === undefined || at(upstream, 'dialect') === dialect) continue
    report([...path, options], `is only for "dialect: ${dialect}"`, 'remove it, or set the dialect')
  }
}

/** Reports the URL of one request, as vendors' pages show it, in the place of the API's. */
function warnOfWhole (url: string | undefined, dialect: string, path: Path, warn: Report): void {
  const ending = url === undefined ? undefined : dialectNamed(dialect)?.ending.exec(url)?.[0]
  if (ending !== undefined) warn(path, `ends with ${quote(ending)}, which the gateway adds itself`, 'leave it out')
}

/** Reports a header that all credentials but one have, and the upstream does not: it was forgotten, or misspelt. */
function warnOfForgotten (credentials: readonly Item[], common: unknown, warn: Report): void {
  if (credentials.length < 2) return
  const names = credentials.map(({ item }) => namesIn(item.headers))
  for (const name of new Set(names.flatMap((all) => [...all]))) {
    const without = names.findIndex((all) => !all.has(name))
    if (
      without === -1 || namesIn(common).has(name) || names.some((all, i) => i !== without && !all.has(name))
    ) continue
    warn([...credentials[without]!.path, 'headers'],
      `all other credentials of this upstream have the header ${quote(name)}`, 'add it, if it is needed there too')
  }
}

function namesIn (headers: unknown): ReadonlySet<string> {
  return new Set(Object.keys(isMap(headers) ? headers : {}).map((name) => name.toLowerCase()))
}

function checkHeaders (headers: unknown, path: Path, report: Report): void {
  const seen = new Map<string, string>()
  for (const header of Object.keys(isMap(headers) ? headers : {})) {
    const lower = header.toLowerCase()
    if (OWN_HEADERS.includes(lower)) {
      report([...path, header], `the header ${lower} is set by the gateway itself`, 'remove it', true)
    }
    const other = seen.get(lower)
    if (other !== undefined) {
      report([...path, header], `the header ${quote(header)} is set twice; the other is ${quote(other)}`, undefined,
        true)
    }
    seen.set(lower, header)
  }
}

/** Never quotes the content: it may be a private key in the wrong place. */
function checkTls (tls: unknown, url: string | undefined, path: Path, tree: RuleInput['tree'], report: Report): void {
  if (!isMap(tls)) return
  if (url !== undefined && !url.startsWith('https:')) {
    report(path, 'is only for https', 'remove it, or write https:// in "url"', true)
  }
  const [ca, cert, key] = (['ca', 'cert', 'key'] as const).map((field) => {
    const pem = text(tls[field], tree, [...path, field])
    return pem?.includes('-----BEGIN ') === true ? pem : undefined         // the schema refuses what is no PEM at all
  })
  if (ca !== undefined && !isCertificate(ca)) report([...path, 'ca'], 'holds no certificate that can be read')
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    report(path, tls.key === undefined ? '"cert" wants its "key"' : '"key" wants its "cert"',
      'the two prove the gateway to the upstream', true)
    return
  }
  if (cert === undefined || key === undefined) return
  if (!isCertificate(cert)) { report([...path, 'cert'], 'holds no certificate that can be read'); return }
  try {
    createSecureContext({ cert, key })
  } catch {
    report([...path, 'key'], 'is not the private key of "cert", or is encrypted')
  }
}

function isCertificate (pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0
  } catch {
    return false
  }
}

function isProxy (url: string): boolean {
  try {
    const { username, password, hostname } = new URL(url)
    // As the connector will decode them: "%C3" and "%A9" are no text, though "%C3%A9" is.
    for (const part of [username, password]) decodeURIComponent(part)
    return hostname !== ''
  } catch {
    return false
  }
}

export function checkUpstreamName (name: string | undefined, path: Path, { value }: RuleInput, report: Report): void {
  const upstreams = at(value, 'upstreams')
  const known = isMap(upstreams) ? Object.keys(upstreams) : []
  if (name !== undefined && !known.includes(name)) {
    report(path, `there is no upstream ${quote(name)}`, suggest(name, known) ?? 'add it to upstreams:')
  }
}
