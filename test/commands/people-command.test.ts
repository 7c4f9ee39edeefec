// Settings, tokens, closed accounts and the audit log from the shell, with a gateway that runs and without one.
import { readFileSync } from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { freePort } from '../support/free-port.ts'
import { command, jsonHere, yaml } from '../support/gateway-command.ts'
import { folderFor, run } from '../support/spawned.ts'

interface Line { readonly who: string, readonly token?: string, readonly address: string, readonly what: string,
  readonly id: string }

await t.test('settings are changed and taken back, tokens made and revoked, an account closed; the audit log says by whom', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) })
  const running = run(t, folder, ['start'])
  const { admin } = await running.urls()
  await jsonHere(folder, ['accounts', 'create', 'beta', '--contact', 'pay@beta.example', '--tags', 'trial, team:web'])
  await jsonHere(folder, ['keys', 'create', 'beta-dev', '--account', 'beta', '--rate-limit', '60'])

  t.match(await jsonHere(folder, ['accounts', 'update', 'beta', '--name', 'Beta Ltd', '--unset', 'contact']), {
    name: 'Beta Ltd', contact: undefined, tags: ['trial', 'team:web'] })
  t.match(await jsonHere(folder, ['keys', 'update', 'beta-dev', '--usage-limit-usd', '5', '--tags', 'ci', '--unset',
    'rate-limit,time_zone', '--streaming', 'false']), { usage_limit_usd: '5', rate_limit: undefined, tags: ['ci'],
    streaming: false })
  t.match(await jsonHere(folder, ['keys', 'list', '--tag', 'ci']), [{ id: 'beta-dev' }])
  t.strictSame(await jsonHere(folder, ['accounts', 'list', '--tag', 'nobody']), [])
  for (const [args, said] of [
    [['keys', 'update', 'beta-dev'], /What should change\? Name a setting: "gateway keys update --help" lists them\./],
    [['keys', 'update', 'beta-dev', '--unset', 'rate-limits'], /unknown key "rate_limits" \(did you mean "rate_limit"\?\)/],
    [['keys', 'update', 'beta-dev', '--account', 'other'], /Unknown option '--account'/],
    [['keys', 'update'], /Usage: gateway keys update ID \[--unset UNSET\] \[SETTINGS\]/],
    [['tokens', 'create', 'Ada'], /"role" is missing/],
    [['tokens', 'create', 'Ada', '--role', 'boss'], /role/],
    [['audit', '--limit', 'all'], /--limit is a number of lines such as 100, and this is "all"/]
  ] as const) t.match(await command(folder, args), { code: 1, out: '', err: said }, args.join(' '))

  const made = await command(folder, ['tokens', 'create', 'Ada', '--role', 'operator', '--expires-at',
    '2999-01-01T00:00:00Z'])
  t.match(made, { code: 0, out: /\nsecret, shown only now: {2}admin-gw-[A-Za-z0-9]{32}\n$/ })
  const secret = /admin-gw-\w{32}/.exec(made.out)![0]
  const ada = { GATEWAY_ADMIN_TOKEN: secret }
  const id = /^id +(tok_\w+)$/m.exec(made.out)![1]!
  t.match(await command(folder, ['accounts', 'close', 'beta', '--url', admin], ada), { code: 0, out: /^state +closed$/m })
  t.match(await command(folder, ['accounts', 'reopen', 'beta', '--url', admin], ada), { code: 1,
    err: /needs the role owner, and the token "Ada" has the role operator/ })
  t.match(await command(folder, ['tokens', 'list']), { code: 0,
    out: /^ID +NAME +ROLE +STATE +SHOWN +CREATED AT +EXPIRES AT +LAST USED AT\ntok_\w+ +Ada +operator +active +admin-gw-….{4} / })
  t.match(await jsonHere(folder, ['accounts', 'reopen', 'beta']), { state: 'active' })
  t.match(await jsonHere(folder, ['tokens', 'revoke', id]), { state: 'revoked' })
  t.match(await command(folder, ['keys', 'list', '--url', admin], ada), { code: 1, err: /expired or revoked/ })
  running.child.kill('SIGTERM')
  t.strictSame(await running.ended, [0, null])

  // Nobody runs: the same on the folder itself.
  t.match(await jsonHere(folder, ['tokens', 'create', 'Bob', '--role', 'viewer']), { name: 'Bob', role: 'viewer' })
  const lines = await jsonHere(folder, ['audit']) as readonly Line[]
  t.strictSame(lines.map(({ what }) => what), ['token.create', 'token.revoke', 'account.reopen', 'account.close',
    'token.create', 'key.change', 'account.change', 'key.create', 'account.create'])
  t.match(lines[0], { who: `command of ${userInfo().username}`, role: 'owner', address: /./ })
  t.match(lines[3], { who: 'Ada', token: id, address: '127.0.0.1', id: 'beta' })
  t.match(lines[4], { who: /^admin-token /, id })
  t.match(await command(folder, ['audit', '--limit', '2']), { code: 0,
    out: /^SEQ +AT +WHO +ADDRESS +WHAT +ID\n9 +\S+ +command of .+ token\.create +tok_\w+\n8 .+ token\.revoke .+\n$/ })
  t.notMatch(readFileSync(join(folder, 'data/gateway.db'), 'latin1'), secret, 'no secret is kept')
})
