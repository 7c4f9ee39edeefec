// The settings of a key as a form: what stands in its fields, and the change that the API is sent.
import type { VNode } from 'preact'
import { mistakeAt } from './data.ts'
import { html } from './html.ts'
import { Field, textOf } from './parts.ts'

interface Period { readonly spent_usd: string, readonly resets_at: string }

/** As the API gives it. */
export interface Key extends Readonly<Record<ListName, readonly string[] | undefined>> {
  readonly id: string
  readonly account: string
  readonly name?: string
  readonly state: string
  readonly declared: boolean
  readonly declared_at?: string
  readonly frozen: boolean
  readonly version?: number
  readonly usage_limit_usd?: string
  readonly usage_limit_day_usd?: string
  readonly usage_limit_month_usd?: string
  readonly time_zone?: string
  readonly rate_limit?: number
  readonly concurrency?: number
  readonly abandon_limit?: number
  readonly streaming: boolean
  readonly store?: boolean
  readonly routing_mode: string
  readonly expires_at?: string
  readonly shown?: string
  readonly created_at?: string
  readonly old_secret_until?: string
  readonly spent_usd?: string
  readonly held_usd?: string
  readonly remaining_usd?: string | null
  readonly this_day?: Period & { readonly day: string }
  readonly this_month?: Period & { readonly month: string }
  readonly warnings?: readonly { readonly path: string, readonly message: string }[]
}

const LISTS = ['allowed_models', 'allowed_clients', 'ip_whitelist', 'allowed_origins', 'tags', 'channels'] as const
const NUMBERS = ['rate_limit', 'concurrency', 'abandon_limit'] as const
const TEXTS = ['name', 'usage_limit_usd', 'usage_limit_day_usd', 'usage_limit_month_usd', 'time_zone', 'expires_at'] as const
type ListName = typeof LISTS[number]

/** What stands in the fields: lists with a line for each entry; empty: the standard. */
export type Said = Readonly<Record<ListName | typeof NUMBERS[number] | typeof TEXTS[number] | 'routing_mode', string>> &
  { readonly streaming: boolean, readonly store: '' | 'true' | 'false' }

export function saidOf (key: Partial<Key>): Said {
  const lists = Object.fromEntries(LISTS.map((name) => [name, (key[name] ?? []).join('\n')]))
  const texts = Object.fromEntries([...NUMBERS, ...TEXTS].map((name) => [name, String(key[name] ?? '')]))
  return { ...lists, ...texts, streaming: key.streaming ?? true, store: key.store === undefined ? '' : `${key.store}`,
    routing_mode: key.routing_mode ?? 'premium' } as Said
}

/** What has changed, as the API takes it; null: back to the standard. What is no number the API refuses. */
export function asBody (before: Said, now: Said): Readonly<Record<string, unknown>> {
  const body: Record<string, unknown> = {}
  for (const name of LISTS) {
    const entries = now[name].split(/[\n,]/).map((entry) => entry.trim()).filter((entry) => entry !== '')
    if (entries.join('\n') !== before[name]) body[name] = entries.length === 0 ? null : entries
  }
  for (const name of [...TEXTS, ...NUMBERS]) {
    const text = now[name].trim()
    const isNumber = (NUMBERS as readonly string[]).includes(name) && /^\d+$/.test(text)
    if (text !== before[name]) body[name] = text === '' ? null : isNumber ? Number(text) : text
  }
  if (now.streaming !== before.streaming) body['streaming'] = now.streaming
  if (now.store !== before.store) body['store'] = now.store === '' ? null : now.store === 'true'
  if (now.routing_mode !== before.routing_mode) body['routing_mode'] = now.routing_mode
  return body
}

const MODES = {
  premium: 'premium: the premium channel',
  cheap: 'cheap: the cheap channel, nothing else',
  auto_cheap: 'auto_cheap: cheap first, premium when it fails',
  max: 'max: cheap first, premium when it fails',
  auto_premium: 'auto_premium: premium first, cheap when it fails'
}

interface FieldsProps {
  readonly form: Said
  readonly set: (change: Partial<Said>) => void
  readonly isLocked: boolean
  readonly error: Error | undefined
}

export function KeyFields ({ form, set, isLocked, error }: FieldsProps): VNode {
  const line = (name: keyof Said, label: string, hint: string, more: object = {}): VNode =>
    html`<${Field} label=${label} hint=${hint} mistake=${mistakeAt(error, name)}>${(tied: object) =>
      html`<input ...${tied} ...${more} name=${name} disabled=${isLocked} value=${form[name]}
        onInput=${(event: Event) => { set({ [name]: textOf(event) }) }} />`}<//>`
  const lines = (name: ListName, label: string, hint: string): VNode =>
    html`<${Field} label=${label} hint=${hint} mistake=${mistakeAt(error, name)}>${(tied: object) =>
      html`<textarea ...${tied} name=${name} rows="3" spellcheck="false" disabled=${isLocked} value=${form[name]}
        onInput=${(event: Event) => { set({ [name]: textOf(event) }) }}></textarea>`}<//>`
  const choice = (name: 'routing_mode' | 'store', label: string, hint: string, of: Readonly<Record<string, string>>): VNode =>
    html`<${Field} label=${label} hint=${hint} mistake=${mistakeAt(error, name)}>${(tied: object) =>
      html`<select ...${tied} name=${name} disabled=${isLocked} value=${form[name]}
        onChange=${(event: Event) => { set({ [name]: textOf(event) }) }}>${Object.entries(of).map(([value, words]) =>
          html`<option value=${value}>${words}</option>`)}</select>`}<//>`
  const amount = { inputmode: 'decimal', autocomplete: 'off' }
  return html`<fieldset><legend>Limits</legend><div class="fields">
      ${line('rate_limit', 'Rate limit', 'Requests in any 60 seconds; 0: none. Empty: the standard of the plugin.',
        { inputmode: 'numeric' })}
      ${line('concurrency', 'Requests at a time', '0: no limit. Empty: the standard of the plugin.',
        { inputmode: 'numeric' })}
      ${line('abandon_limit', 'Abandoned requests', 'Left before their answers begin, in any 60 seconds; 0: no limit. ' +
        'Empty: the standard of the plugin.', { inputmode: 'numeric' })}
      ${line('usage_limit_usd', 'Usage limit, US$', 'What it may spend in total. Empty: no limit.', amount)}
      ${line('usage_limit_day_usd', 'Usage limit per day, US$', 'Of its time zone. Empty: no limit.', amount)}
      ${line('usage_limit_month_usd', 'Usage limit per month, US$', 'Of its time zone. Empty: no limit.', amount)}
      ${line('time_zone', 'Time zone', 'Where its days and months begin, such as Europe/Berlin. Empty: UTC.')}
    </div></fieldset>
    <fieldset><legend>Who and what</legend><div class="fields">
      ${lines('allowed_models', 'Allowed models', 'One a line: an id, or the beginning of ids with * at its end. ' +
        'Empty: all.')}
      ${lines('allowed_clients', 'Allowed IDEs', 'One a line: a client such as claude-code, or a user agent with * for ' +
        'any characters. They can be forged. Empty: all.')}
      ${lines('ip_whitelist', 'IP whitelist', 'One a line: an address, or a network such as 10.0.0.0/8. Empty: all.')}
      ${lines('allowed_origins', 'Allowed origins', 'One a line: scheme, host and port of a web page. Empty: all.')}
    </div></fieldset>
    <fieldset><legend>How</legend><div class="fields">
      <div class="field"><label class="check"><input type="checkbox" name="streaming" disabled=${isLocked}
        checked=${form.streaming} onChange=${(event: Event) => {
          set({ streaming: (event.currentTarget as HTMLInputElement).checked })
        }} /> Streaming</label><p class="hint">Off: requests for a stream are refused.</p></div>
      ${choice('routing_mode', 'Routing mode', 'Which channel is asked, and which follows when it fails.', MODES)}
      ${lines('channels', 'Channels', 'Those that it may use at all, one a line: premium, cheap. Empty: both.')}
      ${choice('store', 'Responses are kept', 'Answers of the Responses API, for whoever goes on from them.',
        { '': 'as the request says', false: 'never', true: 'as the request says (said so here)' })}
    </div></fieldset>
    <fieldset><legend>For people</legend><div class="fields">
      ${line('name', 'Name', 'Such as what it is used for.')}
      ${line('expires_at', 'Expires', 'In UTC, such as 2027-01-31T00:00:00Z. Empty: never.')}
      ${lines('tags', 'Tags', 'One a line: your own words, by which lists are filtered.')}
    </div></fieldset>`
}
