// The Redis servers that tests start: they are what they say, and they go with the test.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { untapped } from '../support/newcomer.ts'
import { redisCluster, redisSentinel, redisServer, untilServers } from '../support/redis-server.ts'
import { until } from '../support/until.ts'

/** kill(pid, 0) finds zombies too, but none of ours: a child that ended was waited for. */
function isAlive (pid: number): boolean {
  try { return process.kill(pid, 0) } catch { return false }
}

/** Of a process that is nobody's child: where nobody asks what became of it, it is there for ever, by its number. */
async function listens (port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

void t.test('a single one keeps what it was told over a kill, answers again after a pause, and goes with its test', async (t) => {
  const ended: { pid: number, folder: string }[] = []
  await t.test('while it runs', async (t) => {
    const kept = await redisServer(t, { settings: { appendfsync: 'always' } })
    const forgetful = await redisServer(t, { appendonly: false })
    for (const server of [kept, forgetful]) {
      t.match(await server.ask('INFO', 'server'), `process_id:${server.pid}`)
      t.equal(await server.ask('SET', 'a', '1'), 'OK')
    }
    const [before, other] = await Promise.all(
      [kept, forgetful].map(async (server) => await server.ask('INFO', 'replication'))
    )
    await kept.kill()
    await t.rejects(kept.ask('PING'), /Connection refused/)
    await Promise.all([kept.restart(), forgetful.restart()])
    t.equal(await kept.ask('GET', 'a'), '1')
    t.equal(await forgetful.ask('GET', 'a'), '')
    t.not(replicationId(await forgetful.ask('INFO', 'replication')), replicationId(other!))
    t.match(before, 'role:master')
    await t.rejects(kept.ask('NONSENSE'), /unknown command/)
    kept.pause()
    const answer = kept.ask('GET', 'a')
    kept.resume()
    t.equal(await answer, '1')
    kept.pause()
    ended.push(kept, forgetful)
  })
  for (const { pid, folder } of ended) {
    t.notOk(isAlive(pid))
    t.notOk(existsSync(folder))
  }
})

function replicationId (info: string): string | undefined {
  return /master_replid:(\w+)/.exec(info)?.[1]
}

void t.test('Sentinels make a replica the master when it dies, and the old one follows when it is back', async (t) => {
  const sentinel = await redisSentinel(t)
  const [first] = sentinel.servers
  t.equal(await sentinel.master(), first)
  await first!.ask('SET', 'a', '1')
  // Not WAIT, which is about the writes of its own connection: each question here has one.
  await untilServers(async () =>
    (await Promise.all(sentinel.servers.map(async (server) => await server.ask('GET', 'a')))).every((a) => a === '1')
  )
  await first!.kill()
  await untilServers(async () => await sentinel.master() !== first)
  const next = await sentinel.master()
  await untilServers(async () => (await next.ask('ROLE')).startsWith('master'))
  t.equal(await next.ask('GET', 'a'), '1')
  await first!.restart()
  await untilServers(async () => (await first!.ask('ROLE')).startsWith('slave'))
})

void t.test('a cluster of three serves all keys, and refuses those of others', async (t) => {
  const { nodes } = await redisCluster(t)
  t.equal(nodes.length, 3)
  const answers = await Promise.all(
    nodes.map(async (node) => await node.ask('SET', 'a', '1').catch((thrown: Error) => thrown.message))
  )
  t.strictSame(answers.map((answer) => /OK|MOVED/.exec(answer)?.[0]).toSorted(), ['MOVED', 'MOVED', 'OK'])
  await nodes[0]!.restart()
  await untilServers(async () => (await nodes[0]!.ask('CLUSTER', 'INFO')).includes('cluster_state:ok'))
})

void t.test('they go with a test that is killed', async (t) => {
  const program = `import { redisServer } from ${JSON.stringify(fileURLToPath(new URL('../support/redis-server.ts', import.meta.url)))}
    const server = await redisServer({ teardown () {} })
    console.log(server.port)
    setInterval(() => {}, 1000)`
  const [command, args] = untapped(process.execPath, ['--input-type=module', '-e', program])
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => child.kill('SIGKILL'))
  const [said] = await once(child.stdout, 'data') as [Buffer]
  const port = Number(said.toString('latin1'))
  t.ok(await listens(port))
  child.kill('SIGKILL')
  await until(async () => !await listens(port))
})
