// channel-router and the rule behind it: spec 4.6, protocol.md K 4.6.
import t from 'tap'
import { channelRouter, routeBy } from '../plugins/channel-router.ts'
import type { ChannelName, RoutingMode } from '../src/config/config.ts'
import { isGatewayError } from '../src/errors.ts'
import { ApiKey, Model, Plan } from '../src/facts.ts'
import { account, ask, asking, config, exchange, key, model, planOf, snapshot } from './exchange.ts'

const on = snapshot(config({
  models: [
    model('both', { premium: 'p/big*1', cheap: 'c/small*1' }),
    model('premium-only', { premium: 'p/big*1' }),
    model('cheap-only', { cheap: 'c/small*1' }),
    model('cheap-off', { premium: 'p/big*1', cheap: '!c/small*1' }),
    model('premium-off', { premium: '!p/big*1', cheap: 'c/small*1' }),
    model('all-off', { premium: '!p/big*1', cheap: '!c/small*1' })
  ],
  routes: [{ match: 'GET /v1/other', forward: 'u' }]
}), [channelRouter])

interface Asker { readonly mode?: RoutingMode, readonly channels?: readonly ChannelName[], readonly allow_fallback?: boolean }

async function plan (modelId: string, { mode = 'premium', channels = ['premium', 'cheap'], allow_fallback = true }: Asker = {}): Promise<string> {
  const asked = asking(on, modelId, { key: { routing_mode: mode, channels }, account: { allow_fallback } })
  try {
    await ask(asked)
    const { otherwise } = asked.get(Plan)
    return otherwise === undefined ? planOf(asked) : `${planOf(asked)} else ${otherwise}`
  } catch (thrown) {
    if (!isGatewayError(thrown)) throw thrown
    return `${thrown.status} ${thrown.code}`
  }
}

const P = 'premium:p/big'
const C = 'cheap:c/small'

t.test('the routing mode of the key picks the channel', async (t) => {
  const table: readonly (readonly [RoutingMode, string, string, string])[] = [
    //                both          premium-only  cheap-only
    ['premium', P, P, '403 model_not_in_channel'],
    ['cheap', C, P, C],
    ['auto_cheap', `${C} ${P}`, P, C],
    ['max', `${C} ${P}`, P, C],
    ['auto_premium', `${P} ${C}`, P, C]
  ]
  for (const [mode, both, premiumOnly, cheapOnly] of table) {
    t.equal(await plan('both', { mode }), both, `${mode}: both`)
    t.equal(await plan('premium-only', { mode }), premiumOnly, `${mode}: premium only`)
    t.equal(await plan('cheap-only', { mode }), cheapOnly, `${mode}: cheap only`)
  }
})

t.test('a key is kept to its channels', async (t) => {
  t.equal(await plan('both', { mode: 'auto_cheap', channels: ['premium'] }), P)
  t.equal(await plan('both', { mode: 'auto_premium', channels: ['cheap'] }), C)
  t.equal(await plan('premium-only', { mode: 'cheap', channels: ['cheap'] }), '403 model_not_in_channel')
  t.equal(await plan('cheap-only', { mode: 'auto_premium', channels: ['premium'] }), '403 model_not_in_channel')
  t.equal(await plan('premium-only', { channels: ['cheap'] }), '403 model_not_in_channel')
  t.equal(await plan('both', { channels: [] }), '403 model_not_in_channel')
})

t.test('a key whose mode asks for a channel that its list lacks is told so, not served by the other price', async (t) => {
  t.equal(await plan('both', { mode: 'cheap', channels: ['premium'] }), '403 channel_not_allowed')
  t.equal(await plan('both', { mode: 'premium', channels: ['cheap'] }), '403 channel_not_allowed')
})

t.test('a channel that is switched off is 503 channel_unavailable unless another may serve', async (t) => {
  t.equal(await plan('cheap-off', { mode: 'cheap' }), '503 channel_unavailable', 'cheap mode never pays premium for what cheap sells')
  t.equal(await plan('cheap-off', { mode: 'premium' }), P)
  t.equal(await plan('cheap-off', { mode: 'auto_cheap' }), P)
  t.equal(await plan('cheap-off', { mode: 'auto_premium' }), P)
  t.equal(await plan('premium-off', { mode: 'premium' }), '503 channel_unavailable')
  t.equal(await plan('premium-off', { mode: 'auto_premium' }), C)
  t.equal(await plan('all-off', { mode: 'auto_cheap' }), '503 channel_unavailable')
  const asked = asking(on, 'all-off')
  await t.rejects(ask(asked), { code: 'channel_unavailable' })
  t.equal(asked.find(Plan), undefined)
})

t.test('an account that allows no fallback gets none, and hears why when the only try fails', async (t) => {
  t.equal(await plan('both', { mode: 'auto_cheap', allow_fallback: false }), `${C} else fallback_not_allowed`)
  t.equal(await plan('both', { mode: 'auto_premium', allow_fallback: false }), `${P} else fallback_not_allowed`)
  t.equal(await plan('both', { mode: 'max', allow_fallback: false }), `${C} else fallback_not_allowed`)
  t.equal(await plan('cheap-off', { mode: 'auto_premium', allow_fallback: false }), P, 'what is switched off could not have helped')
  t.equal(await plan('both', { mode: 'auto_cheap', channels: ['cheap'], allow_fallback: false }), C, 'nor what the key may not use')
  t.equal(await plan('both', { mode: 'cheap', allow_fallback: false }), C, 'nor what the mode does not ask for')
  t.equal(await plan('premium-only', { mode: 'auto_cheap', allow_fallback: false }), P, 'the only channel is no fallback')
  t.equal(await plan('cheap-off', { mode: 'auto_cheap', allow_fallback: false }), '403 fallback_not_allowed')
})

t.test('the targets of a channel are drawn by weight, each place among those that are left', async (t) => {
  const weigh = (targets: string) => {
    const own = snapshot(config({ models: [model('m', { premium: targets })] }))
    return (random: () => number): string => {
      const asked = asking(own, 'm')
      void routeBy(random).onRequest!(asked)
      return asked.get(Plan).attempts.map(({ upstream }) => upstream).join('')
    }
  }
  const weighted = weigh('a/m*1 b/m*2 c/m*7')
  const draws = (...values: number[]) => () => values.shift()!
  t.equal(weighted(draws(0.09, 0.1, 0)), 'abc')
  t.equal(weighted(draws(0.1, 0, 0)), 'bac')
  t.equal(weighted(draws(0.299, 0.2, 0)), 'bca')
  t.equal(weighted(draws(0.3, 0.4, 0)), 'cba')
  t.equal(weighted(draws(0.999999, 0.999999, 0.999999)), 'cba')
  t.equal(weigh('a/m*0 b/m*0 c/m*1')(draws(0, 0, 0)), 'cab', 'weight 0 is never first, but is there when all else failed')

  const counts = { a: 0, b: 0, c: 0 }
  let state = 1
  const random = (): number => { state = state * 48271 % 2147483647; return state / 2147483647 }
  for (let i = 0; i < 20_000; i++) counts[weighted(random)[0] as 'a' | 'b' | 'c']++
  for (const [target, share] of [['a', 0.1], ['b', 0.2], ['c', 0.7]] as const) t.ok(Math.abs(counts[target] / 20_000 - share) < 0.01, `${target}: ${counts[target]}`)
})

t.test('all targets of the first channel come before those of the fallback', async (t) => {
  const own = snapshot(config({ models: [model('m', { premium: 'a/x*1 b/x*1', cheap: 'c/x*1 d/x*1' })] }), [channelRouter])
  for (let i = 0; i < 50; i++) {
    const asked = asking(own, 'm', { key: { routing_mode: 'auto_cheap' } })
    await ask(asked)
    t.match(planOf(asked), /^cheap:[cd]\/x cheap:[cd]\/x premium:[ab]\/x premium:[ab]\/x$/)
    t.equal(new Set(asked.get(Plan).attempts.map(({ upstream }) => upstream)).size, 4)
  }
})

t.test('each attempt carries what it is sold for', async (t) => {
  const asked = asking(on, 'both', { key: { routing_mode: 'cheap' } })
  await ask(asked)
  t.equal(asked.get(Plan).attempts[0]!.sold, on.models.get('both')!.channels.cheap)
})

t.test('requests that name no model are left alone; to count tokens is planned like an answer', async (t) => {
  const asked = exchange(on, { method: 'GET', path: '/v1/models' })
  await ask(asked)
  t.equal(asked.find(Plan), undefined)
  const counting = exchange(on, { path: '/v1/messages/count_tokens' })
  counting.set(ApiKey, { key: key(), account: account() })
  counting.set(Model, on.models.get('both')!)
  await ask(counting)
  t.equal(planOf(counting), P)
})
