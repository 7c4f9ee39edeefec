// Garbage is collected by V8 when it thinks fit; here where it is known to be much, and nothing else is done.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

let collector: (() => void) | undefined

/** A full collection of this thread's, synchronously. */
export function collectGarbage (): void {
  if (collector === undefined) {
    setFlagsFromString('--expose-gc')                         // for contexts created from now on
    collector = runInNewContext('gc') as () => void
  }
  collector()
}
