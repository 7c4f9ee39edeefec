// Random traffic through a real gateway, written down at both of its ends: what one request is to go through, what its
// client and its upstream saw of it, and what it may cost by that. For tests that kill what is between them.
import type { Entry } from '../../src/store/store.ts'
import { ask, type Got } from './billing-client.ts'
import { clientStyles, type Style, styles, toldError } from './client-styles.ts'
import { KEY } from './gateway.ts'
import { blockStart, blockStop, cut, errorReply, json, message, messageDelta, messageStart, messageStop, step,
  textDelta, wait, type Received, type Script, type Step } from './upstream.ts'

/** SEED repeats the plans and the moments, not how they meet. */
export const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000)
// Prices of test/support/gateway.ts, in nano-dollars for each token.
const [INPUT, READ, OUTPUT] = [3000n, 300n, 15_000n]

/** The gateway tells its upstream which request it is: a client that is cut early never learns that. */
export const TELL_ID = `
export default { name: 'tell-id', create: () => ({ perAttempt: (_attempt, exchange) => ({ onUpstreamRequest (request) { request.headers['x-exchange'] = exchange.id } }) }) }
`
/** mulberry32 */
let state = SEED
export function random (below: number): number {
  state = (state + 0x6D2B79F5) | 0
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
  return ((mixed ^ (mixed >>> 14)) >>> 0) % below
}

const one = <T>(of: readonly T[]): T => of[random(of.length)]!

// What one request is to go through, and what became of it at each end.

/** Of so many tokens that progress has something to record. */
const WORD = 'lynx'.repeat(16)
const WORD_TOKENS = 16

export interface Plan {
  readonly name: string
  /** secret of its key */
  readonly key: string
  /** its account or key may not have the money for all of it */
  readonly isShort: boolean
  readonly style: Style
  readonly stream: boolean
  readonly words: number
  /** milliseconds before each of them, or before a JSON answer */
  readonly pace: number
  /**
   * tokens that the upstream reports; those of the output are more than its words, so it is seen who counted; thoughts,
   * so that they teach nothing
   */
  readonly usage: { readonly input_tokens: number, readonly cache_read_input_tokens: number,
    readonly output_tokens: number, readonly output_tokens_details: object }
  readonly trouble: 'none' | 'leaves' | 'leaves at any time' | 'upstream cuts' | 'upstream refuses'
    | 'upstream is empty'
  /** words, or milliseconds */
  readonly after: number
}

/** By the upstream, written down before it is done: what it says is the most that can have arrived. */
export interface Sent {
  readonly id: string
  hasBegun: boolean
  words: number
  hasReported: boolean
}

export interface Asked {
  readonly plan: Plan
  readonly got: Got
}

export function newPlan (name: string, key = KEY, isShort = false): Plan {
  const words = 1 + random(12)
  const stream = random(3) > 0
  const trouble = one(
    ['none', 'none', 'none', 'none', 'none', stream ? 'leaves' : 'none', 'leaves at any time', 'upstream cuts',
      'upstream refuses', 'upstream is empty'] as const
  )
  return {
    name, key, isShort, words, stream, trouble,
    style: one(styles),
    // Some for so long that progress is recorded before they end.
    pace: one([0, 0, 5, 20, 60, 300]),
    usage: { input_tokens: 1 + random(50), cache_read_input_tokens: random(1000),
      output_tokens: words * WORD_TOKENS + 7, output_tokens_details: { thinking_tokens: 7 } },
    after: trouble === 'leaves at any time' ? random(200) : 1 + random(words)
  }
}

const inputCost = ({ usage }: Plan): bigint =>
  BigInt(usage.input_tokens) * INPUT + BigInt(usage.cache_read_input_tokens) * READ
const wholeCost = (plan: Plan): bigint => inputCost(plan) + BigInt(plan.usage.output_tokens) * OUTPUT
/** message_start reports one. */
const producedCost = (words: number): bigint => BigInt(Math.max(1, words * WORD_TOKENS)) * OUTPUT

/** With usage, or with a reason for its end, an empty answer would be an answer. */
const UNUSED = { usage: { input_tokens: 0, output_tokens: 0 } }

function scriptOf (plan: Plan, sent: Sent): Script {
  const { usage, words, pace, trouble } = plan
  const note = (change: () => void): Step => step(change)
  const slowly = pace === 0 ? [] : wait(pace)
  if (trouble === 'upstream refuses') return [slowly, errorReply(500, 'api_error', 'no')]
  const begins = note(() => { sent.hasBegun = true })
  const reports = note(() => { sent.hasReported = true })
  if (!plan.stream) {
    if (trouble === 'upstream cuts') return [slowly, cut()]
    if (trouble === 'upstream is empty') return [slowly, json({ ...message('', UNUSED), content: [], stop_reason: null })]
    return [slowly, begins, reports, note(() => { sent.words = words }), json(message(WORD.repeat(words), { usage }))]
  }
  const start: Script = [begins, messageStart({ usage: { ...usage, output_tokens: 1 } })]
  const end: Script = [reports, messageDelta({ usage }), messageStop()]
  if (trouble === 'upstream is empty') return [messageStart(UNUSED), messageStop()]
  const says = (
    count: number
  ): Script => [blockStart(0), ...Array.from({ length: count }, (): Script => [slowly, note(() => {
    sent.words++
  }), textDelta(0, WORD)])]
  return trouble === 'upstream cuts' ? [start, says(plan.after), cut()] : [start, says(words), blockStop(0), end]
}

function bodyOf ({ name, style, stream }: Plan): Json {
  return clientStyles[style].asking({ model: 'm1', max_tokens: 200, stream,
    messages: [{ role: 'user', content: name }] })
}

/** What an upstream answers to all of them. @param fail one was asked twice */
export function answerTo (
  plans: ReadonlyMap<string, Plan>,
  sent: Map<string, Sent>,
  fail: (message: string) => void
): (request: Received) => Script {
  return ({ body, headers }) => {
    const [{ content }] = body!['messages'] as [{ content: string | { text: string }[] }]
    const plan = plans.get(typeof content === 'string' ? content : content[0]!.text)!
    const answering: Sent = { id: String(headers['x-exchange']), hasBegun: false, words: 0, hasReported: false }
    // What ends without a byte of an answer on a connection that had waited looks like a lost race, and is asked once
    // more.
    const mayRepeat = plan.trouble === 'upstream cuts' && !plan.stream
    if (sent.has(plan.name) && !mayRepeat) fail(`${plan.name} was asked twice`)
    sent.set(plan.name, answering)
    return scriptOf(plan, answering)
  }
}

/**
 * Leaves, if that is the plan. Never rejects. `onEnd` is called at once when it has the end of a good answer in its
 * hands.
 */
export async function play (plan: Plan, api: string, onEnd: () => void): Promise<Asked> {
  const leaving = new AbortController()
  const { trouble, after } = plan
  const timer = trouble === 'leaves at any time' ? setTimeout(() => { leaving.abort() }, after) : undefined
  const { path, opening, closing } = clientStyles[plan.style]
  const length = opening + plan.words + closing
  const got = await ask(api + path, bodyOf(plan), {
    headers: { authorization: `Bearer ${plan.key}` },
    leave: leaving.signal,
    ...(trouble === 'leaves' && { leaveAfter: opening + after }),
    onHead: (status) => {
      if (!plan.stream && status === 200) onEnd()
    },
    onEvent: (count) => {
      if (count === length) onEnd()
    }
  })
  clearTimeout(timer)
  return { plan, got }
}

// What a client can tell of an answer, in any style.

export type Json = Readonly<Record<string, unknown>>

/** What it holds that an answer ends with; undefined: it saw no end. */
function endOf (
  { plan, got }: Asked
): { readonly kind: 'whole' } | { readonly kind: 'error', readonly nanos: bigint } | undefined {
  const error = toldError(got)
  if (error !== undefined) return { kind: 'error', nanos: nanosOf(error.charged_usd) }
  return got.body !== undefined || clientStyles[plan.style].isEnded(got.events) ? { kind: 'whole' } : undefined
}

function wordsIn ({ plan, got }: Asked): number {
  return got.events.filter((event) => clientStyles[plan.style].textOf(event) !== '').length
}

function nanosOf (usd: string): bigint {
  const [whole, fraction = ''] = usd.split('.')
  return BigInt(whole + fraction.padEnd(9, '0'))
}

/** What one request may have cost, and by whose word. */
type Verdict = readonly [least: bigint | 'nothing', most: bigint | 'nothing', why: string]

function judge (asked: Asked, sent: Sent | undefined, logged: Json | undefined): Verdict {
  const { plan } = asked
  const end = endOf(asked)
  const words = wordsIn(asked)
  if (end?.kind === 'whole') return [plan.isShort ? 1n : wholeCost(plan), wholeCost(plan), 'the client has its end']
  if (sent === undefined || !sent.hasBegun) return ['nothing', 'nothing', 'the upstream never answered']
  if (end?.kind === 'error' && words === 0 && end.nanos === 0n) {
    return ['nothing', 'nothing', 'the client was told that it is free']
  }
  if (end?.kind === 'error') {
    // What the gateway saw and the drain cut off may be more than what it had written by then.
    const most = producedCost(sent.hasReported ? plan.usage.output_tokens : sent.words)
    if ((end.nanos < producedCost(words) && !plan.isShort) || end.nanos > most) {
      throw new Error(`${plan.name} was told ${end.nanos}, with ${words} of ${sent.words} words`)
    }
    return [end.nanos, end.nanos, 'the client was told what it costs']
  }
  if (logged !== undefined) {
    if (logged['nanos'] === undefined) {
      if (words > 0) throw new Error(`${plan.name} had ${words} words, and its line in the log has no charge`)
      return ['nothing', 'nothing', 'the log says that it is free']
    }
    const nanos = BigInt(String(logged['nanos']))
    if (words > 0 && nanos < inputCost(plan) + producedCost(words) && !plan.isShort) {
      throw new Error(`${plan.name} left with ${words} words, and paid ${nanos}`)
    }
    return [nanos, nanos, 'the log says what it costs']
  }
  const most = sent.hasReported ? wholeCost(plan) : inputCost(plan) + producedCost(sent.words)
  return ['nothing', most, 'killed in the middle']
}

// Both ends, and the books.

export interface Books {
  readonly entries: readonly Entry[]
  readonly wrong: readonly string[]
}

export interface Chapter {
  readonly asked: Asked[]
  readonly sent: Map<string, Sent>
  /** lines of the gateway's log about requests, by request id */
  readonly logged: Map<string, Json>
  /** nano-dollars by kind and request id, as found after the last kill */
  found: ReadonlyMap<string, bigint>
  readonly counts: Record<string, number>
}

/** Every request so far, and every entry, against each other. */
export function compare (
  { asked, sent, logged, counts, found: before }: Chapter,
  { entries, wrong }: Books
): { readonly wrong: readonly string[], readonly found: ReadonlyMap<string, bigint> } {
  const problems = [...wrong]
  const found = new Map(entries.map(({ kind, reference, nanos }) => [`${kind} ${reference}`, nanos]))
  for (const [name, nanos] of before) {
    if (found.get(name) !== nanos) problems.push(`${name}: was ${nanos}, is ${found.get(name)}`)
  }
  const strangers = new Set(entries.map(({ reference }) => reference))
  const byId = new Map(entries.map((entry) => [`${entry.kind} ${entry.reference}`, entry]))
  const count = (what: string): void => { counts[what] = (counts[what] ?? 0) + 1 }
  for (const what of Object.keys(counts)) counts[what] = 0
  for (const each of asked) {
    const { plan, got } = each
    const told = sent.get(plan.name)
    const id = told?.id ?? got.headers['x-request-id']
    if (typeof id !== 'string') { count('never arrived'); continue }
    strangers.delete(id)
    const entry = byId.get(`settle ${id}`)
    const about = `${JSON.stringify(plan)} ${id}: got ${got.status} ${got.ended}, ${got.events.length} events; upstream ${JSON.stringify(told)}; log ${JSON.stringify(logged.get(id))}; entry ${entry === undefined ? 'none' : `${entry.nanos} ${entry.usage_source}`}`
    try {
      const [least, most, why] = judge(each, told, logged.get(id))
      count(why)
      if (byId.has(`shortfall ${id}`) && !plan.isShort) problems.push(`a shortfall: ${about}`)
      if (why === 'killed in the middle' && entry !== undefined) {
        count(`of these charged by ${entry.usage_source === 'provider' ? 'the provider\'s count' : 'an estimate'}`)
      }
      if (why === 'the client has its end' && entry?.usage_source !== 'provider') {
        problems.push(`not by the provider's count: ${about}`)
      }
      const isRight = entry === undefined
        ? least === 'nothing'
        : most !== 'nothing' && -entry.nanos <= most && (least === 'nothing' || -entry.nanos >= least)
      if (!isRight) problems.push(`${least} to ${most}, because ${why}: ${about}`)
    } catch (error) {
      problems.push(`${(error as Error).message}: ${about}`)
    }
  }
  for (const id of strangers) problems.push(`an entry of a request that nobody made: ${id}`)
  return { wrong: problems, found }
}

