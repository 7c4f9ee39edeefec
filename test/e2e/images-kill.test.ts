// Images in a gateway of its own process, with vendors that fail at random, and a kill in the middle: who asks again
// under the same name gets one answer and one charge, links outlive the kill, and no upload is left behind.
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { picture } from '../../src/simulator/picture.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { newLog } from '../support/embedded-store.ts'
import { imageYaml, keyOf } from '../support/image-gateway.ts'
import { folderFor, run } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'

const IMAGES = 120
const large = picture('a large cat', 1_200_000)

interface Answer { readonly data: readonly { readonly url: string }[], readonly channel: 'premium' | 'cheap' }

t.test('a kill in the middle of a hundred and twenty images', async (t) => {
  const [premium, cheap] = await Promise.all(
    [1, 2].map((seed) =>
      startSimulator({ firstDelayMs: 40, tokenDelayMs: 0, errorRate: 0.2, errorStatuses: [500, 503, 529], seed })
    )
  ) // a 429 keeps the others away for a while
  t.teardown(() => Promise.all([premium!.close(), cheap!.close()]))
  const folder = folderFor(t, {
    'gateway.yaml': imageYaml(premium!.url, cheap!.url, { store: '{ driver: embedded, path: ./data }' })
  })
  const uploads = path.join(folder, 'data', 'uploads')

  const heard = new Map<number, Answer>()
  async function make (api: string, i: number): Promise<void> {
    const form = new FormData()
    for (const [name, value] of Object.entries({ model: 'nano', prompt: `cat ${i}`, n: String(1 + i % 2) })) {
      form.append(name, value)
    }
    form.append('image', new Blob([large as Uint8Array<ArrayBuffer>], { type: 'image/png' }), 'cat.png')
    const isEdit = i % 4 === 0
    try {
      const response = await fetch(`${api}/v1/images/${isEdit ? 'edits' : 'generations'}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${keyOf('auto_cheap')}`, 'idempotency-key': `image-${i}`,
          ...(!isEdit && { 'content-type': 'application/json' }) },
        body: isEdit ? form : JSON.stringify({ model: 'nano', prompt: `cat ${i}`, n: 1 + i % 2 })
      })
      const answer = await response.json() as Answer
      if (response.status !== 200) return
      const before = heard.get(i)
      if (before !== undefined) t.strictSame(answer, before, 'the same answer under the same name')
      heard.set(i, answer)
    } catch (error) {
      // The gateway was killed: whether it was charged nobody knows, and who asks again under the same name finds out.
      if (!(error instanceof TypeError)) throw error
    }
  }
  const everybody = (api: string): Promise<unknown> =>
    Promise.all(Array.from({ length: IMAGES }, async (_, i) => {
      await make(api, i)
    }))

  const first = run(t, folder, ['start'])
  const { api } = await first.urls()
  const making = everybody(api)
  await cheap!.until(() => cheap!.requests.filter(({ ended }) => ended === 'complete').length >= IMAGES / 4)
  first.child.kill('SIGKILL')
  await first.ended
  await making
  const before = heard.size
  t.ok(before < IMAGES, `${before} were heard of before the kill`)

  const second = run(t, folder, ['start'])
  const { api: again } = await second.urls()
  t.notOk(existsSync(uploads), 'what the kill has left is gone')
  for (let round = 0; round < 20 && (round === 0 || heard.size < IMAGES); round++) await everybody(again)
  t.equal(heard.size, IMAGES, 'all of them got there')
  const listener = /public +(http:\S+)/.exec(second.stderr())![1]!
  for (const { data } of heard.values()) {
    for (const { url } of data) {
      t.equal((await fetch(`${listener}${new URL(url).pathname}`, { method: 'HEAD' })).status, 200,
        'its link works, from before the kill too')
    }
  }

  second.child.kill('SIGTERM')
  t.strictSame(await second.ended, [0, null])
  if (existsSync(uploads)) t.strictSame(readdirSync(uploads), [])
  const store = await openEmbedded({ folder: path.join(folder, 'data'), log: newLog() })
  t.teardown(() => store.close())
  t.strictSame((await store.verify()).differences, [])
  const expected = [...heard.values()].map(({ data, channel }) =>
    (channel === 'cheap' ? 20_000_000n : 39_000_000n) * BigInt(data.length)
  )
  const settled = (await all(store)).filter(({ kind }) => kind !== 'credit')
  t.equal(settled.length, IMAGES, 'one charge for each')
  t.strictSame(store.balance('acme'), { balance: 100_000_000_000n - expected.reduce((sum, nanos) => sum + nanos, 0n),
    held: 0n, open_holds: 0 })
})
