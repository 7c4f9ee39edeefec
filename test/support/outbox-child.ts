// A process with an outbox, to be killed or to run out of disk: appends until then, and writes down what it was told,
// as soon as it is.
import { writeSync } from 'node:fs'
import { Outbox } from '../../src/store/redis/outbox.ts'

const [folder, count] = process.argv.slice(2) as [string, string]
const quiet = (): void => {}
const outbox = await Outbox.open(folder, { info: quiet, warn: quiet, error: quiet } as never, { file_bytes: 20_000 })

/** To a file: what is written there outlives the process. */
function tell (...words: readonly (string | number)[]): void {
  writeSync(1, words.join(' ') + '\n')
}

tell('ready')
await Promise.all(Array.from({ length: 10 }, async (_, writer) => {
  for (let i = 0; i < Number(count); i++) {
    const text = `${process.pid}-${writer}-${i}-${'x'.repeat(i % 300)}`
    try {
      const no = await outbox.append(text)
      tell('done', no, text)
      if (i % 3 > 0) outbox.acknowledge(no)
    } catch (thrown) {
      tell('failed', (thrown as { readonly code: string }).code, text)
    }
  }
}))
await outbox.close()
