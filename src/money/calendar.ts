// Calendar days and months in a time zone, for the limits of keys: the period of an instant, and its end.

export interface Period {
  /** "2026-11-21" or "2026-11" */
  readonly id: string
  /** milliseconds since the epoch: the first of the period, and the first of the next one */
  readonly start: number
  readonly end: number
}

const HOUR = 3_600_000
/** No zone was ever further from UTC. */
const FURTHEST = 16 * HOUR

const NEVER: Period = { id: '', start: 0, end: 0 }

/**
 * The calendar of one zone. A day begins when its date is first reached, and ends when a later one is: it has 23 hours
 * or 25 where clocks are put forward or back, it may begin at 01:00, and where they go back over midnight the hour that
 * comes twice is of the new day.
 */
export class Calendar {
  readonly zone: string
  readonly #format: Intl.DateTimeFormat
  /** the last periods, which are nearly always the next ones too */
  #day = NEVER
  #month = NEVER

  /** @throws {RangeError} the zone does not exist */
  constructor (zone: string) {
    this.zone = zone
    this.#format = new Intl.DateTimeFormat('en-US', {
      timeZone: zone, hourCycle: 'h23', calendar: 'gregory', numberingSystem: 'latn',
      year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric', second: 'numeric'
    })
  }

  /** @param at milliseconds since the epoch */
  dayAt (at: number): Period {
    if (at >= this.#day.start && at < this.#day.end) return this.#day
    let id = this.#clock(at).slice(0, 10)
    let end = this.startOf(daysBefore(id, -1))
    while (at >= end) {
      id = daysBefore(id, -1)
      end = this.startOf(daysBefore(id, -1))
    }
    return this.#day = { id, start: this.startOf(id), end }
  }

  /** @param at milliseconds since the epoch */
  monthAt (at: number): Period {
    if (at >= this.#month.start && at < this.#month.end) return this.#month
    const id = monthOf(this.dayAt(at).id)
    const next = monthOf(daysBefore(`${id}-01`, -31))
    return this.#month = { id, start: this.startOf(`${id}-01`), end: this.startOf(`${next}-01`) }
  }

  /** In local notation: "2026-11-22 00:00 Europe/Berlin". @param at milliseconds since the epoch */
  print (at: number): string {
    return `${this.#clock(at).slice(0, 16).replace('T', ' ')} ${this.zone}`
  }

  /**
   * The first instant of a date, or of a later one where the date was left out, as the last of 2011 but one was in
   * Samoa.
   * @param day "2026-11-21"
   * @returns milliseconds since the epoch
   */
  startOf (day: string): number {
    const midnight = Date.parse(day)
    // No clock is changed and changed back within two days.
    const usual = this.#offsetAt(midnight - FURTHEST)
    if (usual === this.#offsetAt(midnight + FURTHEST)) return midnight - usual
    for (let at = midnight - FURTHEST; ; at += HOUR) {
      const [offset, next] = [this.#offsetAt(at), this.#offsetAt(at + HOUR)]
      const change = offset === next ? at + HOUR : this.#changeIn(at, at + HOUR)
      if (midnight - offset < change) return Math.max(at, midnight - offset)
      if (midnight - next < at + HOUR) return Math.max(change, midnight - next)
    }
  }

  /** The instant between the two at which clocks change. */
  #changeIn (from: number, to: number): number {
    const before = this.#offsetAt(from)
    let [last, first] = [from, to]
    while (first - last > 1000) {
      const middle = last + Math.floor((first - last) / 2000) * 1000
      if (this.#offsetAt(middle) === before) last = middle
      else first = middle
    }
    return first
  }

  /** Local time, as if in UTC: "2026-11-21T23:59:59.000Z" */
  #clock (at: number): string {
    return new Date(at + this.#offsetAt(at)).toISOString()
  }

  /** Milliseconds that local time is ahead of UTC. */
  #offsetAt (at: number): number {
    if (this.zone === 'UTC') return 0
    const parts: Partial<Record<Intl.DateTimeFormatPartTypes, number>> = {}
    for (const { type, value } of this.#format.formatToParts(at)) parts[type] = Number(value)
    const { year, month, day, hour, minute, second } = parts
    return Date.UTC(year!, month! - 1, day, hour, minute, second) - Math.floor(at / 1000) * 1000
  }
}

const calendars = new Map<string, Calendar>()
/** More than there are zones, each of which has thousands of spellings in capitals, and a calendar 16 KB. */
const MOST_CALENDARS = 1000

/** @throws {RangeError} the zone does not exist */
export function calendarOf (zone: string): Calendar {
  let calendar = calendars.get(zone)
  if (calendar === undefined) {
    calendar = new Calendar(zone)
    if (calendars.size === MOST_CALENDARS) calendars.clear()
    calendars.set(zone, calendar)
  }
  return calendar
}

/** Whether a name is in the IANA database. `Intl` accepts offsets such as +02:00 too, which have no summer time. */
export function isTimeZone (name: string): boolean {
  try {
    calendarOf(name)
    return /^[A-Za-z]/.test(name)
  } catch {
    return false
  }
}

/** @param day "2026-11-21" */
export function monthOf (day: string): string {
  return day.slice(0, 7)
}

const DAY = /^\d{4}-\d\d-\d\d$/

export function isDay (text: string): boolean {
  return DAY.test(text)
}

/** @param day "2026-11-21" */
export function daysBefore (day: string, days: number): string {
  return new Date(Date.parse(day) - days * 24 * HOUR).toISOString().slice(0, 10)
}
