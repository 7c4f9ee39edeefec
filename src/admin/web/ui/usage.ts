// Usage over time: by hour, day or month, and by account, key, model or channel; a plot, the table behind it, and CSV.
import type { VNode } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { read } from './api.ts'
import { useAction, useData } from './data.ts'
import { html } from './html.ts'
import { download, Empty, Field, Page, Pairs, Problem, Table, textOf, Waiting } from './parts.ts'
import { type Line, Plot } from './plot.ts'

export interface Summed {
  readonly requests: number
  readonly errors: number
  readonly usage: Readonly<Record<'input' | 'cache_read' | 'cache_write_5m' | 'cache_write_1h' | 'output', number>> &
    { readonly extras: Readonly<Record<string, number>> }
  readonly charged_usd: string
  readonly shortfall_usd: string
}

export interface UsageRow extends Summed, Readonly<Partial<Record<Group, string | null>>> {
  readonly period: string
  readonly from: string
}

export interface Series {
  readonly from: string
  readonly to: string
  readonly by: 'hour' | 'day' | 'month'
  readonly time_zone: string
  readonly data: readonly UsageRow[]
  readonly total: Summed
}

type Group = 'account' | 'key' | 'model' | 'channel'

const MEASURES: Readonly<Record<string, { readonly title: string, readonly of: (row: Summed) => number }>> = {
  charged: { title: 'Charged, US$', of: ({ charged_usd: usd }) => Number(usd) },
  requests: { title: 'Requests', of: ({ requests }) => requests },
  errors: { title: 'Errors', of: ({ errors }) => errors },
  input: { title: 'Input tokens', of: ({ usage }) => inputOf(usage) },
  output: { title: 'Output tokens', of: ({ usage }) => usage.output }
}
/** Lines that a plot can tell apart; the others are one. */
const MOST_LINES = 7

const STANDARD = { by: 'day', group: 'model', from: '', to: '', account: '', key: '', model: '', channel: '',
  time_zone: '' }

export default function Usage (): VNode {
  const [asked, setAsked] = useState(STANDARD)
  const [measure, setMeasure] = useState('charged')
  const csv = useAction()
  const path = `/usage/series?${queryOf(asked)}`
  const { value, error, again } = useData<Series>(path)
  const set = (name: keyof typeof STANDARD) => (event: Event) => { setAsked({ ...asked, [name]: textOf(event) }) }
  const line = (name: keyof typeof STANDARD, label: string, more: object = {}): VNode =>
    html`<${Field} label=${label}>${(tied: object) => html`<input ...${tied} ...${more} name=${name} value=${asked[name]}
      onChange=${set(name)} />`}<//>`
  const choice = (name: 'by' | 'group', label: string, of: Readonly<Record<string, string>>): VNode =>
    html`<${Field} label=${label}>${(tied: object) => html`<select ...${tied} name=${name} value=${asked[name]}
      onChange=${set(name)}>${Object.entries(of).map(([key, words]) => html`<option value=${key}>${words}</option>`)}
      </select>`}<//>`
  return html`<${Page} title="Usage" actions=${html`<button type="button" disabled=${csv.isRunning} onClick=${() => {
    csv.run(async () => {
      download('usage.csv', 'text/csv', await read<string>(`${path}&format=csv`, { isText: true }))
    })
  }}>${csv.isRunning ? 'Fetching …' : 'CSV'}</button>`}>
    <div class="filter">${choice('by', 'By', { hour: 'hour', day: 'day', month: 'month' })}
      ${choice('group', 'Divided by', { model: 'model', account: 'account', key: 'key', channel: 'channel', '': 'nothing' })}
      <${Field} label="Plot">${(tied: object) => html`<select ...${tied} value=${measure}
        onChange=${(event: Event) => { setMeasure(textOf(event)) }}>${Object.entries(MEASURES).map(([name, { title }]) =>
          html`<option value=${name}>${title}</option>`)}</select>`}<//>
      ${line('from', 'From', { type: 'date' })}${line('to', 'To, not included', { type: 'date' })}
      ${line('account', 'Account')}${line('key', 'Key')}${line('model', 'Model')}${line('channel', 'Channel')}
      ${line('time_zone', 'Time zone', { placeholder: 'UTC' })}</div>
    <${Problem} error=${error ?? csv.error} again=${again} />
    ${value === undefined ? error === undefined && html`<${Waiting} what="the usage" />`
      : value.data.length === 0 ? html`<${Empty} title="Nothing was used">No request was settled in this time. Choose
        another one, or take something out of the filter.<//>`
        : html`<${Shown} of=${value} group=${asked.group} measure=${measure} />`}<//>`
}

function Shown ({ of: series, group, measure }: {
  readonly of: Series, readonly group: string, readonly measure: string
}): VNode {
  const { title, of } = MEASURES[measure]!
  const plotted = useMemo(() => linesOf(series, group as Group, of), [series, group, measure])
  const rows = series.data.toReversed()
  const { total } = series
  return html`<${Pairs} of=${[['Charged', `$${total.charged_usd}`], ['Requests', count(total.requests)],
      ['Errors', count(total.errors)], ['Input tokens', count(inputOf(total.usage))],
      ['Output tokens', count(total.usage.output)], ['Shortfall', `$${total.shortfall_usd}`]]} />
    <${Plot} title=${title} zone=${series.time_zone} ...${plotted} />
    <${Table} caption="Usage, newest first" rows=${rows}
      keyOf=${(row: UsageRow) => `${row.from} ${row[group as Group] ?? ''}`} columns=${[
        { name: 'Period', show: ({ period }: UsageRow) => period },
        ...group === '' ? [] : [{ name: group[0]!.toUpperCase() + group.slice(1),
          show: (row: UsageRow) => row[group as Group] ?? html`<span class="quiet">none</span>` }],
        { name: 'Charged US$', isNumber: true, show: (row: UsageRow) => row.charged_usd },
        { name: 'Requests', isNumber: true, show: ({ requests }: UsageRow) => count(requests) },
        { name: 'Errors', isNumber: true, show: ({ errors }: UsageRow) => count(errors) },
        { name: 'Input', isNumber: true, show: ({ usage }: UsageRow) => count(usage.input) },
        { name: 'Cache read', isNumber: true, show: ({ usage }: UsageRow) => count(usage.cache_read) },
        { name: 'Cache write', isNumber: true, show: ({ usage }: UsageRow) => count(usage.cache_write_5m +
          usage.cache_write_1h) },
        { name: 'Output', isNumber: true, show: ({ usage }: UsageRow) => count(usage.output) },
        { name: 'Other', show: ({ usage }: UsageRow) => Object.entries(usage.extras).map(([name, number]) =>
          `${name} ${count(number)}`).join(', ') },
        { name: 'Shortfall US$', isNumber: true, show: (row: UsageRow) => row.shortfall_usd }
      ]} />`
}

/** A day is that of the zone; the API takes instants, or days. */
function queryOf (asked: typeof STANDARD): string {
  return new URLSearchParams(Object.entries(asked).map(([name, text]) => [name, text.trim()])
    .filter(([, text]) => text !== '') as [string, string][]).toString()
}

/** The beginnings of all periods, in seconds since the epoch; those of unequal length only where something was. */
function timesOf ({ from, to, by, time_zone: zone, data }: Series): readonly number[] {
  const step = by === 'hour' ? 3600 : by === 'day' && zone === 'UTC' ? 86_400 : undefined
  if (step === undefined) {
    return [...new Set(data.map((row) => Date.parse(row.from) / 1000))].toSorted((a, b) => a - b)
  }
  const begin = Date.parse(from) / 1000
  return Array.from({ length: Math.ceil((Date.parse(to) / 1000 - begin) / step) }, (_, i) => begin + i * step)
}

/** The members that have most as lines, the others as one; a period in which one had nothing has 0. */
export function linesOf (series: Series, group: Group | '', of: (row: Summed) => number): {
  readonly times: readonly number[], readonly lines: readonly Line[]
} {
  const rows = series.data
  const times = timesOf(series)
  const at = new Map(times.map((time, i) => [time, i]))
  const nameOf = (row: UsageRow): string => group === '' ? 'all' : row[group] ?? 'none'
  const sums = new Map<string, number>()
  for (const row of rows) sums.set(nameOf(row), (sums.get(nameOf(row)) ?? 0) + of(row))
  const most = [...sums].toSorted(([, a], [, b]) => b - a).map(([name]) => name)
  const shown = most.length > MOST_LINES + 1 ? most.slice(0, MOST_LINES) : most
  const lines = new Map<string, number[]>()
  for (const row of rows) {
    const name = shown.includes(nameOf(row)) ? nameOf(row) : 'others'
    const values = lines.get(name) ?? times.map(() => 0)
    values[at.get(Date.parse(row.from) / 1000)!]! += of(row)
    lines.set(name, values)
  }
  return { times, lines: [...lines].map(([name, values]) => ({ name, values })) }
}

export function inputOf ({ input, cache_read: hit, cache_write_5m: short, cache_write_1h: long }: Summed['usage']): number {
  return input + hit + short + long
}

export function count (number: number): string {
  return number.toLocaleString()
}
