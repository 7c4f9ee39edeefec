// The overview: what an operator looks at first, in one answer. Reads sums and states that are there, and no entries.
// A part that can't be told, because the store is away, is null, and a problem says so.
import { formatUsd, type Nanos } from '../../money/nanos.ts'
import type { FleetProcess } from '../../cluster/heartbeat.ts'
import { addRollup, DAY_MS, dayOf, HOUR_MS, NOBODY, noSum, rollupOf } from '../../store/rollup-sums.ts'
import type { Rollup } from '../../store/rollups.ts'
import { type LatelyView, quantile, type Sums } from '../../telemetry/lately.ts'
import type { CooldownReason } from '../../upstream/limits/permit.ts'
import type { UpstreamView } from '../../upstream/limits/status.ts'
import { choice, flag, instant, list, money, number, object, orNull, text, usageAnswer, whole } from './answers.ts'
import type { ApiParts, Operation, RunningParts } from './operation.ts'

/** Why a credential is not used, in a sentence. */
const WHY: Readonly<Record<CooldownReason, string>> = {
  no_money: 'its account has no money left',
  bad_key: 'its key is not accepted',
  forbidden: 'it may not use a model',
  limited: 'it has used up a rate'
}

/** Accounts whose balance is looked at: those that spent most; and how many of them are told. */
const MOST_LOOKED_AT = 200
const MOST_TOLD = 20

const firstToken = orNull(object('FirstToken', 'Milliseconds from a request to the first byte of its stream.', {
  p50: whole('Half of them were faster.'),
  p95: whole('Nineteen of twenty were faster.'),
  since: instant('The streams that have ended since then: from the beginning of the time that is told of, or later ' +
    'where neither this process nor the log of requests reaches back so far.')
}))

export const liveAnswer = object('Live', 'The last five minutes, of all processes of this machine.', {
  requests_in_flight: whole('Requests that run, on all machines.'),
  requests: whole('Requests that are over.'),
  errors: whole('Those of them that did not end well, but for those that their clients left.'),
  spent_usd: money('What they were charged.'),
  input_tokens: whole('Tokens, those of caches too.'),
  output_tokens: whole('Tokens.'),
  first_token_ms: firstToken
})

const summary = object('Summary', 'What an operator looks at first.', {
  at: instant('When this was true.'),
  reasons: list('Why load balancers should send requests elsewhere; empty: ready.', text('A reason.')),
  live: liveAnswer,
  day: orNull(object('LastDay', 'The last 24 hours, from the hour on in which they began; null: it can\'t be told.', {
    requests: whole('Requests that were settled.'),
    errors: whole('Requests of known keys that ended without that, and videos that failed.'),
    spent_usd: money('What was charged.'),
    shortfall_usd: money('What answers cost beyond their holds, which the operator bears.'),
    usage: usageAnswer,
    first_token_ms: firstToken
  })),
  open_holds: orNull(whole('Requests and videos that hold money; null: it can\'t be told.')),
  low_balances: list('Of the accounts that spent most since yesterday those that have enough for less than a day.',
    object('LowBalance', 'An account that will soon have nothing.', {
      account: text('The account.'),
      available_usd: money('The balance less what is held.'),
      hours_left: number('How long it lasts, if it goes on like since yesterday.')
    })),
  upstreams: object('UpstreamSummary', 'How those who answer fare.', {
    targets: whole('All of them.'),
    out: list('Those that are not asked now.', object('OutTarget', 'A target that is not asked.', {
      upstream: text('The upstream.'),
      model: text('The model, or the forward route.'),
      breaker: choice('Whether it is asked.', ['closed', 'half_open', 'open']),
      wait_ms: number('Milliseconds until it is asked again.'),
      cause: orNull(text('How it failed last.'))
    })),
    credentials_out: list('Those that are not used now.', object('OutCredential', 'An account at an upstream.', {
      upstream: text('The upstream.'),
      id: text('Its name; headers: the only one.'),
      reason: choice('Why.', Object.keys(WHY)),
      wait_ms: number('Milliseconds until it is used again.')
    }))
  }),
  store: object('StoreSummary', 'How the books are kept.', {
    is_up: flag('false: it does not answer.'),
    lag_s: number('Seconds that its replicas are behind.'),
    pending: whole('Charges that it does not have yet.'),
    trouble: orNull(text('Why no request is served: its charge could not be recorded.')),
    loss: orNull(text('Why the ledger counts as lost: nothing that costs is served until an operator accepts it.')),
    differences: orNull(whole('Balances and sums that differed from their entries at the last verification; null: none ' +
      'has run since the start.'))
  }),
  config: object('ConfigSummary', 'The live configuration.', {
    generation: whole('Counts those that went live since the start.'),
    hash: text('Of all that a reload applies.'),
    loaded_at: instant('When it went live.'),
    is_refused: flag('true: a newer one was refused.')
  }),
  fleet: orNull(object('FleetSummary', 'The processes that serve from the same store; null: it can\'t be told.', {
    processes: whole('How many.'),
    is_converged: flag('true: all run the same configuration.')
  })),
  problems: list('What needs somebody, the worst first.', object('Alarm', 'What needs somebody.', {
    code: choice('For programs.', ['ledger_lost', 'ledger_differs', 'ledger_unwritable', 'store_away', 'config_refused',
      'not_ready', 'target_out', 'credential_out', 'charges_pending', 'not_converged', 'low_balance']),
    message: text('For people.')
  }))
})

export function summaryOperations (parts: ApiParts, running: RunningParts): readonly Operation[] {
  return [{
    method: 'GET',
    path: '/summary',
    name: 'getSummary',
    isCostly: true,
    summary: 'What an operator looks at first. Requests, money and tokens of now and of the last 24 hours, who is ' +
      'low, who is out, and what needs somebody.',
    gives: summary,
    answer: async () => ({ status: 200, body: await new Overview(parts, running).view() })
  }]
}

/** The numbers of the last minutes. @param processes undefined: they can't be told */
export function liveView (
  { now }: LatelyView,
  processes: readonly FleetProcess[] | undefined
): Readonly<Record<string, unknown>> {
  const { requests, errors, nanos, input_tokens, output_tokens } = now
  return {
    requests_in_flight: (processes ?? []).reduce((sum, one) => sum + one.requests_in_flight, 0),
    requests, errors, spent_usd: formatUsd(BigInt(Math.round(nanos))), input_tokens, output_tokens,
    first_token_ms: viewFirst(now)
  }
}

function viewFirst ({ first_token: counts, since }: Sums): object | null {
  const [p50, p95] = [quantile(counts, 0.5), quantile(counts, 0.95)]
  return p50 === undefined || p95 === undefined ? null : { p50, p95, since: new Date(since).toISOString() }
}

/** One answer. */
class Overview {
  readonly #parts: ApiParts
  readonly #running: RunningParts
  readonly #at: number

  constructor (parts: ApiParts, running: RunningParts) {
    this.#parts = parts
    this.#running = running
    this.#at = parts.services.now()
  }

  async view (): Promise<Readonly<Record<string, unknown>>> {
    const { services: { store }, processes: fleetOf, upstreams } = this.#parts
    const { health } = store
    const [lately, reasons, processes, view, hours, low, openHolds] = await Promise.all([
      this.#running.lately(), this.#running.reasons(), known(fleetOf()), upstreams!.view(), known(this.#hours()),
      known(this.#low()), known((async () => health?.holds ?? await store.openHolds())())
    ])
    const { generation, hash, loaded_at, last_reload: { ok } } = this.#running.state()
    const told = {
      at: new Date(this.#at).toISOString(),
      reasons,
      live: liveView(lately, processes),
      day: hours === undefined ? null : { ...totalOf(hours), first_token_ms: viewFirst(lately.day) },
      open_holds: openHolds ?? null,
      low_balances: (low ?? []).slice(0, MOST_TOLD),
      upstreams: outOf(view),
      store: { is_up: health?.isUp ?? true, lag_s: health?.lagSeconds ?? 0, pending: health?.pending ?? 0,
        trouble: store.trouble?.message ?? null, loss: health?.loss ?? null,
        differences: this.#running.ledgerDifferences() ?? null },
      config: { generation, hash, loaded_at, is_refused: !ok },
      fleet: processes === undefined
        ? null
        : { processes: processes.length, is_converged: new Set(processes.map((one) => one.hash)).size <= 1 }
    }
    return { ...told, problems: problemsOf(told) }
  }

  async #hours (): Promise<readonly Rollup[]> {
    return await this.#parts.services.store.rollups({ by: 'hour', from: this.#at - DAY_MS, to: this.#at + 1,
      groups: [], only: {} })
  }

  /** What accounts spent since yesterday began, compared with what they have. */
  async #low (): Promise<readonly { readonly account: string, readonly hours_left: number }[]> {
    const { store } = this.#parts.services
    const from = dayOf(this.#at) - DAY_MS
    const days = await store.rollups({ by: 'day', from, to: this.#at + 1, groups: ['account'], only: {} })
    const spent = new Map<string, Nanos>()
    for (const { account, nanos } of days) {
      if (account !== undefined) spent.set(account, (spent.get(account) ?? 0n) + nanos)
    }
    const most = [...spent].filter(([, nanos]) => nanos > 0n).toSorted(([, a], [, b]) => a < b ? 1 : -1)
      .slice(0, MOST_LOOKED_AT)
    const hours = (this.#at - from) / HOUR_MS
    const looked = await Promise.all(most.map(async ([account, nanos]) => {
      const { balance, held } = await store.balance(account)
      const available = balance - held
      return { account, available_usd: formatUsd(available),
        hours_left: Math.round(Number(available) / Number(nanos) * hours * 10) / 10 }
    }))
    return looked.filter(({ hours_left: left }) => left < 24).toSorted((a, b) => a.hours_left - b.hours_left)
  }
}

/** Undefined: it can't be told. */
async function known<T> (asked: Promise<T>): Promise<T | undefined> {
  return await asked.catch(() => undefined)
}

/** All rows in one. */
function totalOf (rows: readonly Rollup[]): Readonly<Record<string, unknown>> {
  const sum = noSum()
  for (const row of rows) addRollup(sum, row)
  const { requests, errors, usage, nanos, shortfall } = rollupOf({ start: 0, members: NOBODY, sum }, [])
  return { requests, errors, spent_usd: formatUsd(nanos), shortfall_usd: formatUsd(shortfall), usage }
}

interface Out {
  readonly targets: number
  readonly out: readonly { readonly upstream: string, readonly model: string, readonly cause: string | null }[]
  readonly credentials_out: readonly {
    readonly upstream: string, readonly id: string, readonly reason: CooldownReason
  }[]
}

function outOf ({ targets, credentials }: UpstreamView): Out {
  return {
    targets: targets.length,
    out: targets.filter(({ breaker, wait }) => breaker === 'open' || wait > 0)
      .map(({ upstream, model, breaker, wait, lastError }) => ({ upstream, model, breaker, wait_ms: wait,
        cause: lastError?.cause ?? null })),
    credentials_out: credentials.flatMap(({ upstream, id, wait, reason }) =>
      reason === undefined || wait === 0 ? [] : [{ upstream, id, reason, wait_ms: wait }])
  }
}

interface Told {
  readonly reasons: readonly string[]
  readonly day: object | null
  readonly low_balances: readonly { readonly account: string, readonly hours_left: number }[]
  readonly upstreams: Out
  readonly store: { readonly is_up: boolean, readonly pending: number, readonly trouble: string | null,
    readonly loss: string | null, readonly differences: number | null }
  readonly config: { readonly is_refused: boolean, readonly generation: number }
  readonly fleet: { readonly is_converged: boolean } | null
}

/** Charges that wait for the shared store for a moment are no problem. */
const MANY_PENDING = 1000

function problemsOf ({ reasons, day, low_balances: low, upstreams, store, config, fleet }: Told): readonly object[] {
  const problems: { readonly code: string, readonly message: string }[] = []
  const tell = (code: string, isSo: boolean, message: () => string): void => {
    if (isSo) problems.push({ code, message: message() })
  }
  tell('ledger_lost', store.loss !== null, () => `The ledger is lost, and nothing that costs is served: ${store.loss!}. ` +
    'Restore it; then, or to go on without it: gateway store new --accept-loss.')
  tell('ledger_differs', (store.differences ?? 0) > 0, () =>
    `${store.differences!} balances or sums differ from the entries of the ledger: gateway ledger verify names them.`)
  tell('ledger_unwritable', store.trouble !== null, () => `No request is served: ${store.trouble!}.`)
  tell('store_away', !store.is_up || day === null || fleet === null,
    () => 'The store does not answer: what it knows can\'t be told.')
  tell('config_refused', config.is_refused, () =>
    `A newer configuration was refused, and generation ${config.generation} stays live: /admin/v1/config has why.`)
  tell('not_ready', reasons.length > 0, () =>
    `Load balancers are told to send requests elsewhere: ${reasons.join(', ')}.`)
  for (const { upstream, model, cause } of upstreams.out) {
    tell('target_out', true, () => `${upstream} is not asked for ${model} now${cause === null ? '' : `: ${cause}`}.`)
  }
  for (const { upstream, id, reason } of upstreams.credentials_out) {
    tell('credential_out', true, () => `The credential ${id} of ${upstream} is not used now: ${WHY[reason]}.`)
  }
  tell('charges_pending', store.pending > MANY_PENDING,
    () => `${store.pending} charges have not reached the store yet.`)
  tell('not_converged', fleet?.is_converged === false,
    () => 'The processes do not all run the same configuration: /admin/v1/fleet has their hashes.')
  for (const { account, hours_left: hours } of low) {
    tell('low_balance', true, () => hours <= 0
      ? `The account ${account} has nothing left.`
      : `The balance of ${account} lasts for ${hours} hours more, if it goes on like since yesterday.`)
  }
  return problems
}
