// The thread of `gateway check`: loads the configuration, and runs the `create` of each plugin with idle services.
// Loads no code that only a running gateway needs: no endpoint, no client of an upstream, no printer of metrics.
import { parentPort, workerData } from 'node:worker_threads'
import { Directory } from '../accounts/directory.ts'
import { scratchSeals } from '../base/seals.ts'
import { startTimer } from '../base/timer.ts'
import { readConfig } from '../config/load/read-config.ts'
import { resultOf, type WorkerInput } from '../config/load/load.ts'
import { AnswerMemory } from '../core/answer-memory.ts'
import type { Plugin } from '../core/plugin.ts'
import type { Services } from '../core/services.ts'
import { LiveConfig } from '../gateway/reload.ts'
import { RunningPlugins } from '../gateway/running-plugins.ts'
import { scratchFiles } from '../media/open.ts'
import { scratchStore } from '../store/open.ts'
import { SealedResponses } from '../store/sealed-responses.ts'
import { createLogger } from '../telemetry/log.ts'
import { Overheads } from '../tokens/overheads.ts'
import { TokenRates } from '../tokens/rates.ts'
import { Health } from '../upstream/limits/health.ts'
import type { Checked } from './check.ts'

const input = workerData as WorkerInput
parentPort!.postMessage(await judge(input))

async function judge ({ file, pluginsUrl, env }: WorkerInput): Promise<Checked> {
  const services = idleServices()
  const live = new LiveConfig({
    file, pluginsUrl, env, services: { now: Date.now },
    load: async () => {
      const stamps = new Map<string, string>()
      return await resultOf(await readConfig({ ...input, now: Date.now() }, (path, stamp) => {
        if (!stamps.has(path)) stamps.set(path, stamp)
      }), stamps)
    },
    async compile (config, _generation, own) {
      const { plugins } = await import(pluginsUrl) as { readonly plugins: readonly Plugin[] }
      const shipped = new Map(plugins.map((plugin) => [plugin.name, plugin]))
      const running = new RunningPlugins(config.pipeline.map(({ use }) => shipped.get(use) ?? own.get(use)!), config,
        services, plugins)
      return { config, retire: async () => { await running.close() } }
    }
  })
  const { ok, problems, warnings } = await live.reload('start')
  if (!ok) return { kind: 'checked', ok, problems, warnings }
  const { config: { models, upstreams, routes, keys }, retire } = live.current()
  await retire()
  return { kind: 'checked', ok, problems, warnings, counts: { models: models.length,
    upstreams: Object.keys(upstreams).length, routes: routes.length, keys: keys.length } }
}

function idleServices (): Services {
  const store = scratchStore()
  const nothing = (): void => {}
  const log = createLogger('silent', { write () {} })
  const seals = scratchSeals()
  return {
    log,
    metrics: { attempt: nothing, rejected: nothing, hookTimeout: nothing, upstreamRetried: nothing, queued: nothing,
      queueRefused: nothing, shortfall: nothing },
    tasks: store,
    directory: new Directory(store, Date.now),
    videos: { watch: nothing, hear: async () => {}, takeBack: async () => {}, pollAfter: () => 0 },
    upstreams: { health: new Health(Date.now), answers: new AnswerMemory(), timer: startTimer },
    ...scratchFiles(Date.now),
    addresses: { api: '', public: '' },
    seals,
    responses: new SealedResponses(store.responses, seals, log, Date.now),
    tokenRates: new TokenRates(),
    overheads: new Overheads(),
    now: Date.now
  }
}
