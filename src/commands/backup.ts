// `gateway store backup FILE`: of the gateway that runs, by way of its admin API, or of the store itself; the file gets
// its name when it is whole. `gateway store restore FILE`: where no gateway runs and no ledger is.
import { constants, existsSync } from 'node:fs'
import { open, rename, rm } from 'node:fs/promises'
import http from 'node:http'
import https from 'node:https'
import { hostname } from 'node:os'
import path from 'node:path'
import { once } from 'node:events'
import { json } from 'node:stream/consumers'
import type { Content, Restored } from '../store/backup.ts'
import { contentOf, type OpenStore, restoreStore } from '../store/open.ts'
import type { Config } from '../config/config.ts'
import { backupLine } from '../admin/api/store.ts'
import { CommandError, type Place } from './admin-client.ts'
import { opened, silent } from './opened-store.ts'
import { complain, print } from './stdout.ts'
import { self } from './self.ts'

const LEFT_OUT = `Not in it: the secrets in the data folder (seal-secret, link-secret, admin-token), images, kept responses, and
the log of requests. Keep those files beside it.
`

/** @returns the exit code. @throws {CommandError} there is no backup, and nothing in the place of the file */
export async function backUp (place: Place, file: string): Promise<number> {
  if (existsSync(file)) throw new CommandError(`${file} is there already: name another file.`)
  const destination = `${hostname()}:${path.resolve(file)}`.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, '?').slice(0, 300)
  const content = await keep(file, place.url === undefined
    ? ofStore(place.config, place.folder, destination)
    : ofGateway(place, destination))
  await print(`Backed up to ${file}: ${said(content)}.\n${LEFT_OUT}`)
  return 0
}

function said ({ entries, time }: Pick<Content, 'entries' | 'time'>): string {
  return entries === 0 ? 'no entries' : `${entries} entries, the last one of ${new Date(time).toISOString()}`
}

/** Writes a file under another name, and looks at it before it gets its own. */
async function keep (file: string, chunks: AsyncIterable<Uint8Array>): Promise<Pick<Content, 'entries' | 'time'>> {
  const partial = `${file}.partial`
  await rm(partial, { force: true })                          // of a command that was killed
  try {
    // It has accounts and the digests of keys: readable by its owner only.
    const target = await open(partial, 'wx', 0o600)
    try {
      for await (const chunk of chunks) await target.writeFile(chunk)
      await target.sync()
    } finally {
      await target.close()
    }
    const content = await contentOf(partial)
    if (existsSync(file)) throw new Error(`${file} is there already, since a moment ago`)
    await rename(partial, file)
    await syncFolder(path.dirname(file))
    return content
  } catch (thrown) {
    await rm(partial, { force: true })
    if (thrown instanceof CommandError) throw thrown
    throw new CommandError(`Nothing was backed up: ${(thrown as Error).message}.`, { cause: thrown })
  }
}

async function syncFolder (folder: string): Promise<void> {
  if (process.platform === 'win32') return
  const directory = await open(folder, constants.O_RDONLY)
  try { await directory.sync() } catch { /* not every file system can */ } finally { await directory.close() }
}

async function * ofStore (config: Config, folder: string, destination: string): AsyncIterable<Uint8Array> {
  const store = await opened(config, folder)
  try {
    if (store.backup === undefined) {
      throw new CommandError(`No gateway answers at ${config.server.admin.listen} (server.admin.listen), and what ` +
        `store.driver: ${config.store.driver} keeps ends with its process: there is nothing to back up.`)
    }
    await trace(store, destination)
    yield * store.backup.read(new AbortController().signal)
  } finally {
    await store.close()
  }
}

/** A copy of everything leaves a trace; but where that can't be written a backup is needed most. */
async function trace (store: OpenStore, destination: string): Promise<void> {
  const line = { at: new Date().toISOString(), ...backupLine(self(), destination) }
  try {
    await store.change({ audit: JSON.stringify(line) })
  } catch (thrown) {
    complain(`This backup is not in the audit log: ${(thrown as Error).message}`)
  }
}

/** Without a limit of time: the gateway answers when its copy is made. */
async function * ofGateway (
  { url, token }: Extract<Place, { token: string }>, destination: string
): AsyncIterable<Uint8Array> {
  const { get } = url.startsWith('https:') ? https : http
  const request = get(`${url}/admin/v1/store/backup?${new URLSearchParams({ destination })}`, { agent: false,
    headers: { authorization: `Bearer ${token}` } })
  let answer: http.IncomingMessage
  try {
    [answer] = await once(request, 'response') as [http.IncomingMessage]
  } catch (cause) {
    throw new CommandError(`The gateway at ${url} did not answer: ${(cause as Error).message}.`, { cause })
  }
  if (answer.statusCode !== 200) {
    const body = await json(answer).catch(() => undefined) as { error?: { message?: string } } | undefined
    throw new CommandError(body?.error?.message ?? `The gateway at ${url} answered with ${answer.statusCode}.`)
  }
  try {
    yield * answer as AsyncIterable<Buffer>
  } catch (cause) {
    throw new CommandError(`Nothing was backed up: the gateway at ${url} ended before its backup did.`, { cause })
  } finally {
    answer.destroy()
  }
}

/** @returns false: it is no database but a file of rows. @throws {CommandError} nothing was restored */
export async function restore ({ store }: Config, folder: string, file: string): Promise<boolean> {
  let restored: Restored | undefined
  try {
    restored = await restoreStore(store, folder, file, silent, Date.now())
  } catch (cause) {
    throw new CommandError(`Nothing was restored from ${file}: ${(cause as Error).message}.`, { cause })
  }
  if (restored === undefined) return false
  await print(`Restored from ${file}: ${said(restored)}; the ledger is right.\n${lostSince(restored)}`)
  return true
}

function lostSince ({ seq, time, before }: Restored): string {
  if (before === undefined || before.seq < 0) {
    return 'What was charged after that is lost, if anything was: the folder does not know how far its ledger had come.\n'
  }
  if (before.seq <= seq) return 'Nothing is lost: the ledger of this folder had come no further.\n'
  const from = seq < 0 ? 'the beginning' : new Date(time).toISOString()
  return `Lost: some ${before.seq - seq} entries, charged and booked from ${from} to ${new Date(before.time).toISOString()}.\n`
}
