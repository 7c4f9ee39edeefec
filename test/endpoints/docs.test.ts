// Pages and the OpenAPI document for the operator's customers, on the public listener (server.public.docs).
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { docsNames } from '../../src/endpoints/docs.ts'
import { catalogue, type ErrorCode, GatewayError } from '../../src/errors.ts'
import { shipped } from '../support/docs-gateway.ts'

type Json = Readonly<Record<string, unknown>>

t.test('off, as where the setting is absent: neither is there', async (t) => {
  const gw = await shipped(t, '')
  for (const path of ['/docs', '/docs/', '/docs/quickstart', '/openapi.json']) {
    t.equal((await fetch(gw.urls.public + path, { redirect: 'manual' })).status, 404, path)
  }
})

t.test('each page, and each link of each page', async (t) => {
  const gw = await shipped(t, ', docs: true, name: "Acme <AI> & Co"')
  const start = `${gw.urls.public}/docs/`
  const redirected = await fetch(`${gw.urls.public}/docs`, { redirect: 'manual' })
  t.match([redirected.status, redirected.headers.get('location')], [308, 'docs/'])
  const pages = new Map<string, string>()
  for (const [page] of new Map([[start, '']])) await visit(page)
  async function visit (url: string): Promise<void> {
    if (pages.has(url)) return
    const response = await fetch(url)
    const html = await response.text()
    pages.set(url, html)
    t.equal(response.status, 200, url)
    t.match(Object.fromEntries(response.headers), { 'content-type': 'text/html; charset=utf-8',
      'x-content-type-options': 'nosniff', 'content-security-policy': /^default-src 'none'; .*style-src 'sha256-/ })
    t.notMatch(html, /<script|javascript:|\son\w+=|\{\{\w+\}\}|Acme <AI>/i, `${url}: no script, nothing left to fill in`)
    t.match(html, /<meta name="viewport" content="width=device-width, initial-scale=1">/)
    t.match(html, /Acme &lt;AI&gt; &amp; Co/)
    for (const [, href = ''] of html.matchAll(/href="([^"]*)"/g)) {
      if (/^(?:https?:|data:|#)/.test(href) || href.endsWith('openapi.json')) continue
      await visit(new URL(href, url).href.split('#')[0]!)
    }
  }
  t.strictSame([...pages.keys()].map((url) => decodeURI(url.slice(start.length))).toSorted(),
    [...docsNames()].map((name) => name === 'README' ? '' : name).toSorted(), 'the index leads to every page')
  for (const [url, html] of pages) {
    for (const [, href = ''] of html.matchAll(/href="([^"]*#[^"]*)"/g)) {
      const to = new URL(href, url)
      if (to.origin !== new URL(start).origin) continue
      t.match(pages.get(to.href.split('#')[0]!), `id="${to.hash.slice(1)}"`, `${url}: ${href}`)
    }
  }
  t.match(pages.get(`${start}quickstart`), 'https://api.acme.example/v1/chat/completions')
})

t.test('a page is sent once, and no other file is read', async (t) => {
  const gw = await shipped(t, ', docs: true')
  const url = `${gw.urls.public}/docs/quickstart`
  const first = await fetch(url)
  const etag = first.headers.get('etag')!
  for (const known of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
    const again = await fetch(url, { headers: { 'if-none-match': known } })
    t.strictSame([again.status, await again.text(), again.headers.get('etag')], [304, '', etag], known)
  }
  t.equal((await fetch(url, { headers: { 'if-none-match': '"other"' } })).status, 200)
  const head = await fetch(url, { method: 'HEAD' })
  t.strictSame([head.status, head.headers.get('content-length'), await head.text()],
    [200, String((await first.bytes()).length), ''])
  for (const path of ['README', 'quickstart.md', 'quickstart/', 'clients', 'clients/', 'none', '..%2fREADME',
    '%2e%2e/README', '..%2f..%2fpackage.json', 'clients/..%2fquickstart', 'quickstart%00', '%', '%ff', 'quickstart%2F..', '//etc/passwd',
    '__proto__', 'constructor', '.', '..', 'clients%2fcodex']) {
    const response = await fetch(`${gw.urls.public}/docs/${path}`)
    t.ok(response.status === 404 || response.status === 400 || new URL(response.url).pathname === '/docs/',
      `${path}: ${response.status}`)
  }
  t.equal((await fetch(url, { method: 'POST' })).status, 405)
  t.match(await (await fetch(`${gw.urls.public}/docs/`)).text(), '<strong>API documentation</strong>', 'a neutral name')
})

t.test('openapi.json describes each route, body and error, and is a document of OpenAPI 3.1', async (t) => {
  const gw = await shipped(t, ', docs: true, name: Acme')
  const response = await fetch(`${gw.urls.public}/openapi.json`)
  t.match([response.status, response.headers.get('access-control-allow-origin')], [200, '*'])
  const document = await response.json() as Json & { readonly paths: Readonly<Record<string, Json>>,
    readonly components: Readonly<Record<string, Readonly<Record<string, Json>>>> }
  t.match(document, { openapi: '3.1.0', info: { title: 'Acme' }, servers: [{ url: 'https://api.acme.example' }] })
  for (const [path, method] of [['/v1/messages', 'post'], ['/v1/messages/count_tokens', 'post'],
    ['/v1/responses', 'post'], ['/v1/chat/completions', 'post'], ['/v1/models', 'get'], ['/v1/models/{id}', 'get'],
    ['/v1/images/generations', 'post'], ['/v1/images/edits', 'post'], ['/v1/videos', 'post'], ['/v1/videos/{id}', 'get'],
    ['/v1/videos/{id}/content', 'get'], ['/api/public/models-info', 'get'], ['/openapi.json', 'get']] as const) {
    t.type(document.paths[path]?.[method], 'object', `${method} ${path}`)
  }
  const ids = new Set<unknown>()
  for (const [path, item] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      if (method === 'servers') continue
      const { operationId: id, parameters = [], responses, summary } = operation as Json & {
        readonly parameters?: readonly Json[], readonly responses: Json }
      t.notOk(ids.has(id), `${path}: ${String(id)} names one operation`)
      ids.add(id)
      t.match(summary, /^[A-Z]/, `${method} ${path}`)
      t.strictSame(parameters.map((one) => one['name']), [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name), path)
      t.type(responses['200'], 'object')
    }
  }
  const errors = new Set((Object.keys(catalogue) as ErrorCode[]).filter((code) => code !== 'client_closed')
    .map((code) => String(new GatewayError(code).status)))
  const { responses, schemas } = document.components
  t.strictSame(new Set(Object.keys(responses!).map((name) => name.replace(/^.*-/, ''))), errors)
  const references = JSON.stringify(document).matchAll(/"\$ref":"(#[^"]*)"/g)
  for (const [, pointer = ''] of references) {
    let found: unknown = document
    for (const step of pointer.slice(2).split('/')) {
      found = (found as Json)[step.replaceAll('~1', '/').replaceAll('~0', '~')]
    }
    t.ok(found, pointer)
  }
  const ajv = new Ajv2020({ strict: false, allErrors: true })
  ajv.addSchema(document, 'document')
  for (const name of Object.keys(schemas!)) {
    t.doesNotThrow(() => ajv.compile({ $ref: `document#/components/schemas/${name}` }), name)
  }
})
