// HAProxy, nginx and Caddy as config/deploy configures them, in front of two gateways that share a Redis. Without the
// server its tests are skipped.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { ask, errorOf, textOf } from '../support/billing-client.ts'
import { freePort } from '../support/free-port.ts'
import { KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { redisServer } from '../support/redis-server.ts'
import { folderFor, run, type Spawned } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { blockStart, messageEnd, messageStart, textBlock, textDelta, upstream, wait } from '../support/upstream.ts'
import { echo, socketUpstream } from '../support/websocket.ts'

interface Balancer {
  readonly file: string
  readonly version: string
  readonly args: (file: string, home: string) => readonly string[]
}

const BALANCERS: Readonly<Record<string, Balancer>> = {
  haproxy: { file: 'haproxy.cfg', version: '-v', args: (file) => ['-db', '-f', file] },
  nginx: { file: 'nginx.conf', version: '-v',
    args: (file, home) => ['-c', file, '-p', home, '-e', 'stderr', '-g', `daemon off; pid ${home}/nginx.pid;`] },
  caddy: { file: 'Caddyfile', version: 'version', args: (file) => ['run', '--adapter', 'caddyfile', '--config', file] }
}
const HOSTS = ['127.0.0.1', '127.0.0.2'] as const
const headers = { 'x-api-key': KEY }

/** @param ports of both gateways, each at a loopback address of its own */
async function balancer (
  t: Test, name: string, ports: { readonly api: number, readonly public: number, readonly admin: number }
): Promise<string | undefined> {
  const { file, version, args } = BALANCERS[name]!
  if (spawnSync(name, [version]).error !== undefined) {
    t.comment(`${name} is not installed (apt-get install ${name}): its configuration is not tested`)
    return undefined
  }
  const own = { api: await freePort(), public: await freePort() }
  const home = folderFor(t)
  const copy = join(home, file)
  const text = readFileSync(join(packageRoot, 'config/deploy', file), 'utf8')
    .replaceAll(/gateway-([12]):(\d+)/g, (_, number: string, port: string) =>
      `${HOSTS[Number(number) - 1]!}:${port === '8080' ? ports.api : ports.public}`)
    .replaceAll(/^( *(?:bind |listen )?):?8080\b/gm, `$1127.0.0.1:${own.api}`)
    .replaceAll(/^( *(?:bind |listen )?):?8081\b/gm, `$1127.0.0.1:${own.public}`)
    .replaceAll(/^127\.0\.0\.1(:\d+ \{)/gm, 'http://127.0.0.1$1')
    .replaceAll(/\b(port|health_port) 9090/g, `$1 ${ports.admin}`)
    // Names of Docker, and its name server.
    .replace(/^resolvers docker\n(?: .*\n)+/m, '').replaceAll(/ resolvers docker init-addr \S+/g, '')
  writeFileSync(copy, text)
  const child = spawn(name, args(copy, home), { cwd: home, stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, HOME: home } })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => { said += chunk })
  const ended = once(child, 'exit')
  t.teardown(async () => { child.kill('SIGTERM'); await ended })
  const url = `http://127.0.0.1:${own.api}`
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`${name} ended: ${said}`)
    return await fetch(`${url}/v1/models`, { headers }).then(({ status }) => status === 200, () => false)
  })
  return url
}

void t.test('each balancer: JSON, streams, large bodies, WebSockets, a drain, and a store that is down', async (t) => {
  const redis = await redisServer(t)
  const sockets = await socketUpstream(t, echo)
  let goOn = Promise.withResolvers<void>()
  const up = await upstream(t, ({ body }) => body?.['stream'] === true
    ? [messageStart(), blockStart(0), textDelta(0, 'first'), wait(goOn.promise), textDelta(0, ' second'), messageEnd()]
    : [messageStart(), textBlock(0, 'whole'), messageEnd()])
  const ports = { api: await freePort(), public: await freePort(), admin: await freePort() }
  const gateways: Spawned[] = []
  for (const host of HOSTS) {
    const text = yaml([up.url, sockets.url],
      'routes: [{ match: "GET /v1/realtime", forward: u1, websocket: true, price: free }]\n')
      .replace('{ upstream: u1, model: vendor-m1, priority: 1 }', '').replace(', ]', ']')
      .replace('api: { listen: "127.0.0.1:0"', `api: { listen: "${host}:${ports.api}"`)
      .replace('public: { listen: "127.0.0.1:0"', `public: { listen: "${host}:${ports.public}"`)
      .replace('admin: { listen: "127.0.0.1:0"', `admin: { listen: "${host}:${ports.admin}"`)
      .replace('drain_timeout: 5s', 'drain_timeout: 5s\n  drain_delay: 5s')
      .replace('driver: memory', `driver: redis, url: "${redis.url}"`)
    gateways.push(run(t, folderFor(t, { 'gateway.yaml': text }), ['start', '--config', 'gateway.yaml']))
  }
  await Promise.all(gateways.map(async (gateway) => {
    const { admin } = await gateway.urls()
    await until(async () => (await fetch(`${admin}/readyz`)).ok)
  }))
  const found: (readonly [string, string])[] = []
  for (const name of Object.keys(BALANCERS)) {
    const url = await balancer(t, name, ports)
    if (url !== undefined) found.push([name, url])
  }

  for (const [name, url] of found) {
    await t.test(name, async (t) => {
      goOn = Promise.withResolvers()
      const json = await ask(`${url}/v1/messages`, messagesRequest, { headers })
      t.equal(json.status, 200, `JSON: ${JSON.stringify(json.body)}`)
      const stream = await ask(`${url}/v1/messages`, { ...messagesRequest, stream: true }, { headers,
        // The upstream waits until the client has the first word: a balancer that gathers events stays here.
        onEvent: (count) => { if (count === 3) goOn.resolve() } })
      t.equal(textOf(stream.events), 'first second')
      const large = await ask(`${url}/v1/messages`, { ...messagesRequest,
        messages: [{ role: 'user', content: [{ type: 'text', text: 'look' }, { type: 'image', source: { type: 'base64',
          media_type: 'image/png', data: 'A'.repeat(20_000_000) } }] }] }, { headers })
      t.equal(large.status, 200, `20 MB: ${JSON.stringify(large.body).slice(0, 300)}`)
      const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/realtime`, { headers } as unknown as string[])
      await once(socket, 'open')
      socket.send('hello')
      t.equal(((await once(socket, 'message')) as [MessageEvent])[0].data, 'hello', 'WebSocket')
      socket.close()
    })
  }

  await t.test('a gateway that drains loses no request', async (t) => {
    let isOver = false
    const statuses = found.map(async ([name, url]) => {
      const others: unknown[] = []
      let count = 0
      do {
        const { status, body } = await ask(`${url}/v1/messages`, messagesRequest, { headers })
        if (status !== 200) others.push([name, status, body])
        count++
      } while (!isOver)
      t.ok(count > 1)
      return others
    })
    gateways[1]!.child.kill('SIGTERM')
    await gateways[1]!.ended
    isOver = true
    for (const others of statuses) t.strictSame(await others, [])
    for (const [name, url] of found) {
      t.equal((await ask(`${url}/v1/messages`, messagesRequest, { headers })).status, 200, `${name}, by the other one`)
    }
  })

  await t.test('a store that is down, and then no gateway at all: errors in JSON', async (t) => {
    await redis.kill()
    await until(async () => (await fetch(`http://${HOSTS[0]}:${ports.admin}/readyz`)).status === 503)
    for (const [name, url] of found) {
      // What the gateway itself answers, and not what the balancer says of gateways that are all away.
      const got = await ask(`${url}/v1/messages`, messagesRequest, { headers })
      t.equal(got.status, 503, name)
      t.match(errorOf(got)?.message, 'balance', name)
      t.match(got.headers, { 'x-request-id': /^req_/, 'content-type': /^application\/json/ }, name)
    }
    gateways[0]!.child.kill('SIGKILL')
    await gateways[0]!.ended
    for (const [name, url] of found) {
      const got = await ask(`${url}/v1/messages`, messagesRequest, { headers })
      t.equal(got.status, 503, name)
      t.equal(errorOf(got)?.code, 'service_unavailable', name)
      t.match(got.headers, { 'content-type': /^application\/json/, 'retry-after': '2' }, name)
    }
  })
})
