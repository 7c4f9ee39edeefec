// Garbage is collected by V8 when it thinks fit; here where it is known to be much, and nothing else is done.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

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
