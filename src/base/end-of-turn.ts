// Steps of requests that wait until the sockets that had something to read in this turn of the event loop were read.
// So requests that come together take each step one after the other: the step's code stays in the processor's caches,
// and other processes are woken once for all that is written. With 32 clients that costs 0.6 of the CPU of a request
// (measured); a request that is alone in its turn waits for nothing.

import { mark } from './stall-marks.ts'

const steps: Array<((of: never) => void) | undefined> = []
/** what each is called with */
const called: unknown[] = []
/** places taken; the arrays keep their size */
let count = 0
/** The turn ends: steps are taken, and what waited for them goes on. */
let isEnding = false
/** A step is being taken. */
let isStepping = false
/** the clocks in it; 0: not read yet */
let [time, date] = [0, 0]
let turns = 0
/** `performance.now()` of the first step of the turn */
let begun = 0

/**
 * Calls it when this turn's input was read, behind those that wait already; timers have no chance before.
 * @param step what it throws is uncaught, and does not keep others from being called
 * @param of what it is called with: one function for all takes less memory than one for each
 */
export function atEndOfTurn<Of> (step: (of: Of) => void, of?: Of): void {
  steps[count] = step
  called[count++] = of
  if (count > 1 || isEnding) return
  begun = performance.now()
  setImmediate(endTurn)
}

/**
 * Turns that came to their end with steps, with the one whose steps are being taken. Once it has grown by two since
 * something was read, the sockets were asked again: the first may be the turn in which it was read. (But for steps that
 * an immediate adds and then throws, if that error is caught: node takes them before it asks.)
 */
export function turnCount (): number {
  return turns
}

/** Milliseconds since this turn's first step was added: what came to a socket since then has not been read. */
export function ageOfTurn (): number {
  return timeOfStep() - begun
}

function endTurn (): void {
  turns++
  take()
}

/**
 * Steps that are added meanwhile belong to this turn, also by promises that are fulfilled meanwhile: what is ready now
 * does not wait until the sockets are asked once more.
 */
function take (): void {
  isEnding = count > 0
  if (!isEnding) return
  queueMicrotask(takeNext)
  let taken = 0
  try {
    while (taken < count) {
      const step = steps[taken]!
      const of = called[taken]
      steps[taken] = called[taken] = undefined
      taken++
      time = date = 0
      isStepping = true
      step(of as never)
    }
  } finally {
    isStepping = false
    mark('other')
    keepFrom(taken)
  }
}

/**
 * `performance.now()`; within a step it is read once, for what is counted in whole milliseconds: a reading takes 36 ns
 * (measured), and a request would have thirty.
 */
export function timeOfStep (): number {
  if (!isStepping) return performance.now()
  return time === 0 ? time = performance.now() : time
}

/** The same with `Date.now()`. */
export function dateOfStep (): number {
  if (!isStepping) return Date.now()
  return date === 0 ? date = Date.now() : date
}

/** Whether it is the machine's clock, and no test's. */
export function isMachineClock (now: () => number): boolean {
  return now === Date.now || now === dateOfStep
}

/** A tick comes behind all promises that can be fulfilled now. */
function takeNext (): void {
  process.nextTick(take)
}

/** Those behind a step that threw are called next. */
function keepFrom (taken: number): void {
  if (taken < count) {
    for (const places of [steps, called]) places.copyWithin(0, taken, count).fill(undefined, count - taken, count)
  }
  count -= taken
}
