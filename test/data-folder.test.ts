// The data folder of a gateway process: what it says and does while its disk takes nothing, and when its ledger is gone or was cut.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { packageRoot } from '../src/package-root.ts'
import { until } from './billing-client.ts'
import { freePort, yaml } from './gateway-command.ts'
import { newcomersEnvironment, untapped } from './newcomer.ts'
import { redisServer } from './redis-server.ts'
import { folderFor } from './spawned.ts'

const KEY = 'sk-gw-' + 'k'.repeat(32)
const RICH = `accounts: [{ id: acme, opening_balance_usd: 10 }]
keys: [{ id: dev, account: acme, secret: ${KEY}, rate_limit: 100000 }]
`

/** Its log goes nowhere: files are what it has trouble with. */
async function gateway (t: Test, folder: string): Promise<{ readonly pid: number, readonly api: string, readonly admin: string, kill (): Promise<void> }> {
  const child = spawn(...untapped(process.execPath, [join(packageRoot, 'src/gateway.js'), 'start']), { cwd: folder, env: newcomersEnvironment(), stdio: ['ignore', 'ignore', 'pipe'] })
  const ended = once(child, 'exit')
  t.teardown(async () => { child.kill('SIGKILL'); await ended })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => { said += text })
  const [, api, admin] = await until(() => /API +(http:\S+?)\/v1\n[^]*admin +(http:\S+)/.exec(said) ?? undefined)
  return { pid: child.pid!, api: api!, admin: admin!, async kill () { child.kill('SIGKILL'); await ended } }
}

async function say (api: string): Promise<number> {
  const got = await fetch(`${api}/v1/messages`, {
    method: 'POST', headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm1', max_tokens: 5, messages: [{ role: 'user', content: 'Hello' }] })
  })
  await got.text()
  return got.status
}

async function readyz (admin: string): Promise<unknown> {
  const got = await fetch(`${admin}/readyz`)
  return [got.status, await got.json()]
}

for (const driver of ['embedded', 'redis'] as const) {
  await t.test(`${driver}: while what is charged can't be written down the gateway is not ready, and ready again when it can`, async (t) => {
    const url = driver === 'redis' ? `, url: "${(await redisServer(t)).url}"` : ''
    const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort(), driver).replace('path: ./data', `path: ./data${url}`) + RICH })
    const { pid, api, admin } = await gateway(t, folder)
    t.equal(await say(api), 200)
    t.strictSame(await readyz(admin), [200, { ready: true, reasons: [] }])
    // No file grows beyond a byte: what a full disk is.
    execFileSync('prlimit', ['--pid', `${pid}`, '--fsize=1:unlimited'])
    await until(async () => await say(api) === 503)
    t.strictSame(await readyz(admin), [503, { ready: false, reasons: ['ledger_unwritable'] }])
    for (let i = 0; i < 10; i++) t.equal(await say(api), 503, 'which is what clients would get')
    t.equal((await fetch(`${admin}/healthz`)).status, 200, 'a restart would mend nothing')
    execFileSync('prlimit', ['--pid', `${pid}`, '--fsize=unlimited:unlimited'])
    await until(async () => (await fetch(`${admin}/readyz`)).status === 200)
    t.equal(await say(api), 200)
  })
}

await t.test('after kill -9 a limited key goes on with what is left of its limit: a crash is no outage of a minute', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) + RICH.replace('rate_limit: 100000', 'rate_limit: 30') })
  const first = await gateway(t, folder)
  for (let i = 0; i < 10; i++) t.equal(await say(first.api), 200)
  await first.kill()
  const { api } = await gateway(t, folder)
  const told = await Promise.all(Array.from({ length: 30 }, async () => await say(api)))
  const served = told.filter((status) => status === 200).length
  t.ok(served <= 30 - 10, `${served} more: never above the limit`)
  t.ok(served >= 30 - 10 - 3, `${served} more: a tenth of the limit may have come in the last second`)
})
