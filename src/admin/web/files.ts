// The files of the pages, from memory: read, brought into the form that browsers take and compressed at the first
// request, so that a start costs nothing. Their address has a hash of them all, so browsers may keep them for ever, and
// one page never mixes two versions.
import { hash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { stripTypeScriptTypes } from 'node:module'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import { packageRoot } from '../../base/package.ts'

export interface PageFile {
  readonly type: string
  readonly plain: Buffer
  readonly gzip: Buffer
  readonly br: Buffer
}

export interface PageFiles {
  /** changes with any of them */
  readonly version: string
  readonly index: PageFile
  /** names of the modules that the first one imports at once, itself included */
  readonly first: readonly string[]
  readonly byName: ReadonlyMap<string, PageFile>
}

/** What runs in the browser: TypeScript in a checkout, JavaScript in a package. */
const CODE = fileURLToPath(new URL('ui/', import.meta.url))
/** What is no code lies in a package where it lies in a checkout. */
const OTHER = join(packageRoot, 'src', 'admin', 'web', 'ui')
const MAIN = 'main.js'

/** The libraries by what modules import: the name of their file here, and where to read it. */
const LIBRARIES: ReadonlyMap<string, { readonly name: string, readonly read: () => Promise<string> }> = new Map([
  ['preact', library('preact')],
  ['preact/hooks', library('preact/hooks')],
  ['htm', library('htm')],
  ['@preact/signals', library('@preact/signals')],
  ['@preact/signals-core', library('@preact/signals-core')],
  // The only minified build is a script.
  ['uplot', { name: 'lib-uplot.js', read: async () => `${await besidePlot('uPlot.iife.min.js')};export default uPlot` }]
])

const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  html: 'text/html; charset=utf-8'
}

function library (specifier: string): { readonly name: string, readonly read: () => Promise<string> } {
  return { name: `lib-${specifier.replace('@', '').replace('/', '-')}.js`,
    read: async () => await readFile(fileURLToPath(import.meta.resolve(specifier)), 'utf8') }
}

async function besidePlot (name: string): Promise<string> {
  return await readFile(fileURLToPath(new URL(name, import.meta.resolve('uplot'))), 'utf8')
}

/** @throws {Error} a file can't be read */
export async function preparePages (): Promise<PageFiles> {
  const texts = new Map<string, string>()
  for (const file of await readdir(CODE)) {
    const [, name, kind] = /^([^.]+)\.(ts|js)$/.exec(file) ?? []
    if (name === undefined) continue
    const code = await readFile(join(CODE, file), 'utf8')
    texts.set(`${name}.js`, forBrowsers(bare(kind === 'ts' ? stripTypeScriptTypes(code) : code)))
  }
  for (const { name, read } of LIBRARIES.values()) texts.set(name, forBrowsers(await read()))
  texts.set('style.css', await besidePlot('uPlot.min.css') + await readFile(join(OTHER, 'style.css'), 'utf8'))
  texts.set('icon.svg', await readFile(join(OTHER, 'icon.svg'), 'utf8'))
  const index = await readFile(join(OTHER, 'index.html'), 'utf8')
  const version = hash('sha256', index + [...texts].flat().join('\n')).slice(0, 16)
  const first = [...closure(MAIN, texts)]
  const preloads = first.filter((name) => name !== MAIN)
    .map((name) => `<link rel="modulepreload" href="a/VERSION/${name}">`).join('\n')
  const byName = new Map<string, PageFile>()
  for (const [name, text] of texts) byName.set(name, await packed(name, text))
  return { version, first, byName,
    index: await packed('index.html', index.replace('<!-- PRELOADS -->', preloads).replaceAll('VERSION', version)) }
}

/** Without comments and indentation, which here stand on lines of their own, and are a third of what browsers load. */
function bare (code: string): string {
  return code.split('\n').map((line) => line.trim().replace(/[ \t]+/g, ' '))
    .filter((line) => line !== '' && !/^(?:\/\/ |\/\*\*|\* |\*\/)/.test(line)).join('\n')
}

/** Imports by the addresses of this folder, and no maps, which are not here. */
function forBrowsers (code: string): string {
  return code.replace(/\/\/# sourceMappingURL=\S*/g, '')
    .replace(/(\b(?:from|import)\s*(?:\(\s*)?)(['"])([^'"\n]+)\2/g, (all, before: string, quote: string, to: string) => {
      const name = LIBRARIES.get(to)?.name ?? (/^\.\/[\w-]+\.[tj]s$/.test(to) ? `${basename(to).slice(0, -3)}.js` : undefined)
      return name === undefined ? all : `${before}${quote}./${name}${quote}`
    })
}

/** A module and all that it imports at once. */
function closure (name: string, texts: ReadonlyMap<string, string>, found = new Set<string>()): ReadonlySet<string> {
  if (found.has(name)) return found
  found.add(name)
  for (const [, to] of texts.get(name)!.matchAll(/\b(?:from|import)\s*['"]\.\/([\w-]+\.js)['"]/g)) {
    closure(to!, texts, found)
  }
  return found
}

async function packed (name: string, text: string): Promise<PageFile> {
  const plain = Buffer.from(text)
  return { type: TYPES[name.split('.').at(-1)!]!, plain, gzip: await promisify(gzip)(plain, { level: 9 }),
    br: await promisify(brotliCompress)(plain, { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }) }
}
