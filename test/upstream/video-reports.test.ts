// What upstreams say about video tasks, by the words and shapes of vendors.
import fc from 'fast-check'
import t from 'tap'
import { dialect, createdId } from '../../src/upstream/dialects/videos/index.ts'
import { readAcceptance, readPoll, readReport } from '../../src/upstream/dialects/videos/report.ts'
import { statusOf } from '../../src/upstream/dialects/videos/statuses.ts'
import { deliveryOf } from '../../src/media/video.ts'
import { acceptances, videoAnswers } from '../fixtures/vendors/videos.ts'

t.test('F7: an answer of each vendor', async (t) => {
  for (const { vendor, body, report: { error, ...expected } } of videoAnswers) {
    const { error: told, ...report } = readReport(body)
    const name = `${vendor}: ${JSON.stringify(body).slice(0, 80)}`
    t.strictSame(report, { progress: report.progress, ...expected }, name)
    t.equal(told?.code, error?.code, name)
  }
})

t.test('F7: the id of a task, as each vendor gives it', async (t) => {
  for (const [vendor, json, id] of acceptances) t.equal(createdId(dialect.decodeTask!([Buffer.from(json)])), id, vendor)
  for (const json of ['{}', '[]', '{"id":""}', '{"id":".."}', '{"id":"a/b"}', '{"id":null}', '{"id":true}']) {
    t.throws(() => dialect.decodeTask!([Buffer.from(json)]), json)
  }
})

t.test('F7: "success" with an acceptance is about the request, unless there is a file', async (t) => {
  t.equal(readAcceptance({ id: '1', status: 'success' }), undefined)
  t.equal(readAcceptance({ status: 'ok', data: { task_id: '1' } }), undefined)
  t.match(readAcceptance({ id: '1', status: 'success', video: { url: 'https://a.example/1.mp4' } }),
    { status: 'completed' })
  t.match(readAcceptance({ id: '1', status: 'succeeded' }), { status: 'completed' })
  t.match(readAcceptance({ status: 'success', data: { task_id: '1', status: 'failed' } }), { status: 'failed' })
  t.equal(readAcceptance({ id: '1' }), undefined)
})

t.test('F7: an error about the question is not one of the task', async (t) => {
  for (const error of [{ code: 429, message: 'Too many requests' }, { message: 'Invalid API key' }, 'overloaded',
    { type: 'authentication_error' }]) {
    t.throws(() => readReport({ error }), { message: 'the answer is an error about the question' })
  }
  t.match(readReport({ error: { code: 500, message: 'The generation failed.' } }), { status: 'failed' })
  t.match(readReport({ error: 'refused' }), { status: 'failed' })
  for (const none of ['', null, {}, [], 0, false, { code: 0, message: 'success' }, { code: '', message: '' }]) {
    t.throws(() => readReport({ id: '1', error: none }), { message: 'the answer is no video task' })
    t.match(readReport({ id: '1', error: none, status: 'COMPLETED' }), { status: 'completed' })
  }
})

t.test('F7: the status of an answer about a task', async (t) => {
  for (const body of ['', {}, { status: 'resting' }, { status: 'pending' }]) {
    t.match(readPoll({ status: 202, body }), { status: /^(?:queued|in_progress)$/ })
  }
  t.match(readPoll({ status: 202, body: { status: 'failed' } }), { status: 'failed' })
  t.match(readPoll({ status: 422, body: { id: '1', status: 'ERROR', error: 'no' } }), { status: 'failed' })
  for (const body of [{ error: 'no such version' }, { status: 'completed' }, 'no']) {
    t.throws(() => readPoll({ status: 400, body }), { message: 'status 400' })
  }
  t.throws(() => readPoll({ status: 500, body: { status: 'failed' } }), { message: 'status 500' })
})

t.test('F7: a creation that is an error is that error', async (t) => {
  for (const json of ['{"error":{"message":"no","code":"x"}}', '{"error":"no"}', '[{"error":{"code":400}}]',
    '{"base_resp":{"status_code":1004,"status_msg":"no"}}']) {
    t.throws(() => dialect.decodeTask!([Buffer.from(json)]), { message: 'the answer is an error' }, json)
  }
})

const WORDS = ['queued', 'In-Queue', 'IN_PROGRESS', 'generating', 'SUCCESS', 'done', 'Completed', 'FAILURE',
  'TASK_STATUS_SUCCEED', 'JOB_STATE_FAILED', 'resting', 'UNKNOWN', '', '成功']
const link = 'https://cdn.example.com/1.mp4'
const FILES: readonly object[] = [{ video: { url: link } }, { video_url: link }, { videos: [{ url: link }] },
  { output: [link] }, { output: link }, { result: { video: { uri: link } } }, { content: { video_url: link } },
  { response: { generatedVideos: [{ video: { uri: link } }] } }, { video_result: [{ url: link }] }]
const ERRORS: readonly object[] = [{ error: 'no' }, { error: { code: 'x', message: 'no' } }, { error: { code: 13 } },
  { failure: 'no' }, { fail_reason: 'no' }, { base_resp: { status_code: 2013, status_msg: 'no' } }]
const AROUND: ReadonlyArray<(task: object) => object> = [(task) => task, (data) => ({ data }),
  (data) => ({ code: 0, status: 'success', message: 'ok', data }), (output) => ({ request_id: 'r', output }),
  (task) => ({ task }), (data) => ({ data: [data] }), (data) => ({ data: { data } })]

t.test('F7: no word holds money where the answer has a file or an error, in any shape', async () => {
  fc.assert(fc.property(
    fc.record({
      word: fc.oneof(fc.constantFrom(...WORDS), fc.string({ maxLength: 12 })),
      name: fc.constantFrom('status', 'state', 'task_status', 'taskStatus', 'Status'),
      file: fc.option(fc.constantFrom(...FILES), { nil: {} }),
      error: fc.option(fc.constantFrom(...ERRORS), { nil: {} }),
      around: fc.constantFrom(...AROUND)
    }),
    ({ word, name, file, error, around }) => {
      const known = statusOf(word)
      const hasFile = Object.keys(file).length > 0
      const hasError = Object.keys(error).length > 0
      const expected = known === 'queued' || known === 'in_progress' || known === 'failed'
        ? known
        : hasFile ? 'completed' : hasError ? 'failed' : known ?? 'unheard'
      const body = around({ id: '1', [name]: word, ...error, ...file })
      if (expected === 'unheard' && word === '') return
      const { status, error: told } = readReport(body)
      if (status !== expected) throw new Error(`${status} in the place of ${expected}: ${JSON.stringify(body)}`)
      if ((status === 'failed') !== (told !== undefined)) throw new Error('a failure has an error')
    }
  ), { numRuns: 3000 })
})

t.test('F7: any JSON is a report or an error', async () => {
  fc.assert(fc.property(fc.jsonValue(), (body) => {
    try {
      return typeof readReport(body).progress === 'number'
    } catch (err) {
      return err instanceof Error && err.message.startsWith('the answer is ')
    }
  }), { numRuns: 1000 })
})

t.test('U6: the delivered seconds, by the names of vendors', async (t) => {
  const seconds = (more: object): number | undefined => readReport({ id: '1', status: 'completed', ...more }).seconds
  t.equal(seconds({ seconds: '5' }), 5)
  t.equal(seconds({ duration: 5 }), 5)
  t.equal(seconds({ duration: '5s' }), 5)
  t.equal(seconds({ seconds: '8', video: { duration: 5 } }), 5, 'what was delivered, not what was ordered')
  t.equal(seconds({ usage: { video_duration: 5 } }), 5)
  t.equal(seconds({ data: { videos: [{ duration: '5.1' }] } }), 5)
  t.equal(seconds({ duration: 0.2 }), 1)
  for (const none of [0, -5, null, '', 'short', '1e3', {}, true]) t.equal(seconds({ duration: none }), undefined)
})

t.test('U6: the smaller is billed, and never more than is held', async (t) => {
  fc.assert(fc.property(
    fc.record({ ordered: fc.integer({ min: 1, max: 60 }), delivered: fc.option(fc.integer({ min: 1, max: 120 })),
      perSecond: fc.bigInt({ min: 0n, max: 10n ** 13n }) }),
    ({ ordered, delivered, perSecond }) => {
      const price = (seconds: number): bigint => (perSecond * BigInt(seconds) + 500n) / 1000n
      const held = price(ordered)
      const { seconds, nanos } = deliveryOf({ seconds: String(ordered), per_second: String(perSecond) }, held,
        delivered ?? undefined)
      const billed = Math.min(ordered, delivered ?? ordered)
      return seconds === String(billed) && nanos === price(billed) && nanos <= held
    }
  ))
  t.strictSame(deliveryOf({ seconds: '8', cost: '800' }, 1000n, 5), { seconds: '8', nanos: 1000n, cost: 800n },
    'a task of an older version')
  t.strictSame(deliveryOf({ seconds: '8', per_second: '100', cost: '800' }, 1n, 5),
    { seconds: '5', nanos: 1n, cost: 500n })
  t.strictSame(deliveryOf({ seconds: '' }, 0n, 5), { seconds: '5', nanos: 0n })
})
