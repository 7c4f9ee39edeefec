// What stops the event loop is named: on a real process, with a plugin that works for as long as a request says.
import t from 'tap'
import { KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { folderFor, run } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { answer, upstream } from '../support/upstream.ts'

/** Stops the loop for the milliseconds in a header; for good where they are no number. */
const PLUGIN = `export default {
  name: 'spinner',
  create () {
    return { onHead (exchange) {
      const ms = exchange.received.headers['x-spin']
      if (ms === undefined) return
      const end = performance.now() + Number(ms)
      while (!(performance.now() >= end)) { /* works */ }
    } }
  }
}
`

await t.test('a stall is a metric and a log line with its request and phase; an endless one is a line by the thread', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const pipeline = 'auth, { use: ./spinner.js }, chat-to-messages, channel-router, billing-meter, error-normalize'
  const folder = folderFor(t, { 'gateway.yaml': yaml([up.url], '', pipeline), 'spinner.js': PLUGIN })
  const gateway = run(t, folder, ['start', '--config', 'gateway.yaml'])
  const { api, admin } = await gateway.urls()
  const ask = async (spin: string): Promise<Response> => await fetch(`${api}/v1/messages`, { method: 'POST',
    headers: { 'x-api-key': KEY, 'content-type': 'application/json', 'x-spin': spin },
    body: JSON.stringify(messagesRequest) })
  const metric = async (): Promise<string> => await (await fetch(`${admin}/metrics`)).text()
  await until(async () => (await fetch(`${admin}/readyz`)).status === 200)
  t.match(await metric(), /^gateway_event_loop_stalls_total\{phase="plugin"\} 0$/m, 'begins at 0')

  // A thread that gets no processor sees no stall, so a loaded machine may need more than one.
  const line = await until(async () => {
    const id = (await ask('500')).headers.get('x-request-id')
    return gateway.log().find(({ request_id: of, phase }) => of === id && phase !== undefined)
  })
  t.match(line, { level: 'warn', phase: 'plugin', plugin: 'spinner', ms: Number })
  t.ok(Number(line.ms) >= 100)
  t.ok(Number(line.cpu_ms) > 0 && Number(line.cpu_ms) <= Number(line.ms) + 100, 'the part that was computed')
  t.match(await metric(), /^gateway_event_loop_stalls_total\{phase="plugin"\} [1-9]/m)
  t.match(await metric(), /^gateway_event_loop_stall_seconds_total\{phase="plugin"\} [0-9.]*[1-9]/m)

  ask('for ever').catch(() => {})
  const said = await until(() => /^\{.*the event loop is stopped.*\}$/m.exec(gateway.stderr())?.[0])
  t.match(JSON.parse(said), { level: 'error', phase: 'plugin', plugin: 'spinner', ms: Number,
    request_id: /^req_[0-9A-Za-z]{24}$/ })
  gateway.child.kill('SIGKILL')
})
