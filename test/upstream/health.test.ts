// What is known of targets and credentials, on a clock that stands still until a test moves it.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { UpstreamConfig } from '../../src/config/config.ts'
import { type ErrorCode, GatewayError } from '../../src/errors.ts'
import type { UpstreamFailure } from '../../src/core/plugin.ts'
import { Cooldown } from '../../src/upstream/limits/cooldown.ts'
import { blameFor, isPassing, isTurnedAway } from '../../src/upstream/limits/attribution.ts'
import { Breaker } from '../../src/upstream/limits/breaker.ts'
import { SlidingWindow } from '../../src/upstream/limits/sliding-window.ts'
import { readRetryAfter } from '../../src/upstream/limits/retry-after.ts'
import { RetryBudget } from '../../src/upstream/limits/retry-budget.ts'
import { connectionsOf, Upstreams } from '../../src/upstream/pool.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { backoffOf } from '../../src/pipeline/failover.ts'
import { model, upstreamConfig } from '../support/exchange.ts'

const START = 1_800_000_000_000
const settings = { failures: 3, ratio: 50, window: 10_000, open: 5000, max_open: 30_000 }
const reset: UpstreamFailure = { kind: 'reset', cause: new Error('gone') }
const status = (code: number, headers: Record<string, string> = {}, body: unknown = {}): UpstreamFailure => ({
  kind: 'status',
  status: code,
  headers,
  body
})
const FORBIDDEN = { type: 'error', error: { type: 'permission_error', message: 'no' } }
const named = (code: ErrorCode = 'upstream_error'): GatewayError => new GatewayError(code)

interface Bench {
  readonly upstreams: Upstreams
  readonly upstream: Upstream
  /** milliseconds */
  pass (ms: number): void
  readonly logged: (readonly unknown[])[]
}

function bench (t: Test, more: Partial<UpstreamConfig> = {}): Bench {
  let now = START
  const logged: (readonly unknown[])[] = []
  const note = (...line: readonly unknown[]): void => { logged.push(line) }
  const upstreams = new Upstreams(undefined, () => now, undefined, { info: note, warn: note })
  t.teardown(() => upstreams.destroy())
  return { upstreams, upstream: upstreams.open('u', upstreamConfig({ breaker: settings, ...more })), pass (ms) {
    now += ms
  }, logged }
}

const two = [{ id: 'one', headers: { 'X-Api-Key': '1' } }, { id: 'two', headers: { 'X-Api-Key': '2' } }]

t.test('of each attempt metrics hear one end at most, one answer at most, and the answer first', async (t) => {
  const steps = fc.array(fc.constantFrom('begin', 'succeed', 'broken', 'refused', 'unpaid', 'leave'), { maxLength: 6 })
  await fc.assert(fc.asyncProperty(steps, async (taken) => {
    const told: string[] = []
    const upstreams = new Upstreams(undefined, () => START, undefined, undefined, {
      target: (upstream, model) => ({
        answered (ms) { told.push(`${upstream}/${model} answered ${ms >= 0}`) },
        done (result) { told.push(`${upstream}/${model} ${result}`) }
      })
    })
    const permit = upstreams.health.enter(upstreams.open('u', upstreamConfig()), 'm')!
    const expected: string[] = []
    let isOver = false
    for (const one of taken) {
      if (one === 'begin') permit.begin()
      else if (one === 'succeed') permit.succeed()
      else if (one === 'leave') permit.leave()
      else if (one === 'broken') permit.fail(reset, named())
      else if (one === 'unpaid') permit.fail(status(402), named())
      else permit.fail(status(400), named('invalid_request'))
      if (isOver) continue
      const isAnswer = one === 'begin' || one === 'succeed'
      if (isAnswer && expected.length === 0) expected.push('u/m answered true')
      isOver = one !== 'begin'
      const results: Readonly<Record<string, string>> = { succeed: 'ok', broken: 'failed', unpaid: 'failed',
        refused: 'refused' }
      if (results[one] !== undefined) expected.push(`u/m ${results[one]}`)
    }
    t.strictSame(told, expected, taken.join(' '))
    await upstreams.destroy()
  }), { numRuns: 200 })
})

t.test('a window of whole seconds counts what is in it', async (t) => {
  const recent = new SlidingWindow()
  for (const second of [0, 0, 1, 9, 10, 25]) recent.note(second % 2 === 1, START + second * 1000)
  t.strictSame(recent.count(30_000, START + 25_999), { all: 6, marked: 3 })
  t.strictSame(recent.count(16_000, START + 25_000), { all: 2, marked: 1 },
    'the tenth second is within 16 seconds of the 25th, the ninth is not')
  recent.note(true, START) // the clock was set back
  t.strictSame(recent.count(1000, START + 25_000), { all: 2, marked: 2 })
  t.strictSame(recent.count(1000, START + 27_000), { all: 0, marked: 0 })
  recent.note(true, START + 28_000)
  recent.clear()
  t.strictSame(recent.count(1000, START + 28_000), { all: 0, marked: 0 })
})

t.test('a window that nobody asks for keeps no more than the longest one', async (t) => {
  const recent = new SlidingWindow()
  for (let second = 0; second < 100_000; second++) recent.note(second % 2 === 1, START + second * 1000)
  t.strictSame(recent.count(Infinity, START + 99_999_000), { all: 600, marked: 300 })
  t.strictSame(recent.count(600_000, START + 99_999_000), { all: 600, marked: 300 }, 'which is all that it may count')
})

t.test('a breaker', async (t) => {
  const opened = (): Breaker => {
    const breaker = new Breaker()
    for (let i = 0; i < settings.failures; i++) breaker.fail(breaker.enter(START), settings, START)
    return breaker
  }

  await t.test('opens at so many failures, if they are such a share of what ended', async (t) => {
    const breaker = new Breaker()
    const [first, second, third] = [breaker.enter(START), breaker.enter(START), breaker.enter(START)]
    t.equal(breaker.fail(first, settings, START), undefined)
    t.equal(breaker.fail(second, settings, START), undefined)
    t.equal(breaker.state(START), 'closed')
    t.equal(breaker.fail(third, settings, START), 5000)
    t.strictSame([breaker.state(START), breaker.wait(START), breaker.wait(START + 4999)], ['open', 5000, 1])

    const busy = new Breaker()
    for (let i = 0; i < 10; i++) busy.succeed(busy.enter(START), START)
    for (let i = 0; i < 9; i++) t.equal(busy.fail(busy.enter(START), settings, START), undefined)
    t.equal(busy.fail(busy.enter(START), settings, START), 5000, 'ten of twenty')
  })

  await t.test('forgets what is older than its window', async (t) => {
    const breaker = new Breaker()
    breaker.fail(breaker.enter(START), settings, START)
    breaker.fail(breaker.enter(START), settings, START)
    t.equal(breaker.fail(breaker.enter(START + 10_000), settings, START + 10_000), undefined)
    t.strictSame(breaker.count(settings.window, START + 10_000), { all: 1, marked: 1 })
  })

  await t.test('lets one at a time try, and closes when that one is answered', async (t) => {
    const breaker = opened()
    const now = START + 5000
    t.strictSame([breaker.state(now), breaker.wait(now)], ['half_open', 0])
    const probe = breaker.enter(now)
    t.equal(breaker.wait(now), 250, 'look again in a moment')
    breaker.leave(probe)
    t.equal(breaker.wait(now), 0, 'who left says nothing, and the next may try')
    breaker.succeed(breaker.enter(now), now)
    t.strictSame([breaker.state(now), breaker.count(settings.window, now)], ['closed', { all: 1, marked: 0 }],
      'what was before is forgotten')
  })

  await t.test('a probe that takes long is not the only one for ever, and what is told of it is true', async (t) => {
    const breaker = opened()
    const now = START + 5000
    const long = breaker.enter(now)
    t.strictSame([0, 1000, 4800, 4999, 5000].map((ms) => [breaker.recovery(now + ms), breaker.wait(now + ms)]), [[5000,
      250], [4000, 250], [200, 200], [1, 1], [0, 0]])
    const quick = breaker.enter(now + 5000)
    t.strictSame([breaker.recovery(now + 5000), breaker.wait(now + 5000)], [5000, 250])
    breaker.succeed(quick, now + 5100)
    t.strictSame([breaker.state(now + 5100), breaker.recovery(now + 5100)], ['closed', 0])
    t.equal(breaker.fail(long, settings, now + 9000), undefined)
    t.strictSame(breaker.count(settings.window, now + 9000), { all: 1, marked: 0 })
  })

  await t.test('what one request has failed with already is no news, but for a probe', async (t) => {
    const breaker = new Breaker()
    for (let i = 0; i < 10; i++) t.equal(breaker.fail(breaker.enter(START), settings, START, false), undefined)
    t.strictSame(breaker.count(settings.window, START), { all: 0, marked: 0 })
    const broken = opened()
    t.equal(broken.fail(broken.enter(START + 5000), settings, START + 5000, false), 10_000)
  })

  await t.test('closes when an answer has begun, and counts what becomes of the rest', async (t) => {
    const breaker = opened()
    const now = START + 5000
    const probe = breaker.begin(breaker.enter(now))
    t.equal(breaker.state(now), 'closed')
    t.equal(breaker.fail(probe, settings, now), undefined)
    t.strictSame(breaker.count(settings.window, now), { all: 1, marked: 1 })
  })

  await t.test('stays open for twice as long after each probe that failed, up to a limit, and never for less than it was', async (t) => {
    const breaker = opened()
    let now = START
    for (const open of [10_000, 20_000, 30_000, 30_000]) {
      now += breaker.wait(now)
      t.equal(breaker.fail(breaker.enter(now), settings, now), open)
      t.equal(breaker.wait(now), open)
    }
    now += breaker.wait(now)
    breaker.fail(breaker.enter(now), settings, now)
    const { max_open: _, ...rest } = settings
    now += 29_000
    t.equal(breaker.wait(now), 1000)
    t.equal(breaker.fail(breaker.enter(now), { ...rest, max_open: 10 }, now), 1000,
      'a shorter time does not end it sooner')
  })

  await t.test('what was sent before it opened says nothing once it is open, half open or closed again', async (t) => {
    const breaker = new Breaker()
    const old = Array.from({ length: 10 }, () => breaker.enter(START))
    for (const term of old.slice(0, 3)) breaker.fail(term, settings, START)
    t.equal(breaker.fail(old[3]!, settings, START + 1), undefined)
    breaker.succeed(old[4]!, START + 2)
    t.strictSame([breaker.state(START + 2), breaker.wait(START + 2)], ['open', 4998])
    const now = START + 5000
    const probe = breaker.enter(now)
    for (const term of old.slice(5, 8)) breaker.leave(term)
    t.equal(breaker.wait(now), 250, 'the probe still runs')
    t.equal(breaker.fail(old[8]!, settings, now), undefined)
    breaker.succeed(probe, now)
    breaker.fail(old[9]!, settings, now)
    t.strictSame(breaker.count(settings.window, now), { all: 1, marked: 0 })
  })
})

t.test('aside: twice as long each time, but those that ran beside each other are one time', async (t) => {
  const aside = new Cooldown<'no'>()
  const times = { first: 1000, longest: 5000 }
  let now = START
  const put = (term = aside.enter(now), pause?: number): boolean => aside.put(term, 'no', times, now, pause)
  const wave = Array.from({ length: 20 }, () => aside.enter(now))
  t.strictSame(wave.map((term) => put(term)), [true, ...Array.from({ length: 19 }, () => false)])
  t.equal(aside.wait(now), 1000)
  for (const ms of [2000, 4000, 5000, 5000]) {
    now += aside.wait(now)
    t.equal(put(), false)
    t.equal(aside.wait(now), ms)
  }
  put(wave[0], 7000)
  t.equal(aside.wait(now), 7000, 'what an upstream asks for counts, whoever hears it')
  put(aside.enter(now), 10)
  t.equal(aside.wait(now), 7000, 'and never shortens it (rule retry-time-grows)')
  now += 7000
  aside.reset(wave[0]!)
  put()
  t.equal(aside.wait(now), 5000, 'a success of an earlier time resets nothing')
  now += 5000
  aside.reset(aside.enter(now))
  t.equal(put(), true)
  t.equal(aside.wait(now), 1000)
})

t.test('F1: a cooldown with probes lets one request at a time find out, until one is accepted', async (t) => {
  const aside = new Cooldown<'no'>(30_000)
  const times = { first: 600_000, longest: 600_000 }
  let now = START
  const stale = aside.enter(now)
  t.strictSame([aside.wait(now), aside.state(now)], [0, 'healthy'])
  aside.put(aside.enter(now), 'no', times, now)
  aside.put(stale, 'no', times, now + 1000)
  now += 599_999
  t.strictSame([aside.wait(now), aside.state(now), aside.reason(now)], [1, 'cooling_down', 'no'])
  now += 1
  t.strictSame([aside.wait(now), aside.state(now)], [0, 'probing'], 'a refusal of a request before it changes nothing')
  const first = aside.enter(now)
  t.strictSame([aside.wait(now), aside.recovery(now)], [250, 30_000], 'the probe runs')
  aside.leave(stale)
  t.equal(aside.wait(now), 250)
  aside.leave(first)
  t.equal(aside.wait(now), 0, 'it ended without a verdict: the next one probes')
  aside.enter(now)
  now += 30_000
  t.equal(aside.wait(now), 0, 'it takes long: so does the next one')
  const last = aside.enter(now)
  t.equal(aside.put(last, 'no', times, now), false, 'said once')
  t.equal(aside.wait(now), 600_000, 'for as long again')
  now += 600_000
  t.equal(aside.reset(stale), false)
  t.equal(aside.reset(aside.enter(now)), true)
  t.strictSame([aside.wait(now), aside.state(now), aside.reason(now)], [0, 'healthy', undefined])
  aside.put(aside.enter(now), 'no', times, now)
  const before = aside.enter(now)
  aside.clear()
  aside.put(before, 'no', times, now)
  t.strictSame([aside.wait(now), aside.state(now)], [0, 'healthy'], 'what ran before a reset does not undo it')
})

t.test('a retry budget: a share of the requests of the last ten seconds, and a floor for little traffic', async (t) => {
  const retries = { attempts: 2, backoff: 250, max_backoff: 2000, budget: 20 }
  const taken = (budget: RetryBudget, now: number, of = retries): number => {
    let count = 0
    while (budget.take(of, now)) count++
    return count
  }
  const quiet = new RetryBudget()
  t.equal(taken(quiet, START), 10)
  t.equal(taken(quiet, START + 9999), 0)
  t.equal(taken(quiet, START + 10_000), 10)
  const busy = new RetryBudget()
  for (let i = 0; i < 200; i++) busy.deposit(START)
  t.equal(taken(busy, START), 40)
  t.equal(taken(busy, START, { ...retries, budget: 0 }), 0)
  t.equal(taken(new RetryBudget(), START, { ...retries, budget: 0 }), 0, 'none is none')
})

t.test('backoff: twice as long each time, with full jitter, up to a limit', async (t) => {
  const retries = { attempts: 9, backoff: 250, max_backoff: 2000, budget: 20 }
  t.strictSame([0, 1, 2, 3, 4].map((n) => backoffOf(retries, n, () => 1)), [250, 500, 1000, 2000, 2000])
  t.equal(backoffOf(retries, 2, () => 0), 0)
  t.equal(backoffOf(retries, 2, () => 0.5), 500)
})

t.test('Retry-After, as upstreams write it', async (t) => {
  const read = (headers: Record<string, string | string[]>): number | undefined => readRetryAfter(headers, () => START)
  t.equal(read({ 'retry-after': '7' }), 7)
  t.equal(read({ 'retry-after': '7', 'retry-after-ms': '1500' }), 1.5)
  t.equal(read({ 'retry-after': [' 3 ', '4'] }), 3)
  t.equal(read({ 'retry-after': new Date(START + 9000).toUTCString() }), 9)
  t.equal(read({ 'retry-after': 'soon' }), undefined)
  t.equal(read({}), undefined)
})

t.test('whose fault it is: only what an upstream caused counts against it (rules blame, signatures)', async (t) => {
  const now = (): number => START
  const who = (failure: UpstreamFailure, error = named()): string => {
    const blame = blameFor(failure, error, now)
    return 'why' in blame ? blame.why : blame.who
  }
  for (const kind of ['refused', 'reset', 'connect_timeout', 'first_byte_timeout', 'idle_timeout', 'total_timeout',
    'malformed'] as const) { t.equal(who({ kind, cause: undefined }), 'target', kind) }
  t.equal(who({ kind: 'empty' }), 'nobody', 'a prompt can do that')
  t.equal(who({ kind: 'unusable', cause: undefined }), 'nobody', 'nor is a call that no client can run')
  t.equal(who({ kind: 'incomplete' }), 'target')
  for (const code of [408, 500, 502, 503, 504, 520, 524, 529]) t.equal(who(status(code)), 'target', String(code))
  for (const code of [302, 400, 404, 409, 413, 415, 422, 501]) t.equal(who(status(code)), 'nobody', String(code))
  t.strictSame([401, 402, 429].map((code) => who(status(code))), ['bad_key', 'no_money', 'limited'])
  for (const body of [FORBIDDEN, { error: { message: 'no' } }, { code: 403, message: 'no' }, { type: 'forbidden' }]) {
    t.equal(who(status(403, {}, body)), 'forbidden')
  }
  for (const body of ['<title>Attention Required! | Cloudflare</title>', '', undefined, null, [], {}, {
    message: 'Forbidden'
  }, { error: 'blocked' }, { error: { message: 'Your input was flagged by our moderation' } }]) {
    t.equal(who(status(403, {}, body)), 'nobody', 'what a client wrote puts no credential aside')
  }
  t.equal(
    who({ kind: 'error_event', body: { type: 'error', error: { type: 'overloaded_error' } } },
      named('model_overloaded')),
    'target'
  )
  t.equal(who({ kind: 'error_event', body: { error: { type: 'invalid_request_error' } } }, named('invalid_request')),
    'nobody')
  t.equal(who({ kind: 'error_event', body: { error: { type: 'x' } } }, named('content_policy_violation')), 'nobody')
  for (const body of [{ error: { type: 'rate_limit_error' } }, { error: { code: 429 } }, {
    code: 'rate_limit_exceeded'
  }]) { t.equal(who({ kind: 'error_event', body }, named('model_overloaded')), 'limited') }

  for (const code of [429, 503, 529]) {
    const pauseOf = (seconds: string): unknown =>
      ({ pause: undefined, ...blameFor(status(code, { 'retry-after': seconds }), named(), now) }).pause
    t.strictSame([pauseOf('2'), pauseOf('0'), pauseOf('soon'), pauseOf('3600')], [2000, undefined, undefined, 300_000],
      'five minutes at most')
  }
  t.equal('pause' in blameFor(status(500, { 'retry-after': '2' }), named(), now), false)

  t.ok([408, 429, 500, 502, 503, 504, 522, 529].every((code) => isPassing(status(code), named())))
  t.notOk([302, 400, 401, 402, 403, 404, 501].some((code) => isPassing(status(code), named())))
  t.notOk(
    (['first_byte_timeout', 'idle_timeout', 'total_timeout'] as const).some((kind) =>
      isPassing({ kind, cause: undefined }, named())
    ),
    'a timeout has taken its time'
  )
  t.ok(isPassing(reset, named()))
  t.notOk(isPassing({ kind: 'empty' }, named()), 'it was paid for')

  t.ok(
    ([{ kind: 'refused', cause: undefined }, { kind: 'connect_timeout', cause: undefined }, status(429)] as const)
      .every((failure) => isTurnedAway(failure))
  )
  t.notOk(
    [reset, { kind: 'empty' } as const, ...[408, 500, 502, 503, 504, 529].map((code) => status(code))].some((failure) =>
      isTurnedAway(failure)
    ),
    'a task may have been made'
  )
})

t.test('a target fails, is left alone, and recovers', async (t) => {
  const { upstreams: { health }, upstream, pass, logged } = bench(t)
  for (let i = 0; i < 3; i++) health.enter(upstream, 'm')!.fail(reset, named())
  t.equal(health.waitOf(upstream, 'm'), 5000)
  t.equal(health.enter(upstream, 'm'), undefined)
  t.equal(health.waitOf(upstream, 'other'), 0, 'another model of the same upstream is another target')
  pass(4999)
  t.equal(health.waitOf(upstream, 'm'), 1)
  pass(1)
  const probe = health.enter(upstream, 'm')!
  t.equal(health.enter(upstream, 'm'), undefined, 'one at a time')
  probe.succeed()
  t.equal(health.waitOf(upstream, 'm'), 0)
  t.strictSame(
    logged.map(([, words]) => words), ['a target fails: it is left alone for a while', 'a target answers again']
  )
  t.match(logged[0], [{ upstream: 'u', model: 'm', open_ms: 5000 }])
})

t.test('a target is well only where nobody has to find out whether it answers again', async (t) => {
  const { upstreams: { health }, upstream, pass } = bench(t)
  t.equal(health.isWell(upstream, 'm'), true)
  for (let i = 0; i < 3; i++) health.enter(upstream, 'm')!.fail(reset, named())
  t.equal(health.isWell(upstream, 'm'), false)
  pass(5000)
  t.strictSame([health.waitOf(upstream, 'm'), health.isWell(upstream, 'm')], [0, false])
  const probe = health.enter(upstream, 'm')!
  pass(1000)
  t.strictSame([health.waitOf(upstream, 'm'), health.recoveryOf(upstream, 'm'), health.recoveryOf(upstream, 'other')], [
    250,
    4000,
    0
  ])
  probe.succeed()
  t.equal(health.isWell(upstream, 'm'), true)
  health.enter(upstream, 'm')!.fail(status(429, { 'retry-after': '7' }), named('model_overloaded'))
  t.strictSame([health.isWell(upstream, 'm'), health.recoveryOf(upstream, 'm')], [false, 7000])
})

t.test('a pass ends once, whatever is told of it after that, and gives its place back', async (t) => {
  const { upstreams: { health }, upstream } = bench(t)
  let over = 0
  const one = health.enter(upstream, 'm', undefined, () => { over++ })!
  const other = health.enter(upstream, 'm')!
  t.equal(health.loadOf('u', 'm'), 2)
  one.leave()
  for (let i = 0; i < 5; i++) one.fail(reset, named())
  one.succeed()
  t.strictSame([health.loadOf('u', 'm'), health.waitOf(upstream, 'm'), over, one.died], [1, 0, 1, undefined])
  other.fail(reset, named())
  t.match(other.died, { failure: { kind: 'reset' }, blame: { who: 'target' } })
  t.equal(health.loadOf('u', 'm'), 0)
  t.equal(health.loadOf('nobody', 'm'), 0)
})

t.test('a pause that an upstream asks for holds for the target', async (t) => {
  const { upstreams: { health }, upstream, pass } = bench(t)
  health.enter(upstream, 'm')!.fail(status(503, { 'retry-after': '4' }), named('model_overloaded'))
  t.strictSame([health.waitOf(upstream, 'm'), health.waitOf(upstream, 'other')], [4000, 0])
  pass(4000)
  t.equal(health.waitOf(upstream, 'm'), 0)
})

t.test('credentials', async (t) => {
  await t.test('each has its own headers, under one spelling, over those of the upstream', async (t) => {
    const { upstream } = bench(t, { headers: { 'x-api-key': 'common', 'X-Team': 'us' }, credentials: two })
    t.strictSame(upstream.credentials.map(({ id, upstream: { config: { headers } } }) => [id, headers]), [['one', {
      'x-api-key': '1',
      'x-team': 'us'
    }], ['two', { 'x-api-key': '2', 'x-team': 'us' }]])
    t.ok(
      upstream.credentials.every((credential) =>
        connectionsOf(credential.upstream) === connectionsOf(upstream) &&
        credential.upstream.credentials[0] === credential
      )
    )
  })

  await t.test('the one with the fewest running is taken', async (t) => {
    const { upstreams: { health }, upstream } = bench(t, { credentials: two })
    const passes = Array.from({ length: 4 }, () => health.enter(upstream, 'm')!)
    t.strictSame(passes.map(({ credential }) => credential), ['one', 'two', 'one', 'two'])
    passes[1]!.succeed()
    passes[3]!.succeed()
    t.equal(health.enter(upstream, 'other')!.credential, 'two', 'whatever it runs')
  })

  await t.test('one that is limited is put aside for that model, for as long as the upstream says', async (t) => {
    const { upstreams: { health }, upstream, pass } = bench(t, { credentials: two })
    const first = health.enter(upstream, 'm')!
    first.fail(status(429, { 'retry-after': '20' }), named('model_overloaded'))
    const tried = new Set([first.upstream.credentials[0]!.key])
    t.equal(health.enter(upstream, 'm', tried)?.credential, 'two')
    t.equal(health.enter(upstream, 'm')?.credential, 'two')
    t.equal(health.enter(upstream, 'other')?.credential, 'one', 'vendors limit by model')
    t.equal(health.waitOf(upstream, 'm'), 0)
    health.enter(upstream, 'm')!.fail(status(429), named('model_overloaded'))
    t.equal(health.waitOf(upstream, 'm'), 1000, 'the soonest of them')
    t.equal(health.waitOf(upstream, 'm', tried), 1000)
    t.equal(health.waitOf(upstream, 'm', new Set(upstream.credentials.map(({ key }) => key))), Infinity)
    pass(1000)
    t.equal(health.enter(upstream, 'm')?.credential, 'two')
    pass(19_000)
    t.equal(health.enter(upstream, 'm')?.credential, 'one')
  })

  await t.test('F1: one that is revoked is put aside for everything for ten minutes, and said once', async (t) => {
    for (const credentials of [two, two.slice(0, 1)]) {
      const { upstreams: { health }, upstream, pass, logged } = bench(t, { credentials })
      const others = new Set(upstream.credentials.slice(1).map(({ key }) => key))
      for (let i = 0; i < 2; i++) {
        health.enter(upstream, 'm', others)!.fail(status(401), named())
        t.equal(health.refusesUs(upstream, 'm'), credentials.length === 1)
        for (const model of ['m', 'other']) t.equal(health.waitOf(upstream, model, others), 600_000)
        pass(599_999)
        t.equal(health.enter(upstream, 'other', others), undefined)
        pass(1)
      }
      const probe = health.enter(upstream, 'other', others)!
      t.equal(health.enter(upstream, 'm', others), undefined, 'one request probes it')
      t.equal(health.recoveryOf(upstream, 'm'), credentials.length === 1 ? 30_000 : 0)
      probe.begin()
      t.equal(health.waitOf(upstream, 'm', others), 0, 'the first word of an answer is enough')
      t.match(logged, [[{ upstream: 'u', credential: 'one', reason: 'bad_key', status: 401 },
        'an upstream refuses a credential: put aside for a while'],
      [{ upstream: 'u', credential: 'one' }, 'an upstream accepts a credential again']])
      t.equal(logged.length, 2)
      t.notMatch(JSON.stringify(logged), /x-api-key/i)
    }
  })

  await t.test('F1: a probe that ends without a verdict leaves its place to the next one', async (t) => {
    const { upstreams: { health }, upstream, pass } = bench(t)
    health.enter(upstream, 'm')!.fail(status(402), named())
    pass(600_000)
    for (const end of ['leave', 'fail'] as const) {
      const probe = health.enter(upstream, 'm')!
      t.equal(health.waitOf(upstream, 'm'), 250)
      t.notOk(health.isWell(upstream, 'm'), 'nor is it the business of a count')
      if (end === 'leave') probe.leave()
      else probe.fail(reset, named())
      t.equal(health.waitOf(upstream, 'm'), 0)
      t.notOk(health.isWell(upstream, 'm'))
    }
    health.enter(upstream, 'm')!.succeed()
    t.ok(health.isWell(upstream, 'm'))
  })

  await t.test('one that is forbidden a model is put aside for that model', async (t) => {
    const { upstreams: { health }, upstream } = bench(t, { credentials: two })
    health.enter(upstream, 'm')!.fail(status(403, {}, FORBIDDEN), named())
    t.equal(health.enter(upstream, 'm')?.credential, 'two')
    t.equal(health.enter(upstream, 'other')?.credential, 'one')
  })

  await t.test('the only one is forbidden a model for a moment: it can be what a request asks for', async (t) => {
    const { upstreams: { health }, upstream, pass } = bench(t)
    const waits = Array.from({ length: 3 }, () => {
      health.enter(upstream, 'm')!.fail(status(403, {}, FORBIDDEN), named())
      const wait = health.waitOf(upstream, 'm')
      pass(wait)
      return wait
    })
    t.strictSame(waits, [1000, 2000, 4000])
    health.enter(upstream, 'm')!.succeed()
    health.enter(upstream, 'm')!.fail(status(403, {}, FORBIDDEN), named())
    t.equal(health.waitOf(upstream, 'm'), 1000)
  })
})

t.test('what no configuration has any more is forgotten; what it still has is not', async (t) => {
  const { upstreams, upstream } = bench(t, { credentials: two })
  const { health } = upstreams
  const models = [model('a', { premium: 'u/m*1 u/other*1' })]
  const live = (
    configured: Partial<UpstreamConfig>,
    names: readonly string[] = ['m', 'other']
  ): Parameters<typeof health.retain>[0] => ({
    config: { models: names.length === 0 ? [] : [model('a', { premium: names.map((name) => `u/${name}*1`).join(' ') })],
      routes: [] },
    upstreams: new Map([['u', upstreams.open('u', upstreamConfig({ breaker: settings, ...configured }))]])
  })
  const break_ = (of: Upstream): void => {
    for (const name of ['m', 'other']) for (let i = 0; i < 3; i++) health.enter(of, name)?.fail(reset, named())
  }
  break_(upstream)
  health.retain({ config: { models, routes: [] }, upstreams: new Map([['u', upstream]]) })
  t.strictSame([health.waitOf(upstream, 'm'), health.waitOf(upstream, 'other')], [5000, 5000])
  health.retain(live({ credentials: two }, ['m']))
  t.strictSame([health.waitOf(upstream, 'm'), health.waitOf(upstream, 'other')], [5000, 0])
  health.retain(live({ credentials: two, url: 'http://127.0.0.1:10' }))
  t.equal(health.waitOf(upstream, 'm'), 0, 'another address is another vendor, maybe')

  health.enter(upstream, 'm')!.fail(status(401), named())
  t.strictSame(health.credentials({ upstreams: new Map([['u', upstream]]) }), [
    { upstream: 'u', id: 'one', running: 0, state: 'cooling_down', reason: 'bad_key', wait: 600_000 },
    { upstream: 'u', id: 'two', running: 0, state: 'healthy', wait: 0 }
  ])
  const renewed = live({ credentials: [{ id: 'one', headers: { 'X-Api-Key': 'renewed' } }, two[1]!] })
  health.retain(renewed)
  t.strictSame(health.credentials(renewed).map(({ id, wait }) => [id, wait]), [['one', 0], ['two', 0]],
    'a new value under the old name begins anew')

  const routed = { ...live({ credentials: two }),
    config: { models: [], routes: [{ match: 'POST /v1/x', forward: 'u' }] } }
  t.strictSame(health.targets(routed).map(({ model: name, breaker }) => [name, breaker]), [['POST /v1/x', 'closed']])
})
