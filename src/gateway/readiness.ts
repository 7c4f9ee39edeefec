// Why this process is not ready for requests: for load balancers, and for alerts.
import { isOutOfResources } from '../base/descriptors.ts'
import type { GatewayServer } from '../http/server.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { GatewayServices } from './services.ts'

/** All reasons, in the order in which they are listed. Values of a metric's label: a fixed list. */
export const REASONS = ['draining', 'warming_up', 'overloaded', 'out_of_resources', 'store_away',
  'ledger_unwritable', 'ledger_lost'] as const
export type Reason = typeof REASONS[number]

export interface ReadinessParts {
  readonly server: () => GatewayServer
  readonly services: GatewayServices
  readonly isDraining: () => boolean
  readonly isWarmingUp: () => boolean
}

/** The reasons of this process alone. A draining process has no other one. */
export function reasonsOf (
  { server, services: { store }, isDraining, isWarmingUp }: ReadinessParts
): readonly Reason[] {
  if (isDraining()) return ['draining']
  const holds: Readonly<Record<Exclude<Reason, 'draining'>, boolean>> = {
    warming_up: isWarmingUp(),
    overloaded: server().overload.isOverloaded,
    out_of_resources: isOutOfResources(),
    store_away: store.health?.refusesRequests === true,
    ledger_unwritable: store.trouble !== undefined,
    ledger_lost: store.health?.loss !== undefined
  }
  return REASONS.filter((reason) => reason !== 'draining' && holds[reason])
}

export function watchReadiness (metrics: Metrics, read: () => readonly Reason[]): void {
  metrics.watchMany('gateway_ready', () => {
    const found = read()
    return REASONS.map((reason) => ({ labels: { reason }, value: Number(!found.includes(reason)) }))
  })
}
