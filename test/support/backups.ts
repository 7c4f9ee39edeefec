// What the tests of backups share: ledgers with something in them, and backups of whatever lies in a file.
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { fillFolder } from '../../src/store/embedded/import.ts'
import { backupOf, copyIn } from '../../src/store/embedded/backup.ts'
import type { Row } from '../../src/store/transfer.ts'
import { freePort } from './free-port.ts'
import { yaml } from './gateway-command.ts'
import { folderFor } from './spawned.ts'

const KEY = 'sk-gw-' + 'k'.repeat(32)
const RICH = `accounts: [{ id: acme, opening_balance_usd: 10 }]
keys: [{ id: dev, account: acme, secret: ${KEY} }]
`

/** A data folder with so many charges: a hundred thousand are some 30 MB. */
export async function filled (folder: string, charges: number): Promise<void> {
  const account = 'old'
  const rows = async function* (): AsyncIterable<Row> {
    const of = (i: number): { readonly id: string, readonly account: string, readonly at: string } => ({
      id: `${i}`, account, at: new Date(Date.UTC(2026, 0, 1) + i * 10).toISOString()
    })
    yield { of: 'entry', value: { ...of(0), kind: 'credit', reference: `opening:${account}`, nanos: 1_000_000_000n } }
    for (let i = 1; i <= charges; i++) {
      yield { of: 'entry', value: { ...of(i), kind: 'settle', key: `k${i % 7}`, reference: `old-${i}`, nanos: -3n,
        model: 'm', channel: 'premium', usage_source: 'provider', day: '2026-01-01',
        usage: { input: i, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, output: 1, extras: {} } } }
    }
  }
  await fillFolder(folder, rows())
}

/** Makes a backup of a database that nobody has open, whatever it is. */
export async function backupFile (folder: string, database: string, name = 'made.backup'): Promise<string> {
  const made = backupOf(folder, async () => {
    mkdirSync(copyIn(folder).folder)
    copyFileSync(database, copyIn(folder).file)
  })
  const file = join(folder, name)
  writeFileSync(file, await bytesOf(made.read(new AbortController().signal)))
  return file
}

export async function bytesOf (all: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  for await (const chunk of all) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/** A folder with gateway.yaml, and a data folder with so many charges. */
export async function prepared (t: Test, charges: number): Promise<string> {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) + RICH })
  await filled(join(folder, 'data'), charges)
  return folder
}

/** Requests one after the other, until the end. */
export class Load {
  /** ids of requests whose answers have come */
  readonly answered: string[] = []
  isOver = false
  readonly #ended: Promise<unknown>

  constructor (api: string) {
    this.#ended = Promise.all(Array.from({ length: 2 }, async () => {
      while (!this.isOver) {
        const got = await fetch(`${api}/v1/messages`, {
          method: 'POST', headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
          body: JSON.stringify({ model: 'm1', max_tokens: 5, messages: [{ role: 'user', content: 'Hello' }] })
        }).catch(() => undefined)
        if (got?.status !== 200) { await pause(5); continue }
        await got.text()
        this.answered.push(got.headers.get('request-id')!)
        await pause(10)
      }
    }))
  }

  async end (): Promise<void> {
    this.isOver = true
    await this.#ended
  }
}

/** Whether something of a backup lies in the data folder, or beside the file that it was to be. */
export function isLeft (folder: string, file: string): boolean {
  return existsSync(copyIn(join(folder, 'data')).folder) || existsSync(file) || existsSync(`${file}.partial`)
}
