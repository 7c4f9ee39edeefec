// Who gets a place at an upstream, and when: the rules one by one, and random sequences against a model of them that is
// slow and plain.
import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import t from 'tap'
import type { UpstreamLimits } from '../../src/config/config.ts'
import { Snapshot } from '../../src/gateway/snapshot.ts'
import { endpoints } from '../../src/endpoints/index.ts'
import { GatewayError, toGatewayError } from '../../src/errors.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { ApiKey } from '../../src/core/facts.ts'
import { Heap } from '../../src/base/heap.ts'
import { FairQueues } from '../../src/upstream/limits/queue.ts'
import { quantile, seededRandom } from '../bench/statistics.ts'
import { startClock } from '../support/clock.ts'
import { account, config, exchange, key, services, upstreamConfig } from '../support/exchange.ts'

const own = services()

/** A configuration whose one upstream has these limits. */
function live (generation: number, limits?: UpstreamLimits): Snapshot {
  return new Snapshot({ config: config({ upstreams: { u: upstreamConfig(limits === undefined ? {} : { limits }) } }),
    generation, plugins: [], endpoints, services: own })
}

function limits (concurrency: number, queue = 100, queue_timeout = 10_000): UpstreamLimits {
  return { concurrency, queue, queue_timeout }
}

/** A request at the gate. */
interface Visit {
  readonly exchange: Exchange
  giveBack: () => void
  /** why it was not let in */
  error: GatewayError | undefined
}

/** A gate, and all who came. They are named by their account and a number: the second of a is a2. */
class Entrance {
  readonly clock = startClock()
  readonly queues = new FairQueues(this.clock.now, this.clock.timer)
  snapshot: Snapshot
  readonly visits = new Map<string, Visit>()
  readonly #counts = new Map<string, number>()
  #said: string[] = []

  constructor (first?: UpstreamLimits) {
    this.snapshot = live(1, first)
  }

  get hasRoom (): boolean {
    return this.queues.hasRoom(this.snapshot.upstreams.get('u')!)
  }

  /** by upstream */
  get waiting (): readonly (readonly [upstream: string, waiting: number])[] {
    return this.queues.view().map(({ upstream, waiting }) => [upstream, waiting])
  }

  /** @param payer '': nobody knows */
  ask (payer: string, times = 1, on = this.snapshot): void {
    for (let i = 0; i < times; i++) {
      const count = (this.#counts.get(payer) ?? 0) + 1
      this.#counts.set(payer, count)
      const asking = exchange(on)
      if (payer !== '') asking.set(ApiKey, { key: key({ account: payer }), account: account({ id: payer }) })
      this.come(payer + count, asking)
    }
  }

  come (name: string, asking: Exchange): void {
    const visit: Visit = { exchange: asking, giveBack () { throw new Error(`${name} has no place`) }, error: undefined }
    this.visits.set(name, visit)
    const enters = (giveBack: () => void): void => {
      visit.giveBack = giveBack
      this.#said.push(`${name} in`)
    }
    const fails = (thrown: unknown): void => {
      visit.error = toGatewayError(thrown)
      this.#said.push(`${name} ${visit.error.row}`)
    }
    try {
      const entered = this.queues.enter(asking.snapshot.upstreams.get('u')!, asking)
      if (entered instanceof Promise) entered.then(enters, fails)
      else enters(entered)
    } catch (thrown) {
      fails(thrown)
    }
  }

  end (name: string): void {
    this.visits.get(name)!.giveBack()
  }

  leave (name: string): void {
    this.visits.get(name)!.exchange.abort(new GatewayError('client_closed'))
  }

  reload (next?: UpstreamLimits): void {
    this.snapshot = live(this.snapshot.generation + 1, next)
    this.queues.reload(this.snapshot.config.upstreams, this.snapshot.generation)
  }

  /** Who was let in or refused since the last time, in that order. */
  async heard (): Promise<readonly string[]> {
    await turn()
    return this.#said.splice(0)
  }

  /** Ends whoever runs, again and again. @returns the order in which the others were let in */
  async order (running: string): Promise<readonly string[]> {
    const order: string[] = []
    for (;;) {
      this.end(running)
      const [said] = await this.heard()
      if (said === undefined) return order
      running = said.replace(' in', '')
      order.push(running)
    }
  }
}

async function metric (name: string): Promise<number> {
  return Number(
    (await own.metrics.print()).split('\n').find((line) => line.startsWith(`${name} `))?.split(' ').at(-1) ?? 0
  )
}

t.test('without limits nothing is made for a request: no promise, no function of its own', async (t) => {
  const { queues, snapshot } = new Entrance()
  const upstream = snapshot.upstreams.get('u')!
  const [one, other] = [queues.enter(upstream, exchange(snapshot)), queues.enter(upstream, exchange(snapshot))]
  t.type(one, 'function')
  t.equal(one, other)
  t.equal(queues.hasRoom(upstream), true)
})

t.test('so many at a time; a place that is given back twice is free once', async (t) => {
  const entrance = new Entrance(limits(2))
  t.equal(entrance.hasRoom, true)
  entrance.ask('a', 5)
  t.equal(entrance.hasRoom, false)
  t.strictSame(await entrance.heard(), ['a1 in', 'a2 in'])
  entrance.end('a1')
  entrance.end('a1')
  t.strictSame(await entrance.heard(), ['a3 in'], 'who came first is let in first')
  entrance.end('a3')
  entrance.end('a2')
  t.strictSame(await entrance.heard(), ['a4 in', 'a5 in'])
  entrance.end('a4')
  t.equal(entrance.hasRoom, true)
})

t.test('a quiet account is next, though fifty of another wait', async (t) => {
  for (const concurrency of [1, 2, 10]) {
    const entrance = new Entrance(limits(concurrency))
    entrance.ask('noisy', concurrency + 50)
    entrance.ask('quiet')
    await entrance.heard()
    entrance.end('noisy1')
    t.strictSame(await entrance.heard(), ['quiet1 in'], `of ${concurrency} places`)
  }
})

t.test('accounts that run as much take turns, whatever each has waiting; requests without a key are one account', async (t) => {
  const entrance = new Entrance(limits(1))
  for (const [payer, times] of [['a', 4], ['b', 2], ['', 2], ['c', 1]] as const) entrance.ask(payer, times)
  await entrance.heard()
  t.strictSame(await entrance.order('a1'), ['b1', '1', 'c1', 'a2', 'b2', '2', 'a3', 'a4'])
})

t.test('who runs least is next, not who waited longest', async (t) => {
  const entrance = new Entrance(limits(3))
  entrance.ask('a', 4)
  entrance.ask('b', 2)
  await entrance.heard()
  entrance.end('a1')
  t.strictSame(await entrance.heard(), ['b1 in'])
  entrance.end('a2')
  t.strictSame(await entrance.heard(), ['b2 in'], 'each runs one, and the last place was of a')
})

t.test('a full queue: the newest of the greediest account gives way to who waits less, and to nobody else', async (t) => {
  const entrance = new Entrance(limits(1, 4))
  entrance.ask('a', 5)
  await entrance.heard()
  entrance.ask('a')
  t.strictSame(await entrance.heard(), ['a6 queue_full'])
  entrance.ask('b', 2)
  t.strictSame(await entrance.heard(), ['a5 queue_full', 'a4 queue_full'])
  entrance.ask('b')
  t.strictSame(await entrance.heard(), ['b3 queue_full'], 'two of each wait')
  entrance.ask('c')
  t.strictSame(await entrance.heard(), ['a3 queue_full'], 'as greedy as b, and runs one')
  t.strictSame(await entrance.order('a1'), ['b1', 'c1', 'a2', 'b2'])
})

t.test('a queue for one: who runs nothing is let wait in the place of who does, and is not thrown out by that one again', async (t) => {
  const entrance = new Entrance(limits(1, 1))
  entrance.ask('a', 2)
  entrance.ask('b')
  t.strictSame(await entrance.heard(), ['a1 in', 'a2 queue_full'])
  entrance.ask('a')
  t.strictSame(await entrance.heard(), ['a3 queue_full'])
  t.strictSame(await entrance.order('a1'), ['b1'])
})

t.test('without a queue nobody waits', async (t) => {
  const entrance = new Entrance(limits(1, 0))
  entrance.ask('a')
  entrance.ask('b')
  t.strictSame(await entrance.heard(), ['a1 in', 'b1 queue_full'])
  t.match(entrance.visits.get('b1')!.error, { status: 429, retryAfter: 1 })
})

t.test('who waited for queue_timeout is refused, and nobody is let in for it', async (t) => {
  const entrance = new Entrance(limits(1, 100, 3000))
  entrance.ask('a', 2)
  await entrance.clock.advance(1000)
  entrance.ask('b')
  await entrance.clock.advance(1999)
  t.strictSame(await entrance.heard(), ['a1 in'])
  await entrance.clock.advance(1)
  t.strictSame(await entrance.heard(), ['a2 queue_timeout'])
  t.equal(entrance.visits.get('a2')!.error!.status, 429)
  entrance.end('a1')
  t.strictSame(await entrance.heard(), ['b1 in'])
  await entrance.clock.advance(60_000)
  t.strictSame(await entrance.heard(), [], 'who was let in is not timed any more')
})

t.test('Retry-After: how long it takes until it is that account\'s turn, as fast as places become free', async (t) => {
  const entrance = new Entrance(limits(1, 6, 1_000_000))
  entrance.ask('noisy', 9)
  const wait = (name: string): number => entrance.visits.get(name)!.error!.retryAfter!
  t.equal(wait('noisy8'), 1, 'nothing is known, and no time has passed')
  for (const name of ['noisy1', 'noisy2', 'noisy3']) {
    await entrance.clock.advance(2000)
    entrance.end(name)
    await entrance.heard()
  }
  entrance.ask('noisy', 4)
  t.equal(wait('noisy13'), 14, 'six wait before it')
  entrance.ask('quiet', 2)
  await entrance.heard()
  t.equal(wait('noisy12'), 12)
  t.equal(wait('noisy11'), 12)
  entrance.ask('third', 2)
  entrance.ask('quiet')
  t.equal(wait('quiet3'), 14, 'of three accounts, two waiting of each')
  await entrance.clock.advance(100_000)
  entrance.ask('noisy')
  t.equal(wait('noisy14'), 60, 'places that do not become free any more')
})

t.test('Retry-After after a reload that leaves fewer places than run', async (t) => {
  const entrance = new Entrance(limits(4))
  entrance.ask('a', 3)
  await entrance.clock.advance(100_000)
  entrance.reload(limits(1, 0))
  entrance.ask('b')
  t.equal(entrance.visits.get('b1')!.error!.retryAfter, 1, 'all places are taken since now')
  for (const name of ['a1', 'a2']) {
    await entrance.clock.advance(2000)
    entrance.end(name)
  }
  entrance.ask('b')
  t.equal(entrance.visits.get('b2')!.error!.retryAfter, 2)
})

t.test('a client that leaves, leaves the queue at once; a drain\'s deadline says why', async (t) => {
  const entrance = new Entrance(limits(1, 2))
  entrance.ask('a', 3)
  await entrance.heard()
  entrance.leave('a2')
  t.strictSame(await entrance.heard(), ['a2 client_closed'])
  entrance.ask('a')
  t.strictSame(await entrance.heard(), [], 'there was room for it in the queue')
  entrance.visits.get('a3')!.exchange.abort(new GatewayError('service_unavailable'))
  t.strictSame(await entrance.heard(), ['a3 service_unavailable'])
  entrance.end('a1')
  t.strictSame(await entrance.heard(), ['a4 in'])
  entrance.leave('a4')
  t.strictSame([await entrance.heard(), entrance.waiting, entrance.hasRoom], [[], [['u', 0]], false],
    'who was let in gives the place back itself')
  const gone = exchange(entrance.snapshot)
  gone.abort(new GatewayError('client_closed'))
  entrance.come('gone', gone)
  t.strictSame(await entrance.heard(), ['gone client_closed'], 'one that left before never waits')
})

t.test('a reload that raises the limit lets in who waits; one that lowers it takes no place away, and gives none again', async (t) => {
  const entrance = new Entrance(limits(1))
  const before = entrance.snapshot
  entrance.ask('a', 6)
  await entrance.heard()
  entrance.reload(limits(3))
  t.strictSame(await entrance.heard(), ['a2 in', 'a3 in'])
  entrance.ask('old', 1, before)
  entrance.end('a1')
  t.strictSame(await entrance.heard(), ['old1 in'], 'whose request began before is let in by what holds now')
  entrance.reload(limits(1))
  entrance.end('a2')
  entrance.end('a3')
  t.strictSame(await entrance.heard(), [])
  t.equal(entrance.hasRoom, false)
  entrance.end('old1')
  t.strictSame(await entrance.heard(), ['a4 in'])
})

t.test('a reload that takes the limits away lets in all', async (t) => {
  const entrance = new Entrance(limits(1))
  entrance.ask('a', 3)
  await entrance.heard()
  entrance.reload()
  t.strictSame(await entrance.heard(), ['a2 in', 'a3 in'])
  for (const name of ['a1', 'a2', 'a3']) entrance.end(name)
  const upstream = entrance.snapshot.upstreams.get('u')!
  t.equal(entrance.queues.enter(upstream, exchange(entrance.snapshot)),
    entrance.queues.enter(upstream, exchange(entrance.snapshot)), 'nothing of the queue is left')
  entrance.reload(limits(1))
  entrance.ask('a', 2)
  t.strictSame(await entrance.heard(), ['a4 in'])
  entrance.leave('a5')
  entrance.end('a4')
  entrance.reload()
  t.strictSame(entrance.waiting, [], 'nor of one at which nothing ran')
})

t.test('they come in a hundred at a time: so many at once would let nobody else have a turn', async (t) => {
  const entrance = new Entrance(limits(1, 1000))
  entrance.ask('a', 251)
  await entrance.heard()
  entrance.reload()
  const turns: number[] = []
  for (let said = await entrance.heard(); said.length > 0; said = await entrance.heard()) turns.push(said.length)
  t.strictSame(turns, [200, 50], 'one hundred with the reload, and one in each turn of the event loop')
  t.strictSame(entrance.waiting, [['u', 0]])
})

t.test('a reload without the upstream: who waits for it waits as before, and then nothing is left', async (t) => {
  const entrance = new Entrance(limits(1))
  entrance.ask('a', 3)
  await entrance.heard()
  entrance.queues.reload({}, 2)
  t.strictSame(await entrance.heard(), [], 'whose limits were those of its vendor')
  t.strictSame(await entrance.order('a1'), ['a2', 'a3'])
  t.strictSame(entrance.waiting, [])
  entrance.ask('a', 2)
  await entrance.heard()
  entrance.queues.reload({}, 3)
  entrance.queues.reload({ u: upstreamConfig({ limits: limits(2) }) }, 4)
  t.strictSame(await entrance.heard(), ['a5 in'], 'it is back')
  for (const name of ['a4', 'a5']) entrance.end(name)
  entrance.queues.reload({}, 5)
  t.strictSame(entrance.waiting, [])
})

t.test('accounts of which nothing runs or waits are forgotten', async (t) => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const { queues, snapshot } = new Entrance(limits(1, 0))
  const upstream = snapshot.upstreams.get('u')!
  const visit = (id: string): void => {
    const asking = exchange(snapshot)
    asking.set(ApiKey, { key: key({ account: id }), account: account({ id }) })
    const giveBack = queues.enter(upstream, asking)
    if (typeof giveBack === 'function') giveBack()
  }
  visit('first')
  collect()
  const before = process.memoryUsage().heapUsed
  for (let i = 0; i < 20_000; i++) visit(`a${i}`)
  collect()
  t.ok(process.memoryUsage().heapUsed - before < 1_000_000, 'fifty bytes each')
})

t.test('metrics: how many wait, how long, and who was refused', async (t) => {
  const entrance = new Entrance(limits(1, 2, 4000))
  const names = ['wait_seconds_count{upstream="u"}', 'wait_seconds_sum{upstream="u"}',
    'refused_total{upstream="u",reason="queue_full"}', 'refused_total{upstream="u",reason="queue_timeout"}']
  const read = async (): Promise<readonly number[]> =>
    await Promise.all(names.map((name) => metric(`gateway_upstream_queue_${name}`)))
  const [count, seconds, full, late] = await read() as [number, number, number, number]
  entrance.ask('a', 4)
  t.strictSame([await read(), entrance.waiting], [[count, seconds, full + 1, late], [['u', 2]]])
  await entrance.clock.advance(3000)
  entrance.end('a1')
  t.strictSame([await read(), entrance.waiting], [[count + 1, seconds + 3, full + 1, late], [['u', 1]]])
  await entrance.clock.advance(1000)
  t.strictSame([await read(), entrance.waiting], [[count + 1, seconds + 3, full + 1, late + 1], [['u', 0]]])
})

t.test('ten thousand of a thousand accounts wait: each gets its turn, and nobody a second one before', async (t) => {
  const entrance = new Entrance(limits(1, 10_000))
  entrance.ask('first')
  for (let i = 0; i < 1000; i++) entrance.ask(`a${i}-`, 10)
  await entrance.heard()
  const order = await entrance.order('first1')
  t.strictSame(order, Array.from({ length: 10_000 }, (_, i) => `a${i % 1000}-${Math.floor(i / 1000) + 1}`))
})

/**
 * Six seconds of 25 accounts at an upstream that takes 8 requests at a time, 40 ms each: 24 ask for half of their
 * share.
 * @param noise requests per second of the other one
 * @returns milliseconds from a request of one of the 24 to its end
 */
async function share (noise: number): Promise<readonly number[]> {
  const { clock, queues, snapshot } = new Entrance(limits(8))
  const upstream = snapshot.upstreams.get('u')!
  const took: number[] = []
  const come = (payer: string): void => {
    const began = clock.now()
    const asking = exchange(snapshot)
    asking.set(ApiKey, { key: key({ account: payer }), account: account({ id: payer }) })
    const work = (giveBack: () => void): void => {
      clock.timer(40, () => {
        giveBack()
        if (payer !== 'noisy') took.push(clock.now() - began)
      })
    }
    try {
      const entered = queues.enter(upstream, asking)
      if (entered instanceof Promise) entered.then(work, () => {})
      else work(entered)
    } catch (thrown) {
      if (payer !== 'noisy') throw thrown
    }
  }
  const random = seededRandom(1)
  const arrive = (payer: () => string, perSecond: number): void => {
    clock.timer(-Math.log(1 - random()) * 1000 / perSecond, () => {
      come(payer())
      arrive(payer, perSecond)
    })
  }
  let next = 0
  arrive(() => `quiet ${next++ % 24}`, 96)
  if (noise > 0) arrive(() => 'noisy', noise)
  await clock.advance(6000)
  return took
}

t.test('one account at fifty times its share leaves the p99 of the others within twice that of quiet', async (t) => {
  const [without, beside] = [await share(0), await share(50 * 8)]
  t.ok(without.length > 400 && beside.length > 400)
  t.comment(
    `p50 ${quantile(without, 0.5)} and ${quantile(beside, 0.5)} ms, p99 ${quantile(without, 0.99)} and ${quantile(beside, 0.99)} ms`
  )
  t.ok(quantile(beside, 0.99) <= 2 * quantile(without, 0.99))
})

t.test('a heap: the first is the least, whatever was changed or taken out; each step looks at few', (t) => {
  let looks = 0
  t.doesNotThrow(() => {
    fc.assert(
      fc.property(fc.array(fc.record({ item: fc.nat(99), value: fc.option(fc.nat(20)) }), { maxLength: 300 }),
        (steps) => {
          const items = Array.from({ length: 100 }, () => ({ value: 0 }))
          const heap = new Heap<{ value: number }>((one, other) => {
            looks++
            return one.value < other.value
          })
          const inside = new Set<{ value: number }>()
          for (const { item: index, value } of steps) {
            const item = items[index]!
            looks = 0
            if (value === null) {
              heap.remove(item)
              inside.delete(item)
            } else {
              item.value = value
              heap.place(item)
              inside.add(item)
            }
            if (looks > 3 * Math.ceil(Math.log2(inside.size + 2))) return false
            if (
              heap.size !== inside.size ||
              heap.first?.value !== [...inside].map((one) => one.value).toSorted((a, b) => a - b)[0]
            ) return false
          }
          return true
        })
    )
  })
  t.end()
})

const steps = fc.array(fc.oneof(
  { weight: 8,
    arbitrary: fc.record({ kind: fc.constant('ask' as const), payer: fc.constantFrom('a', 'a', 'a', 'b', 'c', 'd') }) },
  { weight: 5,
    arbitrary: fc.record({ kind: fc.constantFrom('end' as const, 'end' as const, 'again' as const, 'leave' as const),
      which: fc.nat(1000) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.integer({ min: 0, max: 400 }) }) },
  { weight: 1,
    arbitrary: fc.record({ kind: fc.constant('reload' as const), concurrency: fc.integer({ min: 1, max: 4 }),
      queue: fc.nat(6) }) }
), { minLength: 30, maxLength: 80 })

interface Waiting {
  readonly name: string
  readonly payer: string
  readonly until: number
}

/** What the rules say, with lists that are searched. */
class Model {
  running: Omit<Waiting, 'until'>[] = []
  waiting: Waiting[] = []
  readonly #turns = new Map<string, number>()
  #turn = 0
  limits: UpstreamLimits

  constructor (first: UpstreamLimits) {
    this.limits = first
  }

  runningOf (payer: string): number {
    return this.running.filter((one) => one.payer === payer).length
  }

  waitingOf (payer: string): number {
    return this.waiting.filter((one) => one.payer === payer).length
  }

  end ({ name, payer }: Omit<Waiting, 'until'>): void {
    this.running = this.running.filter((one) => one.name !== name)
    this.#turns.set(payer, ++this.#turn)
  }

  letIn (): string[] {
    const said: string[] = []
    while (this.running.length < this.limits.concurrency && this.waiting.length > 0) {
      const [next] = this.waiting.toSorted((one, other) =>
        this.runningOf(one.payer) - this.runningOf(other.payer) ||
        this.#turns.get(one.payer)! - this.#turns.get(other.payer)!
      )
      said.push(...this.#admit(next!))
    }
    return said
  }

  /** @param refused who had to give way, if anybody did: of equally greedy ones it may be either's */
  ask (one: Waiting, refused: string | undefined): string[] {
    if (this.running.length < this.limits.concurrency) return this.#admit(one)
    const said: string[] = []
    if (this.waiting.length >= this.limits.queue) {
      const most = Math.max(0, ...this.waiting.map(({ payer }) => this.waitingOf(payer)))
      const greediest = this.waiting.filter(({ payer }) => this.waitingOf(payer) === most)
      const runs = Math.max(0, ...greediest.map(({ payer }) => this.runningOf(payer)))
      const own = this.waitingOf(one.payer) + 1
      if (most < own || (most === own && runs <= this.runningOf(one.payer))) return [`${one.name} queue_full`]
      const newest = greediest.filter(({ payer, name }) =>
        this.runningOf(payer) === runs && this.waiting.findLast((other) => other.payer === payer)!.name === name
      )
      const given = newest.find(({ name }) => name === refused)
      if (given === undefined) return [`one of ${newest.map(({ name }) => name).join()} queue_full`]
      this.waiting = this.waiting.filter((other) => other !== given)
      said.push(`${given.name} queue_full`)
    }
    if (this.waitingOf(one.payer) === 0) this.#turns.set(one.payer, ++this.#turn)
    this.waiting.push(one)
    return said
  }

  #admit ({ name, payer }: Waiting): string[] {
    this.waiting = this.waiting.filter((one) => one.name !== name)
    this.running.push({ name, payer })
    this.#turns.set(payer, ++this.#turn)
    return [`${name} in`]
  }
}

t.test('whatever comes, leaves, times out and is reloaded: never too many, nobody waits while a place is free, everybody is told once', async (t) => {
  const patience = 1000
  await t.resolves(fc.assert(fc.asyncProperty(steps, async (sequence) => {
    const entrance = new Entrance(limits(2, 4, patience))
    const model = new Model(limits(2, 4, patience))
    const over: string[] = []
    let mostWaiting = 4
    for (const step of sequence) {
      const expected: string[] = []
      switch (step.kind) {
        case 'ask': {
          const before = entrance.visits.size
          entrance.ask(step.payer)
          const said = await entrance.heard()
          const name = [...entrance.visits.keys()][before]!
          const refused = said.find((line) => line.endsWith(' queue_full'))?.replace(' queue_full', '')
          expected.push(...model.ask({ name, payer: step.payer, until: entrance.clock.now() + patience }, refused))
          assert.deepEqual(said, expected)
          break
        }
        case 'end': {
          const ended = model.running[step.which % Math.max(1, model.running.length)]
          if (ended === undefined) break
          entrance.end(ended.name)
          over.push(ended.name)
          model.end(ended)
          expected.push(...model.letIn())
          break
        }
        case 'again': if (over.length > 0) entrance.end(over[step.which % over.length]!); break
        case 'leave': {
          const left = model.waiting[step.which % Math.max(1, model.waiting.length)]
          if (left === undefined) break
          entrance.leave(left.name)
          model.waiting = model.waiting.filter((one) => one !== left)
          expected.push(`${left.name} client_closed`)
          break
        }
        case 'pass': {
          await entrance.clock.advance(step.ms)
          const late = model.waiting.filter(({ until }) => until <= entrance.clock.now())
          model.waiting = model.waiting.filter((one) => !late.includes(one))
          expected.push(...late.map(({ name }) => `${name} queue_timeout`))
          break
        }
        case 'reload':
          model.limits = limits(step.concurrency, step.queue, patience)
          mostWaiting = Math.max(step.queue, model.waiting.length)
          entrance.reload(model.limits)
          expected.push(...model.letIn())
      }
      if (step.kind !== 'ask') assert.deepEqual(await entrance.heard(), expected)
      assert.ok(model.waiting.length === 0 || !entrance.hasRoom, 'nobody waits while a place is free')
      assert.ok(model.waiting.length <= mostWaiting)
    }
    for (let next = model.running[0]; next !== undefined; next = model.running[0]) {
      entrance.end(next.name)
      model.end(next)
      assert.deepEqual(await entrance.heard(), model.letIn())
    }
    assert.deepEqual([model.waiting.length, entrance.hasRoom], [0, true])
  }), { numRuns: 200 }))
})
