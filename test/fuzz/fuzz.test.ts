// A few inputs of each kind of the fuzz, and that it would tell: `npm run fuzz` goes on for as long as one likes.
import t from 'tap'
import { fuzzRun, SEED } from '../support/fuzz-run.ts'
import { Chance } from './chance.ts'
import { kinds } from './kinds.ts'
import { judge } from './wire.ts'

/** e2e/fuzz-run has five times as many. */
const COUNT = 40

void t.test(`nothing that is sent, answered or configured does harm, seed ${SEED}`, async (t) => {
  const counts = await fuzzRun(t, COUNT)
  for (const [name, what] of [['forms', '400'], ['bodies', '400'], ['upstreams', '200']] as const) {
    t.ok((counts.get(name)!.get(what) ?? 0) > 0, `${name}: some are ${what}`)
  }
})

void t.test('an input is what its seed says', async (t) => {
  for (const kind of kinds(t.testdir())) {
    for (let number = 0; number < 20; number++) {
      t.strictSame(kind.make(new Chance(number), number), kind.make(new Chance(number), number),
        `${kind.name} ${number}`)
    }
    t.notSame(kind.make(new Chance(1), 1), kind.make(new Chance(2), 1), kind.name)
  }
})

void t.test('what is wrong is told: a 500, an error without a shape, a stream without its end, half a head, silence', async (t) => {
  const told = (text: string, isHanging = false): boolean => {
    const [head, body = ''] = text.split('\r\n\r\n')
    const [line = '', ...fields] = head!.split('\r\n')
    return judge({
      first: body === ''
        ? undefined
        : { status: line.split(' ')[1]!, fields: fields.join('\r\n'), body, isWhole: true },
      text,
      isHanging
    }).wrong !== undefined
  }
  const json = 'content-type: application/json'
  t.ok(told(`HTTP/1.1 500 X\r\n${json}\r\n\r\n{"error":{"message":"x"}}`))
  t.ok(told(`HTTP/1.1 400 X\r\n${json}\r\n\r\n{"error":"x"}`))
  t.notOk(told(`HTTP/1.1 400 X\r\n${json}\r\n\r\n{"error":{"message":"x"}}`))
  t.ok(told('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: ping\ndata: {}\n\n'))
  t.notOk(told('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: message_stop\ndata: {}\n\n'))
  t.notOk(told('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\ndata: [DONE]\n\n'))
  t.notOk(told('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: response.failed\ndata: {}\n\n'))
  t.ok(told('HTTP/1.1 200 OK\r\ncontent-'))
  t.ok(told('', true))
})
