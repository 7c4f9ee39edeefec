// Two hundred videos at once in a gateway of its own process, with an upstream that fails at random, and a kill in the
// middle: every task comes to an end, each is charged once or not at all, and the ledger adds up.
import path from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import type { Entry } from '../../src/store/store.ts'
import { videoOf } from '../../src/media/video.ts'
import { newLog } from '../support/embedded-store.ts'
import { KEY } from '../support/gateway.ts'
import { folderFor, run } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { type Video, videosYaml } from '../support/videos.ts'

const VIDEOS = 200

const FATES = ['', '', '', '[[sim: task_fails]]', '[[sim: task_vanishes]]', '[[sim: poll_status=503 poll_errors=2]]',
  '[[sim: task_time=3000]]', '[[sim: status=500]]', '[[sim: task_status=cancelled]]',
  '[[sim: poll_status=404 poll_errors=2]]']

void t.test('a kill in the middle of two hundred videos', async (t) => {
  // 5 % of all requests fail, those for a status too; a 429 would keep the others away for a while.
  const simulator = await startSimulator({ firstDelayMs: 5, videoMs: 1500, errorRate: 0.05,
    errorStatuses: [500, 503, 529], seed: 7 })
  t.teardown(() => simulator.close())
  const folder = folderFor(t, {
    'gateway.yaml': videosYaml(simulator.url, { store: '{ driver: embedded, path: ./data }',
      videos: '{ poll_interval: 100ms, poll_concurrency: 20, lost_after: 1s }' })
  })

  const heard = new Map<string, string>()
  async function create (api: string, i: number): Promise<void> {
    try {
      const response = await fetch(`${api}/v1/videos`, {
        method: 'POST',
        headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json',
          'idempotency-key': `video-${i}` },
        body: JSON.stringify({ model: 'clip', prompt: `cat ${i} ${FATES[i % FATES.length]}` })
      })
      const { id } = await response.json() as Video
      if (response.status !== 200) return
      if (heard.has(String(i)) && heard.get(String(i)) !== id) throw new Error(`two videos under the name ${i}`)
      heard.set(String(i), id)
    } catch (error) {
      // The gateway was killed: whether there is a video nobody knows, and who asks again under the same name finds
      // out.
      if (!(error instanceof TypeError)) throw error
    }
  }

  const first = run(t, folder, ['start'])
  const { api } = await first.urls()
  const creating = Promise.all(Array.from({ length: VIDEOS }, async (_, i) => {
    await pause(i * 10)                                       // over two seconds: some are done when others begin
    await create(api, i)
  }))
  // Some are completed, some run, some are being created.
  await simulator.until(() =>
    simulator.requests.filter(({ method, path }) => method === 'POST' && path === '/v1/videos').length >= VIDEOS * 0.7
  )
  first.child.kill('SIGKILL')
  await first.ended
  await creating
  const before = heard.size
  t.ok(before < VIDEOS * 0.9, `${before} were heard of before the kill`)

  const second = run(t, folder, ['start'])
  const { api: again } = await second.urls()
  // Everybody asks again, who has heard of his video and who has not.
  await Promise.all(Array.from({ length: VIDEOS }, async (_, i) => { await create(again, i) }))
  t.ok(heard.size > VIDEOS * 0.8, `${heard.size} are there`)

  async function listed (): Promise<Video[]> {
    const videos: Video[] = []
    for (let after = '';;) {
      const response = await fetch(`${again}/v1/videos?limit=100${after}`, {
        headers: { authorization: `Bearer ${KEY}` }
      })
      const { data, last_id: last, has_more: hasMore } = await response.json() as { data: Video[], last_id: string,
        has_more: boolean }
      videos.push(...data)
      if (!hasMore) return videos
      after = `&after=${last}`
    }
  }
  let videos = await listed()
  while (videos.some(({ status }) => status === 'queued' || status === 'in_progress')) {
    await pause(50)
    videos = await listed()
  }
  for (const id of heard.values()) {
    t.ok(videos.some((video) => video.id === id), 'nobody has heard of a video that is not there')
  }
  t.ok(videos.filter(({ status }) => status === 'completed').length > VIDEOS / 3)
  t.ok(videos.filter(({ status }) => status === 'failed').length > VIDEOS / 10)

  second.child.kill('SIGTERM')
  t.strictSame(await second.ended, [0, null])
  const store = await openEmbedded({ folder: path.join(folder, 'data'), log: newLog() })
  t.teardown(() => store.close())
  t.strictSame(store.openTasks(), [])
  t.strictSame((await store.verify()).differences, [])
  const settled = new Map<string, Entry[]>()
  for (const entry of await all(store)) {
    if (entry.kind !== 'credit') settled.set(entry.reference, [...settled.get(entry.reference) ?? [], entry])
  }
  let charged = 0n
  for (const { id, status } of videos) {
    const { request_id: requestId, ...task } = (await store.task(id))!
    const entries = (settled.get(requestId) ?? []).map(({ kind, nanos }) => [kind, nanos])
    t.strictSame(entries, status === 'completed' ? [['settle', -400_000_000n]] : [],
      `${id} ${status}: ${videoOf(task).prompt}`)
    settled.delete(requestId)
    if (status === 'completed') charged += 400_000_000n
  }
  t.strictSame([...settled.keys()], [], 'nothing else was charged')
  t.strictSame(store.balance('acme'), { balance: 100_000_000_000n - charged, held: 0n, open_holds: 0 })
  t.equal(new Set(videos.map(({ id }) => id)).size, videos.length)
})
