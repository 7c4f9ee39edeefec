// A style of clients that a shipped plugin translates: its endpoint is there without a line of gateway.yaml, and the
// plugin runs on its routes and on no others, where the client's words end.
import t from 'tap'
import { plugins } from '../../plugins/index.ts'
import { endpointsWith, shippedRoutesWith } from '../../src/config/sections/endpoints.ts'
import { definePlugin, type Plugin } from '../../src/core/plugin.ts'
import type { Style } from '../../src/core/style.ts'
import { endpoints } from '../../src/endpoints/index.ts'
import { Snapshot } from '../../src/gateway/snapshot.ts'
import { commonStyle, styles } from '../../src/protocols/index.ts'
import { config, services, upstreamConfig } from '../support/exchange.ts'

const plain: Style = { ...commonStyle, name: 'plain', endpoint: { serve: 'plain', match: 'POST /v1/plain' } }
const translator = definePlugin({ name: 'plain-to-messages', translates: plain, create: () => ({ onRequest () {} }) })
const shipped = new Map([...plugins, translator].map((plugin) => [plugin.name, plugin]))

/** @returns the plugins of each of its routes */
function routesOf (used: readonly string[], route: { readonly pipeline?: readonly string[] } = {}) {
  const inUse = used.map((name) => shipped.get(name)!)
  const on = new Snapshot({
    config: { ...config({ upstreams: { u: upstreamConfig() } }),
      pipeline: inUse.map(({ name }) => ({ use: name, with: { low_balance_usd: '1', prefix: 'sk-gw-' } })),
      routes: [{ match: 'POST /v1/own', serve: 'plain', ...route }] } as ReturnType<typeof config>,
    generation: 1, plugins: inUse, shipped, services: services(),
    endpoints: { ...endpoints, plain: { kind: 'model', style: plain, modality: 'text' } }
  })
  return new Map(on.routes.all.map(({ name, plugins: names, style }) => [name, { names, style }]))
}

t.test('it runs where the other client\'s words end, unnamed, on the routes of its style alone', async (t) => {
  const used = ['auth', 'schema-validate', 'chat-to-messages', 'channel-router', 'billing-meter', 'error-normalize']
  const routes = routesOf(used)
  t.strictSame(routes.get('POST /v1/plain'), { names: used.toSpliced(2, 0, 'plain-to-messages'), style: plain })
  t.strictSame(routes.get('POST /v1/chat/completions')!.names, used.toSpliced(2, 0, 'responses-to-messages'),
    'which takes bodies of that style too')
  t.strictSame(routes.get('POST /v1/messages')!.names, used)
  t.strictSame(routes.get('GET /v1/models')!.names, used)
})

t.test('without chat-to-messages it stands before the targets are chosen; no route leaves it out', async (t) => {
  const used = ['auth', 'channel-router', 'billing-meter', 'error-normalize']
  const routes = routesOf(used, { pipeline: ['auth', 'channel-router'] })
  t.strictSame(routes.get('POST /v1/plain')!.names, used.toSpliced(1, 0, 'plain-to-messages'))
  t.strictSame(routes.get('POST /v1/own')!.names, used.toSpliced(1, 0, 'plain-to-messages'))
  t.notOk(routes.has('POST /v1/chat/completions'), 'which needs its plugin to be named, as ever')
})

t.test('it can be named: then it stands where it is named, once', async (t) => {
  const used = ['auth', 'plain-to-messages', 'chat-to-messages', 'channel-router', 'billing-meter', 'error-normalize']
  t.strictSame(routesOf(used).get('POST /v1/plain')!.names, used)
})

t.test('the check of a configuration knows its endpoint, and that of each style', async (t) => {
  const names = Object.keys(endpointsWith(shipped.values()))
  t.ok(names.includes('plain'))
  t.match(shippedRoutesWith(shipped.values()).at(-1), plain.endpoint)
  t.strictSame(Object.keys(endpoints).filter((name) => !names.includes(name)), [])
  t.strictSame(Object.keys(endpointsWith(plugins)).filter((name) => !(name in endpoints)), [])
  const translated = (plugins as readonly Plugin[]).flatMap(({ translates }) => translates ?? [])
  t.strictSame(translated.filter((style) => !styles.includes(style)), [], 'each is in the table of styles')
})
