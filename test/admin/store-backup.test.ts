// GET /admin/v1/store/backup: who may, and what it says where there is nothing to back up. What it gives is tested in
// test/store and test/e2e.
import t from 'tap'
import { gateway, yaml } from '../support/gateway.ts'

const owner = { authorization: 'Bearer test-admin-token' }

t.test('an owner may; what ends with its process has no backup; HEAD makes none', async (t) => {
  for (const [driver, status, said] of [
    ['memory', 409, /"code":"no_backup"/], ['embedded', 200, /^SQLite format 3\0/]
  ] as const) {
    const { urls, services, logged } = await gateway(t, yaml([], '').replace('driver: memory', `driver: ${driver}`)
      .replace('targets: []', 'targets: [{ upstream: sim, model: m }]')
      .replace('upstreams:\n', 'upstreams:\n  sim: { url: "simulator:", dialect: messages }\n'))
    const address = `${urls.admin}/admin/v1/store/backup`
    const got = await fetch(address, { headers: owner })
    t.equal(got.status, status)
    t.match(await got.text(), said)
    t.equal((await fetch(address, { method: 'HEAD', headers: owner })).status, status)
    t.equal((await fetch(address)).status, 401)
    t.equal((await fetch(`${address}?limit=1`, { headers: owner })).status, 400)
    for (const role of ['viewer', 'operator']) {
      const made = await fetch(`${urls.admin}/admin/v1/tokens`, { method: 'POST',
        headers: { ...owner, 'content-type': 'application/json' }, body: JSON.stringify({ name: role, role }) })
      const { secret } = await made.json() as { readonly secret: string }
      t.equal((await fetch(address, { headers: { authorization: `Bearer ${secret}` } })).status, 403)
    }
    t.equal((await fetch(`${address}?destination=there%0A`, { headers: owner })).status, 400)
    const again = await fetch(`${address}?destination=there:/new.backup`, { headers: owner })
    await again.bytes()
    t.equal(again.status, status, 'and once more')
    const log = await fetch(`${urls.admin}/admin/v1/audit`, { headers: owner })
    const { data } = await log.json() as { readonly data: readonly { readonly what: string }[] }
    t.match(data.filter(({ what }) => what === 'store.backup'), status === 409 ? [] : [
      { who: /^admin-token/, role: 'owner', address: '127.0.0.1', id: 'elsewhere' },
      { who: /^admin-token/, role: 'owner', address: '127.0.0.1', id: 'there:/new.backup' }
    ], 'a line for each that was made')
    t.equal(data.length, status === 409 ? 2 : 4)
    Object.assign(services.store, { change: () => { throw new Error('the disk is full') } })
    t.equal((await fetch(address, { headers: owner })).status, status, 'where no line can be written it is needed most')
    t.match(logged.filter(({ msg }) => msg === 'a backup is made, and the audit log may not have it'),
      status === 409 ? [] : [{ level: 50, who: /^admin-token/, id: 'elsewhere' }])
  }
})
