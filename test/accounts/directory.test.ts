// The directory of managed accounts and keys, over both stores: what is kept, what is found, and what survives a
// restart.
import t, { type Test } from 'tap'
import { Directory, type KeyRecord, type TokenRecord, UnknownOutcome } from '../../src/accounts/directory.ts'
import { digestOf } from '../../src/accounts/digests.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import type { Change, Records } from '../../src/store/store.ts'
import { open } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'

const AT = Date.parse('2027-01-01T00:00:00Z')
const audit = { who: 'test', what: 'key.create' }

function record (secrets: readonly (string | readonly [string, string])[], more: Partial<KeyRecord> = {}): KeyRecord {
  return {
    settings: { id: 'dev', account: 'acme', frozen: false, streaming: true, routing_mode: 'premium',
      channels: ['premium'] },
    secrets: secrets.map((one) =>
      typeof one === 'string' ? { sha256: hex(one) } : { sha256: hex(one[0]), until: one[1] }
    ),
    shown: 'sk…',
    created_at: '2027-01-01T00:00:00.000Z',
    ...more
  }
}

const hex = (secret: string): string => digestOf(secret).toString('hex')
const find = (directory: Directory, secret: string): string | undefined => directory.findKey(digestOf(secret))?.id

for (const [driver, make] of [['memory', async () => new MemoryStore()], ['embedded',
  async (t: Test) => await open(t, folderFor(t))]] as const) {
  void t.test(`${driver}: a record and its audit line are kept together, or neither`, async (t) => {
    const store: Records = await make(t)
    const change = async (version: number, text: string): Promise<boolean> =>
      await store.change({ record: { kind: 'key', id: 'a', version, text }, audit: text })
    t.equal(await change(1, '"one"'), true)
    t.equal(await change(1, '"again"'), false, 'somebody was faster')
    t.equal(await change(3, '"gap"'), false)
    t.equal(await change(2, '"two"'), true)
    t.equal(await store.change({ audit: '"alone"' }), true)
    t.equal(await store.change({ record: { kind: 'account', id: 'a', version: 1, text: '"other"' }, audit: '"acc"' }),
      true, 'ids are of their kind')
    t.strictSame((await store.records()).map(({ kind, version, text }) => `${kind} ${version} ${text}`).toSorted(), [
      'account 1 "other"',
      'key 2 "two"'
    ])
    t.strictSame((await store.changes(0, 10)).map(({ id, text }) => [id, text]), [[1, '"one"'], [2, '"two"'], [3,
      '"alone"'], [4, '"acc"']])
    t.strictSame((await store.changes(1, 2)).map(({ id }) => id), [2, 3])
    t.strictSame((await store.newestChanges(undefined, 3)).map(({ id, text }) => [id, text]), [[4, '"acc"'], [3,
      '"alone"'], [2, '"two"']])
    t.strictSame((await store.newestChanges(2, 9)).map(({ id }) => id), [1])
    t.strictSame([await store.newestChanges(1, 9), await store.newestChanges(99, 1)].flat().map(({ id }) => id), [4])
    t.equal(await store.change({ record: { kind: 'token', id: 'a', version: 1, text: '"token"' } }), true)
    t.equal(await store.change({ record: { kind: 'token', id: 'a', version: 1, text: '"again"' } }), false)
    t.equal((await store.changes(0, 10)).length, 4, 'a record without a line')
    t.equal((await store.records()).length, 3)
  })
}

t.test('a key is found by each of its secrets until its time, and by none when it is deleted', async (t) => {
  let time = AT
  const directory = new Directory(new MemoryStore(), () => time)
  await directory.change(() => ({ key: record(['new', ['old', '2027-01-01T01:00:00.000Z']]), audit }))
  t.equal(find(directory, 'new'), 'dev')
  t.equal(find(directory, 'old'), 'dev')
  t.equal(find(directory, 'other'), undefined)
  time = AT + 3_600_000 - 1
  t.equal(find(directory, 'old'), 'dev', 'to the last millisecond of the grace')
  time++
  t.equal(find(directory, 'old'), undefined)
  t.equal(find(directory, 'new'), 'dev')
  await directory.change(() => ({ key: record(['new'], { expires_at: '2027-01-01T02:00:00Z' }), audit }))
  t.equal(find(directory, 'new'), 'dev')
  time = Date.parse('2027-01-01T02:00:00Z')
  t.equal(find(directory, 'new'), undefined, 'expired')
  time = AT
  await directory.change(() => ({ key: record([], { deleted_at: 'now' }), audit }))
  t.equal(find(directory, 'new'), undefined)
  t.equal(directory.keptKey('dev')?.version, 3)
  t.strictSame(directory.keptKeys(), [])
})

const token = (secret: string, more: Partial<TokenRecord> = {}): TokenRecord => ({
  id: 'tok_1', name: 'Ada', role: 'operator', sha256: hex(secret), shown: 'a…', created_at: '2027-01-01T00:00:00.000Z',
  ...more
})

for (const [driver, make] of [['memory', async () => new MemoryStore()], ['embedded',
  async (t: Test) => await open(t, folderFor(t))]] as const) {
  void t.test(`${driver}: a token is found by its secret until it ends; the hour of its last use is kept, once`, async (t) => {
    let time = AT
    const store = await make(t)
    const directory = new Directory(store, () => time)
    const find = (secret: string): string | undefined => directory.findToken(digestOf(secret))?.record.name
    await directory.change(() => ({ token: token('s', { expires_at: '2027-01-01T03:00:00Z' }), audit }))
    t.equal(find('s'), 'Ada')
    t.equal(directory.findKey(digestOf('s')), undefined, 'no key')
    for (let i = 0; i < 20; i++) directory.noteUse('tok_1')
    directory.noteUse('tok_of_nobody')
    await directory.change(() => ({ audit }))
    t.match(directory.keptToken('tok_1'), { version: 2, record: { last_used_at: '2027-01-01T00:00:00.000Z' } })
    time += 3_600_000
    directory.noteUse('tok_1')
    await directory.change(() => ({ audit }))
    const again = new Directory(store, () => time)
    await again.load()
    t.match(again.keptToken('tok_1'), { version: 3, record: { last_used_at: '2027-01-01T01:00:00.000Z' } })
    t.equal(again.findToken(digestOf('s'))?.id, 'tok_1', 'after a restart')
    time = Date.parse('2027-01-01T03:00:00Z')
    t.equal(find('s'), undefined, 'expired')
    time = AT
    const { sha256: _, ...revoked } = token('s')
    await directory.change(() => ({ token: { ...revoked, revoked_at: 'now' }, audit }))
    t.equal(find('s'), undefined)
    directory.noteUse('tok_1')
    await directory.change(() => ({ audit }))
    t.equal(directory.keptToken('tok_1')!.version, 4, 'who was revoked is not used')
    t.equal((await store.changes(0, 99)).length, 5, 'the audit log has what somebody did')
  })
}

t.test('what the version before has kept is read, and what a later one keeps is left alone', async (t) => {
  const store = new MemoryStore()
  const before = {
    account: '{"settings":{"id":"acme","name":"Acme","allow_fallback":true,"suspended":false,"opening_balance_usd":"0"},"created_at":"2026-11-22T12:00:00.000Z"}',
    key: `{"settings":{"id":"dev","account":"acme","frozen":false,"streaming":true,"routing_mode":"premium","channels":["premium","cheap"]},"secrets":[{"sha256":"${hex('s')}"}],"shown":"sk-gw-…abcd","created_at":"2026-11-22T12:00:00.000Z"}`
  }
  for (const [kind, id] of [['account', 'acme'], ['key', 'dev']] as const) {
    await store.change({ record: { kind, id, version: 1, text: before[kind] }, audit: '{}' })
  }
  await store.change({ record: { kind: 'session' as 'token', id: 'x', version: 1, text: 'what ever' } })
  const directory = new Directory(store, () => AT)
  await directory.load()
  await directory.load()
  t.equal(find(directory, 's'), 'dev')
  t.strictSame(directory.account('acme')?.closed, undefined)
  t.strictSame(directory.keptTokens(), [])
})

t.test('what is handed out is frozen, without secret, and another object after a change', async (t) => {
  const directory = new Directory(new MemoryStore(), () => AT)
  await directory.change(() => ({ key: record(['s']), audit }))
  const before = directory.findKey(digestOf('s'))!
  t.equal(before.secret, '***')
  t.equal(directory.findKey(digestOf('s')), before, 'the same until it changes')
  t.throws(() => { (before as { frozen: boolean }).frozen = true })
  t.throws(() => { (before.channels as string[]).push('cheap') })
  await directory.change(() => ({ key: record(['s']), audit }))
  t.not(directory.findKey(digestOf('s')), before)
})

t.test('changes at once are made one after the other, each on what the one before has left', async (t) => {
  const directory = new Directory(await open(t, folderFor(t)), () => AT)
  await directory.change(() => ({ key: record(['s']), audit }))
  await Promise.all(Array.from({ length: 20 }, async () => {
    await directory.change(() => {
      const { settings, ...rest } = directory.keptKey('dev')!.record
      return { key: { ...rest, settings: { ...settings, rate_limit: (settings.rate_limit ?? 0) + 1 } }, audit }
    })
  }))
  t.equal(directory.keptKey('dev')!.record.settings.rate_limit, 20)
})

t.test('a decision that throws changes nothing, and the next goes on', async (t) => {
  const directory = new Directory(new MemoryStore(), () => AT)
  await t.rejects(directory.change(() => { throw new Error('no') }), { message: 'no' })
  await directory.change(() => ({ key: record(['s']), audit }))
  t.equal(find(directory, 's'), 'dev')
})

t.test('a store that does not answer leaves what was; what it has kept is read before the next change', async (t) => {
  const store = new MemoryStore()
  let fails = false
  const lossy: Records = {
    records: () => store.records(),
    changes: (after, limit) => store.changes(after, limit),
    newestChanges: (before, limit) => store.newestChanges(before, limit),
    change (change: Change) {
      const isKept = store.change(change)
      if (fails) throw new Error('the answer was lost')
      return isKept
    }
  }
  const directory = new Directory(lossy, () => AT)
  await directory.change(() => ({ key: record(['one']), audit }))
  fails = true
  await t.rejects(directory.change(() => ({ key: record(['two']), audit })), UnknownOutcome)
  t.equal(find(directory, 'one'), 'dev', 'as it was')
  fails = false
  await directory.change(() => {
    t.equal(directory.keptKey('dev')!.version, 2, 'it was kept, as is seen now')
    return { key: record(['three']), audit }
  })
  t.equal(find(directory, 'two'), undefined)
  t.equal(find(directory, 'three'), 'dev')
})

t.test('a restart knows all of it, and the audit log can\'t be changed', async (t) => {
  const folder = folderFor(t)
  const first = await open(t, folder)
  const directory = new Directory(first, () => AT)
  await directory.change(() => ({ key: record(['s']), audit }))
  await directory.change(() => ({
    account: { settings: { id: 'acme', name: 'Acme', opening_balance_usd: '0', allow_fallback: true, suspended: false },
      created_at: 'now' },
    audit: { who: 'test', what: 'account.create' }
  }))
  await first.close()
  const second = await open(t, folder)
  const again = new Directory(second, () => AT)
  await again.load()
  t.equal(find(again, 's'), 'dev')
  t.equal(again.account('acme')?.name, 'Acme')
  t.strictSame((await second.changes(0, 9)).map(({ text }) => (JSON.parse(text) as { what: string, at: string })), [
    { at: '2027-01-01T00:00:00.000Z', who: 'test', what: 'key.create' },
    { at: '2027-01-01T00:00:00.000Z', who: 'test', what: 'account.create' }
  ])
  await second.close()
  const { DatabaseSync } = await import('node:sqlite')
  const db = new DatabaseSync(`${folder}/gateway.db`)
  t.throws(() => {
    db.exec('DELETE FROM audit')
  }, /append-only/)
  t.throws(() => {
    db.exec('UPDATE audit SET text = \'\'')
  }, /append-only/)
  t.notMatch(db.prepare('SELECT group_concat(text) AS all_of_it FROM records').get()!['all_of_it'], /"s"/,
    'no secret is kept')
  db.close()
})

void t.test('a record that can\'t be read is named', async (t) => {
  const store = new MemoryStore()
  await store.change({ record: { kind: 'key', id: 'broken', version: 1, text: '{"settings":' }, audit: 'x' })
  await t.rejects(new Directory(store, () => AT).load(),
    { message: /^the record of the key broken in the store can't be read: .*JSON/ })
})
