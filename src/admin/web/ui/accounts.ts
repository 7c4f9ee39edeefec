// Accounts: the list, one account with its money and its statement, and a new one.
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import { ask, may } from './api.ts'
import { mistakeAt, useAction, useData, useList } from './data.ts'
import { html } from './html.ts'
import { Dialog, Empty, Field, Page, Pairs, Problem, say, State, Table, textOf, Time, Waiting } from './parts.ts'
import { go, NEW, to } from './route.ts'

interface Account {
  readonly id: string
  readonly name: string
  readonly contact?: string
  readonly tags?: readonly string[]
  readonly suspended: boolean
  readonly declared: boolean
  readonly declared_at?: string
  readonly state: string
  readonly version?: number
  readonly created_at?: string
  readonly balance_usd: string
  readonly held_usd: string
  readonly available_usd: string
  readonly open_holds: number
}

interface Entry {
  readonly id: string
  readonly kind: string
  readonly key?: string
  readonly reference: string
  readonly amount_usd: string
  readonly shortfall_usd?: string
  readonly at: string
  readonly model?: string
  readonly channel?: string
  readonly reason?: string
}

export default function Accounts ({ steps: [id] }: { readonly steps: readonly string[] }): VNode {
  return id === undefined ? html`<${AccountList} />` : id === NEW ? html`<${NewAccount} />`
    : html`<${OneAccount} id=${id} />`
}

function AccountList (): VNode {
  const { rows, error, more, again } = useList<Account>('/accounts')
  return html`<${Page} title="Accounts" actions=${may('operator') && html`<a class="button first"
    href=${to('accounts', NEW)}>New account</a>`}>
    <${Problem} error=${error} again=${again} />
    ${rows === undefined ? error === undefined && html`<${Waiting} what="the accounts" />`
      : rows.length === 0 ? html`<${Empty} title="No accounts yet">An account pays for its keys.
        <a href=${to('accounts', NEW)}>Make one</a>, or declare it in gateway.yaml under <code>accounts:</code>.<//>`
        : html`<${Table} caption="Accounts" rows=${rows} more=${more} keyOf=${({ id }: Account) => id} columns=${[
          { name: 'Account', show: ({ id, name }: Account) => html`<a href=${to('accounts', id)}>${id}</a>${name !== id &&
            html` <span class="quiet">${name}</span>`}` },
          { name: 'State', show: ({ state }: Account) => html`<${State} is=${state} />` },
          { name: 'Balance US$', isNumber: true, show: (one: Account) => one.balance_usd },
          { name: 'Held US$', isNumber: true, show: (one: Account) => one.held_usd },
          { name: 'Available US$', isNumber: true, show: (one: Account) => one.available_usd },
          { name: 'Open holds', isNumber: true, show: (one: Account) => one.open_holds },
          { name: 'Tags', show: ({ tags = [] }: Account) => tags.join(', ') },
          { name: 'Kept in', show: ({ declared }: Account) => declared ? 'gateway.yaml' : 'store' }
        ]} />`}<//>`
}

const BOOKINGS = {
  credits: { title: 'Credit', words: 'Money that came in. It is credited once per reference, however often it is sent.',
    label: 'Reference of the payment', done: 'credited', needsReason: false },
  refunds: { title: 'Refund', words: 'Money that the account is given back, once per reference: at most what it has ' +
    'paid. Under the id of a request: at most its charge.', label: 'Reference of the case', done: 'refunded', needsReason: true },
  debits: { title: 'Debit', words: 'Money that is taken, once per reference: at most what is available.',
    label: 'Reference of the case', done: 'debited', needsReason: true }
}
type Booking = keyof typeof BOOKINGS

function OneAccount ({ id }: { readonly id: string }): VNode {
  const path = `/accounts/${encodeURIComponent(id)}`
  const { value: account, error, again } = useData<Account>(path)
  const [round, setRound] = useState(0)
  const [booking, setBooking] = useState<Booking>()
  const change = useAction()
  if (account === undefined) {
    return html`<${Page} title="Account ${id}">${error === undefined ? html`<${Waiting} what="the account" />`
      : html`<${Problem} error=${error} again=${again} />`}<//>`
  }
  const { declared, suspended, version, state } = account
  const changed = (said: string): void => {
    say(said)
    again()
    setRound(round + 1)
  }
  const actions = html`${may('owner') && Object.entries(BOOKINGS).map(([kind, { title }]) => html`<button type="button"
      onClick=${() => { setBooking(kind as Booking) }}>${title}</button>`)}
    ${may('operator') && !declared && state !== 'closed' && html`<button type="button" class=${suspended ? '' : 'grave'}
      disabled=${change.isRunning} onClick=${() => {
        change.run(async () => {
          await ask('PATCH', path, { body: { suspended: !suspended }, version })
          changed(suspended ? 'Its keys are served again.' : 'Its keys are refused from the next request on.')
        })
      }}>${suspended ? 'Resume' : 'Suspend'}</button>`}`
  return html`<${Page} title="Account ${id}" actions=${actions}>
    <${Problem} error=${error ?? change.error} />
    ${declared && html`<p class="note">This account is declared in <code>gateway.yaml</code>${account.declared_at &&
      html`, at <code>${account.declared_at}</code>`}: its settings are changed
      there, under <code>accounts:</code>; its money is booked here.</p>`}
    <${Pairs} of=${[['State', html`<${State} is=${state} />`], ['Name', account.name],
      ['Balance', `$${account.balance_usd}`], ['Held by open requests', `$${account.held_usd}`],
      ['Available', `$${account.available_usd}`], ['Open holds', account.open_holds],
      ...account.contact === undefined ? [] : [['Contact', account.contact]],
      ...account.created_at === undefined ? [] : [['Made', html`<${Time} at=${account.created_at} />`]],
      ['Keys', html`<a href=${to('keys')}>all keys</a>`]]} />
    <h2>Statement</h2><${Statement} key=${round} of=${id} />
    ${booking !== undefined && html`<${Book} kind=${booking} path=${path} close=${() => { setBooking(undefined) }}
      done=${changed} />`}<//>`
}

function Statement ({ of: account }: { readonly of: string }): VNode {
  const { rows, error, more, again } = useList<Entry>(
    `/ledger?account=${encodeURIComponent(account)}&order=newest&limit=50`
  )
  if (rows === undefined) {
    return error === undefined ? html`<${Waiting} what="the entries" />` : html`<${Problem} error=${error} again=${again} />`
  }
  if (rows.length === 0) {
    return html`<${Empty} title="Nothing was booked yet">Entries come with the first credit, or the first request of one
      of its keys.<//>`
  }
  return html`<${Problem} error=${error} /><${Table} caption="Statement" rows=${rows} more=${more}
    keyOf=${({ id }: Entry) => id} columns=${[
      { name: 'Written', show: ({ at }: Entry) => html`<${Time} at=${at} />` },
      { name: 'Kind', show: ({ kind }: Entry) => kind },
      { name: 'Amount US$', isNumber: true, show: (entry: Entry) => entry.amount_usd },
      { name: 'Key', show: ({ key }: Entry) => key !== undefined && html`<a href=${to('keys', key)}>${key}</a>` },
      { name: 'Model', show: ({ model, channel }: Entry) => model !== undefined && `${model}${channel === undefined ? ''
        : ` (${channel})`}` },
      { name: 'Reference', show: ({ reference }: Entry) => html`<code>${reference}</code>` },
      { name: 'Reason', show: ({ reason }: Entry) => reason }
    ]} />`
}

function Book ({ kind, path, close, done }: {
  readonly kind: Booking, readonly path: string, readonly close: () => void, readonly done: (said: string) => void
}): VNode {
  const { title, words, label, done: field, needsReason } = BOOKINGS[kind]
  const [form, setForm] = useState({ amount_usd: '', reference: '', reason: '' })
  const { run, isRunning, error } = useAction()
  const line = (name: keyof typeof form, label: string, more: object): VNode =>
    html`<${Field} label=${label} mistake=${mistakeAt(error, name)}>${(tied: object) => html`<input ...${tied} ...${more}
      name=${name} value=${form[name]} onInput=${(event: Event) => { setForm({ ...form, [name]: textOf(event) }) }} />`}<//>`
  return html`<${Dialog} title=${title} onClose=${close}><p>${words}</p><form onSubmit=${(event: Event) => {
    event.preventDefault()
    run(async () => {
      const { reason, ...body } = form
      const booked = await ask<Readonly<Record<string, unknown>>>('POST', `${path}/${kind}`, { body: { ...body,
        ...(needsReason && { reason }) } })
      close()
      done(booked[field] === true ? `$${form.amount_usd} ${field}; the balance is $${String(booked['balance_usd'])}.`
        : `This reference was ${field} before: nothing was changed.`)
    })
  }}>${line('amount_usd', 'Amount, US$', { inputmode: 'decimal', required: true, autofocus: true, autocomplete: 'off' })}
    ${line('reference', label, { required: true })}
    ${needsReason && line('reason', 'Why: it stands in the ledger', { required: true })}
    <${Problem} error=${error} />
    <div class="actions"><button class="first" disabled=${isRunning}>${isRunning ? 'Booking …' : title}</button>
      <button type="button" onClick=${close}>Cancel</button></div></form><//>`
}

function NewAccount (): VNode {
  const [form, setForm] = useState({ id: '', name: '', contact: '' })
  const { run, isRunning, error } = useAction()
  const line = (name: keyof typeof form, label: string, hint: string, more: object = {}): VNode =>
    html`<${Field} label=${label} hint=${hint} mistake=${mistakeAt(error, name)}>${(tied: object) =>
      html`<input ...${tied} ...${more} name=${name} value=${form[name]}
        onInput=${(event: Event) => { setForm({ ...form, [name]: textOf(event) }) }} />`}<//>`
  return html`<${Page} title="New account"><form onSubmit=${(event: Event) => {
    event.preventDefault()
    run(async () => {
      await ask('POST', '/accounts', { body: Object.fromEntries(
        Object.entries(form).map(([name, text]) => [name, text.trim()] as const).filter(([, text]) => text !== '')
      ) })
      say('The account is made. Its balance is nothing: credit it.')
      go('accounts', form.id.trim())
    })
  }}><fieldset><legend>Who pays</legend><div class="fields">
    ${line('id', 'Id', 'Its name in log and ledger, for ever.', { required: true })}
    ${line('name', 'Name', 'For people. Empty: the id.')}
    ${line('contact', 'Contact', 'Whom to ask, such as an address of mail.')}</div></fieldset>
    <${Problem} error=${error} />
    <div class="actions"><button class="first" disabled=${isRunning}>${isRunning ? 'Making it …' : 'Make the account'}
    </button><a class="button" href=${to('accounts')}>Cancel</a></div></form><//>`
}
