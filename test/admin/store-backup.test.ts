// GET /admin/v1/store/backup: who may, and what it says where there is nothing to back up. What it gives is tested in
// test/store and test/e2e.
import t from 'tap'
import { gateway, yaml } from '../support/gateway.ts'

const owner = { authorization: 'Bearer test-admin-token' }

t.test('an owner may; what ends with its process has no backup; HEAD makes none', async (t) => {
  for (const [driver, status, said] of [
    ['memory', 409, /"code":"no_backup"/], ['embedded', 200, /^SQLite format 3\0/]
  ] as const) {
    const { urls } = await gateway(t, yaml([], '').replace('driver: memory', `driver: ${driver}`)
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
    t.equal((await fetch(address, { headers: owner })).status, status, 'and once more')
  }
})
