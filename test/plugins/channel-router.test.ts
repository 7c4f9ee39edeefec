// channel-router and the rule behind it (src/README.md#channels); balancing, priorities, conversations.
import fc from 'fast-check'
import t from 'tap'
import { type Means, channelRouter, routeBy } from '../../plugins/channel-router/index.ts'
import type { ChannelName, Config, ModelConfig, RoutingMode, TargetConfig } from '../../src/config/config.ts'
import { isGatewayError } from '../../src/errors.ts'
import { ApiKey, Body, Model, Plan } from '../../src/core/facts.ts'
import { account, ask, asking, config, exchange, key, model, planOf, snapshot,
  upstreamConfig } from '../support/exchange.ts'

const on = snapshot(config({
  models: [
    model('both', { premium: 'p/big*1', cheap: 'c/small*1' }),
    model('premium-only', { premium: 'p/big*1' }),
    model('cheap-only', { cheap: 'c/small*1' }),
    model('cheap-off', { premium: 'p/big*1', cheap: '!c/small*1' }),
    model('premium-off', { premium: '!p/big*1', cheap: 'c/small*1' }),
    model('all-off', { premium: '!p/big*1', cheap: '!c/small*1' }),
    out(model('premium-out', { premium: 'p/big*1', cheap: 'c/small*1' }), 'premium'),
    out(model('cheap-out', { premium: 'p/big*1', cheap: 'c/small*1' }), 'cheap'),
    out(model('both-out', { premium: 'p/big*1', cheap: 'c/small*1' }), 'premium', 'cheap'),
    out(model('cheap-off-premium-out', { premium: 'p/big*1', cheap: '!c/small*1' }), 'premium'),
    model('all-over', { premium: 'resting/big*1', cheap: 'c/small*1' })
  ],
  upstreams: { resting: upstreamConfig({ maintenance: true }) },
  routes: [{ match: 'GET /v1/other', forward: 'u' }]
}), [channelRouter])

/** With channels in maintenance. */
function out (of: ModelConfig, ...channels: readonly ChannelName[]): ModelConfig {
  return {
    ...of,
    channels: Object.fromEntries(Object.entries(of.channels)
      .map(([name, sold]) => [name, { ...sold, maintenance: channels.includes(name as ChannelName) }]))
  }
}

interface Asker {
  readonly mode?: RoutingMode
  readonly channels?: readonly ChannelName[]
  readonly allow_fallback?: boolean
}

async function plan (
  modelId: string,
  { mode = 'premium', channels = ['premium', 'cheap'], allow_fallback = true }: Asker = {}
): Promise<string> {
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

/** Nothing runs anywhere, and everybody is well. */
const idle: Omit<Means, 'random'> = { upstreams: {}, health: { loadOf: () => 0, waitOf: () => 0 } }

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
  t.equal(await plan('cheap-off', { mode: 'cheap' }), '503 channel_unavailable',
    'cheap mode never pays premium for what cheap sells')
  t.equal(await plan('cheap-off', { mode: 'premium' }), P)
  t.equal(await plan('cheap-off', { mode: 'auto_cheap' }), P)
  t.equal(await plan('cheap-off', { mode: 'auto_premium' }), P)
  t.equal(await plan('premium-off', { mode: 'premium' }), '503 channel_unavailable')
  t.equal(await plan('premium-off', { mode: 'auto_premium' }), C)
  t.equal(await plan('all-off', { mode: 'auto_cheap' }), '503 channel_unavailable')
  const asked = asking(on, 'all-off')
  await t.rejects(ask(asked), { code: 'channel_unavailable' })
  t.strictSame(asked.get(Plan), { attempts: [], refused: 'premium' }, 'metrics name the channel that failed')
})

t.test('an account that allows no fallback gets none, and hears why when the only try fails', async (t) => {
  t.equal(await plan('both', { mode: 'auto_cheap', allow_fallback: false }), `${C} else fallback_not_allowed`)
  t.equal(await plan('both', { mode: 'auto_premium', allow_fallback: false }), `${P} else fallback_not_allowed`)
  t.equal(await plan('both', { mode: 'max', allow_fallback: false }), `${C} else fallback_not_allowed`)
  t.equal(await plan('cheap-off', { mode: 'auto_premium', allow_fallback: false }), P,
    'what is switched off could not have helped')
  t.equal(await plan('both', { mode: 'auto_cheap', channels: ['cheap'], allow_fallback: false }), C,
    'nor what the key may not use')
  t.equal(await plan('both', { mode: 'cheap', allow_fallback: false }), C, 'nor what the mode does not ask for')
  t.equal(await plan('premium-only', { mode: 'auto_cheap', allow_fallback: false }), P,
    'the only channel is no fallback')
  t.equal(await plan('cheap-off', { mode: 'auto_cheap', allow_fallback: false }), '403 fallback_not_allowed')
})

t.test('a channel in maintenance serves nobody, and is not one that the model is not sold in', async (t) => {
  const M = '503 maintenance'
  const table: readonly (readonly [RoutingMode, string, string, string, string, string])[] = [
    //                premium-out  cheap-out  both-out  cheap-off-premium-out     all-over (premium)
    ['premium', M, P, M, M, M],
    ['cheap', C, M, M, '503 channel_unavailable', C],
    ['auto_cheap', C, P, M, M, C],
    ['auto_premium', C, P, M, M, C]
  ]
  for (const [mode, ...wanted] of table) {
    const models = ['premium-out', 'cheap-out', 'both-out', 'cheap-off-premium-out', 'all-over']
    for (const [i, id] of models.entries()) t.equal(await plan(id, { mode }), wanted[i], `${mode}: ${id}`)
  }
  t.equal(await plan('premium-out', { mode: 'auto_premium', allow_fallback: false }), M,
    'maintenance alone is to blame')
  t.equal(await plan('premium-out', { mode: 'auto_cheap', allow_fallback: false }), C,
    'what is in maintenance could not have helped')
  t.equal(await plan('cheap-off-premium-out', { mode: 'auto_cheap', allow_fallback: false }), '503 channel_unavailable',
    'without maintenance it would be refused too')
  t.equal(await plan('premium-out', { mode: 'cheap', channels: ['premium'] }), '403 channel_not_allowed')
  t.equal(await plan('premium-only', { mode: 'cheap' }), P)
})

t.test('the targets of a channel are drawn by weight, each place among those that are left', async (t) => {
  const weigh = (targets: string) => {
    const own = snapshot(config({ models: [model('m', { premium: targets })] }))
    return (random: () => number): string => {
      const asked = asking(own, 'm')
      void routeBy({ ...idle, random }).onRequest!(asked)
      return asked.get(Plan).attempts.map(({ upstream }) => upstream).join('')
    }
  }
  const weighted = weigh('a/m*1 b/m*2 c/m*7')
  const draws = (...values: number[]) => () => values.shift()!
  // Two draws for each place: while nothing runs anywhere, the first of them has it.
  t.equal(weighted(draws(0.09, 0.5, 0.1, 0)), 'abc')
  t.equal(weighted(draws(0.1, 0.5, 0, 0)), 'bac')
  t.equal(weighted(draws(0.299, 0.5, 0.2, 0)), 'bca')
  t.equal(weighted(draws(0.3, 0.5, 0.4, 0)), 'cba')
  t.equal(weighted(() => 0.999999), 'cba')
  t.equal(weigh('a/m*0 b/m*0 c/m*1')(() => 0), 'cab', 'weight 0 is never first, but is there when all else failed')

})

/** The same numbers each time (Lehmer's generator). */
function seeded (): () => number {
  let state = 1
  return () => { state = state * 48271 % 2147483647; return state / 2147483647 }
}

interface Setting {
  /** `name`, `name*weight`, `name@priority` or both */
  readonly targets: string
  readonly sticky?: boolean
  /** what runs at each */
  readonly loads?: Readonly<Record<string, number>>
  /** those that can't be asked now */
  readonly aside?: readonly string[]
  readonly maintenance?: readonly string[]
  readonly random?: () => number
}

function targetsOf (text: string): TargetConfig[] {
  return text.split(' ').map((target) => {
    const [, upstream, weight = '1', priority = '0'] = /^(\w+)(?:\*(\d+))?(?:@(\d+))?$/.exec(target)!
    return { upstream: upstream!, model: 'm', weight: Number(weight), priority: Number(priority) }
  })
}

/** @returns the order in which the targets are asked, for one body after the other */
function ordering (
  { targets: text, sticky = false, loads = {}, aside = [], maintenance = [], random = seeded() }: Setting
): (body?: Body) => string {
  const targets = targetsOf(text)
  const upstreams: Config['upstreams'] = Object.fromEntries(
    targets.map(({ upstream }) => [upstream, upstreamConfig({ maintenance: maintenance.includes(upstream) })])
  )
  const made = model('m', { premium: 'x/m*1' })
  const sold: ModelConfig = { ...made, channels: { premium: { ...made.channels.premium!, sticky, targets } } }
  const own = snapshot(config({ models: [sold], upstreams }))
  const hooks = routeBy({ upstreams, random,
    health: { loadOf: (upstream) => loads[upstream] ?? 0, waitOf: ({ name }) => aside.includes(name) ? 1000 : 0 } })
  return (body = {}) => {
    const asked = asking(own, 'm')
    asked.set(Body, body)
    asked.request = { body, stream: false }
    void hooks.onRequest!(asked)
    return asked.get(Plan).attempts.map(({ upstream }) => upstream).join(' ')
  }
}

/** How often each target is the first. */
function firsts (
  order: (body?: Body) => string,
  times: number,
  bodyOf: (i: number) => Body = () => ({})
): Record<string, number> {
  const counts: Record<string, number> = {}
  for (let i = 0; i < times; i++) {
    const [first] = order(bodyOf(i)).split(' ')
    counts[first!] = (counts[first!] ?? 0) + 1
  }
  return counts
}

function near (
  counts: Readonly<Record<string, number>>,
  wanted: Readonly<Record<string, number>>,
  tolerance: number
): boolean {
  const sum = Object.values(counts).reduce((all, count) => all + count, 0)
  return Object.entries(wanted).every(([name, share]) => Math.abs((counts[name] ?? 0) / sum - share) < tolerance)
}

t.test('of two that are drawn the one that has less to do for its weight is asked', async (t) => {
  t.equal(ordering({ targets: 'a b', loads: { a: 1 }, random: () => 0 })(), 'b a')
  t.equal(ordering({ targets: 'a b', loads: { a: 1, b: 1 }, random: () => 0 })(), 'a b',
    'the first that was drawn, where they are equal')
  t.equal(ordering({ targets: 'a*3 b*1', loads: { a: 2, b: 1 }, random: () => 0 })(), 'a b',
    'two thirds are less than one')
  t.equal(ordering({ targets: 'a*3 b*1', loads: { a: 4, b: 1 }, random: () => 0 })(), 'b a')
  t.equal(ordering({ targets: 'a b c', loads: { a: 9, b: 5, c: 1 }, random: () => 0 })(), 'b c a',
    'of two, not of all: what nobody draws is not looked at')
  t.equal(ordering({ targets: 'a*1 b*0', loads: { a: 1000 } })(), 'a b', 'and never one that weighs nothing')
})

t.test('while nothing runs the shares are the weights, in each place', async (t) => {
  const order = ordering({ targets: 'a*1 b*2 c*7 d*0' })
  const seen = Array.from({ length: 20_000 }, () => order().split(' '))
  const count = (place: number): Record<string, number> =>
    Object.fromEntries(['a', 'b', 'c', 'd'].map((name) => [name, seen.filter((names) => names[place] === name).length]))
  t.ok(near(count(0), { a: 0.1, b: 0.2, c: 0.7, d: 0 }, 0.01), JSON.stringify(count(0)))
  // Of those that are left, by weight: b follows c in two of three, and so on.
  t.ok(near(count(1), { a: 0.2 * 0.1 / 0.8 + 0.7 * 0.1 / 0.3, b: 0.1 * 0.2 / 0.9 + 0.7 * 0.2 / 0.3 }, 0.015),
    JSON.stringify(count(1)))
  t.equal(count(3)['d'], 20_000)
})

t.test('loads even out: a slow target gets less than its weight, and nobody gets all', async (t) => {
  const loads: Record<string, number> = { a: 0, b: 0, c: 0 }
  const order = ordering({ targets: 'a b c', loads })
  const running: { readonly name: string, readonly until: number }[] = []
  const counts: Record<string, number> = { a: 0, b: 0, c: 0 }
  for (let now = 0; now < 6000; now++) {
    for (const one of running.filter(({ until }) => until <= now)) {
      loads[one.name]!--
      running.splice(running.indexOf(one), 1)
    }
    const [name] = order().split(' ') as [string]
    counts[name]!++
    loads[name]!++
    running.push({ name, until: now + (name === 'a' ? 90 : 30) })               // a takes three times as long
  }
  t.ok(counts['a']! > 300 && counts['a']! < 1600, JSON.stringify(counts))
  t.ok(Math.abs(counts['b']! - counts['c']!) < 400, JSON.stringify(counts))
  t.ok(Math.max(...Object.values(loads)) - Math.min(...Object.values(loads)) < 12, JSON.stringify(loads))
})

t.test('a lower number is asked first, whatever its load', async (t) => {
  t.equal(ordering({ targets: 'c@2 a b@1', loads: { a: 99 } })(), 'a b c')
  t.equal(ordering({ targets: 'a b@1', aside: ['a'] })(), 'a b', 'the core passes over what it can\'t ask')
  t.equal(ordering({ targets: 'a b c@1', aside: ['a'], random: () => 0 })(), 'b a c')
  t.equal(ordering({ targets: 'a b@1 c@1', maintenance: ['a', 'b'] })(), 'c')
})

const setting = fc.record({
  targets: fc.array(fc.record({ weight: fc.nat(5), priority: fc.nat(2), load: fc.nat(9), isAside: fc.boolean() }), {
    minLength: 1,
    maxLength: 8
  }).filter((list) => list.some(({ weight }) => weight > 0)),
  sticky: fc.boolean(),
  user: fc.string()
})

t.test('whatever the loads, each target is there once, by its priority, and within it those that can be asked come first', async () => {
  fc.assert(fc.property(setting, ({ targets, sticky, user }) => {
    const named = targets.map((target, i) => ({ ...target, name: `t${i}` }))
    const order = ordering({
      targets: named.map(({ name, weight, priority }) => `${name}*${weight}@${priority}`).join(' '),
      sticky,
      loads: Object.fromEntries(named.map(({ name, load }) => [name, load])),
      aside: named.filter(({ isAside }) => isAside).map(({ name }) => name)
    })({ metadata: { user_id: user } }).split(' ').map((name) => named.find((target) => target.name === name)!)
    const rank = (target: typeof named[number]): number =>
      target.priority * 4 + (target.isAside && isShared(target) ? 2 : 0) +
      (target.weight === 0 && !target.isAside ? 1 : 0)
    const isShared = ({ priority }: typeof named[number]): boolean =>
      named.filter((other) => other.priority === priority).length > 1
    return new Set(order).size === named.length &&
      order.every((target, i) => i === 0 || rank(order[i - 1]!) <= rank(target))
  }), { numRuns: 300 })
})

const talk = (user: string, first: string): Body => ({
  model: 'm',
  metadata: { user_id: user },
  system: 'You are a helpful assistant.',
  messages: [{ role: 'user', content: first }]
})

t.test('sticky: when a target leaves, comes or is aside, only its own conversations move', async () => {
  const weighted = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 2, maxLength: 8 })
  fc.assert(fc.property(weighted, fc.nat(), fc.string(), fc.string(), (weights, chosen, user, first) => {
    const names = weights.map((weight, i) => `t${i}*${weight}`)
    const out = chosen % names.length
    const others = names.filter((_, i) => i !== out).join(' ')
    const body = talk(user, first)
    const all = ordering({ targets: names.join(' '), sticky: true })(body)
    const without = all.split(' ').filter((name) => name !== `t${out}`).join(' ')
    return ordering({ targets: others, sticky: true })(body) === without &&
      ordering({ targets: names.join(' '), sticky: true, maintenance: [`t${out}`] })(body) === without &&
      ordering({ targets: names.join(' '), sticky: true, aside: [`t${out}`] })(body) === `${without} t${out}` &&
      ordering({ targets: names.toReversed().join(' '), sticky: true, loads: { t0: 99 } })(body) === all
  }), { numRuns: 200 })
})

t.test('sticky: conversations spread by weight, each stays, and every process says the same', async (t) => {
  const order = ordering({ targets: 'a*1 b*2 c*7 d*0', sticky: true })
  const bodyOf = (i: number): Body => talk(`user-${i % 50}`, `question ${i}`)
  const counts = firsts(order, 10_000, bodyOf)
  t.ok(near(counts, { a: 0.1, b: 0.2, c: 0.7, d: 0 }, 0.01), JSON.stringify(counts))
  for (let i = 0; i < 20; i++) t.equal(order(bodyOf(i)), order(bodyOf(i)))
  // Written down, not computed: another process, and next year's version, must agree with it.
  t.equal(Array.from({ length: 12 }, (_, i) => order(bodyOf(i))[0]).join(''), 'ccaccacccabc')
})

t.test('sticky: later turns of a conversation are known again', async (t) => {
  const order = ordering({ targets: Array.from({ length: 40 }, (_, i) => `t${i}`).join(' '), sticky: true })
  const image = (nonce: string): unknown => ({
    type: 'image',
    source: { type: 'base64', media_type: 'image/png', data: `blob-${nonce}:0\x7f` }
  })
  const long = 'word '.repeat(2000)
  const text = (words: string, more = {}): unknown => ({ type: 'text', text: words, ...more })
  const cached = { cache_control: { type: 'ephemeral' } }
  const later = [{ role: 'assistant', content: 'Hi' }, { role: 'user', content: 'And then?' }]
  const pairs: Readonly<Record<string, readonly [Body, Body]>> = {
    'a text': [talk('u', 'Hello'), { ...talk('u', 'Hello'), messages: [{ role: 'user', content: 'Hello' }, ...later],
      temperature: 1 }],
    'a text that was a block while it was to be cached': [
      { system: [text('Be brief.', cached)], messages: [{ role: 'user', content: [text('Hello', cached)] }] },
      { system: 'Be brief.', messages: [{ role: 'user', content: 'Hello' }, ...later] }
    ],
    'an image that waits elsewhere': [
      { messages: [{ role: 'user', content: [image('1'), text('What is it?')] }] },
      { messages: [{ role: 'user', content: [image('2'), text('What is it?')] }, ...later] }
    ],
    'Claude Code, whose first line is another each time': [
      { system: [text('x-anthropic-billing-header: cc_version=2.1; cch=11111;'), text('You are Claude Code.')],
        messages: [{ role: 'user', content: long }] },
      { system: [text('x-anthropic-billing-header: cc_version=2.1; cch=22222;'), text('You are Claude Code.')],
        messages: [{ role: 'user', content: long }, ...later] }
    ]
  }
  for (const [name, [first, second]] of Object.entries(pairs)) t.equal(order(second), order(first), name)

  const distinct: readonly Body[] = [
    talk('u', 'Hello'), talk('u', 'Hello!'), talk('v', 'Hello'), talk('u', `${long}a`), talk('u', `${long}b`),
    { ...talk('u', 'Hello'), system: 'Another one.' },
    { ...talk('u', 'Hello'), prompt_cache_key: 'k1' },
    { ...talk('u', 'Hello'), prompt_cache_key: 'k2' },
    talk('u'.repeat(400) + '1', 'Hello'), talk('u'.repeat(400) + '2', 'Hello'),
    { messages: 'nonsense' }, { system: 7, messages: [null, 7, { role: 'user' }], metadata: { user_id: 7 } }
  ]
  // The last two hold nothing that could be known again, and are one.
  t.equal(new Set(distinct.map((body) => order(body))).size, distinct.length - 1, 'and no other is taken for it')
})

t.test('all targets of the first channel come before those of the fallback', async (t) => {
  const own = snapshot(config({ models: [model('m', { premium: 'a/x*1 b/x*1', cheap: 'c/x*1 d/x*1' })] }), [
    channelRouter
  ])
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
