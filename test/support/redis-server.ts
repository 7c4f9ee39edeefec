// Real Redis servers for tests: one, a master with Sentinels, or a cluster. Each has a port and a folder of its own,
// and ends with the test; if the test process itself is killed, they go with it.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { freePort } from './free-port.ts'

/** What a test has, and whoever else ends what he starts. */
type Teardown = Pick<Test, 'teardown'>

export interface RedisServer {
  readonly port: number
  /** redis://127.0.0.1:PORT */
  readonly url: string
  /** its data; stays over a restart */
  readonly folder: string
  /** of the process that runs now, or ran last */
  readonly pid: number
  /**
   * The answer to one command, as redis-cli prints it.
   * @throws {Error} no answer within ten seconds (paused, dead), or an error reply: with its text
   */
  ask (...command: readonly string[]): Promise<string>
  /** SIGKILL. Resolves when it is gone. */
  kill (): Promise<void>
  /** SIGSTOP: connections stay open, and nothing answers. */
  pause (): void
  resume (): void
  /** Killed if it runs, and started again on the same port and folder. Resolves when it answers. */
  restart (): Promise<void>
}

export interface RedisOptions {
  /** false: a restart begins empty, and is another server (its replication id changes) */
  readonly appendonly?: boolean
  /** lines of redis.conf, such as { 'maxmemory-policy': 'allkeys-lru' } */
  readonly settings?: Readonly<Record<string, string | number>>
}

export interface RedisSentinel {
  /** what the Sentinels call it */
  readonly name: string
  readonly sentinels: readonly RedisServer[]
  /** the first begins as master, the others as its replicas */
  readonly servers: readonly RedisServer[]
  /** whom the Sentinels call the master now */
  master (): Promise<RedisServer>
}

export interface RedisCluster {
  readonly nodes: readonly RedisServer[]
}

/** A single server, by default with an append-only file. */
export async function redisServer (
  t: Teardown,
  { appendonly = true, settings = {} }: RedisOptions = {}
): Promise<RedisServer> {
  return await start(t, (port) => ({ port, appendonly: appendonly ? 'yes' : 'no', ...settings }))
}

/**
 * One master, two replicas, three Sentinels, a quorum of two.
 * @param downAfter milliseconds without an answer after which a Sentinel thinks that a server is down; long where no
 * failover is wanted, because a loaded machine may pause anybody for a second
 */
export async function redisSentinel (
  t: Test,
  { downAfter = 1000, ...options }: RedisOptions & { readonly downAfter?: number } = {}
): Promise<RedisSentinel> {
  const name = 'main'
  const first = await redisServer(t, options)
  const settings = { ...options.settings, replicaof: `127.0.0.1 ${first.port}` }
  const servers = [first, ...await Promise.all([1, 2].map(async () => await redisServer(t, { ...options, settings })))]
  await untilServers(async () => (await first.ask('INFO', 'replication')).match(/state=online/g)?.length === 2)
  const sentinels = await Promise.all([1, 2, 3].map(async () => await start(t, (port) => ({
    port,
    'sentinel monitor': `${name} 127.0.0.1 ${first.port} 2`,
    'sentinel down-after-milliseconds': `${name} ${downAfter}`,
    'sentinel failover-timeout': `${name} 2000`           // an election that nobody won is repeated after twice that
  }), '--sentinel')))
  // As shipped, Sentinels need seconds to hear of each other and of a new master, and after a pause of two seconds they
  // decide nothing for thirty ("tilt").
  for (const sentinel of sentinels) {
    await sentinel.ask('SENTINEL', 'DEBUG', 'INFO-PERIOD', '500', 'PING-PERIOD', '100', 'PUBLISH-PERIOD', '100',
      'TILT-TRIGGER', '60000')
  }
  await untilServers(async () => {
    const known = await Promise.all(sentinels.map(async (sentinel) => await sentinel.ask('INFO', 'sentinel')))
    return known.every((text) => text.includes('status=ok') && text.includes('slaves=2,sentinels=3'))
  })
  return {
    name, sentinels, servers,
    async master () {
      const answers = await Promise.all(
        sentinels.map(async (sentinel) =>
          (await sentinel.ask('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name).catch(() => '')).split('\n')[1]
        )
      )
      const port = Number(answers.find((answer) => answer !== undefined))
      return servers.find((server) => server.port === port)!
    }
  }
}

/** A cluster without replicas; every key is served. */
export async function redisCluster (
  t: Test,
  masters = 3,
  { settings, ...options }: RedisOptions = {}
): Promise<RedisCluster> {
  const nodes = await Promise.all(
    Array.from({ length: masters },
      async () =>
        await redisServer(t, { ...options,
          settings: { 'cluster-enabled': 'yes', 'cluster-port': await freePort(), 'cluster-node-timeout': 5000,
            ...settings } }))
  )
  const slots = 16384
  for (const [i, node] of nodes.entries()) {
    await node.ask('CLUSTER', 'ADDSLOTSRANGE', `${Math.floor(i * slots / masters)}`,
      `${Math.floor((i + 1) * slots / masters) - 1}`)
    await node.ask('CLUSTER', 'SET-CONFIG-EPOCH', `${i + 1}`) // the same one everywhere would have to be resolved first
  }
  for (const node of nodes) {
    const bus = await node.ask('CONFIG', 'GET', 'cluster-port')
    await nodes[0]!.ask('CLUSTER', 'MEET', '127.0.0.1', `${node.port}`, bus.split('\n')[1]!)
  }
  await untilServers(async () =>
    (await Promise.all(nodes.map(async (node) => await node.ask('CLUSTER', 'INFO')))).every((text) =>
      text.includes('cluster_state:ok') && text.includes(`cluster_known_nodes:${masters}`)
    )
  )
  return { nodes }
}

/** Waits for what servers agree on among themselves. Not more often: each question is a process of redis-cli. */
export async function untilServers (agree: () => Promise<boolean>): Promise<void> {
  while (!await agree()) await pause(30)
}

interface Run {
  readonly pid: number
  readonly kill: (signal: NodeJS.Signals) => void
  readonly gone: Promise<unknown>
  isOver: boolean
}

/** @throws {Error} it does not start: with what it said */
async function start (
  t: Teardown,
  settings: (port: number) => Readonly<Record<string, string | number>>,
  ...args: readonly string[]
): Promise<RedisServer> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'gateway-redis-')))
  const file = join(folder, 'redis.conf')
  let port = 0
  let run: Run | undefined
  const kill = async (): Promise<void> => {
    run?.kill('SIGKILL')
    await run?.gone
  }
  t.teardown(async () => {
    await kill()
    rmSync(folder, { recursive: true, force: true })
  })
  // Between finding a port and listening on it somebody else may take it.
  for (let tries = 1; run === undefined; tries++) {
    port = await freePort()
    const lines = Object.entries({ bind: '127.0.0.1', dir: folder, ...args.length === 0 && defaults,
      ...settings(port) })
    writeFileSync(file, lines.map(([name, value]) => `${name} ${value === '' ? '""' : value}\n`).join(''))
    run = await launch(file, args).catch((thrown: Error) => {
      if (tries === 20 || !isBindFailure(thrown)) throw thrown
      return undefined
    })
  }
  return {
    port, folder, kill,
    url: `redis://127.0.0.1:${port}`,
    get pid () { return run!.pid },
    ask: async (...command) => await ask(port, command),
    pause () { run!.kill('SIGSTOP') },
    resume () { run!.kill('SIGCONT') },
    async restart () {
      await kill()
      await untilServers(async () => {
        run = await launch(file, args).catch((thrown: Error) => {
          if (!isBindFailure(thrown)) throw thrown
          return run
        })
        return !run!.isOver
      })
    }
  }
}

const defaults = {
  save: '',
  appendfsync: 'everysec',
  'maxmemory-policy': 'noeviction',
  'repl-diskless-sync-delay': 0,
  'enable-debug-command': 'local'
}

/** Until it answers. */
async function launch (file: string, args: readonly string[]): Promise<Run> {
  // The shell becomes the server, so the pid is the server's. A child of it waits for the end of file descriptor 3,
  // which is there when this process is gone, and kills the server.
  const script = '(cat <&3; kill -KILL $$) > /dev/null 2>&1 & exec redis-server "$@" 3<&-'
  const child = spawn('sh', ['-c', script, 'sh', file, ...args], { stdio: ['ignore', 'pipe', 'pipe', 'pipe'] })
  const run: Run = {
    pid: child.pid!,
    gone: once(child, 'exit'),
    isOver: false,
    kill: (signal) => { if (!run.isOver) child.kill(signal) }
  }
  void run.gone.then(() => {
    run.isOver = true
    child.stdio[3]!.destroy()
  })
  let said = ''
  await new Promise<void>((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream!.setEncoding('utf8').on('data', (text: string) => {
        said = (said + text).slice(-10_000)
        if (/Ready to accept connections|Sentinel ID is/.test(said)) resolve()
      })
    }
    // `close`, not `exit`: all that it said has arrived.
    child.once('error', reject).once('close', () => {
      reject(new Error(`redis-server ended (is it installed?): ${said}`))
    })
  })
  return run
}

function isBindFailure ({ message }: Error): boolean {
  return /Address already in use|Failed listening|Could not create server TCP/.test(message)
}

async function ask (port: number, command: readonly string[]): Promise<string> {
  return await new Promise((resolve, reject) => {
    execFile('redis-cli', ['-e', '-p', `${port}`, ...command], { timeout: 10_000, killSignal: 'SIGKILL' },
      (error, answer, complaint) => {
        if (error === null) resolve(answer.trim())
        else reject(new Error(`${command.join(' ')}: ${complaint.trim() || answer.trim() || error.message}`))
      })
  })
}
