// A store as a version of the gateway has left it (test/fixtures/store/make.ts), put where it can be opened.
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { packageRoot } from '../../src/base/package.ts'
import { clientFor } from '../../src/store/redis/address.ts'
import { redisConfig } from './redis-store.ts'

/** When it was made: 2026-11-22, noon in UTC. */
export const MADE = Date.UTC(2026, 10, 22, 12)
export const DAY = '2026-11-22'
export const PREFIX = 'kept'

/** Puts back a key; what is no text is in base64. */
export type Command = readonly (string | { readonly base64: string })[]

export function folderOf (version: string): string {
  return join(packageRoot, 'test/fixtures/store', version)
}

/** The data folder. */
export function putFolder (version: string, to: string): void {
  const from = join(folderOf(version), 'embedded')
  for (const name of readdirSync(from)) {
    writeFileSync(join(to, name.slice(0, -'.gz'.length)), gunzipSync(readFileSync(join(from, name))))
  }
}

/** All keys, into an empty Redis; and the outbox beside them, into a data folder. */
export async function putRedis (version: string, url: string, to: string): Promise<void> {
  const from = join(folderOf(version), 'redis')
  const client = clientFor(redisConfig({ url }, { prefix: PREFIX }))
  await client.connect()
  for (const line of readFileSync(join(from, 'redis.jsonl'), 'utf8').trimEnd().split('\n')) {
    const [name, ...parts] = (JSON.parse(line) as Command).map(bytesOf)
    await client.call(String(name), ...parts)
  }
  client.disconnect()
  cpSync(join(from, 'outbox'), join(to, 'outbox'), { recursive: true })
}

function bytesOf (part: Command[number]): Buffer {
  return typeof part === 'string' ? Buffer.from(part) : Buffer.from(part.base64, 'base64')
}
