// Who guesses tokens of the admin listener: slowed by address, however many connections and addresses there are, while
// who knows one never waits. With a clock that stands still until it is moved; one test over real sockets.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import fc from 'fast-check'
import t from 'tap'
import { digestOf } from '../../src/accounts/digests.ts'
import { adminHandler } from '../../src/admin/admin.ts'
import { Strangers } from '../../src/admin/wrong-tokens.ts'
import { compileNetworks } from '../../src/base/ip-address.ts'
import { startClock } from '../support/clock.ts'
import { services } from '../support/exchange.ts'
import { until } from '../support/until.ts'

const SEEDED = process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }
const [FIRST, LONGEST, FORGOTTEN] = [500, 32_000, 15 * 60_000]
const [HERE, ALL] = [16, 256]

/** Strangers whose waits are listed, and end when they are told to. */
function strangers (): {
  readonly waits: { readonly ms: number, readonly end: () => void }[], readonly pass: (ms: number) => void,
  readonly note: (address: string) => Promise<boolean>
} {
  let now = 1_800_000_000_000
  const waits: { readonly ms: number, readonly end: () => void }[] = []
  const own = new Strangers(services(() => now), (ms, callback) => {
    waits.push({ ms, end: callback })
    return () => {}
  })
  return { waits, pass: (ms) => { now += ms }, note: async (address) => await own.note(address, '/admin/v1/keys') }
}

t.test('each guess from an address waits twice as long as the one before, up to half a minute; then it is forgotten', async (t) => {
  const { waits, pass, note } = strangers()
  const guess = async (address: string): Promise<number> => {
    const noted = note(address)
    const { ms, end } = waits.pop()!
    end()
    t.equal(await noted, true)
    return ms
  }
  for (const ms of [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 32_000]) t.equal(await guess('10.0.0.1'), ms)
  pass(FORGOTTEN - 1)
  t.equal(await guess('10.0.0.1'), LONGEST)
  pass(FORGOTTEN)
  t.equal(await guess('10.0.0.1'), FIRST)
})

t.test('one subscriber has one count, in whatever spelling and however many addresses: 64 bits of IPv6 are one', async (t) => {
  for (const [one, other] of [['2001:db8:1:2::1', '2001:db8:1:2:ffff::9'], ['2001:db8::1', '2001:0db8:0:0::2'],
    ['::ffff:10.1.2.3', '10.1.2.3'], ['::1', '::2'], ['2001:db8:0:0:1::', '2001:db8::'], ['a::b:c:d:e:f', 'a:0:0:b::1']]) {
    const { waits, note } = strangers()
    void note(one!)
    void note(other!)
    t.strictSame(waits.map(({ ms }) => ms), [500, 1000], `${one} and ${other}`)
  }
  // Two may share a counter by chance: of ten pairs, not all do.
  const apart = ['2001:db8:1:3::1', '2001:db8:1::1', '10.0.0.2', '2001:db8:2:2::1', 'a:0:0:c::'].flatMap((other) =>
    ['10.0.0.1', '2001:db8:1:2::1'].map((one) => {
      const { waits, note } = strangers()
      void note(one)
      void note(other)
      return waits[1]!.ms
    })
  )
  t.ok(apart.filter((ms) => ms === FIRST).length >= 9, 'others are others')
})

interface Guess { readonly address: string, readonly gap: number }

const address = fc.oneof(
  fc.integer({ min: 1, max: 3 }).map((n) => `10.0.0.${n}`),
  fc.tuple(fc.nat(3), fc.nat(65_535)).map(([net, host]) => `2001:db8:0:${net.toString(16)}::${host.toString(16)}`),
  fc.ipV4(), fc.ipV6()
)

t.test('however many connections and addresses: waits grow and never shrink, so many wait and no more, in the same memory (generated)', async () => {
  await fc.assert(fc.asyncProperty(
    fc.array(fc.record({ address, gap: fc.constantFrom(0, 0, 0, 1, 700, 40_000) }), { minLength: 50, maxLength: 600 }),
    async (guesses: readonly Guess[]) => {
      const clock = startClock()
      let waiting = 0
      let most = 0
      let lastWait = 0
      const own = new Strangers(services(clock.now), (ms, callback) => {
        if (ms < FIRST || ms > LONGEST) throw new Error(`waits ${ms} ms`)
        most = Math.max(most, ++waiting)
        lastWait = ms
        return clock.timer(ms, () => { waiting--; callback() })
      })
      /** by the address as it is written: that others share its count only adds */
      const before = new Map<string, { readonly ms: number, readonly at: number }>()
      const open: Promise<boolean>[] = []
      for (const { address: from, gap } of guesses) {
        if (gap > 0) await clock.advance(gap)
        lastWait = 0
        open.push(own.note(from, '/'))
        const last = before.get(from)
        if (lastWait > 0) {
          const isFirst = last === undefined || clock.now() - last.at >= FORGOTTEN
          const grown = isFirst ? FIRST : Math.min(last.ms * 2, LONGEST)
          if (lastWait < grown) throw new Error(`${from} waits ${lastWait} ms, and not ${grown}`)
          before.set(from, { ms: lastWait, at: clock.now() })
        } else if (waiting < HERE) throw new Error('answered at once while few wait')
      }
      if (most > ALL) throw new Error(`${most} wait`)
      await clock.advance(LONGEST)
      if (waiting !== 0) throw new Error(`${waiting} wait for ever`)
      await Promise.all(open)
    }
  ), { numRuns: 30, ...SEEDED })
})

t.test('from one address 16 wait at a time, from all 256; the others are answered at once, and wait again when there is room', async (t) => {
  const { waits, note } = strangers()
  const first = Array.from({ length: HERE }, async () => await note('10.0.0.1'))
  t.equal(await note('10.0.0.1'), false)
  waits[0]!.end()
  t.equal(await first[0], true)
  const next = note('10.0.0.1')
  t.equal(waits.length, HERE + 1)
  const guesses = Array.from({ length: 20_000 }, async (_, i) => await note(`10.1.${i >> 8}.${i & 255}`))
  t.equal(waits.length, 1 + ALL, 'one has ended')
  for (const { end } of waits) end()
  const patient = (await Promise.all([...first, next, ...guesses])).filter((isPatient) => isPatient)
  t.equal(patient.length, 1 + ALL)
  const again = Array.from({ length: 20_000 }, async (_, i) => await note(`10.1.${i >> 8}.${i & 255}`))
  t.ok(waits.slice(1 + ALL).every(({ ms }) => ms > FIRST), 'more addresses than counters: all have guessed before')
  for (const { end } of waits) end()
  await Promise.all(again)
})

t.test('N13: beyond the bound no token of an address is looked at, except one that was right there before', async (t) => {
  const own = services(() => 0)
  const waits: (() => void)[] = []
  const [token, known] = ['admin-token-of-the-test', 'a-token-that-is-looked-up']
  let looks = 0
  own.directory.findToken = (digest) => {
    looks++
    return digest.equals(digestOf(known)) ? { id: 'one', record: { name: 'one', role: 'viewer' } } as never : undefined
  }
  own.directory.activeToken = () => ({ id: 'one', record: { name: 'one', role: 'viewer' } }) as never
  own.directory.noteUse = () => {}
  const server = createServer(adminHandler({
    services: own, metrics: async () => await own.metrics.print(), reasons: () => [], token,
    api: { knows: (path) => path.startsWith('/admin'),
      traits: () => ({ bodyLimit: 0, isStream: false, isCostly: false, cuts: undefined }),
      answer: async () => ({ status: 200, body: {} }) },
    trusted: compileNetworks(['127.0.0.1']),
    timer: (_ms, callback) => { waits.push(callback); return () => {} }
  }))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => new Promise((resolve) => { server.close(resolve); server.closeAllConnections() }))
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const ask = async (said: string, from = '10.0.0.1'): Promise<Response> => await fetch(`${base}/admin/v1/config`,
    { headers: { authorization: `Bearer ${said}`, 'x-forwarded-for': from } })
  const signIn = async (body: object): Promise<number> => (await fetch(`${base}/ui/session`, { method: 'POST',
    body: JSON.stringify(body), headers: { 'sec-fetch-site': 'same-origin', 'x-gateway-ui': '1',
      'x-forwarded-for': '10.0.0.1' } })).status
  t.equal((await ask(known)).status, 200)
  const guesses = Array.from({ length: HERE }, async (_, i) => await ask(`guess-${i}`))
  await until(() => waits.length === HERE)
  const before = looks
  for (let i = 0; i < 50; i++) {
    const refused = await ask(`more-${i}`)
    t.equal(refused.status, 429)
    t.equal(refused.headers.get('connection'), 'close')
    t.match(await refused.json(), { error: { code: 'busy' } })
  }
  t.equal((await ask(token)).status, 429, 'it was never right from there')
  t.equal(await signIn({ token: 'more' }), 429)
  t.equal(await signIn({ code: 'more' }), 429, 'a link is a guess too')
  t.equal(looks, before, 'none was looked at')
  t.equal((await ask(known)).status, 200, 'an operator at the same address goes on')
  t.equal(await signIn({ token: known }), 200)
  t.equal(own.lines.filter(({ msg }) => msg === 'a wrong admin token').length, 1)
  for (const end of waits) end()
  t.ok((await Promise.all(guesses)).every(({ status }) => status === 401))
})

t.test('brute force over real sockets, by 40 addresses behind a proxy that is trusted: counted, told of once a second, and who knows is answered while all of them wait', async (t) => {
  let now = 0
  const own = services(() => now)
  const waits: (() => void)[] = []
  const token = 'admin-token-of-the-test'
  const server = createServer(adminHandler({
    services: own, metrics: async () => await own.metrics.print(), reasons: () => [], token,
    api: { knows: () => true, traits: () => ({ bodyLimit: 0, isStream: false, isCostly: false, cuts: undefined }),
      answer: async () => ({ status: 200, body: {} }) },
    trusted: compileNetworks(['127.0.0.1']),
    timer: (_ms, callback) => { waits.push(callback); return () => {} }
  }))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => new Promise((resolve) => { server.close(resolve); server.closeAllConnections() }))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/admin/v1/config`
  const ask = async (said: string, from: string): Promise<Response> =>
    await fetch(url, { headers: { authorization: `Bearer ${said}`, 'x-forwarded-for': from } })
  const addresses = fc.sample(fc.ipV4(), { numRuns: 40, ...SEEDED })
  for (const from of addresses) t.equal((await ask(token, from)).status, 200)
  let answered = 0
  const guesses = Array.from({ length: 400 }, async (_, i) => {
    const response = await ask(`guess-${i}`, addresses[i % addresses.length]!)
    answered++
    return response
  })
  await until(() => waits.length + answered >= 400)
  t.ok(waits.length > ALL / 2 && waits.length <= ALL, `${waits.length} wait`)
  for (const from of addresses) t.equal((await ask(token, from)).status, 200, 'from the same address too')
  t.equal((await ask('guess', addresses[0]!)).status, 429)
  t.equal(answered, 400 - waits.length)
  for (const end of waits) end()
  const responses = await Promise.all(guesses)
  t.ok(responses.every(({ status }) => status === 401 || status === 429))
  const refused = responses.filter(({ status }) => status === 429)
  t.ok(refused.every(({ headers }) => headers.get('retry-after') === '32'))
  t.equal(refused.length, 400 - waits.length)
  t.equal(responses.filter((response) => response.headers.get('connection') === 'close').length, 400 - waits.length)
  t.match(await own.metrics.print(), /^gateway_rejected_total\{reason="admin_token"\} 401$/m)
  const lines = (): readonly unknown[] => own.lines.filter(({ msg }) => msg === 'a wrong admin token')
  t.match(lines(), [{ level: 'warn', address: String, path: '/admin/v1/config', wait_ms: FIRST }])
  now = 1000
  const last = ask('one more', '10.0.0.1')
  await until(() => lines().length === 2)
  t.match(lines(), [{}, { more: 400, address: '10.0.0.1' }])
  for (const end of waits) end()
  await last
  t.equal((await fetch(url)).status, 401)
  t.match(await own.metrics.print(), /reason="admin_token"\} 402$/m, 'who sent none has not guessed')
  t.notMatch(JSON.stringify(own.lines), /guess-|admin-token-of/, 'no token is in the log')
})
