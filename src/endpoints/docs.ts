// GET /docs: the pages of docs/customers for the operator's customers, with the address of the API filled in
// (server.public.docs). Each page is rendered when it is first requested. No page has a script.
import { hash } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join, posix } from 'node:path'
import { Readable } from 'node:stream'
import { Marked, type Tokens } from 'marked'
import { packageRoot } from '../base/package.ts'
import type { Exchange } from '../core/exchange.ts'
import type { BytesReply, Headers } from '../core/reply.ts'
import type { Snapshot } from '../core/snapshot.ts'
import { GatewayError } from '../errors.ts'

const FOLDER = join(packageRoot, 'docs', 'customers')
const ROOT = '/docs'
const INDEX = 'README'

const STYLE = `
:root { color-scheme: light dark; --back: #fff; --text: #1c1e21; --link: #0550ae; --line: #d0d7de; --code: #f3f4f6 }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171a; --text: #e6e8ea; --link: #79b8ff; --line: #3a4148; --code: #22272c }
}
body { margin: 0 auto; max-width: 46rem; padding: 0 1rem 4rem; font: 1rem/1.6 system-ui, sans-serif }
body { background: var(--back); color: var(--text); overflow-wrap: break-word }
header { display: flex; flex-wrap: wrap; gap: 0 1.5rem; padding: 1rem 0; border-bottom: 1px solid var(--line) }
a { color: var(--link) }
code { padding: 0.1em 0.3em; background: var(--code); border-radius: 4px; font-size: 0.9em }
pre { padding: 0.8rem; overflow-x: auto; background: var(--code); border-radius: 6px }
pre code { padding: 0 }
.table { overflow-x: auto }
table { border-collapse: collapse }
th, td { padding: 0.3rem 0.7rem; border: 1px solid var(--line); text-align: left; vertical-align: top }
`

const HEADERS: Headers = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'public, max-age=60',
  'content-security-policy': "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; " +
    `frame-ancestors 'none'; style-src 'sha256-${hash('sha256', STYLE, 'base64')}'`,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer'
}

/** What a page is rendered with. */
export interface DocsValues {
  /** server.public.name */
  readonly name: string
  /** where clients reach the API */
  readonly baseUrl: string
  /** where clients reach the public listener */
  readonly publicUrl: string
}

interface Served {
  readonly bytes: Buffer
  readonly etag: string
}

/** Pages by name, such as `clients/codex`; a page that is not in this list is never read. */
let names: ReadonlySet<string> | undefined

/** Rendered pages. The values that they contain change only with a restart, and so with the snapshot. */
const rendered = new WeakMap<Snapshot, Map<string, Promise<Served>>>()

/** @throws {GatewayError} not_found: there is no such page */
export async function sendDocs (exchange: Exchange): Promise<BytesReply> {
  const { received: { path }, snapshot } = exchange
  // Links between pages are relative, so the index needs the slash.
  if (path === ROOT) {
    return { kind: 'bytes', status: 308, headers: { location: 'docs/', 'content-length': '0' },
      bytes: Readable.from([]) }
  }
  const name = path === `${ROOT}/` ? INDEX : path.slice(ROOT.length + 1)
  if (!docsNames().has(name) || (name === INDEX && path !== `${ROOT}/`)) {
    throw new GatewayError('not_found', { message: 'There is no such page. The list of pages is at /docs/.' })
  }
  let pages = rendered.get(snapshot)
  if (pages === undefined) rendered.set(snapshot, pages = new Map())
  let page = pages.get(name)
  if (page === undefined) {
    page = readFile(join(FOLDER, `${name}.md`), 'utf8')
      .then((text) => served(renderPage(name, text, valuesOf(snapshot))))
    pages.set(name, page)
    page.catch(() => { pages.delete(name) })
  }
  return sendOnce(exchange, await page, HEADERS)
}

export function docsNames (): ReadonlySet<string> {
  return names ??= new Set(readdirSync(FOLDER, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md')).map((file) => file.replaceAll('\\', '/').slice(0, -3)))
}

export function served (text: string): Served {
  const bytes = Buffer.from(text)
  return { bytes, etag: `"${hash('sha256', bytes).slice(0, 32)}"` }
}

export function sendOnce (
  { received: { method, headers } }: Exchange, { bytes, etag }: Served, own: Headers
): BytesReply {
  const known = String(headers['if-none-match'] ?? '').split(',').map((one) => one.trim().replace(/^W\//, ''))
  if (known.includes(etag) || known.includes('*')) {
    const { 'content-type': _type, ...about } = own
    return { kind: 'bytes', status: 304, headers: { ...about, etag }, bytes: Readable.from([]) }
  }
  return { kind: 'bytes', status: 200, headers: { ...own, etag, 'content-length': String(bytes.length) },
    bytes: Readable.from(method === 'HEAD' ? [] : [bytes]) }
}

export function valuesOf ({ config: { server }, services: { addresses } }: Snapshot): DocsValues {
  return { name: server.public.name ?? 'API documentation', baseUrl: addresses.api, publicUrl: addresses.public }
}

/** @param name such as `clients/codex` */
export function renderPage (name: string, text: string, { name: operator, baseUrl, publicUrl }: DocsValues): string {
  const filled = text.replaceAll('{{base_url}}', () => baseUrl).replaceAll('{{public_url}}', () => publicUrl)
  const body = markedFor(name).parse(filled, { async: false })
  const title = escape(/^# (.+)$/m.exec(filled)?.[1] ?? operator)
  const up = name.includes('/') ? '../' : './'
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>${title} · ${escape(operator)}</title>
<style>${STYLE}</style>
</head>
<body>
<header><a href="${up}"><strong>${escape(operator)}</strong></a> <a href="${up}../openapi.json">OpenAPI</a></header>
<main>
${body}</main>
</body>
</html>
`
}

function markedFor (name: string): Marked {
  return new Marked({
    gfm: true,
    renderer: {
      // No page needs HTML of its own.
      html: ({ text }) => escape(text),
      image: ({ text }) => escape(text),
      heading ({ tokens, depth, text }) {
        return `<h${depth} id="${escape(anchorOf(text))}">${this.parser.parseInline(tokens)}</h${depth}>\n`
      },
      code: ({ text }) => `<pre tabindex="0"><code>${escape(text)}\n</code></pre>\n`,
      table ({ header, rows }) {
        const row = (cells: readonly Tokens.TableCell[], tag: string): string =>
          `<tr>${cells.map(({ tokens }) => `<${tag}>${this.parser.parseInline(tokens)}</${tag}>`).join('')}</tr>\n`
        return `<div class="table" tabindex="0"><table><thead>\n${row(header, 'th')}</thead><tbody>\n` +
          `${rows.map((cells) => row(cells, 'td')).join('')}</tbody></table></div>\n`
      },
      link ({ href, tokens }) {
        const text = this.parser.parseInline(tokens)
        const to = addressOf(name, href)
        return to === undefined ? text : `<a href="${escape(to)}">${text}</a>`
      }
    }
  })
}

/** The address of a link as it is served, relative to its page. Undefined: it leads nowhere from there. */
function addressOf (name: string, href: string): string | undefined {
  if (/^https?:\/\//.test(href) || href.startsWith('#')) return href
  const [, file, anchor = ''] = /^([\w./-]+)\.md(#.*)?$/.exec(href) ?? []
  if (file === undefined) return undefined
  const page = posix.join(posix.dirname(name), file)
  if (!docsNames().has(page)) return undefined
  const from = posix.dirname(name) === '.' ? '' : '../'
  return `${page === INDEX ? from === '' ? './' : from : from + page}${anchor}`
}

/** As GitHub makes the anchor of a heading. */
function anchorOf (heading: string): string {
  return heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;'
}

function escape (text: string): string {
  return text.replace(/[&<>"']/g, (found) => ENTITIES[found]!)
}
