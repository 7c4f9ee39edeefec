// Commands of the gateway as real processes, and a configuration for them.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { packageRoot } from '../src/package-root.ts'
import { newcomersEnvironment, untapped } from './newcomer.ts'

export interface Ran { readonly code: number, readonly out: string, readonly err: string }

export async function gateway (folder: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  const [file, all] = untapped(process.execPath, [join(packageRoot, 'src/gateway.js'), ...args])
  return await new Promise((resolve) => {
    execFile(file, all, { cwd: folder, env: { ...newcomersEnvironment(), ...env } }, (error, out, err) => { resolve({ code: error === null ? 0 : Number(error.code), out, err }) })
  })
}

export const json = async (folder: string, args: readonly string[]): Promise<unknown> => {
  const { code, out, err } = await gateway(folder, [...args, '--json'])
  if (code !== 0) throw new Error(err)
  return JSON.parse(out)
}

export async function freePort (): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

export function yaml (adminPort: number, driver = 'embedded'): string {
  return `server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:${adminPort}" }
store: { driver: ${driver}, path: ./data }
pipeline: [auth, key-policy, rate-limit, channel-router, billing-meter, error-normalize]
upstreams:
  simulator: { url: "simulator:", dialect: messages }
models:
  - id: m1
    provider: acme
    created: 2025-09-29
    max_output: 1000
    channels: { premium: { price: { input: 3, output: 15 }, targets: [{ upstream: simulator, model: vendor-m1 }] } }
`
}
