// A few hundred inputs of each kind of the fuzz, and that it would tell: `npm run fuzz` goes on for as long as one likes.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Chance } from './fuzz/chance.ts'
import { fuzz } from './fuzz/fuzz.ts'
import { kinds } from './fuzz/kinds.ts'
import { judge } from './fuzz/wire.ts'

const COUNT = 200
/** SEED repeats the inputs, not how they meet. */
const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000)

void t.test(`nothing that is sent, answered or configured does harm, seed ${SEED}`, async (t) => {
  const folder = join(t.testdir(), 'found')
  const { counts, wrong } = await fuzz({ seed: SEED, count: COUNT, folder, say: (line) => { t.comment(line) } })
  t.strictSame(wrong, [])
  t.notOk(existsSync(folder), 'nothing is saved')
  for (const { name, share = 1 } of kinds(folder)) t.equal([...counts.get(name)!.values()].reduce((sum, one) => sum + one, 0), COUNT * share, name)
  for (const [name, what] of [['forms', '200'], ['forms', '400'], ['bodies', '200'], ['bodies', '400'], ['heads', '400'], ['upstreams', '200'], ['upstreams', '200 stream'], ['upstreams', '502'], ['admin', '200'], ['admin', '400'], ['yaml', 'refused'], ['reloads', 'refused']] as const) t.ok((counts.get(name)!.get(what) ?? 0) > 0, `${name}: some are ${what}`)
})

void t.test('an input is what its seed says', async (t) => {
  for (const kind of kinds(t.testdir())) {
    for (let number = 0; number < 20; number++) t.strictSame(kind.make(new Chance(number), number), kind.make(new Chance(number), number), `${kind.name} ${number}`)
    t.notSame(kind.make(new Chance(1), 1), kind.make(new Chance(2), 1), kind.name)
  }
})

void t.test('what is wrong is told: a 500, an error without a shape, a stream without its end, half a head, silence', async (t) => {
  const told = (text: string, isHanging = false): boolean => {
    const [head, body = ''] = text.split('\r\n\r\n')
    const [line = '', ...fields] = head!.split('\r\n')
    return judge({ first: body === '' ? undefined : { status: line.split(' ')[1]!, fields: fields.join('\r\n'), body, isWhole: true }, text, isHanging }).wrong !== undefined
  }
  const json = 'content-type: application/json'
  t.ok(told(`HTTP/1.1 500 X\r\n${json}\r\n\r\n{"error":{"message":"x"}}`))
  t.ok(told(`HTTP/1.1 400 X\r\n${json}\r\n\r\n{"error":"x"}`))
  t.notOk(told(`HTTP/1.1 400 X\r\n${json}\r\n\r\n{"error":{"message":"x"}}`))
  t.ok(told('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: ping\ndata: {}\n\n'))
  t.notOk(told('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: message_stop\ndata: {}\n\n'))
  t.notOk(told('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\ndata: [DONE]\n\n'))
  t.ok(told('HTTP/1.1 200 OK\r\ncontent-'))
  t.ok(told('', true))
})
