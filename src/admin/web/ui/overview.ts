// The overview: what needs somebody, what happens now, and the last 24 hours. Live, by one stream of events.
import type { VNode } from 'preact'
import { useMemo, useRef, useState } from 'preact/hooks'
import { useData } from './data.ts'
import { html, type Children } from './html.ts'
import { useChanges } from './live.ts'
import { Empty, Page, Problem, State, Table, Time, Waiting } from './parts.ts'
import { Plot } from './plot.ts'
import { NEW, to } from './route.ts'
import { count, inputOf, linesOf, type Series, type Summed, type UsageRow } from './usage.ts'

interface First { readonly p50: number, readonly p95: number, readonly since: string }

interface Live {
  readonly requests_in_flight: number
  readonly requests: number
  readonly errors: number
  readonly spent_usd: string
  readonly input_tokens: number
  readonly output_tokens: number
  readonly first_token_ms: First | null
}

interface Summary {
  readonly at: string
  readonly live: Live
  readonly day: { readonly requests: number, readonly errors: number, readonly spent_usd: string,
    readonly shortfall_usd: string, readonly usage: Summed['usage'], readonly first_token_ms: First | null } | null
  readonly open_holds: number | null
  readonly low_balances: readonly { readonly account: string, readonly available_usd: string,
    readonly hours_left: number }[]
  readonly upstreams: { readonly targets: number, readonly out: readonly unknown[],
    readonly credentials_out: readonly unknown[] }
  readonly store: { readonly is_up: boolean, readonly pending: number }
  readonly config: { readonly generation: number, readonly loaded_at: string, readonly is_refused: boolean }
  readonly fleet: { readonly processes: number, readonly is_converged: boolean } | null
  readonly problems: readonly { readonly code: string, readonly message: string }[]
}

/** What is not told of by an event is read this often. */
const EVERY_MS = 30_000
/** Between two readings because of events. */
const REST_MS = 5000

export default function Overview (): VNode {
  const { value, error, again } = useData<Summary>('/summary', EVERY_MS)
  const hours = useData<Series>('/usage/series?by=hour', EVERY_MS * 2)
  const [live, setLive] = useState<Live>()
  const readAt = useRef(0)
  useChanges<Live>(({ changed, live: now }) => {
    setLive(now)
    if (changed.length === 0 || performance.now() - readAt.current < REST_MS) return
    readAt.current = performance.now()
    again()
  })
  return html`<${Page} title="Overview"><${Problem} error=${error} again=${again} />
    ${value === undefined ? error === undefined && html`<${Waiting} what="the overview" />`
      : html`<${Problems} of=${value} /><${Tiles} of=${value} live=${live ?? value.live} />`}
    <${Hours} of=${hours.value} error=${hours.error} />
    ${value !== undefined && value.low_balances.length > 0 && html`<h2>Nearly out of money</h2>
      <${Table} caption="Accounts that are nearly out of money" rows=${value.low_balances}
        keyOf=${({ account }: Summary['low_balances'][number]) => account} columns=${[
          { name: 'Account', show: ({ account }: Summary['low_balances'][number]) =>
            html`<a href=${to('accounts', account)}>${account}</a>` },
          { name: 'Available US$', isNumber: true, show: (one: Summary['low_balances'][number]) => one.available_usd },
          { name: 'Lasts', isNumber: true, show: (one: Summary['low_balances'][number]) =>
            `${one.hours_left.toFixed(1)} h` }
        ]} />`}<//>`
}

function Problems ({ of: { problems } }: { readonly of: Summary }): VNode {
  if (problems.length === 0) return html`<p><${State} is="active" words="Nothing needs you." /></p>`
  return html`<div class="problem" role="alert">${problems.map(({ message }) => html`<p>${message}</p>`)}</div>`
}

function Tiles ({ of: { at, day, open_holds: holds, upstreams, store, config, fleet }, live }: {
  readonly of: Summary, readonly live: Live
}): VNode {
  const tile = (name: string, value: Children, more: Children): VNode =>
    html`<div class="tile"><dt>${name}</dt><dd>${value}<div class="quiet">${more}</div></dd></div>`
  const firstToken = (name: string, first: First | null): VNode =>
    tile(`First token, ${name}`, first === null ? '–' : `${first.p50} ms`, first === null ? 'no stream ended'
      : html`95 % under ${first.p95} ms${name === DAY && isYoung(first.since, at) && html`, since
        <${Time} at=${first.since} />`}`)
  return html`<dl class="tiles">
    ${tile('Running now', count(live.requests_in_flight), holds === null ? 'holds unknown' : `${count(holds)} open holds`)}
    ${tile('Requests, 5 minutes', count(live.requests), `${count(live.errors)} errors`)}
    ${tile('Charged, 5 minutes', `$${live.spent_usd}`, `${count(live.input_tokens)} in, ${count(live.output_tokens)} out`)}
    ${firstToken('5 minutes', live.first_token_ms)}
    ${day !== null && tile('Requests, 24 hours', count(day.requests), `${count(day.errors)} errors`)}
    ${day !== null && tile('Charged, 24 hours', `$${day.spent_usd}`, `shortfall $${day.shortfall_usd}`)}
    ${day !== null && tile('Tokens, 24 hours', count(inputOf(day.usage)), `in, ${count(day.usage.output)} out`)}
    ${day !== null && firstToken(DAY, day.first_token_ms)}
    ${tile('Targets', html`<a href=${to('upstreams')}>${upstreams.targets - upstreams.out.length} of ${upstreams.targets}</a>`,
      upstreams.credentials_out.length === 0 ? 'are asked' : `${upstreams.credentials_out.length} credentials out`)}
    ${tile('Configuration', html`<a href=${to('configuration')}>${config.generation}</a>`, config.is_refused
      ? 'a newer one was refused' : html`since <${Time} at=${config.loaded_at} />`)}
    ${fleet !== null && tile('Processes', html`<a href=${to('fleet')}>${fleet.processes}</a>`, fleet.is_converged
      ? 'of one configuration' : 'of several configurations')}
    ${tile('Books', store.is_up ? 'kept' : 'away', store.pending === 0 ? 'nothing waits' : `${count(store.pending)} wait`)}
  </dl>`
}

const DAY = '24 hours'

/** Whether what is known begins after the last day. */
function isYoung (since: string, at: string): boolean {
  return Date.parse(at) - Date.parse(since) < 23 * 3_600_000
}

function Hours ({ of: series, error }: { readonly of: Series | undefined, readonly error: Error | undefined }): VNode {
  const plotted = useMemo(() => {
    if (series === undefined) return undefined
    const one = (name: string, of: (row: Summed) => number) =>
      ({ name, values: linesOf(series, '', of).lines[0]?.values ?? [] })
    return { times: linesOf(series, '', ({ requests }) => requests).times,
      money: [one('charged', ({ charged_usd: usd }) => Number(usd))],
      requests: [one('requests', ({ requests }) => requests), one('errors', ({ errors }) => errors)] }
  }, [series])
  if (series === undefined || plotted === undefined) {
    return error === undefined ? html`<${Waiting} what="the last 24 hours" />` : html`<${Problem} error=${error} />`
  }
  if (series.data.length === 0) {
    return html`<${Empty} title="No request yet">Make a <a href=${to('keys', NEW)}>key</a> and send one: the page "keys"
      tells its spend, and here is the last day of it.<//>`
  }
  return html`<div class="pair"><${Plot} title="Charged by hour, US$" times=${plotted.times} lines=${plotted.money} />
      <${Plot} title="Requests by hour" times=${plotted.times} lines=${plotted.requests} /></div>
    <details><summary>The numbers of both plots</summary><${Table} caption="The last 24 hours"
      rows=${series.data.toReversed()} keyOf=${({ from }: UsageRow) => from} columns=${[
        { name: 'Hour', show: ({ from }: UsageRow) => html`<${Time} at=${from} />` },
        { name: 'Charged US$', isNumber: true, show: (row: UsageRow) => row.charged_usd },
        { name: 'Requests', isNumber: true, show: (row: UsageRow) => count(row.requests) },
        { name: 'Errors', isNumber: true, show: (row: UsageRow) => count(row.errors) }
      ]} /></details>`
}
