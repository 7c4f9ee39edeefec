// `gateway store export FILE`, `gateway store import FILE`: moves a store's whole content into another one, such as
// from the embedded store to Redis. No gateway runs meanwhile. Any difference between the two sides is reported, and
// nothing is half-moved.
import { createWriteStream } from 'node:fs'
import { rm } from 'node:fs/promises'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { parseArgs } from 'node:util'
import type { Logger } from 'pino'
import { createLogger } from '../telemetry/log.ts'
import type { Config } from '../config/config.ts'
import { loadConfig } from '../config/load/load.ts'
import { ConfigError } from '../config/problem.ts'
import { nearest } from '../config/check/suggest.ts'
import { formatUsd } from '../money/nanos.ts'
import { version } from '../base/package.ts'
import { linesOf } from '../base/lines.ts'
import { Inventory, readRow, type Row, rowsOf, type Total, writeRow } from '../store/transfer.ts'
import { acceptLoss as acceptStoreLoss, fillStore, openStore, type OpenStore, traitsOf } from '../store/open.ts'
import type { Verification } from '../store/store.ts'
import { deliverLeftovers } from '../cluster/orphaned-outboxes.ts'
import type { CommandParts } from './command.ts'
import { CommandError, nearGateway } from './admin-client.ts'
import { print } from './stdout.ts'
import { table } from './print.ts'

const USAGE =
  `Usage: gateway store export FILE [--config FILE]    all that the store keeps, as JSON lines; FILE must be new
       gateway store import FILE [--config FILE]    into a store that is empty, or whose ledger is lost
       gateway store new --accept-loss [--config FILE]    where the ledger of the data folder is lost: the next start begins a new one
`

const FORMAT = 'model-gateway store'
const FORMAT_VERSION = 1

/** The first line. The last one repeats its numbers. */
interface Header extends Pick<Verification, 'entries' | 'accounts' | 'keys'> {
  readonly format: string
  readonly version: number
  readonly driver: string
  readonly gateway: string
  /** ISO 8601 */
  readonly at: string
}

const silent = createLogger('silent', { write () {} })

/** @returns the exit code: 0 done and the same on both sides, 1 refused or failed */
export async function storeCommand (
  [verb = '', ...args]: readonly string[],
  { locate, pluginsUrl, load = loadConfig }: Omit<CommandParts, 'plugins'>
): Promise<number> {
  const { values, positionals: [file, ...more] } = parseArgs({ args: [...args], allowPositionals: true,
    options: { config: { type: 'string', short: 'c' }, 'accept-loss': { type: 'boolean' },
      help: { type: 'boolean', short: 'h' } } })
  const verbs: Readonly<Record<string, typeof exportStore>> = { export: exportStore, import: importStore,
    new: acceptLoss }
  const run = Object.hasOwn(verbs, verb) ? verbs[verb] : undefined
  if (values.help === true || ['--help', '-h', 'help'].includes(verb)) { await print(USAGE); return 0 }
  if (run === undefined && verb !== '') {
    const near = nearest(verb, Object.keys(verbs))
    console.error(`There is no command "store ${verb}"${near === undefined ? '.' : `: did you mean "${near}"?`}\n`)
  }
  const isNew = verb === 'new' && values['accept-loss'] === true
  if (run === undefined || (isNew ? file !== undefined : file === undefined || verb === 'new') || more.length > 0) {
    console.error(USAGE)
    return 1
  }
  try {
    const { file: configFile, base } = locate(values.config)
    const loaded = await load(configFile, { pluginsUrl })
    if (loaded.kind === 'invalid') {
      throw new CommandError(`The configuration can't be used:\n${new ConfigError(loaded.problems).message}`)
    }
    const { config } = loaded
    if (!traitsOf(config.store).isLasting) {
      throw new CommandError(`What store.driver: ${config.store.driver} keeps ends with its process: ` +
        'there is nothing to export, and nowhere to import to.')
    }
    const near = await nearGateway(config)
    if (near !== undefined) {
      throw new CommandError(`A gateway runs at ${near}: stop it first, and all others that share its store.`)
    }
    return await run(config, path.resolve(base, config.store.path), file ?? '')
  } catch (thrown) {
    if (!(thrown instanceof CommandError)) throw thrown
    console.error(thrown.message)
    return 1
  }
}

async function exportStore (config: Config, folder: string, file: string): Promise<number> {
  if (traitsOf(config.store).isShared) await deliverAll(config, folder)
  const store = await opened(config, folder)
  const inventory = new Inventory()
  try {
    await refuseBusy(store)
    const { entries, accounts, keys } = await verified(store, 'is not exported')
    const header: Header = { format: FORMAT, version: FORMAT_VERSION, driver: config.store.driver, gateway: version,
      at: new Date().toISOString(), entries, accounts, keys }
    const lines = async function* (): AsyncIterable<string> {
      yield JSON.stringify(header) + '\n'
      for await (const row of rowsOf(store)) {
        inventory.add(row)
        yield writeRow(row) + '\n'
      }
      const { entries: written } = inventory.total
      if (written !== entries) {
        throw new CommandError(
          `The store changed while it was exported (${entries} entries before, ${written} after): ` +
          'a gateway runs on it. Stop it first.'
        )
      }
      yield JSON.stringify({ end: inventory.total }) + '\n'
    }
    // It has accounts and the digests of keys: readable by its owner only.
    const target = createWriteStream(file, { flags: 'wx', mode: 0o600, flush: true })
    try {
      await pipeline(lines, target)
    } catch (thrown) {
      const { code, message } = thrown as NodeJS.ErrnoException
      if (code === 'EEXIST') throw new CommandError(`${file} is there already: name another file.`)
      await rm(file, { force: true })
      throw thrown instanceof CommandError
        ? thrown
        : new CommandError(`Nothing was exported: ${message}`, { cause: thrown })
    }
    await print(
      `${table(rows([['in the file', inventory.total]]), ['what', 'in the file'])}\nExported to ${file}: the ledger ` +
      `is right, each balance is the sum of its entries.\n`
    )
    return 0
  } finally {
    await store.close()
  }
}

async function importStore (config: Config, folder: string, file: string): Promise<number> {
  // Read twice: an incomplete or damaged file changes nothing.
  const before = new Inventory()
  for await (const row of rowsIn(file)) before.add(row)
  try {
    await fillStore(config.store, folder, silent, rowsIn(file))
  } catch (cause) {
    throw new CommandError(`Nothing was imported: ${(cause as Error).message}.`, { cause })
  }
  const store = await opened(config, folder)
  try {
    const after = new Inventory()
    for await (const row of rowsOf(store)) after.add(row)
    await verified(store, 'must not be used: import it again into an empty one')
    await print(
      table(
        rows([['in the file', before.total], ['in the store', after.total]]), ['what', 'in the file', 'in the store']
      )
    )
    if (before.total.fingerprint !== after.total.fingerprint) {
      throw new CommandError(
        '\nWhat is in the store now is NOT what was exported: do not use it. Import it again into an empty one.'
      )
    }
    await print('\nImported: the same on both sides, and the ledger is right.\n')
    return 0
  } finally {
    await store.close()
  }
}

/** Renames what is left of a lost ledger, so that a start finds none. */
async function acceptLoss ({ store }: Config, folder: string): Promise<number> {
  const files = await acceptStoreLoss(store, folder)
  if (files === undefined) {
    throw new CommandError(`No ledger is lost in the data folder ${folder}: nothing was changed.`)
  }
  await print(
    `${files.map((file) => `kept as ${file}\n`).join('')}The next start begins a new ledger, and credits the ` +
    `opening balances of gateway.yaml again.\n`
  )
  return 0
}

async function opened (config: Config, folder: string): Promise<OpenStore> {
  try {
    return await openStore(config.store, folder, silent, Date.now)
  } catch (cause) {
    throw new CommandError(`The store can't be opened: ${(cause as Error).message}`, { cause })
  }
}

/** Delivers the outboxes in the folders of workers. @throws {CommandError} charges are left in one */
async function deliverAll (config: Config, folder: string): Promise<void> {
  const failures: Error[] = []
  await deliverLeftovers(folder, 0, { error ({ err }: { readonly err: Error }) {
    failures.push(err)
  } } as Pick<Logger, 'error'>, async (one) => {
    const store = await opened(config, one)
    try {
      refuseWaiting(store)
    } catch (thrown) {
      await store.close()
      throw thrown
    }
    return store
  })
  if (failures.length > 0) {
    throw new CommandError(`What a worker has left could not be charged: ${failures[0]!.message}`)
  }
}

/** @throws {CommandError} charges were not delivered */
function refuseWaiting ({ health }: OpenStore): void {
  const pending = health?.pending ?? 0
  if (pending > 0) {
    throw new CommandError(
      `${pending} charges wait in the data folder, and Redis has not taken them: see why in the log of a gateway ` +
      'that is started on this store.'
    )
  }
}

/** @throws {CommandError} the store may still change */
async function refuseBusy (store: OpenStore): Promise<void> {
  const alive = await store.beats?.() ?? []
  if (alive.length > 0) throw new CommandError(`${alive.length} gateways run on this store: stop all of them first.`)
  refuseWaiting(store)
  const holds = await store.openHolds()
  if (holds === 0) return
  const videos = store.openTasks().length
  const ofVideos = videos > 0 ? `, of which ${videos} are videos that are still being made` : ''
  throw new CommandError(
    `Money is held by ${holds} requests${ofVideos}: an open hold can't be moved. Start the gateway on this store ` +
      'again, wait until its metric gateway_holds_open is 0, stop it with SIGTERM, and repeat the command.'
  )
}

/** @throws {CommandError} the store's sums are not those of its entries */
async function verified (store: OpenStore, consequence: string): Promise<Verification> {
  const verification = await store.verify()
  if (verification.differences.length === 0) return verification
  const differences = verification.differences.map(({ of, id, entries, kept, where }) => ({
    of,
    id,
    where,
    entries_usd: formatUsd(entries),
    kept_usd: formatUsd(kept)
  }))
  throw new CommandError(
    `The ledger is WRONG, so the store ${consequence}: a balance is not the sum of its ` +
    `entries.\n${table(differences, ['of', 'id', 'entries_usd', 'kept_usd', 'where'])}`
  )
}

/** @throws {CommandError} the file is incomplete or damaged: says where */
export async function * rowsIn (file: string): AsyncIterable<Row> {
  const inventory = new Inventory()
  let header: Header | undefined
  let end: Total | undefined
  const wrong = (line: number, why: string): CommandError =>
    new CommandError(`Nothing was imported: ${file}:${line} ${why}.`)
  try {
    for await (const { bytes, line, isWhole } of linesOf(file)) {
      if (end !== undefined) throw wrong(line, 'comes after the end')
      if (!isWhole) throw wrong(line, 'is only half a line: the file is not whole')
      const text = bytes.toString()
      if (header === undefined) {
        header = parsed(text) as Header | undefined
        if (header?.format !== FORMAT) throw wrong(line, 'is not the beginning of an exported store')
        if (header.version !== FORMAT_VERSION) {
          throw wrong(line,
            `is of version ${header.version}, and this gateway reads ${FORMAT_VERSION}: use the gateway that ` +
            `exported it (${header.gateway})`)
        }
      } else if (text.startsWith('{"end":')) {
        end = (parsed(text) as { readonly end: Total } | undefined)?.end
        if (JSON.stringify(end) !== JSON.stringify(inventory.total)) {
          throw wrong(line, 'does not add up to what is before it: the file was changed or damaged')
        }
      } else {
        let row: Row
        try { row = readRow(text) } catch (thrown) { throw wrong(line, `can't be read: ${(thrown as Error).message}`) }
        inventory.add(row)
        yield row
      }
    }
  } catch (thrown) {
    throw (thrown as NodeJS.ErrnoException).syscall === undefined
      ? thrown
      : new CommandError(`The file can't be read: ${(thrown as Error).message}`, { cause: thrown })
  }
  if (end === undefined) throw new CommandError(`Nothing was imported: ${file} has no end: it is not whole.`)
}

function parsed (text: string): unknown {
  try { return JSON.parse(text) } catch { return undefined }
}

const SHOWN: readonly (readonly [name: string, of: keyof Total])[] = [
  ['accounts and keys made in the dashboard', 'records'],
  ['lines of the audit log', 'audit'],
  ['tasks', 'tasks'],
  ['answers', 'answers'],
  ['entries', 'entries'],
  ['accounts with entries', 'accounts'],
  ['keys with entries', 'keys'],
  ['balances, USD', 'balance'],
  ['spent by keys, USD', 'spent'],
  ['shortfalls, USD', 'shortfall'],
  ['fingerprint', 'fingerprint']
]

/** A line for each total, with both sides. */
function rows (sides: readonly (readonly [name: string, total: Total])[]): readonly Record<string, unknown>[] {
  return SHOWN.map(([what, of]) => ({
    what,
    ...Object.fromEntries(sides.map(([name, total]) => [name, shown(total[of], of)]))
  }))
}

function shown (value: Total[keyof Total], of: keyof Total): string {
  if (typeof value === 'number') return `${value}`
  return of === 'fingerprint' ? value.slice(0, 16) : formatUsd(BigInt(value))
}
