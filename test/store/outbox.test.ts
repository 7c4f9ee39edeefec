// The journal in front of Redis: what it took is there after whatever happens to the process, and what it refused is
// not.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, closeSync, copyFileSync, openSync, readdirSync, readFileSync, rmSync, statSync, truncateSync,
  writeFileSync } from 'node:fs'
import { open as openFile, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { Outbox, type OutboxEntry, type OutboxOptions } from '../../src/store/redis/outbox.ts'
import { codePoint } from '../support/code-point.ts'
import { newLog, request, settlement } from '../support/embedded-store.ts'
import { untapped } from '../support/newcomer.ts'
import { redisServer } from '../support/redis-server.ts'
import { openRedis } from '../support/redis-store.ts'
import { folderFor } from '../support/spawned.ts'
import { until } from '../support/until.ts'

/** Closed with the test, if not before. */
async function open (
  t: Test, folder: string, options: OutboxOptions & { log?: ReturnType<typeof newLog> } = {}
): Promise<Outbox> {
  const outbox = await Outbox.open(folder, options.log ?? newLog(), options)
  t.teardown(() => outbox.close())
  return outbox
}

async function list (entries: AsyncIterable<OutboxEntry>): Promise<OutboxEntry[]> {
  const found: OutboxEntry[] = []
  for await (const entry of entries) found.push(entry)
  return found
}

async function texts (entries: AsyncIterable<OutboxEntry>): Promise<string[]> {
  return (await list(entries)).map(({ text }) => text)
}

function files (folder: string): string[] {
  return readdirSync(folder).filter((name) => name.endsWith('.jsonl')).toSorted()
}

/** As a kill leaves it: what is written, and no more. */
function copied (t: Test, folder: string): string {
  const copy = folderFor(t)
  for (const name of files(folder)) copyFileSync(join(folder, name), join(copy, name))
  return copy
}

void t.test('what was appended is pending until it is acknowledged, over restarts too, and has its number for ever', async (t) => {
  const folder = folderFor(t)
  const first = await open(t, folder)
  const odd = ['', 'a\nb', '{"x":"\u2028\ud800é"}', '"\\\r']
  t.strictSame(await Promise.all(odd.map(async (text) => await first.append(text))), [1, 2, 3, 4])
  t.equal(readFileSync(join(folder, files(folder)[0]!), 'utf8').split('\n').length, 2, 'one turn, one line')
  first.acknowledge(2)
  first.acknowledge(2)
  first.acknowledge(99)
  t.equal(first.size, 3)
  t.strictSame(await list(first.pending()), [1, 3, 4].map((no) => ({ no, text: odd[no - 1] })))
  t.strictSame(await list(first.kept()), [{ no: 2, text: odd[1] }])
  await first.close()
  await t.rejects(first.append('late'), /closed/)
  const second = await open(t, folder)
  t.equal(second.size, 3)
  t.strictSame(await texts(second.pending()), [odd[0], odd[2], odd[3]])
  t.strictSame(await texts(second.kept()), [odd[1]])
  t.equal(await second.append('e'), 5)
})

void t.test('an acknowledgement is written soon, though nothing is appended', async (t) => {
  const folder = folderFor(t)
  const outbox = await open(t, folder)
  outbox.acknowledge(await outbox.append('a'))
  const file = join(folder, files(folder)[0]!)
  await until(() => readFileSync(file, 'utf8').includes('"done":[1]'))
  t.equal((await open(t, copied(t, folder))).size, 0)
})

void t.test('what was appended is on the disk soon, though nothing follows', async (t) => {
  const outbox = await open(t, folderFor(t))
  const handle = await openFile(import.meta.filename)
  const prototype = Object.getPrototypeOf(handle) as FileHandle
  await handle.close()
  const synced = t.capture(prototype, 'datasync', prototype.datasync)
  await outbox.append('a')
  await until(() => synced().length === 1)
  await outbox.append('b')
  await until(() => synced().length === 1)
  t.equal(outbox.size, 2)
})

void t.test('one that is closed keeps no process alive', async (t) => {
  const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length
  const before = timers()
  const outbox = await open(t, folderFor(t))
  const appended = outbox.append('a')
  await outbox.close()
  await appended
  t.equal(timers(), before)
})

void t.test('who reads sees what was there when he began, and others append and acknowledge meanwhile', async (t) => {
  // With some of these the last file has room when he begins, with others it has none.
  for (const bytes of [60, 100, 130, 160, 200, 10_000]) {
    const outbox = await open(t, folderFor(t), { file_bytes: bytes })
    for (const text of 'abcdef') await outbox.append(text)
    const seen: string[] = []
    for await (const { no, text } of outbox.pending()) {
      seen.push(text)
      outbox.acknowledge(no)
      if (text === 'b') outbox.acknowledge(5)
      await outbox.append(text.toUpperCase())
    }
    // Of the file that he is reading he has read on.
    t.match(seen.join(''), /^abcde?f$/, `files of ${bytes} bytes`)
    t.equal((await texts(outbox.pending())).join(''), seen.join('').toUpperCase())
  }
})

void t.test('files go when all in them and before them was acknowledged long enough ago; the numbers go on', async (t) => {
  const folder = folderFor(t)
  let time = 1_800_000_000_000
  const long = 'x'.repeat(200)                                // a file each
  const options = { now: () => time, retention: 1000, file_bytes: 100 }
  const outbox = await open(t, folder, options)
  for (let i = 0; i < 10; i++) await outbox.append(long)
  t.equal(files(folder).length, 10)
  for (const no of [1, 2, 3, 5, 6, 7, 8, 9, 10]) outbox.acknowledge(no)
  time += 1000
  await outbox.append(long)
  t.equal(files(folder).length, 11, 'not yet')
  t.equal((await list(outbox.kept())).length, 9)
  time += 1
  t.strictSame(await list(outbox.kept()), [])
  await outbox.append(long)
  await until(() => files(folder)[0] === '0000000000000004.jsonl')
  await outbox.append(long)
  t.equal(files(folder)[0], '0000000000000004.jsonl', 'nothing behind 4 is deleted, for acknowledgements lie there')
  const others = await open(t, copied(t, folder), options)
  t.strictSame((await list(others.pending())).map(({ no }) => no), [4, 11, 12, 13])
  for (const no of [4, 11, 12, 13]) outbox.acknowledge(no)
  time += 1001
  await outbox.append(long)
  await until(() => files(folder).join() === '0000000000000014.jsonl')
  outbox.acknowledge(14)
  await outbox.close()
  time += 5000
  t.equal(await (await open(t, folder, options)).append(long), 15)
})

void t.test('a file that was acknowledged late is kept, though the next was acknowledged long ago', async (t) => {
  const folder = folderFor(t)
  let time = 1_800_000_000_000
  const outbox = await open(t, folder, { now: () => time, retention: 1000, file_bytes: 100 })
  for (let i = 0; i < 3; i++) await outbox.append('x'.repeat(200))
  outbox.acknowledge(2)
  time += 2000
  outbox.acknowledge(1)
  for (let i = 0; i < 2; i++) await outbox.append('x'.repeat(200))
  t.equal(files(folder).length, 5)
  t.strictSame((await list(outbox.kept())).map(({ no }) => no), [1])
})

void t.test('a full file without an entry is written to until it has one: the next would have its name', async (t) => {
  const folder = folderFor(t)
  let outbox = await open(t, folder, { file_bytes: 100 })
  await Promise.all(Array.from({ length: 60 }, async () => await outbox.append('x')))
  for (const [from, to] of [[1, 40], [41, 60]] as const) {
    for (let no = from; no <= to; no++) outbox.acknowledge(no)
    await outbox.close()
    outbox = await open(t, folder, { file_bytes: 100 })
  }
  t.equal(outbox.size, 0)
  t.strictSame(files(folder), ['0000000000000001.jsonl', '0000000000000061.jsonl'])
})

void t.test('the last line of a gateway that died while it wrote is cut off, and told of; the next is written in its place', async (t) => {
  const whole = folderFor(t)
  const outbox = await open(t, whole)
  await outbox.append('a')
  const [name] = files(whole) as [string]
  const { size } = statSync(join(whole, name))
  await outbox.append('bcd')
  await outbox.close()
  const { size: all } = statSync(join(whole, name))
  const line = readFileSync(join(whole, name)).subarray(size)
  const tails: Record<string, (file: string) => void> = {
    'nothing behind its end': (file) => { truncateSync(file, all - 1) },
    half: (file) => { truncateSync(file, all - 10) },
    'one byte': (file) => { truncateSync(file, size + 1) },
    zeros: (file) => { truncateSync(file, size); truncateSync(file, all + 4096) },
    'another byte in it': (file) => {
      truncateSync(file, size)
      appendFileSync(file, line.toString().replace('bcd', 'bCd'))
    }
  }
  for (const [tail, make] of Object.entries(tails)) {
    const folder = copied(t, whole)
    make(join(folder, name))
    const log = newLog()
    const next = await open(t, folder, { log })
    t.strictSame(await texts(next.pending()), ['a'], tail)
    t.strictSame(log.lines, ['the gateway died while it wrote the last line of its outbox: it is cut off'])
    t.equal(await next.append('again'), 2)
    await next.close()
    t.strictSame(await texts((await open(t, folder)).pending()), ['a', 'again'])
  }
})

void t.test('a line that is broken elsewhere, or a file that is missing, is not passed over: it says where', async (t) => {
  const whole = folderFor(t)
  const outbox = await open(t, whole, { file_bytes: 100 })
  for (const text of 'abc') await outbox.append(text)          // a line is more than half of it
  for (const text of 'abc') await outbox.append(text)
  await outbox.close()
  const names = files(whole)
  t.equal(names.length, 3)

  const first = copied(t, whole)
  writeFileSync(join(first, names[0]!), readFileSync(join(first, names[0]!), 'utf8').replace('"a"', '"z"'))
  await t.rejects(open(t, first), new RegExp(`${names[0]}:1 is not what was written there`))
  const end = copied(t, whole)
  truncateSync(join(end, names[0]!), statSync(join(end, names[0]!)).size - 1)
  await t.rejects(open(t, end), new RegExp(`${names[0]}:2 `), 'the end of a file that is not the last')
  const twice = copied(t, whole)
  appendFileSync(join(twice, names[2]!), readFileSync(join(twice, names[2]!)))
  await t.rejects(open(t, twice), new RegExp(`${names[2]}:3 `))
  const gap = copied(t, whole)
  rmSync(join(gap, names[1]!))
  await t.rejects(open(t, gap), /a file of the outbox is missing before .*it would begin with the number 3/)
  await t.rejects(open(t, gap), /a file of the outbox is missing/, 'and whoever failed to open it holds no lock')
})

void t.test('a folder is one process\'s', async (t) => {
  const folder = folderFor(t)
  const outbox = await open(t, folder)
  await t.rejects(open(t, folder), /is in use by another gateway/)
  await outbox.close()
  await open(t, folder)
})

/** Makes every write of this process's file handles fail behind its first bytes. @returns ends it */
async function fillDisk (t: Test, folder: string, howMuch: (length: number) => number): Promise<() => void> {
  const probe = await openFile(folder, 'r')
  const prototype = Object.getPrototypeOf(probe) as FileHandle
  await probe.close()
  type Write =
    (buffer: Buffer, offset: number, length: number, position: number) => Promise<{ readonly bytesWritten: number }>
  const write = prototype.write as Write
  const end = (): void => { Object.assign(prototype, { write }) }
  t.teardown(end)
  let left: number | undefined
  const failing = async function (
    this: FileHandle, ...[buffer, offset, length, position]: Parameters<Write>
  ): ReturnType<Write> {
    left ??= howMuch(length)
    const fits = Math.min(left, length)
    left = fits === 0 ? undefined : left - fits
    if (fits === 0) throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
    return await write.call(this, buffer, offset, fits, position)
  }
  Object.assign(prototype, { write: failing })
  return end
}

void t.test('a full disk: what does not fit is refused as a whole, and what follows when there is room is not behind rubbish', async (t) => {
  const folder = folderFor(t)
  const log = newLog()
  const outbox = await open(t, folder, { log })
  outbox.acknowledge(await outbox.append('a'))
  const before = readFileSync(join(folder, files(folder)[0]!), 'utf8')
  const end = await fillDisk(t, folder, (length) => length - 5)
  const refused = await Promise.allSettled(['b', 'c', 'd'.repeat(1000)].map(async (text) => await outbox.append(text)))
  t.match(
    refused,
    [1, 2, 3].map(() => ({
      status: 'rejected',
      reason: { code: 'service_unavailable', status: 503, cause: { code: 'ENOSPC' } }
    }))
  )
  t.match(outbox.trouble, { code: 'ENOSPC' })
  t.equal(readFileSync(join(folder, files(folder)[0]!), 'utf8'), before, 'nothing is half-written')
  t.equal(outbox.size, 0)
  end()
  await until(() => outbox.trouble === undefined)              // though nobody appends
  t.equal(await outbox.append('e'), 2)
  t.strictSame(
    log.lines,
    [
      `the outbox ${folder} can't be written: until it can, requests that cost something are refused`,
      `the outbox ${folder} can be written again`
    ]
  )
  const next = await open(t, copied(t, folder))
  t.strictSame(await texts(next.pending()), ['e'])
  t.strictSame(await texts(next.kept()), ['a'], 'an acknowledgement that could not be written was written later')
})

void t.test('a disk that does not answer for more than five seconds is trouble, until it does', async (t) => {
  const folder = folderFor(t)
  const outbox = await open(t, folder)
  const probe = await openFile(folder, 'r')
  const prototype = Object.getPrototypeOf(probe) as { write: (...args: unknown[]) => Promise<unknown> }
  await probe.close()
  const { write } = prototype
  const [asked, hung] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  t.intercept(prototype, 'write', {
    value: async function (this: unknown, ...args: unknown[]) {
      asked.resolve()
      await hung.promise
      return await write.apply(this, args)
    }
  })
  let time = 1000
  t.intercept(performance, 'now', { value: () => time })
  const appended = outbox.append('a')
  await asked.promise
  time += 5000
  t.equal(outbox.trouble, undefined)
  time += 1
  t.match(outbox.trouble, { message: 'the disk of the outbox did not answer for 5000 ms' })
  hung.resolve()
  await appended
  t.equal(outbox.trouble, undefined)
})

void t.test('while a charge can\'t be written down nothing is bought, and what ran before is charged when it can', async (t) => {
  const folder = folderFor(t)
  const store = await openRedis(t, await redisServer(t), { folder })
  await store.credit('acme', 'c', 100n)
  await store.hold(request('before', 60n))
  const end = await fillDisk(t, folder, () => 0)
  await t.rejects(async () => await store.settle(settlement('before', 40n)), { code: 'service_unavailable' })
  await t.rejects(async () => await store.hold(request('next', 1n)), { code: 'service_unavailable', status: 503 })
  await t.rejects(async () => await store.extend('before', 1n), { code: 'service_unavailable' })
  t.match(await store.balance('acme'), { balance: 100n, held: 60n }, 'what it holds is held')
  end()
  t.equal(await until(async () => await store.settle(settlement('before', 40n)).catch(() => undefined)), 40n)
  t.match(await store.hold(request('next', 1n)), { kind: 'held' })
})

interface Child {
  readonly process: ChildProcess
  readonly exited: Promise<unknown>
  /** what it was told so far, a line each */
  told (): string[]
}

/** @param blocks of 512 bytes that a file of its may have */
function child (t: Test, folder: string, count: number, blocks?: number): Child {
  const file = join(folderFor(t), 'told')
  const out = openSync(file, 'w')
  const own = untapped(
    process.execPath, [fileURLToPath(new URL('../support/outbox-child.ts', import.meta.url)), folder, `${count}`]
  )
  // The limit is not for the file that it tells to.
  const [command, args] = blocks === undefined
    ? own
    : ['sh', ['-c', `(ulimit -f ${blocks}; exec "$@") | cat`, 'sh', own[0], ...own[1]]]
  const process_ = spawn(command, args, { stdio: ['ignore', out, 'inherit'] })
  closeSync(out)
  const exited = once(process_, 'exit')
  t.teardown(async () => { process_.kill('SIGKILL'); await exited })
  return { process: process_, exited, told: () => readFileSync(file, 'utf8').split('\n').slice(0, -1) }
}

async function everything (outbox: Outbox): Promise<Map<number, string>> {
  const found = [...await list(outbox.pending()), ...await list(outbox.kept())]
  const byNumber = new Map(found.map(({ no, text }) => [no, text]))
  if (byNumber.size < found.length) throw new Error('a number was given twice')
  return byNumber
}

void t.test('killed in the middle of its appends, again and again: all that was answered is there', async (t) => {
  const folder = folderFor(t)
  const told: string[] = []
  for (let i = 0; i < 4; i++) {
    const { process, exited, told: toldSoFar } = child(t, folder, 1e9)
    await until(() => toldSoFar().length > 200 * (i + 1))
    process.kill('SIGKILL')
    await exited
    told.push(...toldSoFar().filter((line) => line !== 'ready'))
    const outbox = await open(t, folder)
    const found = await everything(outbox)
    await outbox.close()
    const lost = told.filter((line) => {
      const [, no, text] = line.split(' ')
      return found.get(Number(no)) !== text
    })
    t.strictSame(lost, [], `${told.length} were answered`)
  }
})

void t.test('a disk that fills up for real: what was answered is there, what was refused is not', {
  skip: process.platform === 'win32'
}, async (t) => {
  const folder = folderFor(t)
  const { exited, told } = child(t, folder, 300, 24)
  await exited
  const log = newLog()
  const outbox = await open(t, folder, { log })
  const found = await everything(outbox)
  const [done, failed] = ['done', 'failed'].map((what) => told()
    .filter((line) => line.startsWith(what))
    .map((line) => line.split(' ')))
  t.ok(done!.length > 0 && failed!.length > 0, `${done!.length} answered, ${failed!.length} refused`)
  t.ok(failed!.every(([, code]) => code === 'service_unavailable'))
  t.strictSame(new Map(done!.map(([, no, text]) => [Number(no), text])), found)
  t.strictSame(log.lines, [], 'nothing is half-written')
})

void t.test('whatever is appended, acknowledged and restarted in whatever order: pending is what was not acknowledged', async (t) => {
  const action = fc.oneof(
    fc.record({ append: fc.array(fc.string({ unit: codePoint, maxLength: 50 }), { minLength: 1, maxLength: 5 }) }),
    fc.record({ acknowledge: fc.nat(40) }),
    fc.record({ pass: fc.nat(800) }),
    fc.constant('restart' as const),
    fc.constant('kill' as const)
  )
  const some = fc.array(action, { maxLength: 40 })
  await fc.assert(fc.asyncProperty(some, fc.integer({ min: 1, max: 600 }), async (actions, fileBytes) => {
    let time = 1_800_000_000_000
    const options = { now: () => time, retention: 1000, file_bytes: fileBytes }
    let folder = folderFor(t)
    let outbox = await open(t, folder, options)
    /** acknowledged at */
    const model = new Map<number, { readonly text: string, at?: number }>()
    for (const one of actions) {
      if (one === 'restart' || one === 'kill') {
        // A kill forgets acknowledgements that were not written: they are given again, as by who replays what is
        // pending.
        if (one === 'kill') folder = copied(t, folder)
        await outbox.close()
        outbox = await open(t, folder, options)
        const pending = new Set((await list(outbox.pending())).map(({ no }) => no))
        for (const [no, { at }] of model) if (at !== undefined && pending.has(no)) outbox.acknowledge(no)
      } else if ('append' in one) {
        const numbers = await Promise.all(one.append.map(async (text) => await outbox.append(text)))
        for (const [i, no] of numbers.entries()) {
          if (model.has(no)) throw new Error(`${no} was given twice`)
          model.set(no, { text: one.append[i]! })
        }
      } else if ('acknowledge' in one) {
        outbox.acknowledge(one.acknowledge)
        const entry = model.get(one.acknowledge)
        if (entry !== undefined) entry.at ??= time
      } else time += one.pass
      const all = [...model].map(([no, { text, at }]) => ({ no, text, at }))
      const wanted = all.filter(({ at }) => at === undefined).map(({ no, text }) => ({ no, text }))
      if (outbox.size !== wanted.length) throw new Error(`size ${outbox.size} of ${wanted.length}`)
      equal(await list(outbox.pending()), wanted)
      const kept = await texts(outbox.kept())
      const missing = all.filter(({ at, text }) => at !== undefined && at >= time - 1000 && !kept.includes(text))
      equal(missing, [])
    }
    await outbox.close()
  }), { numRuns: 40 })
  t.pass()
})

function equal (found: unknown, wanted: unknown): void {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) {
    throw new Error(`${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`)
  }
}
