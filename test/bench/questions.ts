// What a contender tells about itself: each line of its standard input is a question, each line of a file an answer.
// What can't be asked from outside: the heap, and what is made for requests. Nothing is counted before it is asked for.
import { createHook } from 'node:async_hooks'
import { appendFileSync } from 'node:fs'
import { Socket } from 'node:net'
import { createInterface } from 'node:readline'
import { getHeapSpaceStatistics, GCProfiler } from 'node:v8'

export interface Answers {
  /** after a garbage collection */
  readonly memory: NodeJS.MemoryUsage
  readonly heap: HeapCount
  readonly objects: ObjectCount
}
export type Question = keyof Answers

/** Of the main thread, since the question was last asked. */
export interface HeapCount {
  /** bytes on V8's heap */
  readonly allocated: number
  /** bytes that reached the old generation, not counting what full collections move there */
  readonly old: number
  /** of each collection of the young generation */
  readonly scavengeMs: readonly number[]
  readonly fullCollections: number
}

/** Of the main thread, since the question was last asked; counting makes everything slower, and allocates. */
export interface ObjectCount {
  /** as V8's hooks see them: an `await` is one */
  readonly promises: number
  readonly timers: number
  readonly abortControllers: number
  /** of sockets, as Node hands them to the system */
  readonly writes: number
}

/** @param file where the answers go, a line of JSON each */
export function answerQuestions (file: string): void {
  const heap = heapCounter()
  const objects = objectCounter()
  const answers: { readonly [Q in Question]: (tell: (answer: Answers[Q]) => void) => void } = {
    memory (tell) {
      collect()
      // Twice, a turn apart: the first finds what only finalizers hold.
      setImmediate(() => {
        collect()
        tell(process.memoryUsage())
      })
    },
    heap: (tell) => tell(heap()),
    objects: (tell) => tell(objects())
  }
  createInterface({ input: process.stdin }).on('line', (question) => {
    answers[question as Question]((answer: unknown) => appendFileSync(file, JSON.stringify(answer) + '\n'))
  })
}

function collect (): void {
  if (globalThis.gc === undefined) throw new Error('memory is asked of processes that have --expose-gc')
  void globalThis.gc()
}

type Spaces = readonly { readonly spaceName: string, readonly spaceUsedSize: number }[]
const youngSpaces = ['new_space', 'new_large_object_space']

function youngBytes (spaces: Spaces): number {
  return spaces.reduce((sum, { spaceName, spaceUsedSize }) =>
    youngSpaces.includes(spaceName) ? sum + spaceUsedSize : sum, 0)
}

function oldBytes (spaces: Spaces): number {
  return spaces.reduce((sum, { spaceUsedSize }) => sum + spaceUsedSize, 0) - youngBytes(spaces)
}

function spacesNow (): Spaces {
  return getHeapSpaceStatistics().map(({ space_name: spaceName, space_used_size: spaceUsedSize }) =>
    ({ spaceName, spaceUsedSize }))
}

// From what each collection found and left: V8's own total of allocated bytes counts room that is given back unused,
// and was four times too high.
function heapCounter (): () => HeapCount {
  let profiler: GCProfiler | undefined
  let left: Spaces = []
  return () => {
    const collections = profiler?.stop()?.statistics ?? []
    const count = { allocated: 0, old: 0, scavengeMs: [] as number[], fullCollections: 0 }
    const grow = (spaces: Spaces): void => {
      const direct = Math.max(0, oldBytes(spaces) - oldBytes(left))    // less than nothing where sweeping goes on
      count.allocated += youngBytes(spaces) - youngBytes(left) + direct
      count.old += direct
    }
    for (const { gcType, beforeGC, afterGC, cost } of collections) {
      const [found, kept] = [beforeGC.heapSpaceStatistics, afterGC.heapSpaceStatistics]
      if (gcType === 'Scavenge') {
        grow(found)
        count.old += Math.max(0, oldBytes(kept) - oldBytes(found))
        count.scavengeMs.push(cost / 1000)
        left = kept
      } else if (gcType === 'MarkSweepCompact') {
        grow(found)
        count.fullCollections++
        left = kept
      }
    }
    grow(spacesNow())
    profiler = new GCProfiler()
    profiler.start()
    left = spacesNow()
    return count
  }
}

function objectCounter (): () => ObjectCount {
  let isCounting = false
  let count = { promises: 0, timers: 0, abortControllers: 0, writes: 0 }
  function start (): void {
    createHook({ init (_id, type) {
      if (type === 'PROMISE') count.promises++
      else if (type === 'Timeout') count.timers++
    } }).enable()
    globalThis.AbortController = class extends AbortController {
      constructor () {
        super()
        count.abortControllers++
      }
    }
    // Through which all its ways of writing go.
    const socket = Socket.prototype as unknown as { _writeGeneric: (...args: unknown[]) => unknown }
    const write = socket._writeGeneric
    socket._writeGeneric = function (...args) {
      count.writes++
      return write.apply(this, args)
    }
  }
  return () => {
    if (!isCounting) start()
    isCounting = true
    const found = count
    count = { promises: 0, timers: 0, abortControllers: 0, writes: 0 }
    return found
  }
}
