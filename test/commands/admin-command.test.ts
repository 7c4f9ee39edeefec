// `gateway keys`, `accounts` and `ledger` with a gateway that runs and without one.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { freePort } from '../support/free-port.ts'
import { command, jsonHere, yaml } from '../support/gateway-command.ts'
import { folderFor, run } from '../support/spawned.ts'

async function spend (api: string, secret: string): Promise<number> {
  const got = await fetch(api + '/v1/messages', {
    method: 'POST', headers: { 'x-api-key': secret, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm1', max_tokens: 20, messages: [{ role: 'user', content: 'Hello' }] })
  })
  await got.text()
  return got.status
}

await t.test('the way of a newcomer: an account and a key, spend, see it, freeze it, verify the ledger; with and without the gateway', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) })
  const running = run(t, folder, ['start'])
  const { api, admin } = await running.urls()

  t.match(await command(folder, ['accounts', 'create', 'beta', '--name', 'Beta Ltd']), { code: 0,
    out: /^id +beta\nname +Beta Ltd\n/ })
  t.match(await command(folder, ['accounts', 'credit', 'beta', '10', '--reference', 'invoice-1']), { code: 0,
    out: /balance_usd +10\n/ })
  t.match(await command(folder, ['accounts', 'credit', 'beta', '10', '--reference', 'invoice-1']), { code: 0,
    out: /balance_usd +10\n/, err: /credited before: nothing was changed/ })
  t.match(await command(folder, ['accounts', 'credit', 'beta', '11', '--reference', 'invoice-1']), { code: 1,
    err: /"invoice-1" was credited before with \$10, not with \$11/ })
  const because = ['--reference', 'ticket-7', '--reason', 'cut off']
  t.match(await jsonHere(folder, ['accounts', 'debit', 'beta', '3', ...because]), { debited: true, balance_usd: '7' })
  t.match(await command(folder, ['accounts', 'refund', 'beta', '4', ...because]), { code: 1, err: /has paid \$3 in all/ })
  t.match(await command(folder, ['accounts', 'refund', 'beta', '3', ...because]), { code: 0,
    out: /reason +cut off\n[^]*refunded +true\n[^]*balance_usd +10\n/ })
  t.match(await command(folder, ['accounts', 'debit', 'beta', '3', ...because]), { code: 0,
    err: /ticket-7 was debited before: nothing was changed/ })
  const made = await command(
    folder,
    [
      'keys', 'create', 'beta-dev', '--account', 'beta', '--usage-limit-usd', '5', '--rate-limit', '60',
      '--allowed-models', 'm1,other', '--allowed-models', 'm*', '--streaming', 'true'
    ]
  )
  t.match(made, { code: 0, out: /secret, shown only now: {2}sk-gw-[A-Za-z0-9]{32}\n$/,
    err: /warning: \/allowed_models\/1 there is no model "other"/ })
  const secret = /sk-gw-\w{32}/.exec(made.out)![0]
  t.match(made.out, /allowed_models +m1, other, m\*\n/)
  t.equal(await spend(api, secret), 200)

  const list = await command(folder, ['keys', 'list'])
  t.match(list.out,
    /^ID +ACCOUNT +STATE +DECLARED +SPENT USD +USAGE LIMIT USD +SHOWN\nbeta-dev +beta +active +false +0\.\d+ +5 +sk-gw-….{4}\ndemo +demo +active +true /)
  t.match(await jsonHere(folder, ['keys', 'list', '--account', 'beta']), [{ id: 'beta-dev', rate_limit: 60,
    streaming: true }])
  t.match(await jsonHere(folder, ['keys', 'freeze', 'beta-dev']), { state: 'frozen' })
  t.equal(await spend(api, secret), 401)
  t.match(await jsonHere(folder, ['keys', 'unfreeze', 'beta-dev']), { state: 'active' })
  t.match(await jsonHere(folder, ['accounts', 'suspend', 'beta']), { state: 'suspended' })
  t.equal(await spend(api, secret), 402)
  t.match(await jsonHere(folder, ['accounts', 'resume', 'beta']), { state: 'active' })
  const { secret: next } = await jsonHere(folder, ['keys', 'rotate', 'beta-dev', '--grace', '1h']) as {
    readonly secret: string
  }
  t.strictSame([await spend(api, secret), await spend(api, next)], [200, 200])
  t.match(await command(folder, ['ledger', 'verify']), {
    code: 0,
    out: /^The ledger is right: 7 entries, 2 accounts, 1 keys\.\n$/
  })
  t.match((await command(folder, ['usage', 'list'])).out,
    /^KEY +ACCOUNT +SPENT USD +HELD USD +REMAINING USD +USAGE LIMIT USD +DELETED AT\nbeta-dev +beta +0\.\d+ +0 /)
  const series = await command(folder, ['usage', 'series', '--by', 'hour', '--group', 'key,model', '--account', 'beta'])
  t.match(series, { code: 0, out: /^PERIOD +KEY +MODEL +REQUESTS +ERRORS +INPUT +OUTPUT +CHARGED USD\n/ })
  t.match(series.out, /\n20\S+ \d\d:00 +beta-dev +- +0 +1 +0 +0 +0\n/, 'refused, because the account was suspended')
  t.match(series.out, /\ntotal +- +- +3 +1 +\d+ +\d+ +0\.\d+\n$/)
  t.match((await command(folder, ['usage', 'series', '--group', 'key', '--csv'])).out,
    /^period,from,key,requests,errors,input,.*,charged_usd,shortfall_usd\r\n20\d\d-\d\d-\d\d,\S+Z,beta-dev,\d,\d,/)
  t.match(await command(folder, ['usage', 'series', '--by', 'week']), { code: 1, err: /by knows no "week"/ })
  const lines = (await command(folder, ['ledger', 'export', '--account', 'beta'])).out.trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
  t.strictSame(lines.map(({ kind }) => kind), ['credit', 'debit', 'refund', 'settle', 'settle', 'settle'])

  t.match(await command(folder, ['keys', 'list', '--url', admin], { GATEWAY_ADMIN_TOKEN: 'wrong' }), { code: 1,
    err: /token is missing, wrong, expired or revoked/ })
  running.child.kill('SIGTERM')
  t.strictSame(await running.ended, [0, null])

  // Nobody runs: the same commands on the folder itself.
  t.match(await jsonHere(folder, ['keys', 'show', 'beta-dev']), { id: 'beta-dev', account: 'beta' })
  t.match(await jsonHere(folder, ['keys', 'delete', 'beta-dev']), { deleted: true })
  const { secret: third } = await jsonHere(folder, ['keys', 'create', 'beta-two', '--account', 'beta']) as {
    readonly secret: string
  }
  t.match(await jsonHere(folder, ['ledger', 'verify']), { ok: true, entries: 7 })
  t.match(await jsonHere(folder, ['usage', 'series', '--key', 'beta-dev']), { total: { requests: 3 } },
    'what a deleted key has used stays')
  const again = run(t, folder, ['start'])
  const urls = await again.urls()
  t.strictSame([await spend(urls.api, next), await spend(urls.api, third)], [401, 200], 'and the gateway knows')
  const token = readFileSync(join(folder, 'data/admin-token'), 'utf8').trim()
  const audit = await (await fetch(urls.admin + '/admin/v1/audit', { headers: { authorization: `Bearer ${token}` } }))
    .json() as { readonly data: readonly { readonly who: string, readonly what: string }[] }
  t.match(audit.data.at(0), { who: /^admin-token /, what: 'account.create' })
  t.match(audit.data.at(-1), { who: /^command of /, what: 'key.create' })
})
