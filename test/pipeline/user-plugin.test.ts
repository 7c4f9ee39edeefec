// A plugin of the user's own in the running gateway: what it can do, how an edit of it goes live, and that nothing it
// does wrong reaches anybody but the request that it was called for.
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import path from 'node:path'
import t, { type Test } from 'tap'
import { formatProblem } from '../../src/config/problem.ts'
import { gateway as start, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, messageEnd, messageStart, blockStart, blockStop, textDelta, upstream, wait,
  type Upstream } from '../support/upstream.ts'

/** Loads as the product does: in a thread. */
const gateway: typeof start = async (t, text, options) => await start(t, text, { ...options, load: 'thread' })

const EXAMPLE = readFileSync(new URL('../fixtures/block-words.ts', import.meta.url), 'utf8')

/** The shipped pipeline with an item between auth and channel-router. */
function withPlugin (urls: readonly string[], item: string, more = ''): string {
  return yaml(urls, more).replace('pipeline: [auth,', `pipeline: [auth, ${item},`)
}

/** Writes files of the configuration's folder; what the reload found wrong, without the folder. */
async function edit (running: TestGateway, files: Readonly<Record<string, string>>): Promise<string[]> {
  const folder = path.dirname(running.file)
  const reloaded = running.live.reloaded()
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, name), text)
  const { problems } = await reloaded
  return problems.map((problem) => formatProblem(problem).replaceAll(folder + path.sep, ''))
}

interface Refusal {
  readonly error: { readonly type: string, readonly message: string, readonly details: { readonly error_code: string } }
}

async function isRefused (t: Test, response: Response, status: number, code: string): Promise<string> {
  t.equal(response.status, status)
  const { error } = await response.json() as Refusal
  t.equal(error.details.error_code, code)
  return error.message
}

t.test('the other example of plugins/README.md: what is asked for with exchange.onFinish is told once, however the request ends', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, withPlugin([vendor.url], '{ use: ./outcome-log.ts }'), {
    files: { 'outcome-log.ts': readFileSync(new URL('../fixtures/outcome-log.ts', import.meta.url), 'utf8') }
  })
  const told = (): unknown[] => running.logged.filter(({ msg }) => msg === 'it is over').map(({ kind }) => kind)
  await (await running.messages(messagesRequest)).text()
  await (await running.messages({ ...messagesRequest, model: 'nobody' })).text()
  await until(() => told().length === 2)
  t.strictSame(told(), ['completed', 'failed'])
})

t.test('headers that a plugin without types puts into the answer it is given', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, withPlugin([vendor.url], '{ use: ./marks.js }'), { files: { 'marks.js': `
    export default { name: 'marks', create: () => ({
      perAttempt: () => ({ onUpstreamReply (reply) { reply.headers['x-mark'] = 'of the attempt' } }),
      onReply (reply) { reply.headers['x-other'] = 'of the answer' }
    }) }` } })
  const whole = { ...messagesRequest, stream: false }
  for (const _ of [1, 2]) {
    const response = await running.messages(whole)
    t.equal(response.status, 200)
    t.equal(response.headers.get('x-mark'), 'of the attempt')
    t.equal(response.headers.get('x-other'), 'of the answer')
    await response.text()
  }
})

t.test('a client that takes nothing of a plugin\'s bytes for write_stall has left, whatever the pieces', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t,
    withPlugin([vendor.url], '{ use: ./endless.ts }').replace('hold_head: 10s', 'hold_head: 10s, write_stall: 300ms'), {
      files: { 'endless.ts': `
        import { Readable } from 'node:stream'
        export default { name: 'endless', create: () => ({
          onRequest: () => ({ kind: 'bytes', status: 200, headers: {},
            bytes: new Readable({ read () { this.push(Buffer.alloc(16384)) } }) })
        }) }` }
    })
  const { hostname, port } = new URL(running.url)
  const socket = connect(Number(port), hostname)
  t.teardown(() => socket.destroy())
  socket.pause()
  const body = JSON.stringify(messagesRequest)
  socket.write(`POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${KEY}\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
  const line = (): Record<string, unknown> | undefined => running.logged.find(({ msg }) => msg === 'request')
  await until(() => line() !== undefined)
  t.match(line(), { outcome: 'failed', code: 'client_closed' })
})

t.test('the example of plugins/README.md', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t,
    withPlugin([vendor.url], '{ use: ./block-words.ts, with: { words: [zebra, "a.b", Übung] } }'), {
    files: { 'block-words.ts': EXAMPLE }
  })
  const ask = (content: unknown, more: Readonly<Record<string, unknown>> = {}): Promise<Response> =>
    running.messages({ ...messagesRequest, messages: [{ role: 'user', content }], ...more })

  await t.test('refuses a forbidden word wherever a prompt can hold it, and it costs nothing', async (t) => {
    const before = await running.services.store.balance('acme')
    const message = await isRefused(t, await ask('Draw a Zebra!'), 400, 'content_policy_violation')
    t.match(message, /^Prompts with the word "Zebra" are not taken here\. Request ID: req_/)
    const inBlocks = [{ type: 'text', text: 'hello' }, { type: 'tool_result', tool_use_id: 'x',
      content: [{ type: 'text', text: 'zebra' }] }]
    await isRefused(t, await ask(inBlocks), 400, 'content_policy_violation')
    await isRefused(t, await ask('hello', { system: [{ type: 'text', text: 'be a ZEBRA' }] }), 400,
      'content_policy_violation')
    await isRefused(t, await ask('meine übung'), 400, 'content_policy_violation')
    await isRefused(t, await ask('a.b'), 400, 'content_policy_violation')
    t.equal(vendor.requests.length, 0)
    t.strictSame(await running.services.store.balance('acme'), before)
  })

  await t.test('takes what only looks like it', async (t) => {
    const picture = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'zebra+zebra/zebra' } }
    for (const content of ['zebras', 'axb', 'Übungen', [picture]]) {
      t.equal((await ask(content)).status, 200, JSON.stringify(content))
    }
  })

  await t.test('leaves routes without a prompt alone', async (t) => {
    const response = await fetch(running.url + '/v1/models', { headers: { 'x-api-key': KEY } })
    t.equal(response.status, 200)
  })

  await t.test('another list of words is live after an edit, and options that are wrong are refused in their place', async (t) => {
    await running.rewrite(withPlugin([vendor.url], '{ use: ./block-words.ts, with: { words: [horse] } }'))
    t.equal((await ask('zebra')).status, 200)
    await isRefused(t, await ask('horse'), 400, 'content_policy_violation')
    t.strictSame(
      await edit(running, {
        'gateway.yaml': withPlugin([vendor.url], '{ use: ./block-words.ts, with: { words: horse, wrods: [] } }')
      }),
      [
        'gateway.yaml:8:58 /pipeline/1/with/words must be a list, found a text (a list is written as [a, b], or one "- item" per line)',
        'gateway.yaml:8:65 /pipeline/1/with/wrods unknown key "wrods"'
      ]
    )
    t.strictSame(await edit(running, { 'gateway.yaml': withPlugin([vendor.url], '{ use: ./block-words.ts }') }), [
      'gateway.yaml:8:18 /pipeline/1/with "words" is missing: Whole words, in any case'
    ])
    await isRefused(t, await ask('horse'), 400, 'content_policy_violation')
  })
})

const FULL = `
import { ApiKey, definePlugin, fact, GatewayError, json, SseEvent, type Hooks } from 'model-gateway'
import { greet } from './greeting.ts'

interface Options { readonly name: string, readonly loud: boolean }
const Greeting = fact<string>('greeting')

export default definePlugin<Options>({
  name: 'greeter',
  schema: {
    type: 'object',
    required: ['name'],
    properties: {
      name: { type: 'string', description: 'Who is greeted.' },
      loud: { type: 'boolean', default: true, description: 'In capitals.' }
    }
  },
  reads: [ApiKey],
  writes: [Greeting],
  create ({ name, loud }, config, services): Hooks {
    services.log.info({ models: config.models.length }, 'greeter made')
    return {
      onHead (exchange) {
        const { key } = exchange.get(ApiKey)
        if (exchange.received.headers['x-teapot'] !== undefined) return json({ teapot: key.id }, { 'x-short': 'yes' }, 418)
        if (exchange.received.headers['x-forbidden'] !== undefined) throw new GatewayError('client_not_allowed', { message: 'Not with this client.' })
        const text = greet(name)
        exchange.set(Greeting, loud ? text.toUpperCase() : text)
      },
      onRequest (exchange) {
        exchange.request = { ...exchange.request, body: { ...exchange.request.body, system: exchange.get(Greeting) } }
      },
      perAttempt: (attempt, exchange) => ({
        onUpstreamRequest (request) { request.headers['x-greeting'] = exchange.get(Greeting) + ' ' + attempt.model }
      }),
      onReply (reply) { return reply.kind === 'json' && reply.status === 200 ? { ...reply, headers: { ...reply.headers, 'x-greeter': 'json' } } : undefined },
      onStream: (exchange) => ({
        event: (event) => event.event === 'ping' ? undefined : event.event === 'content_block_stop'
          ? [SseEvent.of('content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: '!' } }), event] : event,
        end: () => [SseEvent.of('greeting', { type: 'greeting', text: exchange.get(Greeting) })]
      }),
      close () { services.log.info('greeter closed') }
    }
  }
})
`

t.test('it reads and writes facts, changes what goes up and what comes down, answers and refuses by itself', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, withPlugin([vendor.url], '{ use: ./greeter.ts, with: { name: bob } }'), {
    files: { 'greeter.ts': FULL, 'greeting.ts': 'export const greet = (name: string): string => `hello ${name}`\n' }
  })
  t.equal(running.logged.find(({ msg }) => msg === 'greeter made')?.['models'], 1, 'it was given the configuration')

  const whole = await running.messages(messagesRequest)
  t.equal(whole.status, 200)
  t.equal(whole.headers.get('x-greeter'), 'json')
  const [request] = vendor.requests
  t.equal(request!.body!['system'], 'HELLO BOB')
  t.equal(request!.headers['x-greeting'], 'HELLO BOB vendor-m1')

  const stream = await (await running.messages({ ...messagesRequest, stream: true })).text()
  t.notMatch(stream, /event: ping/, 'an event can be left out')
  t.match(stream, /"text":"!"[^]*event: content_block_stop/, 'one can be put before another')
  t.match(stream, /event: message_stop\n.*\n\nevent: greeting\ndata: \{"type":"greeting","text":"HELLO BOB"\}\n\n$/,
    'and one at the end')

  const short = await running.messages(messagesRequest, { headers: { 'x-teapot': '1' } })
  t.strictSame([short.status, short.headers.get('x-short'), await short.json()], [418, 'yes', { teapot: 'acme-dev' }])
  t.match(
    await isRefused(t, await running.messages(messagesRequest, { headers: { 'x-forbidden': '1' } }), 403,
      'client_not_allowed'),
    /^Not with this client\./
  )
  t.equal(vendor.requests.length, 2, 'what it answers or refuses goes no further')
})

/** A stream that stands still before its last words until `release`. */
async function pausing (t: Test): Promise<{ readonly vendor: Upstream, release (): void }> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const vendor = await upstream(t,
    () => [messageStart(), blockStart(0), textDelta(0, 'first'), wait(promise), textDelta(0, ' last'), blockStop(0),
      messageEnd()])
  return { vendor, release: resolve }
}

/** Appends what it is told by its helper to each text of a stream. */
const stamper = (version: number): string => `
import { definePlugin, SseEvent } from 'model-gateway'
import { mark } from './mark.ts'
export default definePlugin({
  name: 'stamper',
  create: (_options, _config, services) => ({
    onStream: () => ({
      event (event) {
        if (event.event !== 'content_block_delta') return event
        const json = event.json as { readonly delta: { readonly text: string } }
        return SseEvent.of(event.event, { ...json, delta: { ...json.delta, text: json.delta.text + ' v${version} ' + mark } })
      }
    }),
    close () { services.log.info({ version: 'v${version} ' + mark }, 'stamper closed') }
  })
})
`

t.test('an edit of its file or of what it imports goes live by itself, and what streams keeps the code it began with', async (t) => {
  const { vendor, release } = await pausing(t)
  const running = await gateway(t, withPlugin([vendor.url], '{ use: ./stamper.ts }'), {
    files: { 'stamper.ts': stamper(1), 'mark.ts': 'export const mark = \'a\'\n' }
  })
  const closed = (): unknown[] =>
    running.logged.filter(({ msg }) => msg === 'stamper closed').map(({ version }) => version)
  const open = (): Promise<Response> => running.messages({ ...messagesRequest, stream: true })
  const streams = [await open()]
  t.strictSame(await edit(running, { 'stamper.ts': stamper(2) }), [])
  streams.push(await open())
  t.strictSame(await edit(running, { 'mark.ts': 'export const mark = \'b\'\n' }), [], 'a file that it imports')
  streams.push(await open())
  t.strictSame(streams.map(({ headers }) => headers.get('x-gateway-config-generation')), ['1', '2', '3'])
  t.strictSame(closed(), [], 'nothing is closed that is in use')
  release()
  const texts = await Promise.all(streams.map((response) => response.text()))
  for (const [i, version] of ['v1 a', 'v2 a', 'v2 b'].entries()) {
    t.strictSame(
      [...texts[i]!.matchAll(/"text_delta","text":"([^"]+)"/g)].map(([, text]) => text),
      [`first ${version}`, ` last ${version}`]
    )
    t.match(texts[i], /event: message_stop/)
  }
  t.strictSame(closed().toSorted(), ['v1 a', 'v2 a'], 'each once, when its last request ended; not the one in use')
})

interface Mistake {
  readonly title: string
  readonly files: Readonly<Record<string, string>>
  readonly problems: readonly (string | RegExp)[]
}

/** The pipeline is line 8; the item begins at column 18, its `use` at 25. */
const USED = 'used at gateway.yaml:8:25'
const PUT = 'could not be put to use: '
const GOOD_PLUGIN =
  'import { word } from \'./word.ts\'\nexport default { name: \'mine\', create: () => ({ onReply: (reply) => ({ ...reply, headers: { ...reply.headers, \'x-mine\': word } }) }) }\n'

const mistakes = (url: string): readonly Mistake[] => {
  const other = (item: string): string => withPlugin([url], item)
  return [
    { title: 'a syntax error', files: { 'mine.ts': 'export default {\n  name: \'mine\',\n  create ( {}\n}\n' },
      problems: [/^mine\.ts:4:1 \/pipeline\/1\/use cannot be read as code: .+ \(used at gateway\.yaml:8:25\)$/] },
    { title: 'a syntax error in what it imports', files: { 'word.ts': 'export const word: = 1\n' },
      problems: [/^word\.ts:1:\d+ \/pipeline\/1\/use cannot be read as code: .+ \(used at gateway\.yaml:8:25\)$/] },
    { title: 'a throw at import', files: { 'mine.ts': 'import \'./word.ts\'\n\nthrow new Error(\'no licence\')\n' },
      problems: [`mine.ts:3:7 /pipeline/1/use threw while it was loaded: no licence (${USED})`] },
    { title: 'a throw at import, of a function',
      files: { 'word.ts': 'export const word = (undefined as never as { x: { y: string } }).x.y\n' }, problems: [
        /^word\.ts:1:\d+ \/pipeline\/1\/use threw while it was loaded: Cannot read properties of undefined \(reading 'x'\)/
      ] },
    { title: 'an await at the top that never ends',
      files: { 'mine.ts': 'await new Promise(() => {})\nexport default {}\n' },
      problems: [/^(mine\.ts:1:1|gateway\.yaml:8:25) .*did not finish loading within 5 s/] },
    {
      title: 'options that its schema refuses',
      files: {
        'mine.ts':
          'export default { name: \'mine\', schema: { type: \'object\', properties: { size: { type: \'integer\', description: \'x\' } } }, create: () => ({}) }\n',
        'gateway.yaml': other('{ use: ./mine.ts, with: { size: big } }')
      },
      problems: ['gateway.yaml:8:50 /pipeline/1/with/size must be a whole number, found "big"']
    },
    { title: 'a file that does not exist', files: { 'gateway.yaml': other('{ use: ./yours.ts }') },
      problems: ['gateway.yaml:8:25 /pipeline/1/use the plugin file does not exist'] },
    { title: 'the name of a shipped plugin', files: { 'mine.ts': GOOD_PLUGIN.replace('\'mine\'', '\'auth\'') },
      problems: [
        'gateway.yaml:8:25 /pipeline/1/use the plugin calls itself auth, which is the name of a shipped plugin (give it a name of its own)'
      ] },
    { title: 'the name of another of the user\'s own',
      files: { 'yours.ts': GOOD_PLUGIN, 'gateway.yaml': other('{ use: ./mine.ts }, { use: ./yours.ts }') }, problems: [
        'gateway.yaml:8:45 /pipeline/2/use the plugin mine is in the pipeline twice; the other is at gateway.yaml:8:25'
      ] },
    {
      title: 'a create that throws',
      files: {
        'mine.ts': 'export default {\n  name: \'mine\',\n  create () {\n    throw new Error(\'no room\')\n  }\n}\n'
      },
      problems: [
        `gateway.yaml:8:25 /pipeline/1/use ${PUT}the plugin mine refused its configuration: no room (thrown at mine.ts:4:11)`
      ]
    },
    { title: 'a create that throws no Error',
      files: { 'mine.ts': 'export default { name: \'mine\', create () { throw \'no room\' } }\n' },
      problems: [`gateway.yaml:8:25 /pipeline/1/use ${PUT}the plugin mine refused its configuration: no room`] },
    { title: 'a create that returns no hooks',
      files: { 'mine.ts': 'export default { name: \'mine\', create () {} }\n' }, problems: [
        `gateway.yaml:8:25 /pipeline/1/use ${PUT}the "create" of the plugin mine must return an object of hooks, and returned undefined`
      ] },
    { title: 'a create that is async',
      files: { 'mine.ts': 'export default { name: \'mine\', async create () { return {} } }\n' }, problems: [
        `gateway.yaml:8:25 /pipeline/1/use ${PUT}the "create" of the plugin mine must return an object of hooks, and returned a promise`
      ] },
    { title: 'a hook that does not exist',
      files: { 'mine.ts': 'export default { name: \'mine\', create: () => ({ onReqest () {} }) }\n' }, problems: [
        `gateway.yaml:8:25 /pipeline/1/use ${PUT}the plugin mine has a hook "onReqest", which does not exist (did you mean "onRequest"?)`
      ] },
    {
      title: 'what a request tells, as a hook',
      files: { 'mine.ts': 'export default { name: \'mine\', create: () => ({ onFinish () {} }) }\n' },
      problems: [
        `gateway.yaml:8:25 /pipeline/1/use ${PUT}the plugin mine has a hook "onFinish", which does not exist (each request is asked to tell it: in onHead or onRequest call exchange.onFinish((outcome) => { ... }))`
      ]
    },
    {
      title: 'a hook of an attempt, as one of the plugin',
      files: { 'mine.ts': 'export default { name: \'mine\', create: () => ({ onUpstreamEvent () {} }) }\n' },
      problems: [
        `gateway.yaml:8:25 /pipeline/1/use ${PUT}the plugin mine has a hook "onUpstreamEvent", which does not exist (it is one of an attempt: return it from perAttempt)`
      ]
    },
    { title: 'a hook that is no function',
      files: { 'mine.ts': 'export default { name: \'mine\', create: () => ({ onHead: true }) }\n' },
      problems: [`gateway.yaml:8:25 /pipeline/1/use ${PUT}the hook "onHead" of the plugin mine must be a function`] }
  ]
}

t.test('whatever is wrong with it is said with its place, and the one before serves on', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const good = { 'gateway.yaml': withPlugin([vendor.url], '{ use: ./mine.ts }'), 'mine.ts': GOOD_PLUGIN,
    'word.ts': 'export const word = \'a\'\n' }
  const running = await gateway(t, good['gateway.yaml'], { files: good })
  const serves = async (): Promise<unknown[]> => {
    const response = await running.messages(messagesRequest)
    await response.text()
    return [response.status, response.headers.get('x-mine'), response.headers.get('x-gateway-config-generation')]
  }
  t.strictSame(await serves(), [200, 'a', '1'])
  for (const { title, files, problems } of mistakes(vendor.url)) {
    await t.test(title, async (t) => {
      const found = await edit(running, { ...good, ...files })
      t.equal(found.length, problems.length, found.join('\n'))
      for (const [i, problem] of problems.entries()) {
        if (typeof problem === 'string') t.equal(found[i], problem)
        else t.match(found[i], problem)
      }
      t.strictSame(await serves(), [200, 'a', '1'])
    })
  }
  t.strictSame(await edit(running, good), [], 'what ran before is found to be unchanged')
  t.strictSame(await serves(), [200, 'a', '1'])
  await t.test('a file that is deleted under a running gateway', async (t) => {
    const reloaded = running.live.reloaded()
    rmSync(path.join(path.dirname(running.file), 'mine.ts'))
    t.match((await reloaded).problems, [{ message: 'the plugin file does not exist' }])
    t.strictSame(await serves(), [200, 'a', '1'])
    t.strictSame(await edit(running, good), [])
  })
  await t.test('and the next good edit is live', async (t) => {
    t.strictSame(await edit(running, { 'word.ts': 'export const word = \'b\'\n' }), [])
    t.strictSame(await serves(), [200, 'b', '2'])
  })
})

const HANGING = `
import { definePlugin } from 'model-gateway'
const never = (): Promise<never> => new Promise(() => {})
export default definePlugin({
  name: 'hanging',
  create () {
    const at = (hook: string) => (exchange): unknown => {
      const mode = exchange.received.headers['x-' + hook.toLowerCase()]
      if (mode === 'hang') return never()
      if (mode === 'thenable') return { then () {} }
      if (mode === 'throw') throw new Error('boom in ' + hook)
      if (mode === 'reject') return Promise.reject(new Error('boom in ' + hook))
    }
    const hooks = Object.fromEntries(['onHead', 'onRequest'].map((hook) => [hook, at(hook)]))
    return {
      ...hooks,
      onReply: (reply, exchange) => at('onReply')(exchange),
      perAttempt: (attempt, exchange) => ({ onUpstreamRequest: () => at('onUpstreamRequest')(exchange) })
    }
  }
})
`

t.test('a hook that never resolves, or throws, fails that request only', async (t) => {
  const vendor = await upstream(t, answer('fine'))
  const running = await gateway(t, 'hook_timeout: 200ms' + withPlugin([vendor.url], '{ use: ./hanging.ts }'), {
    files: { 'hanging.ts': HANGING }
  })
  for (const hook of ['onHead', 'onRequest', 'onUpstreamRequest', 'onReply']) {
    for (const mode of ['hang', 'thenable', 'throw', 'reject']) {
      await t.test(`${hook}: ${mode}`, async (t) => {
        const [response, other] = await Promise.all([
          running.messages(messagesRequest, { headers: { ['x-' + hook]: mode } }),
          running.messages(messagesRequest)
        ])
        t.match(await isRefused(t, response, 500, 'server_error'), /^The gateway failed on this request/)
        t.equal(other.status, 200, 'another request at the same time is served')
        const line = running.logged.findLast(({ msg, request_id: id }) =>
          msg === 'request' && id === response.headers.get('x-request-id')
        )
        t.match((line?.['err'] as { stack: string }).stack, mode === 'hang' || mode === 'thenable'
          ? /the plugin hanging took longer than hook_timeout \(200 ms\)/
          : new RegExp(`boom in ${hook}[^]*hanging\\.ts`))
      })
    }
  }
  t.match(await running.services.metrics.print(), /gateway_hook_timeouts_total\{plugin="hanging"\} 8\n/)
  t.equal(running.server.inFlight, 0)
  t.match(await running.services.store.balance('acme'), { held: 0n, open_holds: 0 })
})
