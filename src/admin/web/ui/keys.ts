// Keys: the list, one key with its settings and what may be done with it, and a new one.
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import { ask, may } from './api.ts'
import { useAction, useData, useList } from './data.ts'
import { html } from './html.ts'
import { asBody, type Key, KeyFields, type Said, saidOf } from './key-fields.ts'
import { copy, Dialog, Empty, Field, Page, Pairs, Problem, say, State, Table, textOf, Time, Waiting } from './parts.ts'
import { go, NEW, to } from './route.ts'

export default function Keys ({ steps: [id] }: { readonly steps: readonly string[] }): VNode {
  return id === undefined ? html`<${KeyList} />` : id === NEW ? html`<${NewKey} />` : html`<${OneKey} id=${id} />`
}

function KeyList (): VNode {
  const [account, setAccount] = useState('')
  const [tag, setTag] = useState('')
  const [asked, setAsked] = useState('')
  const { rows, error, more, again } = useList<Key>(`/keys${asked}`)
  return html`<${Page} title="Keys" actions=${may('operator') && html`<a class="button first" href=${to('keys', NEW)}>
    New key</a>`}>
    <form class="filter" onSubmit=${(event: Event) => {
      event.preventDefault()
      const query = new URLSearchParams(Object.entries({ account: account.trim(), tag: tag.trim() })
        .filter(([, value]) => value !== '')).toString()
      setAsked(query === '' ? '' : `?${query}`)
    }}>
    <${Field} label="Account">${(tied: object) => html`<input ...${tied} value=${account}
      onInput=${(event: Event) => { setAccount(textOf(event)) }} />`}<//>
    <${Field} label="Tag">${(tied: object) => html`<input ...${tied} value=${tag}
      onInput=${(event: Event) => { setTag(textOf(event)) }} />`}<//>
    <button>Filter</button></form>
    <${Problem} error=${error} again=${again} />
    ${rows === undefined ? error === undefined && html`<${Waiting} what="the keys" />`
      : rows.length === 0 ? html`<${Empty} title=${asked === '' ? 'No keys yet' : 'No key fits'}>${asked === ''
        ? html`A key is what a client sends. <a href=${to('keys', NEW)}>Make one</a>, or declare it in gateway.yaml
          under <code>keys:</code>.`
        : 'Take something out of the filter above.'}<//>`
        : html`<${Table} caption="Keys" rows=${rows} more=${more} keyOf=${({ id }: Key) => id} columns=${[
          { name: 'Key', show: ({ id, name }: Key) => html`<a href=${to('keys', id)}>${id}</a>${name !== undefined &&
            html` <span class="quiet">${name}</span>`}` },
          { name: 'Account', show: ({ account: payer }: Key) => html`<a href=${to('accounts', payer)}>${payer}</a>` },
          { name: 'State', show: ({ state }: Key) => html`<${State} is=${state} />` },
          { name: 'Spent US$', isNumber: true, show: (key: Key) => key.spent_usd },
          { name: 'Limit US$', isNumber: true, show: (key: Key) => key.usage_limit_usd ?? 'none' },
          { name: 'Today US$', isNumber: true, show: (key: Key) => key.this_day?.spent_usd },
          { name: 'Month US$', isNumber: true, show: (key: Key) => key.this_month?.spent_usd },
          { name: 'Requests/min', isNumber: true, show: (key: Key) => key.rate_limit ?? 'standard' },
          { name: 'Channel', show: (key: Key) => key.routing_mode },
          { name: 'Tags', show: ({ tags = [] }: Key) => tags.join(', ') },
          { name: 'Kept in', show: ({ declared }: Key) => declared ? 'gateway.yaml' : 'store' }
        ]} />`}<//>`
}

function OneKey ({ id }: { readonly id: string }): VNode {
  const { value: key, error, again } = useData<Key>(`/keys/${encodeURIComponent(id)}`)
  if (key === undefined) {
    return html`<${Page} title="Key ${id}">${error === undefined ? html`<${Waiting} what="the key" />`
      : html`<${Problem} error=${error} again=${again} />`}<//>`
  }
  return html`<${Page} title="Key ${id}" actions=${html`<${Actions} key_=${key} again=${again} />`}>
    <${Problem} error=${error} again=${again} />
    ${key.declared && html`<p class="note">This key is declared in <code>gateway.yaml</code>${key.declared_at &&
      html`, at <code>${key.declared_at}</code>`}, and is read-only here: change it there, under <code>keys:</code>, and
      it is live a second later.</p>`}
    <${Spend} of=${key} />
    <${Settings} key=${String(key.version)} of=${key} again=${again} /><//>`
}

function Spend ({ of: key }: { readonly of: Key }): VNode {
  const [day, month] = [key.this_day, key.this_month]
  return html`<${Pairs} of=${[
    ['State', html`<${State} is=${key.state} />`],
    ['Account', html`<a href=${to('accounts', key.account)}>${key.account}</a>`],
    ['Spent in total', `$${key.spent_usd ?? '?'}`],
    ['Held by open requests', `$${key.held_usd ?? '?'}`],
    ['May still spend', key.remaining_usd == null ? 'no limit' : `$${key.remaining_usd}`],
    ...day === undefined ? [] : [[`On ${day.day}`, html`$${day.spent_usd}, until <${Time} at=${day.resets_at} />`]],
    ...month === undefined ? [] : [[`In ${month.month}`, html`$${month.spent_usd}, until <${Time}
      at=${month.resets_at} />`]],
    ...key.shown === undefined ? [] : [['Secret', html`<code>${key.shown}</code>`]],
    ...key.old_secret_until === undefined ? [] : [['An older secret works until',
      html`<${Time} at=${key.old_secret_until} />`]],
    ...key.created_at === undefined ? [] : [['Made', html`<${Time} at=${key.created_at} />`]]
  ]} />`
}

function Settings ({ of: key, again }: { readonly of: Key, readonly again: () => void }): VNode {
  const before = saidOf(key)
  const [form, setForm] = useState<Said>(before)
  const { run, isRunning, error } = useAction()
  const body = asBody(before, form)
  const isChanged = Object.keys(body).length > 0
  const isLocked = key.declared || !may('operator')
  return html`<form onSubmit=${(event: Event) => {
    event.preventDefault()
    run(async () => {
      const { warnings = [] } = await ask<Key>('PATCH', `/keys/${encodeURIComponent(key.id)}`, { body, version: key.version })
      say(`Saved; it holds from the next request on.${warnings.map(({ path, message }) => ` ${path} ${message}.`).join('')}`)
      again()
    })
  }}><${KeyFields} form=${form} isLocked=${isLocked} error=${error}
      set=${(change: Partial<Said>) => { setForm({ ...form, ...change }) }} />
    <${Problem} error=${error} />
    ${!isLocked && html`<div class="actions sticky"><button class="first" disabled=${!isChanged || isRunning}>
      ${isRunning ? 'Saving …' : 'Save'}</button>
      <button type="button" disabled=${!isChanged} onClick=${() => { setForm(before) }}>Undo</button>
      ${!isChanged && html`<span class="quiet">Nothing is changed.</span>`}</div>`}</form>`
}

function Actions ({ key_: key, again }: { readonly key_: Key, readonly again: () => void }): VNode | null {
  const [open, setOpen] = useState<'rotate' | 'delete'>()
  const [secret, setSecret] = useState<string>()
  const [grace, setGrace] = useState('1h')
  const freeze = useAction()
  const act = useAction()
  const path = `/keys/${encodeURIComponent(key.id)}`
  const version = key.version
  const close = (): void => { setOpen(undefined) }
  if (key.declared || !may('operator')) return null
  return html`<button type="button" disabled=${freeze.isRunning} onClick=${() => {
    freeze.run(async () => {
      await ask('PATCH', path, { body: { frozen: !key.frozen }, version })
      say(key.frozen ? 'It is served again.' : 'It is refused from the next request on.')
      again()
    })
  }}>${key.frozen ? 'Unfreeze' : 'Freeze'}</button>
    <button type="button" onClick=${() => { setOpen('rotate') }}>Rotate</button>
    <button type="button" class="grave" onClick=${() => { setOpen('delete') }}>Delete</button>
    <${Problem} error=${freeze.error} />
    ${open === 'rotate' && html`<${Dialog} title="A new secret for ${key.id}" onClose=${close}>
      <form onSubmit=${(event: Event) => {
        event.preventDefault()
        act.run(async () => {
          const rotated = await ask<{ readonly secret: string }>('POST', `${path}/rotate`, { body: { grace: grace.trim() }, version })
          close()
          setSecret(rotated.secret)
        })
      }}><${Field} label="The old secret works on for" hint="Such as 30m, 1h or 7d; 0s ends it at once.">
        ${(tied: object) => html`<input ...${tied} value=${grace} onInput=${(event: Event) => { setGrace(textOf(event)) }} />`}<//>
      <${Problem} error=${act.error} />
      <div class="actions"><button class="first" disabled=${act.isRunning}>Make a new secret</button>
        <button type="button" onClick=${close}>Cancel</button></div></form><//>`}
    ${open === 'delete' && html`<${Dialog} title="Delete ${key.id}?" onClose=${close}>
      <p>It is refused from the next request on, for ever. What it spent stays in the ledger, and its id is never used
      again.</p><${Problem} error=${act.error} />
      <div class="actions"><button type="button" class="grave" disabled=${act.isRunning} onClick=${() => {
        act.run(async () => {
          await ask('DELETE', path, { version })
          say(`The key ${key.id} is deleted.`)
          go('keys')
        })
      }}>Delete for ever</button><button type="button" onClick=${close}>Cancel</button></div><//>`}
    ${secret !== undefined && html`<${Secret} secret=${secret} close=${() => { setSecret(undefined); again() }} />`}`
}

/** A secret is told once. */
function Secret ({ secret, close }: { readonly secret: string, readonly close: () => void }): VNode {
  return html`<${Dialog} title="The secret, shown only now" onClose=${close}>
    <p>Give it to the client. It can't be read again; if it is lost, rotate the key.</p>
    <p><code class="secret">${secret}</code></p>
    <div class="actions"><button type="button" class="first" onClick=${() => { copy(secret) }}>Copy</button>
      <button type="button" onClick=${close}>I have it</button></div><//>`
}

function NewKey (): VNode {
  const none = saidOf({})
  const [form, setForm] = useState<Said>(none)
  const [id, setId] = useState('')
  const [account, setAccount] = useState('')
  const [made, setMade] = useState<Key & { readonly secret: string }>()
  const { run, isRunning, error } = useAction()
  const accounts = useData<{ readonly data: readonly { readonly id: string }[] }>('/accounts?limit=1000')
  return html`<${Page} title="New key"><form onSubmit=${(event: Event) => {
    event.preventDefault()
    run(async () => {
      const settings = Object.entries(asBody(none, form)).filter(([, value]) => value !== null)
      setMade(await ask('POST', '/keys', { body: { ...Object.fromEntries(settings), account: account.trim(),
        ...(id.trim() !== '' && { id: id.trim() }) } }))
    })
  }}><fieldset><legend>Whose</legend>
    <${Field} label="Account" hint="The account that pays.">${(tied: object) => html`<input ...${tied} list="accounts"
      required value=${account} onInput=${(event: Event) => { setAccount(textOf(event)) }} />`}<//>
    <datalist id="accounts">${accounts.value?.data.map((one) => html`<option value=${one.id} />`)}</datalist>
    <${Field} label="Id" hint="Its name in log and ledger, for ever. Empty: one is made.">
      ${(tied: object) => html`<input ...${tied} value=${id} onInput=${(event: Event) => { setId(textOf(event)) }} />`}<//>
    </fieldset>
    ${accounts.value?.data.length === 0 && html`<p class="note">There is no account yet, and somebody has to pay:
      <a href=${to('accounts', NEW)}>make an account first</a>.</p>`}
    <${KeyFields} form=${form} isLocked=${false} error=${error}
      set=${(change: Partial<Said>) => { setForm({ ...form, ...change }) }} />
    <${Problem} error=${error} />
    <div class="actions sticky"><button class="first" disabled=${isRunning}>${isRunning ? 'Making it …' : 'Make the key'}
    </button><a class="button" href=${to('keys')}>Cancel</a></div></form>
    ${made !== undefined && html`<${Secret} secret=${made.secret} close=${() => { go('keys', made.id) }} />`}<//>`
}
