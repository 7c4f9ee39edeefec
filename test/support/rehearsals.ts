// For the tests of dry runs: asks the admin listener to explain, asks the API for a quote, and writes down all that the
// store knows.
import type { Entry } from '../../src/store/store.ts'
import { KEY, type TestGateway } from './gateway.ts'

export interface Explained {
  readonly allowed: boolean
  readonly then: string
  readonly refusal: { readonly status: number, readonly code: string, readonly message: string,
    readonly retry_after?: number, readonly cause?: string } | null
  readonly steps: readonly { readonly who: string, readonly hook: string, readonly verdict: string,
    readonly wrote: readonly string[] }[]
  readonly targets: readonly Readonly<Record<string, unknown>>[]
  readonly max_cost_usd: string
  readonly [name: string]: unknown
}

export interface Said<Body> { readonly status: number, readonly headers: Headers, readonly body: Body }

export async function explain (
  gw: TestGateway,
  question: unknown,
  token = 'test-admin-token'
): Promise<Said<Explained>> {
  const response = await fetch(gw.urls.admin + '/admin/v1/explain', { method: 'POST',
    headers: { authorization: `Bearer ${token}` }, body: JSON.stringify(question) })
  return { status: response.status, headers: response.headers, body: await response.json() as Explained }
}

export async function quote (
  gw: TestGateway,
  question: unknown,
  headers: Readonly<Record<string, string>> = { 'x-api-key': KEY }
): Promise<Said<Record<string, unknown>>> {
  const response = await fetch(gw.url + '/v1/quote', { method: 'POST',
    headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(question) })
  return { status: response.status, headers: response.headers, body: await response.json() as Record<string, unknown> }
}

/** Money, holds, entries, and how many requests the windows of keys count and the slots hold. */
export async function stateOf (
  { services: { store } }: TestGateway,
  keys: readonly string[] = ['acme-dev']
): Promise<unknown> {
  const entries: Entry[] = []
  for await (const entry of store.entries()) entries.push(entry)
  const counted = await Promise.all(keys.map(async (key) => {
    const names = [`key:${key}`, `key:${key} polls`, `key:${key} family:f`]
    const asked = await store.wouldAdmit({ request_id: 'req_asked',
      windows: names.map((name) => ({ name, limit: 1_000_000 })) })
    const slots = await store.wouldAdmit({ request_id: 'req_asked', windows: [],
      slot: { name: `key:${key}`, limit: 1 } })
    return [key, asked.windows.map(({ remaining }) => 1_000_000 - remaining), slots.kind, await store.keyUsage(key)]
  }))
  return { balance: await store.balance('acme'), holds: await store.openHolds(), entries, counted,
    verified: (await store.verify()).differences }
}
