// N12: bodies and answers take turns at the threads, by key and the shortest first; none waits for ever, and no key has
// all threads.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { Job } from '../../src/gateway/bodies/body-thread.ts'
import type { Answer, Asked } from '../../src/gateway/bodies/messages.ts'
import { LONG, ThreadPool } from '../../src/gateway/bodies/thread-pool.ts'
import { Turns, type Waiting } from '../../src/core/turns.ts'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { json, upstream } from '../support/upstream.ts'
import { until } from '../support/until.ts'

const always = (): boolean => true

function job (key: string, id: string, bytes: number): Waiting {
  return { key, id, bytes }
}

function drain (turns: Turns<Waiting>): readonly string[] {
  const order: string[] = []
  for (let next = turns.next(always); next !== undefined; next = turns.next(always)) order.push(next.id)
  return order
}

t.test('N12: keys take turns, and the shortest is first', async (t) => {
  const turns = new Turns<Waiting>()
  for (let i = 0; i < 3; i++) turns.add(job('a', `a${i}`, 30))
  for (let i = 0; i < 3; i++) turns.add(job('b', `b${i}`, 30))
  turns.add(job('c', 'c', 1))
  t.strictSame(drain(turns), ['c', 'a0', 'b0', 'a1', 'b1', 'a2', 'b2'])
  for (const [id, bytes] of [['long', 30], ['short', 2], ['middle', 9]] as const) turns.add(job('a', id, bytes))
  t.strictSame(drain(turns), ['short', 'middle', 'long'], 'also among those of one key')
})

t.test('N12: who has used much is behind who has not, and what was begun is finished first', async (t) => {
  const turns = new Turns<Waiting>()
  turns.add(job('a', 'a0', 30))
  turns.add(job('a', 'a1', 30))
  t.equal(turns.next(always)?.id, 'a0')
  turns.add(job('b', 'b0', 25))
  turns.add(job('a', 'a0', 30))
  t.strictSame(drain(turns), ['a0', 'b0', 'a1'])
})

t.test('N12: no job is passed for ever, however many shorter ones come, of its own key or of new ones', async (t) => {
  for (const keyOf of [(i: number) => `new${i}`, () => 'other', () => 'long']) {
    const turns = new Turns<Waiting>()
    turns.add(job('long', 'long', 1000))
    let passed = 0
    for (let next; next !== 'long'; passed++) {
      turns.add(job(keyOf(passed), `short${passed}`, 10))
      next = turns.next(always)!.id
      if (passed > 1000) break
    }
    t.ok(passed <= 102, `passed by ${passed}`)
  }
})

t.test('N12: each job has its turn once, whatever can run when', async () => {
  fc.assert(fc.property(fc.array(fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.integer({ min: 1, max: 50 }),
    fc.constantFrom('add', 'add', 'take', 'take none of a', 'remove')), { maxLength: 60 }), (steps) => {
    const turns = new Turns<Waiting>()
    const [waiting, taken] = [new Set<Waiting>(), new Set<Waiting>()]
    steps.forEach(([key, bytes, what], i) => {
      if (what === 'add') {
        const one = job(key, String(i), bytes)
        waiting.add(one)
        turns.add(one)
      } else if (what === 'remove') {
        const [first] = waiting
        if (first !== undefined) t.equal(turns.remove(first), waiting.delete(first))
      } else {
        const next = turns.next((one) => what === 'take' || one.key !== 'a')
        if (next === undefined) {
          if (what === 'take' ? waiting.size > 0 : [...waiting].some((one) => one.key !== 'a')) throw new Error('none')
          return
        }
        if (!waiting.delete(next) || taken.has(next)) throw new Error('twice')
        taken.add(next)
      }
      if (turns.size !== waiting.size) throw new Error('size')
    })
    if (turns.clear().length !== waiting.size) throw new Error('lost')
  }))
})

/** A thread that answers when it is let go, with its number; `die`, `hang`: by the id of a body. */
const held = new URL(`data:text/javascript,${encodeURIComponent(`
  import { parentPort, threadId } from 'node:worker_threads'
  parentPort.on('message', (message) => {
    if (message.isOver) { if (message.id === undefined) parentPort.close(); return }
    if (message.id === 'die') process.exit(3)
    while (message.id === 'hang') { }
    Atomics.wait(message.args, 0, 0)
    parentPort.postMessage({ result: { thread: threadId, opened: message.opened }, facts: [], answerHeaders: {} })
  })`)}`)

interface Held {
  readonly done: Promise<unknown>
  readonly job: Job
  readonly hasBegun: () => boolean
  letGo (): void
}

function begin (pool: ThreadPool, id: string, { bytes = 1, account = 'a', lives = 1 } = {}): Held {
  const gate = new Int32Array(new SharedArrayBuffer(4))
  const { promise, resolve } = Promise.withResolvers<unknown>()
  let hasBegun = false
  const one: Job = { requestId: id, id, key: account, account, bytes, lives,
    ask (has) {
      hasBegun = true
      return { id, opened: !has, known: {}, replay: [], call: undefined, isLast: false, args: gate } as unknown as Asked
    },
    resolve: ({ result }: Answer) => { resolve(result) },
    reject: (error) => { resolve((error as { readonly row?: string }).row) } }
  pool.add(one)
  return { done: promise, job: one, hasBegun: () => hasBegun,
    letGo () {
      Atomics.store(gate, 0, 1)
      Atomics.notify(gate, 0)
    } }
}

function poolOf (t: Test, threads: number): ThreadPool {
  const pool = new ThreadPool({ threads, pluginsUrl: '', sealSecrets: ['x'], log: { error () {} } as never,
    patience: 60_000, worker: held })
  const timer = setInterval(() => {}, 1000)                   // a thread alone keeps no process alive
  t.teardown(async () => {
    clearInterval(timer)
    await pool.close(100)
  })
  return pool
}

t.test('N12: a key has all threads but one, and long bodies never have the last', async (t) => {
  const pool = poolOf(t, 3)
  const own = ['1', '2', '3'].map((id) => begin(pool, id))
  t.strictSame(own.map(({ hasBegun }) => hasBegun()), [true, true, false])
  const other = begin(pool, 'other', { account: 'b' })
  t.equal(other.hasBegun(), true)
  for (const one of [...own, other]) one.letGo()
  await Promise.all([...own, other].map(async ({ done }) => await done))

  const long = ['c', 'd', 'e'].map((account) => begin(pool, account, { account, bytes: LONG }))
  t.strictSame(long.map(({ hasBegun }) => hasBegun()), [true, true, false])
  const short = begin(pool, 'short', { account: 'e', bytes: LONG - 1 })
  t.equal(short.hasBegun(), true)
  for (const one of [...long, short]) one.letGo()
  await Promise.all(long.map(async ({ done }) => await done))
})

t.test('N12: a body stays with its thread, unless it is short and a long one is in its way', async (t) => {
  const pool = poolOf(t, 2)
  const run = async (id: string, options = {}): Promise<unknown> => {
    const one = begin(pool, id, options)
    one.letGo()
    return await one.done
  }
  const other = begin(pool, 'other', { account: 'b' })        // it has the last thread
  const first = await run('short', { account: 'c' }) as { readonly thread: number }
  other.letGo()
  const { thread: last } = await other.done as { readonly thread: number }
  t.match(await run('short', { account: 'c' }), { thread: first.thread, opened: false })
  const long = begin(pool, 'long', { bytes: LONG })
  t.match(await run('short', { account: 'c' }), { thread: last, opened: true })
  long.letGo()
  t.match(await long.done, { thread: first.thread })
  t.match(await run('long', { bytes: LONG }), { thread: first.thread, opened: false })
})

t.test('N12: a thread that dies takes one job with it; a job that waits can be given up', async (t) => {
  const pool = poolOf(t, 2)
  const dead = begin(pool, 'die', { lives: 2 })
  const next = begin(pool, 'next')
  const gone = begin(pool, 'gone')
  t.equal(pool.remove(gone.job), true)
  t.equal(pool.remove(gone.job), false)
  next.letGo()
  t.equal(await dead.done, 'server_error', 'of the second thread, too')
  t.match(await next.done, { opened: true })
  t.equal(gone.hasBegun(), false)
})

t.test('N12: a close is bounded, though a thread never answers', async (t) => {
  const pool = poolOf(t, 2)
  const [hung, waits] = [begin(pool, 'hang'), begin(pool, 'waits')]
  t.equal(hung.hasBegun(), true)
  const closed = pool.close(100)
  t.strictSame(await Promise.all([hung.done, waits.done]), ['server_error', 'server_error'])
  await closed
  t.equal(await begin(pool, 'late').done, 'server_error')
})

t.test('N12: behind bodies that a key has pushed, a neighbour\'s has the second turn', async (t) => {
  const up = await upstream(t, json({ id: 'msg_1', type: 'message', role: 'assistant', model: 'vendor',
    stop_reason: 'end_turn', content: [{ type: 'text', text: 'Hi' }], usage: { input_tokens: 9, output_tokens: 2 } }))
  const secret = 'sk-gw-' + 'n'.repeat(32)
  const gw = await gateway(t, yaml([up.url]).replace(/keys:\n/, `keys:
  - { id: other-key, account: other, secret: ${secret} }
`).replace('accounts:\n', 'accounts:\n  - { id: other, name: Other, opening_balance_usd: 100 }\n'))
  const count = 8
  // All of one size, so that only the key tells them apart. Nothing has its turn before all of them wait.
  const body = { ...messagesRequest, messages: [{ role: 'user', content: 'a b '.repeat(75 * 1024) }] }
  const [waiting, turns] = [new Set<Waiting>(), new Map<string, string>()]
  const { add, next } = Turns.prototype
  t.teardown(() => { Object.assign(Turns.prototype, { add, next }) })
  Object.assign(Turns.prototype, {
    add (this: Turns<Waiting>, job: Waiting) {
      waiting.add(job)
      add.call(this, job)
    },
    next (this: Turns<Waiting>, canRun: (job: Waiting) => boolean) {
      const job = waiting.size > count ? next.call(this, canRun) : undefined
      if (job !== undefined && !turns.has(job.id)) turns.set(job.id, job.key)
      return job
    }
  })
  const send = async (key: string): Promise<number> => (await gw.messages(body, { headers: { 'x-api-key': key } })).status
  const pushed = Array.from({ length: count }, async () => await send(KEY))
  await until(() => waiting.size === count)
  const own = await send(secret)
  t.strictSame([...await Promise.all(pushed), own], Array.from({ length: count + 1 }, () => 200))
  t.strictSame([...turns.values()].slice(0, 2), ['acme acme-dev', 'other other-key'])
  const { length } = JSON.stringify(body)
  t.strictSame([...waiting].slice(0, count + 1).map(({ bytes }) => bytes), Array(count + 1).fill(length))
})
