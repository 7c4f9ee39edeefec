// The frame of the pages: who is signed in, the list of pages, and the page that the address names. Each page is loaded
// when it is first opened.
import { signal } from '@preact/signals'
import { render, type ComponentType, type VNode } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { ApiError, me, proof, signIn, signOut, whoIsThere } from './api.ts'
import { useAction } from './data.ts'
import { html } from './html.ts'
import { Dialog, Field, Problem, said, textOf, Waiting } from './parts.ts'
import { route, to } from './route.ts'

interface Loaded { readonly default: ComponentType<{ readonly steps: readonly string[] }> }

const pages: Readonly<Record<string, { readonly title: string, readonly load: () => Promise<Loaded> }>> = {
  overview: { title: 'Overview', load: async () => await import('./overview.ts') },
  keys: { title: 'Keys', load: async () => await import('./keys.ts') },
  usage: { title: 'Usage', load: async () => await import('./usage.ts') },
  accounts: { title: 'Accounts', load: async () => await import('./accounts.ts') },
  requests: { title: 'Requests', load: async () => await import('./requests.ts') },
  upstreams: { title: 'Upstreams', load: async () => await import('./upstreams.ts') },
  models: { title: 'Models and prices', load: async () => await import('./models.ts') },
  configuration: { title: 'Configuration', load: async () => await import('./configuration.ts') },
  try: { title: 'Try it', load: async () => await import('./try.ts') },
  audit: { title: 'Audit', load: async () => await import('./audit.ts') },
  tokens: { title: 'Tokens', load: async () => await import('./tokens.ts') },
  videos: { title: 'Videos', load: async () => await import('./videos.ts') },
  fleet: { title: 'Fleet', load: async () => await import('./fleet.ts') }
}
const FIRST = 'overview'

const themes = ['system', 'light', 'dark'] as const
const theme = signal<string>(localStorage.getItem('theme') ?? 'system')

theme.subscribe((value) => {
  document.documentElement.dataset['theme'] = value
  localStorage.setItem('theme', value)
})

function App (): VNode {
  const [failed, setFailed] = useState<Error>()
  useEffect(() => { begin().catch((thrown: unknown) => { setFailed(thrown as Error) }) }, [])
  if (me.value === undefined) {
    return html`<main class="lonely">${failed === undefined ? html`<${Waiting} what="who is signed in" />`
      : html`<${Problem} error=${failed} again=${() => { location.reload() }} />`}</main>`
  }
  if (me.value === null) return html`<main class="lonely"><${SignIn} failed=${failed} /></main>`
  const [name = FIRST, ...steps] = route.value
  return html`<a class="skip" href="#main" onClick=${(event: Event) => {
    event.preventDefault()
    document.querySelector<HTMLElement>('h1')?.focus()
  }}>To the page</a>
    <${Side} name=${name} />
    <main id="main"><${Shown} key=${name} name=${name} steps=${steps} /></main>
    <div class="said" role="status">${said.value}</div>
    ${proof.value !== null && html`<${Proof} answer=${proof.value.answer} />`}`
}

/** A link's code is taken out of the address at once: it must not stay in the history. */
async function begin (): Promise<void> {
  const [, code] = /^#code=([\w-]+)$/.exec(location.hash) ?? []
  if (code === undefined) return await whoIsThere()
  history.replaceState(null, '', location.pathname)
  route.value = []
  try {
    await signIn({ code })
  } catch (thrown) {
    me.value = null
    throw thrown
  }
}

function Side ({ name }: { readonly name: string }): VNode {
  const out = useAction()
  return html`<nav class="side" aria-label="Pages"><p class="brand">Gateway</p>
    <ul>${Object.entries(pages).map(([one, { title }]) => html`<li><a href=${to(one)}
      aria-current=${one === name ? 'page' : undefined}>${title}</a></li>`)}</ul>
    <div class="foot">
      <label for="theme">Colours</label>
      <select id="theme" value=${theme.value} onChange=${(event: Event) => { theme.value = textOf(event) }}>
        ${themes.map((one) => html`<option value=${one}>${one}</option>`)}</select>
      <p title=${`until ${me.value!.ends_at}`}>${me.value!.name}<br /><span class="quiet">${me.value!.role}</span></p>
      <button type="button" disabled=${out.isRunning} onClick=${() => { out.run(signOut) }}>Sign out</button>
      <${Problem} error=${out.error} />
    </div></nav>`
}

function Shown ({ name, steps }: { readonly name: string, readonly steps: readonly string[] }): VNode {
  const [loaded, setLoaded] = useState<{ readonly page?: Loaded['default'], readonly error?: Error }>({})
  useEffect(() => {
    pages[name]?.load().then(({ default: page }) => { setLoaded({ page }) }, () => {
      setLoaded({ error: new ApiError(0, 'away', 'This page could not be loaded. If the gateway has another version ' +
        'now, load everything again.') })
    })
  }, [name])
  if (pages[name] === undefined) {
    return html`<h1>There is no such page</h1><p><a href=${to(FIRST)}>To the first one</a></p>`
  }
  const { page, error } = loaded
  if (error !== undefined) return html`<${Problem} error=${error} again=${() => { location.reload() }} />`
  return page === undefined ? html`<${Waiting} what="the page" />` : html`<${page} steps=${steps} />`
}

function TokenForm ({ label, done, failed, cancel }: {
  readonly label: string, readonly done?: () => void, readonly failed?: Error | undefined, readonly cancel?: () => void
}): VNode {
  const [token, setToken] = useState('')
  const { run, isRunning, error } = useAction()
  return html`<form onSubmit=${(event: Event) => {
    event.preventDefault()
    run(async () => {
      await signIn({ token: token.trim() })
      done?.()
    })
  }}><${Field} label="Token" hint="Of gateway.yaml, of the file admin-token in the data folder, or your own.">
    ${(tied: object) => html`<input ...${tied} type="password" autocomplete="current-password" autofocus required
      value=${token} onInput=${(event: Event) => { setToken(textOf(event)) }} />`}<//>
    <${Problem} error=${error ?? failed} />
    <div class="actions"><button class="first" disabled=${isRunning}>${isRunning ? 'Asking the gateway …' : label}</button>
    ${cancel !== undefined && html`<button type="button" onClick=${cancel}>Cancel</button>`}</div></form>`
}

function SignIn ({ failed }: { readonly failed: Error | undefined }): VNode {
  useEffect(() => { document.title = 'Sign in · Gateway' }, [])
  return html`<h1>Sign in to the gateway</h1><${TokenForm} label="Sign in" failed=${failed} />
    <p class="quiet">Or without a token: <code>gateway admin link</code> on its machine prints a link that signs in
    once.</p>
    ${!isSecureContext && html`<p class="problem" role="alert">This page came over plain http from another machine, so
    its cookie would not be safe and signing in does not work. Use https, or a tunnel:
    <code> ssh -L 9090:127.0.0.1:9090 HOST</code>, then http://127.0.0.1:9090/ui/.</p>`}`
}

/** What is grave wants the token again. */
function Proof ({ answer }: { readonly answer: (isGiven: boolean) => void }): VNode {
  return html`<${Dialog} title="Your token again" onClose=${() => { answer(false) }}>
    <p>You gave it more than five minutes ago, and this moves money, changes who may sign in, or can't be undone.</p>
    <${TokenForm} label="Go on" done=${() => { answer(true) }} cancel=${() => { answer(false) }} /><//>`
}

render(html`<${App} />`, document.querySelector('#app')!)
