// The identity of a file's state: two equal stamps mean that the file was not changed in between.
import { statSync } from 'node:fs'
import { stat } from 'node:fs/promises'

export interface Stat {
  readonly dev: bigint
  readonly ino: bigint
  readonly size: bigint
  readonly mtimeNs: bigint
  readonly ctimeNs: bigint
}

/** dev and ino show a rename over the file or a swapped symlink; ctime, a write that keeps size and mtime. */
function print ({ dev, ino, size, mtimeNs, ctimeNs }: Stat): string {
  return `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`
}

/** A file that can't be read has a stamp too, so that its coming and going are changes. */
function printError (thrown: unknown): string {
  const code = thrown instanceof Error && 'code' in thrown ? String(thrown.code) : 'unknown'
  return code === 'ENOENT' || code === 'ENOTDIR' ? 'absent' : `unreadable ${code}`
}

export function stampSync (file: string): string {
  try {
    return print(statSync(file, { bigint: true }))
  } catch (thrown) {
    return printError(thrown)
  }
}

/** @param look stands in for fs.stat in tests */
export async function stamp (
  file: string,
  look: (file: string) => Promise<Stat> = (path) => stat(path, { bigint: true })
): Promise<string> {
  try {
    return print(await look(file))
  } catch (thrown) {
    return printError(thrown)
  }
}
