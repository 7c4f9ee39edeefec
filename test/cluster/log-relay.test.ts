// The lines of a worker's log on their way to the common log: whole, in order, byte for byte, however they are cut.
import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import t from 'tap'
import { relay } from '../../src/cluster/log-relay.ts'

t.test('lines that are cut anywhere are passed on whole, and the rest of a torn one gets an end', async (t) => {
  await fc.assert(fc.asyncProperty(
    fc.array(fc.string({ unit: 'grapheme', maxLength: 40 }).map((text) => JSON.stringify({ msg: text }))),
    fc.string({ maxLength: 20 }).map((text) => text.replaceAll('\n', '')),
    fc.array(fc.nat({ max: 60 })),
    async (lines, torn, sizes) => {
      const sent = Buffer.from(lines.map((line) => `${line}\n`).join('') + torn)
      const from = new PassThrough()
      const written: Buffer[] = []
      relay(from, { writeBytes (bytes) { written.push(bytes) } })
      let at = 0
      for (const size of sizes) { from.write(sent.subarray(at, at + size)); at += size }
      from.end(sent.subarray(at))
      await once(from, 'end')
      const expected = torn === '' ? sent.toString() : `${sent.toString()}\n`
      t.equal(Buffer.concat(written).toString(), expected)
      t.ok(written.every((bytes) => bytes.at(-1) === 10), 'nothing but whole lines')
    }
  ))
})
