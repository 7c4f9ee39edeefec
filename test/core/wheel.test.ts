// The timeouts of requests (src/base/wheel.ts): never early, none lost, whatever is set, moved and taken back.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { Alarm } from '../../src/base/wheel.ts'
import { until } from '../support/until.ts'

interface Move {
  readonly which: number
  /** milliseconds; undefined: it is taken back */
  readonly ms: number | undefined
}

void t.test('each alarm rings once for the last time that it was set, and never early', async (t) => {
  const moves = fc.array(fc.record<Move>({ which: fc.nat(9), ms: fc.option(fc.nat(60), { nil: undefined }) }),
    { minLength: 1, maxLength: 60 })
  await fc.assert(fc.asyncProperty(moves, fc.nat(3), async (all, pauses) => {
    const due = new Map<number, number>()
    const wrong: string[] = []
    const alarms = Array.from({ length: 10 }, (_, i) => new Alarm(() => {
      const at = due.get(i)
      if (at === undefined) wrong.push(`${i} rang, and was not set`)
      else if (performance.now() < at) wrong.push(`${i} rang early`)
      due.delete(i)
    }))
    for (const [n, { which, ms }] of all.entries()) {
      if (n % 20 === 0 && pauses > 0) await new Promise((resolve) => { setTimeout(resolve, 5 * pauses) })
      if (ms === undefined) { alarms[which]!.off(); due.delete(which); continue }
      due.set(which, performance.now() + ms)
      alarms[which]!.set(ms)
    }
    await until(() => due.size === 0)
    t.ok(alarms.every(({ isSet }) => !isSet))
    if (wrong.length > 0) throw new Error(wrong.join('; '))
  }), { numRuns: 30 })
})

void t.test('an alarm further away than a turn of the wheel, and one moved there and back', async (t) => {
  const rung: string[] = []
  const far = new Alarm(() => { rung.push('far') })
  const near = new Alarm(() => { rung.push('near') })
  const moved = new Alarm(() => { rung.push('moved') })
  const began = performance.now()
  far.set(9000)                                               // a turn is 8192 ms
  near.set(30)
  moved.set(60_000)
  moved.set(20)
  await until(() => rung.length === 2)
  t.strictSame(rung.toSorted(), ['moved', 'near'])
  await until(() => rung.length === 3)
  t.ok(performance.now() - began >= 9000)
})

void t.test('one that rings may set and take back any, itself too', async (t) => {
  const rung: number[] = []
  const alarms: Alarm[] = []
  for (let i = 0; i < 3; i++) alarms.push(new Alarm(() => {
    rung.push(i)
    for (const other of alarms) other.off()
    if (rung.length < 5) alarms[i]!.set(1)
  }))
  for (const alarm of alarms) alarm.set(10)
  await until(() => rung.length === 5)
  t.equal(new Set(rung).size, 1, 'the others were taken back')
})

void t.test('an error of one ends no other, and the process ends when none is set', async (t) => {
  const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', `
    import { Alarm } from ${JSON.stringify(join(packageRoot, 'src/base/wheel.ts'))}
    process.on('uncaughtException', ({ message }) => { console.log(message) })
    new Alarm(() => { throw new Error('one') }).set(5)
    new Alarm(() => { console.log('two') }).set(5)
    new Alarm(() => { console.log('three') }).set(40)
    new Alarm(() => { console.log('never') }).off()
  `], { stdio: ['ignore', 'pipe', 'inherit'] })
  let said = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => { said += text })
  t.strictSame(await once(child, 'close'), [0, null])
  t.strictSame(said.trim().split('\n').toSorted(), ['one', 'three', 'two'])
})
