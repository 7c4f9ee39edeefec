// What a request would cost and where it would go, as the gateway explains it; and what it has cost and where it went,
// as the log of requests and the ledger have it.
import type { VNode } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { ApiError, read, type Rows } from './api.ts'
import { html } from './html.ts'
import { type Price, wordsOf as priceOf } from './models.ts'
import { Pairs, State, Table, Time } from './parts.ts'
import { Attempts, type Logged, rounded, wordsOf } from './requests.ts'

interface Target {
  readonly channel?: string
  readonly upstream: string
  readonly model?: string
  readonly priority?: number | null
  readonly weight?: number | null
}

interface Step {
  readonly who: string
  readonly hook: string
  readonly verdict: string
  readonly wrote: readonly string[]
}

export interface Explanation {
  readonly account: string | null
  readonly allowed: boolean
  readonly then: string
  readonly refusal: { readonly status: number, readonly code: string, readonly message: string } | null
  readonly steps: readonly Step[]
  readonly targets: readonly Target[]
  readonly in_maintenance: readonly Target[]
  readonly max_cost_usd: string
  readonly held_at_start_usd: string
  readonly max_input_tokens: number
  readonly max_output_tokens: number
  readonly prices: readonly { readonly channel: string, readonly price: Price, readonly until: string | null }[]
  readonly limits: { readonly available_usd: string } | null
}

export function Explained ({ of: found }: { readonly of: Explanation }): VNode {
  const { allowed, then, refusal, targets, in_maintenance: left, prices, limits } = found
  return html`<p role="status">${allowed ? html`<${State} is="active" words="would be ${then}" />`
    : html`<${State} is="failed" words="would be refused: ${refusal!.status} ${refusal!.code}" />`}</p>
    ${refusal !== null && html`<p>${refusal.message.replace(/ Request ID: \S+$/, '')}</p>`}
    <${Pairs} of=${[['Quoted, at most', html`<span class="quoted">$${found.max_cost_usd}</span>`],
      ['Held at first', `$${found.held_at_start_usd}`],
      ...found.max_output_tokens === 0 ? [] : [['Tokens, at most', `${found.max_input_tokens.toLocaleString()} in, ${
        found.max_output_tokens.toLocaleString()} out`]],
      ...limits === null ? [] : [['Account has left', `$${limits.available_usd}`]]]} />
    ${prices.map(({ channel, price, until }) => html`<p class="quiet" key=${channel}>${channel}: ${priceOf(price)}${until !==
      null && html`, until <${Time} at=${until} />`}</p>`)}
    ${targets.length > 0 && html`<${Table} caption="Who would be asked, in this order" rows=${targets}
      keyOf=${(one: Target) => String(targets.indexOf(one))} columns=${[
      { name: 'Upstream', show: ({ upstream }: Target) => upstream },
      { name: 'Model there', show: ({ model }: Target) => model },
      { name: 'Channel', show: ({ channel }: Target) => channel },
      { name: 'Priority', isNumber: true, show: ({ priority }: Target) => priority },
      { name: 'Weight', isNumber: true, show: ({ weight }: Target) => weight }
    ]} /><p class="quiet">The first that answers is it. The order within a priority is drawn by weight, each time
      anew.</p>`}
    ${left.length > 0 && html`<p class="quiet">In maintenance, so not asked: ${left.map(({ upstream, model }) =>
      `${upstream} ${model ?? ''}`).join(', ')}.</p>`}
    <details><summary>Why: what each plugin said</summary><${Table} caption="Steps" rows=${found.steps}
      keyOf=${(one: Step) => String(found.steps.indexOf(one))} columns=${[
      { name: 'Who', show: ({ who }: Step) => who }, { name: 'When', show: ({ hook }: Step) => hook },
      { name: 'Verdict', show: ({ verdict }: Step) => verdict },
      { name: 'Found out', show: ({ wrote }: Step) => wrote.join(', ') }
    ]} /></details>`
}

/** The log of requests has a request about a second after its end; this often it is asked, so long apart. */
const TRIES = 20
const AGAIN_MS = 500

interface Found {
  readonly logged?: Logged
  readonly cost?: string | undefined
  readonly error?: Error
}

/**
 * What a request that is over has cost.
 * @param told by its own head; undefined: it could not be known by then
 * @param none where nothing was charged: why
 */
export function Spent ({ id, quoted, told, none }: {
  readonly id: string, readonly quoted: string, readonly told: string | undefined, readonly none: string
}): VNode {
  const [found, setFound] = useState<Found>()
  useEffect(() => {
    const abort = new AbortController()
    entryOf(id, told, abort.signal).then(setFound, (error: unknown) => {
      if (!abort.signal.aborted) setFound({ error: error as Error })
    })
    return () => { abort.abort() }
  }, [id])
  const { logged, error } = found ?? {}
  const cost = logged === undefined ? found?.cost ?? told : logged.cost_usd ?? undefined
  return html`<h2>What it has cost</h2><${Pairs} of=${[
    ['Quoted, at most', `$${quoted}`],
    ['Real', html`<span class="real">${cost !== undefined ? `$${cost}` : found === undefined ? 'being written down …'
      : none}</span>`],
    ...cost === undefined ? [] : [['Compared', compared(cost, quoted)]],
    ...logged === undefined ? [] : [['Channel', logged.channel ?? 'none'],
      ...logged.usage === null ? [] : [['Usage', wordsOf(logged.usage)]],
      ['At the gateway', `first byte ${logged.first_byte_ms === null ? 'none' : `${rounded(logged.first_byte_ms)} ms`}, ` +
        `own part ${rounded(logged.own_ms)} ms, queues ${rounded(logged.queue_ms)} ms`]]]} />
    ${error !== undefined && html`<p class="wrong">${error.message}</p>`}
    ${logged !== undefined && html`<h3>Who was asked</h3><${Attempts} of=${logged.attempts} />`}
    ${found !== undefined && logged === undefined && error === undefined && html`<p class="quiet">The log of requests does
      not have it (<code>log.requests.keep</code>), so the ledger was asked.</p>`}`
}

function compared (real: string, quoted: string): string {
  if (real === quoted) return 'exactly as quoted'
  return Number(real) < Number(quoted) ? 'within the quote, which is for the longest answer' : 'more than was quoted'
}

/** Of the log of requests, or else of the ledger. */
async function entryOf (id: string, told: string | undefined, signal: AbortSignal): Promise<Found> {
  const { keep } = await read<{ readonly keep: number }>('/requests?limit=1', { isBackground: true, signal })
  for (let i = 0; keep > 0 && i < TRIES; i++) {
    try {
      return { logged: await read<Logged>(`/requests/${encodeURIComponent(id)}`, { isBackground: true, signal }) }
    } catch (thrown) {
      if (!(thrown instanceof ApiError) || thrown.status !== 404) throw thrown
    }
    await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS) })
    signal.throwIfAborted()
  }
  interface Entry { readonly kind: string, readonly amount_usd: string }
  const { data } = await read<Rows<Entry>>(`/ledger?order=newest&reference=${encodeURIComponent(id)}`,
    { isBackground: true, signal })
  const settled = data.find(({ kind }) => kind === 'settle')
  return { cost: settled?.amount_usd.replace(/^-/, '') ?? told }
}
