// What is measured: one burst of each experiment, the columns of its table, and the speed goals that it decides.
import { budget } from './budget.ts'
import { type Child, onBothCores } from './children.ts'
import { outageTimes, sharedConcurrency, type ContenderName, type Instance } from './contenders.ts'
import { ask, longestWait, openStreams, runOpenLoop, sleep, startClosedLoop, type ClientStreams } from './load.ts'
import { asking, nasties, nastyAnswers } from './nasty.ts'
import { dialects, largeRequest, outageModel, prompt, publicModel, sharedModel, sharers, smallRequest, thinkMs, toWire,
  type Dialect } from './payloads.ts'
import { median, pairs, quantile, seededRandom } from './statistics.ts'
import { dashboard } from './pages.ts'
import { starts } from './starts.ts'
import { flood, pace, type Mood, type Upstream } from './upstream.ts'
import { warm } from './warm.ts'

export type Sample = Readonly<Record<string, number>>
export type Results = ReadonlyMap<ContenderName, readonly Sample[]>

export interface Bench {
  readonly upstream: Upstream
  /** of the model that has three */
  readonly targets: readonly Upstream[]
  readonly dialect: Dialect
  readonly isQuick: boolean
  /** streams that the memory experiment opens: fewer where file descriptors are scarce */
  readonly openStreams: number
}

export interface Column { readonly key: string, readonly title: string, readonly digits: number }

export interface Goal {
  readonly text: string
  readonly isMet: boolean
  /** what was measured */
  readonly found: string
}

export interface Experiment {
  readonly name: string
  readonly title: string
  readonly columns: readonly Column[]
  /** the ratio that the table shows, round by round */
  readonly ratio?: { readonly key: string, readonly to: ContenderName }
  /** a new process for each round: a process that had the memory once does not take it twice */
  readonly isFresh?: true
  readonly skips?: readonly ContenderName[]
  /** nobody else */
  readonly only?: readonly ContenderName[]
  rounds (bench: Bench): number
  /** milliseconds of one burst */
  lasts (bench: Bench): number
  burst (bench: Bench, instance: Instance, ms: number): Promise<Sample>
  goals (of: (name: ContenderName, key: string) => readonly number[], bench: Bench): Goal[]
}

const rampMs = 100
const streamEveryMs = 5
const streamCount = 50

/** Between two moments: wall time, the contender's CPU, our own. */
function startMeter (
  instance: Instance
): () => { readonly seconds: number, readonly cpuUs: number, readonly loadBusy: number } {
  const cpuNs = instance.child?.cpuNs() ?? NaN
  const own = process.cpuUsage()
  const start = performance.now()
  return () => {
    const seconds = (performance.now() - start) / 1000
    const { user, system } = process.cpuUsage(own)
    return { seconds, cpuUs: ((instance.child?.cpuNs() ?? NaN) - cpuNs) / 1000,
      loadBusy: (user + system) / 1e6 / seconds * 100 }
  }
}

async function measureClosedLoop (
  instance: Instance,
  request: Buffer,
  connections: number,
  ms: number
): Promise<{ perSecond: number, cpuUs: number, loadBusy: number }> {
  const loop = startClosedLoop(instance.port, request, connections)
  await sleep(rampMs)
  const stop = startMeter(instance)
  const before = loop.completed()
  await sleep(ms)
  const done = loop.completed() - before
  const { seconds, cpuUs, loadBusy } = stop()
  await loop.stop()
  if (done === 0) throw new Error(`no answer within ${ms} ms`)
  return { perSecond: done / seconds, cpuUs: cpuUs / done, loadBusy }
}

/** Opens streams, lets `body` use them, ends them, and makes sure that no event was lost. */
async function withStreams<T> (
  { upstream, dialect }: Bench,
  instance: Instance,
  count: number,
  body: (streams: ClientStreams) => Promise<T>
): Promise<T> {
  const sentBefore = upstream.sentEvents()
  const streams = await openStreams(instance.port, smallRequest(dialect, true), count, dialect)
  try {
    const result = await body(streams)
    upstream.finishStreams()
    await streams.finished()
    const sent = upstream.sentEvents() - sentBefore
    if (sent !== streams.delivered()) throw new Error(`${sent} events were sent, ${streams.delivered()} arrived`)
    return result
  } finally {
    streams.destroy()
  }
}

async function measureEvents (instance: Instance, streams: ClientStreams, ms: number): Promise<Sample> {
  await sleep(rampMs)
  streams.takeDelays()
  const stop = startMeter(instance)
  const [before, readsBefore] = [streams.delivered(), instance.child?.reads() ?? NaN]
  await sleep(ms)
  const events = streams.delivered() - before
  const { seconds, cpuUs, loadBusy } = stop()
  const perRead = events / ((instance.child?.reads() ?? NaN) - readsBefore)
  const delays = streams.takeDelays()
  if (events === 0) throw new Error(`no event within ${ms} ms`)
  return { perSecond: events / seconds, cpuUs: cpuUs / events, p50: quantile(delays, 0.5), p99: quantile(delays, 0.99),
    perRead, loadBusy }
}

const format = (value: number, digits: number): string => value.toFixed(digits)
const ratios = (ours: readonly number[], theirs: readonly number[]): number =>
  median(pairs(ours, theirs, (a, b) => a / b))
const busy: Column = { key: 'loadBusy', title: 'load core busy %', digits: 0 }

/** Requests before the first that counts: behind them V8 compiles hardly anything (see the experiment `warm`). */
const WARM = 40_000
const warmed = new WeakSet<Instance>()

/** Sends it so many, once. */
async function warmUp (instance: Instance, request: Buffer, isQuick: boolean): Promise<void> {
  if (warmed.has(instance)) return
  warmed.add(instance)
  const workers = instance.name === 'workers' ? 2 : 1
  await startClosedLoop(instance.port, request, 32).reaches(workers * (isQuick ? WARM / 10 : WARM))
}

const json: Experiment = {
  name: 'json',
  title: 'JSON requests of 1 KB, 32 connections, closed loop, after 40,000 of them',
  columns: [{ key: 'perSecond', title: 'requests/s', digits: 0 }, { key: 'cpuUs', title: 'CPU µs/request', digits: 1 },
    busy],
  ratio: { key: 'perSecond', to: 'http-proxy-3' },
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 400 : 900,
  async burst ({ dialect, isQuick }, instance, ms) {
    const request = smallRequest(dialect, false)
    await warmUp(instance, request, isQuick)
    return await measureClosedLoop(instance, request, 32, ms)
  },
  goals (of) {
    const ratio = ratios(of('gateway', 'perSecond'), of('http-proxy-3', 'perSecond'))
    return [{
      text: 'JSON 1 KB, 32 connections: at least 1.3x the requests/s of bare http-proxy-3',
      isMet: ratio >= 1.3,
      found: `${format(ratio, 2)}x (${format(median(of('gateway', 'perSecond')), 0)}/s against ${format(median(of('http-proxy-3', 'perSecond')), 0)}/s)`
    }, ...embeddedGoals(of)]
  }
}

/** What durability costs. */
function embeddedGoals (of: (name: ContenderName, key: string) => readonly number[]): Goal[] {
  if (of('embedded', 'perSecond').length === 0) return []
  return ([['http-proxy-3', 1.1, 'bare http-proxy-3'], ['gateway', 0.8, 'the memory store']] as const).map(
    ([name, least, title]) => {
      const ratio = ratios(of('embedded', 'perSecond'), of(name, 'perSecond'))
      return { text: `the same with the embedded store: at least ${least}x the requests/s of ${title}`,
        isMet: ratio >= least, found: `${format(ratio, 2)}x` }
    }
  )
}

const eventColumns: readonly Column[] = [{ key: 'perSecond', title: 'events/s', digits: 0 }, { key: 'cpuUs',
  title: 'CPU µs/event', digits: 1 }]

function eventGoal (
  of: (name: ContenderName, key: string) => readonly number[], kind: string, most: number
): Goal[] {
  const ratio = ratios(of('gateway', 'cpuUs'), of('undici', 'cpuUs'))
  return [{
    text: `SSE event, metered, ${kind}: at most ${most}x the CPU of bare undici translation`,
    isMet: ratio <= most,
    found: `${format(ratio, 2)}x (${format(median(of('gateway', 'cpuUs')), 1)} µs against ${format(median(of('undici', 'cpuUs')), 1)} µs)`
  }]
}

const paced: Experiment = {
  name: 'sse',
  skips: ['embedded'],
  title: `SSE, ${streamCount} streams, an event every ${streamEveryMs} ms each, one event per write`,
  columns: [...eventColumns, { key: 'p50', title: 'delay p50 ms', digits: 3 }, { key: 'p99', title: 'delay p99 ms',
    digits: 2 }, busy],
  ratio: { key: 'cpuUs', to: 'undici' },
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 400 : 1000,
  burst: async (bench, instance, ms) => await withStreams(bench, instance, streamCount, async (streams) => {
    const stop = pace(bench.upstream, streamEveryMs)
    try {
      return await measureEvents(instance, streams, ms)
    } finally {
      stop()
    }
  }),
  goals: (of) => eventGoal(of, 'one event per write', 1.1)
}

const flatOut: Experiment = {
  name: 'sse-flat',
  skips: ['embedded'],
  title: 'SSE, 20 streams flat out, 4 events per write: who reads seldom, because it is slow, reads more at once',
  columns: [...eventColumns, { key: 'perRead', title: 'events a read', digits: 1 }, busy],
  ratio: { key: 'cpuUs', to: 'undici' },
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 300 : 500,
  burst: async (bench, instance, ms) => await withStreams(bench, instance, 20, async (streams) => {
    const stop = flood(bench.upstream, streams.delivered, { perWrite: 4, inFlight: 20 * 32 })
    try {
      const { p50: _p50, p99: _p99, ...sample } = await measureEvents(instance, streams, ms)
      return sample                             // the delay is that of the queue which we fill ourselves
    } finally {
      stop()
    }
  }),
  goals: (of) => eventGoal(of, 'flat out', 1.2)
}

/** Moments of arrival, in ms, the same each time. */
function poisson (ms: number, perSecond: number): number[] {
  const random = seededRandom(1)
  const arrivals: number[] = []
  for (let at = 50; at < ms; at += -Math.log(1 - random()) * 1000 / perSecond) arrivals.push(at)
  return arrivals
}

const latency: Experiment = {
  name: 'latency',
  title: 'JSON requests of 1 KB, 200 arrivals/s (Poisson, the same for all), open loop, after 40,000',
  columns: [{ key: 'p50', title: 'p50 ms', digits: 3 }, { key: 'p99', title: 'p99 ms', digits: 2 }],
  ratio: { key: 'p50', to: 'undici' },
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 500 : 1200,
  async burst ({ dialect, isQuick }, instance, ms) {
    const request = smallRequest(dialect, false)
    await warmUp(instance, request, isQuick)
    const latencies = await runOpenLoop(instance.port, request, poisson(ms, 200))
    return { p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) }
  },
  goals (of) {
    const more = median(pairs(of('gateway', 'p50'), of('undici', 'p50'), (a, b) => a - b))
    // What is added, not what is there anyway: without direct's share the ratio is the harder one.
    const bare = of('direct', 'p50').length > 0 ? median(of('direct', 'p50')) : 0
    const ratio = ratios(of('gateway', 'p99').map((ms) => ms - bare), of('undici', 'p99').map((ms) => ms - bare))
    return [{
      text: 'added latency at 200 requests/s: p50 at most 0.1 ms more than bare undici translation',
      isMet: more <= 0.1,
      found: `${format(more, 3)} ms more`
    }, {
      text: 'added latency at 200 requests/s: p99 at most 1.3x that of bare undici translation',
      isMet: ratio <= 1.3,
      found: `${format(ratio, 2)}x (p99 less direct's p50 of ${format(bare, 3)} ms)`
    }]
  }
}

/** Resident memory after a garbage collection. */
async function collectedBytes (child: Child): Promise<{ readonly rss: number, readonly heap: number }> {
  await child.ask('memory')
  const { rss, heapUsed, external } = await child.ask('memory')
  return { rss, heap: heapUsed + external }
}

const memory: Experiment = {
  name: 'memory',
  title: 'Memory per open stream, after a garbage collection',
  columns: [
    { key: 'kb', title: 'KB/stream', digits: 1 },
    { key: 'rssKb', title: 'by RSS', digits: 1 },
    { key: 'heapKb', title: 'by heap and buffers', digits: 1 },
    { key: 'baseMb', title: 'RSS before MB', digits: 0 }
  ],
  ratio: { key: 'kb', to: 'undici' },
  isFresh: true,
  skips: ['direct', 'embedded'],
  rounds: ({ isQuick }) => isQuick ? 1 : 3,
  lasts: ({ isQuick }) => isQuick ? 300 : 700,
  async burst (bench, instance, ms) {
    const { child } = instance
    if (child === undefined) throw new Error('has no process')
    // Warm first, or compiled code counts as memory of streams; but little: pages that a warm-up freed
    // and V8 kept would hide what streams take.
    await withStreams(bench, instance, 50, async () => {})
    const before = await collectedBytes(child)
    return await withStreams(bench, instance, bench.openStreams, async () => {
      const stop = pace(bench.upstream, 1000)
      try {
        await sleep(ms)
      } finally {
        stop()
      }
      const after = await collectedBytes(child)
      const rssKb = (after.rss - before.rss) / 1024 / bench.openStreams
      const heapKb = (after.heap - before.heap) / 1024 / bench.openStreams
      return { kb: Math.max(rssKb, heapKb), rssKb, heapKb, baseMb: before.rss / 1024 / 1024 }
    })
  },
  goals (of, bench) {
    const kb = median(of('gateway', 'kb'))
    return [{
      text: `memory per open stream (${bench.openStreams} open): at most 42 KB`,
      isMet: kb <= 42,
      found: `${format(kb, 1)} KB (bare undici translation ${format(median(of('undici', 'kb')), 1)} KB)`
    }]
  }
}

const bodies: Experiment = {
  name: 'bodies',
  skips: ['embedded'],
  title: 'Bodies of 5 MB (one base64 image), 4 connections, closed loop',
  columns: [{ key: 'perSecond', title: 'requests/s', digits: 1 }, { key: 'cpuMs', title: 'CPU ms/request', digits: 1 },
    busy],
  ratio: { key: 'perSecond', to: 'undici' },
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 400 : 800,
  async burst ({ dialect }, instance, ms) {
    const { perSecond, cpuUs, loadBusy } = await measureClosedLoop(instance, largeRequest(dialect), 4, ms)
    return { perSecond, cpuMs: cpuUs / 1000, loadBusy }
  },
  goals (of) {
    const perSecond = median(of('gateway', 'perSecond'))
    return [{
      text: '5 MB bodies, 4 connections: at least 45 requests/s (Portkey did 18)',
      isMet: perSecond >= 45,
      found: `${format(perSecond, 1)}/s`
    }]
  }
}

const bystanders: Experiment = {
  name: 'delay',
  title: '20 streams, an event every 10 ms each, without and with bodies of 5 MB on 4 other connections',
  columns: [
    { key: 'p99Without', title: 'event p99 ms without', digits: 2 }, { key: 'p99With', title: 'with', digits: 2 },
    { key: 'maxWith', title: 'max ms with', digits: 1 }, { key: 'perSecond', title: 'bodies/s', digits: 1 }
  ],
  ratio: { key: 'p99With', to: 'undici' },
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 300 : 600,
  burst: async (bench, instance, ms) => await withStreams(bench, instance, 20, async (streams) => {
    const stop = pace(bench.upstream, 10)
    try {
      const { p99: p99Without = NaN } = await measureEvents(instance, streams, ms)
      const loop = startClosedLoop(instance.port, largeRequest(bench.dialect), 4)
      await sleep(rampMs)
      streams.takeDelays()
      const before = loop.completed()
      await sleep(ms)
      const delays = streams.takeDelays()
      const perSecond = (loop.completed() - before) / ms * 1000
      await loop.stop()
      return { p99Without, p99With: quantile(delays, 0.99), maxWith: quantile(delays, 1), perSecond }
    } finally {
      stop()
    }
  }),
  goals (of) {
    const p99 = median(of('gateway', 'p99With'))
    const share = ratios(of('gateway', 'p99With'), of('http-proxy-3', 'p99With'))
    return [{
      text: "other streams while 5 MB bodies arrive: an event's p99 delay at most 30 ms, or 0.8 of bare http-proxy-3's",
      isMet: p99 <= 30 || share <= 0.8,
      found: `${format(p99, 1)} ms, ${format(share, 2)} of bare http-proxy-3's (without bodies ${format(median(of('gateway', 'p99Without')), 2)} ms)`
    }]
  }
}

const settling: Experiment = {
  name: 'gaps',
  title:
    '20 streams, an event every 10 ms each, while 300 JSON requests/s are answered and settled on other connections',
  columns: [{ key: 'p99', title: 'event p99 ms', digits: 2 }, { key: 'max', title: 'longest gap beyond 10 ms, ms',
    digits: 1 }],
  skips: ['direct', 'http-proxy-3'],
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 500 : 1000,
  burst: async (bench, instance, ms) => await withStreams(bench, instance, 20, async (streams) => {
    const stop = pace(bench.upstream, 10)
    try {
      await sleep(rampMs)
      streams.takeDelays()
      await runOpenLoop(instance.port, smallRequest(bench.dialect, false), poisson(ms, 300))
      const delays = streams.takeDelays()
      return { p99: quantile(delays, 0.99), max: quantile(delays, 1) }
    } finally {
      stop()
    }
  }),
  goals (of) {
    const [max, bare] = [median(of('embedded', 'max')), median(of('undici', 'max'))]
    return Number.isNaN(max) ? [] : [{
      text: 'durable settlements leave no gap over 20 ms in other streams (embedded store)',
      isMet: max <= 20,
      found: `${format(max, 1)} ms (memory store ${format(median(of('gateway', 'max')), 1)} ms, bare undici translation ${format(bare, 1)} ms)`
    }]
  }
}

const stalls: Experiment = {
  name: 'stalls',
  title: 'The longest wait of a small JSON request beside each of the nastiest bodies and answers, ms',
  skips: ['direct', 'http-proxy-3', 'undici', 'embedded'],
  columns: [{ key: 'worst', title: 'the worst', digits: 0 },
    ...[...nasties, ...nastyAnswers].map(({ name }) => ({ key: name, title: name, digits: 0 }))],
  rounds: () => 1,
  lasts: () => 0,
  async burst ({ dialect }, { port }) {
    const waits: Record<string, number> = {}
    for (const { name, request } of nasties) {
      const whole = request()
      // Refused or answered: either is an end.
      const answered = ask(port, whole).catch((error: Error) => {
        if (!/^answered 4\d\d/.test(error.message)) throw error
      })
      waits[name] = await longestWait(port, smallRequest(dialect, false), answered)
    }
    for (const nasty of nastyAnswers) {
      const { path, request } = dialects[nasty.dialect]
      const whole = toWire(path, request({ stream: false, content: asking(nasty) }))
      waits[nasty.name] = await longestWait(port, smallRequest(dialect, false), ask(port, whole))
    }
    return { worst: Math.max(...Object.values(waits)), ...waits }
  },
  goals (of) {
    const worst = median(of('gateway', 'worst'))
    const both = `${nasties.length} nasty bodies and ${nastyAnswers.length} answers`
    return [{ text: `none of ${both} makes others wait for more than 100 ms, with the threads on the loop's core`,
      isMet: worst <= 100, found: `${format(worst, 0)} ms` }]
  }
}

/** How bad the one is, and for how long in turn with being good; undefined: all the time. */
const outages: Readonly<Record<string, { readonly mood: Mood, readonly flapsMs?: number }>> = { dead: { mood: 'dead' },
  hanging: { mood: 'hanging' }, flapping: { mood: 'dead', flapsMs: 300 } }
const outageRate = 300
/** Milliseconds in which a target's share is looked at, and how long it may take to have it again. */
const shareMs = 100
const returnMs = 10_000

/** Requests at a rate, some of which may fail. */
async function bombard (
  { dialect }: Bench,
  { port }: Instance,
  arrivals: readonly number[]
): Promise<{ readonly p50: number, readonly p99: number, readonly errors: number }> {
  let errors = 0
  const request = toWire(dialect.path,
    dialect.request({ stream: false, content: prompt }).replace(publicModel, outageModel))
  const latencies = await runOpenLoop(port, request, arrivals, () => {
    errors++
  })
  return { p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99), errors }
}

/** @returns the function that makes it good again */
async function harm (target: Upstream, { mood, flapsMs }: (typeof outages)[string]): Promise<() => Promise<void>> {
  await target.become(mood)
  if (flapsMs === undefined) return async () => await target.become('good')
  let isGood = false
  let turn: Promise<void> = Promise.resolve()
  const timer = setInterval(() => {
    isGood = !isGood
    turn = turn.then(async () => await target.become(isGood ? 'good' : mood))
    turn.catch(() => {})    // heard when it is made good again
  }, flapsMs)
  return async () => {
    clearInterval(timer)
    await turn
    await target.become('good')
  }
}

/** @returns seconds until the target gets half of its third again, under the same load */
async function shareComesBack (
  bench: Bench,
  instance: Instance,
  target: Upstream,
  count: (one: { readonly errors: number }) => void
): Promise<number> {
  const slice = Array.from({ length: outageRate * shareMs / 1000 }, (_, i) => i * 1000 / outageRate)
  const healed = performance.now()
  for (;;) {
    const seconds = (performance.now() - healed) / 1000
    if (seconds * 1000 > returnMs) throw new Error(`a target that is good again has not its share after ${returnMs} ms`)
    const before = target.asked()
    count(await bombard(bench, instance, slice))
    if (target.asked() - before >= slice.length / 3 / 2) return seconds
  }
}

const outage: Experiment = {
  name: 'outage',
  title:
    `JSON requests of 1 KB to a model of three targets, ${outageRate} arrivals/s: all good, then one dead (refuses), hanging (first_byte ${outageTimes.first_byte} ms) or flapping (refuses for 0.3 s in turn)`,
  columns: [
    { key: 'errors', title: 'failed requests', digits: 0 }, { key: 'goodP50', title: 'all good p50 ms', digits: 2 }, {
      key: 'goodP99',
      title: 'p99 ms',
      digits: 1
    },
    ...Object.keys(outages)
      .flatMap((name) => [
        { key: `${name}P50`, title: `${name}: p50 ÷ good`, digits: 2 },
        { key: `${name}P99`, title: 'p99 ÷ good', digits: 2 },
        { key: `${name}Back`, title: 'share back, s', digits: 1 }
      ])
  ],
  skips: ['direct', 'http-proxy-3', 'undici', 'embedded'],
  rounds: ({ isQuick }) => isQuick ? 1 : 3,
  lasts: ({ isQuick }) => isQuick ? 500 : 1200,
  async burst (bench, instance, ms) {
    const [target] = bench.targets as [Upstream]
    const sample: Record<string, number> = { errors: 0 }
    const count = ({ errors }: { readonly errors: number }): void => { sample['errors']! += errors }
    const goods: Awaited<ReturnType<typeof bombard>>[] = []
    for (const [name, how] of Object.entries(outages)) {
      const good = await bombard(bench, instance, poisson(ms, outageRate))
      const heal = await harm(target, how)
      try {
        const bad = await bombard(bench, instance, poisson(ms, outageRate))
        goods.push(good)
        Object.assign(sample, { [`${name}P50`]: bad.p50 / good.p50, [`${name}P99`]: bad.p99 / good.p99 })
        count(good)
        count(bad)
      } finally {
        await heal()
      }
      sample[`${name}Back`] = await shareComesBack(bench, instance, target, count)
    }
    return { ...sample, goodP50: median(goods.map(({ p50 }) => p50)), goodP99: median(goods.map(({ p99 }) => p99)) }
  },
  goals (of) {
    const errors = of('gateway', 'errors').reduce((sum, value) => sum + value, 0)
    const back = Math.max(...Object.keys(outages).flatMap((name) => of('gateway', `${name}Back`)))
    return [
      { text: 'one of three targets dead, hanging or flapping: no request fails', isMet: errors === 0,
        found: `${errors} failed` },
      { text: `such a target has its share again within breaker.max_open (${outageTimes.max_open / 1000} s)`,
        isMet: back * 1000 <= outageTimes.max_open + shareMs, found: `${format(back, 1)} s at most` }
    ]
  }
}

/**
 * Requests per second that are an account's share of the upstream. With so many accounts the noise is little for the
 * gateway itself: not its CPU is shared here.
 */
const accountShare = sharedConcurrency * 1000 / thinkMs / sharers.length
/** Until the queue of the noisy one is full. */
const noiseMs = 600

const fairness: Experiment = {
  name: 'fairness',
  title: `${sharers.length} accounts share an upstream that takes ${sharedConcurrency} requests at a time, ${thinkMs} ms each: ${sharers.length - 1} of them ask for half of their share, without and with one that asks for 50 times its own (${50 * accountShare} requests/s)`,
  columns: [
    { key: 'p50Without', title: 'p50 ms without', digits: 1 },
    { key: 'p99Without', title: 'p99 ms', digits: 1 },
    { key: 'p50With', title: 'p50 ms with', digits: 1 },
    { key: 'p99With', title: 'p99 ms', digits: 1 },
    { key: 'p50Ratio', title: 'p50 with ÷ without', digits: 2 },
    { key: 'p99Ratio', title: 'p99 with ÷ without', digits: 2 },
    { key: 'noisyServed', title: 'the noisy one\'s, served', digits: 0 },
    { key: 'noisyRefused', title: 'refused', digits: 0 }
  ],
  skips: ['direct', 'http-proxy-3', 'undici', 'embedded'],
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 600 : 1500,
  async burst ({ dialect }, { port }, ms) {
    const body = dialect.request({ stream: false, content: prompt }).replace(publicModel, sharedModel)
    const [noisy, ...quiet] = sharers.map((key) => toWire(dialect.path, body, key)) as [Buffer, ...Buffer[]]
    const ask = async (): Promise<readonly number[]> =>
      await runOpenLoop(port, quiet, poisson(ms, quiet.length * accountShare / 2))
    const without = await ask()
    let noisyRefused = 0
    const noise = runOpenLoop(port, noisy, poisson(noiseMs + ms, 50 * accountShare), () => { noisyRefused++ })
    noise.catch(() => {})    // heard below, unless the quiet ones fail first
    await sleep(noiseMs)
    const beside = await ask()
    const noisyServed = (await noise).length
    const [p50Without, p99Without, p50With, p99With] = [quantile(without, 0.5), quantile(without, 0.99),
      quantile(beside, 0.5), quantile(beside, 0.99)]
    return { p50Without, p99Without, p50With, p99With, p50Ratio: p50With / p50Without, p99Ratio: p99With / p99Without,
      noisyServed, noisyRefused }
  },
  goals (of) {
    const ratio = median(of('gateway', 'p99Ratio'))
    return [{
      text: 'one account at 50 times its share of an upstream: the p99 of the others at most 2x that of quiet',
      isMet: ratio <= 2,
      found: `${format(ratio, 2)}x (p50 ${format(median(of('gateway', 'p50Ratio')), 2)}x; ${format(median(of('gateway', 'p99With')), 0)} ms against ${format(median(of('gateway', 'p99Without')), 0)} ms)`
    }]
  }
}

/** Text of bodies that a thread reads: a long one, and a neighbour's that is just large. */
const longText = 'a word and another '.repeat(30 * 1024 * 1024 / 19)
const neighboursText = 'a word and another '.repeat(300 * 1024 / 19)

const neighbours: Experiment = {
  name: 'neighbours',
  title: 'A key sends bodies of 30 MB without a break, 4 at a time; others send bodies of 300 KB, and of 1 KB, one ' +
    'after the other',
  columns: [
    { key: 'largeWithout', title: '300 KB: p50 ms without', digits: 1 },
    { key: 'largeWith', title: 'with', digits: 1 },
    { key: 'largeRatio', title: 'with ÷ without', digits: 2 },
    { key: 'smallWithout', title: '1 KB: p50 ms without', digits: 2 },
    { key: 'smallWith', title: 'with', digits: 2 },
    { key: 'smallMax', title: 'max ms with', digits: 0 },
    { key: 'perSecond', title: '30 MB bodies/s', digits: 1 }
  ],
  skips: ['direct', 'http-proxy-3', 'undici', 'embedded'],
  rounds: ({ isQuick }) => isQuick ? 2 : 5,
  lasts: ({ isQuick }) => isQuick ? 3000 : 6000,
  async burst ({ dialect }, { port }, ms) {
    const [pusher, large, small] = [longText, neighboursText, prompt].map((content, i) =>
      toWire(dialect.path, dialect.request({ stream: false, content }), sharers[i])) as [Buffer, Buffer, Buffer]
    const waits = async (): Promise<readonly [readonly number[], readonly number[]]> =>
      [await inTurn(port, large, ms), await inTurn(port, small, ms / 3)]
    await inTurn(port, large, ms / 3)                         // a thread begins
    const [largeWithout, smallWithout] = await waits()
    const pushing = startClosedLoop(port, pusher, 4)
    await sleep(1000)
    const [before, begun] = [pushing.completed(), performance.now()]
    const [largeWith, smallWith] = await waits()
    const perSecond = (pushing.completed() - before) / (performance.now() - begun) * 1000
    await pushing.stop()
    return { largeWithout: median(largeWithout), largeWith: median(largeWith),
      largeRatio: median(largeWith) / median(largeWithout), smallWithout: median(smallWithout),
      smallWith: median(smallWith), smallMax: Math.max(...smallWith), perSecond }
  },
  goals (of) {
    const ratio = median(of('gateway', 'largeRatio'))
    return [{ text: 'a key that sends 30 MB bodies without a break: a neighbour\'s median at most 2x that of quiet',
      isMet: ratio <= 2, found: `${format(ratio, 2)}x` }]
  }
}

/** Milliseconds that each of the requests took, sent one after the other for so long. */
async function inTurn (port: number, request: Buffer, ms: number): Promise<readonly number[]> {
  const took: number[] = []
  const end = performance.now() + ms
  while (performance.now() < end) {
    const from = performance.now()
    await ask(port, request)
    took.push(performance.now() - from)
  }
  return took
}

/**
 * By CPU, since Redis has the core of the load generator, and two workers have one core: what sharing costs, not what
 * it gains.
 */
const shared: Experiment = {
  name: 'redis',
  only: ['embedded', 'redis', 'workers'],
  title: 'The same JSON requests with Redis, and with two workers on one core, after 40,000 of them for each',
  columns: [{ key: 'perSecond', title: 'requests/s', digits: 0 }, { key: 'cpuUs', title: 'CPU µs/request', digits: 1 },
    { key: 'perCore', title: 'requests/s per core', digits: 0 }, busy],
  ratio: { key: 'cpuUs', to: 'embedded' },
  rounds: ({ isQuick }) => isQuick ? 3 : 10,
  lasts: ({ isQuick }) => isQuick ? 400 : 900,
  async burst ({ dialect, isQuick }, instance, ms) {
    const request = smallRequest(dialect, false)
    await warmUp(instance, request, isQuick)
    const measured = await measureClosedLoop(instance, request, 32, ms)
    return { ...measured, perCore: 1_000_000 / measured.cpuUs }
  },
  goals: () => []
}

const cores: Experiment = {
  name: 'cores',
  only: ['undici', 'redis', 'workers'],
  title: 'The same JSON requests where contenders, load and upstream share two cores: requests of a CPU second of the ' +
    'gateway, with one worker and with two, after 40,000 of them for each',
  columns: [{ key: 'perSecond', title: 'requests/s', digits: 0 }, { key: 'cpuUs', title: 'CPU µs/request', digits: 1 },
    { key: 'perCpuSecond', title: 'requests of a CPU second', digits: 0 }, busy],
  ratio: { key: 'perCpuSecond', to: 'redis' },
  rounds: ({ isQuick }) => isQuick ? 5 : 20,
  lasts: ({ isQuick }) => isQuick ? 400 : 900,
  async burst ({ dialect, isQuick }, instance, ms) {
    const request = smallRequest(dialect, false)
    const measured = await onBothCores([instance.child!], async () => {
      await warmUp(instance, request, isQuick)
      return await measureClosedLoop(instance, request, 32, ms)
    })
    return { ...measured, perCpuSecond: 1_000_000 / measured.cpuUs }
  },
  goals (of) {
    const ratio = ratios(of('workers', 'perCpuSecond'), of('redis', 'perCpuSecond'))
    return [{ text: 'two workers on two cores that the load shares: at least 0.9 of the requests of a CPU second of one',
      isMet: ratio >= 0.9, found: format(ratio, 2) }]
  }
}

export const experiments: readonly Experiment[] = [json, warm, budget, paced, flatOut, latency, memory, bodies,
  bystanders, stalls, settling, outage, fairness, neighbours, shared, cores, starts, dashboard]
