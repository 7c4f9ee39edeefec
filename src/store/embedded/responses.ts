// Kept responses of the embedded driver: a sealed file for each, in a folder beside the ledger. Their names say whose
// they are, their times of change when they end, so that the next start knows them without reading them; it reads the
// folder beside what it serves. A file is renamed when it is whole: a kill leaves a part, which the next start removes.
import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Logger } from 'pino'
import { GatewayError } from '../../errors.ts'
import { type Place, Shelf } from '../local/shelf.ts'
import type { Life, ResponseStore } from '../responses.ts'

/** Bytes of all accounts together. */
const SPACE = 10 * 1024 ** 3
const SWEEP_MS = 60_000
/** Files looked at, or removed, at a time. */
const AT_ONCE = 64
const OWNER_LETTERS = 32
const PART = '.part'
/** the account's hash, and the response's id */
const NAME = /^([0-9a-f]{32})-(\w{1,64})$/

export interface FolderOptions {
  /** created with the first response */
  readonly folder: string
  readonly now: () => number
  readonly log: Pick<Logger, 'error'>
  readonly space?: number
}

export class FolderResponses implements ResponseStore {
  readonly #folder: string
  readonly #now: () => number
  readonly #log: FolderOptions['log']
  readonly #shelf: Shelf<Place>
  /** ends when the files of the process before this one are known */
  #ready: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined

  constructor ({ folder, now, log, space = SPACE }: FolderOptions) {
    this.#folder = folder
    this.#now = now
    this.#log = log
    this.#shelf = new Shelf(space, now)
  }

  /** Called first, when the folder is this process's own. Calls wait until its files are known. */
  start (): void {
    this.#ready = this.#load().catch((err: unknown) => { this.#report(err, 'kept responses could not be read') })
    this.#timer = setInterval(() => { void this.sweep() }, SWEEP_MS).unref()
  }

  async keep (account: string, id: string, bytes: Buffer, { life, space }: Life): Promise<boolean> {
    await this.#ready
    if (bytes.length > space) return false
    const place = { owner: ownerOf(account), id, bytes: bytes.length, expires: this.#now() + life }
    const file = this.#fileOf(place)
    try {
      await this.#write(file + PART, bytes)
      await utimes(file + PART, this.#now() / 1000, place.expires / 1000)
      await rename(file + PART, file)
    } catch (thrown) {
      await rm(file + PART, { force: true }).catch(() => {})
      throw thrown
    }
    // When the file is whole: what is on the shelf can be read.
    const gone = this.#shelf.add(place, space)
    await this.#remove((gone ?? [place]).filter((other) => gone === undefined || this.#fileOf(other) !== file))
    return gone !== undefined
  }

  async #write (file: string, bytes: Buffer): Promise<void> {
    try {
      await writeFile(file, bytes, { mode: 0o600 })
    } catch (thrown) {
      if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') throw thrown
      await mkdir(this.#folder, { recursive: true, mode: 0o700 })
      await writeFile(file, bytes, { mode: 0o600 })
    }
  }

  async find (account: string, id: string): Promise<Buffer | undefined> {
    await this.#ready
    const place = this.#shelf.find(ownerOf(account), id)
    if (place === undefined) return undefined
    try {
      return await readFile(this.#fileOf(place))
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') {
        throw new GatewayError('service_unavailable', { cause })
      }
      this.#shelf.remove(place)                               // somebody has removed it
      return undefined
    }
  }

  async prolong (account: string, id: string, life: number): Promise<void> {
    await this.#ready
    const place = this.#shelf.find(ownerOf(account), id)
    if (place === undefined) return
    this.#shelf.use(place, this.#now() + life)
    await utimes(this.#fileOf(place), this.#now() / 1000, place.expires / 1000)
  }

  async drop (account: string, id: string): Promise<boolean> {
    await this.#ready
    const place = this.#shelf.find(ownerOf(account), id)
    if (place === undefined) return false
    try {
      await rm(this.#fileOf(place), { force: true })
    } catch (cause) {
      throw new GatewayError('service_unavailable', { cause })
    }
    this.#shelf.remove(place)
    return true
  }

  /** Removes what is over. Never rejects. */
  async sweep (): Promise<void> {
    await this.#ready
    await this.#remove(this.#shelf.sweep())
  }

  async close (): Promise<void> {
    clearInterval(this.#timer)
    await this.#ready
  }

  async #load (): Promise<void> {
    const names = await readdir(this.#folder).catch((thrown: unknown) => {
      if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return []
      throw thrown
    })
    const found: Place[] = []
    for (let i = 0; i < names.length; i += AT_ONCE) {
      await Promise.all(names.slice(i, i + AT_ONCE).map(async (name) => {
        const file = path.join(this.#folder, name)
        const [, owner, id] = NAME.exec(name) ?? []
        if (owner !== undefined && id !== undefined) {
          const { size, mtimeMs } = await stat(file)
          found.push({ owner, id, bytes: size, expires: mtimeMs })
        } else if (name.endsWith(PART)) await rm(file, { force: true })
      }))
    }
    // What ends first was used longest ago.
    for (const place of found.toSorted((a, b) => a.expires - b.expires)) {
      await this.#remove(this.#shelf.add(place, Infinity) ?? [place])
    }
    await this.#remove(this.#shelf.sweep())
  }

  async #remove (places: readonly Place[]): Promise<void> {
    for (let i = 0; i < places.length; i += AT_ONCE) {
      await Promise.all(places.slice(i, i + AT_ONCE).map(async (place) => {
        await rm(this.#fileOf(place), { force: true }).catch((err: unknown) => {
          this.#report(err, 'a kept response could not be removed')
        })
      }))
    }
  }

  #report (err: unknown, what: string): void {
    this.#log.error({ err }, what)
  }

  /** No part of a forged id becomes part of a path: what is found was made here. */
  #fileOf ({ owner, id }: Place): string {
    return path.join(this.#folder, `${owner}-${id}`)
  }
}

function ownerOf (account: string): string {
  return createHash('sha256').update(account).digest('hex').slice(0, OWNER_LETTERS)
}
