// Gateways that read what is large on the event loop or in threads, to be compared: nobody else can tell.
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import { Seals } from '../../src/base/seals.ts'
import { CALM, finished, type GatewayTestOptions, KEY, type TestGateway, yaml } from './gateway.ts'
import type { Received } from './upstream.ts'

type Json = Readonly<Record<string, unknown>>

const NOW = Date.UTC(2026, 10, 23)
export const SECRET = 'seal-secret-of-the-test-with-32-characters'
const seals = new Seals([SECRET])

/** Three models, each at upstreams of one dialect: the first fails where the body says so, then the second answers. */
export function stylesYaml (url: string): string {
  const dialects = dialectsOf('text')
  const upstreams = dialects.flatMap((dialect) => ['bad', 'good'].map((name) =>
    `  ${dialect}-${name}: { url: "${url}/${name}/v1", dialect: ${dialect}, ` +
    `${CALM}, count_tokens: ${dialect === 'messages'}, headers: { x-api-key: upstream-secret } }`))
  const models = dialects.map((dialect) => `  - id: m-${dialect}
    name: M
    provider: acme
    kind: text
    created: 2025-09-29
    context: 200000
    max_output: 6000
    over_max_output: clamp
    thinking: budget
    accepts: [text, image]
    channels:
      premium:
        price: { input: 3, output: 15, cache_read: 0.30, cache_write: 3.75 }
        targets:
          - { upstream: ${dialect}-bad, model: vendor, priority: 0 }
          - { upstream: ${dialect}-good, model: vendor, priority: 1 }`)
  return yaml([], '', 'auth, key-policy, rate-limit, schema-validate, chat-to-messages, ' +
    '{ use: responses-to-messages, with: { keep: 1h, keep_space: 1MB } }, channel-router, billing-meter, error-normalize')
    .replace('  drain_timeout', `  seal_secrets: [${SECRET}]\n  drain_timeout`)
    .replace(/upstreams:\n[^]*accounts:/, `upstreams:\n${upstreams.join('\n')}\nmodels:\n${models.join('\n')}\n` +
      'aliases: [{ id: latest, model: m-messages }]\naccounts:')
    .replace('secret: ', 'rate_limit: 1000000, secret: ')
    .replace('opening_balance_usd: 100', 'opening_balance_usd: 1000000')
}

/** Everything that others see of a request, without what differs in any two. */
export async function outcomeOf (gw: TestGateway, upstreams: { readonly requests: readonly Received[] }, path: string,
  text: Buffer, headers: Record<string, string> = {}): Promise<Json> {
  const before = upstreams.requests.length
  const answer = await fetch(gw.url + path, { method: 'POST', body: text,
    headers: { 'content-type': 'application/json', 'x-api-key': KEY, ...headers } })
  const said = await answer.text()
  const line = await finished(gw)
  const id = String(line['request_id'])
  const known = (shown: string): string => opened(shown).replaceAll(id, 'ID').replaceAll(id.slice(4), 'ID')
  return {
    status: answer.status,
    headers: [...answer.headers].filter(([name]) => !/^(?:date|server-timing)$/.test(name)).map(([name, value]) => `${name}: ${known(value)}`),
    said: known(said),
    asked: upstreams.requests.slice(before).map(({ url, rawHeaders, bytes }) => ({ url, bytes: bytes.toString('latin1'),
      headers: rawHeaders.filter((_, i, all) => !/^traceparent$/i.test(all[i - i % 2]!)) })),
    line: Object.fromEntries(Object.entries(line).filter(([name]) =>
      !/^(?:time|pid|hostname|request_id|trace_id|span_id)$|_ms$/.test(name)).map(([name, value]) =>
      [name, known(JSON.stringify(value))]))
  }
}

export const options: GatewayTestOptions = { now: () => NOW, isForgetful: true }

/** What is sealed is another text each time. */
function opened (text: string): string {
  return text.replaceAll(/gwseal1_[\w-]+/g, (sealed) => {
    const found = ['thinking', 'reasoning', 'compaction'].map((purpose) => seals.open(purpose, 'acme', sealed))
    return opened(found.find((one) => one !== undefined) ?? 'SEALED')
  })
}
