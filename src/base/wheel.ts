// The timeouts of requests: each sets several, and hardly one is ever reached. So setting one and taking it back cost a
// few writes, and one timer of the process looks after all of them (a hashed timing wheel, Varghese and Lauck 1987). It
// wakes the process up for the next slot that has one and not at each tick: at 200 requests a second that took a tenth
// of a request's CPU (measured). A timeout comes up to TICK_MS late, and never early.

const TICK_MS = 8
/** A timeout further away than one turn of the wheel stays in its slot for more turns. */
const SLOTS = 1024

/** A link of a ring of alarms: the head of a slot, or an alarm. */
interface Link {
  next: Link
  before: Link
}

function headOf (): Link {
  const head = {} as { -readonly [Name in keyof Link]: Link }
  head.next = head.before = head
  return head
}

const slots: readonly Link[] = Array.from({ length: SLOTS }, headOf)
/** alarms that are set; without any the timer keeps no process alive */
let count = 0
let timer: NodeJS.Timeout | undefined
/** tick of the timer: none of the alarms is in an earlier slot; 0: slots are being looked after */
let next = Infinity
/** the tick that was looked after last */
let looked = 0

/** One timeout, to be set as often as is wanted. An alarm that is set keeps the process alive. */
export class Alarm<Of = unknown> implements Link {
  /** itself: it is in no slot */
  next: Link = this
  before: Link = this
  readonly #ring: (of: Of) => void
  readonly #of: Of
  /** `performance.now()` at which it rings; 0: it is off */
  #due = 0
  /** tick of its slot: never behind that of `#due` */
  #tick = 0

  /**
   * @param ring called once each time that it is reached
   * @param of what it is called with: one function for all alarms of a kind takes less memory than one for each
   */
  constructor (ring: (of: Of) => void, of?: Of) {
    this.#ring = ring
    this.#of = of as Of
  }

  get isSet (): boolean {
    return this.#due !== 0
  }

  /** Rings in so many milliseconds, and not when it was to ring before. @param now `performance.now()` */
  set (ms: number, now = performance.now()): void {
    const due = Math.ceil(now + ms)                           // a whole number needs no memory of its own
    const isIn = this.#due !== 0
    this.#due = due
    const tick = Math.ceil(due / TICK_MS)
    // A slot that comes up too early moves it on: so what is put off with every chunk of a stream costs one write.
    if (isIn && this.#tick <= tick) return
    if (isIn) this.#leave()
    else if (count++ === 0) timer?.ref()
    this.#enter(tick)
    if (this.#tick < next) wakeAt(this.#tick, now)
  }

  off (): void {
    if (this.#due === 0) return
    this.#due = 0
    this.#leave()
    if (--count === 0) timer?.unref()
  }

  /** Its slot has come up. @param now `performance.now()` */
  reach (now: number): void {
    if (this.#due > now) {
      const tick = Math.ceil(this.#due / TICK_MS)
      if (tick % SLOTS === this.#tick % SLOTS) return
      this.#leave()
      this.#enter(tick)
      return
    }
    this.off()
    try {
      this.ring()
    } catch (thrown) {
      // As out of a timer of its own: no other alarm is missed.
      process.nextTick(() => { throw thrown })
    }
  }

  protected ring (): void {
    this.#ring(this.#of)
  }

  #enter (tick: number): void {
    this.#tick = Math.max(tick, looked + 1)
    const head = slots[this.#tick % SLOTS]!
    this.next = head
    this.before = head.before
    head.before.next = this
    head.before = this
  }

  /** Keeps no other alarm: a dead one in the old generation would keep alive all that came after it. */
  #leave (): void {
    this.next.before = this.before
    this.before.next = this.next
    this.next = this.before = this
  }
}

/** @param now `performance.now()` */
function wakeAt (tick: number, now: number): void {
  clearTimeout(timer)
  next = tick
  timer = setTimeout(look, Math.max(1, tick * TICK_MS - now))
}

function look (): void {
  next = 0
  const now = performance.now()
  const until = Math.floor(now / TICK_MS)
  // Behind a sleep of more than a turn each slot is looked at once.
  for (let tick = Math.max(looked + 1, until - SLOTS + 1); tick <= until; tick++) {
    looked = tick
    const due = alarmsOf(slots[tick % SLOTS]!)
    for (const alarm of due) if (alarm.isSet) alarm.reach(now)
  }
  const used = nextUsed()
  if (used === undefined) { next = Infinity; timer = undefined }
  else wakeAt(used, performance.now())
}

/** The next tick whose slot has an alarm. */
function nextUsed (): number | undefined {
  if (count === 0) return undefined
  for (let tick = looked + 1; tick <= looked + SLOTS; tick++) {
    const head = slots[tick % SLOTS]!
    if (head.next !== head) return tick
  }
}

/** A copy: an alarm that rings may set and take back others. */
function alarmsOf (head: Link): readonly Alarm[] {
  if (head.next === head) return NONE
  const alarms: Alarm[] = []
  for (let link = head.next; link !== head; link = link.next) alarms.push(link as Alarm)
  return alarms
}

const NONE: readonly Alarm[] = []
