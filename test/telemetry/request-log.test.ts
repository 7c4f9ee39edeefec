// The log of requests by itself: what is found in it, what it keeps, and what becomes of it when its files fail. Chance
// makes the requests, the settings and the faults.
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { JsonBytes } from '../../src/base/json-bytes.ts'
import { beginningOfIds, createRequestId, isRequestId, microsOf } from '../../src/base/request-id.ts'
import type { RequestLogConfig } from '../../src/config/config.ts'
import { ExchangeRecord } from '../../src/core/record.ts'
import { addLine, readLine } from '../../src/telemetry/requests/line.ts'
import { keptRequests, RequestLog, type RequestLogOptions } from '../../src/telemetry/requests/request-log.ts'
import { type PageQuery, search } from '../../src/telemetry/requests/search.ts'
import { FolderFiles, MemoryFiles, nameOfFull, nameOfOpen, type SegmentFiles } from '../../src/telemetry/requests/segments.ts'
import { type Clock, startClock } from '../support/clock.ts'

const HOUR = 3_600_000
const ALL: RequestLogConfig = { keep: 1000, max_age: 168 * HOUR, max_size: 256 * 1024 ** 2 }
const DIGITS = 'abcdefghijklmno'

function record (arrival: number, fields: Partial<ExchangeRecord> = {}): ExchangeRecord {
  const one = new ExchangeRecord(beginningOfIds(arrival) + DIGITS, 'POST /v1/messages', 1, 'a client', '127.0.0.1')
  return Object.assign(one, { style: 'messages', account: 'acme', key_id: 'acme-dev', model: 'm1', status: 200,
    upstream: 'u0', target: 'vendor-m1', attempts: 1, ...fields })
}

function lineOf (one: ExchangeRecord): string {
  const line = new JsonBytes()
  addLine(line, one)
  return line.toString()
}

interface Own {
  readonly log: RequestLog
  readonly clock: Clock
  readonly said: string[]
  ids (query?: Partial<PageQuery>): Promise<readonly string[]>
}

function open (files: SegmentFiles, settings = ALL, more: Partial<RequestLogOptions> = {}): Own {
  const clock = startClock()
  const said: string[] = []
  const note = (_facts: unknown, text?: string): void => { said.push(text ?? String(_facts)) }
  const log = new RequestLog({ files, log: { info: note, error: note } as never, timer: clock.timer, now: clock.now,
    ...more })
  log.configure(settings)
  return { log, clock, said,
    ids: async (query = {}) => (await log.list({ limit: 100_000, ...query })).map(({ request_id: id }) => id) }
}

function folder (t: Test): string {
  const made = mkdtempSync(join(tmpdir(), 'gateway-requests-'))
  t.teardown(() => { rmSync(made, { recursive: true, force: true }) })
  return join(made, 'requests')
}

function sizeOf (path: string): number {
  return readdirSync(path).reduce((sum, name) => sum + statSync(join(path, name)).size, 0)
}

t.test('the time of an id is that at which it was made, to the microsecond, and ids are ordered by it', (t) => {
  const before = Date.now() * 1000
  const ids = Array.from({ length: 100 }, createRequestId)
  t.ok(ids.every(isRequestId))
  t.ok(microsOf(ids[0]!) >= before && microsOf(ids[0]!) <= Date.now() * 1000)
  t.strictSame(ids.toSorted(), ids)
  const micros = fc.integer({ min: 0, max: 3e15 })
  fc.assert(fc.property(micros, micros, (a, b) => {
    if (microsOf(beginningOfIds(a)) !== a) return false
    return (beginningOfIds(a) < beginningOfIds(b)) === (a < b)
  }))
  for (const text of ['', 'req_', ids[0]!.slice(0, -1), ids[0]! + 'x', ids[0]!.replace('req', 'msg'), ids[0] + '\n']) {
    t.notOk(isRequestId(text), JSON.stringify(text))
  }
  t.end()
})

const text = fc.oneof(fc.string({ unit: 'grapheme' }), fc.constantFrom('line\nfeed', '"quoted"', '\u2028', '],['))
const micros = fc.integer({ min: 1_700_000_000_000_000, max: 1_900_000_000_000_000 })
const records = fc.record({
  arrival: micros,
  fields: fc.record({
    account: fc.option(text, { nil: undefined }), key_id: fc.option(text, { nil: undefined }), code: text,
    status: fc.integer({ min: 0, max: 599 }), stream: fc.option(fc.boolean(), { nil: undefined }),
    nanos: fc.option(fc.bigInt({ min: 0n, max: 10n ** 15n }), { nil: undefined }),
    first_byte_ms: fc.option(fc.integer({ min: 0, max: 10 ** 8 }).map((n) => n / 1000), { nil: undefined }),
    usage: fc.option(fc.record({ input: fc.nat(), cache_read: fc.nat(), cache_write_5m: fc.nat(),
      cache_write_1h: fc.nat(), output: fc.nat(), extras: fc.dictionary(text, fc.nat(), { noNullPrototype: true }) },
    { noNullPrototype: true }), { nil: undefined }),
    failures: fc.array(fc.record({ at: fc.nat(), request_id: text, upstream: text, model: text, cause: text,
      status: fc.option(fc.integer({ min: 300, max: 599 }), { nil: undefined }),
      said: fc.option(text, { nil: undefined }) }), { maxLength: 3 })
  })
})

t.test('a line says what the record said, whatever is in it', (t) => {
  fc.assert(fc.property(records, ({ arrival, fields }) => {
    const one = record(arrival, { ...fields, outcome: 'failed', upstream: undefined, attempts: fields.failures.length })
    const line = lineOf(one)
    t.notOk(line.includes('\n'))
    const read = readLine(line)!
    t.match(read, {
      request_id: one.request_id, account: fields.account ?? null, key: fields.key_id ?? null, code: fields.code,
      status: fields.status, stream: fields.stream ?? null, first_byte_ms: fields.first_byte_ms ?? null,
      nanos: fields.nanos === undefined ? null : Number(fields.nanos), begun: fields.failures.length
    })
    t.strictSame(read.usage, fields.usage ?? null)
    t.strictSame(
      read.attempts.map(({ upstream, target, status, error, said }) => [upstream, target, status, error, said]),
      fields.failures.map(({ upstream, model, status = null, cause, said = null }) =>
        [upstream, model, status, cause, said])
    )
  }), { numRuns: 200 })
  t.end()
})

t.test('who answered is the last attempt; who was cut says so; who only failed is not there twice', (t) => {
  const failure = { at: 0, request_id: '', upstream: 'u0', model: 'v0', cause: 'status 500', status: 500, said: 'no' }
  const attemptsOf = (fields: Partial<ExchangeRecord>): unknown => readLine(lineOf(record(1, fields)))!.attempts
  const failed = { upstream: 'u0', target: 'v0', credential: null, status: 500, error: 'status 500', said: 'no' }
  const answered = { upstream: 'u1', target: 'v1', credential: 'second', status: 200, error: null, said: null }
  const served = { upstream: 'u1', target: 'v1', credential: 'second' }
  t.strictSame(attemptsOf({ ...served, failures: [failure], attempts: 2 }), [failed, answered])
  t.strictSame(attemptsOf({ ...served, failures: [failure], attempts: 2, outcome: 'interrupted', by: 'client',
    code: 'client_closed' }), [failed, { ...answered, error: 'client_closed' }])
  t.strictSame(attemptsOf({ ...served, failures: [failure], attempts: 2, outcome: 'failed', status: 0,
    code: 'client_closed' }), [failed, { ...answered, status: null, error: 'client_closed' }])
  t.strictSame(attemptsOf({ upstream: 'u0', failures: [failure], attempts: 1, outcome: 'failed', status: 502 }), [failed])
  const twenty = Array.from({ length: 20 }, () => failure)
  t.strictSame(attemptsOf({ upstream: 'u0', failures: twenty, attempts: 25, outcome: 'failed' }), twenty.map(() => failed))
  t.strictSame(attemptsOf({ ...served, failures: twenty, attempts: 25 }), [...twenty.map(() => failed), answered])
  t.strictSame(attemptsOf({ upstream: undefined, failures: [], attempts: 1 }), [], 'an answer of the gateway\'s own')
  t.end()
})

t.test('what is found is what a list of all of them would give, in any order of ends, over any number of files', async (t) => {
  const some = <T>(...values: readonly T[]): fc.Arbitrary<T> => fc.constantFrom(...values)
  const row = fc.record({ late: fc.nat({ max: 5_000_000 }), key_id: some('a', 'b', 'a"b'), account: some('a', 'x'),
    model: some('m1', 'm2'), code: some('ok', 'upstream_error'), status: some(200, 502) })
  const maybe = <T>(of: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(of, { nil: undefined, freq: 2 })
  const query = fc.record({ key: maybe(some('a', 'b', 'a"b', 'c')), account: maybe(some('a', 'x')),
    model: maybe(some('m1', 'm2')), code: maybe(some('ok', 'upstream_error')), status: maybe(some(200, 502, 0)),
    limit: fc.integer({ min: 1, max: 20 }), page: fc.nat({ max: 3 }) })
  await fc.assert(fc.asyncProperty(
    fc.array(row, { maxLength: 120, size: 'max' }), fc.array(query, { maxLength: 4 }), some(300, 700, 5000),
    some(true, true, true, false),
    async (rows, queries, keep, inMemory) => {
      const own = open(inMemory ? new MemoryFiles() : new FolderFiles(folder(t)), { ...ALL, keep })
      const start = own.clock.now() * 1000
      const noted = rows.map(({ late, ...fields }, i) => record(start + i * 1000 - late, fields))
      for (const [i, one] of noted.entries()) {
        own.log.note(one)
        if (i % 17 === 0) await own.clock.advance(1000)
      }
      const sorted = [...new Map(noted.map((one) => [one.request_id, one])).values()]
        .toSorted((a, b) => a.request_id < b.request_id ? 1 : -1)
      for (const { limit, page, ...wanted } of queries) {
        const given = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== undefined))
        const fitting = sorted.filter((one) => Object.entries(given).every(([name, value]) =>
          (one as unknown as Record<string, unknown>)[name === 'key' ? 'key_id' : name] === value))
        let before: string | undefined
        for (let i = 0; i <= page; i++) {
          const ids = await own.ids({ ...given, limit, ...(before !== undefined && { before }) })
          const expected = fitting.slice(i * limit, (i + 1) * limit).map(({ request_id: id }) => id)
          if (ids.join() !== expected.join()) throw new Error(`${ids.join()} in the place of ${expected.join()}`)
          before = ids.at(-1) ?? before
        }
      }
      for (const { request_id: id } of noted.slice(0, 5)) {
        if ((await own.ids({ request_id: id }))[0] !== id) throw new Error(`${id} is not found`)
      }
      await own.log.close()
    }
  ), { numRuns: 40 })
})

t.test('as many are kept as are to be, not much more, and in no more than the space; other settings count at once', async (t) => {
  await fc.assert(fc.asyncProperty(
    fc.array(fc.record({ keep: fc.constantFrom(1, 10, 150, 1000), mb: fc.constantFrom(1, 256),
      count: fc.integer({ min: 1, max: 400 }), said: fc.constantFrom(0, 20) }), { minLength: 1, maxLength: 4 }),
    async (rounds) => {
      const path = folder(t)
      const own = open(new FolderFiles(path))
      const noted: string[] = []
      let arrival = own.clock.now() * 1000
      for (const { keep, mb, count, said } of rounds) {
        const size = mb * 1024 ** 2
        own.log.configure({ ...ALL, keep, max_size: size })
        const failures = Array.from({ length: said }, () => ({ at: 0, request_id: '', upstream: 'u', model: 'm',
          cause: 'status 500', said: 's'.repeat(300) }))
        for (let i = 0; i < count; i++) {
          const one = record(arrival += 1000, { failures })
          noted.unshift(one.request_id)
          own.log.note(one)
          if (i % 100 === 0) await own.clock.advance(1000)
        }
        const ids = await own.ids()
        t.strictSame(ids, noted.slice(0, ids.length), 'the newest, without gaps')
        t.ok(ids.length <= keep + 2 * Math.max(1, keep / 100), `${ids.length} of ${keep}`)
        t.ok(sizeOf(path) <= size, `${sizeOf(path)} bytes of ${size}`)
        if (mb > 1 && rounds.every((round) => round.mb > 1 && round.keep >= keep)) {
          t.ok(ids.length >= Math.min(keep, noted.length), `${ids.length} of ${keep}`)
        }
      }
      t.equal(own.log.dropped, 0)
      t.strictSame(own.said, [])
      await own.log.close()
    }
  ), { numRuns: 12 })
})

t.test('what is too old is not shown, and soon not on the disk either, though nothing comes any more', async (t) => {
  const path = folder(t)
  const own = open(new FolderFiles(path), { ...ALL, max_age: HOUR })
  const first = own.clock.now() * 1000
  const noted = Array.from({ length: 25 }, (_, i) => record(first + i * 60_000_000))
  for (const one of noted) {
    own.log.note(one)
    await own.clock.advance(60_000)
  }
  t.equal((await own.ids()).length, 25)
  await own.clock.advance(HOUR - 20 * 60_000)
  t.strictSame(await own.ids(), noted.slice(5).map(({ request_id: id }) => id).reverse())
  await own.clock.advance(HOUR)
  t.strictSame(await own.ids(), [])
  const left = (): string[] => { try { return readdirSync(path) } catch { return [] } }
  await own.clock.until(() => left().length === 0)
  own.log.note(record(own.clock.now() * 1000))
  t.equal((await own.ids()).length, 1)
  await own.log.close()
})

t.test('off there is no file and nothing is kept; switched off, what was kept goes, and nothing else of the folder', async (t) => {
  const path = folder(t)
  const own = open(new FolderFiles(path), { ...ALL, keep: 0 })
  own.log.note(record(1))
  t.strictSame(await own.ids(), [])
  t.throws(() => readdirSync(path))
  own.log.configure({ ...ALL, keep: 300 })
  const start = own.clock.now() * 1000
  for (let i = 0; i < 10; i++) own.log.note(record(start + i))
  t.equal((await own.ids()).length, 10)
  writeFileSync(join(path, 'notes.txt'), 'of the operator')
  own.log.note(record(start + 10))
  own.log.configure({ ...ALL, keep: 0 })
  t.strictSame(await own.ids(), [])
  t.strictSame(readdirSync(path), ['notes.txt'])
  own.log.configure(ALL)
  own.log.note(record(start + 11))
  t.equal((await own.ids()).length, 1)
  t.equal(own.log.dropped, 0)
  await own.log.close()
})

t.test('what a process that was killed has left is found by the next one, by commands, and is kept as long as the rest', async (t) => {
  const path = folder(t)
  const start = startClock().now() * 1000
  const killed = [open(new FolderFiles(path)), open(new FolderFiles(path), ALL, { worker: 1 }),
    open(new FolderFiles(path), ALL, { worker: 2 })]
  for (const [n, { log }] of killed.entries()) {
    for (let i = 0; i < 13; i++) log.note(record(start + i * 10 + n))
    await log.list({ limit: 1 })
  }
  const opened = readdirSync(path).filter((name) => name.startsWith('open-')).toSorted()
  t.strictSame(opened, ['open-0.jsonl', 'open-1.jsonl', 'open-2.jsonl'])
  truncateSync(join(path, 'open-1.jsonl'), statSync(join(path, 'open-1.jsonl')).size - 20)   // torn
  const all = (await keptRequests(new FolderFiles(path), { ...ALL, max_age: 1e15 }).list({ limit: 1000 })).length
  t.equal(all, 38)
  const again = open(new FolderFiles(path), ALL, { worker: 2 })
  again.log.note(record(start + 1000))
  t.equal((await again.ids()).length, 39)
  t.strictSame(readdirSync(path).filter((name) => name.startsWith('open-')).toSorted(), opened, 'others\' stay theirs')
  await again.log.close()
  const last = open(new FolderFiles(path), { ...ALL, keep: 5 })
  last.log.note(record(start + 2000))
  const ids = await last.ids()
  t.equal(ids.length, 5)
  t.strictSame(readdirSync(path).filter((name) => name.startsWith('open-')), [])
  await last.log.close()
})

t.test('a process reads what those before it have served, under the numbers that it asks for, and nothing of those beside it', async (t) => {
  const path = folder(t)
  const start = startClock().now() * 1000
  for (const worker of [undefined, 1, 2]) {
    const { log } = open(new FolderFiles(path), { ...ALL, keep: 1000 }, worker === undefined ? {} : { worker })
    for (let i = 0; i < 13; i++) log.note(record(start - 60e6 + i * 2e6 + (worker ?? 0), { duration_ms: 10 }))
    await log.close()
  }
  const beside = open(new FolderFiles(path), ALL, { worker: 2 })
  const own = open(new FolderFiles(path), { ...ALL, keep: 1000 })
  for (const { log } of [own, beside]) {
    log.note(record(start + 1, { duration_ms: 10 }))
    log.note(record(start - 1000, { duration_ms: 10 }))       // came before, and ended here
    await log.list({ limit: 1 })
  }
  const read = async (since: number, ...numbers: readonly number[]): Promise<readonly number[]> => {
    const found: number[] = []
    for await (const some of own.log.before(since / 1000, (number) => numbers.includes(number))) {
      found.push(...some.map(({ request_id: id }) => microsOf(id) - start))
    }
    return found.toSorted((a, b) => b - a)
  }
  const served = (worker: number): number[] => Array.from({ length: 13 }, (_, i) => (12 - i) * 2e6 - 60e6 + worker)
  t.strictSame(await read(0, 1), served(1))
  t.strictSame(await read(0, 0, 2), [...served(0), ...served(2)].toSorted((a, b) => b - a))
  t.strictSame(await read(0), [])
  t.strictSame(await read(start, 0, 1, 2), [], 'nothing of so long ago')
  t.strictSame((await read(start - 40e6, 1))[0], served(1)[0])
  for (const { log } of [own, beside]) await log.close()
})

t.test('a file that is damaged or gone costs its own lines: whatever its bytes, the others are found', async (t) => {
  await fc.assert(fc.asyncProperty(
    fc.array(fc.tuple(fc.nat(), fc.nat(), fc.uint8Array({ maxLength: 40 })), { minLength: 1, maxLength: 8 }), fc.nat(),
    async (damages, gone) => {
      const path = folder(t)
      const own = open(new FolderFiles(path))
      const start = own.clock.now() * 1000
      const whole = new Map<string, string>()
      for (let i = 0; i < 55; i++) {
        const one = record(start + i)
        whole.set(one.request_id, JSON.stringify(readLine(lineOf(one))))
        own.log.note(one)
      }
      await own.ids()
      for (const [which, at, bytes] of damages) {
        const names = readdirSync(path)
        const file = join(path, names[which % names.length]!)
        const before = readFileSync(file)
        const from = at % (before.length + 1)
        writeFileSync(file, Buffer.concat([before.subarray(0, from), bytes, before.subarray(from + bytes.length)]))
      }
      const names = readdirSync(path)
      rmSync(join(path, names[gone % names.length]!))
      const lines = new Set(readdirSync(path).flatMap((name) => readFileSync(join(path, name), 'utf8').split('\n')))
      const untouched = [...whole].filter(([, text]) =>
        [...lines].some((line) => JSON.stringify(readLine(line)) === text)).map(([id]) => id)
      const found = await own.ids()
      for (const id of untouched) if (!found.includes(id)) throw new Error(`${id} is lost`)
      own.log.note(record(start + 1000))
      t.equal((await own.ids({ limit: 1 }))[0], beginningOfIds(start + 1000) + DIGITS, 'and it goes on')
      await own.log.close()
    }
  ), { numRuns: 60 })
})

t.test('a file that another process ends while it is looked for is found under its other name, and once', async (t) => {
  const start = startClock().now() * 1000
  for (const moves of [0, 1, 2]) {
    const files = new MemoryFiles()
    const open = nameOfOpen(1)
    const lines = Array.from({ length: 4 }, (_, i) => record(start + i))
    await files.append(open, Buffer.from(lineOf(lines[0]!) + '\n'))
    const read = files.read.bind(files)
    let moved = 0
    files.read = async (name) => {
      if (name === open && moved < moves) {
        const arrival = start + moved
        await files.rename(open, nameOfFull(1, { oldest: arrival, newest: arrival, rows: 1, bytes: 1 }))
        await files.append(open, Buffer.from(lineOf(lines[++moved]!) + '\n'))
      }
      return await read(name)
    }
    const found = await search(files, { limit: 10 }, 0)
    t.strictSame(found.map(({ request_id: id }) => id),
      lines.slice(0, moves + 1).map(({ request_id: id }) => id).reverse())
  }
})

/** Files that fail when they are told to, and may have written a part before. */
class FailingFiles extends MemoryFiles {
  failing: (what: string) => boolean = () => false
  parts = 1

  #fail (what: string): void {
    if (this.failing(what)) throw new Error(`ENOSPC: no space left on device, ${what}`)
  }

  override async append (name: string, bytes: Buffer): Promise<void> {
    if (this.failing('append')) await super.append(name, bytes.subarray(0, Math.floor(bytes.length * this.parts)))
    this.#fail('append')
    await super.append(name, bytes)
  }

  override async rename (from: string, to: string): Promise<void> { this.#fail('rename'); await super.rename(from, to) }
  override async remove (name: string): Promise<void> { this.#fail('remove'); await super.remove(name) }
  override async names (): Promise<readonly string[]> { this.#fail('names'); return await super.names() }
}

t.test('whatever fails, and whenever: what is missing was counted, one line tells of it, one of its end, and the bounds hold', async (t) => {
  const phase = fc.record({ failing: fc.subarray(['append', 'rename', 'remove', 'names']),
    parts: fc.constantFrom(0, 0.4, 1), count: fc.integer({ min: 1, max: 450 }) })
  await fc.assert(fc.asyncProperty(fc.array(phase, { minLength: 1, maxLength: 6 }), async (phases) => {
    const files = new FailingFiles()
    const own = open(files, { ...ALL, keep: 500 })
    let arrival = own.clock.now() * 1000
    const noted: string[] = []
    const note = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        const one = record(arrival += 1000)
        noted.unshift(one.request_id)
        own.log.note(one)
        if (i % 60 === 0) await own.clock.advance(1000)
      }
      await own.clock.advance(2000)
    }
    for (const { failing, parts, count } of phases) {
      files.parts = parts
      files.failing = (what) => failing.includes(what)
      await note(count)
    }
    files.failing = () => false
    await note(30)
    await own.clock.advance(2 * HOUR)
    await note(30)
    const ids = await own.ids()
    t.strictSame(ids.slice(0, 60), noted.slice(0, 60), 'it works again')
    t.ok(ids.length <= 500 + 10, `${ids.length} are kept`)
    if (noted.length < 500 && ids.length < noted.length - own.log.dropped) {
      throw new Error(`${ids.length} of ${noted.length} are there, and ${own.log.dropped} were counted`)
    }
    const told = own.said.filter((line) => line.includes('can\'t be'))
    const cured = own.said.filter((line) => line.includes('again'))
    t.equal(cured.length, told.length)
    t.ok(told.length <= 2 * phases.length, own.said.join('\n'))
    await own.log.close()
  }), { numRuns: 40 })
})

t.test('a disk that hangs costs requests of the log, a bounded memory, and nothing else', async (t) => {
  const files = new MemoryFiles()
  const hanging = Promise.withResolvers<void>()
  const append = files.append.bind(files)
  files.append = async (name, line) => { await hanging.promise; await append(name, line) }
  const own = open(files, { ...ALL, keep: 100_000 })
  const start = own.clock.now() * 1000
  for (let i = 0; i < 20_000; i++) own.log.note(record(start + i))
  await own.clock.advance(5000)
  t.ok(own.log.dropped >= 20_000 - 2 * 4000 && own.log.dropped < 20_000, `${own.log.dropped} were dropped`)
  t.match(own.said, [/can't be written/])
  hanging.resolve()
  t.equal((await own.ids()).length, 20_000 - own.log.dropped)
  await own.clock.advance(20_000)
  own.log.note(record(start + 29_999))
  await own.ids()
  t.match(own.said, [/can't be written/, /can be written again/])
  files.append = async () => { await new Promise(() => {}) }
  own.log.note(record(start + 30_000))
  await own.log.close()
})

t.test('in memory no more is kept than that may have', async (t) => {
  const own = open(new MemoryFiles(), { ...ALL, keep: 100_000 }, { most: 50 })
  const start = own.clock.now() * 1000
  for (let i = 0; i < 200; i++) own.log.note(record(start + i))
  t.equal((await own.ids()).length, 50)
  t.equal(own.log.keep, 50)
})

t.test('a request that can\'t be written as JSON, by a plugin without types, costs no other its line', async (t) => {
  const { log, clock, ids } = open(new MemoryFiles())
  const [first, second, third] = [1, 2, 3].map((i) => clock.now() * 1000 + i) as [number, number, number]
  log.note(record(first))
  t.throws(() => { log.note(record(second, { key_id: 2n as never })) }, TypeError)
  log.note(record(third, { key_id: 3 as never }))
  t.strictSame(await ids(), [third, first].map((arrival) => beginningOfIds(arrival) + DIGITS))
})
