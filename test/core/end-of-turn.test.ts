// Steps that wait until a turn's input was read (src/base/end-of-turn.ts): all of them once, in their order, behind
// the input and before anything later; one that throws takes no other with it.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { atEndOfTurn, dateOfStep, timeOfStep } from '../../src/base/end-of-turn.ts'
import { packageRoot } from '../../src/base/package.ts'

void t.test('behind all that was read in the turn, in their order; what a step adds belongs to the turn', async (t) => {
  const said: string[] = []
  const over = Promise.withResolvers<void>()
  const sockets: Socket[] = []
  const server = createServer((socket) => {
    sockets.push(socket)
    socket.once('data', () => {
      said.push('read')
      atEndOfTurn(() => {
        said.push('first step')
        atEndOfTurn(() => { if (said.push('second step') === 12) over.resolve() })
      })
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  const clients = await Promise.all(Array.from({ length: 4 }, async () => {
    const client = connect(port, '127.0.0.1')
    await once(client, 'connect')
    return client
  }))
  while (sockets.length < 4) await new Promise(setImmediate)
  for (const client of clients) client.write('x')
  // All four are readable when the loop asks for the next time: nothing else ran meanwhile.
  for (const until = performance.now() + 20; performance.now() < until;);
  await over.promise
  t.strictSame(said, [...Array(4).fill('read'), ...Array(4).fill('first step'), ...Array(4).fill('second step')])
  for (const client of clients) client.destroy()
  server.close()
})

void t.test('what promises add once they are fulfilled belongs to the turn, before the sockets are read again', async (t) => {
  const said: string[] = []
  const server = createServer((socket) => {
    socket.once('data', () => {
      atEndOfTurn(async () => {
        said.push('first step')
        for (let i = 0; i < 20; i++) await undefined
        atEndOfTurn(() => {
          said.push('second step')
          process.nextTick(() => { atEndOfTurn(() => { said.push('third step') }) })
        })
      })
    }).once('end', () => { said.push('end') })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  const client = connect(port, '127.0.0.1').resume()
  client.end('x')
  await once(client, 'close')
  t.strictSame(said, ['first step', 'second step', 'third step', 'end'])
  server.close()
})

void t.test('turn after turn, each once', async (t) => {
  const taken: number[] = []
  for (let turn = 0; turn < 50; turn++) {
    for (let i = 0; i < turn; i++) atEndOfTurn(() => { taken.push(turn) })
    await new Promise(setImmediate)
  }
  t.strictSame(taken, Array.from({ length: 50 }, (_, turn) => Array<number>(turn).fill(turn)).flat())
})

void t.test('an error of one is uncaught, the steps behind it are taken, and the process ends', async (t) => {
  const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', `
    import { atEndOfTurn } from ${JSON.stringify(join(packageRoot, 'src/base/end-of-turn.ts'))}
    process.on('uncaughtException', ({ message }) => { console.log(message) })
    atEndOfTurn(() => { console.log('one') })
    atEndOfTurn(() => { throw new Error('two') })
    atEndOfTurn(() => { console.log('three'); atEndOfTurn(() => { console.log('five') }) })
    atEndOfTurn(() => { throw new Error('four') })
  `], { stdio: ['ignore', 'pipe', 'inherit'] })
  let said = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => { said += text })
  t.strictSame(await once(child, 'close'), [0, null])
  t.strictSame(said.trim().split('\n'), ['one', 'two', 'three', 'four', 'five'])
})

void t.test('the clocks stand within a step, and go on with the next one and outside', async (t) => {
  const wait = (): void => { for (const until = performance.now() + 3; performance.now() < until;); }
  const read = (): number[] => [timeOfStep(), dateOfStep()]
  const seen: number[][] = []
  const over = Promise.withResolvers<void>()
  const step = (): void => {
    seen.push(read())
    wait()
    seen.push(read())
  }
  step()
  atEndOfTurn(step)
  atEndOfTurn(step)
  atEndOfTurn(() => { over.resolve() })
  await over.promise
  step()
  t.strictSame([seen[3], seen[5]], [seen[2], seen[4]], 'they stand')
  for (const clock of [0, 1] as const) {
    const times = [0, 1, 2, 4, 6, 7].map((i) => seen[i]![clock]!)
    for (let i = 1; i < times.length; i++) t.ok(times[i]! - times[i - 1]! >= (i === 2 ? 0 : 2))
  }
  t.ok(Math.abs(Date.now() - dateOfStep()) < 1000 && Math.abs(performance.now() - timeOfStep()) < 1000)
})
