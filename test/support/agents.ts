// What the tests of other people's agents and libraries share: the shipped configuration in front of a simulator that
// plays a script, the settings that a page shows, and a desk of its own for each program, which finds nothing of this
// machine there.
import { execFileSync, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import type { Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import type { DialectOf } from '../../src/config/sections/dialects.ts'
import { picture } from '../../src/simulator/picture.ts'
import type { RequestRecord } from '../../src/simulator/request-log.ts'
import { scriptDirective, type ScriptedAnswer } from '../../src/simulator/script.ts'
import { startSimulator, type Simulator } from '../../src/simulator/simulator.ts'
import { gateway, KEY, type TestGateway } from './gateway.ts'
import { untapped } from './newcomer.ts'
import { textOfPage } from './pages.ts'
import { LIMIT_MS } from './until.ts'

/** A block of a message, with the fields that are looked at. */
interface Block {
  readonly type: string
  readonly text?: string
  readonly thinking?: string
  readonly id?: string
  readonly tool_use_id?: string
  readonly content?: string | readonly Block[]
  readonly source?: { readonly data: string }
}

const ME = `
accounts: [{ id: me, name: Me, opening_balance_usd: 100 }]
keys: [{ id: mine, account: me, secret: ${KEY} }]
`

export interface Stage {
  readonly gw: TestGateway
  readonly simulator: Simulator
}

/**
 * The shipped gateway.yaml on free ports, with pings that come soon; its models are played by a simulator.
 * @param more at the end of the file
 * @param clamps its models give as much as they have where more is asked for
 * @param plugins lines for the pipeline, in the place of the one of responses-to-messages
 * @param dialect of the vendor of its models
 * @param faults what each request suffers at it
 * @param people accounts and keys
 */
export async function stage (
  t: Test, { more = '', clamps = false, plugins = '', dialect = 'messages' as DialectOf<'text'>, faults = '', people = ME } = {}
): Promise<Stage> {
  const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, keepBodyBytes: 64 << 20, faults })
  t.teardown(() => simulator.close())
  const shipped = textOfPage('gateway.yaml')
    .replace(/listen: "[^"]+:8080"/, 'listen: "127.0.0.1:0", timeouts: { hold_head: 100ms, ping: 100ms }')
    .replace(/"[^"]+:(?:8081|9090)"/g, '"127.0.0.1:0"')
    .replaceAll(/url: "simulator:"(.*)\n(\s+)dialect/g,
      `url: "${simulator.url}"$1\n$2headers: { x-api-key: simulated, authorization: Bearer simulated }\n$2dialect`)
    .replace('dialect: messages', `dialect: ${dialect}`)
    .replaceAll('"simulator:"', `"${simulator.url}"`)
    .replace('driver: embedded', 'driver: memory')
    .replace(/^ +- responses-to-messages.*\n/m, (line) => plugins === '' ? line : plugins)
    .replace('config/models.yaml', 'models.yaml')
  const models = textOfPage('config/models.yaml')
    .replaceAll('max_output: 64000', `$&${clamps ? '\n    over_max_output: clamp' : ''}`)
  const gw = await gateway(t, shipped + people + more, { files: { 'models.yaml': models } })
  return { gw, simulator }
}

/** Calls of tools, as the model of a certain agent writes them. */
export interface Hands {
  readonly shell: (command: string) => Call
  readonly write: (path: string, text: string) => Call
  /** shows it a picture; undefined: it comes with the prompt, or not at all */
  readonly look?: (path: string) => Call
  /** further calls beside `write`, of tools that do nothing for the files */
  readonly also?: readonly Call[]
}

type Call = NonNullable<ScriptedAnswer['calls']>[number]

/** A folder to work in and a home of its own, with nothing in it. */
export interface Desk {
  readonly home: string
  readonly work: string
  /** in `work` */
  readonly picture: string
}

export function desk (t: Test): Desk {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'agent-')))
  t.teardown(() => { rmSync(folder, { recursive: true, force: true, maxRetries: 5 }) })
  const [home, work] = [join(folder, 'home'), join(folder, 'work')]
  mkdirSync(home)
  mkdirSync(work)
  writeFileSync(join(work, 'cat.png'), picture('a cat'))
  return { home, work, picture: join(work, 'cat.png') }
}

/**
 * What a model says that uses the tools of an agent: long thoughts and two calls at once, a call in an answer that is
 * cut the first time, and, after a silence in which pings come, long thoughts again and the last word.
 */
export function scenario (
  { work, picture: shown }: Desk,
  { shell, write, look, also = [] }: Hands
): readonly ScriptedAnswer[] {
  return [
    { think: 2000, say: 'First I look.', calls: [shell('echo one > one.txt; cat one.txt'), shell('echo two')] },
    { say: 'Now I write.', faults: ['cut_after=6'],
      calls: [write(join(work, 'three.txt'), 'three'), ...look === undefined ? [] : [look(shown)], ...also] },
    { think: 2000, say: 'All is done.', faults: ['first_delay=500'] }
  ]
}

/** What a person asks for, so that the model answers like that. */
export function promptFor (answers: readonly ScriptedAnswer[]): string {
  return `Do what has to be done. ${scriptDirective(answers)}`
}

/** The n-th block of a page in a language, as it stands there, but for the address of the gateway. */
export function settings (page: string, language: string, url = 'http://127.0.0.1:8080', nth = 0): string {
  const blocks = [...textOfPage(page).matchAll(/^```(\w+)[^\n]*\n([^]*?)^```/gm)]
    .filter(([, name]) => name === language).map(([, , code = '']) => code)
  const block = blocks[nth]
  if (block === undefined) throw new Error(`${page} has ${blocks.length} blocks of ${language}`)
  return block.replaceAll(/\{\{base_url\}\}|http:\/\/127\.0\.0\.1:8080/g, url)
}

/**
 * What the n-th block of JavaScript of a page has made, when it has run as it stands there, but for the address.
 * @param change of the block, for another version of its library
 */
export async function made<T> (
  page: string,
  { gw }: Pick<Stage, 'gw'>,
  names: readonly string[],
  { nth = 0, change = (code: string) => code } = {}
): Promise<T> {
  process.env['GATEWAY_KEY'] = KEY
  const file = programAt(`${change(settings(page, 'js', gw.url, nth))}\nexport { ${names.join(', ')} }\n`)
  return await import(pathToFileURL(file).href) as T
}

/** A file of JavaScript that finds the libraries of test/e2e. */
export function programAt (code: string): string {
  const folder = join(packageRoot, 'test', 'e2e', 'node_modules', '.cache', 'pages')
  mkdirSync(folder, { recursive: true })
  const file = join(folder, `${createHash('sha256').update(code).digest('hex')}.mjs`)
  writeFileSync(file, code)
  return file
}

/** The tools of a program that is made with a library: they do what they say. */
export function toolsAt ({ work }: Desk) {
  const text = (description: string) => ({ type: 'string', description }) as const
  const object = <P extends Record<string, unknown>>(properties: P) =>
    ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false }) as const
  return {
    shell: {
      description: 'Runs a command of the shell', parameters: object({ command: text('the command') }),
      run: ({ command }: { readonly command: string }): string =>
        execFileSync('bash', ['-c', command], { cwd: work, encoding: 'utf8' })
    },
    write: {
      description: 'Writes a file', parameters: object({ path: text('of the file'), text: text('what is in it') }),
      run: ({ path, text }: { readonly path: string, readonly text: string }): string => {
        writeFileSync(path, text)
        return 'written'
      }
    }
  } as const
}

/** How the model calls those. */
export const ownHands: Hands = {
  shell: (command) => ({ name: 'shell', input: { command } }),
  write: (path, text) => ({ name: 'write', input: { path, text } })
}

/** A program among those that test/e2e/agents installs: the first that there is. */
export function installed (...candidates: readonly string[]): {
  readonly path: string
  /** for `t.test`: what is missing, where this platform has no such program */
  readonly skip: false | string
} {
  const paths = candidates.map((path) => join(packageRoot, 'test', 'e2e', 'agents', 'node_modules', path))
  const path = paths.find((path) => existsSync(path))
  return { path: path ?? '', skip: path === undefined && `not installed here: ${candidates.join(', ')}` }
}

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface RunOptions {
  /** lines of the shell before it */
  readonly exports?: string
  readonly env?: Readonly<Record<string, string>>
  /** ended after that */
  readonly limitMs?: number
  /** ended when it has written this */
  readonly until?: RegExp | undefined
}

/**
 * Runs a program at its desk, behind the settings of `exports`. It knows no variable but those, `env`, the key and what
 * finds programs: no proxy leads out, and npm asks no registry. It is ended with the test, and all that it has started.
 */
export async function runAgent (
  t: Test,
  { home, work }: Desk,
  program: readonly string[],
  { exports = '', env = {}, limitMs = LIMIT_MS, until }: RunOptions = {}
): Promise<Ended> {
  const PATH = `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`
  const child = spawn(...untapped('bash', ['-c', `${exports}\nexec "$@"`, 'bash', ...program]), {
    cwd: work, stdio: ['ignore', 'pipe', 'pipe'], detached: true,
    env: { PATH, HOME: home, GATEWAY_KEY: KEY, npm_config_offline: 'true', ...env }
  })
  const end = (): void => {
    try {
      process.kill(-child.pid!, 'SIGKILL')
    } catch {
      // it has ended, and all that it has started
    }
  }
  t.teardown(end)
  const limit = setTimeout(end, limitMs)
  const said = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (chunk: string) => {
      said[name] += chunk
      if (until?.test(said[name]) === true) end()
    })
  }
  const [code] = await once(child, 'close') as [number | null]
  clearTimeout(limit)
  return { code, ...said }
}

/** The requests that followed a script and had tools, oldest first. */
export function steps ({ simulator }: Stage): readonly RequestRecord[] {
  return simulator.requests.filter(({ body, faults }) => faults.script !== undefined &&
    ((body as { readonly tools?: readonly unknown[] }).tools?.length ?? 0) > 0)
}

interface Turn {
  readonly role: string
  readonly content: unknown
}

/** An item of `input`, with the fields that are looked at. */
interface InputItem {
  readonly type: string
  readonly role?: string
  readonly content?: unknown
  readonly call_id?: string
  readonly output?: string | readonly Block[]
}

/** The turns of a request to a vendor of the Responses API, as the other vendors are told them. */
function turnsOf (input: readonly InputItem[]): readonly Turn[] {
  const turns: { readonly role: string, readonly content: unknown[] }[] = []
  for (const item of input) {
    const isResult = item.type.endsWith('_output')
    const role = item.role ?? (isResult ? 'user' : 'assistant')
    if (turns.at(-1)?.role !== role) turns.push({ role, content: [] })
    turns.at(-1)!.content.push(isResult ? { type: 'tool_result', tool_use_id: item.call_id, content: item.output }
      : item.type.endsWith('_call') ? { type: 'tool_use', id: item.call_id }
        : { type: item.type === 'reasoning' ? 'thinking' : 'text' })
  }
  return turns
}

/** The blocks of the last turn of the user, and of the answer before it. */
function lastTurns ({ body }: RequestRecord): { readonly answer: readonly Block[], readonly turn: readonly Block[] } {
  const { input, messages = turnsOf(input!) } = body as { readonly messages?: readonly Turn[],
    readonly input?: readonly InputItem[] }
  const blocksOf = (role: string): readonly Block[] => {
    const content = messages.findLast((message) => message.role === role)?.content ?? []
    return typeof content === 'string' ? [{ type: 'text', text: content }] : content as readonly Block[]
  }
  return { answer: blocksOf('assistant'), turn: blocksOf('user') }
}

function inner (block: Block | undefined): readonly Block[] {
  const content = block?.content ?? []
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content
}

export interface Expected {
  /** steps that were taken before */
  readonly before?: number
  /** it has the model think */
  readonly thinks: boolean
  /** it begins anew after the cut, because it is the caller who decides; otherwise it asks for the same step again */
  readonly beginsAnew?: boolean
  /** thoughts that were seen come back to the vendor; otherwise the client has no field for them */
  readonly keepsThoughts: boolean
  /** the vendor sees the picture */
  readonly seesPicture: boolean
}

/** The vendor saw each step of `scenario` as it must be, and what it gave is charged: once, and nothing else. */
export async function isPlayed (
  t: Test,
  at: Stage,
  { work, picture: shown }: Desk,
  { thinks, keepsThoughts, seesPicture, beginsAnew = false, before = 0 }: Expected
): Promise<void> {
  const all = steps(at).slice(before)
  t.strictSame(all.map(({ ended }) => ended),
    ['complete', 'cut', ...beginsAnew ? ['complete'] : [], 'complete', 'complete'], 'no step more than there must be')
  const { thinking, reasoning } = all[0]?.body as { readonly thinking?: { readonly type: string },
    readonly reasoning?: { readonly effort?: string } }
  t.equal((thinking?.type ?? 'disabled') !== 'disabled' || (reasoning?.effort ?? 'none') !== 'none', thinks,
    'whether the model is to think')
  const [second, last] = all.slice(-2)
  if (second === undefined || last === undefined) return
  const { answer, turn } = lastTurns(second)
  const calls = answer.filter(({ type }) => type === 'tool_use')
  t.equal(calls.length, 2, 'calls at once')
  const results = turn.filter(({ type }) => type === 'tool_result')
  t.strictSame(results.map((result) => result.tool_use_id), calls.map(({ id }) => id), 'each with its result, in order')
  t.match(results.map((result) => inner(result).map(({ text }) => text).join('')), [/\bone\b/, /\btwo\b/])
  t.equal(answer.some(({ type }) => type === 'thinking'), keepsThoughts, 'whether thoughts come back, signed')
  t.match(readFileSync(join(work, 'one.txt'), 'utf8'), /^one\n$/)
  t.match(readFileSync(join(work, 'three.txt'), 'utf8'), /^three\n?$/)
  const sent = readFileSync(shown).toString('base64')
  const images = JSON.stringify(last.body).includes(sent)
  t.equal(images, seesPicture, 'whether the picture is seen, byte by byte')
  await isCharged(t, at)
}

/** Each answer that began is charged once, and nothing is set aside. */
export async function isCharged (t: Test, { gw, simulator }: Stage): Promise<void> {
  while (gw.server.inFlight > 0) await setImmediate()
  t.equal(await gw.services.store.openHolds(), 0, 'nothing is set aside')
  const charged: string[] = []
  for await (const { kind, reference } of gw.services.store.entries()) if (kind === 'settle') charged.push(reference)
  // JSON that breaks off is no answer yet: the client hears of an error.
  const began = simulator.requests.filter(({ path, status, stream, ended }) =>
    /messages$|completions$|responses$/.test(path) && status === 200 && (stream || ended === 'complete'))
  t.equal(charged.length, began.length, 'each answer that began is charged')
  t.equal(new Set(charged).size, charged.length, 'once')
}
