// Upstreams: who answers, what waits for them, how each target fares, and what it said when it failed last. Read again
// every few seconds.
import type { VNode } from 'preact'
import { ask, may, type Rows } from './api.ts'
import { useAction, useData } from './data.ts'
import { html } from './html.ts'
import { Empty, Page, Problem, say, State, Table, Time, Waiting } from './parts.ts'

interface Upstream {
  readonly id: string
  readonly dialect: string
  readonly maintenance: boolean
  /** null: it has no limits */
  readonly queue: { readonly running: number, readonly waiting: number, readonly most_running: number,
    readonly most_waiting: number } | null
  readonly targets: readonly Target[]
  readonly credentials: readonly Credential[]
}

interface Credential {
  readonly id: string
  readonly running: number
  readonly state: 'healthy' | 'cooling_down' | 'probing'
  readonly reason: 'no_money' | 'bad_key' | 'forbidden' | 'limited' | null
  readonly until: string | null
}

interface Target {
  readonly model: string
  readonly breaker: 'closed' | 'half_open' | 'open'
  readonly running: number
  readonly ended: number
  readonly failed: number
  readonly wait_ms: number
  readonly last_error: { readonly at: string, readonly request_id: string, readonly credential: string | null,
    readonly cause: string, readonly said: string | null } | null
}

const EVERY_MS = 5000

export default function Upstreams (): VNode {
  const { value, error, again } = useData<Rows<Upstream>>('/upstreams?limit=1000', EVERY_MS)
  return html`<${Page} title="Upstreams"><${Problem} error=${error} again=${again} />
    ${value === undefined ? error === undefined && html`<${Waiting} what="how the upstreams fare" />`
      : value.data.length === 0 ? html`<${Empty} title="No upstreams yet">They are where models live. Declare one in
        gateway.yaml under <code>upstreams:</code>.<//>`
        : value.data.map((one) => html`<section key=${one.id}><h2>${one.id} <span class="quiet">${one.dialect}</span>
          ${one.maintenance && html` <${State} is="maintenance" />`}</h2>
          ${one.queue !== null && html`<${Queue} of=${one.queue} />`}
          ${one.targets.length === 0 ? html`<p class="quiet">No model is sold from here.</p>`
            : html`<${Targets} of=${one} />`}
          ${one.credentials.some(({ running, state }) => running > 0 || state !== 'healthy') &&
            html`<${Credentials} of=${one} again=${again} />`}
          </section>`)}<//>`
}

function Queue ({ of: { running, waiting, most_running: places, most_waiting: most } }: {
  readonly of: NonNullable<Upstream['queue']>
}): VNode {
  return html`<p>Queue: ${waiting} waiting, ${running} running.${' '}
    <span class="quiet">Each process lets ${places} run and ${most} wait.</span></p>`
}

function Targets ({ of: { id, targets } }: { readonly of: Upstream }): VNode {
  return html`<${Table} caption="Targets of ${id}" rows=${targets} keyOf=${({ model }: Target) => model} columns=${[
    { name: 'Model', show: ({ model }: Target) => model },
    { name: 'Breaker', show: ({ breaker }: Target) => html`<${State} words=${breaker}
      is=${breaker === 'closed' ? 'active' : breaker} />` },
    { name: 'Running', isNumber: true, show: ({ running }: Target) => running },
    { name: 'Ended', isNumber: true, show: ({ ended }: Target) => ended },
    { name: 'Failed', isNumber: true, show: ({ failed }: Target) => failed },
    { name: 'Asked again in', isNumber: true, show: ({ wait_ms: wait }: Target) => wait > 0 ? seconds(wait) : 'now' },
    { name: 'Last error', show: ({ last_error: last }: Target) => last === null ? html`<span class="quiet">none since the
      start</span>` : html`<${Time} at=${last.at} /> ${last.cause}${last.said !== null && html`: <q>${last.said}</q>`}
      <br /><span class="quiet">request <code>${last.request_id}</code>${last.credential !== null &&
        ` with ${last.credential}`}</span>` }
  ]} />`
}

const REASONS = { no_money: 'no money', bad_key: 'key not accepted', forbidden: 'model not allowed',
  limited: 'rate limited' } as const

function Credentials ({ of: { id: upstream, credentials }, again }: {
  readonly of: Upstream, readonly again: () => void
}): VNode {
  const { run, isRunning, error } = useAction()
  const reset = (credential: string): void => {
    run(async () => {
      await ask('POST', `/upstreams/${encodeURIComponent(upstream)}/reset`, { body: { credential } })
      say(`The credential ${credential} is used again.`)
      again()
    })
  }
  return html`<${Problem} error=${error} /><${Table} caption="Credentials of ${upstream}" rows=${credentials}
    keyOf=${({ id }: Credential) => id} columns=${[
    { name: 'Credential', show: ({ id }: Credential) => id },
    { name: 'State', show: ({ state }: Credential) => html`<${State} words=${state}
      is=${state === 'healthy' ? 'active' : state === 'probing' ? 'half_open' : 'open'} />` },
    { name: 'Reason', show: ({ reason }: Credential) => reason === null ? '' : REASONS[reason] },
    { name: 'Until', show: ({ until }: Credential) => html`<${Time} at=${until} />` },
    { name: 'Running', isNumber: true, show: ({ running }: Credential) => running },
    { name: 'Reset', show: ({ id, state }: Credential) => state !== 'healthy' && may('operator') &&
      html`<button type="button" aria-label="Reset ${id}" disabled=${isRunning} onClick=${() => { reset(id) }}>
        Reset</button>` }
  ]} />`
}

function seconds (ms: number): string {
  return `${Math.ceil(ms / 1000)} s`
}
