// Where the log goes, of a real process: a pipe that nobody reads, a disk that is full, and a person's terminal.
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, writeFileSync } from 'node:fs'
import { Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { Pretty } from '../../src/telemetry/pretty-log.ts'
import { ask } from '../support/billing-client.ts'
import { KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { folderFor, run, type Spawned } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { answer, upstream } from '../support/upstream.ts'

const LINES = 20
/** Of the 16 MB that wait for a reader, and of the 64 KiB that a pipe holds, ten requests are more. */
const LENGTH = 100_000

/** Logs as much with each request as a day may bring. */
const CHATTY = `export default { name: 'chatty', create: (_options, _config, { log }) => ({
  onHead () { for (let i = 0; i < ${LINES}; i++) log.info({ text: 'x'.repeat(${LENGTH}) }, 'chatter') }
}) }`

interface Running { readonly gateway: Spawned, readonly api: string, readonly admin: string }

async function start (t: Test, output: number): Promise<Running> {
  const up = await upstream(t, answer('Hello'))
  const settings = yaml([up.url], '',
    '{ use: ./chatty.mjs }, auth, chat-to-messages, channel-router, billing-meter, error-normalize')
  const gateway = run(
    t,
    folderFor(t, { 'gateway.yaml': settings, 'chatty.mjs': CHATTY }),
    ['start', '--config', 'gateway.yaml'],
    { output }
  )
  return { gateway, ...await gateway.urls() }
}

const post = async (api: string): Promise<number> =>
  (await ask(`${api}/v1/messages`, messagesRequest, { headers: { 'x-api-key': KEY } })).status

async function dropped (admin: string): Promise<number> {
  const text = await (await fetch(`${admin}/metrics`)).text()
  t.match(text, /^# TYPE gateway_log_dropped_total counter$/m)
  return Number(/^gateway_log_dropped_total (\d+)$/m.exec(text)![1])
}

/** A pipe of the system's own, and nobody at its other end. */
function pipe (t: Test): { readonly file: string, readonly end: number } {
  const file = join(folderFor(t), 'pipe')
  execFileSync('mkfifo', [file])
  return { file, end: openSync(file, constants.O_RDWR) }
}

await t.test('a pipe that nobody reads: lines are dropped and counted, requests are served, SIGTERM ends it', async (t) => {
  const { end } = pipe(t)
  const { gateway, api, admin } = await start(t, end)
  t.equal(await dropped(admin), 0)
  for (let i = 0; i < 15; i++) t.equal(await post(api), 200)
  t.ok(await dropped(admin) > 0)
  t.equal((await fetch(`${admin}/healthz`)).status, 200)
  gateway.child.kill('SIGTERM')
  t.strictSame(await gateway.ended, [0, null])
  closeSync(end)
})

await t.test('a reader that comes late gets whole lines, and those that it does not get are counted', async (t) => {
  const { file, end } = pipe(t)
  const { gateway, api, admin } = await start(t, end)
  for (let i = 0; i < 15; i++) t.equal(await post(api), 200)
  const before = await dropped(admin)
  t.ok(before > 0)
  const chatter: number[] = []
  const reader = new Socket({ fd: openSync(file, constants.O_RDONLY | constants.O_NONBLOCK), readable: true,
    writable: false })
  const lines = createInterface({ input: reader }).on('line', (line) => {
    const { msg, text } = JSON.parse(line) as { readonly msg: string, readonly text: string }
    if (msg === 'chatter') chatter.push(text.length)
  })
  await until(() => chatter.length > 100)
  // What it did not wait for is not lost either.
  t.equal(await post(api), 200)
  const lost = await dropped(admin)
  gateway.child.kill('SIGTERM')
  t.strictSame(await gateway.ended, [0, null])
  closeSync(end)
  await once(lines, 'close')
  t.ok(chatter.every((length) => length === LENGTH))
  // Of the request's own lines some may be among the dropped ones.
  t.ok(chatter.length + lost >= 16 * LINES && chatter.length <= 16 * LINES,
    `${chatter.length} lines were read, ${lost} dropped`)
})

await t.test('a disk that is full', async (t) => {
  const full = openSync('/dev/full', 'w')
  const { gateway, api, admin } = await start(t, full)
  closeSync(full)
  for (let i = 0; i < 3; i++) t.equal(await post(api), 200)
  await until(async () => await dropped(admin) >= 3 * LINES)
  t.equal((await fetch(`${admin}/healthz`)).status, 200)
  gateway.child.kill('SIGTERM')
  t.strictSame(await gateway.ended, [0, null])
})

await t.test('log.format: lines for people where they are asked for, and JSON again after a reload', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const settings = (format: string): string => yaml([up.url], `log: { format: ${format} }`)
  const gateway = run(t, folderFor(t, { 'gateway.yaml': settings('pretty') }), ['start', '--config', 'gateway.yaml'])
  const { api } = await gateway.urls()
  t.equal(await post(api), 200)
  await until(() =>
    /^\d\d:\d\d:\d\d\.\d{3} INFO {2}request request_id=req_\w+ .* status=200 code=ok /m.test(gateway.stdout())
  )
  writeFileSync(join(gateway.folder, 'gateway.yaml'), settings('auto'))
  gateway.child.kill('SIGHUP')
  t.match(await until(async () => {
    await post(api)
    return gateway.log().find(({ msg }) => msg === 'request')
  }), { status: 200 })
  gateway.child.kill('SIGTERM')
  t.strictSame(await gateway.ended, [0, null])
})

t.test('a line for people', (t) => {
  const lines = (line: object): string => new Pretty(false).lines(`${JSON.stringify(line)}\n`)
  const time = new Date(2026, 10, 22, 9, 5, 7, 42).toISOString()
  t.equal(lines({ level: 'info', time, request_id: 'req_1', status: 200, nanos: '12', stream: false, msg: 'request' }),
    '09:05:07.042 INFO  request request_id=req_1 status=200 nanos=12 stream=false\n')
  t.equal(
    lines({ level: 'error', time, err: { type: 'TypeError', message: 'x', stack: 'TypeError: x\n    at y', code: 'E' },
      worker: 2, msg: 'a stack' }),
    '09:05:07.042 ERROR a stack worker=2\n    TypeError: x\n        at y\n    code=E\n'
  )
  t.equal(lines({ level: 'warn', time, client: 'a "b" c', usage: { input: 1 }, msg: 'x' }),
    '09:05:07.042 WARN  x client="a \\"b\\" c" usage={"input":1}\n')
  const nasty = lines({ level: 'info', time, client: '\u001b[2J\u009b2J\u202e\nx', 'k\u001b': 1,
    msg: '\u001b]0;x\u0007\n' })
  t.notMatch(nasty.slice(0, -1), /[\p{Cc}\u202e]/u, 'nothing of a client is obeyed by the terminal')
  t.equal(new Pretty(false).lines('not JSON\u001b[2J\n[1]\n'), 'not JSON\\u001b[2J\n[1]\n')
  t.equal(new Pretty(true).lines(`${JSON.stringify({ level: 'info', time, msg: 'x' })}\n`).includes('\u001b[32m'),
    process.env['NO_COLOR'] === undefined && process.env['TERM'] !== 'dumb')
  t.end()
})
