// What src/endpoints/forwarded.md shows, as it stands there: each addition to gateway.yaml, and what an unmodified SDK
// of its vendor does with it, against a vendor on loopback. And what the vendor and the ledger see of it.
import Anthropic from '@anthropic-ai/sdk'
import OpenAI, { toFile } from 'openai'
import t, { type Test } from 'tap'
import { parse, stringify } from 'yaml'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { made, settings } from '../support/agents.ts'
import { json, raw, sse, status, step, upstream, wait, type Received, type Script,
  type Upstream } from '../support/upstream.ts'

const PAGE = 'src/endpoints/forwarded.md'
const SECRETS = { OPENAI_API_KEY: 'vendor-o', COHERE_API_KEY: 'vendor-c', ANTHROPIC_API_KEY: 'vendor-a' }
const SOUND = Buffer.from(Array.from({ length: 70_000 }, (_, i) => i % 251))

/** The sections of the page, in their order. */
const sections = ['embeddings', 'rerank', 'sound', 'openai', 'anthropic'] as const
type Section = typeof sections[number]

interface Setup { readonly gw: TestGateway, readonly up: Upstream }

/** A gateway with the addition of a section, in front of a vendor of the test. */
async function start (t: Test, section: Section, script: Parameters<typeof upstream>[1] = vendor): Promise<Setup> {
  const up = await upstream(t, script)
  const added = parse(settings(PAGE, 'yaml', undefined, sections.indexOf(section))
    .replace(/https:\/\/api\.[a-z.]+/g, up.url)) as Readonly<Record<string, object>>
  const whole = parse(yaml([up.url])) as Record<string, object>
  whole['upstreams'] = { ...whole['upstreams'], ...added['upstreams'] }
  return { up, gw: await gateway(t, stringify({ ...whole, routes: added['routes'] }), { env: SECRETS }) }
}

/** What the section's client has made. */
async function run<T> (
  setup: Setup,
  section: Section,
  names: readonly string[],
  change: (code: string) => string = (code) => code
): Promise<T> {
  return await made<T>(PAGE, setup, names, { nth: sections.indexOf(section), change })
}

/** What each call was charged, by its route: those that cost something. */
async function charges ({ gw }: Setup): Promise<readonly string[]> {
  const found: string[] = []
  for await (const { kind, nanos, model } of gw.services.store.entries()) {
    if (kind === 'settle' && nanos !== 0n) found.push(`${model} ${-nanos}`)
  }
  return found
}

/** The calls that came, each with the vendor's own key, and with none of the client's. */
function calls (t: Test, { up }: Setup): readonly string[] {
  for (const { headers, rawHeaders } of up.requests) {
    const secret = headers['x-api-key'] ?? headers.authorization
    t.ok(Object.values(SECRETS).some((known) => secret === known || secret === `Bearer ${known}`), 'our account')
    t.notMatch(rawHeaders.join('\n'), new RegExp(KEY), 'the key of the client')
  }
  return up.requests.map(({ method, url }) => `${method} ${url}`)
}

const LIST = { object: 'list', has_more: false }
const file = { id: 'file_1', object: 'file', type: 'file', filename: 'f', bytes: 5, size_bytes: 5, created_at: 1,
  purpose: 'batch' }
const openaiBatch = { id: 'batch_1', object: 'batch', status: 'completed', input_file_id: 'file_1',
  output_file_id: 'file_2' }
const anthropicBatch = { id: 'msgbatch_1', type: 'message_batch', processing_status: 'ended',
  results_url: 'https://api.anthropic.com/v1/messages/batches/msgbatch_1/results' }

/** Answers as the vendors do. */
function vendor (received: Received): Script {
  const { method, path, body, headers } = received
  const isAnthropic = headers['x-api-key'] === SECRETS.ANTHROPIC_API_KEY
  if (isAnthropic && headers['anthropic-version'] === undefined) return refusal('anthropic-version: header is required')
  if (isAnthropic && path.startsWith('/v1/files') && headers['anthropic-beta'] !== 'files-api-2025-04-14') {
    return refusal('files want their beta')
  }
  switch (`${method} ${path}`) {
    case 'POST /v1/embeddings': {
      // as floats in base64, which the SDK asks for
      const floats = Buffer.from(new Float32Array([0.5, -1]).buffer).toString('base64')
      return json({ object: 'list', model: body!['model'], usage: { prompt_tokens: 4, total_tokens: 4 },
        data: (body!['input'] as readonly string[]).map((_, index) => ({ object: 'embedding', index,
          embedding: body!['encoding_format'] === 'base64' ? floats : [0.5, -1] })) })
    }
    case 'POST /v1/moderations': return json({ id: 'modr_1', model: body!['model'], results: [{ flagged: false }] })
    case 'POST /v2/rerank':
      return json({ results: [{ index: 1, relevance_score: 0.9 }], meta: { billed_units: { search_units: 1 } } })
    case 'POST /v1/audio/speech': return [status(200, { 'content-type': 'audio/mpeg' }), raw(SOUND)]
    case 'POST /v1/audio/transcriptions': return json({ text: `${partOf(received, 'hello.mp3').length} bytes` })
    case 'POST /v1/files':
      return isAnthropic
        ? json({ ...file, size_bytes: partOf(received, 'notes.txt').length })
        : json({ ...file, bytes: partOf(received, 'requests.jsonl').length })
    case 'GET /v1/files': return json({ ...LIST, data: [file], first_id: 'file_1', last_id: 'file_1' })
    case 'GET /v1/files/file_1/content':
    case 'GET /v1/files/file_2/content': return [status(200, { 'content-type': 'application/binary' }), raw('{"a":1}\n')]
    case 'DELETE /v1/files/file_1': return json({ id: 'file_1', object: 'file', type: 'file_deleted', deleted: true })
    case 'POST /v1/batches': return json({ ...openaiBatch, status: 'validating', output_file_id: undefined })
    case 'GET /v1/batches/batch_1': return json(openaiBatch)
    case 'POST /v1/messages/batches': return json({ ...anthropicBatch, processing_status: 'in_progress', results_url: null })
    case 'GET /v1/messages/batches/msgbatch_1': return json(anthropicBatch)
    case 'GET /v1/messages/batches/msgbatch_1/results':
      return [status(200, { 'content-type': 'application/x-jsonl' }), raw('{"custom_id":"first"}\n{"custom_id":"second"}\n')]
    default: return json({ error: { message: `there is no ${method} ${path}`, type: 'not_found_error' } }, 404)
  }
}

function refusal (message: string): Script {
  return json({ type: 'error', error: { type: 'invalid_request_error', message } }, 400)
}

/** The bytes of a form's file, which is that of its name. */
function partOf ({ bytes, headers }: Received, filename: string): Buffer {
  const boundary = `\r\n--${/boundary="?([^";]+)/.exec(String(headers['content-type']))![1]!}`
  const head = bytes.indexOf(`filename="${filename}"`)
  if (head === -1) throw new Error(`no file ${filename} in ${bytes.toString('latin1').slice(0, 500)}`)
  const at = bytes.indexOf('\r\n\r\n', head) + 4
  return bytes.subarray(at, bytes.indexOf(boundary, at))
}

const MAJORS = { openai: ['openai', 'openai-6'], anthropic: ['@anthropic-ai/sdk', 'anthropic-sdk-0'] } as const
/** The page's code with another major of its SDK. */
const swap = (from: string, to: string) => (code: string): string => code.replace(`'${from}'`, `'${to}'`)

for (const sdk of MAJORS.openai) {
  const change = swap('openai', sdk)
  t.test(`${sdk}: embeddings and moderations`, async (t) => {
    const setup = await start(t, 'embeddings')
    const { embedded, moderated } = await run<Record<string, object>>(setup, 'embeddings', ['embedded', 'moderated'], change)
    t.match(embedded, { data: [{ embedding: [0.5, -1] }, { embedding: [0.5, -1] }], usage: { total_tokens: 4 } })
    t.match(moderated, { results: [{ flagged: false }] })
    t.strictSame(calls(t, setup), ['POST /v1/embeddings', 'POST /v1/moderations'])
    t.strictSame(await charges(setup), ['POST /v1/embeddings 200000'])
  })

  t.test(`${sdk}: speech and transcription`, async (t) => {
    const setup = await start(t, 'sound')
    const { sound, text } = await run<{ sound: Buffer, text: string }>(setup, 'sound', ['sound', 'text'], change)
    t.ok(SOUND.equals(sound), 'byte for byte')
    t.equal(text, '70000 bytes')
    t.strictSame(calls(t, setup), ['POST /v1/audio/speech', 'POST /v1/audio/transcriptions'])
    t.match(setup.up.requests[0]!.body, { voice: 'alloy', input: 'Hello!' })
    t.strictSame(await charges(setup), ['POST /v1/audio/speech 30000000', 'POST /v1/audio/transcriptions 20000000'])
  })

  t.test(`${sdk}: files and batches`, async (t) => {
    const setup = await start(t, 'openai')
    const names = ['file', 'listed', 'batch', 'results', 'deleted', 'line']
    const got = await run<Record<string, object>>(setup, 'openai', names, change)
    t.match(got, { file: { id: 'file_1', bytes: JSON.stringify(got['line']).length }, listed: ['file_1'],
      batch: { status: 'completed', output_file_id: 'file_2' }, results: '{"a":1}\n', deleted: { deleted: true } })
    t.strictSame(calls(t, setup), ['POST /v1/files', 'GET /v1/files?purpose=batch', 'POST /v1/batches',
      'GET /v1/batches/batch_1', 'GET /v1/files/file_2/content', 'DELETE /v1/files/file_1'])
    t.match(setup.up.requests[2]!.body, { input_file_id: 'file_1', completion_window: '24h' })
    t.strictSame(await charges(setup), ['POST /v1/batches 5000000000'])
  })
}

t.test('cohere-ai: rerank', async (t) => {
  const setup = await start(t, 'rerank')
  const { results } = await run<{ results: object }>(setup, 'rerank', ['results'])
  t.strictSame(results, [{ index: 1, relevanceScore: 0.9 }])
  t.strictSame(calls(t, setup), ['POST /v2/rerank'])
  t.match(setup.up.requests[0]!.body, { query: 'purring', top_n: 1 })
  t.strictSame(await charges(setup), ['POST /v2/rerank 2500000'])
})

for (const sdk of MAJORS.anthropic) {
  t.test(`${sdk}: files and batches`, async (t) => {
    const setup = await start(t, 'anthropic')
    const names = ['file', 'listed', 'content', 'deleted', 'batch', 'results']
    const got = await run<Record<string, object>>(setup, 'anthropic', names, swap('@anthropic-ai/sdk', sdk))
    t.match(got, { file: { id: 'file_1', size_bytes: 6 }, listed: ['file_1'], content: '{"a":1}\n',
      deleted: { id: 'file_1' }, batch: { processing_status: 'ended' },
      results: [{ custom_id: 'first' }, { custom_id: 'second' }] })
    t.strictSame(calls(t, setup).map((call) => call.replace(/\?.*/, '')), ['POST /v1/files', 'GET /v1/files',
      'GET /v1/files/file_1/content', 'DELETE /v1/files/file_1', 'POST /v1/messages/batches',
      'GET /v1/messages/batches/msgbatch_1', 'GET /v1/messages/batches/msgbatch_1',
      'GET /v1/messages/batches/msgbatch_1/results'])
    t.match(setup.up.requests[4]!.body, { requests: [{ custom_id: 'first' }] })
    t.strictSame(await charges(setup), ['POST /v1/messages/batches 5000000000'])
  })
}

t.test('sound and events arrive while they are made', async (t) => {
  const heard = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const
  const { gw } = await start(t, 'sound', ({ path }) =>
    path.endsWith('/speech')
      ? [status(200, { 'content-type': 'audio/mpeg' }), raw('one'), wait(heard[0].promise), raw('two')]
      : [sse('', { type: 'transcript.text.delta', delta: 'Hel' }), wait(heard[1].promise),
        sse('', { type: 'transcript.text.done', text: 'Hello' }), raw('data: [DONE]\n\n')])
  const openai = new OpenAI({ apiKey: KEY, baseURL: `${gw.url}/v1`, maxRetries: 0 })
  const speech = await openai.audio.speech.create({ model: 'm', voice: 'alloy', input: 'Hello' })
  let sound = ''
  for await (const piece of speech.body!) {
    sound += Buffer.from(piece).toString()
    if (sound === 'one') heard[0].resolve()
  }
  t.equal(sound, 'onetwo')
  const events: string[] = []
  const stream = await openai.audio.transcriptions.create({ model: 'm', stream: true,
    file: await toFile(Buffer.from('sound'), 'a.mp3') })
  for await (const { type } of stream) {
    events.push(type)
    heard[1].resolve()
  }
  t.strictSame(events, ['transcript.text.delta', 'transcript.text.done'])
})

t.test('refusals are what the SDKs take them for, and cost nothing', async (t) => {
  const setup = await start(t, 'anthropic')
  const anthropic = new Anthropic({ apiKey: KEY, baseURL: setup.gw.url, maxRetries: 0 })
  await t.rejects(Promise.resolve(anthropic.beta.files.list()), { status: 400, message: /files want their beta/ })
  await t.rejects(Promise.resolve(anthropic.messages.batches.retrieve('msgbatch_2')),
    { status: 404, message: /there is no GET/ })
  const other = await start(t, 'openai', step(({ response }) => {
    response.writeHead(401, { 'content-type': 'application/json' }).end('{"error":{"message":"Incorrect API key"}}')
  }))
  const openai = new OpenAI({ apiKey: KEY, baseURL: `${other.gw.url}/v1`, maxRetries: 0 })
  await t.rejects(Promise.resolve(openai.batches.create({ input_file_id: 'f', endpoint: '/v1/responses',
    completion_window: '24h' })), { status: 502, code: 'server_error' }, 'our account there is nothing of the client\'s')
  const nobody = new OpenAI({ apiKey: `sk-gw-${'x'.repeat(32)}`, baseURL: `${other.gw.url}/v1`, maxRetries: 0 })
  await t.rejects(Promise.resolve(nobody.files.list()), { status: 401, message: /key/i })
  t.strictSame([...await charges(setup), ...await charges(other)], [])
})
