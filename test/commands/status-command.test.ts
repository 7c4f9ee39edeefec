// `gateway status`, `prices`, `videos` and `diff`: what a running gateway tells, and what they say where none runs.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { freePort } from '../support/free-port.ts'
import { command, jsonHere, yaml } from '../support/gateway-command.ts'
import { folderFor, run } from '../support/spawned.ts'
import { until } from '../support/until.ts'

await t.test('of a gateway that runs', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) })
  const running = run(t, folder, ['start'])
  await running.urls()
  // At first it warms up: then it serves, and is not ready.
  await until(async () => (await command(folder, ['status'])).code === 0)
  t.match(await command(folder, ['status']), { code: 0, err: '',
    out: /^at +20.*Z\nlast_five_minutes +0 requests, 0 errors, \$0\nlast_24_hours +0 requests.*\n[^]*^generation +1\n/m })
  t.match(await jsonHere(folder, ['status']), { live: { requests: 0 }, config: { generation: 1 }, problems: [] })
  t.match(await command(folder, ['prices']), { code: 0,
    out: /^MODEL +KIND +CHANNEL +ENABLED +PRICE +SINCE +UNTIL +THEN\nm1 +text +premium +true +3 \/ 15 +- +- +-\n$/ })
  t.match(await jsonHere(folder, ['prices', '--model', 'm1', '--channel', 'premium']), [{ id: 'm1 premium' }])
  t.strictSame(await jsonHere(folder, ['prices', '--model', 'nobody']), [])
  t.match(await command(folder, ['videos']), { code: 0, out: /^ID +ACCOUNT +MODEL .*\n$/ })

  await t.test('F1: upstreams, and the reset of a credential', async (t) => {
    t.match(await command(folder, ['upstreams']), { code: 0, err: '', out: new RegExp('^UPSTREAM +MODEL +BREAKER .*\\n' +
      '[^]*\\nUPSTREAM +CREDENTIAL +STATE +REASON +UNTIL +RUNNING\\n.* headers +healthy +- +- +0\\n$') })
    const [{ id }] = await jsonHere(folder, ['upstreams']) as readonly [{ readonly id: string }]
    t.match(await command(folder, ['upstreams', 'reset', id]), { code: 0, err: '',
      out: `upstream     ${id}\ncredentials  headers\n` })
    t.match(await jsonHere(folder, ['upstreams', 'reset', id, 'headers']), { upstream: id, credentials: ['headers'] })
    t.match(await command(folder, ['upstreams', 'reset', id, 'nobody']), { code: 1, out: '',
      err: /^The upstream .* has no credential nobody\. It has headers\.\n$/ })
    t.match(await command(folder, ['upstreams', 'reset', 'nobody']), { code: 1, err: /^There is no upstream nobody\./ })
    t.match(await command(folder, ['audit']), { code: 0, out: /upstream\.reset/ })
    t.match(await command(folder, ['upstreams', 'reset']), { code: 1, err: /^Usage: gateway upstreams reset UPSTREAM/ })
  })

  const text = readFileSync(join(folder, 'gateway.yaml'), 'utf8')
  const write = (name: string, other: string): void => { writeFileSync(join(folder, name), other) }
  write('same.yaml', text)
  write('other.yaml', text.replace('output: 15', 'output: 16').replace('provider: acme', 'provider: "${WHO}"'))
  write('wrong.yaml', text.replace('output: 15', 'outputs: 15'))
  t.match(await command(folder, ['diff', 'same.yaml']), { code: 0, out: 'It changes nothing.\n',
    err: /^warning: same\.yaml:\d+:\d+ \/pipeline lacks chat-to-messages/ })
  t.match(await command(folder, ['diff', 'other.yaml']), { code: 0,
    out: 'changed    /models/m1/channels/premium/price/output  "15" -> "16"\n',
    err: /^not looked at: other\.yaml:\d+:\d+ \/models\/0\/provider the value of \$\{WHO\} is not looked at here\n$/m })
  for (const [file, code] of [['same.yaml', 0], ['other.yaml', 2], ['wrong.yaml', 1]] as const) {
    t.equal((await command(folder, ['diff', file, '--exit-code'])).code, code, file)
  }
  t.match(await command(folder, ['diff', 'wrong.yaml']), { code: 1, out: '',
    err: /^wrong\.yaml:\d+:\d+ \/models\/0\/channels\/premium\/price\/outputs unknown key "outputs"/m })
  t.match(await jsonHere(folder, ['diff', 'other.yaml']), { ok: true, changes: [{ before: '"15"', after: '"16"' }] })
  t.match(await command(folder, ['diff', 'nothing.yaml']), { code: 1, err: /^The file can't be read: ENOENT/ })
  t.match(await command(folder, ['diff']), { code: 1, err: /^Usage: gateway diff FILE/ })
  for (const name of ['status', 'prices', 'videos', 'diff', 'upstreams']) {
    t.match(await command(folder, [name, '--help']), { code: 0, out: new RegExp(`^Usage: gateway ${name}`), err: '' })
  }
  running.child.kill('SIGTERM')
  await running.ended

  const none = /^No gateway answers, and this is asked of one that runs/
  t.match(await command(folder, ['status']), { code: 1, out: '', err: none })
  t.match(await command(folder, ['diff', 'same.yaml']), { code: 1, out: '', err: none })
  for (const words of [[], ['reset', 'u0']]) {
    t.match(await command(folder, ['upstreams', ...words]), { code: 1, out: '', err: none })
  }
  t.match(await jsonHere(folder, ['prices']), [{ id: 'm1 premium' }], 'prices are those of the file')
})
