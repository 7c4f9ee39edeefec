// A file of rows, as JSON lines: its first line says what it is, its last one what all the others come to, so a file
// that was cut or changed is known by itself.
import { version as gatewayVersion } from '../base/package.ts'
import { linesOf } from '../base/lines.ts'
import type { Verification } from './store.ts'
import { Inventory, readRow, type Row, type Total, writeRow } from './transfer.ts'

const FORMAT = 'model-gateway store'
const FORMAT_VERSION = 2
/** A file of version 1 has no failures. */
const READ_VERSIONS = [1, FORMAT_VERSION]

/** What is known of a store before its rows are read. */
export interface Origin extends Partial<Pick<Verification, 'entries' | 'accounts' | 'keys'>> {
  readonly driver: string
}

/** The first line. */
interface Header extends Origin {
  readonly format: string
  readonly version: number
  readonly gateway: string
  /** ISO 8601 */
  readonly at: string
}

/**
 * The lines of a file.
 * @param check called with what the rows came to: where it throws, the file has no end
 */
export async function * fileLines (
  origin: Origin,
  rows: AsyncIterable<Row>,
  check: (total: Total) => void = () => {}
): AsyncGenerator<string> {
  const inventory = new Inventory()
  yield JSON.stringify({ format: FORMAT, version: FORMAT_VERSION, gateway: gatewayVersion,
    at: new Date().toISOString(), ...origin } satisfies Header) + '\n'
  for await (const row of rows) {
    inventory.add(row)
    yield writeRow(row) + '\n'
  }
  const { total } = inventory
  check(total)
  yield JSON.stringify({ end: total }) + '\n'
}

/** @throws {Error} the file can't be read, or is incomplete or damaged: says where */
export async function * rowsIn (file: string): AsyncIterable<Row> {
  const inventory = new Inventory()
  let header: Header | undefined
  let end: Total | undefined
  const wrong = (line: number, why: string): Error => new Error(`${file}:${line} ${why}`)
  for await (const { bytes, line, isWhole } of linesOf(file)) {
    if (end !== undefined) throw wrong(line, 'comes after the end')
    if (!isWhole) throw wrong(line, 'is only half a line: the file is not whole')
    const text = bytes.toString()
    if (header === undefined) {
      header = parsed(text) as Header | undefined
      if (header?.format !== FORMAT) throw wrong(line, 'is not the beginning of an exported store')
      if (!READ_VERSIONS.includes(header.version)) {
        throw wrong(line,
          `is of version ${header.version}, and this gateway reads ${READ_VERSIONS.join(' and ')}: use the gateway that ` +
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
  if (end === undefined) throw new Error(`${file} has no end: it is not whole`)
}

function parsed (text: string): unknown {
  try { return JSON.parse(text) } catch { return undefined }
}
