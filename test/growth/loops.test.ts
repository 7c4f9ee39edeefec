// Where a loop reads a whole text or list each time, where a text or list is copied to add to it, and where a function
// calls itself, a cost can grow with the square of what comes from outside, or the stack end. A tool finds these places
// (support/loops.ts), and this list says of each why it does not.
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { squaresIn, squaresOf } from '../support/loops.ts'

/**
 * Left out: `config` (config.test.ts has whole files of growing size), `store`, `cluster` and the rest of `gateway`
 * (they read what the gateway has written), `simulator`, `commands` and `tools` (no text of others), and the pages of
 * `admin/web/ui`, which run in the operator's browser.
 */
const ROOMS = ['plugins', 'src/accounts', 'src/admin', 'src/base', 'src/catalog', 'src/core', 'src/endpoints',
  'src/gateway/bodies', 'src/http', 'src/media', 'src/money', 'src/pipeline', 'src/protocols', 'src/telemetry',
  'src/tokens', 'src/translation', 'src/upstream']

const ON = 'each search goes on behind the last one'
const CODE = 'the list stands in the code'
const TARGETS = 'the targets, channels and upstreams of one model'
const MAP = 'a look-up in a table'
const ONCE = 'each item is read once'
const ROPE = 'nothing reads the text before it is whole: the engine copies it once'
const PIECES = 'what is read or copied is one piece of the whole'
const BODY = 'a body of a client has at most 64 levels, and each value is read once'
const DEPTH = 'the function counts its levels and stops'
const LATER = 'it calls itself later, from a timer or an event'
const FIELDS = 'fields of one record, whose names stand in the code'
const START = 'once, when the gateway starts or a configuration goes live'

/** By file and function: why the search costs no square. */
const HARMLESS: Readonly<Record<string, string>> = {
  'plugins/billing-meter/bounds.ts upstreamsOf': TARGETS,
  'plugins/billing-meter/surcharges.ts boundUses': 'the prices of one model',
  'plugins/billing-meter/surcharges.ts refuseSurcharges': CODE,
  'plugins/channel-router/balance.ts balance': TARGETS,
  'plugins/channel-router/index.ts arrange': TARGETS,
  'plugins/key-policy/pattern.ts compilePattern': ON,
  'plugins/rate-limit.ts show': 'the windows of one key',
  'plugins/responses-to-messages/output.ts complete': 'at most 1000 calls of an answer wait',
  'plugins/responses-to-messages/own-tools.ts namesIn': BODY,
  'plugins/responses-to-messages/shape.ts spellingsOf': 'at most two spellings of one tool',
  'plugins/responses-to-messages/state.ts all': ONCE,
  'plugins/responses-to-messages/state.ts chain': MAP,
  'plugins/responses-to-messages/state.ts load': MAP,
  'plugins/responses-to-messages/tool-names.ts give': 'a name of at most 64 characters, and a new one is free',
  'plugins/schema-validate/least-tokens.ts addContent': BODY,
  'plugins/schema-validate/least-tokens.ts addText': ON,
  'plugins/schema-validate/limits.ts imageIn': BODY,
  'plugins/schema-validate/requests.ts compile': START,
  'plugins/schema-validate/requests.ts nameOptional': CODE,
  'src/accounts/directory.ts freeze': 'a record of the schema, which has few levels',
  'src/accounts/directory.ts load': CODE,
  'src/accounts/directory.ts refresh': LATER,
  'src/admin/api/accounts.ts mayBeOthers': 'parts of an id of at most 128 characters',
  'src/admin/api/answers.ts object': CODE,
  'src/admin/api/answers.ts settings': CODE,
  'src/admin/api/api.ts constructor': START,
  'src/admin/api/csv.ts csvOf': `each row is read once, and ${ROPE}`,
  'src/admin/api/events.ts lookAgain': LATER,
  'src/admin/api/operation.ts readQuery': CODE,
  'src/admin/api/schemas.ts patch': CODE,
  'src/admin/api/schemas.ts toPlain': CODE,
  'src/admin/api/series.ts answer': CODE,
  'src/admin/api/series.ts readAsked': CODE,
  'src/admin/api/series.ts rowsOf': ONCE,
  'src/admin/api/series.ts seriesCsv': CODE,
  'src/admin/api/trial.ts isOf': 'a digest of 32 bytes',
  'src/admin/api/upstreams.ts upstreamOperations': ONCE,
  'src/admin/web/files.ts closure': START,
  'src/admin/web/files.ts forBrowsers': START,
  'src/admin/web/web.ts given': CODE,
  'src/base/digits.ts behindString': 'the backslashes before one quote',
  'src/base/digits.ts firstInput': ON,
  'src/base/digits.ts marked': ON,
  'src/base/field-characters.ts (file)': START,
  'src/base/json-bytes.ts text': PIECES,
  'src/base/json-bytes.ts whole': 'a number of at most 16 digits',
  'src/base/json-limits.ts isHarmless': ON,
  'src/base/json-limits.ts skipString': ON,
  'src/base/json-path.ts pathTo': BODY,
  'src/base/json.ts briefly': DEPTH,
  'src/base/lines.ts linesOf': ON,
  'src/base/package.ts findPackage': 'folders above the package',
  'src/base/pieces.ts piecesOf': PIECES,
  'src/base/redact.ts redact': 'a text of at most 4000 characters, and the secrets of one upstream',
  'src/base/request-id.ts beginningOfIds': 'nine digits',
  'src/base/request-id.ts timeOfRequestId': CODE,
  'src/base/secrets.ts randomSecret': '32 characters',
  'src/catalog/channels.ts choose': TARGETS,
  'src/core/body-memory.ts copy': PIECES,
  'src/core/body-memory.ts copySome': PIECES,
  'src/core/client-address.ts clientAddress': ON,
  'src/core/conversation.ts beginOf': 'at most as many characters as asked for',
  'src/core/conversation.ts endOf': 'at most as many characters as asked for',
  'src/core/error-meanings.ts rowFor': 'rows of the code, and a text of at most 8000 characters',
  'src/core/exchange.ts tellAll': 'listeners of one exchange',
  'src/core/failed-attempt.ts withoutTags': ON,
  'src/core/large-strings.ts base64Among': 'each piece is read once',
  'src/core/large-strings.ts join': ON,
  'src/core/large-strings.ts lift': 'a large string has 64 KiB, so there are few',
  'src/core/name-cause.ts nameCause': 'causes of one error',
  'src/core/not-found.ts foreignHint': CODE,
  'src/core/not-found.ts nowhere': CODE,
  'src/core/quotes.ts runs': 'each block is compared at 8 places: row withoutQuotes',
  'src/core/quotes.ts shortQuotes': 'at most 19 characters at each place',
  'src/core/quotes.ts textsOf': BODY,
  'src/core/quotes.ts without': ROPE,
  'src/core/router.ts findPattern': 'routes of the configuration, each reads the address once',
  'src/core/router.ts methodsAt': CODE,
  'src/core/sse.ts join': ON,
  'src/core/sse.ts readBytes': ON,
  'src/core/sse.ts readText': ON,
  'src/core/vendor-error.ts isErrorBody': 'the first items of lists: row vendor errors',
  'src/core/vendor-error.ts read': DEPTH,
  'src/endpoints/openapi.ts readSchemas': START,
  'src/endpoints/openapi.ts shapeOf': START,
  'src/endpoints/openapi.ts standard': START,
  'src/endpoints/input-tokens.ts estimateInputTokens': PIECES,
  'src/endpoints/question.ts (file)': CODE,
  'src/gateway/bodies/thread-pool.ts next': 'threads of the pool',
  'src/gateway/bodies/thread.ts changesOf': 'the facts of one exchange',
  'src/http/lane/head-lines.ts write': PIECES,
  'src/http/lane/read-request.ts anew': 'each line is read once',
  'src/http/lane/response.ts writeHead': 'called once more, with another form of its fields',
  'src/http/response-writer.ts all': PIECES,
  'src/http/response-writer.ts head': 'called once more, with other fields',
  'src/http/server.ts listen': CODE,
  'src/media/disk.ts start': ONCE,
  'src/media/fetch-image.ts follow': CODE,
  'src/media/image-delivery.ts decode': 'what is left of a piece has at most 3 characters',
  'src/media/image-type.ts isSvg': ON,
  'src/media/video-poller.ts next': 'the engine takes the first item of a list without copying the rest',
  'src/money/price.ts divisorOf': 'Euclid: as many steps as digits, of which there are 9',
  'src/money/price.ts unpricedExtras': FIELDS,
  'src/money/usage.ts readPasses': FIELDS,
  'src/money/usage.ts readUsage': FIELDS,
  'src/pipeline/attempt.ts onEvents': ONCE,
  'src/pipeline/dry-run.ts rehearse': 'the facts of one exchange',
  'src/pipeline/idempotency.ts countValues': BODY,
  'src/pipeline/idempotency.ts slicesOf': PIECES,
  'src/pipeline/pipeline.ts runDown': MAP,
  'src/pipeline/relay.ts pass': 'as many levels as plugins',
  'src/pipeline/relay.ts take': 'events of one chunk of at most 64 KiB',
  'src/telemetry/families.ts cell': 'once more, with other labels',
  'src/telemetry/families.ts retain': 'labels of one family',
  'src/telemetry/families.ts start': 'at most 2000 cells, of values in the configuration',
  'src/telemetry/lately.ts sum': CODE,
  'src/telemetry/log-output.ts linesIn': ON,
  'src/telemetry/log.ts censor': DEPTH,
  'src/telemetry/merged-metrics.ts add': CODE,
  'src/telemetry/metrics.ts of': 'once more, with other labels',
  'src/telemetry/pretty-log.ts lines': ROPE,
  'src/telemetry/requests/request-log.ts before': PIECES,
  'src/telemetry/requests/request-log.ts sweep': LATER,
  'src/telemetry/requests/request-log.ts trim': 'names of files',
  'src/telemetry/requests/search.ts look': 'names of files',
  'src/telemetry/requests/search.ts read': 'the fields of a query, in one line',
  'src/telemetry/requests/search.ts take': ON,
  'src/tokens/bound.ts add': BODY,
  'src/tokens/text-count.ts (file)': START,
  'src/tokens/text-count.ts count': PIECES,
  'src/upstream/dialects/chat/answer.ts readSpoken': ROPE,
  'src/upstream/dialects/chat/conversation.ts addAnswer': ROPE,
  'src/upstream/dialects/functions.ts isClosed': DEPTH,
  'src/upstream/dialects/json.ts parsedInput': 'once more, with the part that is whole',
  'src/upstream/dialects/messages/property-names.ts push': ROPE,
  'src/upstream/dialects/messages/beta-fields.ts changed': 'once, with the first one that changes',
  'src/upstream/dialects/messages/beta-fields.ts removalFor': 'rows of a table that stands in the code, each once',
  'src/upstream/dialects/messages/blocks.ts fill': FIELDS,
  'src/upstream/dialects/messages/end-space.ts trimmed': 'once more, with the text of a block',
  'src/upstream/dialects/messages/thoughts.ts beginOfLoop': 'both go on at the same place',
  'src/upstream/dialects/messages/thoughts.ts ownThoughts': 'each block is read once',
  'src/upstream/dialects/responses/client-tools.ts declare': MAP,
  'src/upstream/dialects/tool-names.ts renamed': BODY,
  'src/upstream/dialects/tool-names.ts shortNames': 'once more, where a hash is taken',
  'src/upstream/dialects/videos/index.ts idIn': CODE,
  'src/upstream/dialects/videos/report.ts partsOf': DEPTH,
  'src/upstream/dialects/videos/report.ts saying': DEPTH,
  'src/upstream/dialects/whole-turns.ts withoutBlanks': BODY,
  'src/upstream/dialects/whole-characters.ts complete': 'once more, without the half of a character',
  'src/upstream/limits/health.ts reset': TARGETS,
  'src/upstream/limits/health.ts retain': TARGETS,
  'src/upstream/limits/health.ts targets': TARGETS,
  'src/upstream/limits/queue.ts letIn': LATER,
  'src/upstream/limits/sliding-window.ts drop': 'one item a second',
  'src/upstream/passthrough/error-body.ts decoded': 'one chunk of a stream',
  'src/upstream/passthrough/flight.ts awaitHead': LATER,
  'src/upstream/transport/addresses.ts tryNext': LATER,
  'src/upstream/transport/encode-body.ts constructor': PIECES,
  'src/upstream/transport/encode-body.ts fieldParts': BODY,
  'src/upstream/transport/headers.ts joinedBetas': 'names of the configuration',
  'src/upstream/transport/lane/answer-reader.ts readChunks': PIECES
}

t.test('each place that can cost a square has a reason, and each reason a place', async (t) => {
  const found = squaresOf(packageRoot, ROOMS).filter(({ at }) => !at.startsWith('src/admin/web/ui/'))
  t.strictSame(
    found.filter(({ at }) => HARMLESS[at] === undefined).map(({ at, line, what }) =>
      `${at}, line ${line}: ${what}. Read once and remember, with a Map or a Set; or add to this list why the text ` +
      'or list is short, and a row to growth.test.ts'),
    []
  )
  const there = new Set(found.map(({ at }) => at))
  t.strictSame(Object.keys(HARMLESS).filter((at) => !there.has(at)), [], 'reasons without a place')
})

t.test('the finder finds squares of each kind', async (t) => {
  const found = (code: string): readonly string[] =>
    squaresIn('a.ts', code).map(({ at, what }) => `${at.split(' ')[1]!}: ${what}`)
  t.strictSame(found('function f (a, b) { for (const x of a) b.includes(x) }'), ['f: includes in a loop'])
  t.strictSame(found('class C { m (a, b) { return a.map((x) => b.find((y) => y === x)) } }'), ['m: find in a loop'])
  t.strictSame(found('function f (a) { while (a.length > 0) a.shift() }'), ['f: shift in a loop'])
  t.strictSame(found('function f (a, b) { for (const x of a) JSON.stringify(b) }'), ['f: stringify in a loop'])
  t.strictSame(found('function f (a, b) { for (const x of a) for (const y of b) g(y) }'), ['f: a loop in a loop'])
  t.strictSame(found('function f (a) { let t = ""; for (const x of a) t += x }'), ['f: += of a text in a loop'])
  t.strictSame(found('function f (a) { let t = ""; for (const x of a) t = x + t }'), ['f: += of a text in a loop'])
  t.strictSame(found('function f (a) { let t = []; for (const x of a) t = [...t, x] }'),
    ['f: a copy with one more in a loop'])
  t.strictSame(found('function f (a) { return a.reduce((all, x) => ({ ...all, x }), {}) }'),
    ['f: a copy with one more in a loop'])
  t.strictSame(found('function f (a) { return a && f(a.next) }'), ['f: calls itself'])
  t.strictSame(found('class C { #m () { this.#m() } m () { this.#m() } }'), ['m: calls itself'])
  t.strictSame(found('function f (a) { const g = (b) => g(b.next); return g(a) }'), ['f: calls itself'])
})

t.test('what each turn reads of its own is no square', async (t) => {
  const found = (code: string): readonly unknown[] => squaresIn('a.ts', code)
  t.strictSame(found('function f (a) { return a.indexOf(1) + a.filter(Boolean).length }'), [])
  t.strictSame(found('function f (a) { for (const { x } of a) for (const y of x.list) y.join() }'), [])
  t.strictSame(found('function f (a) { for (let i = 0; i < a.length; i++) { const x = a[i]; x.trim() } }'), [])
  t.strictSame(found('function f (a) { return a.map((x) => Object.keys(x).map((y) => y.split(","))) }'), [])
})
