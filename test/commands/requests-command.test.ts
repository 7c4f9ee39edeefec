// `gateway requests` with a gateway that runs, that was killed, and without one; and where several processes serve.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { freePort } from '../support/free-port.ts'
import { beginLedger, command, jsonHere, yaml } from '../support/gateway-command.ts'
import { folderFor, run } from '../support/spawned.ts'
import { until } from '../support/until.ts'

interface Listed extends Readonly<Record<string, unknown>> { readonly request_id: string }

/** @returns its request id */
async function ask (api: string, secret: string, prompt = 'Hello'): Promise<string> {
  const got = await fetch(api + '/v1/messages', {
    method: 'POST', headers: { 'x-api-key': secret, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm1', max_tokens: 20, messages: [{ role: 'user', content: prompt }] })
  })
  await got.text()
  return got.headers.get('x-request-id')!
}

await t.test('the last requests as a table and as JSON, one of them with its attempts; a kill takes the last second at most', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) })
  const running = run(t, folder, ['start'])
  const { api } = await running.urls()
  const secret = readFileSync(join(folder, 'data/demo-key'), 'utf8').trim()
  const good = await ask(api, secret)
  const bad = await ask(api, secret, 'Hello [[sim: status=500]]')
  const ids = async (...args: string[]): Promise<readonly string[]> =>
    (await jsonHere(folder, ['requests', 'list', ...args]) as readonly Listed[]).map(({ request_id: id }) => id)
  await until(async () => (await ids()).length === 2)
  t.strictSame(await ids(), [bad, good])
  t.strictSame(await ids('--code', 'ok', '--key', 'demo', '--account', 'demo', '--model', 'm1', '--status', '200'), [good])
  t.strictSame(await ids('--after', bad, '--limit', '5'), [good])
  t.match(await command(folder, ['requests', 'list']), { code: 0,
    out: new RegExp(`^AT +REQUEST ID +KEY +MODEL +UPSTREAM +STATUS +CODE +ATTEMPTS +DURATION MS +COST USD\\n` +
      `\\d{4}-\\S+Z +${bad} +demo +m1 +simulator +502 .*\\n\\d{4}-\\S+Z +${good} +demo +m1 +simulator +200 +ok +1 `) })
  const one = await command(folder, ['requests', 'show', bad])
  t.match(one, { code: 0, out: new RegExp(`request_id +${bad}\\n`) })
  t.match(one.out, /\n\nUPSTREAM +TARGET +CREDENTIAL +STATUS +ERROR +SAID\nsimulator +vendor-m1 +- +500 +status 500 +\{"type":"error"/)
  t.match(await jsonHere(folder, ['requests', 'show', good]), { request_id: good, attempts: [{ upstream: 'simulator' }] })
  t.match(await command(folder, ['requests', 'show', 'req_1']), { code: 1, err: /no such request/ })
  t.match(await command(folder, ['requests', 'list', '--status', 'all']), { code: 1, err: /status must be/ })
  t.match(await command(folder, ['requests', 'list', '--help']), { code: 0, out: /\[--after AFTER\][^]*newest first/ })

  const kept = join(folder, 'data/requests')
  await until(() => readdirSync(kept).some((name) => readFileSync(join(kept, name), 'utf8').includes(bad)))
  running.child.kill('SIGKILL')
  await running.ended
  t.strictSame(await ids(), [bad, good], 'the files alone')
  t.match(await jsonHere(folder, ['ledger', 'verify']), { ok: true })
  const again = run(t, folder, ['start'])
  const next = await ask((await again.urls()).api, secret)
  await until(async () => (await ids()).length === 3)
  t.strictSame(await ids(), [next, bad, good])
  const last = await ask((await again.urls()).api, secret)
  again.child.kill('SIGTERM')
  await again.ended
  t.strictSame(await ids(), [last, next, bad, good], 'a stop writes all')
  t.ok(again.log().every(({ level }) => level !== 'error'))
})

await t.test('where none are kept, the command says so', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(0) + 'log: { requests: { keep: 0 } }\n' })
  await beginLedger(folder)
  t.match(await command(folder, ['requests', 'list']), { code: 0, err: /keeps no requests: log.requests.keep is 0/ })
  t.match(await command(folder, ['requests', 'show', 'req_' + '0'.repeat(24)]), { code: 1,
    err: /log.requests.keep is 0/ })
})
