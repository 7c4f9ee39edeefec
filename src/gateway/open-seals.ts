// The secrets of seals: those of gateway.yaml, or else one that is generated in the data folder.
import type { Logger } from 'pino'
import { scratchSeals, Seals } from '../base/seals.ts'
import { keepSecret, keptSecret, randomSecret } from '../base/secrets.ts'
import type { Config } from '../config/config.ts'
import { traitsOf } from '../store/open.ts'

const FILE = 'seal-secret'

/**
 * To be called with the store open: its lock makes the data folder exclusive to this gateway.
 * @param folder the data folder, absolute; workers share it
 * @param isWorker its primary says what is to be said
 * @throws {Error} rejects: the data folder can't be written
 */
export async function openSeals (
  { server: { seal_secrets: configured }, store }: Pick<Config, 'server' | 'store'>,
  folder: string,
  log: Pick<Logger, 'info' | 'warn'>,
  isWorker: boolean
): Promise<Seals> {
  const [first, ...former] = configured.filter((secret) => secret !== '')
  if (first !== undefined) {
    // An operator who configures secrets after a while need not copy the generated one.
    const generated = keptSecret(folder, FILE)
    return new Seals([first, ...former, ...generated === undefined ? [] : [generated]])
  }
  const { isLasting, isShared } = traitsOf(store)
  if (!isLasting) {
    if (!isWorker) log.info('what this process seals, such as thoughts, is read by no other: nothing of its store lasts')
    return scratchSeals()
  }
  if (isShared && !isWorker) {
    log.warn('what this gateway seals, such as thoughts, other gateways of its store can\'t read, and leave out: give ' +
      'all of them the same server.seal_secrets')
  }
  return new Seals([keepSecret(folder, FILE, randomSecret)])
}
