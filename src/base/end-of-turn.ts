// Steps of requests that wait until the sockets that had something to read in this turn of the event loop were read.
// So requests that come together take each step one after the other: the step's code stays in the processor's caches,
// and other processes are woken once for all that is written. With 32 clients that costs 0.6 of the CPU of a request
// (measured); a request that is alone in its turn waits for nothing.

const steps: Array<(() => void) | undefined> = []
/** places taken; the array keeps its size */
let count = 0

/**
 * Calls it when this turn's input was read, behind those that wait already; timers have no chance before.
 * @param step what it throws is uncaught, and does not keep others from being called
 */
export function atEndOfTurn (step: () => void): void {
  steps[count++] = step
  if (count === 1) setImmediate(take)
}

/** Steps that are added meanwhile belong to this turn. */
function take (): void {
  let taken = 0
  try {
    while (taken < count) {
      const step = steps[taken]!
      steps[taken++] = undefined
      step()
    }
  } finally {
    if (taken === count) count = 0
    else keepFrom(taken)
  }
}

/** Behind a step that threw, the others are called in the next turn. */
function keepFrom (taken: number): void {
  steps.copyWithin(0, taken, count)
  steps.fill(undefined, count - taken, count)
  count -= taken
  setImmediate(take)
}
