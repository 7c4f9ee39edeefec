// Days and months in time zones, against a walk through every minute that reads the date off the clocks there.
import fc from 'fast-check'
import t from 'tap'
import { Calendar, calendarOf, daysBefore, isTimeZone, type Period } from '../../src/money/calendar.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** Another way to the same: the locale of Sweden writes dates as ISO 8601 does. */
function clockOf (zone: string): (at: number) => string {
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short' })
  return (at) => format.format(at)
}

/** Walks from `from` to `to`, and compares each minute. @returns the days that were met, with their hours */
function walk (zone: string, from: string, to: string): [day: string, hours: number][] {
  const [calendar, clock] = [new Calendar(zone), clockOf(zone)]
  const met = new Map<string, number>()
  let latest = ''
  for (let at = Date.parse(from); at < Date.parse(to); at += MINUTE) {
    const date = clock(at)
    if (date > latest) latest = date // clocks that go back over midnight do not bring back a day
    const [day, month] = [calendar.dayAt(at), calendar.monthAt(at)]
    if (day.id !== latest || month.id !== latest.slice(0, 7)) {
      throw new Error(`${zone} ${new Date(at).toISOString()}: found ${day.id} and ${month.id}, wanted ${latest}`)
    }
    if (at < day.start || at >= day.end || at < month.start || at >= month.end) {
      throw new Error(`${zone} ${new Date(at).toISOString()} is not in its own period`)
    }
    met.set(day.id, (day.end - day.start) / HOUR)
  }
  return [...met]
}

void t.test('days of 23, 24 and 25 hours, midnights that do not exist or come twice, half hours, and dates that were left out', async (t) => {
  const cases: [zone: string, from: string, to: string, days: [string, number][]][] = [
    ['UTC', '2026-02-28T00:00Z', '2026-03-02T00:00Z', [['2026-02-28', 24], ['2026-03-01', 24]]],
    ['Europe/Berlin', '2026-03-27T23:00Z', '2026-03-30T22:00Z', [['2026-03-28', 24], ['2026-03-29', 23], ['2026-03-30',
      24]]],
    ['Europe/Berlin', '2026-10-23T22:00Z', '2026-10-26T23:00Z', [['2026-10-24', 24], ['2026-10-25', 25], ['2026-10-26',
      24]]],
    ['America/New_York', '2026-03-07T05:00Z', '2026-03-09T04:00Z', [['2026-03-07', 24], ['2026-03-08', 23]]],
    ['America/New_York', '2026-10-31T04:00Z', '2026-11-02T05:00Z', [['2026-10-31', 24], ['2026-11-01', 25]]],
    ['America/Sao_Paulo', '2018-11-03T03:00Z', '2018-11-05T02:00Z', [['2018-11-03', 24], ['2018-11-04', 23]]],
    ['America/Sao_Paulo', '2018-02-16T02:00Z', '2018-02-18T03:00Z', [['2018-02-16', 24], ['2018-02-17', 25]]],
    ['Africa/Cairo', '2024-04-24T22:00Z', '2024-04-26T21:00Z', [['2024-04-25', 24], ['2024-04-26', 23]]],
    ['Asia/Beirut', '2022-03-25T22:00Z', '2022-03-27T21:00Z', [['2022-03-26', 24], ['2022-03-27', 23]]],
    ['America/St_Johns', '2010-11-05T02:30Z', '2010-11-08T03:30Z', [['2010-11-05', 24], ['2010-11-06', 24], [
      '2010-11-07',
      25
    ]]],
    ['Australia/Lord_Howe', '2026-04-03T13:00Z', '2026-04-05T13:30Z', [['2026-04-04', 24], ['2026-04-05', 24.5]]],
    ['Australia/Lord_Howe', '2026-10-02T13:30Z', '2026-10-04T13:00Z', [['2026-10-03', 24], ['2026-10-04', 23.5]]],
    ['Pacific/Kiritimati', '2026-02-27T10:00Z', '2026-03-01T10:00Z', [['2026-02-28', 24], ['2026-03-01', 24]]],
    ['Pacific/Pago_Pago', '2026-02-28T11:00Z', '2026-03-02T11:00Z', [['2026-02-28', 24], ['2026-03-01', 24]]],
    ['Pacific/Apia', '2011-12-29T10:00Z', '2012-01-01T10:00Z', [['2011-12-29', 24], ['2011-12-31', 24], ['2012-01-01',
      24]]],
    ['Africa/Monrovia', '1972-01-06T00:44:30Z', '1972-01-08T00:00Z', [['1972-01-06', 24], ['1972-01-07',
      24 - 44.5 / 60]]]
  ]
  for (const [zone, from, to, days] of cases) t.strictSame(walk(zone, from, to), days, `${zone} ${from}`)
})

void t.test('where clocks go back over midnight, the hour that comes twice is of the new day', async (t) => {
  const calendar = new Calendar('America/St_Johns')           // until 2011 they were set at one minute past midnight
  const midnight = Date.parse('2010-11-07T02:30:00Z')
  t.equal(calendar.dayAt(midnight - 1).id, '2010-11-06')
  t.equal(calendar.dayAt(midnight).id, '2010-11-07')
  t.equal(calendar.print(midnight + 30 * MINUTE), '2010-11-06 23:30 America/St_Johns')
  t.equal(new Calendar('America/St_Johns').dayAt(midnight + 30 * MINUTE).id, '2010-11-07')
  const evening = Date.parse('2022-09-21T12:00Z')               // at half past an hour of UTC, midnight became eleven
  t.strictSame(new Calendar('Asia/Tehran').dayAt(evening), { id: '2022-09-21', start: Date.parse('2022-09-20T19:30Z'),
    end: Date.parse('2022-09-21T20:30Z') })
})

void t.test('months have the hours of their days, and print their end as clocks there show it', async (t) => {
  const calendar = new Calendar('Europe/Berlin')
  const hours = (at: string): number => {
    const { start, end } = calendar.monthAt(Date.parse(at))
    return (end - start) / HOUR
  }
  t.strictSame(['2026-03-15T00:00Z', '2026-10-15T00:00Z', '2024-02-15T00:00Z', '2026-12-31T23:30Z'].map(hours), [
    31 * 24 - 1,
    31 * 24 + 1,
    29 * 24,
    31 * 24
  ])
  t.strictSame(calendar.monthAt(Date.parse('2026-12-31T23:30Z')), { id: '2027-01',
    start: Date.parse('2026-12-31T23:00Z'), end: Date.parse('2027-01-31T23:00Z') })
  t.equal(calendar.print(calendar.monthAt(Date.parse('2026-06-15T00:00Z')).end), '2026-07-01 00:00 Europe/Berlin')
  t.equal(
    new Calendar('America/Sao_Paulo').print(
      new Calendar('America/Sao_Paulo').dayAt(Date.parse('2018-11-03T12:00Z')).end
    ),
    '2018-11-04 01:00 America/Sao_Paulo'
  )
  t.equal(daysBefore('2024-03-01', 1), '2024-02-29')
})

void t.test('at any instant, in any zone: the date that its clocks have reached, in a period that begins and ends with it', async (t) => {
  const zones = Intl.supportedValuesOf('timeZone')
  const [first, last] = [Date.parse('1970-01-03T00:00Z'), Date.parse('2037-12-31T00:00Z')]
  await t.resolves(fc.assert(fc.asyncProperty(fc.constantFrom(...zones), fc.integer({
    min: first / 1000,
    max: last / 1000
  }), async (zone, seconds) => {
    const at = seconds * 1000
    const [calendar, clock] = [new Calendar(zone), clockOf(zone)]
    let latest = ''
    for (let before = at - 26 * HOUR; before < at; before += MINUTE) latest = clock(before) > latest
      ? clock(before)
      : latest
    if (clock(at) > latest) latest = clock(at)
    const check = (name: 'dayAt' | 'monthAt', wanted: string): void => {
      const period = calendar[name](at)
      const ids = [period.start - 1, period.start, period.end - 1, period.end]
        .map((one) => new Calendar(zone)[name](one).id)
      const [before, start, end, next] = ids as [string, string, string, string]
      if (period.id !== wanted || !holds(period, at) || before >= wanted || start !== wanted || end !== wanted ||
        next <= wanted) {
        throw new Error(
          `${zone} ${new Date(at).toISOString()}: wanted ${wanted}, found ${JSON.stringify(period)} of ${ids.join()}`
        )
      }
    }
    check('dayAt', latest)
    check('monthAt', latest.slice(0, 7))
  }), { numRuns: 150 }))
})

function holds ({ start, end }: Period, at: number): boolean {
  return at >= start && at < end && end - start <= 32 * DAY
}

void t.test('one calendar asked back and forth answers as a fresh one', async (t) => {
  const start = Date.parse('2026-01-01T00:00Z')
  await t.resolves(
    fc.assert(
      fc.asyncProperty(fc.constantFrom('Europe/Berlin', 'Asia/Kathmandu', 'America/Havana'),
        fc.array(fc.nat(365 * 24 * 60), { maxLength: 20 }), async (zone, minutes) => {
        const calendar = new Calendar(zone)
        for (const minute of minutes) {
          const at = start + minute * MINUTE
          for (const name of ['dayAt', 'monthAt'] as const) {
            const [found, wanted] = [calendar[name](at), new Calendar(zone)[name](at)]
            if (JSON.stringify(found) !== JSON.stringify(wanted)) {
              throw new Error(`${zone} ${at}: ${JSON.stringify(found)} ${JSON.stringify(wanted)}`)
            }
          }
        }
      }),
      { numRuns: 50 }
    )
  )
})

void t.test('a zone is a name that there is, no offset', async (t) => {
  for (const name of ['UTC', 'Europe/Berlin', 'America/Argentina/Buenos_Aires', 'Asia/Calcutta', 'Etc/GMT+5']) {
    t.equal(isTimeZone(name), true, name)
  }
  for (const name of ['', 'Berlin', 'Europe/Berln', '+02:00', '-0200', 'local']) {
    t.equal(isTimeZone(name), false, name)
  }
})

void t.test('of a zone in whatever capitals a calendar is found again, and few are kept', async (t) => {
  const zone = 'Antarctica/Troll'                             // ten letters, which are spelled in 1024 ways
  const first = calendarOf(zone)
  t.equal(calendarOf(zone), first)
  for (let i = 0; i < 1000; i++) {
    const spelled = [...zone].map((letter, at) => (i >> at) % 2 === 1 ? letter.toUpperCase() : letter.toLowerCase())
    t.equal(calendarOf(spelled.join('')).dayAt(0).id, '1970-01-01')
  }
  t.not(calendarOf(zone), first, 'all were forgotten meanwhile')
})
