// Tokens: who may use the admin API and these pages, and in which role.
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import { ask, may, me } from './api.ts'
import { mistakeAt, useAction, useList } from './data.ts'
import { html } from './html.ts'
import { copy, Dialog, Empty, Field, Page, Problem, say, State, Table, textOf, Time, Waiting } from './parts.ts'

interface Token {
  readonly id: string
  readonly name: string
  readonly role: string
  readonly state: string
  readonly shown: string
  readonly created_at: string
  readonly expires_at?: string
  readonly last_used_at?: string
}

const ROLES = { viewer: 'viewer: reads', operator: 'operator: no tokens, no money', owner: 'owner: everything' }

export default function Tokens (): VNode {
  if (!may('owner')) {
    return html`<${Page} title="Tokens"><${Empty} title="For owners">Your role is ${me.value?.role}. An owner can see and
      make tokens.<//><//>`
  }
  return html`<${TokenList} />`
}

function TokenList (): VNode {
  const { rows, error, more, again } = useList<Token>('/tokens')
  const [isMaking, setMaking] = useState(false)
  const [made, setMade] = useState<string>()
  const [ending, setEnding] = useState<Token>()
  return html`<${Page} title="Tokens" actions=${html`<button type="button" class="first"
    onClick=${() => { setMaking(true) }}>New token</button>`}>
    <${Problem} error=${error} again=${again} />
    ${rows === undefined ? error === undefined && html`<${Waiting} what="the tokens" />`
      : rows.length === 0 ? html`<${Empty} title="Only the token of gateway.yaml so far">Give each person and program a
        token of its own: the audit log names them, and one of them can be revoked.<//>`
        : html`<${Table} caption="Tokens" rows=${rows} more=${more} keyOf=${({ id }: Token) => id} columns=${[
          { name: 'Name', show: ({ name }: Token) => name },
          { name: 'Role', show: ({ role }: Token) => role },
          { name: 'State', show: ({ state }: Token) => html`<${State} is=${state} />` },
          { name: 'Secret', show: ({ shown }: Token) => html`<code>${shown}</code>` },
          { name: 'Made', show: ({ created_at: at }: Token) => html`<${Time} at=${at} />` },
          { name: 'Expires', show: ({ expires_at: at }: Token) => at === undefined ? 'never' : html`<${Time} at=${at} />` },
          { name: 'Last used', show: ({ last_used_at: at }: Token) => at === undefined ? 'not yet'
            : html`<${Time} at=${at} />` },
          { name: 'End', show: (token: Token) => token.state === 'active' && html`<button type="button" class="grave"
            aria-label="Revoke ${token.name}" onClick=${() => { setEnding(token) }}>Revoke</button>` }
        ]} />`}
    ${isMaking && html`<${NewToken} close=${() => { setMaking(false) }} done=${(secret: string) => {
      setMaking(false)
      setMade(secret)
      again()
    }} />`}
    ${made !== undefined && html`<${Dialog} title="The token, shown only now" onClose=${() => { setMade(undefined) }}>
      <p>It can't be read again.</p><p><code class="secret">${made}</code></p>
      <div class="actions"><button type="button" class="first" onClick=${() => { copy(made) }}>Copy</button>
        <button type="button" onClick=${() => { setMade(undefined) }}>I have it</button></div><//>`}
    ${ending !== undefined && html`<${Revoke} token=${ending} close=${() => { setEnding(undefined) }} again=${again} />`}
    <//>`
}

function NewToken ({ close, done }: { readonly close: () => void, readonly done: (secret: string) => void }): VNode {
  const [form, setForm] = useState({ name: '', role: 'viewer', expires_at: '' })
  const { run, isRunning, error } = useAction()
  const set = (name: keyof typeof form) => (event: Event) => { setForm({ ...form, [name]: textOf(event) }) }
  return html`<${Dialog} title="New token" onClose=${close}><form onSubmit=${(event: Event) => {
    event.preventDefault()
    run(async () => {
      const { expires_at: end, ...body } = form
      done((await ask<{ readonly secret: string }>('POST', '/tokens', { body: { ...body,
        ...(end.trim() !== '' && { expires_at: end.trim() }) } })).secret)
    })
  }}><${Field} label="Name" hint="Of the person or program that gets it." mistake=${mistakeAt(error, 'name')}>
      ${(tied: object) => html`<input ...${tied} required autofocus value=${form.name} onInput=${set('name')} />`}<//>
    <${Field} label="Role">${(tied: object) => html`<select ...${tied} value=${form.role} onChange=${set('role')}>
      ${Object.entries(ROLES).map(([role, words]) => html`<option value=${role}>${words}</option>`)}</select>`}<//>
    <${Field} label="Expires" hint="In UTC, such as 2027-01-31T00:00:00Z. Empty: never."
      mistake=${mistakeAt(error, 'expires_at')}>${(tied: object) => html`<input ...${tied} value=${form.expires_at}
        onInput=${set('expires_at')} />`}<//>
    <${Problem} error=${error} />
    <div class="actions"><button class="first" disabled=${isRunning}>Make the token</button>
      <button type="button" onClick=${close}>Cancel</button></div></form><//>`
}

function Revoke ({ token: { id, name }, close, again }: {
  readonly token: Token, readonly close: () => void, readonly again: () => void
}): VNode {
  const { run, isRunning, error } = useAction()
  return html`<${Dialog} title="Revoke the token of ${name}?" onClose=${close}>
    <p>It is refused at once, for ever, and ends the sessions that it began.</p><${Problem} error=${error} />
    <div class="actions"><button type="button" class="grave" disabled=${isRunning} onClick=${() => {
      run(async () => {
        await ask('DELETE', `/tokens/${encodeURIComponent(id)}`)
        close()
        say(`The token of ${name} is revoked.`)
        again()
      })
    }}>Revoke</button><button type="button" onClick=${close}>Cancel</button></div><//>`
}
