// Gauges: metrics of a state, read at each scrape.
import { isOutOfResources } from '../base/descriptors.ts'
import type { Fleet } from '../cluster/heartbeat.ts'
import type { GatewayServer } from '../http/server.ts'
import type { LogOutput } from '../telemetry/log-output.ts'
import type { CooldownReason } from '../upstream/limits/permit.ts'
import type { GatewayServices } from './services.ts'
import { LowBalances } from './low-balances.ts'
import type { OpenServices } from './open-services.ts'
import type { LiveConfig } from './reload.ts'

const REFUSALS: readonly Exclude<CooldownReason, 'limited'>[] = ['no_money', 'bad_key', 'forbidden']
const BREAKER_VALUES = { closed: 0, half_open: 1, open: 2 } as const

export interface GaugeSources {
  readonly services: OpenServices['services']
  readonly fleet: Fleet
  readonly server: GatewayServer
  readonly live: LiveConfig
  readonly output: LogOutput | undefined
  /** its primary counts what is the same for all of them */
  readonly isWorker: boolean
}

export function watchGauges ({ services, fleet, server, live, output, isWorker }: GaugeSources): void {
  const { metrics } = services
  if (output !== undefined) metrics.watch('gateway_log_dropped_total', () => output.dropped)
  metrics.watch('gateway_request_log_dropped_total', () => services.requests.dropped)
  metrics.watch('gateway_overloaded', () => Number(server.overload.isOverloaded))
  metrics.watch('gateway_out_of_resources', () => Number(isOutOfResources()))
  metrics.watch('gateway_event_loop_delay_seconds', () => server.overload.delay / 1000)
  metrics.watch('gateway_body_memory_bytes', () => server.bodyMemory.used)
  metrics.watch('gateway_answer_memory_bytes', () => services.upstreams.answers.used)
  metrics.watch('gateway_fleet_processes', async () => (await fleet.processes()).length)
  if (!isWorker) {
    const low = new LowBalances(services, () => live.current().config)
    metrics.watch('gateway_accounts_low_balance', async () => await low.read())
  }
  metrics.watchMany('gateway_config_info', () => {
    const { generation, hash } = live.state()
    return [{ labels: { generation: String(generation), hash }, value: 1 }]
  })
  watchStore(services)
  watchUpstreams(services, live)
}

function watchStore ({ metrics, store, tasks }: GatewayServices): void {
  if (store.health !== undefined) {
    metrics.watch('gateway_store_up', () => store.health!.isUp ? 1 : 0)
    metrics.watch('gateway_store_lag_seconds', () => store.health!.lagSeconds)
    metrics.watch('gateway_outbox_pending', () => store.health!.pending)
    metrics.watch('gateway_ledger_lost', () => store.health!.loss === undefined ? 0 : 1)
  }
  metrics.watch('gateway_videos_open', () => tasks.openTasks().length)
  metrics.watch('gateway_holds_open', () => store.health?.holds ?? store.openHolds())
}

function watchUpstreams ({ metrics, upstreams: { queues, health } }: GatewayServices, live: LiveConfig): void {
  metrics.watchMany('gateway_upstream_breaker_state', () =>
    health.targets(live.current()).map(({ upstream, model, breaker }) =>
      ({ labels: { upstream, model }, value: BREAKER_VALUES[breaker] })))
  metrics.watchMany('gateway_upstream_queue_depth', () =>
    queues.view().map(({ upstream, waiting }) => ({ labels: { upstream }, value: waiting })))
  metrics.watchMany('gateway_upstream_running', () =>
    health.targets(live.current()).map(({ upstream, model, running }) =>
      ({ labels: { upstream, model }, value: running })))
  metrics.watchMany('gateway_upstream_credential_aside', () =>
    health.credentials(live.current()).map(({ upstream, id, wait }) =>
      ({ labels: { upstream, credential: id }, value: wait > 0 ? 1 : 0 })))
  metrics.watchMany('gateway_upstream_credential_refused', () =>
    health.credentials(live.current()).flatMap(({ upstream, id, reason: why }) =>
      REFUSALS.map((reason) => ({ labels: { upstream, credential: id, reason }, value: why === reason ? 1 : 0 }))))
}
