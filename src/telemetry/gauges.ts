// Metrics owned by other parts of the gateway, read at each scrape.
import { escape, headOf, LIMIT } from './families.ts'

/** A store that does not answer must not delay the other metrics. */
const WATCH_TIMEOUT_MS = 1000

/** The single values, read at each scrape. */
export type Watched = 'gateway_accounts_low_balance' | 'gateway_answer_memory_bytes' | 'gateway_body_memory_bytes'
  | 'gateway_event_loop_delay_seconds' | 'gateway_overloaded' | 'gateway_fleet_processes' | 'gateway_holds_open'
  | 'gateway_log_dropped_total' | 'gateway_outbox_pending' | 'gateway_ledger_lost' | 'gateway_request_log_dropped_total'
  | 'gateway_out_of_resources' | 'gateway_store_lag_seconds' | 'gateway_store_up' | 'gateway_videos_open'

/** The values with labels, read at each scrape. */
export type WatchedMany = 'gateway_config_info' | 'gateway_ready' | 'gateway_upstream_breaker_state' | 'gateway_upstream_credential_aside'
  | 'gateway_upstream_credential_refused'
  | 'gateway_upstream_queue_depth' | 'gateway_upstream_running'

export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export interface Gauge {
  readonly name: string
  readonly help: string
  /** default: gauge */
  readonly type?: 'counter'
  readonly labels?: Sample['labels']
  /** undefined: unknown */
  readonly read: () => number | undefined | Promise<number>
}

export async function printGauge ({ name, help, type, labels = {}, read }: Gauge): Promise<string> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => {
      resolve(undefined)
    }, WATCH_TIMEOUT_MS)
  })
  try {
    const value = await Promise.race([read(), late])
    return value === undefined ? '' : headOf(name, help, type ?? 'gauge') + line(name, { labels, value })
  } catch {
    return ''                                     // Prometheus treats an absent series as unknown
  } finally {
    clearTimeout(timer)
  }
}

export const MANY: Readonly<Record<WatchedMany, string>> = {
  gateway_config_info: 'The configuration that new requests get: its number in this process, and what it says.',
  gateway_ready: '0: the process is not ready for this reason; 1: not for this one. Ready: the minimum is 1.',
  gateway_upstream_breaker_state:
    'Whether a target is left alone because it fails: 0 it is not, 1 one request at a time tries it, 2 it is.',
  gateway_upstream_credential_aside:
    '1: the upstream has limited or refused this credential, and it is not used for a while.',
  gateway_upstream_credential_refused:
    '1: the upstream does not accept this credential: the account has no money (no_money), its key is wrong, revoked or ' +
      'expired (bad_key), or it may not use a model (forbidden).',
  gateway_upstream_queue_depth: 'Requests that wait for a place at an upstream.',
  gateway_upstream_running: 'Attempts that run at a target.'
}

/** At most as many series as other metrics have: GET /admin/v1/upstreams has all. */
export function printMany (name: WatchedMany, help: string, samples: Iterable<Sample>): string {
  const lines: string[] = []
  for (const sample of samples) {
    if (lines.length === LIMIT) break
    lines.push(line(name, sample))
  }
  return headOf(name, help, 'gauge') + lines.join('')
}

function line (name: string, { labels, value }: Sample): string {
  const given = Object.entries(labels).filter(([, text]) => text !== '')
  const all = given.map(([label, text]) => `${label}="${escape(text)}"`).join(',')
  return `${name}${all === '' ? '' : `{${all}}`} ${value}\n`
}

/** In the order in which they are printed. */
export const WATCHED: Readonly<Record<Watched, Pick<Gauge, 'help' | 'type'>>> = {
  gateway_overloaded: { help: '1: the process has too much to do, and refuses new requests.' },
  gateway_out_of_resources: {
    help: '1: no connection can be made or accepted: no descriptors, ports or memory are left; until 5 seconds behind it.'
  },
  gateway_event_loop_delay_seconds: { help: 'How late the event loop was at the last look.' },
  gateway_body_memory_bytes: { help: 'Request bodies in memory.' },
  gateway_log_dropped_total: {
    help: 'Lines of the log that could not be written: the disk is full, or nobody reads.',
    type: 'counter'
  },
  gateway_request_log_dropped_total: {
    help: 'Requests that the log of requests does not have, because it could not be written.',
    type: 'counter'
  },
  gateway_answer_memory_bytes: { help: 'Answers of upstreams in memory, of more than 64 KB and read whole.' },
  gateway_fleet_processes: { help: 'Processes that serve clients from the same store.' },
  gateway_store_up: { help: 'Of a store that is somewhere else: whether it answers.' },
  gateway_store_lag_seconds: {
    help: 'How far its replicas are behind: a failover may forget so much of holds and admissions, and no charge.'
  },
  gateway_outbox_pending: { help: 'Charges that it does not know yet, and that wait on the disk.' },
  gateway_ledger_lost: {
    help: '1: it has lost the ledger, or went back to an old state. Nothing that costs is served until this is accepted.'
  },
  gateway_accounts_low_balance: {
    help: 'Accounts with a balance below low_balance_usd of billing-meter; looked at once a minute at most.'
  },
  gateway_videos_open: { help: 'Video tasks that are not over; each has a hold.' },
  gateway_holds_open: {
    help: 'Holds that are neither settled nor released; where the store is shared, those of this process.'
  }
}
