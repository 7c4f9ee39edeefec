// The admin API without a gateway: opens the data folder, as its only writer, and answers in this process. For commands, where none runs.
import { userInfo } from 'node:os'
import { AdminApi } from '../admin/api/api.ts'
import type { ApiAnswer } from '../admin/api/operation.ts'
import { Refusal, refusalBody } from '../admin/api/refusal.ts'
import { tryKeyOn } from '../admin/api/try-key.ts'
import { createLogger } from '../admin/log.ts'
import { createMetrics } from '../admin/metrics.ts'
import type { Config } from '../config/config.ts'
import { Snapshot } from '../config/snapshot.ts'
import { loadUserPlugin } from '../config/user-plugin.ts'
import { withDemo } from '../demo.ts'
import { Directory } from '../directory.ts'
import { endpoints } from '../endpoints.ts'
import { scratchFiles } from '../files/open.ts'
import { Fleet } from '../fleet.ts'
import { Overheads } from '../money/overheads.ts'
import { Tokens } from '../money/tokens.ts'
import type { Plugin } from '../plugin.ts'
import { rehearse } from '../rehearse.ts'
import { refuseTaken } from '../start.ts'
import { openStore } from '../store/open.ts'
import { Upstreams } from '../upstream/upstream.ts'
import { outliving } from '../videos/outliving.ts'
import type { Asked, Gate } from './gate.ts'

/** @throws {Error} the data folder can't be used: says why, such as that a gateway has it */
export async function openDirectly (loaded: Config, folder: string, plugins: readonly Plugin[]): Promise<Gate> {
  const log = createLogger('silent', { write () {} })
  const store = await openStore(loaded.store, folder, log, Date.now)
  const end = async (): Promise<void> => { await store.close() }
  try {
    const directory = new Directory(store, Date.now)
    await directory.load()
    const config = withDemo(loaded, folder, directory)
    refuseTaken(config, directory)
    const metrics = createMetrics(Date.now)
    const services = { log, metrics, store, ...outliving(store, { log, metrics, now: Date.now }), directory, upstreams: new Upstreams(), ...scratchFiles(Date.now), tokens: new Tokens(log), overheads: new Overheads(), now: Date.now }
    const shipped = new Map(plugins.map((plugin) => [plugin.name, plugin]))
    /** For dry runs: it has no upstreams, and the store of its plugins changes nothing. */
    const snapshot = async (): Promise<Snapshot> => {
      const own = new Map<string, Plugin>()
      for (const { use, version } of config.pipeline) if (version !== undefined) own.set(use, await loadUserPlugin(use, version))
      return new Snapshot({ config, generation: 0, plugins: config.pipeline.map(({ use }) => shipped.get(use) ?? own.get(use)!), endpoints, services, isDry: true })
    }
    const api = new AdminApi({
      services,
      changes: async (after, limit) => await store.changes(after, limit),
      config: () => config,
      processes: async () => await new Fleet({ records: store, now: Date.now }).processes(),
      plugins: shipped,
      tryKey: tryKeyOn(shipped, services),
      rehearse: async (question) => await rehearse(await snapshot(), question)
    })
    const who = `command of ${userInfo().username}`
    return {
      async ask (method, address, body): Promise<Asked> {
        const { pathname: path, searchParams: query } = new URL(address, 'http://direct')
        let answer: ApiAnswer
        try {
          answer = await api.answer({ method, path, query, body, who })
        } catch (thrown) {
          if (!(thrown instanceof Refusal)) throw thrown
          return { status: thrown.status, body: refusalBody(thrown, '') as Asked['body'] }
        }
        return { status: answer.status, body: answer.body as Asked['body'] }
      },
      close: end
    }
  } catch (thrown) {
    await end()
    throw thrown
  }
}
