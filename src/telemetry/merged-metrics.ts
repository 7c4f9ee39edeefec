// Merges the metrics of several processes: counts are added up, other values are told apart by a label. Reads the text
// that each process prints for Prometheus, so that it is independent of their recording.
import { setImmediate } from 'node:timers/promises'

/** The text of one process. */
export interface Page {
  /** value of the label */
  readonly worker: string
  /** id of the process: a new one counts from zero */
  readonly process: string
  readonly text: string
}

/** Gauges that are added up over the processes. */
const PARTS: ReadonlySet<string> = new Set(['gateway_requests_in_flight', 'gateway_answer_memory_bytes',
  'gateway_body_memory_bytes', 'gateway_upstream_queue_depth', 'gateway_upstream_running', 'gateway_outbox_pending',
  'gateway_videos_open', 'gateway_holds_open'])
/** Gauges that every process reads from the shared store: the last value counts. */
const SHARED: ReadonlySet<string> = new Set(['gateway_fleet_processes', 'gateway_accounts_low_balance',
  'gateway_ledger_differences', 'gateway_ledger_verified_timestamp_seconds'])

/** Lines that are read in one turn of the event loop: under 1 ms. */
const READ_AT_ONCE = 1000

/** counts: added up for ever. parts: added up over living processes. shared: the same everywhere. each: told apart. */
type Kind = 'counts' | 'parts' | 'shared' | 'each'

interface Family {
  /** HELP and TYPE */
  head: string
  kind: Kind
  /** by the text before the value */
  readonly series: Map<string, number>
}

type Read = ReadonlyMap<string, Family>

export class MergedMetrics {
  readonly #pages: () => Promise<readonly Page[]>
  /** last text of each process, which counts on where the process does not answer, or has ended */
  readonly #last = new Map<string, { readonly process: string, readonly families: Read }>()
  /** sums of ended processes; without them a counter would fall, and Prometheus take the rest for new */
  readonly #ended = new Map<string, Family>()
  #printing: Promise<string> | undefined

  /** @param pages of the processes that answer */
  constructor (pages: () => Promise<readonly Page[]>) {
    this.#pages = pages
  }

  /** Concurrent calls share one result: of two pages of a process the older must not come last. */
  async print (): Promise<string> {
    this.#printing ??= this.#print().finally(() => { this.#printing = undefined })
    return await this.#printing
  }

  async #print (): Promise<string> {
    const answered = new Set<string>()
    for (const { worker, process, text } of await this.#pages()) {
      const families = await read(text, worker)
      const before = this.#last.get(worker)
      if (before !== undefined && before.process !== process) add(this.#ended, before.families, ['counts'])
      this.#last.set(worker, { process, families })
      answered.add(worker)
    }
    const merged = new Map<string, Family>()
    for (const [worker, { families }] of this.#last) {
      add(merged, families, answered.has(worker) ? ['counts', 'parts', 'shared', 'each'] : ['counts'])
    }
    add(merged, this.#ended, ['counts'])
    return [...merged.values()].map(({ head, series }) =>
      head + [...series].map(([key, value]) => `${key} ${value}\n`).join('')
    ).join('')
  }
}

async function read (text: string, worker: string): Promise<Read> {
  const families = new Map<string, Family>()
  let family: Family = { head: '', kind: 'counts', series: new Map() }
  let lines = 0
  for (const line of text.split('\n')) {
    if (++lines % READ_AT_ONCE === 0) await setImmediate()
    const [, word, name, rest] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? []
    if (word === 'HELP') {
      family = { head: `${line}\n`, kind: 'counts', series: new Map() }
      families.set(name!, family)
    } else if (word === 'TYPE') {
      family.head += `${line}\n`
      family.kind = rest !== 'gauge' ? 'counts' : PARTS.has(name!) ? 'parts' : SHARED.has(name!) ? 'shared' : 'each'
    } else {
      const at = line.lastIndexOf(' ')
      if (at === -1) continue
      const series = line.slice(0, at)
      family.series.set(family.kind === 'each' ? labelled(series, worker) : series, Number(line.slice(at + 1)))
    }
  }
  return families
}

function labelled (series: string, worker: string): string {
  const at = series.indexOf('{')
  return at === -1
    ? `${series}{worker="${worker}"}`
    : `${series.slice(0, at)}{worker="${worker}",${series.slice(at + 1)}`
}

function add (into: Map<string, Family>, from: Read, kinds: readonly Kind[]): void {
  for (const [name, { head, kind, series }] of from) {
    if (!kinds.includes(kind)) continue
    let family = into.get(name)
    if (family === undefined) into.set(name, family = { head, kind, series: new Map() })
    const isSum = kind === 'counts' || kind === 'parts'
    for (const [key, value] of series) family.series.set(key, isSum ? (family.series.get(key) ?? 0) + value : value)
  }
}
