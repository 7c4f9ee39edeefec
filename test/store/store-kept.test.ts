// A data folder as an earlier version has left it when it was killed: this version opens it, and everything is there.
import t from 'tap'
import { open, request } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { keptConformance } from '../support/store-kept-conformance.ts'
import { MADE, putFolder } from '../support/store-kept.ts'

void t.test('a data folder of version 0.1.0', async (t) => {
  const folder = folderFor(t)
  putFolder('0.1.0', folder)
  const store = await open(t, folder, { now: () => MADE + 10_000 })
  const windows = [{ name: 'key:acme-dev', limit: 10 }]
  const asked = store.wouldAdmit({ request_id: 'asked', windows })
  t.equal(asked.windows[0]!.remaining, 7, 'two are counted, and one that may have come after they were noted')
  const credits = (await all(store)).filter(({ kind, account }) => kind === 'credit' && account === 'acme')
  t.equal(store.credited('acme'), credits.reduce((sum, { nanos }) => sum + nanos, 0n), 'the sum of what is kept')
  await keptConformance(t, store, [['settle', 'running', -40n]])
  t.equal(store.hold(request('now', 10n)).kind, 'held')
})
