// What runs on the way down for one key: perKey is asked once for each key and route, from where the key is known, and
// a plugin that has nothing to do for a key is not in its chain.
import t from 'tap'
import { keyPolicy } from '../../plugins/key-policy/index.ts'
import type { KeyConfig } from '../../src/config/config.ts'
import { Exchange } from '../../src/core/exchange.ts'
import { ApiKey } from '../../src/core/facts.ts'
import { definePlugin, type KeyHooks } from '../../src/core/plugin.ts'
import { runRequestPhase } from '../../src/pipeline/pipeline.ts'
import { account, config, exchange, key, model, snapshot, upstreamConfig } from '../support/exchange.ts'

const keys = {
  free: key({ id: 'free' }),
  bound: key({ id: 'bound', ip_whitelist: ['127.0.0.1'] }),
  whole: key({ id: 'whole', streaming: false })
}
const asked: string[] = []
const ran: string[] = []

const identity = definePlugin({
  name: 'identity',
  writes: [ApiKey],
  create: () => ({
    onHead (on) { on.set(ApiKey, { key: keys[on.received.headers['x-key'] as keyof typeof keys], account: account() }) }
  })
})

/** @param perKey that of a plugin that notes what runs */
function noting (name: string, perKey: (key: KeyConfig) => KeyHooks | undefined) {
  const note = (hook: string) => (): void => { ran.push(`${name} ${hook}`) }
  return definePlugin({
    name,
    create: () => ({
      onHead: note('onHead'),
      onRequest: note('onRequest'),
      perKey (key, { name: route }) {
        asked.push(`${name} ${key.id} ${route}`)
        return perKey(key)
      }
    })
  })
}

const onHead = (): void => { ran.push('own onHead') }
const on = snapshot(config({
  upstreams: { u: upstreamConfig() }, models: [model('m1', { premium: 'u/x*1' })]
}), [
  noting('before', () => undefined),
  identity,
  noting('none', () => undefined),
  keyPolicy,
  noting('some', ({ id }) => id === 'free' ? { onHead } : { onRequest: () => { ran.push('own onRequest') } })
])

/** @returns what ran, and what was asked for it */
async function send (id: keyof typeof keys, path = '/v1/messages', isDry = false): Promise<[string[], string[]]> {
  asked.length = 0
  ran.length = 0
  const { route, received } = exchange(on, { path, headers: { 'x-key': id } })
  const sent = new Exchange('req_x', route, received, on, on.ledger, isDry ? { owner: undefined } : undefined)
  await runRequestPhase(sent, { readBody: async () => ({ model: 'm1', messages: [] }) }, undefined, (who, hook) => {
    if (who === 'key-policy') ran.push(`${who} ${hook}`)
  })
  return [[...ran], [...asked]]
}

t.test('what perKey returns must be hooks: a policy that is not made lets nobody through', async (t) => {
  const wrong: readonly unknown[] = [Promise.reject(new Error('late')), null, { onHed () {} }, { onHead: true },
    { onRequest () {} }]
  for (const made of wrong) {
    const faulty = definePlugin({ name: 'faulty', create: () => ({ onHead () {}, perKey: () => made as KeyHooks }) })
    const own = snapshot(config({ upstreams: { u: upstreamConfig() }, models: [model('m1', { premium: 'u/x*1' })] }),
      [identity, faulty])
    const { route, received } = exchange(own, { headers: { 'x-key': 'free' } })
    const sent = new Exchange('req_x', route, received, own, own.ledger)
    await t.rejects(async () => await runRequestPhase(sent, { readBody: () => ({ model: 'm1' }) }, undefined),
      /^the perKey of faulty/)
  }
})

t.test('the chain of a key', async (t) => {
  const route = 'POST /v1/messages'
  t.strictSame(await send('free'), [['before onHead', 'own onHead'],
    [`before free ${route}`, `none free ${route}`, `some free ${route}`]], 'nothing limits it: no key-policy')
  t.strictSame(await send('free'), [['before onHead', 'own onHead'], []], 'compiled once')
  t.strictSame((await send('bound'))[0], ['before onHead', 'key-policy onHead', 'own onRequest'])
  t.strictSame((await send('whole'))[0], ['before onHead', 'key-policy onRequest', 'own onRequest'])
  const other = '/v1/messages/count_tokens'
  t.strictSame((await send('free', other))[1].length, 3, 'and once for each route')
  t.strictSame(await send('free', '/v1/messages', true), [['before onHead', 'none onHead', 'key-policy onHead',
    'some onHead', 'before onRequest', 'none onRequest', 'key-policy onRequest', 'some onRequest'], []],
  'a dry run tells what each plugin says')
})
