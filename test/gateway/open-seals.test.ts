// The secrets of seals over restarts: generated in the data folder, configured, or lost with the process.
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { check } from '../../src/commands/check.ts'
import { gateway, yaml, type TestGateway } from '../support/gateway.ts'

const [FIRST, SECOND] = ['a'.repeat(32), 'b'.repeat(32)]

/** @param secrets of gateway.yaml; undefined: none are configured */
function config (folder: string, secrets?: readonly string[], driver = 'embedded'): string {
  return yaml(['http://127.0.0.1:9'])
    .replace('driver: memory, path: ./data', `driver: ${driver}, path: ${JSON.stringify(folder)}`)
    .replace('server:\n', `server:\n${secrets === undefined ? '' : `  seal_secrets: ${JSON.stringify(secrets)}\n`}`)
}

/** Runs a gateway for as long as `work` takes. */
async function during<T> (t: Test, text: string, work: (gw: TestGateway) => T, env?: NodeJS.ProcessEnv): Promise<T> {
  const gw = await gateway(t, text, env === undefined ? {} : { env })
  try {
    return work(gw)
  } finally {
    await gw.stop()
  }
}

const sealing = ({ services: { seals } }: TestGateway): string => seals.seal('thinking', 'acme', 'value')

const opening = (sealed: string) => ({ services: { seals } }: TestGateway): string | undefined =>
  seals.open('thinking', 'acme', sealed)

void t.test('a generated secret is kept in the data folder, for its owner alone', async (t) => {
  const top = t.testdir()
  const folder = join(top, 'data')
  const sealed = await during(t, config(folder), sealing)
  const file = join(folder, 'seal-secret')
  t.match(readFileSync(file, 'utf8'), /^[A-Za-z0-9]{32}\n$/)
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.equal(await during(t, config(folder), opening(sealed)), 'value', 'a restart opens what was sealed before')
  t.equal(await during(t, config(join(top, 'other')), opening(sealed)), undefined)
})

void t.test('configured secrets: the first seals, all of them open, and so does one that was generated', async (t) => {
  const top = t.testdir()
  const folder = join(top, 'data')
  const generated = await during(t, config(folder), sealing)
  const first = await during(t, config(folder, [FIRST]), sealing)
  t.equal(await during(t, config(folder, [FIRST]), opening(generated)), 'value')
  t.equal(await during(t, config(folder, [SECOND, FIRST]), opening(first)), 'value')
  t.equal(await during(t, config(folder, [SECOND]), opening(first)), undefined)
  const elsewhere = join(top, 'elsewhere')
  t.equal(await during(t, config(elsewhere, [FIRST]), opening(first)), 'value', 'another gateway with the same')
  t.notOk(existsSync(join(elsewhere, 'seal-secret')), 'which generated none')
})

void t.test('a variable that is empty is no secret, and one that is set is not shown', async (t) => {
  const folder = join(t.testdir(), 'data')
  const text = config(folder, ['${GATEWAY_SEAL_SECRET:-}'])
  const generated = await during(t, text, sealing)
  t.ok(existsSync(join(folder, 'seal-secret')))
  const env = { GATEWAY_SEAL_SECRET: FIRST }
  const gw = await gateway(t, text, { env })
  t.equal(opening(generated)(gw), 'value')
  t.equal(opening(sealing(gw))(gw), 'value')
  const headers = { authorization: 'Bearer test-admin-token' }
  const shown = await (await fetch(`${gw.urls.admin}/admin/v1/config`, { headers })).text()
  t.match(shown, '"seal_secrets":["***"]')
  t.notMatch(shown + JSON.stringify(gw.logged), FIRST)
})

void t.test('with nothing that lasts, what is sealed ends with the process, and the log says so', async (t) => {
  const folder = join(t.testdir(), 'data')
  const text = config(folder, undefined, 'memory')
  const sealed = await during(t, text, sealing)
  t.equal(await during(t, text, opening(sealed)), undefined)
  const gw = await gateway(t, text)
  t.equal(gw.logged.filter(({ msg }) => /what this process seals/.test(String(msg))).length, 1)
  t.notOk(existsSync(folder))
  t.equal(await during(t, config(folder, [FIRST], 'memory'), opening(
    await during(t, config(folder, [FIRST], 'memory'), sealing)
  )), 'value', 'unless a secret is configured')
})

void t.test('a secret that can\'t be read stops the start, and leaves nothing open', async (t) => {
  const folder = join(t.testdir(), 'data')
  mkdirSync(folder)
  writeFileSync(join(folder, 'seal-secret'), '\n')
  await t.rejects(gateway(t, config(folder)), { message: /seal-secret is empty\. Delete it/ })
  writeFileSync(join(folder, 'seal-secret'), FIRST)
  t.equal(await during(t, config(folder), opening(await during(t, config(folder), sealing))), 'value')
})

void t.test('a check makes no secret', async (t) => {
  const folder = t.testdir()
  const file = join(folder, 'gateway.yaml')
  writeFileSync(file, config(join(folder, 'data')))
  let said = ''
  const code = await check(file, { json: false, pluginsUrl: new URL('../../plugins/index.ts', import.meta.url),
    write: (text) => { said += text } })
  t.equal(code, 0, said)
  t.notOk(existsSync(join(folder, 'data')))
})
