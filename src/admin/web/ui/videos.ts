// The video tasks of all accounts: how far they are, what they hold, and why they failed.
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import { useList } from './data.ts'
import { html } from './html.ts'
import { Empty, Field, Page, Problem, State, Table, textOf, Time, Waiting } from './parts.ts'
import { to } from './route.ts'

interface Video {
  readonly id: string
  readonly request_id: string
  readonly account: string
  readonly key: string
  readonly model: string
  readonly channel: string
  readonly upstream: string
  readonly upstream_id: string
  readonly status: string
  readonly progress: number
  readonly seconds: string
  readonly size: string
  readonly created_at: string
  readonly held_usd: string
  readonly charged_usd: string
  readonly error: { readonly code: string, readonly message: string } | null
}

const STATES = ['', 'queued', 'in_progress', 'completed', 'failed']

export default function Videos (): VNode {
  const [state, setState] = useState('')
  const { rows, error, more, again } = useList<Video>(`/videos${state === '' ? '' : `?state=${state}`}`)
  return html`<${Page} title="Videos" actions=${html`<button type="button" onClick=${again}>Read again</button>`}>
    <div class="filter"><${Field} label="State">${(tied: object) => html`<select ...${tied} value=${state}
      onChange=${(event: Event) => { setState(textOf(event)) }}>${STATES.map((one) => html`<option value=${one}>
        ${one === '' ? 'all' : one.replaceAll('_', ' ')}</option>`)}</select>`}<//></div>
    <${Problem} error=${error} again=${again} />
    ${rows === undefined ? error === undefined && html`<${Waiting} what="the videos" />`
      : rows.length === 0 ? html`<${Empty} title=${state === '' ? 'No videos yet' : 'No video is in this state'}>A video is
        a task that a client makes with <code>POST /v1/videos</code>; those that are over are forgotten after a time.<//>`
        : html`<${Table} caption="Videos" rows=${rows} more=${more} keyOf=${({ id }: Video) => id} columns=${[
          { name: 'Video', show: ({ id }: Video) => html`<code>${id}</code>` },
          { name: 'State', show: ({ status }: Video) => html`<${State} is=${status === 'completed' ? 'active' : status}
            words=${status} />` },
          { name: 'Progress', isNumber: true, show: ({ progress }: Video) => `${progress} %` },
          { name: 'Asked for', show: ({ created_at: at }: Video) => html`<${Time} at=${at} />` },
          { name: 'Key', show: ({ key }: Video) => html`<a href=${to('keys', key)}>${key}</a>` },
          { name: 'Model', show: ({ model, channel }: Video) => html`${model} <span class="quiet">${channel}</span>` },
          { name: 'Upstream', show: ({ upstream, upstream_id: there }: Video) => html`${upstream}${' '}
            <code>${there}</code>` },
          { name: 'Length', show: ({ seconds, size }: Video) => `${seconds} s, ${size}` },
          { name: 'Held US$', isNumber: true, show: (one: Video) => one.held_usd },
          { name: 'Charged US$', isNumber: true, show: (one: Video) => one.charged_usd },
          { name: 'Error', show: ({ error: why }: Video) => why !== null && `${why.code}: ${why.message}` }
        ]} />`}<//>`
}
