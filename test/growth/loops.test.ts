// Where a loop searches a text or a list each time, its cost can grow with the square of what comes from outside. A
// tool finds these places (support/loops.ts), and this list says of each why it does not.
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { searchesIn, searchesInLoops } from '../support/loops.ts'

/**
 * Left out: `config` (config.test.ts has whole files of growing size), `store`, `cluster` and `gateway` (they read what
 * the gateway has written), `telemetry` (fields of bounded length), `simulator`, `commands` and `tools` (no text of
 * others), and the pages of `admin/web/ui`, which run in the operator's browser.
 */
const ROOMS = ['plugins', 'src/accounts', 'src/admin', 'src/base', 'src/catalog', 'src/core', 'src/endpoints',
  'src/http', 'src/media', 'src/money', 'src/pipeline', 'src/protocols', 'src/tokens', 'src/translation', 'src/upstream']

const ON = 'each search goes on behind the last one'
const CODE = 'the list stands in the code'
const TARGETS = 'the targets, channels and upstreams of one model'
const MAP = 'a look-up in a table'
const START = 'once, when the gateway starts or a configuration goes live'

/** By file and function: why the search costs no square. */
const HARMLESS: Readonly<Record<string, string>> = {
  'plugins/billing-meter/bounds.ts upstreamsOf': TARGETS,
  'plugins/billing-meter/surcharges.ts refuseSurcharges': CODE,
  'plugins/channel-router/balance.ts balance': TARGETS,
  'plugins/channel-router/index.ts arrange': TARGETS,
  'plugins/key-policy/pattern.ts compilePattern': ON,
  'plugins/responses-to-messages/output.ts complete': 'at most 1000 calls of an answer wait',
  'plugins/responses-to-messages/state.ts all': 'each item is read once',
  'plugins/responses-to-messages/state.ts chain': MAP,
  'plugins/responses-to-messages/state.ts load': MAP,
  'plugins/schema-validate/least-tokens.ts addText': ON,
  'plugins/schema-validate/requests.ts nameOptional': CODE,
  'src/accounts/directory.ts load': CODE,
  'src/admin/api/accounts.ts mayBeOthers': 'parts of an id of at most 128 characters',
  'src/admin/api/answers.ts object': CODE,
  'src/admin/api/answers.ts settings': CODE,
  'src/admin/api/api.ts constructor': START,
  'src/admin/api/api.ts find': CODE,
  'src/admin/api/explain.ts leftOut': TARGETS,
  'src/admin/api/operation.ts readQuery': CODE,
  'src/admin/api/prices.ts priceOperations': 'the channels of each model are read once',
  'src/admin/api/schemas.ts patch': CODE,
  'src/admin/api/series.ts readAsked': CODE,
  'src/admin/web/files.ts closure': START,
  'src/base/json-limits.ts isHarmless': ON,
  'src/base/json-limits.ts skipString': ON,
  'src/base/lines.ts linesOf': ON,
  'src/base/redact.ts redact': 'a text of at most 4000 characters, and the secrets of one upstream',
  'src/base/repeated-key.ts repeatedKeyInPieces': ON,
  'src/base/request-id.ts timeOfRequestId': CODE,
  'src/catalog/channels.ts choose': TARGETS,
  'src/core/client-address.ts clientAddress': ON,
  'src/core/failed-attempt.ts withoutTags': ON,
  'src/core/large-strings.ts base64Among': 'each piece is read once',
  'src/core/large-strings.ts hiddenBytes': ON,
  'src/core/large-strings.ts join': ON,
  'src/core/router.ts constructor': START,
  'src/core/router.ts findPattern': 'routes of the configuration, each reads the address once',
  'src/core/router.ts methodsAt': CODE,
  'src/core/sse.ts parseLines': 'each line is read once',
  'src/core/vendor-error.ts readWord': 'a word of at most 100 characters',
  'src/core/sse.ts readBytes': ON,
  'src/core/sse.ts readText': ON,
  'src/core/upstream-secrets.ts secretsOf': START,
  'src/endpoints/question.ts (file)': CODE,
  'src/http/lane/read-request.ts anew': 'each line is read once',
  'src/http/request-body.ts checkCharset': ON,
  'src/http/server.ts expectsMore': CODE,
  'src/http/server.ts listen': CODE,
  'src/media/disk.ts write': 'until 512 bytes are there',
  'src/media/fetch-image.ts follow': CODE,
  'src/media/image-delivery.ts fetchBase64': 'the rest of a chunk has at most 2 bytes',
  'src/media/image-type.ts isSvg': ON,
  'src/media/video-poller.ts next': 'the engine takes the first item of a list without copying the rest',
  'src/pipeline/dry-run.ts rehearse': 'the facts of one exchange',
  'src/pipeline/pipeline.ts runDown': MAP,
  'src/translation/settings.ts hasEmail': 'an id of at most 256 characters',
  'src/upstream/dialects/messages/thoughts.ts ownThoughts': 'each block is read once',
  'src/upstream/dialects/responses/client-tools.ts declare': MAP,
  'src/upstream/dialects/responses/input.ts answerItems': 'a list of one',
  'src/upstream/dialects/tool-changes.ts changesIn': 'each block is read once',
  'src/upstream/dialects/videos/report.ts linkIn': 'at most 8 items of a list',
  'src/upstream/dialects/videos/statuses.ts (file)': CODE,
  'src/upstream/limits/sliding-window.ts drop': 'one item a second',
  'src/upstream/passthrough/error-body.ts decoded': 'one chunk of a stream',
  'src/upstream/transport/headers.ts returnable': 'each value is read once, of a head of at most 16 KB',
  'src/upstream/transport/interim-heads.ts read': 'the first 12 bytes of a head'
}

t.test('each search in a loop has a reason, and each reason a search', async (t) => {
  const found = searchesInLoops(packageRoot, ROOMS).filter(({ at }) => !at.startsWith('src/admin/web/ui/'))
  t.strictSame(
    found.filter(({ at }) => HARMLESS[at] === undefined).map(({ at, line, method }) =>
      `${at}, line ${line}: ${method} in a loop. Search once and remember, with a Map or a Set; or add to this list ` +
      'why the text or list is short, and a row to growth.test.ts'),
    []
  )
  const there = new Set(found.map(({ at }) => at))
  t.strictSame(Object.keys(HARMLESS).filter((at) => !there.has(at)), [], 'reasons without a search')
})

t.test('the finder finds loops of each kind', async (t) => {
  const methods = (code: string): readonly string[] =>
    searchesIn('a.ts', code).map(({ at, method }) => `${at.split(' ')[1]!}: ${method}`)
  t.strictSame(methods('function f (a, b) { for (const x of a) b.includes(x) }'), ['f: includes'])
  t.strictSame(methods('class C { m (a, b) { return a.map((x) => b.find((y) => y === x)) } }'), ['m: find'])
  t.strictSame(methods('function f (a) { while (a.length > 0) a.shift() }'), ['f: shift'])
  t.strictSame(methods('function f (a) { return a.indexOf(1) + a.filter(Boolean).length }'), [])
})
