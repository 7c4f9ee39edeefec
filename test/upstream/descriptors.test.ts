// F5: a machine without descriptors, ports or memory for new connections.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { devNull } from 'node:os'
import t from 'tap'
import { FEW_DESCRIPTORS, isOutOfResources, lacksResources, mostDescriptors } from '../../src/base/descriptors.ts'
import { failureOf, NotConnected } from '../../src/upstream/transport/connect.ts'
import { gateway, KEY, messagesRequest } from '../support/gateway.ts'
import { caller } from '../support/raw-upstream.ts'
import { reaching } from '../support/transport.ts'
import { json, message, upstream } from '../support/upstream.ts'
import { until } from '../support/until.ts'

const FEW = 400

/** All descriptors that are left. */
function exhaust (): number[] {
  const open: number[] = []
  try {
    for (;;) open.push(openSync(devNull, 'r'))
  } catch {
    return open
  }
}

interface Said { readonly status: number, readonly text: string }

/** On a connection that is open already, if there is one. */
async function send (agent: Agent, url: string, body?: object): Promise<Said> {
  const sent = request(url, { agent, method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': KEY, 'content-type': 'application/json' } })
  sent.end(body === undefined ? undefined : JSON.stringify(body))
  const [response] = await once(sent, 'response') as [IncomingMessage]
  const chunks: Buffer[] = []
  for await (const chunk of response) chunks.push(chunk as Buffer)
  return { status: response.statusCode!, text: Buffer.concat(chunks).toString() }
}

t.test('F5: such errors are told from those of the upstream', async (t) => {
  for (const code of ['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS', 'EADDRNOTAVAIL']) {
    const error = Object.assign(new Error('no'), { code })
    t.ok(lacksResources(error))
    t.equal(failureOf(new NotConnected(error)).kind, 'exhausted')
    for (const fastLane of [true, false]) {
      const { ask } = caller(t, 9, fastLane, { host: 'vendor.test',
        lookup: (_name, _options, callback) => { callback(error, '') } })
      t.equal((await ask()).end, `exhausted ${code}`)
    }
  }
  t.equal(failureOf(new NotConnected(Object.assign(new Error('no'), { code: 'ECONNREFUSED' }))).kind, 'refused')
  t.notOk(lacksResources(Object.assign(new Error('no'), { code: 'ENOTFOUND', syscall: 'getaddrinfo' })))
  t.ok(isOutOfResources(), 'for some seconds')
})

if (mostDescriptors() === FEW) {
  t.test('F5: 503, no upstream is blamed, not ready, a metric, a warning; and all is well behind it', async (t) => {
    const up = await upstream(t, json(message('hi'), 200, { connection: 'close' }))
    for (const fastLane of ['on', 'off']) {
      const gw = await gateway(t, reaching(up.url, 'trace: false')
        .replace(/breaker: \{ failures: \d+/, 'breaker: { failures: 2')
        .replace('server:', `server:\n  fast_lane: "${fastLane}"`))
      t.ok(gw.logged.some(({ limit, enough }) => limit === FEW && enough === FEW_DESCRIPTORS), 'a warning')
      const agents = { api: new Agent({ keepAlive: true, maxSockets: 1 }),
        admin: new Agent({ keepAlive: true, maxSockets: 1 }) }
      t.teardown(() => { agents.api.destroy(); agents.admin.destroy() })
      const path = { messages: `${gw.url}/v1/messages`, file: `${gw.url}/v1/files/a`, ready: `${gw.urls.admin}/readyz` }
      t.equal((await send(agents.api, path.messages, messagesRequest)).status, 200)
      await until(async () => (await send(agents.admin, path.ready)).status === 200)
      const taken = exhaust()
      const answers: Said[] = []
      for (let i = 0; i < 4; i++) answers.push(await send(agents.api, path.messages, messagesRequest))
      const forwarded = await send(agents.api, path.file)
      const ready = await send(agents.admin, path.ready)
      for (const one of taken) closeSync(one)
      for (const { status, text } of [...answers, forwarded]) t.match([status, text], [503, /service_unavailable/])
      t.match(ready, { status: 503, text: /"out_of_resources"/ })
      t.equal((await send(agents.api, path.messages, messagesRequest)).status, 200, 'no breaker is open')
      t.strictSame(gw.services.upstreams.health.targets(gw.live.current()).map(({ breaker }) => breaker)
        .filter((breaker) => breaker !== 'closed'), [])
      t.match((await send(agents.admin, `${gw.urls.admin}/metrics`)).text, /^gateway_out_of_resources 1$/m)
      await until(async () => (await send(agents.admin, path.ready)).status === 200)
    }
  })
} else if (process.platform === 'linux') {
  t.test('F5: with few descriptors', async (t) => {
    const child = spawn('sh', ['-c', `ulimit -n ${FEW} && exec "$0" "$@"`, process.execPath, import.meta.filename],
      { stdio: ['ignore', 'pipe', 'inherit'] })
    child.stdout.setEncoding('utf8')
    let said = ''
    child.stdout.on('data', (text: string) => { said += text })
    t.strictSame(await once(child, 'close'), [0, null], said)
  })
}
