// Loads a user's own plugin, anew whenever its code or what it imports by relative path has changed. Works in every
// thread.
import { createHash } from 'node:crypto'
import { readFileSync, realpathSync } from 'node:fs'
import { createRequire, registerHooks } from 'node:module'
import { dirname, extname, isAbsolute, resolve as resolvePath } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { LoadedPlugin } from '../plugin-descriptor.ts'

/** A plugin that can't be used, with the position in its code where that is known. */
export class PluginError extends Error {
  readonly file: string | undefined
  readonly line: number | undefined
  readonly column: number | undefined

  constructor (
    message: string,
    place: { readonly file?: string | undefined, readonly line?: number | undefined,
      readonly column?: number | undefined } = {},
    cause?: unknown
  ) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = 'PluginError'
    this.file = place.file
    this.line = place.line
    this.column = place.column
  }
}

/** A top-level await that never ends must not stop a reload for ever. */
const LOAD_TIMEOUT_MS = 5000

/** .ts in a checkout, .js in an installed package */
const extension = extname(new URL(import.meta.url).pathname)
const gatewayUrl = new URL(`../../index${extension}`, import.meta.url).href
/** The gateway's own modules are never loaded twice: a fact is known by its identity. */
const gatewayFolder = new URL('../../', import.meta.url).href

type Note = (path: string) => void
/** by version: callbacks for the files that are loaded */
const notes = new Map<string, Note>()
/**
 * The version of a CommonJS file in the cache of `require`, which knows no queries. One form escapes: a file that is
 * only `module.exports = require('./other.cjs')` gets an unfinished `other` at its second version (Node 26.10 looks for
 * re-exports before it runs the file, and remembers what it found).
 */
const required = new Map<string, string>()
let isHooked = false

const { cache } = createRequire(import.meta.url)

function noteRequired (path: string, version: string): void {
  notes.get(version)?.(path)
  required.set(path, version)
}

/**
 * Called before a version is loaded: `require` looks into its cache before it asks any hook. Modules that hold an old
 * one keep it.
 */
function forgetRequired (version: string): void {
  for (const [path, known] of required) {
    if (known === version) continue
    delete cache[path]
    required.delete(path)
  }
}

function versionOfRequired (url: string | undefined): string | undefined {
  return url?.startsWith('file:') === true ? required.get(fileURLToPath(url)) : undefined
}

function hook (): void {
  if (isHooked) return
  isHooked = true
  registerHooks({
    resolve (specifier, context, next) {
      if (specifier === 'model-gateway') return { url: gatewayUrl, shortCircuit: true }
      const isRequire = context.conditions.includes('require')
      const version = versionOf(context.parentURL) ?? (isRequire ? versionOfRequired(context.parentURL) : undefined)
      const found = next(version === undefined ? specifier : realSpecifier(specifier, context.parentURL!, isRequire),
        context)
      if (
        version === undefined || !found.url.startsWith('file:') || found.url.includes('/node_modules/') ||
        found.url.startsWith(gatewayFolder)
      ) return found
      if (isRequire) {
        noteRequired(fileURLToPath(found.url), version)
        return found
      }
      const url = new URL(found.url)
      url.searchParams.set('v', version)
      return { ...found, url: url.href }
    },
    load (url, context, next) {
      const version = versionOf(url)
      if (version === undefined) return next(url, context)
      const path = fileURLToPath(url)
      if (context.format === 'commonjs') noteRequired(path, version)
      else notes.get(version)?.(path)
      // the parser of TypeScript says where a mistake in JavaScript is; the engine's own error does not
      return next(url, new URL(url).searchParams.has('locate') ? { ...context, format: 'module-typescript' } : context)
    }
  })
}

/** The present target of a relative import: Node keeps for ever where a symbolic link led, and mounts swap theirs. */
function realSpecifier (specifier: string, parentUrl: string, isRequire: boolean): string {
  if (!/^\.{0,2}\//.test(specifier)) return specifier
  const path = resolvePath(dirname(fileURLToPath(parentUrl)),
    isRequire ? specifier : fileURLToPath(new URL(specifier, parentUrl)))
  const real = realPath(path)
  return real === path ? specifier : isRequire ? real : pathToFileURL(real).href
}

function realPath (path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return path                                // the load reports the error
  }
}

/** Only imports below a plugin have a version. */
function versionOf (url: string | undefined): string | undefined {
  return url?.startsWith('file:') === true && url.includes('v=')
    ? new URL(url).searchParams.get('v') ?? undefined
    : undefined
}

/**
 * Imports the plugin of a file. The same version gives the same modules, so plugins that are loaded with one version
 * share what they both import. Each version stays in memory: Node forgets no module.
 * @template Loaded what a plugin is to the caller; that its `create` is a function, and no more, was looked at
 * @param version changes whenever the code has: config.pipeline[].version
 * @param note told of every file that is read, before it is
 * @throws {PluginError}
 */
export async function loadUserPlugin<Loaded extends LoadedPlugin = LoadedPlugin> (
  path: string,
  version: string,
  note?: Note
): Promise<Loaded> {
  hook()
  forgetRequired(version)
  if (note !== undefined) notes.set(version, note)
  const url = pathToFileURL(realPath(path))
  url.searchParams.set('v', version)
  try {
    return checkPlugin<Loaded>(path,
      await withTimeout(import(url.href) as Promise<{ readonly default?: unknown }>, path))
  } catch (thrown) {
    if (thrown instanceof PluginError) throw thrown
    throw await explain(thrown, path, url)
  } finally {
    notes.delete(version)
  }
}

async function withTimeout<T> (loading: Promise<T>, path: string): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    reject(new PluginError(
      `the plugin did not finish loading within ${LOAD_TIMEOUT_MS / 1000} s: ` +
      'is there an await at its top level that never ends?',
      { file: path }
    ))
  }, LOAD_TIMEOUT_MS)
  try {
    return await Promise.race([loading, promise])
  } finally {
    clearTimeout(timer)
  }
}

function checkPlugin<Loaded extends LoadedPlugin> (path: string, module: { readonly default?: unknown }): Loaded {
  const refuse = (message: string): never => { throw new PluginError(message, { file: path }) }
  const found = module.default
  if (found === undefined) {
    return refuse('the plugin has no default export: write "export default definePlugin({ ... })"')
  }
  if (typeof found !== 'object' || found === null) {
    return refuse('the default export must be a plugin: an object with "name" and "create"')
  }
  const { name, create, schema, reads, writes, provides, enforces, check } = found as Readonly<Record<string, unknown>>
  if (typeof name !== 'string' || !/^[a-z][a-z0-9-]{0,63}$/.test(name)) {
    return refuse('the plugin needs a "name" of small letters, digits and "-"')
  }
  if (typeof create !== 'function') return refuse(`the plugin ${name} needs a function "create"`)
  if (schema !== undefined && (typeof schema !== 'object' || schema === null)) {
    return refuse(`the "schema" of the plugin ${name} must be a JSON Schema`)
  }
  for (const [word, facts] of [['reads', reads], ['writes', writes]] as const) {
    const isFine = facts === undefined ||
      (Array.isArray(facts) &&
        facts.every((fact: unknown) =>
          typeof fact === 'object' && fact !== null && 'name' in fact && typeof fact.name === 'string'
        ))
    if (!isFine) return refuse(`"${word}" of the plugin ${name} must be a list of facts`)
  }
  for (const [word, names] of [['provides', provides], ['enforces', enforces]] as const) {
    const isFine = names === undefined || (Array.isArray(names) && names.every((one) => typeof one === 'string'))
    if (!isFine) return refuse(`"${word}" of the plugin ${name} must be a list of names`)
  }
  if (check !== undefined && typeof check !== 'function') {
    return refuse(`the "check" of the plugin ${name} must be a function`)
  }
  return found as Loaded
}

async function explain (thrown: unknown, path: string, url: URL): Promise<PluginError> {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown))
  const code = 'code' in error ? String(error.code) : ''
  if (code === 'ERR_MODULE_NOT_FOUND') {
    const missing = /^Cannot find (?:module|package) '([^']+)' imported from (\S+)/.exec(error.message)
    if (missing === null || missing[1] === path) return new PluginError('the plugin file does not exist')
    return new PluginError(`cannot find ${JSON.stringify(missing[1])}, which it imports`, {
      file: missing[2] === undefined ? path : missing[2].split('?', 1)[0]!
    }, thrown)
  }
  if (error instanceof SyntaxError) {
    const place = placeIn(error.stack ?? '') ?? await findSyntaxError(url)
    return new PluginError(`cannot be read as code: ${error.message.split('\n', 1)[0]!}`, place ?? { file: path },
      thrown)
  }
  const [message] = error.message.split('\n', 1)
  return new PluginError(`threw while it was loaded: ${message ?? ''}`, placeIn(error.stack ?? '') ?? { file: path },
    thrown)
}

/** Characters that are read of a stack, in which a message of any length stands first. */
const LONGEST_STACK = 10_000

/**
 * The first place in a stack that lies below a plugin: "file:///x.ts?v=1:3", "...:3:7", or "/x.ts:3" as its whole first
 * line.
 */
export function placeIn (
  whole: string
): { readonly file: string, readonly line: number, readonly column?: number } | undefined {
  const stack = whole.slice(0, LONGEST_STACK)
  // where no package.json says what a .ts file is, it is parsed to find out, and the error names it by its path
  const parsed = /^([^\n]+):(\d+)\n[^\n]*\n( *)\^/.exec(stack)
  if (parsed !== null && isAbsolute(parsed[1]!)) {
    return { file: parsed[1]!, line: Number(parsed[2]), column: parsed[3]!.length + 1 }
  }
  const match = /(file:\/\/[^\s()?]+\?v=[^\s():]*):(\d+)(?::(\d+))?/.exec(stack)
  if (match === null) return undefined
  // below the line of a syntax error stands a caret
  const caret = match[3] === undefined ? /^( *)\^/m.exec(stack)?.[1]?.length : undefined
  const column = match[3] === undefined ? caret === undefined ? undefined : caret + 1 : Number(match[3])
  return { file: fileURLToPath(match[1]!), line: Number(match[2]), ...(column !== undefined && { column }) }
}

async function findSyntaxError (url: URL): Promise<{ readonly file: string, readonly line: number } | undefined> {
  const located = new URL(url)
  located.searchParams.set('locate', '1')
  try {
    await import(located.href)
    return undefined
  } catch (thrown) {
    return thrown instanceof Error ? placeIn(thrown.stack ?? '') : undefined
  }
}

/** The version of all plugins together: they may share modules, and then must share them in one version. */
export function hashFiles (paths: Iterable<string>): string {
  const hash = createHash('sha256')
  for (const path of [...paths].sort()) {
    hash.update(path).update('\0')
    try {
      hash.update(readFileSync(path))
    } catch {
      // gone again: the watcher sees that, too
    }
    hash.update('\0')
  }
  return hash.digest('hex').slice(0, 16)
}
