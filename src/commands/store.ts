// `gateway store COMMAND`: backup and restore (backup.ts); `export FILE` and `import FILE`, which move a store's whole
// content into another one, such as from the embedded store to Redis. No gateway runs meanwhile. Any difference between
// the two sides is reported, and nothing is half-moved.
import { createWriteStream } from 'node:fs'
import { rm } from 'node:fs/promises'
import { pipeline } from 'node:stream/promises'
import { parseArgs } from 'node:util'
import type { Config } from '../config/config.ts'
import { loadConfig } from '../config/load/load.ts'
import { nearest } from '../config/check/suggest.ts'
import { differenceView } from '../admin/api/books.ts'
import { formatUsd } from '../money/nanos.ts'
import { Inventory, rowsOf, type Total } from '../store/transfer.ts'
import { fileLines, rowsIn } from '../store/transfer-file.ts'
import { acceptLoss as acceptStoreLoss, fillStore, type OpenStore, traitsOf } from '../store/open.ts'
import type { Verification } from '../store/store.ts'
import type { CommandParts } from './command.ts'
import { DIFFERENCE_COLUMNS } from './nouns/ledger.ts'
import { CommandError, findPlace } from './admin-client.ts'
import { backUp, restore } from './backup.ts'
import { opened, refuseWaiting, silent } from './opened-store.ts'
import { complain, print } from './stdout.ts'
import { table } from './print.ts'

const USAGE =
  `Usage: gateway store backup FILE [--config FILE] [--url URL]    while the gateway runs, or without it; FILE must be new
       gateway store restore FILE [--config FILE]    into a folder without a ledger; an export, also into an empty Redis
       gateway store export FILE [--config FILE]    all that the store keeps, as JSON lines; FILE must be new
       gateway store import FILE [--config FILE]    into a store that is empty, or whose ledger is lost
       gateway store new --accept-loss [--config FILE]    where the ledger is lost: begin a new one, or go on with what Redis has
`

/** @returns the exit code: 0 done and the same on both sides, 1 refused or failed */
export async function storeCommand (
  [verb = '', ...args]: readonly string[],
  { locate, pluginsUrl, load = loadConfig }: Omit<CommandParts, 'plugins'>
): Promise<number> {
  const { values, positionals: [file, ...more] } = parseArgs({ args: [...args], allowPositionals: true,
    options: { config: { type: 'string', short: 'c' }, url: { type: 'string' }, 'accept-loss': { type: 'boolean' },
      help: { type: 'boolean', short: 'h' } } })
  const verbs: Readonly<Record<string, typeof exportStore | undefined>> = { backup: undefined, restore: restoreStore,
    export: exportStore, import: importStore, new: acceptLoss }
  if (values.help === true || ['--help', '-h', 'help'].includes(verb)) { await print(USAGE); return 0 }
  const isKnown = Object.hasOwn(verbs, verb)
  if (!isKnown && verb !== '') {
    const near = nearest(verb, Object.keys(verbs))
    complain(`There is no command "store ${verb}"${near === undefined ? '.' : `: did you mean "${near}"?`}\n`)
  }
  const isNew = verb === 'new' && values['accept-loss'] === true
  if (
    !isKnown || (isNew ? file !== undefined : file === undefined || verb === 'new') || more.length > 0 ||
    (values.url !== undefined && verb !== 'backup')
  ) {
    complain(USAGE)
    return 1
  }
  try {
    const { file: configFile, base } = locate(values.config)
    const place = await findPlace({ file: configFile, base, url: values.url, pluginsUrl, load })
    const run = verbs[verb]
    if (run === undefined) return await backUp(place, file!)
    if (place.url !== undefined) {
      throw new CommandError(`A gateway runs at ${place.url}: stop it first, and all others that share its store.`)
    }
    const { config, folder } = place
    if (!traitsOf(config.store).isLasting) {
      throw new CommandError(`What store.driver: ${config.store.driver} keeps ends with its process: ` +
        'there is nothing to export, and nowhere to import to.')
    }
    return await run(config, folder, file ?? '')
  } catch (thrown) {
    if (!(thrown instanceof CommandError)) throw thrown
    complain(thrown.message)
    return 1
  }
}

async function exportStore (config: Config, folder: string, file: string): Promise<number> {
  const store = await opened(config, folder)
  try {
    await refuseBusy(store)
    const { entries, accounts, keys } = await verified(store, 'is not exported')
    let written: Total
    const lines = fileLines({ driver: config.store.driver, entries, accounts, keys }, rowsOf(store), (total) => {
      written = total
      if (total.entries === entries) return
      throw new CommandError(
        `The store changed while it was exported (${entries} entries before, ${total.entries} after): ` +
        'a gateway runs on it. Stop it first.'
      )
    })
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
      `${table(rows([['in the file', written!]]), ['what', 'in the file'])}\nExported to ${file}: the ledger ` +
      `is right, each balance is the sum of its entries.\n`
    )
    return 0
  } finally {
    await store.close()
  }
}

async function importStore (config: Config, folder: string, file: string): Promise<number> {
  const before = new Inventory()
  try {
    // Read twice: an incomplete or damaged file changes nothing.
    for await (const row of rowsIn(file)) before.add(row)
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

/** A backup of Redis is a file that an import reads. */
async function restoreStore (config: Config, folder: string, file: string): Promise<number> {
  return await restore(config, folder, file) ? 0 : await importStore(config, folder, file)
}

/** Goes on without a lost ledger. */
async function acceptLoss ({ store }: Config, folder: string): Promise<number> {
  const result = await acceptStoreLoss(store, folder)
  if (result === undefined) {
    throw new CommandError(`No ledger is lost in the data folder ${folder}: nothing was changed.`)
  }
  await print(result)
  return 0
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
  throw new CommandError(
    `The ledger is WRONG, so the store ${consequence}: a balance, or a sum of usage, is not that of its ` +
    `entries.\n${table(verification.differences.map(differenceView), DIFFERENCE_COLUMNS)}`
  )
}

const SHOWN: readonly (readonly [name: string, of: keyof Total])[] = [
  ['accounts and keys made in the dashboard', 'records'],
  ['lines of the audit log', 'audit'],
  ['tasks', 'tasks'],
  ['answers', 'answers'],
  ['requests and tasks that failed', 'errors'],
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

function shown (value: Total[keyof Total] = 0, of: keyof Total): string {
  if (typeof value === 'number') return `${value}`
  return of === 'fingerprint' ? value.slice(0, 16) : formatUsd(BigInt(value))
}
