// What a request may make, counted as the bench counts it (test/bench/budget.ts): the next change that allocates for
// each request something that lives, or adds a promise to each, is found here and not in a noisy measurement of time.
import t from 'tap'
import { launch } from '../bench/contenders.ts'
import { Counted, type HeapBudget } from '../bench/budget.ts'
import { dialects } from '../bench/payloads.ts'
import type { ObjectCount } from '../bench/questions.ts'
import { startUpstream } from '../bench/upstream.ts'

type Most = ObjectCount & Pick<HeapBudget, 'allocated' | 'old'>

/** Of a JSON request of 1 KB with everything on. To be lowered with every gain; a little room is for other machines. */
const mosts: Readonly<Record<'gateway' | 'embedded', Most>> = {
  gateway: { allocated: 22 * 1024, old: 1000, promises: 0.5, timers: 0.5, abortControllers: 0, writes: 2 },
  embedded: { allocated: 24 * 1024, old: 1000, promises: 7, timers: 0.5, abortControllers: 0, writes: 2 }
}
/** Timers of the process itself, and its few other writes, fall into any time. */
const ITS_OWN = 0.05
const WINDOW = 2500
const WINDOWS = 24

for (const [name, most] of Object.entries(mosts) as [keyof typeof mosts, Most][]) {
  // Without the lanes a request makes more.
  const skip = process.env['FAST_LANE'] === 'off'
  t.test(`${name === 'gateway' ? 'memory' : name} store: a request stays within its budget`, { skip }, async (t) => {
    const upstream = await startUpstream()
    t.teardown(upstream.close)
    const { child, port } = await launch(name, { upstreamPort: upstream.port, targetPorts: [upstream.port],
      folder: t.testdir(), isPinned: false, isAsked: true })
    t.teardown(child!.stop)
    const counted = new Counted(child!, port, dialects.chat)

    // Compiled code allocates less, and when V8 compiles depends on how busy the machine is: any window may be it.
    let heap = { allocated: Infinity, old: Infinity }
    const isWithin = (): boolean => heap.allocated <= most.allocated && heap.old <= most.old
    for (let window = 0; window < WINDOWS && !isWithin(); window++) heap = await counted.heap(WINDOW)
    t.ok(heap.allocated <= most.allocated, `${heap.allocated.toFixed(0)} bytes on the heap`)
    t.ok(heap.old <= most.old, `${heap.old.toFixed(0)} bytes into the old generation`)

    let collections = Infinity
    for (let window = 0; window < 4 && collections > 1; window++) collections = await counted.fullCollections(50)
    t.ok(collections <= 1, `${collections} full collections for bodies of 250 MB`)

    const objects = await counted.objects(WINDOW)
    for (const made of ['promises', 'timers', 'abortControllers', 'writes'] as const) {
      t.ok(objects[made] <= most[made] + ITS_OWN, `${objects[made].toFixed(2)} ${made}`)
    }
  })
}
