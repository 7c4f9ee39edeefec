// The audit log: who changed what, newest first, each line with its settings before and after.
import type { VNode } from 'preact'
import { useList } from './data.ts'
import { html } from './html.ts'
import { Empty, Page, Problem, Table, Time, Waiting } from './parts.ts'

interface Change {
  readonly seq: number
  readonly at: string
  readonly who: string
  readonly role?: string
  readonly address?: string
  readonly what: string
  readonly id: string
  readonly before?: Readonly<Record<string, unknown>> | null
  readonly after?: Readonly<Record<string, unknown>> | null
  readonly amount_usd?: string
  readonly reference?: string
  readonly reason?: string
  readonly request?: string
  readonly model?: string
}

export default function Audit (): VNode {
  const { rows, error, more, again } = useList<Change>('/audit?order=newest&limit=100')
  return html`<${Page} title="Audit" actions=${html`<button type="button" onClick=${again}>Read again</button>`}>
    <${Problem} error=${error} again=${again} />
    ${rows === undefined ? error === undefined && html`<${Waiting} what="the audit log" />`
      : rows.length === 0 ? html`<${Empty} title="Nothing was changed yet">Each change of a key, an account or a token
        leaves a line here, whoever makes it and whichever way.<//>`
        : html`<${Table} caption="Changes" rows=${rows} more=${more} keyOf=${({ seq }: Change) => String(seq)} columns=${[
          { name: 'When', show: ({ at }: Change) => html`<${Time} at=${at} />` },
          { name: 'Who', show: ({ who, role }: Change) => html`${who} <span class="quiet">${role}</span>` },
          { name: 'From', show: ({ address }: Change) => address },
          { name: 'What', show: ({ what }: Change) => what },
          { name: 'Of', show: ({ id }: Change) => id },
          { name: 'Change', show: (change: Change) => html`<${What} of=${change} />` }
        ]} />`}<//>`
}

function What (
  { of: { before, after, amount_usd: amount, reference, reason, request, model } }: { readonly of: Change }
): VNode {
  if (request !== undefined) return html`${request}${model !== undefined && html` ${model}`}`
  if (amount !== undefined) return html`$${amount} as ${reference}${reason !== undefined && html`: ${reason}`}`
  if (before == null || after == null) return html`<span class="quiet">${after == null ? 'ended' : 'made'}</span>`
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])]
    .filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]))
  return html`${names.map((name, i) => html`${i > 0 && html`<br />`}${name}: ${shown(before[name])} → ${shown(after[name])}`)}`
}

function shown (value: unknown): string {
  return value === undefined ? '(standard)' : typeof value === 'string' ? value : JSON.stringify(value)
}
