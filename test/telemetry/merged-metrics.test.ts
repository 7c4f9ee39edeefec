// The metrics of several processes on one page: what is added up, what is told apart, and that no counter ever falls.
// Backoff beside it.
import t from 'tap'
import { MergedMetrics, type Page } from '../../src/telemetry/merged-metrics.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { Backoff } from '../../src/cluster/backoff.ts'

const values = (text: string, name: string): Record<string, number> =>
  Object.fromEntries(
    text.split('\n').filter((line) => line.startsWith(name + '{') || line.startsWith(name + ' ')).map((line) => {
      const at = line.lastIndexOf(' ')
      return [line.slice(name.length, at), Number(line.slice(at + 1))]
    })
  )

/** What a gauge of each kind and a counter look like, from one process. */
function page (worker: string, process: string, counted: number, more = ''): Page {
  return {
    worker, process,
    text: `# HELP c_total Counted.\n# TYPE c_total counter\nc_total{model="a b"} ${counted}\nc_total ${counted}\n` +
      `# HELP gateway_requests_in_flight Parts.\n# TYPE gateway_requests_in_flight gauge\ngateway_requests_in_flight 2\n` +
      `# HELP gateway_fleet_processes Shared.\n# TYPE gateway_fleet_processes gauge\ngateway_fleet_processes 7\n` +
      `# HELP lag Each.\n# TYPE lag gauge\nlag ${counted}\nlag{q="0.5"} 1.5\n` +
      `# HELP h Distribution.\n# TYPE h histogram\nh_bucket{le="1"} 1\nh_bucket{le="+Inf"} ${counted}\nh_sum 0.5\nh_count ${counted}\n${more}`
  }
}

t.test('counters and histograms are added up, parts too; what the store knows is said once; all else by worker', async (t) => {
  const text = await new MergedMetrics(
    async () => [page('primary', '', 0), page('1', 'a', 3),
      page('2', 'b', 4, '# HELP own Only here.\n# TYPE own counter\nown 9\n')]
  ).print()
  t.strictSame(values(text, 'c_total'), { '{model="a b"}': 7, '': 7 })
  t.strictSame(values(text, 'h_bucket'), { '{le="1"}': 3, '{le="+Inf"}': 7 })
  t.strictSame([values(text, 'h_sum'), values(text, 'h_count')], [{ '': 1.5 }, { '': 7 }])
  t.strictSame(values(text, 'gateway_requests_in_flight'), { '': 6 })
  t.strictSame(values(text, 'gateway_fleet_processes'), { '': 7 })
  t.strictSame(values(text, 'lag'), { '{worker="primary"}': 0, '{worker="primary",q="0.5"}': 1.5, '{worker="1"}': 3,
    '{worker="1",q="0.5"}': 1.5, '{worker="2"}': 4, '{worker="2",q="0.5"}': 1.5 })
  t.strictSame(values(text, 'own'), { '': 9 })
  t.equal(text.match(/^# HELP c_total Counted\.\n# TYPE c_total counter$/gm)?.length, 1)
})

t.test('no counter falls: not when a worker does not answer, nor when its successor begins at zero', async (t) => {
  let pages: readonly Page[] = []
  const merged = new MergedMetrics(async () => pages)
  const counted = async (now: readonly Page[]): Promise<readonly unknown[]> => {
    pages = now
    const text = await merged.print()
    return [values(text, 'c_total')[''], values(text, 'h_count')[''], values(text, 'gateway_requests_in_flight')[''],
      Object.keys(values(text, 'lag')).length]
  }
  t.strictSame(await counted([page('1', 'a', 3), page('2', 'b', 4)]), [7, 7, 4, 4])
  t.strictSame(await counted([page('2', 'b', 5)]), [8, 8, 2, 2],
    'silent: it has counted what it has counted, and nothing of it is in flight')
  t.strictSame(await counted([page('1', 'c', 1), page('2', 'b', 5)]), [9, 9, 4, 4], 'another one')
  t.strictSame(await counted([page('1', 'c', 2), page('2', 'd', 0)]), [10, 10, 4, 4])
  t.strictSame(await counted([page('1', 'e', 1), page('2', 'd', 1)]), [12, 12, 4, 4])
})

t.test('who scrapes while it is scraped gets the same page', async (t) => {
  let asked = 0
  const { promise, resolve } = Promise.withResolvers<readonly Page[]>()
  const merged = new MergedMetrics(async () => { asked++; return await promise })
  const both = Promise.all([merged.print(), merged.print()])
  resolve([page('1', 'a', 3)])
  const [one, other] = await both
  t.equal(one, other)
  t.equal(asked, 1)
})

t.test('what a gateway prints comes through whole', async (t) => {
  const [one, two] = [createMetrics(() => 1_000_000), createMetrics(() => 2_000_000)]
  for (const metrics of [one, two, two]) metrics.attempt('u0', 'ok')
  one.workerRestarted()
  for (const metrics of [one, two]) metrics.begin()
  for (const metrics of [one, two]) {
    metrics.watch('gateway_holds_open', () => 5)
    metrics.watch('gateway_fleet_processes', () => 3)
  }
  one.verified(2)
  const text = await new MergedMetrics(
    async () => [{ worker: '1', process: 'a', text: await one.print() }, { worker: '2', process: 'b',
      text: await two.print() }]
  ).print()
  t.strictSame(values(text, 'gateway_upstream_attempts_total'), { '{upstream="u0",outcome="ok"}': 3 })
  t.strictSame(
    [
      values(text, 'gateway_worker_restarts_total'),
      values(text, 'gateway_requests_in_flight'),
      values(text, 'gateway_holds_open'),
      values(text, 'gateway_fleet_processes')
    ],
    [{ '': 1 }, { '': 2 }, { '': 10 }, { '': 3 }]
  )
  t.strictSame(values(text, 'gateway_ledger_differences'), { '': 2 })
  t.strictSame(Object.keys(values(text, 'process_resident_memory_bytes')), ['{worker="1"}', '{worker="2"}'])
  t.strictSame(Object.keys(values(text, 'process_cpu_seconds_total')), [''])
  const alone = (await one.print()).split('\n').filter((line) => line.startsWith('# TYPE')).toSorted()
  t.strictSame(
    text.split('\n').filter((line) => line.startsWith('# TYPE')).toSorted().filter((line) => alone.includes(line)),
    alone
  )
  t.strictSame(text.split('\n').filter((line) => !/^(#|$|\w+(\{.*\})? \S+$)/.test(line)), [],
    'every line is one that Prometheus reads')
})

t.test('a worker is started again at once, then later and later; who has worked long has recovered', async (t) => {
  const backoff = new Backoff()
  t.strictSame(Array.from({ length: 8 }, () => backoff.next(100)), [0, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000])
  t.strictSame([backoff.next(60_000), backoff.next(0)], [0, 1000])
})
