// What the tests of the embedded store share: opening one, and asking it.
import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { noUsage } from '../../src/money/usage.ts'
import { openEmbedded, type EmbeddedOptions } from '../../src/store/embedded/store.ts'
import type { LocalStore } from '../../src/store/local/store.ts'
import type { HoldRequest, Settlement } from '../../src/store/store.ts'
import { folderFor } from './spawned.ts'

type Log = EmbeddedOptions['log'] & { readonly lines: string[], readonly errors: Error[], readonly about: object[] }

export function newLog (): Log {
  const lines: string[] = []
  const errors: Error[] = []
  const abouts: object[] = []
  const write = (about: unknown, text?: string): void => {
    lines.push(text ?? String(about))
    if (typeof about === 'object' && about !== null) abouts.push(about)
    if (typeof about === 'object' && about !== null && 'err' in about) errors.push(about.err as Error)
  }
  return { lines, errors, about: abouts, info: write, warn: write, error: write } as Log
}

/** Closed with the test, if not before. */
export async function open (t: Test, folder: string, options: Partial<EmbeddedOptions> = {}): Promise<LocalStore> {
  const store = await openEmbedded({ folder, log: newLog(), ...options })
  t.teardown(() => store.close())
  return store
}

export function request (id: string, nanos: bigint, more: Partial<HoldRequest> = {}): HoldRequest {
  return { request_id: id, account: 'acme', key: 'dev', nanos, ...more }
}

export function settlement (id: string, nanos: bigint, more: Partial<Settlement> = {}): Settlement {
  return { request_id: id, nanos, model: 'm', channel: 'premium', usage: noUsage, usage_source: 'provider', ...more }
}

/** As a kill leaves it: what is committed, and no more. */
export function copied (t: Test, folder: string): string {
  const copy = folderFor(t)
  for (const name of ['gateway.db', 'gateway.db-wal']) copyFileSync(join(folder, name), join(copy, name))
  return copy
}
