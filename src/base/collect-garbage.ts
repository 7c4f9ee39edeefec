// Garbage is collected by V8 when it thinks fit; here where it is known to be much, and nothing else is done.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/**
 * From now on V8 lets the heap of each thread double before it collects all of it. Where a heap hardly grows by itself,
 * as that of a server that is warm, it lets it grow by 8 MB, and counts what lies outside of it too: received bytes.
 */
export function letHeapsDouble (): void {
  setFlagsFromString('--heap-growing-percent=100')
}

let collector: ((options?: { readonly type: 'minor' }) => void) | undefined

/** A full collection of this thread's, synchronously. */
export function collectGarbage (): void {
  collectorOf()()
}

/** A collection of this thread's young objects, with the memory that belongs to them: some 2 ms. */
export function collectYoungGarbage (): void {
  collectorOf()({ type: 'minor' })
}

function collectorOf (): NonNullable<typeof collector> {
  if (collector === undefined) {
    setFlagsFromString('--expose-gc')                         // for contexts created from now on
    collector = runInNewContext('gc') as NonNullable<typeof collector>
  }
  return collector
}
