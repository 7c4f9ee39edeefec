// Try it: one request to any model, with a key whose secret is typed in. What it may cost and where it would go before
// it is sent, the answer as it comes, and what it has cost.
import type { VNode } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, follow, may } from './api.ts'
import { mistakeAt, useAction, useData, useList } from './data.ts'
import { html } from './html.ts'
import type { Key } from './key-fields.ts'
import { copy, Empty, Field, Page, Pairs, Problem, say, textOf, Waiting } from './parts.ts'
import { NEW, to } from './route.ts'
import { copies } from './try-copies.ts'
import { Explained, type Explanation, Spent } from './try-money.ts'
import { Answer, type TrialEvent, type Way, ways, type Wish } from './try-ways.ts'

interface Model {
  readonly id: string
  readonly name: string
  readonly kind: string
  readonly channels: readonly string[]
  readonly max_output: number | null
  readonly sampling: boolean
  readonly parameters: Readonly<Record<string, { readonly values: readonly string[], readonly default: string | null }>>
}

interface Tryable {
  readonly base_url: string
  readonly user_agent: string
  readonly models: readonly Model[]
}

interface Form extends Wish {
  readonly key: string
  /** in the memory of this page, until another one is opened */
  readonly secret: string
  readonly path: string
}

/** A request that was sent. */
interface Run {
  readonly answer: Answer
  readonly quoted: string
  readonly kind: string
}

const KINDS: Readonly<Record<string, string>> = { text: 'Text', image: 'Images', video: 'Videos' }
/** Milliseconds without a change after which the request is explained. */
const PAUSE_MS = 400

export default function TryIt (): VNode {
  const { value: what, error, again } = useData<Tryable>('/try')
  const { rows: keys, error: keyError } = useList<Key>('/keys?limit=200')
  return html`<${Page} title="Try it"><${Problem} error=${error ?? keyError} again=${again} />
    ${what === undefined || keys === undefined
      ? error === undefined && keyError === undefined && html`<${Waiting} what="what can be tried" />`
      : what.models.length === 0
        ? html`<${Empty} title="Nothing is sold yet">Declare a model in gateway.yaml under <code>models:</code>, with a
          price and a target.<//>`
        : keys.length === 0
          ? html`<${Empty} title="No keys yet">A request needs a key, which pays for it. <a href=${to('keys', NEW)}>Make
            one</a>.<//>`
          : html`<${Trial} of=${what} keys=${keys} />`}<//>`
}

function Trial ({ of: what, keys }: { readonly of: Tryable, readonly keys: readonly Key[] }): VNode {
  const [form, setForm] = useState<Form>(() => ({ key: keys.find(({ state }) => state === 'active')?.id ?? '', secret: '',
    prompt: '', system: '', maxTokens: '256', temperature: '', isStream: true, ...chosen(what.models[0]!) }))
  const set = (change: Partial<Form>): void => { setForm({ ...form, ...change }) }
  const [run, setRun] = useState<Run>()
  const action = useAction()
  const going = useRef<AbortController>(null)
  useEffect(() => () => { going.current?.abort() }, [])
  const model = what.models.find(({ id }) => id === form.model)!
  const way = ways.find(({ path }) => path === form.path)!
  const wish = wishOf(form, model)
  const question = { key: form.key.trim(), route: `POST ${way.path}`, headers: { 'user-agent': what.user_agent },
    body: way.body(wish) }

  const send = async (): Promise<void> => {
    const abort = going.current = new AbortController()
    const answer = new Answer()
    try {
      // Of what is sent, and of no earlier words.
      const { max_cost_usd: quoted } = await ask<Explanation>('POST', '/explain', { body: question, signal: abort.signal })
      setRun({ answer, quoted, kind: model.kind })
      const events = follow<TrialEvent>('POST', '/try', { signal: abort.signal, body: { key: question.key,
        secret: form.secret.trim(), path: way.path, body: question.body } })
      for await (const event of events) {
        answer.hear(event)
        setRun({ answer, quoted, kind: model.kind })
      }
      answer.end ??= 'cut'
      say(answer.error === undefined && answer.end === 'whole' ? 'The answer is complete.' : 'The answer did not end well.')
    } catch (thrown) {
      // What has not begun is told as the mistake that it is.
      if (abort.signal.aborted) answer.end = 'stopped'
      else if (answer.status === undefined) {
        setRun(undefined)
        throw thrown
      } else answer.end = 'cut'
    }
    setRun((before) => before && { ...before })
  }

  return html`<div class="pair"><form onSubmit=${(event: Event) => {
    event.preventDefault()
    if (may('operator')) action.run(send)
  }}><${Fields} form=${form} set=${set} model=${model} of=${what} keys=${keys} error=${action.error} />
    <${Problem} error=${action.error} />
    ${may('operator')
      ? html`<div class="actions"><button class="first" aria-disabled=${action.isRunning ? 'true' : undefined}>
        ${action.isRunning ? 'Sending …' : 'Send'}</button>
        ${action.isRunning && html`<button type="button" onClick=${() => { going.current?.abort() }}>Stop</button>`}
        <span class="quiet">It is charged to the key like any other request.</span></div>`
      : html`<p class="note">A viewer sees what a request would cost and where it would go. Sending takes the role
        operator.</p>`}</form>
    <${Quote} question=${question} isReady=${question.key !== '' && form.prompt !== ''} /></div>
    ${run !== undefined && html`<${Outcome} of=${run} />`}
    <${Copies} base=${baseOf(what.base_url)} way=${way} wish=${wish} />
    <p class="quiet">Tools, pictures to look at or to change, several turns, and addresses that are passed on (embeddings,
      audio, files) are not tried here: take the command above and add them.</p>`
}

/** The defaults of a model. */
function chosen ({ id, kind, parameters }: Model): Pick<Form, 'model' | 'path' | 'choices'> {
  return { model: id, path: ways.find((way) => way.kind === kind)!.path,
    choices: Object.fromEntries(Object.entries(parameters).map(([name, one]) => [name, one.default ?? ''])) }
}

/** Without what the model does not take. */
function wishOf (form: Form, { kind, sampling }: Model): Wish {
  return { ...form, temperature: sampling ? form.temperature : '', isStream: kind === 'text' && form.isStream }
}

/** A listener on all addresses is, for who reads this, where the page is. */
function baseOf (url: string): string {
  return url.replace(/^http:\/\/(?:0\.0\.0\.0|\[::\])(?=:)/, `http://${location.hostname}`)
}

interface FieldsProps {
  readonly form: Form
  readonly set: (change: Partial<Form>) => void
  readonly model: Model
  readonly of: Tryable
  readonly keys: readonly Key[]
  readonly error: Error | undefined
}

function Fields ({ form, set, model, of: { models }, keys, error }: FieldsProps): VNode {
  const line = (name: 'key' | 'secret' | 'maxTokens' | 'temperature', label: string, hint: string, more: object): VNode =>
    html`<${Field} label=${label} hint=${hint} mistake=${mistakeAt(error, name)}>${(tied: object) =>
      html`<input ...${tied} ...${more} name=${name} value=${form[name]}
        onInput=${(event: Event) => { set({ [name]: textOf(event) }) }} />`}<//>`
  const lines = (name: 'system' | 'prompt', label: string, rows: number, more: object = {}): VNode =>
    html`<${Field} label=${label}>${(tied: object) => html`<textarea ...${tied} ...${more} name=${name} rows=${rows}
      value=${form[name]} onInput=${(event: Event) => { set({ [name]: textOf(event) }) }}></textarea>`}<//>`
  const kinds = Object.entries(KINDS).map(([kind, label]) =>
    ({ label, sold: models.filter((one) => one.kind === kind) })).filter(({ sold }) => sold.length > 0)
  return html`<fieldset><legend>Who pays</legend><div class="fields">
      ${line('key', 'Key', 'Its id. Its routing mode chooses the channel.', { list: 'keys', required: true,
        autocomplete: 'off', spellcheck: false })}
      <datalist id="keys">${keys.map(({ id, state }) => html`<option value=${id}>${state}</option>`)}</datalist>
      ${may('operator') && line('secret', 'Secret of the key', 'As its client has it. Kept in the memory of this page ' +
        'alone, until you leave it, and nowhere stored.', { type: 'password', required: true,
        autocomplete: 'off' })}
    </div></fieldset>
    <fieldset><legend>What is asked</legend><div class="fields">
      <${Field} label="Model">${(tied: object) => html`<select ...${tied} name="model" value=${form.model}
        onChange=${(event: Event) => { set(chosen(models.find(({ id }) => id === textOf(event))!)) }}>
        ${kinds.map(({ label, sold }) => html`<optgroup label=${label}>${sold.map(({ id, channels }) =>
          html`<option value=${id}>${id} (${channels.join(', ')})</option>`)}</optgroup>`)}</select>`}<//>
      <${Field} label="Address">${(tied: object) => html`<select ...${tied} name="path" value=${form.path}
        onChange=${(event: Event) => { set({ path: textOf(event) }) }}>${ways.filter(({ kind }) => kind === model.kind)
          .map(({ path, name }) => html`<option value=${path}>${name}</option>`)}</select>`}<//>
      ${model.kind === 'text' && html`${line('maxTokens', 'Max tokens', model.max_output === null ? 'Of the answer.'
        : `Of the answer, at most ${model.max_output.toLocaleString()}.`, { type: 'number', min: 1, step: 1 })}
      ${line('temperature', 'Temperature', model.sampling ? 'From 0 to 1. Empty: the standard of the model.'
        : 'This model takes none.', { type: 'number', min: 0, max: 1, step: 'any', disabled: !model.sampling })}`}
      ${Object.entries(model.parameters).map(([name, { values, default: standard }]) => html`<${Field} key=${name}
        label=${name.replaceAll('_', ' ')}>${(tied: object) => html`<select ...${tied} name=${name}
        value=${form.choices[name]} onChange=${(event: Event) => {
          set({ choices: { ...form.choices, [name]: textOf(event) } })
        }}>${standard === null && html`<option value="">unset</option>`}
        ${values.map((value) => html`<option value=${value}>${value}</option>`)}</select>`}<//>`)}
    </div>
    <div class="stack">${model.kind === 'text' && lines('system', 'System', 2)}
    ${lines('prompt', 'Prompt', 5, { required: true })}
    ${model.kind === 'text' && html`<label class="check"><input type="checkbox" name="stream" checked=${form.isStream}
      onChange=${(event: Event) => { set({ isStream: (event.currentTarget as HTMLInputElement).checked }) }} /> Stream
      </label>`}</div></fieldset>`
}

/** What would happen to the request as it stands, soon after it was changed last. */
function Quote ({ question, isReady }: { readonly question: object, readonly isReady: boolean }): VNode {
  const asked = JSON.stringify(question)
  const [found, setFound] = useState<{ readonly asked?: string, readonly is?: Explanation, readonly error?: Error }>({})
  useEffect(() => {
    if (!isReady) return
    const abort = new AbortController()
    const timer = setTimeout(() => {
      ask<Explanation>('POST', '/explain', { body: question, signal: abort.signal })
        .then((is) => { setFound({ asked, is }) }, (thrown: unknown) => {
          if (!abort.signal.aborted) setFound({ asked, error: thrown as Error })
        })
    }, PAUSE_MS)
    return () => { clearTimeout(timer); abort.abort() }
  }, [asked, isReady])
  // Never that of other words.
  const { is, error } = found.asked === asked ? found : {}
  return html`<section aria-label="The quote"><h2>What it would cost, and where it would go</h2>
    ${!isReady ? html`<p class="quiet">Name a key and write a prompt: what the request would cost is told before it is
      sent.</p>` : error !== undefined ? html`<p class="wrong">${error.message.replace(/ Request ID: \S+$/, '')}</p>`
      : is === undefined ? html`<p class="quiet">Asking for a quote …</p>` : html`<${Explained} of=${is} />`}</section>`
}

function Outcome ({ of: { answer, quoted, kind } }: { readonly of: Run }): VNode {
  const { status, requestId: id, error, end, images, links, text, raw, task } = answer
  return html`<section aria-label="The answer" aria-busy=${end === undefined ? 'true' : undefined}>
    <h2>The answer</h2><${Pairs} of=${[
      ['Status', status ?? (end === undefined ? 'waiting …' : 'none')],
      ['Request', id === undefined ? 'not known yet' : html`<a href=${to('requests', id)}><code>${id}</code></a>`],
      [answer.isStream ? 'First token' : 'First byte', answer.firstMs === undefined ? 'none yet' : `${answer.firstMs} ms`],
      ['Whole', end === undefined ? 'not over' : answer.ms === undefined ? 'none' : `${answer.ms} ms`]]} />
    ${error !== undefined && html`<div class="problem" role="alert"><p><code>${error.code}</code>:
      ${' '}${error.message.replace(/ Request ID: \S+$/, '')}</p>${id !== undefined && html`<p class="quiet">Request
      ${' '}<a href=${to('requests', id)}><code>${id}</code></a> has what every upstream said.</p>`}</div>`}
    ${end === 'cut' && html`<div class="problem" role="alert"><p>The answer was cut: what came is shown, and what was
      charged stands below.</p></div>`}
    ${end === 'stopped' && html`<p class="note">You stopped it. What was produced until then is charged${id === undefined
      ? html`; the first of <a href=${to('requests')}>the requests</a> is it.` : '.'}</p>`}
    ${text !== '' && html`<pre class="answer" tabindex="0" role="region" aria-label="Text of the answer">${text}</pre>`}
    ${images.map((image, i) => html`<${Picture} key=${i} base64=${image} />`)}
    ${links.map((link) => html`<p><a href=${link} target="_blank" rel="noopener noreferrer">The image, elsewhere</a></p>`)}
    ${kind === 'video' && task !== undefined && html`<p class="note">A video takes minutes. <a href=${to('videos')}>Videos</a> follows the task
      <code> ${task}</code>, which is charged when it is finished; the file comes from GET
      <code> /v1/videos/${task}/content</code> with the key.</p>`}
    ${raw !== '' && html`<details><summary>As it came</summary><pre tabindex="0" role="region" aria-label="The answer as it came">
      ${raw}</pre></details>`}
    ${end !== undefined && id !== undefined && html`<${Spent} id=${id} key=${id} quoted=${quoted}
      told=${answer.headers['x-gateway-cost-usd']}
      none=${kind === 'video' && error === undefined ? 'nothing yet' : 'no charge'} />`}</section>`
}

/** An image that came in base64, at an address of this page alone. */
function Picture ({ base64 }: { readonly base64: string }): VNode {
  const [url, setUrl] = useState<string>()
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([Uint8Array.from(atob(base64), (one) => one.charCodeAt(0))]))
    setUrl(made)
    return () => { URL.revokeObjectURL(made) }
  }, [base64])
  return html`<p>${url !== undefined && html`<img class="made" src=${url} alt="What the model made of the prompt" />`}</p>`
}

function Copies ({ base, way, wish }: { readonly base: string, readonly way: Way, readonly wish: Wish }): VNode {
  const [name, setName] = useState(copies[0]!.name)
  const [address, setAddress] = useState(base)
  const fitting = copies.filter(({ takes }) => takes(way))
  const one = fitting.find((copied) => copied.name === name) ?? fitting[0]!
  const program = one.text(address.replace(/(?<!\/)\/+$/, ''), way, wish)
  return html`<section aria-label="As a program"><h2>The same as a program</h2><div class="filter">
    <${Field} label="Copy as">${(tied: object) => html`<select ...${tied} name="copy" value=${one.name}
      onChange=${(event: Event) => { setName(textOf(event)) }}>${fitting.map((copied) => html`<option
        value=${copied.name}>${copied.name}</option>`)}</select>`}<//>
    <${Field} label="Address of the API">${(tied: object) => html`<input ...${tied} name="base" value=${address}
      onInput=${(event: Event) => { setAddress(textOf(event)) }} />`}<//>
    <button type="button" onClick=${() => { copy(program) }}>Copy</button></div>
    <p class="quiet">The key comes from the environment: <code>export GATEWAY_KEY=…</code>. What the address is by itself,
      <code> server.api.url</code> in gateway.yaml says.</p>
    <pre tabindex="0" role="region" aria-label="The program">${program}</pre></section>`
}
