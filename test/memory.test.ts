// What a gateway keeps in memory, and for how long: a process of its own, real connections, bytes counted by V8.
import path from 'node:path'
import t from 'tap'
import { startClosedLoop } from './bench/load.ts'
import { toWire } from './bench/payloads.ts'
import { until } from './client.ts'
import { startProcess } from './gateway-process.ts'
import { KEY, messagesRequest, yaml } from './gateway.ts'
import { folderFor } from './spawned.ts'
import { answer, upstream } from './upstream.ts'

/** Bytes of a request that may outlive it: its ledger line, its charge, and what happens to be under way while memory is looked at. */
const BYTES_A_REQUEST = 1500
const REQUESTS = 4000

t.test('what a request made dies with it, in the young generation', async (t) => {
  const up = await upstream(t, answer('Hello.'))
  const file = path.join(folderFor(t, { 'gateway.yaml': yaml([up.url]) }), 'gateway.yaml')
  // The old generation may grow so far before it is collected: what is there at the end is all that came.
  const gw = await startProcess(t, file, ['--initial-old-space-size=1024'])
  const load = startClosedLoop(Number(new URL(gw.api).port), toWire('/v1/messages', JSON.stringify(messagesRequest), KEY), 32)
  await until(() => load.completed() >= REQUESTS)
  // Whatever lives now is old from here on, the table of a Set or a Map too.
  await gw.ask('heap')
  const before = await gw.ask('old')
  const from = load.completed()
  await until(() => load.completed() >= from + REQUESTS)
  const bytes = (await gw.ask('old') - before) / (load.completed() - from)
  await load.stop()
  t.comment(`${Math.round(bytes)} bytes a request became old`)
  t.ok(bytes < BYTES_A_REQUEST, `${Math.round(bytes)} bytes a request became old, of at most ${BYTES_A_REQUEST}`)
})
