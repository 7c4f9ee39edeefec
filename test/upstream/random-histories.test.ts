// Conversations by chance from clients of each style, for every vendor that the simulator can be as strict as: what the
// gateway accepts no vendor refuses, and what it refuses it refuses itself, at a place in the client's request. All
// dialects understand a conversation in the same way.
import { strict as assert } from 'node:assert'
import fc from 'fast-check'
import t from 'tap'
import type { Api } from '../../src/simulator/dialect.ts'
import { type Turn, viewOf } from '../../src/simulator/request-view.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { strictVendors, type VendorName } from '../../src/simulator/vendors.ts'
import { EMPTY_OUTPUT, GO_ON } from '../../src/translation/blocks.ts'
import { ask } from '../support/billing-client.ts'
import { clientStyles, type Style, styles, toldError } from '../support/client-styles.ts'
import { CALM, gateway, KEY } from '../support/gateway.ts'
import { bodyIn, histories, type History, type Step } from '../support/random-histories.ts'
import { declarations, modelFields, upstreamOptions, vendorNames as vendors } from '../support/strict-vendors.ts'

type Json = Readonly<Record<string, unknown>>

const RUNS = Number(process.env['RUNS'] ?? 8)
/** One vendor of each API, with the client's own texts. */
const COMPARED: ReadonlySet<VendorName> = new Set(['openai', 'openai_responses', 'anthropic', 'groq'])

const pace = { firstDelayMs: 0, tokenDelayMs: 0, directives: false }
const simulators = Object.fromEntries(await Promise.all(vendors.map(async (name) => {
  const simulator = await startSimulator({ ...pace, faults: `tokens=2 vendor=${name}` })
  t.teardown(() => simulator.close())
  return [name, simulator] as const
}))) as Readonly<Record<VendorName, Awaited<ReturnType<typeof startSimulator>>>>

const gw = await gateway(t, `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
pipeline: [auth, schema-validate, responses-to-messages, chat-to-messages, channel-router, billing-meter,
  error-normalize]
upstreams:
${vendors.map((name) => `  ${name}: { url: "${simulators[name].url}", dialect: ${strictVendors[name].api}, ${CALM},
    headers: { x-api-key: secret }${upstreamOptions(name)} }`).join('\n')}
models:
${vendors.map((name) => `  - { id: ${name}, provider: acme, created: 2026-01-01, context: 200000, max_output: 8192${modelFields(name)},
      channels: { premium: { price: { input: 1, output: 10 }, targets: [{ upstream: ${name},
      model: "${declarations[name].model}" }] } } }`).join('\n')}
accounts: [{ id: acme, opening_balance_usd: 1000 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
`, { isForgetful: true })

/** Refusals that are left, by vendor or API and rule, with the reason. */
const LEFT: readonly (readonly [style: RegExp, vendor: RegExp, rule: RegExp, reason: string])[] = [
  [/chat/, /openai$|azure|openrouter|deepseek/, /^(?:schema|array)/, 'a client of the vendor\'s own style: its schemas ' +
    'are not changed (src/README.md#tool-schemas)'],
  [/responses/, /openai_responses/, /^(?:schema|array)/, 'the same'],
  [/messages/, /anthropic|bedrock/, /^schema/, 'the same'],
  [/messages/, /anthropic|bedrock/, /^white space at the end/, 'the same holds for the end of its last turn (T10)'],
  [/./, /openai$|azure/, /^long user/, 'T8 hashes it'],
  [/./, /mistral/, /^user after tool|^last role/, 'T10 folds it']
]

function isLeft (style: Style, vendor: VendorName, refusal: string): boolean {
  return LEFT.some(([client, name, rule]) => client.test(style) && name.test(vendor) && rule.test(refusal))
}

/** Where the gateway refuses, it names the place. */
const PLACED = /^(?:messages|input|tools|system|tool_choice|metadata|user)\b/

/** @returns what the vendor got; undefined: nothing @throws {AssertionError} the vendor refuses it */
async function send (vendor: VendorName, style: Style, body: Json): Promise<Json | undefined> {
  const { requests } = simulators[vendor]
  const before = requests.length
  const got = await ask(gw.url + clientStyles[style].path, { model: vendor, ...body },
    { headers: { authorization: `Bearer ${KEY}` } })
  const record = requests[before]
  if (record?.refusal !== undefined) {
    const about = `${vendor} refuses "${record.refusal}": ${JSON.stringify(record.body)}`
    assert.ok(isLeft(style, vendor, record.refusal), about)
    assert.equal(got.status, 400, about)
    return undefined
  }
  const error = toldError(got) as unknown as { readonly message: string } | undefined
  if (record !== undefined) assert.equal(got.status, 200, `${vendor}: ${String(error?.message)}`)
  else assert.match(error?.message ?? '', PLACED, `${vendor}: ${got.status}`)
  return record?.body as Json | undefined
}

// What a vendor understands, in the same words for each API.

type Said = readonly [who: string, what: unknown]

/** What messages style makes of a system turn (src/README.md#system-turns). */
const SYSTEM_TURN = /<system-reminder>[^]*<\/system-reminder>/

/** A text that is no object, and `{"_raw": text}`, are the text. */
function argumentsIn (input: unknown): unknown {
  let value = input
  if (typeof input === 'string') {
    try {
      value = JSON.parse(input === '' ? '{}' : input)
    } catch {
      return input
    }
  }
  const { _raw: raw, ...others } = (typeof value === 'object' && value !== null ? value : { _raw: input }) as Json
  if (typeof raw === 'string' && Object.keys(others).length === 0) return raw === input ? raw : argumentsIn(raw)
  return JSON.stringify(value)
}

function textOf (content: unknown): string {
  if (typeof content === 'string') return content
  return Array.isArray(content) ? content.map((part: Json) => String(part['text'] ?? '')).join('\n') : ''
}

function resultText (content: unknown, isError: boolean): string {
  const text = textOf(content).replaceAll(/\s+/g, '')
  return isError ? `Error:${text}` : text === '' ? EMPTY_OUTPUT.replaceAll(/\s+/g, '') : text
}

function resultsIn (api: Api, { message }: Turn): readonly (readonly [id: unknown, text: string])[] {
  if (api === 'chat') return [[message['tool_call_id'], resultText(message['content'], false)]]
  if (api === 'responses') return [[message['call_id'], resultText(message['output'], false)]]
  return (message['content'] as readonly Json[]).filter(({ type }) => type === 'tool_result').map((block) =>
    [block['tool_use_id'], resultText(block['content'], block['is_error'] === true)])
}

/** Of the model's turns texts, then calls; of the user's, results in the order of the calls, then texts. */
function understood (api: Api, body: Json): readonly Said[] {
  const all: Said[] = []
  const calls: unknown[] = []
  // By number: vendors whose own API the client speaks get its names as they are, others may get short ones.
  const names: unknown[] = []
  let group: { readonly who: string, text: string, readonly others: Said[] } | undefined
  const end = (): void => {
    if (group === undefined) return
    const numberOf = ([, what]: Said): number => Number((what as Json)['of'])
    if (group.who === 'user') all.push(...group.others.toSorted((one, other) => numberOf(one) - numberOf(other)))
    const last = all.at(-1)
    // What the system says between two turns of one speaker divides them in some APIs.
    if (group.text !== '' && last?.[0] === group.who) all.splice(-1, 1, [group.who, `${String(last[1])}${group.text}`])
    else if (group.text !== '') all.push([group.who, group.text])
    if (group.who !== 'user') all.push(...group.others)
    group = undefined
  }
  for (const turn of viewOf(api, body, {}).turns) {
    if (turn.role === 'system' || turn.role === 'developer') continue
    const who = turn.role === 'assistant' ? 'assistant' : 'user'
    if (group?.who !== who) end()
    group ??= { who, text: '', others: [] }
    const texts = turn.role === 'tool' ? [] : turn.texts.filter(({ path }) => !path.includes('tool_result'))
    group.text += texts.map(({ value }) => String(value).replace(SYSTEM_TURN, '')).join('').replaceAll(/\s+/g, '')
    for (const { id, name, input } of turn.calls) {
      calls.push(id.value)
      if (!names.includes(name.value)) names.push(name.value)
      group.others.push(['call', { tool: names.indexOf(name.value), input: argumentsIn(input.value) }])
    }
    for (const [id, text] of turn.results.length > 0 ? resultsIn(api, turn) : []) {
      group.others.push(['result', { of: calls.lastIndexOf(id), text }])
    }
  }
  end()
  // What chat style puts in front of calls that follow no question is no part of the conversation.
  return all[0]?.[1] === GO_ON ? all.slice(1) : all
}

function saysNothing (step: Step): boolean {
  switch (step.kind) {
    case 'results': return step.texts.length === 0 && step.said.trim() === ''
    case 'answer': return step.calls.length === 0 && step.text.trim() === ''
    default: return step.text.trim() === ''
  }
}

/** A conversation in which nobody says anything is the vendor's to refuse, unless the system says all (T10). */
function isSilent ({ steps }: History): boolean {
  const others = steps.filter(({ kind }) => kind !== 'system')
  return (others.length === 0 ? steps : others).every(saysNothing)
}

for (const style of styles) {
  t.test(`no vendor refuses what a client of ${style} may send`, async (t) => {
    await fc.assert(fc.asyncProperty(histories, async (history) => {
      if (isSilent(history)) return
      const body = bodyIn[style](history)
      let first: readonly Said[] | undefined
      for (const vendor of vendors) {
        const sent = await send(vendor, style, body)
        // Where nobody asks anything, the question is the system's in messages style alone (T10).
        if (sent === undefined || !COMPARED.has(vendor)) continue
        if (history.steps.every(({ kind }) => kind === 'system')) continue
        const said = understood(strictVendors[vendor].api, sent)
        first ??= said
        assert.deepEqual(said, first, `${vendor} understands the conversation as the others`)
      }
    }), { numRuns: RUNS })
    t.equal(await gw.services.store.openHolds(), 0)
  })
}
