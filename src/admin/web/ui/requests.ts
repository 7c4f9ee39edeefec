// The last requests: found by id, key, account, model, code or status, and what every upstream said.
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import { useData, useList } from './data.ts'
import { html } from './html.ts'
import { Empty, Field, Page, Pairs, Problem, State, Table, textOf, Time, Waiting } from './parts.ts'
import { go, to } from './route.ts'

interface Attempt {
  readonly upstream: string
  readonly target: string | null
  readonly credential: string | null
  readonly status: number | null
  readonly error: string | null
  readonly said: string | null
}

export interface Logged {
  readonly request_id: string
  readonly at: string
  readonly account: string | null
  readonly key: string | null
  readonly model: string | null
  readonly route: string
  readonly style: string
  readonly channel: string | null
  readonly stream: boolean | null
  readonly status: number
  readonly code: string
  readonly outcome: string
  readonly by: string | null
  readonly config_generation: number
  readonly first_byte_ms: number | null
  readonly duration_ms: number
  readonly own_ms: number
  readonly queue_ms: number
  readonly cost_usd: string | null
  readonly usage: Readonly<Record<string, unknown>> | null
  readonly usage_source: string | null
  readonly attempts_begun: number
  readonly attempts: readonly Attempt[]
}

const FIELDS = { key: 'Key', account: 'Account', model: 'Model', code: 'Code', status: 'Status' }
const EVERY_MS = 3000

export default function Requests ({ steps: [id] }: { readonly steps: readonly string[] }): VNode {
  return id === undefined ? html`<${RequestList} />` : html`<${OneRequest} id=${id} />`
}

function RequestList (): VNode {
  const [form, setForm] = useState<Readonly<Record<string, string>>>({})
  const [id, setId] = useState('')
  const [isLive, setLive] = useState(false)
  const [asked, setAsked] = useState('')
  const { rows, error, more, again } = useList<Logged>(`/requests?limit=50${asked}`, isLive ? EVERY_MS : undefined)
  return html`<${Page} title="Requests" actions=${html`<label class="check"><input type="checkbox" checked=${isLive}
    onChange=${(event: Event) => { setLive((event.currentTarget as HTMLInputElement).checked) }} /> Live</label>
    <button type="button" onClick=${again}>Read again</button>`}>
    <form class="filter" onSubmit=${(event: Event) => {
      event.preventDefault()
      if (id.trim() !== '') return go('requests', id.trim())
      const said = Object.entries(form).map(([name, text]) => [name, text.trim()]).filter(([, text]) => text !== '')
      setAsked(said.map(([name, text]) => `&${name}=${encodeURIComponent(text!)}`).join(''))
    }}><${Field} label="Request id">${(tied: object) => html`<input ...${tied} value=${id} placeholder="req_…"
        onInput=${(event: Event) => { setId(textOf(event)) }} />`}<//>
      ${Object.entries(FIELDS).map(([name, label]) => html`<${Field} key=${name} label=${label}>${(tied: object) =>
        html`<input ...${tied} name=${name} value=${form[name] ?? ''}
          onInput=${(event: Event) => { setForm({ ...form, [name]: textOf(event) }) }} />`}<//>`)}
      <button>Find</button></form>
    <${Problem} error=${error} again=${again} />
    ${rows === undefined ? error === undefined && html`<${Waiting} what="the requests" />`
      : rows.length === 0 ? html`<${Empty} title=${asked === '' ? 'No requests yet' : 'No request fits'}>${asked === ''
        ? html`A request is here a second after its end, as long as <code>log.requests</code> keeps it.`
        : 'Take something out of the filter, or look on another host: each has what it has served itself.'}<//>`
        : html`<${Table} caption="Requests" rows=${rows} more=${more} keyOf=${(one: Logged) => one.request_id} columns=${[
          { name: 'Request', show: ({ request_id: one }: Logged) => html`<a href=${to('requests', one)}><code>${one}</code>
            </a>` },
          { name: 'Came', show: ({ at }: Logged) => html`<${Time} at=${at} />` },
          { name: 'Status', isNumber: true, show: ({ status }: Logged) => status === 0 ? 'none' : status },
          { name: 'Code', show: ({ code, outcome }: Logged) => html`<${State} words=${code}
            is=${code === 'ok' && outcome === 'completed' ? 'active' : 'failed'} />` },
          { name: 'Key', show: ({ key }: Logged) => key !== null && html`<a href=${to('keys', key)}>${key}</a>` },
          { name: 'Model', show: ({ model, channel }: Logged) => model !== null && html`${model}
            ${channel !== null && html` <span class="quiet">${channel}</span>`}` },
          { name: 'Cost US$', isNumber: true, show: (one: Logged) => one.cost_usd },
          { name: 'First byte ms', isNumber: true, show: (one: Logged) => rounded(one.first_byte_ms) },
          { name: 'Whole ms', isNumber: true, show: (one: Logged) => rounded(one.duration_ms) },
          { name: 'Attempts', isNumber: true, show: (one: Logged) => one.attempts_begun }
        ]} />`}<//>`
}

function OneRequest ({ id }: { readonly id: string }): VNode {
  const { value: one, error, again } = useData<Logged>(`/requests/${encodeURIComponent(id)}`)
  if (one === undefined) {
    return html`<${Page} title="Request">${error === undefined ? html`<${Waiting} what="the request" />`
      : html`<${Problem} error=${error} again=${again} />`}<//>`
  }
  return html`<${Page} title="Request ${id}"><${Pairs} of=${[
    ['Came', html`<${Time} at=${one.at} />`],
    ['Ended', html`<${State} is=${one.outcome === 'completed' ? 'active' : 'failed'} words=${one.outcome} />${one.by !== null &&
      html` by the ${one.by}`}`],
    ['Status', one.status === 0 ? 'none' : one.status], ['Code', one.code],
    ['Route', html`<code>${one.route}</code>`], ['Style', one.style],
    ['Stream', one.stream === null ? 'body not read' : one.stream ? 'yes' : 'no'],
    ['Account', one.account !== null && html`<a href=${to('accounts', one.account)}>${one.account}</a>`],
    ['Key', one.key !== null && html`<a href=${to('keys', one.key)}>${one.key}</a>`],
    ['Model', one.model], ['Channel', one.channel], ['Cost', one.cost_usd === null ? 'no charge' : `$${one.cost_usd}`],
    ['First byte', one.first_byte_ms === null ? 'none' : `${rounded(one.first_byte_ms)} ms`],
    ['Whole', `${rounded(one.duration_ms)} ms`], ['Own part', `${rounded(one.own_ms)} ms`],
    ['In queues', `${rounded(one.queue_ms)} ms`], ['Configuration', one.config_generation],
    ...one.usage === null ? [] : [[`Usage (${one.usage_source ?? 'unknown'})`, wordsOf(one.usage)]]]} />
    <h2>Attempts</h2><${Attempts} of=${one.attempts} /><//>`
}

export function Attempts ({ of: attempts }: { readonly of: readonly Attempt[] }): VNode {
  if (attempts.length === 0) return html`<p class="quiet">No upstream was asked.</p>`
  return html`<${Table} caption="Attempts" rows=${attempts} keyOf=${(attempt: Attempt) =>
    String(attempts.indexOf(attempt))} columns=${[
    { name: 'Upstream', show: ({ upstream }: Attempt) => html`<a href=${to('upstreams')}>${upstream}</a>` },
    { name: 'Target', show: ({ target }: Attempt) => target },
    { name: 'Credential', show: ({ credential }: Attempt) => credential },
    { name: 'Status', isNumber: true, show: ({ status }: Attempt) => status ?? 'none' },
    { name: 'Error', show: ({ error: why }: Attempt) => why ?? html`<${State} is="active" words="answered" />` },
    { name: 'What it said', show: ({ said }: Attempt) => said !== null && html`<q>${said}</q>` }
  ]} />`
}

export function rounded (ms: number | null): string {
  return ms === null ? '' : ms < 10 ? ms.toFixed(1) : Math.round(ms).toLocaleString()
}

export function wordsOf (usage: Readonly<Record<string, unknown>>): string {
  const { extras, ...tokens } = usage as { readonly extras: Readonly<Record<string, number>> }
  return Object.entries({ ...tokens, ...extras }).filter(([, number]) => number !== 0)
    .map(([name, number]) => `${name} ${String(number)}`).join(', ')
}
