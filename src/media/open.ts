// Opens the files that the gateway keeps beside its ledger: images behind links, and uploads of running requests.
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Logger } from 'pino'
import type { ServerConfig } from '../config/config.ts'
import { keepSecret, randomSecret } from '../base/secrets.ts'
import { Disk } from './disk.ts'
import { Links } from './links.ts'
import { TemporaryFolder } from './temporary.ts'

export interface OpenFiles {
  readonly links: Links
  readonly temporary: TemporaryFolder
  close (): Promise<void>
}

/**
 * To be called with the store open: its lock makes the data folder exclusive to this process.
 * @param isKept false: nothing of the store outlives the process, so links do not either
 * @param folder the data folder, absolute
 * @param worker this process's own folder in it, where several processes share the data folder; absent: they do not
 * @throws {Error} the folder can't be used
 */
export async function openFiles (
  isKept: boolean,
  { public: { link_life: ttl, link_space: space }, body_disk: uploadSpace }: ServerConfig,
  folder: string,
  log: Logger,
  now: () => number,
  worker?: string
): Promise<OpenFiles> {
  const scratch = path.join(tmpdir(), `model-gateway-${randomSecret()}`)
  const temporary = new TemporaryFolder(path.join(isKept ? path.join(folder, worker ?? '') : scratch, 'uploads'),
    uploadSpace)
  const disk = new Disk({ folder: path.join(isKept ? folder : scratch, 'images'),
    ...(worker !== undefined && { owner: worker }), space, now, onTrouble: (err) => {
      log.error({ err }, 'files that have expired could not be removed')
    } })
  await temporary.clear()
  await disk.start()
  const secret = isKept ? keepSecret(folder, 'link-secret', randomSecret) : randomSecret()
  return {
    links: new Links(disk, { secret, ttl, now }),
    temporary,
    async close () {
      await disk.close()
      await temporary.clear()
      if (!isKept) await rm(scratch, { recursive: true, force: true })
    }
  }
}

/** Files for a check, a command or a test, which serves no client. No folder is made before the first write. */
export function scratchFiles (now: () => number): Pick<OpenFiles, 'links' | 'temporary'> {
  const own = path.join(tmpdir(), `model-gateway-scratch-${process.pid}`)
  const disk = new Disk({ folder: path.join(own, 'images'), space: 1024 ** 3, now, onTrouble: () => {} })
  return { links: new Links(disk, { secret: randomSecret(), ttl: 86_400_000, now }),
    temporary: new TemporaryFolder(path.join(own, 'uploads'), 1024 ** 3) }
}
