// What the event loop works on, so that a stall can be named (src/telemetry/stall-watch.ts). A mark holds until the
// next one: it costs three stores and one look at a flag, so it may stand on the way of every request.

/** Values of a metric's label: a fixed list. */
export const PHASES = ['request', 'body', 'plugin', 'attempt', 'answer', 'stream', 'settle', 'admin', 'metrics', 'reload',
  'other'] as const
export type Phase = typeof PHASES[number]

export interface Mark {
  readonly phase: Phase
  /** of the request; undefined: the work belongs to none */
  readonly id: string | undefined
  /** name of the plugin; undefined: no plugin runs */
  readonly plugin: string | undefined
}

/** Places in the memory that the loop shares with the thread that watches it. */
export const BEAT = 0
export const FLAG = 1

/** `BEAT`: turns of the loop's timer. `FLAG`: 1 while the watching thread sees no turn. */
export const shared = new Int32Array(new SharedArrayBuffer(8))

interface Work { readonly id: string }

let phase: Phase = 'other'
let work: Work | undefined
let plugin: string | undefined
let culprit: Mark | undefined

/** The work that follows, in this turn of the loop. */
export function mark (next: Phase, of?: Work, name?: string): void {
  // The work until now is what the loop was stopped by, or a part of it.
  if (shared[FLAG] === 1 && culprit === undefined) culprit = current()
  phase = next
  if (work !== of) work = of                                  // each store of a young object in an old one is recorded
  plugin = name
}

export function current (): Mark {
  return { phase, id: work?.id, plugin }
}

/** The work that was running when the flag was raised. Clears flag and mark. */
export function takeCulprit (): Mark {
  const found = culprit ?? current()
  culprit = undefined
  shared[FLAG] = 0
  mark('other')
  return found
}
