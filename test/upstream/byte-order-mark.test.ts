// A7: one byte order mark before JSON is ignored, wherever JSON comes from outside.
import t from 'tap'
import { dialectNames } from '../../src/config/sections/dialects.ts'
import { parseJson } from '../../src/base/json.ts'
import { clientStyles, styles } from '../support/client-styles.ts'
import { allKinds, kindsYaml } from '../support/all-kinds.ts'
import { gateway, KEY } from '../support/gateway.ts'
import { type Received, type Script, step, upstream } from '../support/upstream.ts'
import { vendorAnswers } from '../fixtures/vendors/answers.ts'

const MARK = '\uFEFF'

t.test('A7: one mark, and no more', async (t) => {
  t.strictSame(parseJson(`${MARK}{"a":1}`), { a: 1 })
  t.strictSame(parseJson('{"a":1}'), { a: 1 })
  t.throws(() => parseJson(`${MARK}${MARK}{}`), SyntaxError)
})

t.test('A7: clients send it, in each style, on the loop and in threads', async (t) => {
  const vendor = await upstream(t, allKinds)
  for (const largeBody of [undefined, 1]) {
    const gw = await gateway(t, kindsYaml(vendor.url), { ...(largeBody !== undefined && { largeBody }) })
    for (const style of styles) {
      const { path, asking } = clientStyles[style]
      const body = asking({ model: 'sonnet', max_tokens: 50, messages: [{ role: 'user', content: 'Hello' }] })
      const answer = await fetch(gw.url + path, { method: 'POST', body: MARK + JSON.stringify(body),
        headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' } })
      t.equal(answer.status, 200, `${style}: ${await answer.text()}`)
    }
  }
})

t.test('A7: upstreams of each dialect send it, and are asked once', async (t) => {
  const marked = (body: unknown): Script => step(({ response }) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(MARK + JSON.stringify(body))
  })
  const text = (dialect: string): unknown => vendorAnswers.find((one) => one.dialect === dialect)?.reply
  const answers: Readonly<Record<string, unknown>> = { messages: text('messages'), chat: text('chat'),
    responses: text('responses'), images: { created: 1, data: [{ b64_json: 'iVBORw0KGgo=' }] },
    videos: { id: 'video_1', object: 'video', status: 'queued', progress: 0 } }
  t.strictSame(Object.keys(answers).toSorted(), [...dialectNames].toSorted(),
    'each dialect has an answer in `answers`, and an upstream and a model below it, in this file')
  const vendor = await upstream(t, ({ path }: Received) => marked(answers[path.split('/')[1]!]))
  const yaml = kindsYaml(vendor.url).replace(/^ {2}one: .*$/m, `  one: { url: "${vendor.url}/messages" }
  chatty: { url: "${vendor.url}/chat", dialect: chat }
  respondent: { url: "${vendor.url}/responses", dialect: responses }`)
    .replaceAll('/painter"', '/images"').replaceAll('/studio"', '/videos"')
    .replace('upstream: one, model: vendor-opus', 'upstream: chatty, model: vendor-opus')
    .replace('upstream: one, model: vendor-big', 'upstream: respondent, model: vendor-big')
  // Not the polls of the video, which come when they like.
  const posts = (): number => vendor.requests.filter(({ method }) => method === 'POST').length
  for (const largeBody of [undefined, 1]) {
    const gw = await gateway(t, yaml, { ...(largeBody !== undefined && { largeBody }) })
    for (const [path, model, more] of [['/v1/messages', 'sonnet', {}], ['/v1/messages', 'opus', {}],
      ['/v1/messages', 'both', {}], ['/v1/images/generations', 'nano', { prompt: 'A cat' }],
      ['/v1/videos', 'clip', { prompt: 'A cat' }]] as const) {
      const before = posts()
      const body = path === '/v1/messages'
        ? { model, max_tokens: 500, messages: [{ role: 'user', content: 'Hello' }] }
        : { model, ...more }
      const answer = await fetch(gw.url + path, { method: 'POST', body: JSON.stringify(body),
        headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' } })
      t.equal(answer.status, 200, `${path} ${model}: ${await answer.text()}`)
      t.equal(posts() - before, 1, `${path} ${model}: one request`)
    }
  }
})
