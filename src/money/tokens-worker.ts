// Counts tokens of text that was produced: an estimate for answers whose provider did not say. The only user of the tokenizer, which
// would double what each garbage collection of the gateway has to walk through (measured); run by tokens-thread.ts only.
import { parentPort, workerData } from 'node:worker_threads'
import { countTokens, setMergeCacheSize } from 'gpt-tokenizer/encoding/o200k_base'
import { DONE, OPEN, type FromThread, type ToThread } from './tokens-thread.ts'

// It remembers each piece that it merged. Its default of 100,000 pieces of up to a slice each is 1 GB, filled by
// whoever makes a model print noise; 2,000 are at most some 20 MB, and as fast on prose (measured).
setMergeCacheSize(2000)

// Without this an answer that quotes "<|endoftext|>" makes the tokenizer throw.
const asPlainText = { disallowedSpecial: new Set<string>() }

// Byte pair encoding takes time with the square of a run without spaces: 16 KB of "aaaa…" block for 105 ms, 512 characters for
// less than 1 ms (measured). So text is never counted in larger slices than this.
const SLICE = 512

/** One stream, as far as it came: keeps less than a slice. */
class Count {
  #tokens = 0
  #rest = ''

  add (text: string): void {
    this.#rest += text
    while (this.#rest.length >= SLICE) {
      const cut = findCut(this.#rest)
      this.#tokens += countTokens(this.#rest.slice(0, cut), asPlainText)
      this.#rest = this.#rest.slice(cut)
    }
  }

  /** A copy, with more. */
  with (text: string): Count {
    const copy = new Count()
    copy.#tokens = this.#tokens
    copy.#rest = this.#rest
    copy.add(text)
    return copy
  }

  get tokens (): number {
    return this.#tokens + countTokens(this.#rest, asPlainText)
  }
}

/** Where to cut, looking at the first SLICE characters only. */
function findCut (text: string): number {
  // No piece of the o200k pattern goes from a non-space over a U+0020, so a cut there changes no token.
  let space = text.lastIndexOf(' ', SLICE - 1)
  while (space > SLICE / 2) {
    if (!/\s/.test(text[space - 1]!)) return space
    space = text.lastIndexOf(' ', space - 1)
  }
  const last = text.charCodeAt(SLICE - 1)
  const isHalfOfPair = last >= 0xD800 && last <= 0xDBFF
  return isHalfOfPair ? SLICE - 1 : SLICE
}

const progress = workerData as Int32Array
const open = new Map<number, Count>()

function post (message: FromThread): void {
  parentPort!.postMessage(message)
}

parentPort!.on('message', ({ id, text, next, no }: ToThread) => {
  const before = open.get(id) ?? new Count()
  const count = next === 'try' ? before.with(text) : before
  if (next !== 'try') count.add(text)
  if (next === 'more' || next === 'peek') open.set(id, count)
  else if (next !== 'try') open.delete(id)
  // Before the answer: who has that sees what is still open.
  Atomics.store(progress, OPEN, open.size)
  if (next === 'tell' || next === 'peek' || next === 'try') post({ no, tokens: count.tokens })
  Atomics.add(progress, DONE, text.length)
})
post('ready')
