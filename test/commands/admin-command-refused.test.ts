// `gateway keys`, `accounts` and `ledger` what goes wrong, in plain words.
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { freePort } from '../support/free-port.ts'
import { beginLedger, command, gateway, yaml } from '../support/gateway-command.ts'
import { folderFor, run } from '../support/spawned.ts'

await t.test('what goes wrong is said in plain words, with exit code 1', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(0), 'memory.yaml': yaml(await freePort(), 'memory') })
  await beginLedger(folder)
  for (const [args, said] of [
    [['keys'], /What about keys\?[^]*gateway keys create \[ID\]/],
    [['keys', 'creat'], /no command "keys creat": did you mean "create"\?/],
    [['keys', 'show'], /Usage: gateway keys show ID/],
    [['keys', 'show', 'a', 'b'], /Usage: gateway keys show ID/],
    [['keys', 'create', '--acount', 'x'],
      /^Unknown option '--acount': did you mean --account\?\n\nUsage: gateway keys create \[ID\][^]*--account TEXT/],
    [['accounts', 'create', '--id', 'x'], /^Unknown option '--id'\.\n\nUsage: gateway accounts create ID/],
    [['keys', 'create', '--account', 'nobody'], /there is no account "nobody"/],
    [['keys', 'freeze', 'demo'], /declared in gateway\.yaml/],
    [['keys', 'show', 'nobody'], /no key nobody/],
    [['accounts', 'create', 'x', '--suspended', 'perhaps'], /must be true or false/],
    [['accounts', 'credit', 'demo', '5'], /--reference/],
    [['accounts', 'credit', 'demo', 'five', '--reference', 'r'], /plain decimal of US dollars/],
    [['keys', 'list', '--config', 'nowhere.yaml'], /can't be used[^]*nowhere\.yaml/],
    [['keys', 'list', '--config', 'memory.yaml'],
      /store\.driver: memory keeps ends with its process\. Start the gateway first/],
    [['keys', 'list', '--url', 'http://127.0.0.1:9'], /set GATEWAY_ADMIN_TOKEN/]
  ] as const) {
    const { code, err } = await command(folder, args)
    t.equal(code, 1, args.join(' '))
    t.match(err, said)
    t.notMatch(err, /\n\s+at /, 'no stack')
  }
  t.match(await command(folder, ['keys', 'create', '--help']), { code: 0,
    out: /--usage-limit-day-usd TEXT +\S[^]*--streaming true\|false +\S[^]*--channels A,B +\S/ })
  t.match(await command(folder, ['keys', '--help']), { code: 0, out: /gateway keys rotate ID \[--grace GRACE\]/ })
})

await t.test('a gateway whose address nobody knows has the folder: the command says so, and how to reach it', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(0) })
  const running = run(t, folder, ['start'])
  const { admin } = await running.urls()
  const refused = await command(folder, ['keys', 'list'])
  t.equal(refused.code, 1)
  t.match(refused.err, /in use by another gateway \(process \d+\)[^]*--url http/)
  const token = readFileSync(join(folder, 'data/admin-token'), 'utf8').trim()
  rmSync(join(folder, 'gateway.yaml'))
  t.match(await gateway(folder, ['keys', 'list', '--url', admin], { GATEWAY_ADMIN_TOKEN: token }), { code: 0,
    out: /^ID .*\ndemo / })
})
