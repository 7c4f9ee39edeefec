// The processes that serve clients from one store, and whether all of them run the same configuration.
import type { VNode } from 'preact'
import { useData } from './data.ts'
import { html } from './html.ts'
import { Empty, Page, Problem, State, Table, Time, Waiting } from './parts.ts'

interface Process {
  readonly id: string
  readonly host: string
  readonly pid: number
  readonly worker?: number
  readonly version: string
  readonly started: string
  readonly generation: number
  readonly hash: string
  readonly requests_in_flight: number
  readonly outbox?: number
  readonly reasons: readonly string[]
  readonly seen_s_ago: number
}

const EVERY_MS = 5000

export default function Fleet (): VNode {
  const { value, error, again } = useData<{ readonly is_converged: boolean, readonly data: readonly Process[] }>('/fleet',
    EVERY_MS)
  return html`<${Page} title="Fleet"><${Problem} error=${error} again=${again} />
    ${value?.is_converged === false && html`<p class="problem" role="alert">They do not all run the same configuration:
      compare the hashes.</p>`}
    ${value === undefined ? error === undefined && html`<${Waiting} what="the processes" />`
      : value.data.length === 0 ? html`<${Empty} title="No process was heard of yet">Each tells of itself every few
        seconds.<//>`
        : html`<${Table} caption="Processes" rows=${value.data} keyOf=${({ id }: Process) => id} columns=${[
          { name: 'Process', show: ({ host, pid, worker }: Process) => `${host} ${pid}${worker === undefined ? ''
            : `, worker ${worker}`}` },
          { name: 'State', show: ({ reasons }: Process) => reasons.length === 0 ? html`<${State} is="ready" />`
            : reasons.map((reason) => html`<${State} is=${reason} />`) },
          { name: 'Requests', isNumber: true, show: (one: Process) => one.requests_in_flight },
          { name: 'Outbox', isNumber: true, show: ({ outbox }: Process) => outbox ?? '–' },
          { name: 'Configuration', show: ({ hash }: Process) => html`<code>${hash.slice(0, 12)}</code>` },
          { name: 'Generation', isNumber: true, show: ({ generation }: Process) => generation },
          { name: 'Version', show: ({ version }: Process) => version },
          { name: 'Started', show: ({ started }: Process) => html`<${Time} at=${started} />` },
          { name: 'Heard of', isNumber: true, show: (one: Process) => `${Math.round(one.seen_s_ago)} s ago` }
        ]} />`}<//>`
}
