// `gateway start` while Redis does not answer: the process stays, health checks find it, and it serves
// when Redis is back.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t, { type Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { freePort } from '../support/free-port.ts'
import { KEY, yaml } from '../support/gateway.ts'
import { untapped } from '../support/newcomer.ts'
import { redisServer } from '../support/redis-server.ts'
import { newPrefix } from '../support/redis-store.ts'
import { until } from '../support/until.ts'

interface Started {
  readonly api: string
  readonly admin: string
  readonly exited: Promise<unknown[]>
  kill (signal: NodeJS.Signals): void
}

async function start (t: Test, redisUrl: string, admin: number): Promise<Started> {
  const folder = mkdtempSync(path.join(tmpdir(), 'gateway-test-'))
  const file = path.join(folder, 'gateway.yaml')
  const api = await freePort()
  writeFileSync(file, yaml(['http://127.0.0.1:1'])
    .replace('127.0.0.1:0', `127.0.0.1:${api}`)
    .replace('admin: { listen: "127.0.0.1:0"', `admin: { listen: "127.0.0.1:${admin}"`)
    .replace('driver: memory, path: ./data', `driver: redis, path: ./data, url: "${redisUrl}", prefix: ${newPrefix()}`))
  const [command, args] = untapped(process.execPath,
    [path.join(packageRoot, 'src/launcher.js'), 'start', '--config', file])
  const child = spawn(command, args, { stdio: 'ignore' })
  const exited = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await exited
    rmSync(folder, { recursive: true, force: true })
  })
  return { api: `http://127.0.0.1:${api}`, admin: `http://127.0.0.1:${admin}`, exited,
    kill: (signal) => { child.kill(signal) } }
}

/** The status and the text; undefined: nobody listens. */
async function read (url: string): Promise<readonly [number, string] | undefined> {
  return await fetch(url).then(async (response) => [response.status, await response.text()] as const, () => undefined)
}

void t.test('without Redis the process stays, is not ready, and serves when Redis is back', async (t) => {
  const redis = await redisServer(t)
  await redis.kill()
  const gw = await start(t, redis.url, await freePort())
  const [status, text] = await until(async () => await read(`${gw.admin}/readyz`))
  t.equal(status, 503)
  t.strictSame(JSON.parse(text), { ready: false, reasons: ['warming_up', 'store_away'] })
  t.equal((await read(`${gw.admin}/healthz`))?.[0], 200)
  gw.kill('SIGHUP')
  t.equal((await read(`${gw.admin}/readyz?exclude=store_away`))?.[0], 503, 'it does not listen for clients yet')
  await redis.restart()
  await until(async () => (await read(`${gw.admin}/readyz`))?.[0] === 200)
  const models = await fetch(`${gw.api}/v1/models`, { headers: { 'x-api-key': KEY } })
  t.equal(models.status, 200)
  await models.body?.cancel()
  gw.kill('SIGTERM')
  t.strictSame(await gw.exited, [0, null])
})

void t.test('a signal ends a start that waits', async (t) => {
  const gw = await start(t, `redis://127.0.0.1:${await freePort()}`, await freePort())
  await until(async () => await read(`${gw.admin}/readyz`))
  gw.kill('SIGTERM')
  t.strictSame(await gw.exited, [0, null])
})
