// An arena for other people's agents: a vendor that misbehaves in every turn drives an agent through a long loop of its
// tools, cuts it off, has it compact the conversation, and refuses it. An agent is a row: see `Agent`.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import type { Test } from 'tap'
import t from 'tap'
import { scriptDirective, type ScriptedAnswer } from '../../src/simulator/script.ts'
import { desk, isCharged, runAgent, stage, steps, type Desk, type Ended, type Hands, type installed,
  type RunOptions, type Stage } from './agents.ts'
import { KEY } from './gateway.ts'

/** What the gateway's operator may have in front of it. */
export type Vendor = 'chat' | 'messages'

/** One run of the agent. */
export interface Run {
  /** of the gateway */
  readonly url: string
  readonly model: string
  readonly prompt: string
  /** it goes on with the conversation of the run before, at the same desk */
  readonly resumes: boolean
  readonly vendor: Vendor
  /** of the gateway; in `GATEWAY_KEY` too */
  readonly key: string
}

export interface Start extends RunOptions {
  readonly program: readonly string[]
}

/** An error that agents act on. */
export type ErrorName = keyof typeof ERRORS

/** How an agent behaves with an error. */
export interface Reaction {
  /** what its user reads, on standard output or error */
  readonly says: RegExp
  /** requests to the gateway that have a model, titles and the like included */
  readonly most: number
  /** absent: it ends with another exit code than 0 */
  readonly endsWell?: true
  /** it would try again for minutes, and is ended when its user has read this */
  readonly waits?: true
}

/** How an agent makes a conversation shorter. */
export interface Compaction {
  /** the error of a context that is too long, or usage that comes near it */
  readonly by: 'error' | 'usage'
  /** in its request for a summary */
  readonly words: string
  /** answers of the model that it keeps behind the summary; 0 by default */
  readonly keeps?: number
}

export interface Agent {
  readonly name: string
  /** what `installed` has found */
  readonly program: ReturnType<typeof installed>
  /** how the model calls its tools; `look` where it shows pictures to the model */
  readonly hands: Hands
  /** writes its settings to the desk, and says how it is started */
  start (on: Desk, run: Run): Start
  /** what its user reads when a run is over; absent: its standard output */
  result? (ended: Ended): string
  /** absent: it does not, and its user reads the error */
  readonly compacts?: Compaction | undefined
  /** requests of a run beside the turns of the script and its summary: titles and the like */
  readonly beside: number
  /** a part of the picture as the vendor gets it; absent: all its bytes where `look` shows it, in base64, else none */
  readonly sees?: (picture: string) => string
  /**
   * What it does when an answer is cut; absent: it asks again. `completes`: it has the model go on behind what came,
   * which the vendor takes for a turn, so the next one is played twice. `stops`: its user reads the error, so it is the
   * last turn that is cut.
   */
  readonly afterCut?: 'completes' | 'stops'
  readonly errors: Readonly<Partial<Record<ErrorName, Reaction>>>
}

/** A vendor that is wrong in each of its turns. Ids of calls count from 0 in each of them. */
const HABITS: Readonly<Record<Vendor, readonly string[]>> = {
  chat: ['label_text', 'no_label', 'usage_zero_with_finish', 'choices_apart', 'other_framing', 'byte_order_mark',
    'arguments_twice', 'early_hints', 'usage_hidden_thoughts+blank_lines', 'function_call_empty+top_fields',
    'half_characters', 'usage_no_completion'],
  messages: ['label_text+pings', 'no_label', 'usage_input_zero', 'pings', 'other_framing', 'byte_order_mark+pings',
    'continue', 'early_hints', 'half_characters', 'blank_lines', 'label_octets+usage_input_zero', 'pings']
}
/** How its bytes come, in turns. */
const PIECES = ['burst', 'chunk=7', 'crlf', 'unknown_event', 'crlf chunk=61', '']
/** Turns with two calls at once. */
const PARALLEL: ReadonlySet<number> = new Set([0, 4, 9])
const [LOOKS, WRITES, BREAKS] = [1, 2, 6]
const LIMIT_MS = 240_000
/** On a loaded machine an agent gives up waiting, and repeats a request: so many times the usual number. */
const LATE = 3
const RATE_SAYS = 3

/** A step of the loop, which says in a file and to the model that it was taken. */
function mark (name: string): string {
  return `echo ${name} >> steps.txt; echo done-${name}`
}

/** The turn whose answer is cut. */
function breakOf ({ afterCut }: Agent, vendor: Vendor): number {
  return afterCut === 'stops' ? HABITS[vendor].length - 1 : BREAKS
}

/** The turns of the first run: the last call is cut by max_tokens. */
function loop (agent: Agent, vendor: Vendor, { work, picture }: Desk): ScriptedAnswer[] {
  const { shell, write, look, also = [] } = agent.hands
  const breaks = breakOf(agent, vendor)
  const turns = HABITS[vendor].map((habit, i): ScriptedAnswer => {
    const faults = `habit=ids_repeat+${habit} ${PIECES[i % PIECES.length]!}`
    const calls = [shell(mark(`turn-${i}`)), ...PARALLEL.has(i) ? [shell(mark(`turn-${i}-too`))] : [],
      ...i === LOOKS && look !== undefined ? [look(picture)] : [],
      ...i === WRITES ? [write(join(work, 'three.txt'), 'three'), ...also] : []]
    return { say: `Turn ${i}: I take the next step, then I look at what it did.`, calls, ...i === 0 && { think: 300 },
      faults: i === breaks ? [`habit=ids_repeat cut_after=6`, faults] : [faults] }
  })
  return [...turns,
    { say: 'A turn that is too long.', calls: [shell(mark('too-long'))], faults: ['habit=ids_repeat limit=8'] },
    { say: 'The first part is done.' }]
}

/** The turns of the second run; the conversation is compacted behind the first of them. */
function rest ({ hands: { shell }, compacts }: Agent): ScriptedAnswer[] {
  const isTooLong = compacts?.by === 'error' ? ['habit=prompt_too_long'] : []
  return [
    { say: 'Once more.', calls: [shell(mark('before')), shell(mark('before-too'))],
      faults: [`habit=ids_repeat${compacts?.by === 'usage' ? ' input_tokens=195000' : ''}`] },
    { say: 'I go on.', calls: [shell(mark('after'))], faults: [...isTooLong, 'habit=ids_repeat'] },
    { say: 'All is done.' }
  ]
}

/** The answer to the request for a summary. The script goes on behind it, where the agent drops the prompt. */
function summary (agent: Agent): ScriptedAnswer[] {
  if (agent.compacts === undefined) return []
  const { words, keeps = 0 } = agent.compacts
  const kept = Array.from({ length: keeps }, () => ({ say: 'This was said before.' }))
  const [, ...later] = rest({ ...agent, compacts: undefined })
  return [{ when: words, say: `What was done: turns. ${scriptDirective([...kept, ...later])}` }]
}

/** The turns that were taken, as the desk's file says. */
function taken ({ work }: Desk): readonly string[] {
  const file = join(work, 'steps.txt')
  return !existsSync(file) ? [] : readFileSync(file, 'utf8').split('\n').filter((line) => line !== '').toSorted()
}

interface Question extends Omit<Run, 'key'>, Pick<RunOptions, 'until'> {
  readonly key?: string
}

interface Result extends Ended {
  readonly seconds: number
  /** by its user */
  readonly read: string
}

async function run (t: Test, agent: Agent, on: Desk, { until, ...asked }: Question): Promise<Result> {
  const { key = KEY } = asked
  const { program, env, ...options } = agent.start(on, { ...asked, key })
  const started = performance.now()
  const ended = await runAgent(t, on, program,
    { limitMs: LIMIT_MS, until, ...options, env: { GATEWAY_KEY: key, ...env } })
  const read = agent.result?.(ended) ?? ended.stdout
  return { ...ended, read, seconds: Math.round((performance.now() - started) / 1000) }
}

/** All that the model was told in a request. */
function told ({ body }: { readonly body: unknown }): string {
  const { messages } = body as { readonly messages: unknown }
  return JSON.stringify(messages)
}

async function loops (t: Test, agent: Agent, vendor: Vendor): Promise<void> {
  const at = await stage(t, { dialect: vendor })
  const on = desk(t)
  const { hands } = agent
  const script = [...loop(agent, vendor, on), ...summary(agent)]
  const ask = { url: at.gw.url, model: 'claude-sonnet', vendor }
  const first = await run(t, agent, on, { ...ask, resumes: false, prompt: `Do it. ${scriptDirective(script)}` })
  const context = { stderr: first.stderr.slice(-3000), stdout: first.stdout.slice(-3000) }
  const breaks = breakOf(agent, vendor)
  const expected = HABITS[vendor].flatMap((_, turn) => {
    if (turn === breaks && agent.afterCut === 'stops') return []
    const i = turn === breaks && agent.afterCut === 'completes' ? breaks + 1 : turn
    return PARALLEL.has(i) ? [`turn-${i}`, `turn-${i}-too`] : [`turn-${i}`]
  })
  t.strictSame(taken(on), expected.toSorted(), 'each call of each turn was run once, and no half call', context)
  const before = steps(at)
  const requests = at.simulator.requests.length
  t.comment(`${agent.name}, ${vendor}: a loop of ${HABITS[vendor].length} turns, ${requests} requests, ` +
    `${first.seconds} s: ${first.read.trim().slice(-200)}`)
  const seen = told(before.at(-1)!)
  for (const name of expected) t.match(seen, `done-${name}`, `the model reads the result of ${name}`)
  const picture = readFileSync(on.picture).toString('base64')
  t.equal(seen.includes(agent.sees?.(picture) ?? picture), hands.look !== undefined || agent.sees !== undefined,
    'whether the model sees the picture')
  t.match(readFileSync(join(on.work, 'three.txt'), 'utf8'), /^three\n?$/)
  // A turn each, one more for that which broke, and one or two for that which was too long.
  t.ok(requests <= HABITS[vendor].length + 3 + agent.beside, `${requests} requests to the vendor`, context)

  const second = await run(t, agent, on, { ...ask, resumes: true,
    prompt: `Now the rest. ${scriptDirective([...rest(agent), ...summary(agent)])}` })
  const after = { stderr: second.stderr.slice(-3000), stdout: second.stdout.slice(-3000) }
  const more = at.simulator.requests.length - requests
  t.comment(`${agent.name}, ${vendor}: goes on and compacts, ${more} requests, ${second.seconds} s: ` +
    second.read.trim().slice(-200))
  t.equal(second.code, 0, 'it ends well', after)
  t.match(second.read, /All is done\./, 'the user reads the last word', after)
  t.strictSame(taken(on), [...expected, 'after', 'before', 'before-too'].toSorted(), 'each call was run once', after)
  const last = told(steps(at).at(-1)!)
  t.match(last, 'done-after')
  if (agent.compacts !== undefined) t.notMatch(last, 'done-turn-0\\b', 'the old turns are not sent any more')
  t.ok(more <= 6 + agent.beside, `${more} requests to the vendor`, after)
  t.strictSame(at.simulator.requests.filter(({ failure }) => failure !== undefined), [])
  await isCharged(t, at)
}

const POOR = `sk-gw-${'p'.repeat(32)}`
const WRONG = `sk-gw-${'w'.repeat(32)}`

interface Trial {
  readonly key?: string
  readonly model?: string
  /** what the vendor does to every request */
  readonly faults?: string
  /** the key is busy until it was refused so often */
  readonly busy?: number
}

const ERRORS = {
  context: { faults: 'habit=context_words' },
  'wrong key': { key: WRONG },
  'no money': { key: POOR },
  'no money at the vendor': { faults: 'habit=no_money_400' },
  'rate limit': { busy: RATE_SAYS },
  'unknown model': { model: 'no-such-model' }
} as const satisfies Readonly<Record<string, Trial>>

const PEOPLE = `
accounts: [{ id: me, name: Me, opening_balance_usd: 100 }, { id: poor, name: Poor, opening_balance_usd: 0 }]
keys:
  - { id: mine, account: me, secret: ${KEY}, concurrency: 1 }
  - { id: poor, account: poor, secret: ${POOR} }
`

/** Keeps the one place that the key has until requests of it were refused so often. */
async function occupy ({ gw, simulator }: Stage, times: number): Promise<() => Promise<void>> {
  const leave = new AbortController()
  const held = gw.messages({ model: 'claude-sonnet', max_tokens: 9,
    messages: [{ role: 'user', content: '[[sim: stall]]' }] }, { signal: leave.signal }).catch(() => {})
  await simulator.until(() => simulator.requests.length > 0)
  let isWatching = true
  const watch = (async () => {
    while (isWatching && refusals(gw.logged) < times) await setImmediate()
    leave.abort()
    await held
  })()
  return async () => {
    isWatching = false
    await watch
  }
}

function refusals (logged: Stage['gw']['logged']): number {
  return logged.filter(({ code }) => code === 'org_queue_full').length
}

/** Requests that the gateway has ended, which may cost something. */
function asked ({ gw }: Stage): number {
  return gw.logged.filter(({ msg, path }) => msg === 'request' && !/models|count_tokens/.test(String(path))).length
}

async function acts (t: Test, agent: Agent, name: ErrorName): Promise<void> {
  const { key = KEY, model = 'claude-sonnet', faults = '', busy = 0 }: Trial = ERRORS[name]
  const { says, most, endsWell = false, waits } = agent.errors[name]!
  const at = await stage(t, { dialect: 'chat', faults, people: PEOPLE })
  const on = desk(t)
  const free = busy > 0 ? await occupy(at, busy) : undefined
  const ended = await run(t, agent, on, { url: at.gw.url, model, key, vendor: 'chat', resumes: false,
    until: waits === true ? says : undefined, prompt: `Do it. ${scriptDirective([{ say: 'All is done.' }])}` })
  await free?.()
  while (at.gw.server.inFlight > 0) await setImmediate()
  const requests = asked(at) - (busy > 0 ? 1 : 0)
  const read = `${ended.stdout}\n${ended.stderr}`
  t.comment(`${agent.name}, ${name}: ${requests} requests, ${ended.seconds} s, exit code ${ended.code}: ` +
    read.replaceAll(/\s+/g, ' ').trim().slice(-500))
  const context = { stdout: ended.stdout.slice(-3000), stderr: ended.stderr.slice(-3000) }
  t.match(read, says, 'what its user reads', context)
  t.equal(ended.code === 0, endsWell, 'whether it ends well', context)
  t.ok(requests > 0 && requests <= LATE * most, `${requests} requests, ${most} where nothing is late`,
    context)
}

/** `ARENA=all` tries everything: else one vendor and some errors by chance, since agents take minutes. */
const isWhole = process.env['ARENA'] === 'all'
const SOME_ERRORS = 2

/** So many of them, by chance. */
function drawn<T> (all: readonly T[], most: number): readonly T[] {
  const from = Math.floor(Math.random() * all.length)
  return isWhole ? all : [...all, ...all].slice(from, from + Math.min(most, all.length))
}

/** Tests of one agent, for a file of its own. */
export function arena (agent: Agent): void {
  const options = { skip: agent.program.skip }
  for (const vendor of drawn(Object.keys(HABITS) as Vendor[], 1)) {
    t.test(`a loop with a vendor of ${vendor} that misbehaves, cut, gone on with and compacted`, options,
      (t) => loops(t, agent, vendor))
  }
  for (const name of drawn(Object.keys(agent.errors) as ErrorName[], SOME_ERRORS)) {
    t.test(`error: ${name}`, options, (t) => acts(t, agent, name))
  }
}
