// What every driver of the store must do with what outlives a request: tasks that own the hold of their request until
// they end, and answers that are given again. test/store/store-tasks.test.ts runs it against each.
import type { Test } from 'tap'
import { noUsage } from '../../src/money/usage.ts'
import type { Records, Settlement, Store } from '../../src/store/store.ts'
import type { Answer, Answers, Movable, NewTask, Tasks, TaskSearch } from '../../src/store/tasks.ts'
import { request, settlement } from './embedded-store.ts'
import { all } from './store-conformance.ts'

export type Whole = Store & Records & Tasks & Answers & Movable

export function task (id: string, nanos: bigint, more: Partial<NewTask> = {}): NewTask {
  return { id, request_id: `r-${id}`, account: 'acme', key: 'dev', created: 1000, nanos, text: `{"of":"${id}"}`,
    ...more }
}

export function bill (nanos: bigint): Omit<Settlement, 'request_id'> {
  return { nanos, model: 'clip', channel: 'premium', usage: noUsage, usage_source: 'provider' }
}

export function answer (name: string, more: Partial<Answer> = {}): Answer {
  return { account: 'acme', name, hash: 'h', request_id: `r-${name}`, created: 1000, text: '{"a":1}', ...more }
}

/** With an account that has 1000, and a task of 40 that is open. */
export async function opened (store: Whole): Promise<void> {
  await store.credit('acme', 'c', 1000n)
  await store.hold(request('r-v1', 60n))
  await store.openTask(task('v1', 40n))
}

/** @param make an empty store, which goes with the test */
export function tasksConformance (t: Test, make: (t: Test) => Promise<Whole>): void {
  const test = (sentence: string, body: (t: Test, store: Whole) => Promise<void>): void => {
    void t.test(sentence, async (t) => { await body(t, await make(t)) })
  }

  test('a task takes over the hold of its request, as far as it needs it', async (t, store) => {
    await opened(store)
    t.strictSame(await store.balance('acme'), { balance: 1000n, held: 40n, open_holds: 1 })
    t.strictSame(await store.keyUsage('dev'), { spent: 0n, held: 40n })
    await store.release('r-v1')
    await store.refund('r-v1')
    t.strictSame(await store.balance('acme'), { balance: 1000n, held: 40n, open_holds: 1 },
      'the end of the request does not give it back')
    t.strictSame(store.openTasks(), [{ ...task('v1', 40n), is_open: true }])
    t.strictSame(await store.task('v1'), { ...task('v1', 40n), is_open: true })
    t.equal(await store.task('v2'), undefined)
    t.strictSame(await all(store).then((entries) => entries.map(({ kind }) => kind)), ['credit'])
  })

  test('the newest tasks come first, of all, of an account, and of a status', async (t, store) => {
    const made: string[] = []
    for (const account of ['acme', 'other']) await store.credit(account, `c-${account}`, 1000n)
    for (let i = 0; i < 12; i++) {
      const account = i % 3 === 0 ? 'other' : 'acme'
      const id = `v${String(i).padStart(2, '0')}`
      await store.hold(request(`r-${id}`, 10n, { account }))
      await store.openTask(task(id, 10n, { account, created: 1000 + Math.floor(i / 4), text: '{"status":"queued"}' }))
      made.unshift(id)
    }
    await store.endTask('v02', '{"status":"failed"}')
    await store.endTask('v09', '{"status":"failed"}')
    await store.endTask('v10', '{"status":"completed"}', bill(10n))
    const ids = async (search: Omit<TaskSearch, 'limit'>): Promise<string[]> => {
      const found: string[] = []
      for (let before = search.before; ;) {
        const page = await store.newestTasks({ ...search, ...(before !== undefined && { before }), limit: 2 })
        found.push(...page.map(({ id }) => id))
        if (page.length < 2) return found
        before = page.at(-1)!
      }
    }
    t.strictSame(await ids({}), made)
    t.strictSame(await ids({ account: 'other' }), ['v09', 'v06', 'v03', 'v00'])
    t.strictSame(await ids({ status: 'failed' }), ['v09', 'v02'])
    t.strictSame(await ids({ status: 'failed', account: 'acme' }), ['v02'])
    t.strictSame(await ids({ status: 'queued', before: { created: 1001, id: 'v06' } }),
      ['v05', 'v04', 'v03', 'v01', 'v00'])
    t.strictSame(await ids({ status: 'gone' }), [])
    t.match(await store.newestTasks({ status: 'failed', limit: 1 }), [{ id: 'v09', account: 'other', is_open: false }])
  })

  test('a task that is charged has one entry, of its request', async (t, store) => {
    await opened(store)
    t.equal(await store.endTask('v1', '{"done":true}', bill(40n)), 40n)
    t.strictSame(await store.balance('acme'), { balance: 960n, held: 0n, open_holds: 0 })
    t.match((await all(store)).at(-1), { kind: 'settle', reference: 'r-v1', account: 'acme', key: 'dev', nanos: -40n,
      model: 'clip', channel: 'premium' })
    t.match(await store.task('v1'), { is_open: false, nanos: 40n, text: '{"done":true}' })
    t.strictSame(store.openTasks(), [])
    t.equal(store.findOpenTask('v1'), undefined)
    t.equal(await store.endTask('v1', '{}', bill(40n)), undefined, 'a second end is none')
    t.equal(await store.endTask('v1', '{}'), undefined)
    await store.refund('r-v1')
    t.strictSame((await store.verify()).differences, [])
  })

  test('a task that fails costs nothing', async (t, store) => {
    await opened(store)
    t.equal(await store.endTask('v1', '{"failed":true}'), 0n)
    t.strictSame(await store.balance('acme'), { balance: 1000n, held: 0n, open_holds: 0 })
    t.match(await store.task('v1'), { is_open: false, nanos: 0n, text: '{"failed":true}' })
    t.equal((await all(store)).length, 1)
  })

  test('ends that race charge once', async (t, store) => {
    await opened(store)
    const told = await Promise.all([store.endTask('v1', '1', bill(40n)), store.endTask('v1', '2', bill(40n)),
      store.endTask('v1', '3')])
    t.equal(told[0], 40n)
    t.equal((await store.balance('acme')).balance, 960n)
    t.equal((await all(store)).filter(({ kind }) => kind === 'settle').length, 1)
    t.equal((await store.task('v1'))!.text, '1')
  })

  test('more than was held is the operator\'s', async (t, store) => {
    await opened(store)
    t.equal(await store.endTask('v1', '{}', bill(55n)), 40n)
    t.match((await all(store)).at(-1), { kind: 'shortfall', shortfall: 15n, reference: 'r-v1' })
  })

  test('there is no task without a hold that covers it', async (t, store) => {
    await store.credit('acme', 'c', 1000n)
    await t.rejects(async () => await store.openTask(task('v1', 1n)))
    await store.hold(request('r-v1', 60n))
    await t.rejects(async () => await store.openTask(task('v1', 61n)))
    t.strictSame(store.openTasks(), [])
    t.strictSame(await store.balance('acme'), { balance: 1000n, held: 60n, open_holds: 1 })
    await store.release('r-v1')
    t.strictSame(await store.balance('acme'), { balance: 1000n, held: 0n, open_holds: 0 },
      'the hold is still the request\'s')
  })

  test('what is noted is seen, and an end is not undone by it', async (t, store) => {
    await opened(store)
    store.noteTask('v1', '{"progress":5}')
    t.equal((await store.task('v1'))!.text, '{"progress":5}')
    const ending = store.endTask('v1', '{"done":true}', bill(40n))
    store.noteTask('v1', '{"progress":99}')
    await ending
    store.noteTask('v1', '{"progress":99}')
    store.noteTask('nobody', '{}')
    t.match(await store.task('v1'), { is_open: false, text: '{"done":true}' })
  })

  test('only what is over is removed, and what is old is forgotten', async (t, store) => {
    await opened(store)
    t.equal(await store.removeTask('v1'), false)
    await store.hold(request('r-v2', 1n))
    await store.openTask(task('v2', 1n, { created: 5000 }))
    await store.endTask('v2', '{}')
    t.equal(await store.forgetTasks(5000), 0, 'one is open, the other not old')
    t.equal(await store.forgetTasks(5001), 1)
    t.equal(await store.task('v2'), undefined)
    await store.endTask('v1', '{}')
    t.equal(await store.removeTask('v1'), true)
    t.equal(await store.removeTask('v1'), false)
    t.equal(await store.task('v1'), undefined)
    for (const id of ['v3', 'v4']) {
      await store.hold(request(`r-${id}`, 1n))
      await store.openTask(task(id, 1n))
      await store.endTask(id, '{}')
    }
    t.equal(await store.forgetTasks(5000), 2)
    t.strictSame(await store.tasks('acme', { limit: 9, order: 'asc' }), [])
  })

  test('an account\'s tasks come in pages, in the order of their creation', async (t, store) => {
    await store.credit('acme', 'c', 1000n)
    await store.credit('beta', 'd', 1000n)
    // Three at the same moment: then their ids decide.
    for (const [id, created] of [['v3', 2000], ['v1', 1000], ['v2', 2000], ['v4', 2000], ['v5', 3000]] as const) {
      await store.hold(request(`r-${id}`, 1n))
      await store.openTask(task(id, 1n, { created }))
    }
    await store.hold(request('r-other', 1n, { account: 'beta', key: 'beta-dev' }))
    await store.openTask(task('other', 1n, { account: 'beta', key: 'beta-dev' }))
    await store.endTask('v4', '{"over":true}')
    store.noteTask('v2', '{"new":true}')
    const page = async (more: object): Promise<unknown> =>
      (await store.tasks('acme', { limit: 10, order: 'asc', ...more }))?.map(({ id }) => id).join(' ')
    t.equal(await page({}), 'v1 v2 v3 v4 v5')
    t.equal(await page({ order: 'desc' }), 'v5 v4 v3 v2 v1')
    t.equal(await page({ limit: 2 }), 'v1 v2')
    t.equal(await page({ limit: 2, after: 'v2' }), 'v3 v4')
    t.equal(await page({ limit: 2, after: 'v3', order: 'desc' }), 'v2 v1')
    t.equal(await page({ after: 'v5' }), '')
    t.equal(await page({ after: 'other' }), undefined, 'another\'s is as unknown as none')
    t.equal(await page({ after: 'nobody' }), undefined)
    t.strictSame(
      (await store.tasks('acme', { limit: 10, order: 'asc' }))!.map(({ is_open: isOpen, text }) => [isOpen, text]),
      [
        [true, '{"of":"v1"}'],
        [true, '{"new":true}'],
        [true, '{"of":"v3"}'],
        [false, '{"over":true}'],
        [true, '{"of":"v5"}']
      ]
    )
    t.strictSame(await store.tasks('nobody', { limit: 10, order: 'asc' }), [])
  })

  test('an answer that was not charged, or was given back, is nobody\'s', async (t, store) => {
    await opened(store)
    await store.keepAnswer(answer('task', { request_id: 'r-v1' }))
    t.ok(await store.answer('acme', 'task'), 'it became a task')
    await store.hold(request('r-n1', 5n))
    await store.keepAnswer(answer('n1'))
    t.equal(await store.answer('acme', 'n1'), undefined, 'not yet')
    await store.settle(settlement('r-n1', 5n))
    t.strictSame(await store.answer('acme', 'n1'), answer('n1'))
    await store.refund('r-n1')
    t.equal(await store.answer('acme', 'n1'), undefined, 'given back')
    await store.endTask('v1', '{}')
    await store.removeTask('v1')
    t.equal(await store.answer('acme', 'task'), undefined, 'it costs nothing, and is not there any more')
  })

  test('answers are kept by account and name, dropped, and forgotten when they are old or too many',
    async (t, store) => {
      const keep = async (one: Answer): Promise<void> => {
        const { request_id: id, account } = one
        await store.hold(request(id, 5n, { account, key: `${account}-dev` }))
        await store.keepAnswer(one)
        await store.settle(settlement(id, 5n))
      }
      t.equal(await store.answer('acme', 'n1'), undefined)
      await store.credit('acme', 'c', 1000n)
      await store.credit('beta', 'd', 1000n)
      await keep(answer('n1'))
      await keep(answer('n2', { created: 2000, text: undefined }))
      await keep(answer('n1', { account: 'beta', request_id: 'r-beta', hash: 'other', created: 3000 }))
      t.strictSame(await store.answer('acme', 'n1'), answer('n1'))
      t.strictSame(await store.answer('acme', 'n2'), answer('n2', { created: 2000, text: undefined }))
      t.equal((await store.answer('beta', 'n1'))!.hash, 'other')
      await store.dropAnswer('beta', 'n1')
      t.equal(await store.answer('beta', 'n1'), undefined)
      await keep(answer('n3', { created: 3000 }))
      t.equal(await store.forgetAnswers(2000, 100), 1)
      t.equal(await store.answer('acme', 'n1'), undefined)
      t.equal(await store.forgetAnswers(2000, 1), 1, 'the oldest of too many')
      t.equal(await store.answer('acme', 'n2'), undefined)
      t.strictSame(await store.answer('acme', 'n3'), answer('n3', { created: 3000 }))
      const found: Answer[] = []
      for await (const one of store.allAnswers()) found.push(one)
      t.strictSame(found, [answer('n3', { created: 3000 })])
      await keep(answer('n4', { account: 'beta', created: 3500 }))
      await keep(answer('n5', { account: 'beta', created: 4500 }))
      await keep(answer('n6', { created: 5000 }))
      t.equal(await store.forgetAnswers(2000, 2), 2, 'the oldest of all accounts')
      const left: string[] = []
      for await (const { name } of store.allAnswers()) left.push(name)
      t.strictSame(left.toSorted(), ['n5', 'n6'])
    })
}

/** What a driver must do that writes down what it decides. @param store open and empty */
export async function refusesWhenClosed (t: Test, store: Whole): Promise<void> {
  await opened(store)
  await store.hold(request('r1', 5n))
  await store.close()
  const windows = [{ name: 'k', limit: 1 }]
  const asked: Readonly<Record<string, () => unknown>> = {
    credit: () => store.credit('acme', 'd', 1n),
    book: () => store.book({ kind: 'refund', account: 'acme', reference: 'd', nanos: 1n, reason: 'why' }),
    hold: () => store.hold(request('r2', 1n)),
    wouldHold: () => store.wouldHold(request('r2', 1n)),
    extend: () => store.extend('r1', 1n),
    settle: () => store.settle(settlement('r1', 1n)),
    progress: () => store.progress(settlement('r1', 1n)),
    admit: () => store.admit({ request_id: 'r2', windows }),
    wouldAdmit: () => store.wouldAdmit({ request_id: 'r2', windows }),
    openTask: () => store.openTask(task('v2', 1n, { request_id: 'r1' })),
    endTask: () => store.endTask('v1', '{}', bill(1n)),
    keepAnswer: () => store.keepAnswer(answer('n1')),
    change: () => store.change({ audit: '{}' })
  }
  for (const [what, ask] of Object.entries(asked)) {
    await t.rejects(async () => await ask(), { message: 'the store is closed' }, what)
  }
}
