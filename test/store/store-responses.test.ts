// Kept responses of the drivers of one process: the conformance suite, and what a file may go through.
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { FolderResponses } from '../../src/store/embedded/responses.ts'
import { MemoryResponses } from '../../src/store/local/responses.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import type { ResponseStore } from '../../src/store/responses.ts'
import { newLog, open } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'
import { HOUR, life, responsesConformance } from '../support/store-responses-conformance.ts'

void t.test('memory', async (t) => { responsesConformance(t, async (_t, now) => new MemoryStore(now)) })

void t.test('embedded', async (t) => {
  responsesConformance(t, async (t, now) => await open(t, folderFor(t), { now }))
})

const content = Buffer.from('content')

function started (t: Test, folder: string, now: () => number, space?: number): FolderResponses {
  const kept = new FolderResponses({ folder, now, log: newLog(), ...(space !== undefined && { space }) })
  kept.start()
  t.teardown(() => kept.close())
  return kept
}

void t.test('all accounts together have a bound too', async (t) => {
  const stores: readonly ResponseStore[] = [new MemoryResponses(Date.now, 30), started(t, folderFor(t), Date.now, 30)]
  for (const kept of stores) {
    for (const account of ['a', 'b', 'c', 'd', 'e']) {
      t.equal(await kept.keep(account, 'resp_1', Buffer.alloc(10), life()), true)
    }
    t.equal(await kept.find('a', 'resp_1'), undefined)
    t.equal(await kept.find('b', 'resp_1'), undefined)
    for (const account of ['c', 'd', 'e']) t.ok(await kept.find(account, 'resp_1'))
    t.equal(await kept.keep('a', 'resp_2', Buffer.alloc(31), life()), false)
    t.ok(await kept.find('c', 'resp_1'))
  }
})

void t.test('the next start finds what was kept, and nothing that is over or was half written', async (t) => {
  const folder = join(folderFor(t), 'responses')
  let time = 1_800_000_000_000
  const now = (): number => time
  const first = started(t, folder, now)
  await first.keep('acme', 'resp_a', content, life())
  await first.keep('acme', 'resp_b', content, life())
  time += HOUR / 2
  await first.prolong('acme', 'resp_b', HOUR)
  writeFileSync(join(folder, 'half.part'), 'what a kill has left')
  writeFileSync(join(folder, 'README'), 'an operator\'s')
  time += HOUR / 2
  const next = started(t, folder, now)                        // as after a kill: the first one was not closed
  t.equal(await next.find('acme', 'resp_a'), undefined)
  t.strictSame(await next.find('acme', 'resp_b'), content)
  t.match(readdirSync(folder).toSorted(), [/^[0-9a-f]{32}-resp_b$/, 'README'])
  t.equal(statSync(join(folder, readdirSync(folder).find((name) => name.endsWith('resp_b'))!)).mode & 0o77, 0)
  await next.keep('acme', 'resp_c', Buffer.alloc(14), life({ space: 20 }))
  t.equal(await next.find('acme', 'resp_b'), undefined, 'what the process before kept takes room')
  time += HOUR
  await next.sweep()
  t.strictSame(readdirSync(folder), ['README'])
})

void t.test('a file that was removed, or can\'t be read or written, is no crash', async (t) => {
  const folder = join(folderFor(t), 'responses')
  const kept = started(t, folder, Date.now)
  await kept.keep('acme', 'resp_a', content, life())
  await kept.keep('acme', 'resp_b', content, life())
  const [one] = readdirSync(folder).filter((name) => name.endsWith('resp_a'))
  rmSync(join(folder, one!))
  t.equal(await kept.find('acme', 'resp_a'), undefined)
  rmSync(folder, { recursive: true })
  t.equal(await kept.find('acme', 'resp_b'), undefined)
  t.equal(await kept.keep('acme', 'resp_c', content, life()), true, 'the folder is made again')
  rmSync(folder, { recursive: true })
  writeFileSync(folder, 'a file in the place of the folder')
  await t.rejects(Promise.resolve(kept.keep('acme', 'resp_d', content, life())), { code: 'ENOTDIR' })
  await t.rejects(Promise.resolve(kept.find('acme', 'resp_c')), { code: 'service_unavailable' })
  await t.rejects(Promise.resolve(kept.prolong('acme', 'resp_c', HOUR)))
  t.equal(readFileSync(folder, 'utf8'), 'a file in the place of the folder')
})
