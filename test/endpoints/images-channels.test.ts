// Images in two channels: every mode against every state (src/README.md#channels). Each cell says who is asked (P, C),
// what the client gets, and what it pays: always for two images, and only where it gets them.
import { readFileSync } from 'node:fs'
import t from 'tap'
import { ask, imageGateway, imageModel, type Mode, modes, TIMES_OUT } from '../support/image-gateway.ts'

/** What the vendors of the two channels do: names that the simulator acts upon. */
const outcomes = {
  'both work': { premium: 'nano', cheap: 'nano' },
  'cheap fails': { premium: 'nano', cheap: 'sim-error-500' },
  'cheap times out': { premium: 'nano', cheap: TIMES_OUT },
  'premium fails': { premium: 'sim-error-503', cheap: 'nano' },
  'both fail': { premium: 'sim-error-503', cheap: 'sim-error-500' },
  refusal: { premium: 'sim-content-policy', cheap: 'sim-content-policy' }
} as const

type Outcome = keyof typeof outcomes
const columns = Object.keys(outcomes) as Outcome[]

const P = 'P: 200 premium $0.078'
const C = 'C: 200 cheap $0.04'
const CP = 'CP: 200 premium $0.078'
const PC = 'PC: 200 cheap $0.04'
const overloaded = '503 model_overloaded $0'
const unavailable = 'C: 503 model_unavailable $0'
const refused = '400 content_policy_violation $0'

const inCheap: Readonly<Record<Mode, readonly string[]>> = {
  //             both work  cheap fails  cheap times out  premium fails        both fail                   refusal
  premium: [P, P, P, `P: ${overloaded}`, `P: ${overloaded}`, `P: ${refused}`],
  cheap: [C, unavailable, unavailable, C, unavailable, `C: ${refused}`],
  auto_cheap: [C, CP, CP, C, `CP: ${overloaded}`, `C: ${refused}`],
  max: [C, CP, CP, C, `CP: ${overloaded}`, `C: ${refused}`],
  auto_premium: [P, P, P, PC, 'PC: 502 server_error $0', `P: ${refused}`]
}

/** In every mode, for a key in cheap mode too. */
const premiumOnly = (
  paid: string
): readonly string[] => [paid, paid, paid, `P: ${overloaded}`, `P: ${overloaded}`, `P: ${refused}`]

const sales: readonly { readonly sale: string, readonly model: (outcome: Outcome) => string,
  readonly resolution?: string, readonly expected: (mode: Mode) => readonly string[] }[] = [
    { sale: 'in Cheap', model: (outcome) => idOf('both', outcome), expected: (mode) => inCheap[mode] },
    { sale: 'a variant that is not in Cheap', model: (outcome) => idOf('both', outcome), resolution: '4K',
      expected: () => premiumOnly('P: 200 premium $0.24') },
    { sale: 'a model that is not in Cheap', model: (outcome) => idOf('solo', outcome), expected: () => premiumOnly(P) }
  ]

function idOf (sale: string, outcome: Outcome): string {
  return `${sale}-${outcome.replaceAll(' ', '-')}`
}

const models = columns.flatMap((outcome) => [
  imageModel(idOf('both', outcome), outcomes[outcome]),
  imageModel(idOf('solo', outcome), { premium: outcomes[outcome].premium })
]).join('')

for (const { sale, model, resolution, expected } of sales) {
  t.test(sale, async (t) => {
    const { gw, asked } = await imageGateway(t, { models })
    let spent = 0n
    for (const mode of modes) {
      for (const [i, outcome] of columns.entries()) {
        const { status, headers, body, charged, entries, openHolds, line } = await ask(gw, { model: model(outcome),
          prompt: 'a cat', n: 2, ...(resolution !== undefined && { resolution }) }, { key: mode })
        const who = asked().map((channel) => channel === 'premium' ? 'P' : 'C').join('')
        const what = status === 200 ? body.channel! : body.error!.code
        t.equal(`${who}: ${status} ${what} $${Number(charged) / 1e9}`, expected(mode)[i], `${mode}, ${outcome}`)
        t.equal(openHolds, 0)
        t.equal(entries.length, status === 200 ? 1 : 0)
        t.match(line, { attempts: who.length })
        if (status === 200) {
          t.equal(body.data!.length, 2)
          t.match(entries[0], { channel: body.channel, model: model(outcome), usage: { extras: { image: 2 } },
            usage_source: 'provider' })
          t.equal(headers.get('x-gateway-cost-usd'), String(Number(charged) / 1e9))
        } else {
          t.equal(body.error!.charged_usd, '0')
          t.equal(headers.has('retry-after'), status === 503, 'a wait with every 503')
        }
        spent += charged
      }
    }
    t.equal((await gw.services.store.balance('acme')).balance, 100_000_000_000n - spent,
      'the balance is what the answers said, to the nano-dollar')
    t.strictSame((await gw.services.store.verify()).differences, [])
  })
}

t.test('an account that allows no fallback', async (t) => {
  const { gw, asked } = await imageGateway(t, { models })
  await gw.rewrite(
    readFileSync(gw.file, 'utf8').replace('opening_balance_usd: 100 }',
      'opening_balance_usd: 100, allow_fallback: false }')
  )
  const table: readonly (readonly [Mode, Outcome, string, number, string])[] = [
    ['auto_cheap', 'cheap fails', 'cheap', 403, 'fallback_not_allowed'],
    ['auto_premium', 'premium fails', 'premium', 403, 'fallback_not_allowed'],
    ['cheap', 'cheap fails', 'cheap', 503, 'model_unavailable'],
    ['auto_cheap', 'refusal', 'cheap', 400, 'content_policy_violation']
  ]
  for (const [key, outcome, channel, status, code] of table) {
    const told = await ask(gw, { model: idOf('both', outcome), prompt: 'a cat' }, { key })
    t.strictSame([told.status, told.body.error?.code, asked(), told.entries], [status, code, [channel], []],
      `${key}, ${outcome}`)
  }
})

t.test('the four channel codes', async (t) => {
  const off = (channel: string): string =>
    imageModel(`no-${channel}`, { premium: 'nano', cheap: 'nano' }).replace(`      ${channel}:\n`,
      `      ${channel}:\n        enabled: false\n`)
  const { gw, asked } = await imageGateway(t, {
    models: imageModel('both', { premium: 'nano', cheap: 'nano' }) + imageModel('solo', { premium: 'nano' }) +
      imageModel('bargain', { cheap: 'nano' }) + off('cheap') + off('premium'),
    keys: `  - { id: cheaponly, account: acme, secret: sk-gw-${'cheaponly'.padEnd(32, '0')}, routing_mode: auto_cheap, channels: [cheap] }
  - { id: torn, account: acme, secret: sk-gw-${'torn'.padEnd(32, '0')}, routing_mode: cheap, channels: [premium] }
`
  })
  const table: readonly (readonly [key: string, model: string, resolution: string, status: number, code: string])[] = [
    ['cheaponly', 'solo', '1K', 403, 'model_not_in_channel'],
    ['cheaponly', 'both', '4K', 403, 'model_not_in_channel'],
    ['premium', 'bargain', '1K', 403, 'model_not_in_channel'],
    ['torn', 'both', '1K', 403, 'channel_not_allowed'],
    ['cheap', 'no-cheap', '1K', 503, 'model_unavailable'],
    ['cheap', 'no-cheap', '4K', 200, 'premium'],
    ['auto_cheap', 'no-cheap', '1K', 200, 'premium'],
    ['premium', 'no-premium', '1K', 503, 'channel_unavailable'],
    ['auto_cheap', 'no-premium', '4K', 503, 'channel_unavailable']
  ]
  for (const [key, model, resolution, status, code] of table) {
    const told = await ask(gw, { model, resolution, prompt: 'a cat' }, { key })
    if (status === 200) {
      t.match(told, { status, body: { channel: code } }, `${key} ${model} ${resolution}`)
      t.strictSame(asked(), [code])
      continue
    }
    t.strictSame([told.status, told.body.error?.code, told.entries], [status, code, []],
      `${key} ${model} ${resolution}`)
    if (code === 'model_unavailable') {
      t.match(told.body.error!.message, /^The cheap channel cannot generate now\. Nothing was charged\./)
    }
    if (code === 'channel_unavailable') {
      t.match(told.body.error!.message, /^The premium channel of this model is switched off, /)
    }
    t.strictSame(asked(), [], 'nobody was asked')
  }
  t.match(await ask(gw, { model: 'torn', prompt: 'x' }, { key: 'torn' }), { status: 400,
    body: { error: { code: 'model_not_found' } } })
  t.match(await ask(gw, { model: 'both', resolution: '4K', prompt: 'x' }, { key: 'torn' }), { status: 200,
    body: { channel: 'premium' } }, 'what is not in cheap is premium, for a key in cheap mode')
})
