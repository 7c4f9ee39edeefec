// Texts from outside never reach a terminal as commands to it: tables, cards, JSON, CSV and errors of the command line.
import { join } from 'node:path'
import t from 'tap'
import { table } from '../../src/commands/print.ts'
import { harmless } from '../../src/commands/stdout.ts'
import type { Problem } from '../../src/config/problem.ts'
import { freePort } from '../support/free-port.ts'
import { command, yaml } from '../support/gateway-command.ts'
import { loadHere } from '../support/load-here.ts'
import { folderFor, run } from '../support/spawned.ts'

const pluginsUrl = new URL('../../plugins/index.ts', import.meta.url).href
/** Control characters of ISO 6429 and Unicode's that change the order of others. */
const OBEYED = /[\p{Cc}\p{Bidi_Control}]/u
const ALL = Array.from({ length: 0x2100 }, (_, code) => String.fromCharCode(code)).filter((one) => OBEYED.test(one))

t.test('each such character is shown as JSON escapes it, in a cell the ends of lines too', async (t) => {
  t.equal(ALL.length, 65 + 12)
  for (const one of ALL) {
    const shown = harmless(table([{ name: `a${one}b` }], ['name']))
    const [, line, ...rest] = shown.split('\n')
    t.strictSame([rest, JSON.parse(`"${line!}"`)], [[''], `a${one}b`], JSON.stringify(one))
    t.notMatch(line, OBEYED)
    const text = JSON.stringify({ name: `a${one}b` })
    t.notMatch(harmless(text), OBEYED)
    t.strictSame(JSON.parse(harmless(text)), JSON.parse(text), 'JSON says the same')
  }
  t.equal(harmless('a\tb\nc\r\nd\re'), 'a\tb\nc\r\nd\\u000de', 'what a table and CSV are made of stays')
})

await t.test('names with them are refused where they come in, with their place', async (t) => {
  for (const one of ALL.filter((one) => /\p{Cc}/u.test(one))) {
    const name = JSON.stringify(`Acme${one}`).replace(/[\x7F-\x9F]/g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`)
    const folder = folderFor(t, { 'gateway.yaml': yaml(0).replace('provider: acme', `provider: ${name}`) })
    const loaded = await loadHere(join(folder, 'gateway.yaml'), { pluginsUrl })
    const [{ line, column, message } = {} as Problem] = loaded.kind === 'invalid' ? loaded.problems : []
    t.strictSame([line, column], [11, 15], name)
    t.match(message, /must be a text in one line, without control characters/)
  }
})

await t.test('a reference, a reason and an option that are hostile', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(await freePort()) })
  const running = run(t, folder, ['start'])
  await running.urls()
  const evil = `x\u001B]0;owned\u0007\u009B2J\u202E${ALL.join('').replaceAll('\0', '')}`
  for (const args of [
    ['accounts', 'credit', 'demo', '5', '--reference', evil],
    ['accounts', 'create', 'acme', '--name', evil],
    ['accounts', 'debit', 'demo', '1', '--reference', 'r', '--reason', evil],
    ['keys', 'create', 'k', '--account', 'demo', '--name', evil],
    ['accounts', 'show', evil], ['keys', 'show', evil], [`keys${evil}`], ['requests', 'show', evil], ['audit'],
    ['ledger', 'export'], ['accounts', 'list'], ['keys', 'list'], ['audit', '--json'], ['store', evil],
    ['diff', `/tmp/${evil}`], ['accounts', 'list', `--${evil}`]
  ]) {
    const { out, err } = await command(folder, args)
    t.not(out + err, '', args.slice(0, 2).join(' '))
    for (const text of [out, err]) t.notMatch(text.replaceAll(/\r?\n|\t/g, ''), OBEYED, args.slice(0, 2).join(' '))
  }
})
