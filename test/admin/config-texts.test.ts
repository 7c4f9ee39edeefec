// Texts of all kinds of trouble, judged by the admin API: each is answered, nothing goes live, and who sends it learns
// nothing that is secret.
import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { codePoint } from '../support/code-point.ts'
import { BASE, configAdmin as admin } from '../support/config-admin.ts'
import { KEY } from '../support/gateway.ts'

const SEEDED = process.env['FC_SEED'] !== undefined && { seed: Number(process.env['FC_SEED']) }

/** Texts of all kinds of trouble. */
const trouble = fc.oneof(
  fc.string({ unit: codePoint, maxLength: 300 }),
  fc.string({ unit: fc.constantFrom('-', ' ', ':', '\n', '[', ']', '{', '}', '"', '\'', '&a', '*a', '|', '>', '#', '?',
    '!', '%', '\t', '<<', 'a', '1', '${', '}', '---', '\ud800', '\u0000'), maxLength: 80 }),
  // aliases of aliases
  fc.integer({ min: 1, max: 12 }).map((depth) => 'a0: &a0 [x, x, x, x, x, x, x, x, x]\n' +
    Array.from({ length: depth }, (_, i) => `a${i + 1}: &a${i + 1} [${Array(9).fill(`*a${i}`).join(', ')}]\n`)
      .join('')),
  fc.tuple(fc.constantFrom('[', '{a: ', '- ', '? '), fc.integer({ min: 1, max: 1000 }))
    .map(([open, depth]) => open.repeat(depth)),
  fc.integer({ min: 1, max: 1000 }).map((count) => Array.from({ length: count }, (_, i) => `k${i}: ${i}`).join('\n')),
  // the configuration with a part taken out, doubled, or changed
  fc.tuple(fc.nat(BASE.length), fc.nat(60), fc.string({ unit: codePoint, maxLength: 5 }))
    .map(([at, length, put]) => BASE.slice(0, at) + put + BASE.slice(at + length)),
  fc.tuple(fc.nat(BASE.length), fc.nat(200)).map(([at, length]) => BASE.slice(0, at + length) + BASE.slice(at))
)

t.test('texts at random: each is answered, nothing goes live, and no secret of the live one comes back', async (t) => {
  const own = await admin(t,
    BASE.replaceAll(KEY, 'sk-gw-' + 'L'.repeat(32)).replace('upstream-secret-0', 'Live-Secret-1'))
  await fc.assert(fc.asyncProperty(trouble, fc.constantFrom('/config/check', '/config/diff'), async (text, where) => {
    const { status, text: said, body } = await own.ask('POST', where, JSON.stringify({ text }))
    if (status !== 200) throw new Error(`${status}: ${said.slice(0, 300)}`)
    if (body.ok !== (body.problems.length === 0)) throw new Error(said.slice(0, 300))
    if (said.includes('L'.repeat(32)) || said.includes('Live-Secret-1')) throw new Error(said.slice(0, 300))
    if (said.length > 400_000) throw new Error(`an answer of ${said.length}`)
  }), { numRuns: 50, ...SEEDED })
  t.equal(own.live.state().generation, 1)
})

t.test('bombs end in their thread, and the gateway answers meanwhile', async (t) => {
  const own = await admin(t, BASE, { load: 'thread' })
  const bombs = ['['.repeat(2000), `a: &a [${'x, '.repeat(1000)}x]\n` +
    Array.from({ length: 300 }, (_, i) => `b${i}: [${Array(300).fill('*a').join(', ')}]`).join('\n')]
  for (const bomb of bombs) {
    let answered = 0
    const judged = own.check(bomb)
    let isOver = false
    judged.finally(() => { isOver = true }).catch(() => {})
    while (!isOver) {
      answered += (await fetch(`${own.urls.admin}/healthz`)).status === 200 ? 1 : 0
      await setTimeout(20)
    }
    const { ok, problems } = await judged
    t.equal(ok, false)
    t.ok(problems.length > 0 && answered > 1, `${problems[0]?.message}, ${answered} answers meanwhile`)
  }
})
