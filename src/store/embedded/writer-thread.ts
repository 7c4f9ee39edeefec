// The thread that records the store's decisions: one transaction for each message, in the order of the messages. fsync
// does not delay it; a checkpoint delays only messages that arrive during it. Run by writer.ts only.
import { closeSync, fdatasync, mkdirSync, openSync, rmSync } from 'node:fs'
import path from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { answerFrom, type Documents, type Opened, type Write } from '../local/writer.ts'
import { copyIn } from './backup.ts'
import { explain, isDamage, Ledger } from './ledger.ts'
import { syncFolder } from './ledger-mark.ts'
import type { FromThread, ThreadInput, ToThread } from './messages.ts'

/**
 * Pages of 4 KB in the write-ahead log, estimated, after which a checkpoint runs. It takes 5 ms for 1000 pages and 30
 * ms for 4000 (measured), and messages that arrive meanwhile wait.
 */
const PAGES_PER_CHECKPOINT = 1000

/** Milliseconds until the newest entry is marked as on the disk, where every commit waits for the disk. */
const MARK_MS = 100

const { folder, fsyncInterval, now, owner, isResumed } = workerData as ThreadInput

function post (message: FromThread): void {
  parentPort!.postMessage(message)
}

/** Makes commits survive a power loss, by fdatasync in the thread pool. */
class Syncer {
  readonly #log = openSync(path.join(folder, 'gateway.db-wal'), 'r+')   // r+: Windows syncs no read-only file
  #timer: NodeJS.Timeout | undefined
  #isRunning = false
  #isDirty = false
  #isClosed = false
  /** the last mark failed, and the warning was posted */
  #isUnmarked = false
  /** A sync failed: the kernel has dropped the unwritten pages, and would not report that a second time. */
  hasFailed = false
  readonly #ledger: Ledger

  constructor (ledger: Ledger) {
    this.#ledger = ledger
    this.noteCommit()                                         // commits of the start
    syncFolder(folder)
  }

  noteCommit (): void {
    this.#isDirty = true
    if (!this.#isRunning) {
      this.#timer ??= setTimeout(() => {
        this.#sync()
      }, fsyncInterval === 0 ? MARK_MS : fsyncInterval)
    }
  }

  close (): void {
    clearTimeout(this.#timer)
    this.#isClosed = true
    if (!this.#isRunning) closeSync(this.#log)
  }

  #sync (): void {
    this.#timer = undefined
    this.#isRunning = true
    this.#isDirty = false
    const last = this.#ledger.last()
    fdatasync(this.#log, (error) => {
      this.#isRunning = false
      if (this.#isClosed) { closeSync(this.#log); return }
      if (error !== null) {
        this.hasFailed = true
        post({ kind: 'warning', message: `what was recorded last may not survive a power loss: ${error.message}` })
      } else this.#mark(last)
      if (this.#isDirty) this.noteCommit()
    })
  }

  #mark (last: Opened['last']): void {
    try {
      this.#ledger.mark(last)
      this.#isUnmarked = false
    } catch (thrown) {
      if (!this.#isUnmarked) {
        post({
          kind: 'warning',
          message: `how far the ledger has come can't be noted beside it, so its loss would not be noticed: ` +
            `${(thrown as Error).message}`
        })
      }
      this.#isUnmarked = true
    }
  }
}

/** Calls that change nothing, and need no sync. */
const READS: ReadonlySet<keyof Documents> = new Set(['rollups', 'newest', 'booked', 'records', 'changes',
  'newestChanges', 'task', 'tasks', 'newestTasks', 'allTasks', 'answer', 'allAnswers'])

class Recording {
  readonly #ledger: Ledger
  readonly #syncer: Syncer
  #pages = 0
  #isStuck = false
  /** the copy that is being made; never rejects */
  #backup: Promise<void> | undefined
  #isBackupWanted = false

  constructor (ledger: Ledger) {
    this.#ledger = ledger
    this.#syncer = new Syncer(ledger)
  }

  take (message: ToThread): void {
    switch (message.kind) {
      case 'write': this.#write(message.no, message.write); return
      case 'read': this.#read(message.after, message.upTo); return
      case 'verify': this.#verify(message.oldest); return
      case 'ask': this.#answer(message.of, message.args); return
      case 'back up': this.#backup = this.#backUp().finally(() => { this.#backup = undefined }); return
      case 'give up backup': this.#isBackupWanted = false; return
      case 'close': void this.#close(message.windows)
    }
  }

  #write (no: number, write: Write): void {
    try {
      if (this.#syncer.hasFailed) {
        // Copies the whole log, synced or not, into gateway.db, and syncs that.
        this.#ledger.checkpoint('TRUNCATE')
        this.#syncer.hasFailed = false
      }
      post({ kind: 'written', no, known: this.#ledger.write(write) })
    } catch (thrown) {
      post({ kind: 'unwritten', no, message: (thrown as Error).message })
      this.#checkpoint() // a log that can't grow may begin again in its own space
      return
    }
    this.#syncer.noteCommit()
    this.#pages += 4 + write.entries.length / 256
    if (this.#pages > PAGES_PER_CHECKPOINT) this.#checkpoint()
  }

  #checkpoint (): void {
    this.#pages = 0
    try {
      this.#ledger.checkpoint('PASSIVE')
      this.#isStuck = false
    } catch (thrown) {
      if (this.#isStuck) return
      this.#isStuck = true
      post({ kind: 'warning',
        message: `the write-ahead log can't be emptied, and grows: ${(thrown as Error).message}` })
    }
  }

  #read (after: number, upTo = this.#ledger.last().seq): void {
    try {
      post({ kind: 'read', cells: this.#ledger.read(after, upTo), upTo })
    } catch (thrown) {
      post({ kind: 'failed', what: 'read', message: (thrown as Error).message })
    }
  }

  #answer (of: keyof Documents, args: readonly unknown[]): void {
    try {
      post({ kind: 'answered',
        answer: answerFrom(this.#ledger.documents, of, args as Parameters<Documents[typeof of]>) })
    } catch (thrown) {
      post({ kind: 'failed', what: 'ask', message: (thrown as Error).message })
      return
    }
    if (!READS.has(of)) this.#syncer.noteCommit()
  }

  #verify (oldest: string): void {
    const steps = this.#ledger.verify(oldest)
    const step = (): void => {
      try {
        const { done, value } = steps.next()
        if (done === true) { post({ kind: 'verified', entries: value }); return }
        if (value !== undefined) post({ kind: 'compared', ...value })
      } catch (thrown) {
        post({ kind: 'failed', what: 'verify', message: (thrown as Error).message })
        return
      }
      setImmediate(step)                                      // waiting writes go first
    }
    step()
  }

  async #backUp (): Promise<void> {
    this.#isBackupWanted = true
    const target = copyIn(folder)
    try {
      mkdirSync(target.folder, { mode: 0o700 })
      await this.#ledger.backup(target.file, () => this.#isBackupWanted)
      post({ kind: 'backed up' })
    } catch (thrown) {
      rmSync(target.folder, { recursive: true, force: true })
      post({ kind: 'failed', what: 'back up', message: (thrown as Error).message })
    }
  }

  async #close (windows: Parameters<Ledger['close']>[0]): Promise<void> {
    this.#isBackupWanted = false
    await this.#backup                                        // the thread pool must not copy what is closed
    this.#syncer.close()
    try {
      this.#ledger.close(windows)
    } catch (thrown) {
      post({ kind: 'warning', message: `the ledger did not end cleanly: ${(thrown as Error).message}` })
    }
    parentPort!.close()
  }
}

try {
  const ledger = new Ledger(folder, fsyncInterval === 0)
  const recording = new Recording(ledger)
  rmSync(copyIn(folder).folder, { recursive: true, force: true })
  let recovered = 0
  if (isResumed) {
    ledger.resume(owner)
  } else {
    ledger.begin(owner)
    recovered = ledger.recover(now)
    ledger.documents.dropUncharged()
    for (const [of, cells] of ledger.load()) post({ kind: 'loaded', of, cells })
  }
  post({ kind: 'opened', opened: { last: ledger.last(), aliveUntil: ledger.aliveUntil(), recovered } })
  parentPort!.on('message', (message: ToThread) => { recording.take(message) })
} catch (thrown) {
  post({ kind: 'refused', message: isDamage(thrown) ? explain(thrown, folder) : (thrown as Error).message })
}
