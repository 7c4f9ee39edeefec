// A real Chromium, from npm, for the tests of the pages: what it says of the policy of a page, and what axe says of it.
import chromium from '@sparticuz/chromium'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, rename, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Browser, chromium as launcher, type Page } from 'playwright-core'
import type { Test } from 'tap'
import type { AxeResults } from 'axe-core'
import packages from './package.json' with { type: 'json' }

/** Of the gateways of tests: an owner's. */
export const TOKEN = 'test-admin-token'

export interface Watched {
  readonly page: Page
  /** what the browser had to say against the page: its policy violated, an error thrown, a file not found */
  readonly complaints: readonly string[]
}

export async function browser (t: Test): Promise<Browser> {
  // Not its own flags: they are for machines that have no processes.
  const found = await launcher.launch({ args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
    executablePath: await executable(), headless: true })
  t.teardown(async () => { await found.close() })
  return found
}

/** Unpacked once: beside the folder that others look for, because whoever finds a file there may run it at once. */
async function executable (): Promise<string> {
  const folder = join(tmpdir(), `test-chromium-${packages.dependencies['@sparticuz/chromium']}`)
  if (!existsSync(folder)) {
    const made = await mkdtemp(`${folder}-`)
    const { TMPDIR: before } = process.env
    process.env['TMPDIR'] = made
    try {
      await chromium.executablePath()
    } finally {
      if (before === undefined) delete process.env['TMPDIR']
      else process.env['TMPDIR'] = before
    }
    await rename(made, folder).catch(async (error: unknown) => {
      if (!existsSync(folder)) throw error
      await rm(made, { recursive: true })    // another process was quicker
    })
  }
  return join(folder, 'chromium')
}

/** @param theme what the system prefers */
export async function pageOf (from: Browser, theme: 'light' | 'dark' = 'light'): Promise<Watched> {
  const context = await from.newContext({ colorScheme: theme, viewport: { width: 1280, height: 800 },
    reducedMotion: 'reduce', timezoneId: 'UTC', locale: 'en-US' })
  const page = await context.newPage()
  page.setDefaultTimeout(60_000)
  const complaints: string[] = []
  page.on('pageerror', (error) => { complaints.push(`threw ${error.stack ?? error.message}`) })
  page.on('console', (message) => {
    // Refusals of the API are answers that pages show.
    if (['error', 'warning'].includes(message.type()) && !/status of 4\d\d/.test(message.text())) {
      complaints.push(message.text())
    }
  })
  await page.exposeFunction('complain', (text: string) => { complaints.push(text) })
  await page.addInitScript({ content: `document.addEventListener('securitypolicyviolation', (violated) => {
    complain(violated.violatedDirective + ' ' + violated.blockedURI)
  })` })
  return { page, complaints }
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** What axe has against the page as it is shown: none should be. */
export async function faultsOf (page: Page): Promise<readonly string[]> {
  // As the debugger evaluates it: the policy of the page forbids the script, rightly.
  await page.evaluate(axe)
  const { violations } = await page.evaluate<AxeResults>('axe.run()')
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) =>
    `${id} ${target.join(' ')} ${failureSummary ?? ''}`))
}

/** @param admin URL of the listener @param where behind /ui/ */
export async function signIn (page: Page, admin: string, where = '', token = TOKEN): Promise<void> {
  await page.goto(`${admin}/ui/${where}`)
  await page.getByLabel('Token', { exact: true }).fill(token)
  await page.keyboard.press('Enter')
  await page.getByRole('navigation', { name: 'Pages' }).waitFor()
}

/** Goes on with Tab until the focus is where it should be. @throws {Error} it never is */
export async function tabTo (page: Page, selector: string): Promise<void> {
  for (let i = 0; i < 120; i++) {
    if (await page.evaluate<boolean>(`document.activeElement?.matches(${JSON.stringify(selector)}) === true`)) return
    await page.keyboard.press('Tab')
  }
  throw new Error(`no Tab leads to ${selector}`)
}
