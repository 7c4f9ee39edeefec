// What administrators send and read: bodies, tables, imports and the log of requests, of growing size (rule growth).
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { growsTooFast } from '../support/growth.ts'
import { csvOf } from '../../src/admin/api/csv.ts'
import { parseJson } from '../../src/admin/body.ts'
import { judge, keyPatch, newAccount, newKey, question, trial } from '../../src/admin/api/schemas.ts'
import { Refusal } from '../../src/admin/api/refusal.ts'
import { linesOf } from '../../src/base/lines.ts'
import { createRequestId } from '../../src/base/request-id.ts'
import { Inventory, readRow } from '../../src/store/transfer.ts'
import { search } from '../../src/telemetry/requests/search.ts'

const many = <T>(size: number, make: (i: number) => T): T[] => Array.from({ length: size }, (_, i) => make(i))
const json = (value: unknown): string => JSON.stringify(value)
const named = (size: number, value: unknown): object => Object.fromEntries(many(size, (i) => [`name-${i}`, value]))

/** Bodies by number of their values. */
const BODIES: Readonly<Record<string, (size: number) => string>> = {
  'allowed models': (size) => json({ id: 'k', account: 'a', allowed_models: many(size, (i) => `m-${i}`) }),
  'models that are no texts': (size) => json({ id: 'k', account: 'a', allowed_models: many(size, (i) => i) }),
  'allowed origins': (size) => json({ id: 'k', account: 'a', allowed_origins: many(size, () => '://://*') }),
  'a long origin': (size) => json({ id: 'k', account: 'a', allowed_origins: ['://'.repeat(size) + '*'] }),
  'unknown fields': (size) => json({ id: 'k', account: 'a', ...named(size, 1) }),
  'a long id': (size) => json({ id: 'a'.repeat(size) + '!', account: 'a' }),
  'a long name': (size) => json({ id: 'a', name: ' '.repeat(size) }),
  tags: (size) => json({ id: 'a', tags: many(size, (i) => `t-${i}`) }),
  messages: (size) => json({ key: 'k', body: { messages: many(size, () => ({ role: 'user', content: 'x' })) } }),
  'a long amount': (size) => json({ id: 'k', account: 'a', usage_limit_usd: '9'.repeat(size) }),
  'nested lists': (size) => '['.repeat(size) + ']'.repeat(size),
  'nested objects': (size) => '{"a":'.repeat(size) + '1' + '}'.repeat(size),
  'lists that do not end': (size) => '['.repeat(size),
  'keys of one object': (size) => json(named(size, 'x')),
  'the same key': (size) => `{${many(size, () => '"a":1').join(',')}}`,
  'quotation marks': (size) => json('"'.repeat(size)),
  escapes: (size) => `"${'\\u0041'.repeat(size)}"`
}

t.test('bodies', async (t) => {
  const judges = [newKey, keyPatch, newAccount, question, trial].map(judge)
  for (const [name, input] of Object.entries(BODIES)) {
    const run = async (text: string): Promise<void> => {
      for (const validate of judges) {
        try {
          validate(await parseJson([Buffer.from(text)]))
        } catch (thrown) {
          if (!(thrown instanceof Refusal)) throw thrown
        }
      }
    }
    t.equal(await growsTooFast({ input, run, from: 2000 }), undefined, name)
  }
})

t.test('tables', async (t) => {
  const cells = ['a', '"', ',', '\r\n', '=1', ' ', '\'', 'é']
  for (const cell of cells) {
    t.equal(await growsTooFast({ from: 20_000, input: (size) => many(size, () => [cell, 1, null, cell]),
      run: (rows: readonly unknown[][]) => csvOf(rows, ['a', 'b', 'c', 'd']) }), undefined, `rows of ${json(cell)}`)
    t.equal(await growsTooFast({ from: 100_000, input: (size) => [[cell.repeat(size)]],
      run: (rows: readonly unknown[][]) => csvOf(rows, ['a']) }), undefined, `a long cell of ${json(cell)}`)
  }
})

t.test('files that are imported', async (t) => {
  const file = join(t.testdir(), 'rows.jsonl')
  const entry = (i: number): string => json({ entry: { id: i, account: `a-${i}`, key: `k-${i}`, nanos: '1' } })
  const FILES: Readonly<Record<string, (size: number) => string>> = {
    entries: (size) => many(size, entry).join('\n') + '\n',
    'one account': (size) => many(size, () => entry(1)).join('\n') + '\n',
    'one long line': (size) => `${json({ record: { name: 'x'.repeat(size * 50) } })}\n`,
    'no end of a line': (size) => 'x'.repeat(size * 50),
    'empty lines': (size) => '\n'.repeat(size),
    'many fields': (size) => json({ record: named(size, 1) }) + '\n'
  }
  for (const [name, text] of Object.entries(FILES)) {
    t.equal(await growsTooFast({ from: 4000, input: (size) => { writeFileSync(file, text(size)) },
      async run () {
        const inventory = new Inventory()
        for await (const { bytes } of linesOf(file)) {
          try {
            inventory.add(readRow(bytes.toString()))
          } catch (thrown) {
            if (!(thrown instanceof Error)) throw thrown
          }
        }
      } }), undefined, name)
  }
})

t.test('the log of requests', async (t) => {
  const line = (account: string): string => json([createRequestId(), account, 'k', ...many(24, () => 1)])
  const LOGS: Readonly<Record<string, (size: number) => string>> = {
    requests: (size) => many(size, () => line('a')).join('\n') + '\n',
    'requests of others': (size) => many(size, () => line('b')).join('\n') + '\n',
    'damaged lines': (size) => many(size, () => `["${createRequestId()}","a`).join('\n'),
    'one long line': (size) => `["${createRequestId()}","a","${'x'.repeat(size * 50)}"]\n`,
    'ends of lines': (size) => '\n'.repeat(size)
  }
  for (const [name, text] of Object.entries(LOGS)) {
    for (const query of [{}, { account: 'a' }, { account: 'a', model: 'm' }]) {
      const run = async (kept: string): Promise<void> => {
        const files = { names: async () => ['open-0.jsonl'], read: async () => kept }
        await search(files as never, { limit: 100, ...query }, 0)
      }
      t.equal(await growsTooFast({ from: 10_000, input: text, run }), undefined, `${name}, ${json(query)}`)
    }
  }
})
