// Opens what the gateway keeps in files beside its ledger: images behind links, and uploads while they are needed.
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
 * To be called with the store open: its lock says that the data folder is ours alone.
 * @param isKept false: nothing of the store outlives the process, so neither does a link
 * @param folder the data folder, absolute
 * @param worker a folder in it, of one of several processes that share it; absent: nobody shares it
 * @throws {Error} it can't be used
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

/** For what is served by nobody: a check, a command, a test. Nothing is made on disk before something is kept. */
export function scratchFiles (now: () => number): Pick<OpenFiles, 'links' | 'temporary'> {
  const own = path.join(tmpdir(), `model-gateway-scratch-${process.pid}`)
  const disk = new Disk({ folder: path.join(own, 'images'), space: 1024 ** 3, now, onTrouble: () => {} })
  return { links: new Links(disk, { secret: randomSecret(), ttl: 86_400_000, now }),
    temporary: new TemporaryFolder(path.join(own, 'uploads'), 1024 ** 3) }
}
