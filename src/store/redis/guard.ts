// Notices a Redis that has lost the ledger: one that is empty or another one, or that went back to a state so old that
// the outboxes can't make up for it. A file beside the outbox says what Redis knew last. Where it knows less, nothing
// that costs is served until an operator accepts the loss (src/README.md#settle-once).
//
// {PREFIX}:guard  hash   id of the ledger; outbox:ID, up to which message each outbox was acknowledged; at, the newest
//                        time by Redis's clock; lost, why no gateway serves; accepted:ID of ledgers that were given up
//
// In a cluster it sees a loss at the server that has this key.
import { randomUUID } from 'node:crypto'
import { readFile, rename, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Space } from './keyspace.ts'

/** What Redis knew when it answered last. */
interface Mark {
  readonly id: string
  /** id of this folder's outbox */
  readonly outbox: string
  /** all its messages up to this number were acknowledged */
  readonly number: number
  /** messages of all outboxes */
  readonly total: number
  /** milliseconds since the epoch, by Redis's clock */
  readonly at: number
}

export interface GuardedOutbox {
  /** all messages up to this number are acknowledged */
  readonly acknowledgedUpTo: number
  /** whether all messages from this one on can be sent again */
  keeps (from: number): boolean
}

/** Outboxes keep messages for ten minutes. A Redis that went back further may lack some of a gateway that is gone. */
const SENT_AGAIN_MS = 480_000
/** Milliseconds after which the file is written though only the time has changed. */
const WRITE_MS = 60_000

const NAME = 'ledger.json'

export class LedgerGuard {
  readonly #file: string
  readonly #space: Space
  #mark: Mark | undefined
  #loss: string | undefined

  /** @param space whose commands pass before Redis serves @throws {Error} the file can't be read */
  static async open (outboxFolder: string, space: Space): Promise<LedgerGuard> {
    const file = path.join(outboxFolder, NAME)
    return new LedgerGuard(file, space, await readMark(file))
  }

  private constructor (file: string, space: Space, mark: Mark | undefined) {
    this.#file = file
    this.#space = space
    this.#mark = mark
  }

  /** Why nothing that costs may be served, in words for the operator. */
  get loss (): string | undefined {
    return this.#loss
  }

  /**
   * Compares what Redis knows with what it knew.
   * @param outbox undefined: messages are being sent again, so only the identity counts
   * @returns behind: messages that Redis lacks are in the outbox, and must be sent again
   * @throws {AwayError}
   */
  async check (outbox: GuardedOutbox | undefined): Promise<'same' | 'behind' | 'lost'> {
    const known = await this.#read()
    const mark = this.#mark
    if (known['lost'] !== undefined) return await this.#lose(known['lost'], true)
    if (mark === undefined || known[`accepted:${mark.id}`] !== undefined) {
      await this.#adopt(known['id'])
      return mark === undefined ? 'same' : 'behind'
    }
    if (known['id'] === undefined) return await this.#lose('Redis is empty, or knows nothing of this ledger any more')
    if (known['id'] !== mark.id) return await this.#lose('Redis has another ledger than before')
    this.#loss = undefined
    if (outbox === undefined) return 'same'
    const number = Number(known[`outbox:${mark.outbox}`] ?? 0)
    const at = Number(known['at'] ?? 0)
    if (
      (number < mark.number && !outbox.keeps(number + 1)) ||
      (totalOf(known) < mark.total && mark.at - at > SENT_AGAIN_MS)
    ) {
      return await this.#lose(
        `Redis went back from ${new Date(mark.at).toISOString()} to ${new Date(at).toISOString()} or before, ` +
        'which is more than the outboxes can send again'
      )
    }
    if (number < mark.number) return 'behind'
    await this.#note(outbox.acknowledgedUpTo)
    return 'same'
  }

  async #read (): Promise<Readonly<Record<string, string>>> {
    return await this.#space.link.early.call(async (client) => await client.hgetall(keyOf(this.#space)))
  }

  /** The other gateways find the loss in Redis, also those that never knew the ledger. */
  async #lose (why: string, isNoted = false): Promise<'lost'> {
    this.#loss = why
    if (!isNoted) {
      await this.#space.link.early.call(async (client) => await client.hsetnx(keyOf(this.#space), 'lost', why))
    }
    return 'lost'
  }

  /** A ledger of a version without marks gets its id here. */
  async #adopt (found: string | undefined): Promise<void> {
    const key = keyOf(this.#space)
    if (found === undefined) {
      await this.#space.link.early.call(async (client) => await client.hsetnx(key, 'id', randomUUID()))
    }
    const id = found ?? (await this.#read())['id']!
    await this.#write({ id, outbox: this.#mark?.outbox ?? randomUUID(), number: 0, total: 0, at: 0 })
    this.#loss = undefined
  }

  /** First in Redis, then in the file: what the file says Redis has known. */
  async #note (number: number): Promise<void> {
    const mark = this.#mark!
    const result = await this.#space.link.early.run('mark', keyOf(this.#space), this.#space.time, mark.id,
      `outbox:${mark.outbox}`, number) as readonly [string, string] | null
    if (result === null) return
    const [at, total] = result.map(Number) as [number, number]
    if (number === mark.number && total === mark.total && at - mark.at < WRITE_MS) return
    await this.#write({ ...mark, number, total, at })
  }

  async #write (mark: Mark): Promise<void> {
    const beside = `${this.#file}.new`
    await writeFile(beside, JSON.stringify(mark), { mode: 0o600 })
    await rename(beside, this.#file)
    this.#mark = mark
  }
}

/**
 * Accepts that the ledger is lost, for all gateways that knew it: each goes on with what Redis has, and sends it the
 * messages that its outbox still has.
 * @param folders of outboxes
 * @returns whether a loss was noted
 */
export async function acceptLedger (space: Space, folders: readonly string[]): Promise<boolean> {
  const key = keyOf(space)
  const marks = await Promise.all(folders.map(async (folder) => await readMark(path.join(folder, NAME))))
  const known = await space.link.call(async (client) => await client.hgetall(key))
  const given = [known['id'], ...marks.map((mark) => mark?.id)].filter((id) => id !== undefined)
  if (known['lost'] === undefined && given.every((id) => id === known['id'] || known[`accepted:${id}`] !== undefined)) {
    return false
  }
  await space.link.call(async (client) => await client.multi()
    .hdel(key, 'lost', 'at', ...Object.keys(known).filter((name) => name.startsWith('outbox:')))
    .hset(key, 'id', randomUUID(), ...given.flatMap((id) => [`accepted:${id}`, '1']))
    .exec())
  return true
}

function keyOf (space: Space): string {
  return space.shared('guard')
}

function totalOf (known: Readonly<Record<string, string>>): number {
  return Object.entries(known).reduce((sum, [name, number]) => name.startsWith('outbox:') ? sum + Number(number) : sum,
    0)
}

async function readMark (file: string): Promise<Mark | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Mark
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new Error(`${file} can't be read: ${(thrown as Error).message}. Restore it from a backup; without it a ` +
      'loss in Redis is not noticed', { cause: thrown })
  }
}
