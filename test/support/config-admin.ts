// The configuration of a gateway of a test, asked for and judged through its admin API.
import type { Test } from 'tap'
import { gateway, type GatewayTestOptions, yaml, type TestGateway } from './gateway.ts'

export const BASE = yaml(['http://127.0.0.1:1'])

interface Told { readonly path: string, readonly message: string, readonly line: number }

export interface Answer {
  readonly status: number
  readonly text: string
  readonly body: {
    readonly ok: boolean
    readonly problems: readonly Told[]
    readonly warnings: readonly Told[]
    readonly unread: readonly Told[]
    readonly is_cut: boolean
    readonly changes: readonly { readonly path: string, readonly before?: string, readonly after?: string }[]
    readonly generations: readonly Record<string, unknown>[]
    readonly error: { readonly message: string, readonly code: string }
  }
}

export interface ConfigAdmin extends TestGateway {
  ask (method: string, path: string, body?: string | Buffer): Promise<Answer>
  check (text: string): Promise<Answer['body']>
  diff (text: string): Promise<Answer['body']>
}

export async function configAdmin (t: Test, text = BASE, options: GatewayTestOptions = {}): Promise<ConfigAdmin> {
  const own = await gateway(t, text, options)
  const ask = async (method: string, path: string, body?: string | Buffer): Promise<Answer> => {
    const got = await fetch(`${own.urls.admin}/admin/v1${path}`, { method, ...(body !== undefined && { body }),
      headers: { authorization: 'Bearer test-admin-token' } })
    const text = await got.text()
    return { status: got.status, text, body: JSON.parse(text) as Answer['body'] }
  }
  const send = async (path: string, text: string): Promise<Answer['body']> => {
    const { status, body } = await ask('POST', path, JSON.stringify({ text }))
    t.equal(status, 200, JSON.stringify(body).slice(0, 500))
    return body
  }
  return Object.assign(Object.create(own) as TestGateway, { ask,
    check: async (text: string) => await send('/config/check', text),
    diff: async (text: string) => await send('/config/diff', text) })
}
