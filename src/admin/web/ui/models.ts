// Models and prices, by channel: what each costs now, and what is announced.
import type { VNode } from 'preact'
import { useList } from './data.ts'
import { html, type Children } from './html.ts'
import { Empty, Page, Problem, State, Table, Time, Waiting } from './parts.ts'

interface ItemPrice {
  readonly when?: Readonly<Record<string, string>>
  readonly usd?: string
  readonly usd_per_second?: string
}
export type Price = 'free' | Readonly<Record<string, string | Readonly<Record<string, string>>>> | readonly ItemPrice[]

interface Sold {
  readonly id: string
  readonly model: string
  readonly name: string
  readonly provider: string
  readonly kind: string
  readonly channel: string
  readonly enabled: boolean
  readonly maintenance: boolean
  readonly price: Price
  readonly since: string | null
  readonly until: string | null
  readonly announced: readonly { readonly from: string, readonly price: Price }[]
}

export default function Models (): VNode {
  const { rows, error, more, again } = useList<Sold>('/prices?limit=200')
  return html`<${Page} title="Models and prices"><${Problem} error=${error} again=${again} />
    ${rows === undefined ? error === undefined && html`<${Waiting} what="the prices" />`
      : rows.length === 0 ? html`<${Empty} title="Nothing is sold yet">Declare a model in gateway.yaml under
        <code>models:</code>, with a price and a target.<//>`
        : html`<p class="quiet">US$: of text per million tokens, of images each, of videos per second.</p>
        <${Table} caption="Models" rows=${rows} more=${more} keyOf=${({ id }: Sold) => id} columns=${[
          { name: 'Model', show: ({ model, name }: Sold) => html`${model} <span class="quiet">${name}</span>` },
          { name: 'Provider', show: ({ provider }: Sold) => provider },
          { name: 'Kind', show: ({ kind }: Sold) => kind },
          { name: 'Channel', show: ({ channel }: Sold) => channel },
          { name: 'State', show: ({ enabled, maintenance }: Sold) => html`<${State} is=${!enabled ? 'revoked'
            : maintenance ? 'maintenance' : 'active'} words=${!enabled ? 'switched off' : maintenance ? 'maintenance'
              : 'sold'} />` },
          { name: 'Price US$', show: ({ price }: Sold) => wordsOf(price) },
          { name: 'Until', show: ({ until }: Sold) => until !== null && html`<${Time} at=${until} />` },
          { name: 'Announced', show: ({ announced }: Sold) => announced.map(({ from, price }, i) =>
            html`${i > 0 && html`<br />`}<${Time} at=${from} />: ${wordsOf(price)}`) }
        ]} />`}<//>`
}

export function wordsOf (price: Price): Children {
  if (price === 'free') return 'free'
  if (Array.isArray(price)) {
    return (price as readonly ItemPrice[]).map(({ when = {}, usd, usd_per_second: second }, i) =>
      html`${i > 0 && html`<br />`}${usd ?? `${second} per second`} <span class="quiet">${Object.entries(when)
        .map(([name, value]) => `${name} ${value}`).join(', ')}</span>`)
  }
  return Object.entries(price).map(([name, value]) => typeof value === 'string'
    ? `${name.replaceAll('_', ' ')} ${value}`
    : Object.entries(value).map(([extra, each]) => `${extra.replaceAll('_', ' ')} ${each} each`).join(', ')
  ).filter((text) => text !== '').join(', ')
}
