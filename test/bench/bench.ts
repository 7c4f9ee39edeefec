// `npm run bench`: how fast the gateway is beside nothing, beside bare http-proxy-3, and beside the least that a
// translating gateway on undici must do. Not a test: it prints tables and says which speed goals hold.
//
// To repeat: `npm ci && npm run bench` on a quiet machine with two cores (some 10 minutes; `npm run bench -- --quick`,
// under one). Contenders are processes pinned to core 0; the load generator and the simulated upstream are this
// process, on core 1. Each experiment takes turns: round by round every contender gets one burst, the order rotating;
// ratios are made within a round, and shown as their median with min and max.
//
//   --quick              3 short bursts, 500 open streams: to try, not to quote
//   --only a,b           these experiments: json, warm, budget, sse, sse-flat, latency, memory, bodies, delay, stalls,
//                        gaps, outage, fairness, neighbours, redis, cores, starts, pages
//   --contenders a,b     these contenders: direct, http-proxy-3, undici, gateway, embedded (the gateway with the
//                        embedded store), redis (with Redis), workers (two of those)
//   --dialect NAME       what the client speaks: chat (default) or responses, translated to messages, or messages
//   --json FILE          raw numbers, burst by burst
//   --page               writes what it prints between the marks of test/bench/README.md: of a whole run only, or of
//                        what depends on the dialect, if it is not chat
//   --profile FOLDER     V8 CPU profiles of all contenders (all, or the ratios would lie)
//   --strict             exit 1 if a goal is missed; else only if something broke
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { pinningProblem, pinOurselves, startForeignMeter } from './children.ts'
import { contenderNames, isGateway, isShared, launch, whatIsMissing, type ContenderName, type Instance,
  type LaunchOptions } from './contenders.ts'
import { experiments, type Bench, type Experiment, type Goal, type Results, type Sample } from './experiments.ts'
import { ask, sleep } from './load.ts'
import { dialects, publicModel, smallRequest, type DialectName } from './payloads.ts'
import { goalList, table, valuesOf, withFigures } from './report.ts'
import { startUpstream, type Upstream } from './upstream.ts'

const longestRunMs = 40 * 60_000
const page = new URL('README.md', import.meta.url)
/** Experiments in which the client's dialect counts. */
const translating = ['json', 'sse', 'sse-flat']

const { values: flags } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    strict: { type: 'boolean', default: false },
    only: { type: 'string' },
    contenders: { type: 'string' },
    dialect: { type: 'string', default: 'chat' },
    json: { type: 'string' },
    profile: { type: 'string' },
    page: { type: 'boolean', default: false }
  }
})

const said: string[] = []
/** To standard output, and to the page at the end. */
function say (text: string): void {
  said.push(text)
  console.log(text)
}

function choose<Name extends string> (
  wanted: string | undefined,
  known: readonly Name[],
  what: string
): readonly Name[] {
  if (wanted === undefined) return known
  return wanted.split(',').map((name) => {
    const found = known.find((one) => one === name)
    if (found === undefined) fail(`there is no ${what} "${name}"; there are: ${known.join(', ')}`)
    return found
  })
}

function fail (message: string): never {
  console.error(`bench: ${message}`)
  process.exit(2)
}

const broken: string[] = []
function breaks (who: string, error: unknown): void {
  broken.push(who)
  say(`**${who} broke**: ${error instanceof Error ? error.message : String(error)}\n`)
}

/** What a reader needs who was not there. */
async function explain (who: string, error: unknown, { child }: Instance): Promise<void> {
  breaks(who, error)
  if (child === undefined) return
  await sleep(500)    // its sockets are closed before we are told that it ended
  say(`${child.state()} The end of its log, without what went well:\n\n${child.logTail()}\n`)
}

/** One request before all others: a contender that answers nonsense must not be fast at it. */
async function tryOnce ({ dialect }: Bench, { name, port }: Instance): Promise<void> {
  const reply = JSON.parse(
    await ask(port, smallRequest(dialect, false))
  ) as { model?: unknown }
  const mustRename = name === 'undici' || isGateway(name)
  if (mustRename && reply.model !== publicModel) throw new Error(`answers for the model ${String(reply.model)}`)
}

async function run (
  experiment: Experiment,
  bench: Bench,
  running: Map<ContenderName, Instance>,
  options: LaunchOptions
): Promise<Results> {
  const results = new Map<ContenderName, Sample[]>()
  const names = [...running.keys()].filter((name) =>
    experiment.only?.includes(name) ?? !(isShared(name) || (experiment.skips ?? []).includes(name))
  )
  const out = new Set<ContenderName>()
  const ms = experiment.lasts(bench)

  async function turn (name: ContenderName): Promise<Sample> {
    const standing = running.get(name)
    const isFresh = experiment.isFresh === true || standing === undefined
    const instance = isFresh ? await launch(name, { ...options, isAsked: true }) : standing
    try {
      return await experiment.burst(bench, instance, ms)
    } catch (error) {
      await explain(`${name} in ${experiment.name}`, error, instance)
      throw error
    } finally {
      if (isFresh) await instance.child?.stop()
    }
  }

  const rounds = experiment.rounds(bench)
  // Round 0 warms up, and is not counted.
  for (let round = experiment.isFresh === true ? 1 : 0; round <= rounds; round++) {
    for (let place = 0; place < names.length; place++) {
      const name = names[(place + round) % names.length]
      if (name === undefined || out.has(name)) continue
      try {
        const sample = await turn(name)
        if (round > 0) results.set(name, [...results.get(name) ?? [], sample])
      } catch (error) {
        out.add(name)
        results.delete(name)
        if (!broken.includes(`${name} in ${experiment.name}`)) breaks(`${name} in ${experiment.name}`, error)
        if (running.get(name)?.child?.hasExited() === true) running.delete(name)
        // What was left open on the other side would be finished, and counted, in the next burst.
        bench.upstream.finishStreams()
      }
    }
  }
  return new Map(names.flatMap((name) => {
    const samples = results.get(name)
    return samples === undefined ? [] : [[name, samples] as const]
  }))
}

function descriptorsAllowed (): number {
  try {
    return Number(/Max open files +(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? 1024)
  } catch {
    return 1024
  }
}

async function compare (upstream: Upstream, targets: readonly Upstream[], folder: string): Promise<void> {
  if (!(flags.dialect in dialects)) {
    fail(`there is no dialect "${flags.dialect}"; there are: ${Object.keys(dialects).join(', ')}`)
  }
  if (
    flags.page &&
    (flags.quick || flags.only !== undefined || flags.contenders !== undefined || flags.profile !== undefined)
  ) {
    fail('--page wants a whole run: without --quick, --only, --contenders and --profile')
  }
  const only = flags.page && flags.dialect !== 'chat' ? translating.join() : flags.only
  const chosen = choose(only, experiments.map(({ name }) => name), 'experiment')
  const wanted = choose(flags.contenders, contenderNames, 'contender')
  const problem = pinningProblem()
  if (problem === undefined) pinOurselves()
  if (flags.profile !== undefined) mkdirSync(flags.profile, { recursive: true })

  // Each open stream costs the contender two descriptors, and us two.
  const streamsWanted = flags.quick ? 500 : 2000
  const bench: Bench = {
    upstream, targets, dialect: dialects[flags.dialect as DialectName], isQuick: flags.quick,
    openStreams: Math.min(streamsWanted, Math.floor((descriptorsAllowed() - 500) / 2))
  }
  const options: LaunchOptions = {
    upstreamPort: upstream.port,
    targetPorts: targets.map(({ port }) => port),
    folder,
    isPinned: problem === undefined,
    ...(flags.profile !== undefined && { profileFolder: resolve(flags.profile) })
  }

  say(
    `## Benchmark\n\nNode ${process.versions.node}, ${cpus().length} cores (${cpus()[0]?.model.trim() ?? 'unknown'}), dialect ${flags.dialect}${flags.quick ? ', quick: not to be quoted' : ''}\n`
  )
  if (problem !== undefined) say(`Not pinned to cores: ${problem}. The ratios are less steady than they should be.\n`)
  if (bench.openStreams < streamsWanted) {
    say(`Only ${bench.openStreams} open streams instead of ${streamsWanted}: raise \`ulimit -n\`.\n`)
  }
  if (flags.profile !== undefined) say('Profiling: absolute numbers are worse than without.\n')

  const running = new Map<ContenderName, Instance>()
  for (const name of wanted) {
    const missing = whatIsMissing(name)
    if (missing !== undefined) {
      say(`${name}: ${missing}\n`)
      continue
    }
    try {
      const instance = await launch(name, options)
      running.set(name, instance)
      await tryOnce(bench, instance)
    } catch (error) {
      breaks(name, error)
      const child = running.get(name)?.child
      running.delete(name)
      await child?.stop()    // which flushes its log
      if (child !== undefined) say(`The end of its log:\n\n${child.logTail()}\n`)
    }
  }

  const goals: Goal[] = []
  const raw: Record<string, Record<string, readonly Sample[]>> = {}
  for (const experiment of experiments) {
    if (!chosen.includes(experiment.name)) continue
    const foreign = startForeignMeter([...running.values()].flatMap(({ child }) => child ?? []))
    const results = await run(experiment, bench, running, options)
    say(table(experiment, results))
    const shares = experiment.isFresh === true ? [] : foreign()
    if (shares.some((share) => share > 0.1)) {
      say(
        `Not a quiet machine: others took ${shares.map((share, core) => `${(share * 100).toFixed(0)} % of core ${core}`).join(', ')}.\n`
      )
    }
    raw[experiment.name] = Object.fromEntries(results)
    if (!results.has('gateway')) continue
    // A goal against somebody who did not run is a NaN, and not met: no comparison, no claim.
    goals.push(...experiment.goals((name, key) => valuesOf(results, name, key), bench))
  }
  for (const { child } of running.values()) await child?.stop()
  say(goals.length > 0 ? goalList(goals) : '### Goals\n\nNone decided: the gateway did not run.\n')
  if (flags.json !== undefined) {
    writeFileSync(flags.json, JSON.stringify({
      at: new Date().toISOString(),
      node: process.versions.node,
      cpu: cpus()[0]?.model,
      cores: cpus().length,
      pinned: problem === undefined,
      quick: flags.quick,
      dialect: flags.dialect,
      open_streams: bench.openStreams,
      experiments: raw,
      goals,
      broken
    }, null, 2) + '\n')
  }
  if (flags.page && broken.length === 0) {
    writeFileSync(page, withFigures(readFileSync(page, 'utf8'), flags.dialect, said.join('\n'), new Date()))
  }
  if (broken.length > 0 || (flags.strict && goals.some(({ isMet }) => !isMet))) process.exitCode = 1
}

const folder = mkdtempSync(join(tmpdir(), 'gateway-bench-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
// process.exit runs the 'exit' listeners: the children's, and the folder's.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => process.exit(130))
setTimeout(() => fail(`not done within ${longestRunMs / 60_000} minutes`), longestRunMs).unref()

const [upstream, ...targets] = await Promise.all([startUpstream(), startUpstream(), startUpstream(), startUpstream()])
try {
  await compare(upstream, targets, folder)
} finally {
  for (const { close } of [upstream, ...targets]) close()
}
process.exit()
