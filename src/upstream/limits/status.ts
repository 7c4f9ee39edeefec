// The health of upstreams for operators, of one process or merged from several: each has breakers and limits of its
// own.
import type { BreakerState } from './breaker.ts'
import type { CooldownState } from './cooldown.ts'
import type { CredentialView, Health, TargetView } from './health.ts'
import type { FairQueues, QueueView } from './queue.ts'

export interface UpstreamView {
  readonly targets: readonly TargetView[]
  readonly credentials: readonly CredentialView[]
  readonly queues: readonly QueueView[]
}

export function viewOf (
  { health, queues }: { readonly health: Health, readonly queues: FairQueues },
  live: Parameters<Health['targets']>[0]
): UpstreamView {
  return { targets: health.targets(live), credentials: health.credentials(live), queues: queues.view() }
}

/** Whose cooldown ends; without `credential` those of all credentials of the upstream. */
export interface CredentialReset {
  readonly upstream: string
  readonly credential?: string
}

/** Ends cooldowns; does nothing where the live configuration has no such upstream. */
export function resetCredentials (
  { health }: { readonly health: Health },
  { upstreams }: Pick<Parameters<Health['targets']>[0], 'upstreams'>,
  { upstream: name, credential }: CredentialReset
): void {
  const upstream = upstreams.get(name)
  if (upstream !== undefined) health.reset(upstream, credential)
}

const FROM_BEST: readonly BreakerState[] = ['closed', 'half_open', 'open']

/**
 * Counts are added up, and the latest failure is taken; of breakers and waits the worst counts, because some requests
 * meet it.
 */
export function mergedView (views: readonly UpstreamView[]): UpstreamView {
  return {
    targets: merged(views.flatMap(({ targets }) => targets), ({ upstream, model }) => `${upstream} ${model}`,
      (a, b) => ({
        ...a,
        breaker: FROM_BEST[Math.max(FROM_BEST.indexOf(a.breaker), FROM_BEST.indexOf(b.breaker))]!,
        running: a.running + b.running,
        ended: a.ended + b.ended,
        failed: a.failed + b.failed,
        wait: Math.max(a.wait, b.wait),
        ...(b.lastError !== undefined && b.lastError.at > (a.lastError?.at ?? 0) && { lastError: b.lastError })
      })),
    credentials: merged(views.flatMap(({ credentials }) => credentials), ({ upstream, id }) => `${upstream} ${id}`,
      (a, b) => ({
        ...worseOf(a, b),
        running: a.running + b.running
      })),
    queues: merged(views.flatMap(({ queues }) => queues), ({ upstream }) => upstream,
      (a, b) => ({ ...a, running: a.running + b.running, waiting: a.waiting + b.waiting }))
  }
}

const FROM_HEALTHY: readonly CooldownState[] = ['healthy', 'probing', 'cooling_down']

function worseOf (a: CredentialView, b: CredentialView): CredentialView {
  const states = FROM_HEALTHY.indexOf(b.state) - FROM_HEALTHY.indexOf(a.state)
  return states > 0 || (states === 0 && b.wait > a.wait) ? b : a
}

function merged<T> (all: readonly T[], nameOf: (one: T) => string, add: (a: T, b: T) => T): readonly T[] {
  return [...Map.groupBy(all, nameOf).values()].map((same) => same.reduce(add))
}
