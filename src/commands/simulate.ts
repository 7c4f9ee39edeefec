// `gateway simulate`: the simulator by itself, with injected faults.
import { parseArgs } from 'node:util'
import { print } from './stdout.ts'
import { directiveTable, UnknownDirective } from '../simulator/faults.ts'
import { habitTable } from '../simulator/habits.ts'
import { vendorTable } from '../simulator/vendors.ts'
import { startSimulator, type Simulator, type SimulatorOptions } from '../simulator/simulator.ts'
import type { RequestRecord } from '../simulator/request-log.ts'

export interface CommandLine {
  /** a line for the user. @throws {Error} the reader has gone */
  print (line: string): void | Promise<void>
  /** a line about an error */
  complain (line: string): void
  /** ends the command */
  readonly signal: AbortSignal
}

/** Most lines that wait to be read; further ones are dropped. */
const MOST_WAITING = 1000

const flags = {
  listen: { type: 'string', default: '127.0.0.1:8090' },
  delay: { type: 'string', default: '200' },
  'token-delay': { type: 'string', default: '20' },
  'error-rate': { type: 'string', default: '0' },
  'error-status': { type: 'string', default: '429,500,503,529' },
  'cut-after': { type: 'string' },
  fault: { type: 'string', multiple: true },
  'fault-rate': { type: 'string', default: '1' },
  flap: { type: 'string' },
  key: { type: 'string' },
  seed: { type: 'string', default: '1' },
  'image-links': { type: 'boolean', default: false },
  quiet: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false }
} as const

function helpText (): string {
  return `Usage: gateway simulate [flags]

A model vendor that is not one: POST /v1/messages and /v1/messages/count_tokens, /v1/chat/completions and
/v1/responses (JSON and streams), images (POST /v1/images/generations and /v1/images/edits), video tasks (/v1/videos), POST /v1/embeddings, and /v1/echo, which says
what arrived. It charges nothing. Tokens are words, long words cut into pieces of 8 characters.

  --listen HOST:PORT    where it listens (127.0.0.1:8090; port 0: a free one)
  --delay MS            before the first word (200)
  --token-delay MS      before each token (20)
  --error-rate RATE     part of the requests that get an error status, 0 to 1 (0)
  --error-status LIST   the statuses to choose from (429,500,503,529)
  --cut-after N         closes every stream after N events; short for --fault cut_after=N
  --fault DIRECTIVES    what every request suffers: directives of the table below, as in "status=429 retry_after=3":
                        of several --fault each request gets one
  --fault-rate RATE     part of the requests that suffer --cut-after and --fault, 0 to 1 (1)
  --flap MS             so long all is well, then for as long not, in turn: as --fault and --error-rate say, or else
                        connections are closed
  --key KEY             the only key that is let in (any)
  --seed N              repeats what is left to chance (1)
  --image-links         images come as links to this simulator (as base64)
  --quiet               no line per request
  --help                this text

One request is made to fail by its prompt, "[[sim: cut_after=5 crlf]] tell me a story", by its model, sim-cut-after-5
(sim-error-529 for a status), or by the query of its URL, ?sim=cut. The directives:

${directiveTable()}

The habits of real vendors, one of which "habit=NAME" selects:

${habitTable()}

The vendors, as strict as one of which "vendor=NAME" makes it ("--fault vendor=NAME" for all requests):

${vendorTable()}`
}

/**
 * Runs until the signal.
 * @returns the exit code
 * @throws {Error} the reader of its lines has gone
 */
export async function simulate (args: readonly string[], commandLine: CommandLine = ofProcess()): Promise<number> {
  const { print, complain, signal } = commandLine
  let simulator: Simulator
  let isQuiet: boolean
  try {
    const { values } = parseArgs({ args: [...args], options: flags, strict: true, allowPositionals: false })
    if (values.help) {
      await print(helpText())
      return 0
    }
    isQuiet = values.quiet
    simulator = await startSimulator(toOptions(values))
  } catch (error) {
    complain(`simulate: ${explain(error)}\nTry: gateway simulate --help`)
    return 2
  }

  const { promise: stopped, resolve: stop, reject: fail } = Promise.withResolvers<void>()
  let waiting = 0
  const printLine = async (record: RequestRecord): Promise<void> => {
    if (waiting === MOST_WAITING) return
    waiting++
    await print(lineOf(record))
    waiting--
  }
  if (!isQuiet) simulator.events.on('end', (record) => { printLine(record).catch(fail) })
  if (signal.aborted) stop()
  else signal.addEventListener('abort', () => { stop() }, { once: true })
  try {
    await Promise.all([print(welcome(simulator.url)), stopped])
  } finally {
    await simulator.close()
  }
  return 0
}

function welcome (url: string): string {
  return `The simulator answers at ${url}. As an upstream in gateway.yaml:

${upstreamYaml(url)}
Stop it with Ctrl-C.
`
}

/** An upstream for gateway.yaml, ready to paste. */
export function upstreamYaml (url: string, key = 'simulated'): string {
  return `upstreams:
  simulator:
    url: ${url}
    dialect: messages
    headers: { x-api-key: ${key}, anthropic-version: "2023-06-01" }
`
}

function toOptions (values: ReturnType<typeof parseArgs<{ options: typeof flags }>>['values']): SimulatorOptions {
  const listen = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(values.listen)
  if (listen === null || Number(listen[3]) > 65_535) {
    throw new BadFlag('--listen needs a host and a port, as in 127.0.0.1:8090')
  }
  const cutAfter = values['cut-after'] === undefined
    ? ''
    : ` cut_after=${wholeNumber('cut-after', values['cut-after'])}`
  return {
    host: listen[1] ?? listen[2] ?? '127.0.0.1',
    port: Number(listen[3]),
    firstDelayMs: wholeNumber('delay', values.delay),
    tokenDelayMs: wholeNumber('token-delay', values['token-delay']),
    errorRate: rate('error-rate', values['error-rate']),
    errorStatuses: values['error-status'].split(',').map((status) => wholeNumber('error-status', status, 400, 599)),
    ...((values.fault !== undefined || cutAfter !== '') &&
      { faults: (values.fault ?? ['']).map((fault) => fault + cutAfter) }),
    faultRate: rate('fault-rate', values['fault-rate']),
    ...(values.flap !== undefined && { flapMs: wholeNumber('flap', values.flap, 1) }),
    seed: wholeNumber('seed', values.seed),
    imageLinks: values['image-links'],
    ...(values.key === undefined ? {} : { key: values.key }),
    // It runs for days, and its request log is not read.
    keepRequests: 0
  }
}

class BadFlag extends Error {}

function wholeNumber (flag: string, value: string, least = 0, most = 999_999_999): number {
  const number = Number(value.trim())
  if (!/^\d+$/.test(value.trim()) || number < least || number > most) {
    throw new BadFlag(`--${flag} needs whole numbers from ${least} to ${most}, not "${value}"`)
  }
  return number
}

function rate (flag: string, value: string): number {
  const number = Number(value)
  if (value.trim() === '' || !(number >= 0 && number <= 1)) {
    throw new BadFlag(`--${flag} needs a number from 0 to 1, not "${value}"`)
  }
  return number
}

function explain (error: unknown): string {
  if (error instanceof BadFlag || error instanceof UnknownDirective) return error.message
  const { code, message } = error as NodeJS.ErrnoException
  if (code === 'EADDRINUSE') return 'somebody listens at that address already; choose another port with --listen'
  return message
}

function lineOf (
  { method, path, status, model, stream, events_sent: events, ended, faults, failure }: RequestRecord
): string {
  const suffered = Object.entries(faults).map(([name, value]) => value === true ? name : `${name}=${value}`)
  return [method, path, model, status === 0 ? 'no answer' : status, stream ? `${events} events` : undefined, ended,
    ...suffered, failure === undefined ? undefined : String(failure)]
    .filter((part) => part !== undefined).join(' ')
}

function ofProcess (): CommandLine {
  const stop = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.once(name, () => {
      stop.abort()
    })
  }
  return { print: async (line) => {
    await print(line + '\n')
  }, complain: (line) => {
    console.error(line)
  }, signal: stop.signal }
}
