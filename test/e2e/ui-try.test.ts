// The page Try it in a real Chromium, against a real gateway: streams, answers, errors, images and cuts, by keyboard
// and by mouse; what was quoted beside what it has cost; and the programs that it shows, run as they are.
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { gateway, KEY, type TestGateway, yaml } from '../support/gateway.ts'
import { imageGateway, keyOf } from '../support/image-gateway.ts'
import { until } from '../support/until.ts'
import { blockStart, blockStop, cut, errorReply, messageEnd, messageStart, message, json, stall, textDelta, upstream,
  wait, type Received, type Script } from '../support/upstream.ts'
import { browser, faultsOf, pageOf, signIn, tabTo, TOKEN } from './browser.ts'

const ALL = 'auth, key-policy, rate-limit, schema-validate, chat-to-messages, responses-to-messages, channel-router, ' +
  'billing-meter, error-normalize'

const promptOf = ({ body }: Received): string => JSON.stringify(body?.['messages'])

/** What is asked for stands in the prompt. @param gate holds up a stream behind its first words */
async function desk (t: Test, gate: Promise<void> = Promise.resolve()): Promise<TestGateway> {
  const up = await upstream(t, (received): Script => {
    const asked = promptOf(received)
    if (/fail/.test(asked)) return errorReply(500, 'api_error', 'the machine is out of luck')
    if (received.body?.['stream'] !== true) return json(message('Hello there'))
    const first = [messageStart(), blockStart(0), textDelta(0, 'Hello ')]
    if (/for ever/.test(asked)) return [...first, stall()]
    if (/cut/.test(asked)) return [...first, cut()]
    return [...first, wait(gate), textDelta(0, 'there'), blockStop(0), messageEnd()]
  })
  return await gateway(t, yaml([up.url], '', ALL))
}

async function fill (page: Page, prompt: string, secret = KEY): Promise<void> {
  await page.getByLabel('Secret of the key').fill(secret)
  await page.getByLabel('Prompt').fill(prompt)
}

/** What stands beside a name in the answer. */
async function told (page: Page, name: string): Promise<string> {
  return await page.getByRole('region', { name: 'The answer', exact: true })
    .locator('dl > div', { has: page.locator('dt', { hasText: new RegExp(`^${name}$`) }) }).locator('dd').innerText()
}

/** Waits until it is known. */
async function costOf (page: Page): Promise<{ readonly real: string, readonly quoted: string }> {
  await page.getByRole('heading', { name: 'Who was asked' }).waitFor()
  return { real: await told(page, 'Real'), quoted: await told(page, 'Quoted, at most') }
}

const usd = (text: string): number => Number(text.replace('$', ''))

for (const theme of ['light', 'dark'] as const) {
  await t.test(`${theme}: a stream is tried by keyboard alone: quoted before, seen as it comes, its real cost after`, async (t) => {
    const gate = Promise.withResolvers<void>()
    const own = await desk(t, gate.promise)
    const { page, complaints } = await pageOf(await browser(t), theme)
    await signIn(page, own.urls.admin, '#/try')
    await page.getByRole('heading', { name: 'Try it' }).waitFor()
    await tabTo(page, '[name=secret]')
    await page.keyboard.type(KEY)
    await tabTo(page, '[name=maxTokens]')
    await page.keyboard.press('ControlOrMeta+A')
    await page.keyboard.type('100')
    await tabTo(page, '[name=prompt]')
    await page.keyboard.type('Say hello')
    const quote = page.getByRole('region', { name: 'The quote' })
    await quote.getByText('sent to a target').waitFor()
    const quoted = await quote.locator('.quoted').innerText()
    t.ok(usd(quoted) >= 100 * 15e-6, quoted)
    t.match(await quote.innerText(), /u0\s+vendor-m1\s+premium/, 'where it would go')
    t.strictSame(await faultsOf(page), [], 'before')
    await tabTo(page, 'button.first')
    await page.keyboard.press('Enter')
    const text = page.getByRole('region', { name: 'Text of the answer' })
    await text.getByText('Hello').waitFor()
    t.equal((await text.innerText()).trim(), 'Hello', 'while it comes')
    t.equal(await told(page, 'Whole'), 'not over')
    t.strictSame(await faultsOf(page), [], 'while it comes')
    gate.resolve()
    await until(async () => await text.innerText() === 'Hello there')
    const cost = await costOf(page)
    t.equal(cost.quoted, quoted)
    t.equal(cost.real, '$0.000105', '10 tokens in, 5 out')
    t.match(await told(page, 'Compared'), /within the quote/)
    t.match(await told(page, 'First token'), /^[\d.]+ ms$/)
    t.match(await told(page, 'Whole'), /^[\d.]+ ms$/)
    t.match(await told(page, 'Usage'), /input 10, output 5/)
    t.strictSame(await faultsOf(page), [], 'after')
    await tabTo(page, 'section a[href^="#/requests/"]')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: /^Request req_/ }).waitFor()
    await page.goBack()
    await page.getByRole('heading', { name: 'Try it' }).waitFor()
    t.equal(await page.getByLabel('Secret of the key').inputValue(), '', 'the secret was in the memory of the page')
    const kept = await page.evaluate<string>('JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])')
    t.notOk(kept.includes(KEY))
    t.strictSame(complaints, [])
  })
}

await t.test('each address of text models is asked and read, as a stream and whole; the error of each is told with its request', async (t) => {
  const own = await desk(t)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/try')
  for (const path of ['/v1/messages', '/v1/chat/completions', '/v1/responses']) {
    await page.getByLabel('Address', { exact: true }).selectOption(path)
    for (const stream of [true, false]) {
      await page.getByLabel('Stream').setChecked(stream)
      await fill(page, 'Say hello')
      await page.getByRole('button', { name: 'Send' }).click()
      await until(async () => await page.getByRole('region', { name: 'Text of the answer' }).innerText() === 'Hello there')
      t.equal((await costOf(page)).real, '$0.000105', `${path} ${stream}`)
      t.match(await told(page, stream ? 'First token' : 'First byte'), /ms$/)
      await fill(page, 'Please fail')
      await page.getByRole('button', { name: 'Send' }).click()
      const alert = page.getByRole('alert')
      await alert.waitFor()
      t.match(await alert.innerText(), /^(?:api_error|server_error|upstream_error|service_unavailable|bad_gateway)\S*: \S/)
      const id = await alert.getByRole('link').innerText()
      t.match(id, /^req_\w{24}$/)
      const { real } = await costOf(page)
      t.ok(['no charge', '$0'].includes(real), real)
      t.match(await page.getByRole('region', { name: 'Attempts' }).innerText(), /the machine is out of luck/)
    }
  }
  t.strictSame(await faultsOf(page), [])
  t.strictSame(complaints, [])
})

await t.test('a cut stream is told as one, a stopped one too, and both are charged for what came', async (t) => {
  const own = await desk(t)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/try')
  await fill(page, 'Be cut')
  await page.getByRole('button', { name: 'Send' }).click()
  await page.getByRole('alert').waitFor()
  t.match(await page.getByRole('alert').innerText(), /stream/)
  t.equal(await page.getByRole('region', { name: 'Text of the answer' }).innerText(), 'Hello ')
  const { real, quoted } = await costOf(page)
  t.ok(usd(real) > 0 && usd(real) < usd(quoted), `${real} of ${quoted}`)
  await fill(page, 'Go on for ever')
  await page.getByRole('button', { name: 'Send' }).click()
  await page.getByRole('region', { name: 'Text of the answer' }).getByText('Hello').waitFor()
  await page.getByRole('button', { name: 'Stop' }).click()
  await page.getByText('You stopped it.').waitFor()
  const stopped = await costOf(page)
  t.ok(usd(stopped.real) > 0 && usd(stopped.real) < usd(stopped.quoted), stopped.real)
  t.strictSame(await faultsOf(page), [])
  t.strictSame(complaints, [])
})

await t.test('what the gateway would refuse is said before it is sent; a wrong secret, at its field; nothing is spent', async (t) => {
  const own = await desk(t)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/try')
  await page.getByLabel('Max tokens').fill('70000')
  await fill(page, 'Say hello', 'sk-gw-' + 'x'.repeat(32))
  await page.getByText(/would be refused: 4\d\d/).waitFor()
  await page.getByLabel('Max tokens').fill('100')
  await page.getByText('sent to a target').waitFor()
  await page.getByRole('button', { name: 'Send' }).click()
  await page.locator('[name=secret][aria-invalid=true]').waitFor()
  t.match(await page.getByRole('alert').innerText(), /secret is not that of the key acme-dev/)
  t.strictSame(await faultsOf(page), [])
  await page.getByLabel('Key', { exact: true }).fill('nobody')
  await page.getByRole('region', { name: 'The quote' }).getByText('There is no key "nobody"').waitFor()
  const accounts = await fetch(`${own.urls.admin}/admin/v1/accounts/acme`, { headers: { authorization: `Bearer ${TOKEN}` } })
  t.match(await accounts.json(), { balance_usd: '100', held_usd: '0' })
  t.strictSame(complaints, [])
})

await t.test('a viewer has the quote and nothing to send with', async (t) => {
  const own = await desk(t)
  const made = await fetch(`${own.urls.admin}/admin/v1/tokens`, { method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}` }, body: JSON.stringify({ name: 'Vera', role: 'viewer' }) })
  const { secret } = await made.json() as { readonly secret: string }
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/try', secret)
  await page.getByLabel('Prompt').fill('Say hello')
  await page.getByText('sent to a target').waitFor()
  t.strictSame([await page.getByLabel('Secret of the key').count(), await page.getByRole('button', { name: 'Send' }).count()],
    [0, 0])
  await page.getByText('Sending takes the role operator').waitFor()
  t.strictSame(await faultsOf(page), [])
  t.strictSame(complaints, [])
})

await t.test('an image is shown, and costs exactly what was quoted, in the channel of the key', async (t) => {
  const { gw } = await imageGateway(t)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, gw.urls.admin, '#/try')
  for (const [mode, resolution, cost] of [['premium', '2K', '$0.06'], ['cheap', '1K', '$0.02']] as const) {
    await page.getByLabel('Key', { exact: true }).fill(mode)
    await page.getByLabel('resolution').selectOption(resolution)
    await fill(page, 'A cat', keyOf(mode))
    await until(async () => await page.locator('.quoted').innerText().catch(() => '') === cost)
    await page.getByRole('button', { name: 'Send' }).click()
    t.strictSame(await costOf(page), { quoted: cost, real: cost })
    t.equal(await told(page, 'Compared'), 'exactly as quoted')
    t.equal(await told(page, 'Channel'), mode)
    const image = page.getByAltText('What the model made of the prompt')
    const width = async (): Promise<number> =>
      await image.evaluate((one) => (one as unknown as { naturalWidth: number }).naturalWidth)
    await until(async () => await width() > 0)
    t.strictSame(await faultsOf(page), [])
    await page.reload()    // until the next is sent, the page tells the cost of this one
  }
  t.strictSame(complaints, [])
})

await t.test('a video is a task that another page follows: nothing is charged until it is finished', async (t) => {
  const own = await gateway(t, yaml(['simulator:'], '', ALL)
    .replace('models:', '  videos: { url: "simulator:", dialect: videos }\nmodels:')
    .replace('accounts:', `  - id: clip
    provider: acme
    kind: video
    created: 2025-10-06
    parameters: { seconds: { values: [4, 8], default: 4 } }
    channels: { premium: { price: [{ usd_per_second: 0.10 }], targets: [{ upstream: videos, model: sora }] } }
accounts:`))
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/try')
  await page.getByLabel('Model').selectOption('clip')
  await page.getByLabel('seconds').selectOption('8')
  await fill(page, 'A cat')
  await until(async () => await page.locator('.quoted').innerText().catch(() => '') === '$0.8')
  await page.getByRole('button', { name: 'Send' }).click()
  t.strictSame(await costOf(page), { quoted: '$0.8', real: 'nothing yet' })
  const task = await page.getByText('A video takes minutes.').locator('code').first().innerText()
  t.match(task, /video_\w+/)
  await page.getByText('A video takes minutes.').getByRole('link').click()
  await page.getByRole('heading', { name: 'Videos' }).waitFor()
  await page.getByRole('rowheader', { name: task.trim() }).waitFor()
  t.strictSame(complaints, [])
})

await t.test('where no requests are kept, the ledger tells the cost', async (t) => {
  const up = await upstream(t, [messageStart(), blockStart(0), textDelta(0, 'Hello there'), blockStop(0), messageEnd()])
  const own = await gateway(t, yaml([up.url], 'log: { requests: { keep: 0 } }\n', ALL))
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/try')
  await fill(page, 'Say hello')
  await page.getByRole('button', { name: 'Send' }).click()
  await page.getByText('so the ledger was asked').waitFor()
  t.equal(await told(page, 'Real'), '$0.000105')
  t.strictSame(complaints, [])
})

await t.test('the programs that it shows run as they are', async (t) => {
  const own = await desk(t)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/try')
  const programs: { readonly name: string, readonly text: string, readonly path: string }[] = []
  for (const path of ['/v1/messages', '/v1/chat/completions', '/v1/responses']) {
    await page.getByLabel('Address', { exact: true }).selectOption(path)
    for (const stream of [true, false]) {
      await page.getByLabel('Stream').setChecked(stream)
      await page.getByLabel('System').fill('Be "brief", it\'s \\ late\nand $dark `here`')
      await fill(page, `It's "said" of ${path}`)
      for (const name of await page.getByLabel('Copy as').locator('option').allInnerTexts()) {
        await page.getByLabel('Copy as').selectOption(name)
        programs.push({ name, path, text: await page.getByRole('region', { name: 'The program' }).innerText() })
      }
    }
  }
  t.equal(programs.length, 30)
  t.strictSame(complaints, [])
  t.equal(programs.find(({ name }) => name === 'Anthropic SDK, Python')!.text.trim(), `import os
from anthropic import Anthropic

client = Anthropic(base_url="${own.urls.api}", api_key=os.environ["GATEWAY_KEY"])
answer = client.messages.create(
    model="m1",
    max_tokens=256,
    system="Be \\"brief\\", it's \\\\ late\\nand $dark \`here\`",
    messages=[{"role": "user", "content": "It's \\"said\\" of /v1/messages"}],
    stream=True,
)
for part in answer:
    if part.type == "content_block_delta" and part.delta.type == "text_delta":
        print(part.delta.text, end="", flush=True)`)
  for (const { name, path, text } of programs) {
    t.notOk(text.includes(KEY), 'no secret')
    const said = await runs(t, name, text)
    if (said !== undefined) t.match(said, name === 'curl' ? /Hello[^]*there/ : /^Hello there\s*$/, `${name} of ${path}`)
  }
})

/** What a program prints. Undefined: it is for Python, whose SDKs are not here. */
async function runs (t: Test, name: string, text: string): Promise<string | undefined> {
  const env = { ...process.env, GATEWAY_KEY: KEY }
  const run = promisify(execFile)
  if (name === 'curl') return (await run('sh', ['-c', text], { env })).stdout
  if (!/JavaScript/.test(name)) return undefined
  // Beside a module of the SDK, so that it is found.
  const resolve = createRequire(import.meta.url).resolve
  const file = join(t.testdir({ 'program.mjs': text.replace(/from '(openai|@anthropic-ai\/sdk)'/,
    (_, sdk: string) => `from '${pathToFileURL(resolve(sdk)).href}'`) }), 'program.mjs')
  t.ok((await readFile(file, 'utf8')).includes('GATEWAY_KEY'))
  return (await run(process.execPath, [file], { env })).stdout
}
