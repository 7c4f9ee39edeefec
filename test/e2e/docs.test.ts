// The served pages for customers in a real browser: light and dark, on a phone, without JavaScript.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { docsNames } from '../../src/endpoints/docs.ts'
import { shipped } from '../support/docs-gateway.ts'
import { browser, faultsOf, pageOf } from './browser.ts'

const gw = await shipped(t, ', docs: true, name: Acme')
const chromium = await browser(t)
const PHONE = { width: 360, height: 640 }

await t.test('each page fits a phone and is accessible, light and dark', async (t) => {
  const backgrounds = new Set<unknown>()
  for (const theme of ['light', 'dark'] as const) {
    const { page, complaints } = await pageOf(chromium, theme)
    await page.setViewportSize(PHONE)
    for (const name of docsNames()) {
      await page.goto(`${gw.urls.public}/docs/${name === 'README' ? '' : name}`)
      t.ok(await page.evaluate<boolean>('document.documentElement.scrollWidth <= innerWidth'), `${name} fits`)
      if (['README', 'keys', 'clients/codex'].includes(name)) t.strictSame(await faultsOf(page), [], `${name}, ${theme}`)
    }
    backgrounds.add(await page.evaluate('getComputedStyle(document.body).backgroundColor'))
    t.strictSame(complaints, [], theme)
  }
  t.equal(backgrounds.size, 2)
})

await t.test('without JavaScript a customer finds the page of an agent', async (t) => {
  const context = await chromium.newContext({ javaScriptEnabled: false })
  const page = await context.newPage()
  await page.goto(`${gw.urls.public}/docs`)
  await page.getByRole('link', { name: 'Codex' }).click()
  t.equal(await page.title(), 'Codex · Acme')
  t.match(await page.locator('pre').first().textContent(), 'https://api.acme.example/v1')
  await page.getByRole('link', { name: 'Acme' }).click()
  t.match(page.url(), /\/docs\/$/)
})

await t.test('the OpenAPI document passes redocly lint', async (t) => {
  const folder = t.testdir({
    'openapi.json': await (await fetch(`${gw.urls.public}/openapi.json`)).text()
  })
  const program = join(packageRoot, 'test', 'e2e', 'node_modules', '.bin', 'redocly')
  const env = { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' }
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, 'lint', 'openapi.json'],
    { cwd: folder, encoding: 'utf8', env })
  t.equal(status, 0, stdout + stderr)
})
