// When a store of one process sends its decisions to the writer: alone at once, and together where they come close.
import { setImmediate as immediate } from 'node:timers/promises'
import t from 'tap'
import { ENTRY } from '../../src/store/local/cells.ts'
import { MemoryResponses } from '../../src/store/local/responses.ts'
import { LocalStore } from '../../src/store/local/store.ts'
import type { Batch, Writer } from '../../src/store/local/writer.ts'
import { request } from '../support/embedded-store.ts'

/** Records a batch when it is told to. */
class SlowWriter implements Writer {
  readonly isPrompt = false
  readonly trouble = undefined
  readonly batches: Batch[] = []

  send (batch: Batch): void {
    this.batches.push(batch)
  }

  get sizes (): readonly number[] {
    return this.batches.map(({ write: { entries } }) => entries.length / ENTRY.length)
  }

  async ask (): Promise<never> {
    throw new Error('nothing is asked here')
  }

  async * slices (): AsyncIterable<never> {}

  async verify (): Promise<number> {
    return 0
  }

  close (): void {}
}

/** A store in which requests run, and a booking in it. */
function storeWith (
  writer: Writer, running = 1
): { readonly store: LocalStore, book (): Promise<unknown> } {
  const store = new LocalStore({ writer, responses: new MemoryResponses(Date.now) })
  for (let i = 0; i < running; i++) store.hold(request(`r${i}`, 0n))
  let booked = 0
  return { store, book: async () => await store.credit('acme', `c${booked++}`, 1n) }
}

async function turns (count: number): Promise<void> {
  for (let i = 0; i < count; i++) await immediate()
}

void t.test('an entry that is alone in its turn is sent at its end', async (t) => {
  const writer = new SlowWriter()
  const { book } = storeWith(writer)
  const booking = book()
  t.strictSame(writer.sizes, [])
  await immediate()
  t.strictSame(writer.sizes, [1])
  writer.batches[0]!.onWritten([])
  t.equal(await booking, true)
})

void t.test('several wait until some turns bring no more, and are one batch', async (t) => {
  const writer = new SlowWriter()
  const { book } = storeWith(writer)
  const bookings = [book(), book()]
  await immediate()
  t.strictSame(writer.sizes, [])
  bookings.push(book(), book())
  await turns(12)
  t.strictSame(writer.sizes, [4])
  writer.batches[0]!.onWritten([])
  t.strictSame(await Promise.all(bookings), [true, true, true, true])
})

void t.test('where each turn brings some, a batch waits for a few only', async (t) => {
  const writer = new SlowWriter()
  const { book } = storeWith(writer)
  void book()
  for (let i = 1; i < 31 && writer.batches.length === 0; i++) {
    void book()
    await immediate()
  }
  t.equal(writer.batches.length, 1)
  t.ok(writer.sizes[0]! > 2 && writer.sizes[0]! < 20, String(writer.sizes[0]))
})

void t.test('where no request runs, or very many do, none waits', async (t) => {
  for (const running of [0, 33]) {
    const writer = new SlowWriter()
    const { book } = storeWith(writer, running)
    for (let i = 0; i < 2; i++) void book()
    await immediate()
    t.strictSame(writer.sizes, [2], `${running} run`)
  }
})

void t.test('one that is large waits for no other', async (t) => {
  const writer = new SlowWriter()
  const { book } = storeWith(writer)
  for (let i = 0; i < 32; i++) void book()
  await immediate()
  t.strictSame(writer.sizes, [32])
})

void t.test('while one is on its way the next gathers; it is sent behind it, in order, and the end sends it at once', async (t) => {
  const writer = new SlowWriter()
  const { store, book } = storeWith(writer)
  void book()
  await immediate()
  const bookings = [book(), book()]
  await turns(12)
  t.strictSame(writer.sizes, [1], 'one on its way')
  writer.batches[0]!.onWritten([])
  bookings.push(book())
  const closed = store.close()
  await closed
  t.strictSame(writer.sizes, [1, 3], 'before its turns are over')
  await turns(12)
  t.equal(writer.batches.length, 2, 'once')
  writer.batches[1]!.onWritten([])
  t.strictSame(await Promise.all(bookings), [true, true, true])
})
