// `gateway explain`, with a gateway that runs and without one.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { freePort } from '../support/free-port.ts'
import { command, gateway, yaml } from '../support/gateway-command.ts'
import { folderFor, run } from '../support/spawned.ts'

const PLUGIN = `import { definePlugin, GatewayError } from 'model-gateway'
export default definePlugin({ name: 'curfew', create: () => ({ onRequest (exchange) { if (exchange.received.headers['x-late'] !== undefined) throw new GatewayError('maintenance', { message: 'Nobody is served at this hour.' }) } }) })
`

await t.test('the same words whether a gateway runs or not, and an exit code', async (t) => {
  const text = yaml(await freePort()).replace('channel-router,', 'channel-router, { use: ./curfew.ts },')
  const folder = folderFor(t, { 'gateway.yaml': text, 'curfew.ts': PLUGIN })
  writeFileSync(join(folder, 'body.json'),
    JSON.stringify({ model: 'm1', max_tokens: 20, messages: [{ role: 'user', content: 'Hello' }] }))
  const explain = (...args: string[]): ReturnType<typeof command> => command(folder, ['explain', ...args])
  const LET_THROUGH =
    /^POST \/v1\/messages with the key demo \(active\) would be sent to a target\.\n\nWHO +HOOK +VERDICT +WROTE\nauth +onHead +passed +api-key\n[^]*\nCHANNEL +UPSTREAM +MODEL +PRIORITY +WEIGHT +PRICE VERSION\npremium +simulator +vendor-m1 +0 +1 +input=3 output=15\n[^]*\nmax_cost_usd +0\.000\d+\n/
  const both = async (): Promise<void> => {
    t.match(await explain('--key', 'demo', '--body', '@body.json'), { code: 0, out: LET_THROUGH, err: '' })
    t.match(await explain('--key', 'demo', '--body', '@body.json', '--header', 'X-Late: yes'), { code: 1,
      out:
        /would be refused with 503 maintenance\.\nNobody is served at this hour\.\n[^]*\ncurfew +onRequest +refused/ })
  }
  const others = async (): Promise<void> => {
    const { code, out } = await explain('--key', 'demo', '--route', 'GET /v1/models', '--json')
    t.equal(code, 0)
    t.match(JSON.parse(out), { allowed: true, then: 'answered by the gateway', max_cost_usd: '0' })
    t.match(await explain('--key', 'demo', '--body', '{"model":"m2"}'), { code: 1,
      out: /400 model_not_found\.\nThere is no model "m2"\. Did you mean "m1"\?/ })
    t.match(await explain('--key', 'dmeo'), { code: 1, out: '',
      err: /^There is no key "dmeo" \(did you mean "demo"\?\)/ })
  }
  const running = run(t, folder, ['start'])
  await running.urls()
  await both()
  await others()
  t.match(await explain('--key', 'demo', '--body', '@nobody.json'), { code: 1, err: /^The body can't be read: ENOENT/ })
  t.match(await explain('--key', 'demo', '--body', 'body.json'), { code: 1,
    err: /^The body is not JSON: [^]* A file is named with "@" before it\./ })
  t.match(await explain('--body', '@body.json'), { code: 1,
    err: /^Whose request would it be\? Name a key by its id: --key ID\.\n\nUsage: gateway explain --key ID/ })
  t.match(await explain('--help'), { code: 0, out: /^Usage: gateway explain --key ID/ })
  running.child.kill('SIGTERM')
  t.strictSame(await running.ended, [0, null])
  await both()
  t.match(await gateway(folder, ['explain', '--key', 'demo', '--body', '@body.json']), { code: 0, out: LET_THROUGH })
  t.match(await command(folder, ['ledger', 'verify']), { code: 0, out: /: 1 entries, 1 accounts, 0 keys/ },
    'the demo credit, and nothing else')
})
