// A ledger of a million entries, as a gateway of 90 days has it: for the experiment that asks every page.
import { noUsage } from '../../src/money/usage.ts'
import { fillFolder } from '../../src/store/embedded/import.ts'
import type { Row } from '../../src/store/transfer.ts'
import { seededRandom } from './statistics.ts'

const DAY_MS = 86_400_000
const DAYS = 90
const ACCOUNTS = 60
const MODELS = 8
const CHANNELS = ['premium', 'economy'] as const
const VIDEOS = 20_000
const AUDIT_LINES = 5000
export const ENTRIES = 1_000_000

/** As many as a series of 30 days by key may show: nearly 10,000 rows. */
export const KEYS = 320

export const keyId = (i: number): string => `key-${String(i).padStart(3, '0')}`
export const accountId = (i: number): string => `account-${String(i % ACCOUNTS).padStart(2, '0')}`
export const accountIds: readonly string[] = Array.from({ length: ACCOUNTS }, (_, i) => accountId(i))

/** Each key has three models that it calls, each in its channel; few keys make most of the requests. */
async function * rows (entries: number, now: number): AsyncIterable<Row> {
  const random = seededRandom(14)
  const step = DAYS * DAY_MS / entries
  const begin = now - DAYS * DAY_MS
  const at = (time: number): string => new Date(time).toISOString()
  const none = Object.freeze({})
  for (const account of accountIds) {
    yield { of: 'entry', value: { id: '', kind: 'credit', account, reference: `credit:${account}:seed`,
      nanos: 1_000_000_000_000_000n, at: at(begin) } }
  }
  for (let i = 0; i < entries - ACCOUNTS; i++) {
    const key = Math.floor(random() ** 1.5 * KEYS)
    const called = key + Math.floor(random() ** 2 * 3)
    const time = begin + Math.floor(i * step)
    const output = Math.floor(random() * 900)
    yield { of: 'entry', value: { id: '', kind: 'settle', account: accountId(key), key: keyId(key),
      reference: `req_${String(i).padStart(22, '0')}`, nanos: BigInt(-1000 * output - 777), at: at(time),
      model: `model-${called % MODELS}`, channel: CHANNELS[called % CHANNELS.length]!, day: at(time).slice(0, 10),
      usage: { ...noUsage, input: 1000 + output, output, extras: none }, usage_source: 'provider',
      price_version: '2026-11-21' } }
  }
  for (let i = 0; i < VIDEOS; i++) {
    const created = now - Math.floor((VIDEOS - i) / VIDEOS * 7 * DAY_MS)
    const status = i % 200 === 0 ? 'failed' : 'completed'
    yield { of: 'task', value: { id: `video_${Math.floor(random() * 1e9)}_${i}`, request_id: `req_video_${i}`,
      account: accountId(i), key: keyId(i % KEYS), created, nanos: 400_000_000n, is_open: false,
      text: JSON.stringify({ status, progress: 100, model: 'video-1', prompt: 'A cat that plays the piano. '.repeat(10),
        seconds: '8', size: '1280x720', channel: 'premium', upstream: 'bench', url: 'http://127.0.0.1', ended: created,
        upstream_id: `up_${i}`, ...(status === 'failed' && { error: { code: 'server_error', message: 'No.' } }) }) } }
  }
  for (let i = 0; i < AUDIT_LINES; i++) {
    yield { of: 'audit', value: { id: i + 1, text: JSON.stringify({ at: at(begin + i * 1000), actor: 'bench',
      action: 'key.update', target: keyId(i % KEYS), result: 'ok' }) } }
  }
}

/** Makes the ledger in an empty folder. @param now milliseconds since the epoch: of the newest entry */
export async function seed (folder: string, now: number, entries = ENTRIES): Promise<void> {
  await fillFolder(folder, rows(entries, now))
}
