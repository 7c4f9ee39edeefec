// Notices changes of the configuration's files. Polls with fs.stat instead of listening to the system (inotify, and so
// chokidar): a stat follows symlinks, so an editor's rename over the file, the swapped `..data` symlink of a mounted
// ConfigMap, NFS and bind mounts (where no events come), a file that does not exist yet, and a plain write are one case
// instead of six. Ten files every 100 ms cost 0.6 % of a core (measured), and there is no dependency and no watch limit
// of the kernel.
import { emitWarning } from 'node:process'
import { type Stat, stamp } from './stamp.ts'

export interface WatchOptions {
  readonly interval_ms?: number
  /** stands in for fs.stat in tests */
  readonly stat?: (file: string) => Promise<Stat>
  /** stamp of a file when it was read: a change between that and the first poll counts */
  readonly known?: (file: string) => string | undefined
  /** Called when a file has changed, and may still be changing. Must not throw. */
  readonly onStir?: () => void
}

export interface Watcher {
  close (): void
  /** settles when every file was polled once: from then on, no change is missed */
  readonly ready: Promise<void>
}

/** Milliseconds until a changed file is polled again: an editor's several writes are over by then. */
const STILL_MS = 50

/**
 * Calls back once the files have changed and then stood still for STILL_MS. Never keeps the process alive.
 * @param files called at each poll, because included files may change
 * @param onChange must not throw
 */
export function watchFiles (files: () => readonly string[], onChange: () => void, options: WatchOptions = {}): Watcher {
  const { interval_ms = 100, stat, known, onStir } = options
  /** stamps at the last callback, or at the start */
  let settled = new Map<string, string>()
  let last = new Map<string, string>()
  let isClosed = false
  let timer: NodeJS.Timeout | undefined
  const { promise: ready, resolve: markReady } = Promise.withResolvers<void>()

  /** @returns whether a file has changed that may still be changing */
  async function look (): Promise<boolean> {
    const paths = files()
    // one at a time: a mount that hangs must not take all threads of the pool
    const now = new Map<string, string>()
    for (const path of paths) now.set(path, await stamp(path, stat))
    if (isClosed) return false
    const before = new Map<string, string>()
    for (const [path, mark] of now) before.set(path, settled.get(path) ?? known?.(path) ?? mark)
    settled = before
    const isStirring = differs(now, settled) && differs(now, last)
    if (isStirring) onStir?.()
    else if (differs(now, settled)) {
      settled = now
      onChange()
    }
    last = now
    return isStirring
  }

  function next (isStirring: boolean): void {
    markReady()
    if (isClosed) return
    timer = setTimeout(() => { void run() }, isStirring ? Math.min(STILL_MS, interval_ms) : interval_ms).unref()
  }

  async function run (): Promise<void> {
    let isStirring = false
    try {
      isStirring = await look()
    } catch (thrown) {
      emitWarning(thrown instanceof Error ? thrown : String(thrown))
    }
    next(isStirring)
  }

  void run()
  return {
    ready,
    close () {
      isClosed = true
      clearTimeout(timer)
      markReady()
    }
  }
}

function differs (a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): boolean {
  if (a.size !== b.size) return true
  for (const [path, mark] of a) if (b.get(path) !== mark) return true
  return false
}
