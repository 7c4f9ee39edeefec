// The pages of the admin listener in a real Chromium: an operator's work by mouse and by keyboard, in both themes,
// against a real gateway; what a page changes holds from the next request on.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { gateway, KEY, messagesRequest, type TestGateway, yaml } from '../support/gateway.ts'
import { answer, errorReply, upstream, wait } from '../support/upstream.ts'
import { until } from '../support/until.ts'
import { browser, faultsOf, pageOf, signIn, tabTo, TOKEN } from './browser.ts'

const ALL = 'auth, key-policy, rate-limit, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'

/** Sold in both channels, each by an upstream of its own. */
async function sold (t: Test, options: { readonly now?: () => number } = {}): Promise<TestGateway> {
  const usage = { input_tokens: 12_000, output_tokens: 900 }
  const [premium, cheap] = [await upstream(t, answer('premium', { usage })), await upstream(t, answer('cheap', { usage }))]
  return await gateway(t, yaml([premium.url, cheap.url], '', ALL).replace(/targets: \[.*\]/, `targets: [{ upstream: u0, model: vendor-m1 }]
      cheap:
        price: { input: 1, output: 5 }
        targets: [{ upstream: u1, model: vendor-m1 }]`), options)
}

interface Said { readonly status: number, readonly text: string }

async function use (own: TestGateway, secret: string, more: object = {}): Promise<Said> {
  const got = await own.messages({ ...messagesRequest, ...more }, { headers: { 'x-api-key': secret,
    'user-agent': 'editor/1.0', origin: 'https://pages.example' } })
  return { status: got.status, text: await got.text() }
}

/** The eight settings of the contract: what is written into which field, and what the next request then gets. */
const SETTINGS: readonly { readonly name: string, readonly value: string, readonly then: (got: Said) => boolean,
  readonly request?: object }[] = [
  { name: 'rate_limit', value: '1', then: ({ status }) => status === 429 },
  { name: 'allowed_models', value: 'other-*', then: ({ status }) => status === 403 },
  { name: 'allowed_clients', value: 'claude-code', then: ({ status }) => status === 403 },
  { name: 'ip_whitelist', value: '10.0.0.0/8', then: ({ status }) => status === 403 },
  { name: 'allowed_origins', value: 'https://other.example', then: ({ status }) => status === 403 },
  { name: 'usage_limit_usd', value: '0.000000001', then: ({ status }) => status === 402 || status === 429 },
  { name: 'streaming', value: '', request: { stream: true }, then: ({ status }) => status >= 400 },
  { name: 'routing_mode', value: 'cheap', then: ({ status, text }) => status === 200 && /cheap/.test(text) }
]

await t.test('each of the eight settings of a key is changed by mouse and by keyboard, and holds from the next request on', async (t) => {
  const own = await sold(t)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/keys/-new')
  await page.getByLabel('Account').fill('acme')
  await page.getByLabel('Id', { exact: true }).fill('made-here')
  await page.getByRole('button', { name: 'Make the key' }).click()
  const secret = await page.locator('code.secret').innerText()
  t.match(secret, /^sk-gw-\w{32}$/)
  await page.getByRole('button', { name: 'I have it' }).click()
  await page.getByRole('heading', { name: 'Key made-here' }).waitFor()
  t.match(await use(own, secret), { status: 200, text: /premium/ })

  const byMouse = async (name: string, value: string): Promise<void> => {
    const field = page.locator(`[name=${name}]`)
    if (name === 'streaming') await field.click()
    else if (name === 'routing_mode') await field.selectOption(value)
    else {
      await field.click()
      await field.fill(value)
    }
    await page.getByRole('button', { name: 'Save' }).click()
  }
  const byKeyboard = async (name: string, value: string): Promise<void> => {
    await page.getByRole('heading', { level: 1 }).focus()
    await tabTo(page, `[name=${name}]`)
    if (name === 'streaming') await page.keyboard.press('Space')
    else if (name === 'routing_mode') await page.keyboard.type(value)
    else {
      await page.keyboard.press('ControlOrMeta+A')
      await page.keyboard.press('Delete')
      await page.keyboard.type(value)
    }
    await tabTo(page, 'button.first')
    await page.keyboard.press('Enter')
  }
  for (const [how, change] of [['mouse', byMouse], ['keyboard', byKeyboard]] as const) {
    for (const { name, value, then, request } of SETTINGS) {
      const before = await page.locator(`[name=${name}]`).inputValue()
      await change(name, value)
      await page.getByText('Nothing is changed.').waitFor()
      t.ok(then(await use(own, secret, request)), `${name} by ${how}`)
      await change(name, name === 'routing_mode' ? before : '')
      await page.getByText('Nothing is changed.').waitFor()
      t.notOk(then(await use(own, secret, request)), `${name} taken back by ${how}`)
    }
  }
  t.strictSame(complaints, [])
})

await t.test('a key is frozen, rotated with grace and deleted; a wrong setting is told of at its field in the words of the API', async (t) => {
  const own = await sold(t)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/keys/-new')
  await page.getByLabel('Account').fill('acme')
  await page.getByLabel('Id', { exact: true }).fill('new')         // an id as any other
  await page.locator('[name=ip_whitelist]').fill('not-an-address')
  await page.getByRole('button', { name: 'Make the key' }).click()
  await page.locator('[name=ip_whitelist][aria-invalid=true]').waitFor()
  t.match(await page.getByRole('alert').innerText(), /ip_whitelist.*not-an-address/s)
  await page.locator('[name=ip_whitelist]').fill('')
  await page.getByRole('button', { name: 'Make the key' }).click()
  const secret = await page.locator('code.secret').innerText()
  await page.getByRole('button', { name: 'I have it' }).click()

  await page.getByRole('button', { name: 'Freeze', exact: true }).click()
  await page.getByRole('button', { name: 'Unfreeze' }).waitFor()
  t.equal((await use(own, secret)).status, 401)
  await page.getByRole('button', { name: 'Unfreeze' }).click()
  await page.getByRole('button', { name: 'Freeze', exact: true }).waitFor()
  t.equal((await use(own, secret)).status, 200)

  await page.getByRole('button', { name: 'Rotate' }).click()
  await page.getByRole('button', { name: 'Make a new secret' }).click()
  const next = await page.locator('code.secret').innerText()
  t.not(next, secret)
  await page.keyboard.press('Escape')
  await page.getByText('An older secret works until').waitFor()
  t.strictSame([(await use(own, secret)).status, (await use(own, next)).status], [200, 200])

  await page.getByRole('button', { name: 'Delete' }).click()
  await page.getByRole('button', { name: 'Delete for ever' }).click()
  await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor()
  t.equal((await use(own, next)).status, 401)
  await page.goto(`${own.urls.admin}/ui/#/keys/acme-dev`)
  await page.getByText(/declared in gateway.yaml, at \S*gateway.yaml:\d+,/).waitFor()
  t.ok(await page.locator('[name=rate_limit]').isDisabled())
  t.equal(await page.getByRole('button', { name: 'Delete' }).count(), 0)
  t.strictSame(complaints, [])
})

await t.test('money is moved, and the token asked for again when it was given long ago', async (t) => {
  let now = Date.now()
  const up = await upstream(t, answer('Hello'))
  const own = await gateway(t, yaml([up.url], '', ALL), { now: () => now })
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/accounts/acme')
  now += 6 * 60_000
  await page.getByRole('button', { name: 'Credit' }).click()
  await page.getByLabel('Amount, US$').fill('2.50')
  await page.getByLabel('Reference of the payment').fill('invoice-1')
  await page.getByRole('dialog').getByRole('button', { name: 'Credit' }).click()
  const again = page.getByRole('dialog', { name: 'Your token again' })
  await again.getByLabel('Token', { exact: true }).fill(TOKEN)
  await page.keyboard.press('Enter')
  await page.getByText('the balance is $102.5').waitFor()
  await page.getByText('credit:acme:invoice-1').waitFor()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByRole('heading', { name: 'Sign in to the gateway' }).waitFor()
  t.strictSame(complaints, [])
})

await t.test('the page of upstreams tells what waits for a place, what failed last, and what is in maintenance', async (t) => {
  const { promise: finish, resolve } = Promise.withResolvers<void>()
  const up = await upstream(t, ({ body }) => body!['system'] === 'fail'
    ? errorReply(500, 'api_error', 'overfull disk')
    : [wait(finish), answer('Hello')])
  const own = await gateway(t, yaml([up.url], '', ALL)
    .replace('"upstream-secret-0" } }', '"upstream-secret-0" }, limits: { concurrency: 1, queue: 5 } }')
    .replace('upstreams:\n', `upstreams:\n  away: { url: "${up.url}", dialect: messages, maintenance: true }\n`))
  const { page, complaints } = await pageOf(await browser(t))
  await use(own, KEY, { system: 'fail' })
  const running = [1, 2, 3].map(async () => await use(own, KEY))
  await until(() => own.services.upstreams.queues.view()[0]?.waiting === 2)
  await signIn(page, own.urls.admin, '#/upstreams')
  const section = page.locator('section', { has: page.getByRole('heading', { name: 'u0' }) })
  await section.getByText('Queue: 2 waiting, 1 running. Each process lets 1 run and 5 wait.').waitFor()
  t.match(await section.getByRole('row').nth(1).innerText(), /vendor-m1.*closed.*status 500.*overfull disk/s)
  t.match(await page.locator('section', { has: page.getByRole('heading', { name: 'away' }) }).innerText(),
    /maintenance/)
  resolve()
  for (const { status } of await Promise.all(running)) t.equal(status, 200)
  await section.getByText('Queue: 0 waiting, 0 running.').waitFor()
  t.strictSame(complaints, [])
})

await t.test('a request is found by its model and by its id, with what every upstream said', async (t) => {
  const [first, second] = [await upstream(t, errorReply(500, 'api_error', 'overfull disk')),
    await upstream(t, answer('Hello', { usage: { input_tokens: 12, output_tokens: 3 } }))]
  const own = await gateway(t, yaml([first.url, second.url], '', ALL))
  const served = await own.messages({ ...messagesRequest, stream: true })
  await served.text()
  const id = served.headers.get('x-request-id')!
  await use(own, KEY, { model: 'of-nobody' })
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/requests')
  const rows = page.getByRole('region', { name: 'Requests' }).locator('tbody tr')
  await until(async () => {
    await page.getByRole('button', { name: 'Read again' }).click()
    return await rows.count() === 2
  })
  await page.getByLabel('Model').fill('m1')
  await page.getByLabel('Model').press('Enter')
  await until(async () => await rows.count() === 1)
  await rows.getByRole('link', { name: id }).click()
  await page.getByRole('heading', { name: `Request ${id}` }).waitFor()
  const pair = async (name: string): Promise<string> =>
    await page.locator('dl > div', { has: page.getByText(name, { exact: true }) }).locator('dd').innerText()
  t.strictSame(await Promise.all(['Ended', 'Status', 'Code', 'Stream', 'Key', 'Model', 'Channel', 'Cost'].map(pair)),
    ['completed', '200', 'ok', 'yes', 'acme-dev', 'm1', 'premium', '$0.000081'])
  t.match(await pair('Usage (provider)'), 'input 12, output 3')
  const attempts = page.getByRole('region', { name: 'Attempts' }).getByRole('row')
  t.match(await attempts.nth(1).innerText(), /u0.*vendor-m1.*500.*status 500.*overfull disk/s)
  t.match(await attempts.nth(2).innerText(), /u1.*vendor-m1.*200.*answered/s)
  await page.goBack()
  await page.getByLabel('Request id').fill('req_of-nobody')
  await page.getByLabel('Request id').press('Enter')
  t.match(await page.getByRole('alert').innerText(), /no such request/)
  await page.goBack()
  await page.getByLabel('Code').fill('queue_full')
  await page.getByLabel('Code').press('Enter')
  await page.getByRole('heading', { name: 'No request fits' }).waitFor()
  await page.getByLabel('Request id').fill(id)
  await page.getByLabel('Request id').press('Enter')
  await page.getByRole('heading', { name: `Request ${id}` }).waitFor()
  t.strictSame(complaints, [])
})

await t.test('what a page reads by itself is no use of its session', async (t) => {
  const own = await sold(t)
  await use(own, KEY)
  const { page } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/requests')
  await page.getByRole('link', { name: /^req_/ }).waitFor()
  const reads: (string | undefined)[] = []
  page.on('request', (request) => {
    if (request.url().includes('/admin/v1/requests')) reads.push(request.headers()['x-gateway-ui'])
  })
  await page.getByLabel('Live').check()
  await until(() => reads.length > 2)
  t.strictSame([...new Set(reads.slice(1))], ['background'])
  await page.getByRole('link', { name: /^req_/ }).waitFor()
})

await t.test('what was used is downloaded as CSV: as it is shown, and as the API has it', async (t) => {
  const own = await sold(t)
  await seed(own)
  await use(own, KEY)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/usage')
  await page.getByLabel('Divided by').selectOption('key')
  const shown = page.getByRole('region', { name: 'Usage, newest first' })
  // On a slow machine the page is made anew, for what it is divided by, while this is typed.
  await until(async () => {
    await page.getByLabel('Account').fill('beta')
    await page.keyboard.press('Tab')
    return await shown.locator('tbody tr').count() === 2
  })
  const coming = page.waitForEvent('download')
  await page.getByRole('button', { name: 'CSV' }).click()
  const file = await coming
  t.equal(file.suggestedFilename(), 'usage.csv')
  const text = readFileSync(await file.path(), 'utf8')
  const asked = await fetch(`${own.urls.admin}/admin/v1/usage/series?by=day&group=key&account=beta&format=csv`, {
    headers: { authorization: `Bearer ${TOKEN}` } })
  t.equal(text, await asked.text())
  const [head, ...lines] = text.trimEnd().split('\r\n').map((line) => line.split(','))
  t.strictSame(lines.map((line) => [line[head!.indexOf('key')], line[head!.indexOf('requests')]]),
    [['beta-ci', '3'], ['beta-web', '3']])
  t.strictSame(complaints, [])
})

await t.test('a text is checked before it is live: what is wrong with it, or what it would change', async (t) => {
  const own = await sold(t)
  const { page, complaints } = await pageOf(await browser(t))
  await signIn(page, own.urls.admin, '#/configuration')
  const text = readFileSync(own.file, 'utf8')
  const check = async (changed: string, verdict: string): Promise<string> => {
    await page.getByLabel('A whole gateway.yaml').fill(changed)
    await page.getByRole('button', { name: 'Check' }).click()
    return await page.locator('form + [role=status]', { hasText: verdict }).innerText()
  }
  const line = text.slice(0, text.indexOf('kind: text')).split('\n').length
  t.match(await check(text.replace('kind: text', 'kind: txt'), 'would be refused'),
    new RegExp(`gateway.yaml:${line}:\\d+.*/models/0/kind.*text`, 's'))
  await check(text.replace('input: 3,', 'input: 4,'), 'could go live')
  const change = page.getByRole('region', { name: 'Differences' }).last().getByRole('row').nth(1)
  t.match(await change.innerText(), /models.*premium.*price.*input.*3.*4/s)
  t.equal(own.live.current().generation, 1, 'nothing went live')
  t.strictSame(complaints, [])
})

await t.test('a link signs in, and its code is gone from the address', async (t) => {
  const own = await sold(t)
  const { page } = await pageOf(await browser(t))
  const made = await fetch(`${own.urls.admin}/admin/v1/links`, { method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}` } })
  const { path } = await made.json() as { readonly path: string }
  await page.goto(own.urls.admin + path)
  await page.getByRole('navigation', { name: 'Pages' }).waitFor()
  t.notMatch(page.url(), /code/)
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.goto('about:blank')
  await page.goto(own.urls.admin + path)
  await page.getByText('or the link was used before').waitFor()
})

await t.test('no page has a fault that axe knows, in neither theme, and none violates its policy', async (t) => {
  const own = await sold(t)
  await seed(own)
  const chromium = await browser(t)
  for (const theme of ['light', 'dark'] as const) {
    const { page, complaints } = await pageOf(chromium, theme)
    await page.goto(`${own.urls.admin}/ui/`)
    await page.getByLabel('Token', { exact: true }).waitFor()
    t.strictSame(await faultsOf(page), [], `${theme} sign-in`)
    await signIn(page, own.urls.admin)
    const names = await page.locator('nav.side a').evaluateAll((links) => links.map((link) => link.getAttribute('href')!))
    t.ok(names.length >= 10)
    for (const name of [...names, '#/keys/-new', '#/keys/acme-dev', '#/accounts/-new', '#/accounts/acme', '#/nothing']) {
      await page.goto(`${own.urls.admin}/ui/${name}`)
      await page.getByRole('heading', { level: 1 }).waitFor()
      await until(async () => await page.getByText(/^Reading /).count() === 0)
      t.strictSame(await faultsOf(page), [], `${theme} ${name}`)
      t.equal(await page.evaluate('getComputedStyle(document.documentElement).colorScheme'), theme, name)
      t.equal(await page.getByRole('alert').count(), 0, `${name} has nothing to complain of`)
    }
    await page.getByLabel('Colours').selectOption(theme === 'light' ? 'dark' : 'light')
    t.not(await page.evaluate('getComputedStyle(document.documentElement).colorScheme'), theme, 'the switch')
    t.strictSame(complaints, [])
  }
})

// PICTURES=1 writes the pictures of the README anew.
await t.test('the overview is live, and has its picture in the README', async (t) => {
  let now = Date.parse('2027-03-09T14:50:00Z')
  const own = await sold(t, { now: () => now })
  for (const [hour, count] of [3, 2, 3, 4, 2, 1, 1, 2, 1, 1, 1, 2, 3, 5, 7, 8, 7, 6, 8, 9, 7, 6, 5, 4].entries()) {
    for (let i = 0; i < count; i++) await use(own, KEY, { stream: i % 2 === 0 })
    if (hour % 5 === 4) await use(own, KEY, { model: 'of-nobody' })
    now += 3_600_000
  }
  for (let i = 0; i < 4; i++) await use(own, KEY, { stream: true })
  const chromium = await browser(t)
  for (const theme of ['light', 'dark'] as const) {
    const { page, complaints } = await pageOf(chromium, theme)
    await page.setViewportSize({ width: 1120, height: 780 })
    await signIn(page, own.urls.admin)
    const tile = page.locator('.tile', { hasText: 'Requests, 24 hours' })
    await tile.waitFor()
    await page.locator('.plot canvas').nth(1).waitFor()
    if (process.env['PICTURES'] === '1') {
      await page.screenshot({ path: join(packageRoot, `src/admin/web/overview-${theme}.png`) })
    }
    const lately = page.locator('.tile', { hasText: 'Requests, 5 minutes' })
    const before = await lately.innerText()
    await use(own, KEY)
    await until(async () => await lately.innerText() !== before)
    t.strictSame(complaints, [])
  }
})

/** Requests of several keys. */
async function seed (own: TestGateway): Promise<void> {
  const api = async (path: string, body: object): Promise<Record<string, unknown>> =>
    await (await fetch(`${own.urls.admin}/admin/v1${path}`, { method: 'POST', body: JSON.stringify(body),
      headers: { authorization: `Bearer ${TOKEN}` } })).json() as Record<string, unknown>
  await api('/accounts', { id: 'beta', name: 'Beta Ltd' })
  await api('/accounts/beta/credits', { amount_usd: '25', reference: 'invoice-17' })
  await api('/tokens', { name: 'Ada', role: 'operator' })
  for (const [id, settings] of [['beta-ci', { rate_limit: 60, tags: ['ci'] }],
    ['beta-web', { usage_limit_month_usd: '50', routing_mode: 'cheap' }]] as const) {
    const { secret } = await api('/keys', { id, account: 'beta', ...settings })
    for (let i = 0; i < 3; i++) await use(own, String(secret))
  }
}

