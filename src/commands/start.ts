// `gateway start`: serves until a signal, then drains.
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { version } from '../base/package.ts'
import { Seat } from '../cluster/worker.ts'
import { ConfigError } from '../config/problem.ts'
import { startGateway, type Gateway } from '../gateway/gateway.ts'
import { Ending } from '../gateway/shutdown.ts'
import { createLogger } from '../telemetry/log.ts'
import { StandardOutput } from '../telemetry/log-output.ts'
import { resetCredentials, viewOf } from '../upstream/limits/status.ts'
import type { CommandParts } from './command.ts'
import { complain, complained, print } from './stdout.ts'

const HELP = `Usage: gateway start [--config FILE]

  --config, -c  the configuration; default: gateway.yaml in this folder, or the shipped one

Serves until SIGTERM or SIGINT, then drains. A change of a file is live within a second; SIGHUP reads all again.
Exit code 78: the configuration can't be used, so a restart does not help. 1: another failure.
`

/** EX_CONFIG of sysexits.h: the systemd unit does not restart after it. */
const BAD_CONFIG = 78

/** @returns the exit code */
export async function startCommand (
  args: readonly string[],
  { locate, plugins, pluginsUrl }: CommandParts
): Promise<number> {
  const { values } = parseArgs({ args: [...args],
    options: { config: { type: 'string', short: 'c' }, help: { type: 'boolean', short: 'h', default: false } } })
  if (values.help) {
    await print(HELP)
    return 0
  }
  const { file, base } = locate(values.config)
  const seat = Seat.take()
  const output = new StandardOutput()
  const log = createLogger('info', output, seat === undefined ? null : { worker: seat.number })
  const ending = new Ending(log, output, { isWorker: seat !== undefined })
  let gateway: Gateway | undefined
  ending.hearSignals()
  process.on('SIGHUP', () => { gateway?.reload() })
  try {
    gateway = await ending.of(startGateway({ file, base, plugins, pluginsUrl, log, output, seat,
      warmsUp: true, watchesStalls: true }))
  } catch (error) {
    const { message } = error as Error
    // The primary reports a worker's failure, or starts it again.
    if (seat !== undefined) { await seat.failed(message).catch(() => {}) }
    else {
      complain(error instanceof ConfigError
        ? `The configuration can't be used:\n${message}`
        : `The gateway did not start: ${message}`)
    }
    await complained()
    return error instanceof ConfigError ? BAD_CONFIG : 1
  }
  if (gateway !== undefined) await attend(gateway, ending, file, seat)
  return await ending.wait()
}

async function attend (gateway: Gateway, ending: Ending, file: string, seat: Seat | undefined): Promise<void> {
  // Last: a reader of these lines may send a signal at once.
  if (seat === undefined) {
    announce(gateway)
    greet(gateway, file)
  } else await seat.listens(gateway.urls, {
    async state () {
      const { generation, hash, loaded_at, last_reload, problems } = gateway.live.state()
      return { generation, hash, loaded_at, last_reload, problems, reasons: await gateway.reasons() }
    },
    metrics: async () => await gateway.services.metrics.print(),
    upstreams: () => viewOf(gateway.services.upstreams, gateway.live.current()),
    reset: (what) => { resetCredentials(gateway.services.upstreams, gateway.live.current(), what) },
    lately: () => gateway.services.metrics.lately(),
    reload: () => { gateway.reload() },
    drain: (isUrgent) => { ending.drain(isUrgent) }
  })
}

/** Reports to the supervisor that the gateway listens: to systemd, and to the health check of the image. */
function announce ({ urls }: Gateway): void {
  const { NOTIFY_SOCKET: socket, GATEWAY_ADDRESS_FILE: addressFile } = process.env
  try {
    if (addressFile !== undefined) writeFileSync(addressFile, `${urls.admin}\n`)
  } catch (error) {
    console.error(`The admin address is not in GATEWAY_ADDRESS_FILE: ${(error as Error).message}`)
  }
  // Node has no datagram sockets of Unix.
  if (socket === undefined) return
  spawn('systemd-notify', ['--ready'], { stdio: ['ignore', 'ignore', 'inherit'] }).on('error', ({ message }) => {
    console.error(`systemd-notify failed: ${message}`)
  })
}

/**
 * Prints the addresses and a first request, for a person at a terminal. Goes to standard error, because the log goes to
 * standard output.
 */
function greet (gateway: Gateway, file: string): void {
  const { urls } = gateway
  const key = gateway.demoKey()
  const lines = [
    `model-gateway ${version} on ${path.relative(process.cwd(), file)}, pid ${process.pid}`,
    `  API      ${urls.api}/v1`,
    `  public   ${urls.public}   (/api/public/models-info, /api/public/media-info)`,
    `  admin    ${urls.admin}   (/ui/, /metrics, /healthz, /readyz, /admin/v1)`
  ]
  if (gateway.adminTokenFile !== undefined) {
    lines.push(`  admin token in ${path.relative(process.cwd(), gateway.adminTokenFile)}`)
  }
  const off = gateway.demoOff()
  if (off !== undefined) lines.push(`  the demo key is off, because ${off}`)
  if (key !== undefined) {
    const model = gateway.live.current().config.models[0]?.id ?? 'MODEL'
    lines.push('', 'Try it (the demo key works only while every upstream is the built-in simulator):', '',
      `curl -N ${urls.api}/v1/messages -H 'x-api-key: ${key}' -H 'content-type: application/json' \\`,
      `  -d '{"model":"${model}","max_tokens":200,"stream":true,"messages":[{"role":"user","content":"Hello!"}]}'`, '')
  }
  complain(lines.join('\n'))
}
