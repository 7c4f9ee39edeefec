// The admin API without a gateway: opens the data folder, as its only writer, and answers in this process. For
// commands, where no gateway runs.
import { AdminApi } from '../admin/api/api.ts'
import type { ApiAnswer } from '../admin/api/operation.ts'
import { Refusal, refusalBody } from '../admin/api/refusal.ts'
import { tryKeyOn } from '../admin/api/try-key.ts'
import { scratchSeals } from '../base/seals.ts'
import { createLogger } from '../telemetry/log.ts'
import { createMetrics } from '../telemetry/metrics.ts'
import { keptRequests } from '../telemetry/requests/request-log.ts'
import type { Config } from '../config/config.ts'
import { Snapshot } from '../gateway/snapshot.ts'
import { loadUserPlugin } from '../config/load/user-plugin.ts'
import { withDemo } from '../gateway/demo.ts'
import { Directory } from '../accounts/directory.ts'
import { endpoints } from '../endpoints/index.ts'
import { scratchFiles } from '../media/open.ts'
import { Fleet } from '../cluster/heartbeat.ts'
import { Overheads } from '../tokens/overheads.ts'
import { TokenRates } from '../tokens/rates.ts'
import type { Plugin } from '../core/plugin.ts'
import { rehearse } from '../pipeline/dry-run.ts'
import { refuseTaken } from '../gateway/gateway.ts'
import { openStore } from '../store/open.ts'
import { SealedResponses } from '../store/sealed-responses.ts'
import { Upstreams } from '../upstream/pool.ts'
import { backgroundServices } from '../gateway/background.ts'
import { requestFiles } from '../gateway/open-services.ts'
import type { AdminAnswer, AdminClient } from './command.ts'
import { self } from './self.ts'

/** @throws {Error} the data folder can't be used: says why, such as that a gateway has it */
export async function openDirectly (loaded: Config, folder: string, plugins: readonly Plugin[]): Promise<AdminClient> {
  const log = createLogger('silent', { write () {} })
  const store = await openStore(loaded.store, folder, log, Date.now)
  const end = async (): Promise<void> => { await store.close() }
  try {
    const directory = new Directory(store, Date.now)
    await directory.load()
    const config = withDemo(loaded, folder, directory)
    refuseTaken(config, directory)
    const metrics = createMetrics(Date.now)
    const upstreams = new Upstreams()
    upstreams.simulatorUrl = 'http://127.0.0.1:9'             // never called
    const seals = scratchSeals()
    const services = { log, metrics, store, ...backgroundServices(store, { log, metrics, now: Date.now }), directory,
      upstreams, ...scratchFiles(Date.now), seals,
      responses: new SealedResponses(store.responses, seals, log, Date.now), tokenRates: new TokenRates(),
      overheads: new Overheads(), addresses: { api: '', public: '' }, now: Date.now }
    const shipped = new Map(plugins.map((plugin) => [plugin.name, plugin]))
    const snapshot = async (): Promise<Snapshot> => {
      const own = new Map<string, Plugin>()
      for (const { use, version } of config.pipeline) {
        if (version !== undefined) own.set(use, await loadUserPlugin<Plugin>(use, version))
      }
      return new Snapshot({ config, generation: 0, plugins: config.pipeline.map(({ use }) =>
        shipped.get(use) ?? own.get(use)!
      ), shipped, endpoints, services })
    }
    const api = new AdminApi({
      services,
      audit: store,
      config: () => config,
      processes: async () => await new Fleet({ records: store, now: Date.now }).processes(),
      plugins: shipped,
      requests: keptRequests(requestFiles(folder), config.log.requests),
      tryKey: tryKeyOn(shipped, services),
      async rehearse (question) {
        const on = await snapshot()
        try {
          return await rehearse(on, question)
        } finally {
          on.retire()
        }
      }
    })
    const by = self()
    return {
      async ask (method, address, body): Promise<AdminAnswer> {
        const { pathname: path, searchParams: query } = new URL(address, 'http://direct')
        let answer: ApiAnswer
        try {
          answer = await api.answer({ method, path, query, body, by })
        } catch (thrown) {
          if (!(thrown instanceof Refusal)) throw thrown
          return { status: thrown.status, body: refusalBody(thrown, '') as AdminAnswer['body'] }
        }
        return { status: answer.status, body: answer.body as AdminAnswer['body'] }
      },
      close: end
    }
  } catch (thrown) {
    await end()
    throw thrown
  }
}
