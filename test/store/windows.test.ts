// Rate limits are strict: no span of 60 seconds holds more than the limit, and what a refusal promises is kept.
import fc from 'fast-check'
import t from 'tap'
import type { AdmissionResult } from '../../src/store/store.ts'
import { steady, Windows } from '../../src/store/local/rate-windows.ts'
import { Notes } from '../../src/store/local/window-notes.ts'

const MINUTE = 60_000
const BEGIN = 1_800_000_000_000

type Step =
  /** milliseconds that pass, and requests that come then, at once */
  | { readonly kind: 'arrive', readonly after: number, readonly many: number, readonly limit: number }
  /** the clock is set back, which takes no time */
  | { readonly kind: 'set back', readonly by: number }
  /** after a refusal: as many seconds as Retry-After says, or to the millisecond; then one request */
  | { readonly kind: 'wait as told', readonly isExact: boolean }

/** Bursts, and gaps around all that the counting has an edge at. */
const gap = fc.oneof(
  { weight: 3, arbitrary: fc.constant(0) },
  { weight: 3, arbitrary: fc.nat(40) },
  { weight: 3, arbitrary: fc.integer({ min: 900, max: 1100 }) },
  { weight: 2, arbitrary: fc.nat(20_000) },
  { weight: 1, arbitrary: fc.integer({ min: 58_900, max: 61_100 }) },
  { weight: 1, arbitrary: fc.nat(300_000) }
)

function steps (limit: fc.Arbitrary<number>): fc.Arbitrary<Step[]> {
  return fc.array(fc.oneof(
    { weight: 8,
      arbitrary: fc.record({ kind: fc.constant('arrive' as const), after: gap, many: fc.integer({ min: 1, max: 8 }),
        limit }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('set back' as const), by: fc.nat(3_600_000) }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant('wait as told' as const), isExact: fc.boolean() }) }
  ), { minLength: 1, maxLength: 120 })
}

/** Runs the steps, checks each answer against all admissions before it, and returns their times. */
function run (all: readonly Step[]): number[] {
  let clock = BEGIN
  let time = 0
  const windows = new Windows(() => clock)
  const admitted: number[] = []
  let limit = 1
  let told: AdmissionResult | undefined

  const ask = (): AdmissionResult => {
    told = windows.admit({ request_id: 'r', windows: [{ name: 'k', limit }] })
    const within = (ms: number): number => admitted.filter((at) => at > time - ms).length
    const [{ next_ms, reset_ms, remaining }] = told.windows as [AdmissionResult['windows'][number]]
    if (told.kind === 'admitted') {
      if (within(MINUTE) >= limit) throw new Error(`${within(MINUTE) + 1} in a minute, of ${limit}`)
      admitted.push(time)
    } else if (within(MINUTE + 1000) < limit) {
      throw new Error(`refused more than a second too long: ${within(MINUTE + 1000)} in 61 seconds, of ${limit}`)
    }
    if (remaining !== 0 && told.kind === 'refused') throw new Error(`refused with ${remaining} remaining`)
    if (!(next_ms > 0 && next_ms <= reset_ms && reset_ms <= MINUTE)) {
      throw new Error(`more in ${next_ms}, all in ${reset_ms}`)
    }
    return told
  }
  const pass = (ms: number): void => { clock += ms; time += ms }

  for (const step of all) {
    switch (step.kind) {
      case 'arrive':
        limit = step.limit
        pass(step.after)
        for (let i = 0; i < step.many; i++) ask()
        break
      case 'set back':
        clock -= step.by
        windows.admit({ request_id: 'r', windows: [{ name: 'other', limit: 1 }] })         // somebody looks at it
        break
      case 'wait as told': {
        if (told?.kind !== 'refused') break
        const [{ next_ms }] = told.windows as [AdmissionResult['windows'][number]]
        const seconds = Math.ceil(next_ms / 1000)
        if (seconds > 60) throw new Error(`Retry-After: ${seconds}`)
        if (step.isExact && next_ms > 1) {
          pass(next_ms - 1)
          if (ask().kind !== 'refused') throw new Error('it was refused for longer than need be')
          pass(1)
        } else pass(step.isExact ? next_ms : seconds * 1000)
        if (ask().kind !== 'admitted') throw new Error(`refused after ${seconds} seconds, as it was told`)
      }
    }
  }
  return admitted
}

void t.test('however requests arrive, no span of 60 seconds holds more than the limit, and a retry when told is admitted', async (t) => {
  let most = 0
  t.doesNotThrow(() => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }).chain((limit) => fc.tuple(fc.constant(limit), steps(fc.constant(limit)))),
        ([limit, all]) => {
          const admitted = run(all)
          // A fullest span can be moved until it begins with a request.
          const fullest = Math.max(0,
            ...admitted.map((from) => admitted.filter((at) => at >= from && at < from + MINUTE).length))
          if (fullest > limit) throw new Error(`${fullest} in 60 seconds, of ${limit}`)
          if (fullest === limit) most++
        }
      ),
      { numRuns: 1500 }
    )
  })
  t.ok(most > 1000, `in ${most} of 1500 runs the limit was reached`)
})

void t.test('a limit that changes at any time holds from then on, over what was admitted before', async (t) => {
  t.doesNotThrow(() => {
    fc.assert(fc.property(steps(fc.integer({ min: 1, max: 12 })), (all) => {
      run(all)
    }), { numRuns: 1500 })
  })
})

void t.test('who fills the limit at the beginning of a second is not told to wait for 61', async (t) => {
  let time = BEGIN
  const windows = new Windows(() => time)
  const ask = (): AdmissionResult => windows.admit({ request_id: 'r', windows: [{ name: 'k', limit: 60 }] })
  const admitted = (): number => Array.from({ length: 100 }, ask).filter(({ kind }) => kind === 'admitted').length
  t.equal(admitted(), 60)
  t.match(ask(), { kind: 'refused', windows: [{ next_ms: 60_000 }] })
  time += 59_999
  t.equal(admitted(), 0)
  time += 1
  t.equal(admitted(), 60)
})

void t.test('a clock that stands still never opens a window', async (t) => {
  const windows = new Windows(() => BEGIN)
  const told = Array.from({ length: 1000 },
    () => windows.admit({ request_id: 'r', windows: [{ name: 'k', limit: 7 }] }).kind)
  t.equal(told.filter((kind) => kind === 'admitted').length, 7)
})

void t.test('windows that count nothing any more are forgotten, and no others', async (t) => {
  let time = BEGIN
  const windows = new Windows(() => time)
  for (let round = 0; round < 10; round++) {
    for (let i = 0; i < 5000; i++) {
      const both = { request_id: 'r',
        windows: [{ name: `key ${round} ${i}`, limit: 1 }, { name: `family ${round} ${i}`, limit: 1 }] }
      if (windows.admit(both).kind !== 'admitted') t.fail('a new key is refused')
      for (const one of both.windows) {
        if (windows.admit({ request_id: 'r', windows: [one] }).kind !== 'refused') {
          t.fail(`${one.name} is forgotten`)
        }
      }
    }
    time += MINUTE
    t.ok(windows.size <= 20_000, `${windows.size} windows, of which 10,000 count`)
  }
})

void t.test('a window that was saved counts as it did, and what may have come after that until a second later', async (t) => {
  let time = BEGIN
  const asked = { request_id: 'r', windows: [{ name: 'k', limit: 9 }] }
  const saved = new Windows(() => time)
  saved.admit(asked)
  const [at, parts] = saved.saveOne('k')
  time += 5000
  const restored = (ahead: number): AdmissionResult => {
    const windows = new Windows(() => time)
    windows.restore('k', at, parts, ahead, 1000)
    return windows.wouldAdmit(asked)
  }
  t.match(restored(0), { windows: [{ remaining: 8, next_ms: 55_001, reset_ms: 55_001 }] })
  t.match(restored(2), { windows: [{ remaining: 6, next_ms: 55_001, reset_ms: 56_001 }] })
})

void t.test('windows are looked through when there are twice as many as at the last look', async (t) => {
  let time = BEGIN
  const windows = new Windows(() => time)
  let names = 0
  /** one request of each of so many new names */
  const admit = (many: number): void => {
    for (let i = 0; i < many; i++) windows.admit({ request_id: 'r', windows: [{ name: `k${names++}`, limit: 1 }] })
  }
  admit(1024)
  time += MINUTE - 1
  admit(1)
  t.equal(windows.size, 1025, 'each still counts')
  time += 1
  admit(1023)
  t.equal(windows.size, 2048, 'not at each of them')
  admit(1)
  t.equal(windows.size, 1025, 'the first 1,024 are over')
})

void t.test('the machine\'s clock may be set: windows are measured by another', async (t) => {
  const original = Date.now
  t.teardown(() => { Date.now = original })
  let step = 0
  Date.now = () => original() + step
  const clock = steady(Date.now)
  const before = clock()
  t.ok(Math.abs(before - original()) < 1000, 'near the time of day')
  step = 3_600_000
  t.ok(clock() - before < 60_000, 'set forward')
  step = -3_600_000
  t.ok(clock() >= before, 'set back')
})

void t.test('another clock counts as far as it goes forward', async (t) => {
  const times = [1000, 1500, 500, 600, 100, 100, 1100]
  const clock = steady(() => times.shift()!)
  t.strictSame(Array.from({ length: 7 }, clock), [1000, 1500, 1500, 1600, 1600, 1600, 2600])
})

void t.test('a note covers a tenth of the limit, and is made anew when half of that is used, after a second, and when it was dropped', (t) => {
  let time = BEGIN
  const windows = new Windows(() => time)
  const notes = new Notes(windows, () => time)
  const limit = 200
  /** how many more the note covers that is made for each of so many admissions */
  const ask = (admissions: number): unknown[] => Array.from({ length: admissions }, () => {
    const told = windows.admit({ request_id: 'r', windows: [{ name: 'k', limit }] })
    return told.kind === 'admitted' ? notes.take(told.windows).at(-1) : told.by
  })
  const none = (many: number): undefined[] => Array<undefined>(many).fill(undefined)
  t.strictSame(ask(23), [20, ...none(10), 20, ...none(10), 20])
  time += 999
  t.strictSame(ask(2), none(2))
  time += 1
  t.strictSame(ask(2), [20, undefined])
  notes.drop('k')
  t.strictSame(ask(2), [20, undefined])
  t.strictSame(ask(171).slice(-9), [8, ...none(4), 3, undefined, 1, 0], 'no more than are left')
  t.end()
})

void t.test('notes that are over are looked for when there are twice as many as at the last look, and no others are forgotten', (t) => {
  let time = BEGIN
  const windows = new Windows(() => time)
  const notes = new Notes(windows, () => time)
  let names = 0
  const take = (name: string): number =>
    notes.take([{ name, limit: 100, remaining: 99, next_ms: 0, reset_ms: 0 }]).length
  /** one admission of each of so many new names */
  const admit = (many: number): void => {
    for (let i = 0; i < many; i++) take(`k${names++}`)
  }
  admit(1024)
  time += 999
  admit(1)
  t.equal(notes.size, 1025, 'each still counts')
  t.equal(take('k0'), 0, 'as its note does')
  time += 1
  admit(1023)
  t.equal(notes.size, 2048, 'not at each of them')
  admit(1)
  t.equal(notes.size, 1025, 'the first 1,024 are over')
  t.equal(take('k1024'), 0, 'the others are kept')
  t.end()
})
