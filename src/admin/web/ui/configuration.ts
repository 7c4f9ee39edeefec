// The live configuration: which generation, how the last reload went and why one was refused, and what it says.
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import { ask } from './api.ts'
import { useAction, useData } from './data.ts'
import { html } from './html.ts'
import { Field, Page, Pairs, Problem, State, Table, textOf, Time, Waiting } from './parts.ts'

export interface Spot {
  readonly file: string
  readonly line: number
  readonly column: number
  readonly path: string
  readonly message: string
  readonly hint?: string
}

interface Live {
  readonly generation: number
  readonly hash: string
  readonly loaded_at: string
  readonly last_reload: { readonly ok: boolean, readonly at: string, readonly reason: string,
    readonly duration_ms: number }
  readonly problems: readonly Spot[]
  readonly warnings: readonly Spot[]
  readonly source: string
  readonly config: unknown
  readonly generations: readonly (Diff & { readonly generation: number, readonly hash: string, readonly at: string,
    readonly reason: string })[]
}

interface Diff {
  readonly changes: readonly { readonly path: string, readonly what: string, readonly before?: string,
    readonly after?: string }[]
  readonly more_changes: number
}

interface Compared extends Diff {
  readonly ok: boolean
  readonly problems: readonly Spot[]
  readonly warnings: readonly Spot[]
  readonly unread: readonly Spot[]
}

export default function Configuration (): VNode {
  const { value: live, error, again } = useData<Live>('/config')
  return html`<${Page} title="Configuration" actions=${html`<button type="button" onClick=${again}>Read again</button>`}>
    <${Problem} error=${error} again=${again} />
    ${live === undefined ? error === undefined && html`<${Waiting} what="the configuration" />` : html`<${Shown} of=${live} />`}
    <//>`
}

function Shown ({ of: live }: { readonly of: Live }): VNode {
  const { ok, at, reason, duration_ms: took } = live.last_reload
  return html`<${Pairs} of=${[['State', html`<${State} is=${ok ? 'live' : 'failed'} />`], ['Generation', live.generation],
    ['Hash', html`<code>${live.hash.slice(0, 12)}</code>`], ['File', html`<code>${live.source}</code>`],
    ['Live since', html`<${Time} at=${live.loaded_at} />`],
    ['Last load', html`${ok ? 'took' : 'refused after'} ${took} ms (${reason}), <${Time} at=${at} />`]]} />
    ${live.problems.length > 0 && html`<div class="problem" role="alert"><p>The file as it stands was refused, and
      the configuration before it works on:</p><${Spots} of=${live.problems} /></div>`}
    ${live.warnings.length > 0 && html`<h2>What is odd</h2><${Spots} of=${live.warnings} />`}
    <h2>What went live</h2>
    ${live.generations.map((one) => html`<details key=${one.generation}><summary>Generation ${one.generation},${' '}
      <${Time} at=${one.at} /> (${one.reason}), <code>${one.hash.slice(0, 12)}</code>:${' '}
      ${one.changes.length + one.more_changes} differences from the one before</summary><${Changes} of=${one} /></details>`)}
    <${Check} />
    <h2>What it says</h2><p class="quiet">With defaults filled in, durations in milliseconds, sizes in bytes, and
      secrets as ***.</p>
    <pre tabindex="0" role="region" aria-label="The configuration">${JSON.stringify(live.config, null, 2)}</pre>`
}

function Changes ({ of: { changes, more_changes: more } }: { readonly of: Diff }): VNode {
  if (changes.length === 0) return html`<p class="quiet">Nothing is different.</p>`
  return html`<${Table} caption="Differences" rows=${changes} keyOf=${({ path }: Diff['changes'][number]) => path} columns=${[
    { name: 'Where', show: ({ path }: Diff['changes'][number]) => html`<code>${path}</code>` },
    { name: 'What', show: ({ what }: Diff['changes'][number]) => what },
    { name: 'Before', show: ({ before }: Diff['changes'][number]) => html`<code>${before}</code>` },
    { name: 'After', show: ({ after }: Diff['changes'][number]) => html`<code>${after}</code>` }
  ]} />${more > 0 && html`<p class="quiet">And ${more} more.</p>`}`
}

/** A text is looked at before it is live, and compared with what is. */
function Check (): VNode {
  const [text, setText] = useState('')
  const [found, setFound] = useState<Compared>()
  const { run, isRunning, error } = useAction()
  return html`<h2>Check a text before it is live</h2><form onSubmit=${(event: Event) => {
    event.preventDefault()
    run(async () => { setFound(await ask('POST', '/config/diff', { body: { text } })) })
  }}><${Field} label="A whole gateway.yaml" hint="Nothing goes live, and nothing of it is kept.">${(tied: object) =>
      html`<textarea ...${tied} rows="8" spellcheck="false" required value=${text}
        onInput=${(event: Event) => { setText(textOf(event)) }}></textarea>`}<//>
    <${Problem} error=${error} />
    <div class="actions"><button class="first" disabled=${isRunning}>${isRunning ? 'Looking at it …' : 'Check'}</button>
    </div></form>
    ${found !== undefined && html`<div role="status"><p>${found.ok ? html`<${State} is="active" words="could go live" />`
      : html`<${State} is="failed" words="would be refused" />`}</p>
      ${found.problems.length > 0 && html`<${Spots} of=${found.problems} />`}
      ${found.warnings.length > 0 && html`<h3>What is odd</h3><${Spots} of=${found.warnings} />`}
      ${found.unread.length > 0 && html`<h3>What was not looked at</h3><${Spots} of=${found.unread} />`}
      ${found.ok && html`<h3>What it would change</h3><${Changes} of=${found} />`}</div>`}`
}

export function Spots ({ of: spots }: { readonly of: readonly Spot[] }): VNode {
  return html`<ul>${spots.map(({ file, line, column, path, message, hint }) => html`<li><code>${file}:${line}:${column}
    </code> ${path} ${message}${hint !== undefined && html` <span class="quiet">${hint}</span>`}</li>`)}</ul>`
}
