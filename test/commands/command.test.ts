// The command line: help, what is not quite a command, and `check`, in the test's own process; e2e/start-command has
// what real processes say.
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { directives } from '../../src/simulator/faults.ts'
import { command, gateway, yaml } from '../support/gateway-command.ts'
import { folderFor } from '../support/spawned.ts'

async function refused (t: Test, folder: string, args: readonly string[]): Promise<string> {
  const { code, out, err } = await command(folder, args)
  t.strictSame([code, out], [1, ''], args.join(' '))
  t.notMatch(err, /\n\s+at /, 'no stack')
  return err
}

await t.test('every command explains itself, and does nothing else', async (t) => {
  const folder = folderFor(t)
  const { out: front } = await command(folder, ['--help'])
  const nouns = [...front.matchAll(/^  gateway (\w+)/gm)].map(([, name]) => name!)
  t.ok(nouns.length >= 11, nouns.join())
  const commands = [...nouns, 'store export', 'store import', 'store new']
  for (const noun of ['keys', 'accounts', 'tokens', 'usage', 'ledger']) {
    const { out } = await command(folder, [noun, '--help'])
    commands.push(...[...out.matchAll(new RegExp(`^ *gateway (${noun} \\w+)`, 'gm'))].map(([, name]) => name!))
  }
  for (const name of ['keys update', 'accounts close', 'tokens revoke', 'usage series', 'ledger verify', 'audit']) {
    t.ok(commands.includes(name), name)
  }
  for (const name of commands) {
    const { code, out, err } = await command(folder, [...name.split(' '), '--help'])
    t.strictSame([code, err], [0, ''], name)
    t.match(out, `gateway ${name}`, 'says how it is called')
    t.equal((await command(folder, ['help', ...name.split(' ').slice(0, 1)])).code, 0, `help ${name}`)
    if (name === 'accounts credit') {
      t.match(out, 'credit ID USD --reference TEXT [--json]', 'what is needed stands in no brackets')
    }
  }
  t.strictSame(readdirSync(folder), [], 'no data folder')
})

await t.test('a command that is not quite one: did you mean', async (t) => {
  for (const [args, says] of [
    [['chekc'], 'There is no command "chekc": did you mean "check"?'],
    [['account'], 'There is no command "account": did you mean "accounts"?'],
    [['constructor'], 'There is no command "constructor".'],
    [['store', 'exprot'], 'There is no command "store exprot": did you mean "export"?'],
    [['keys', 'crate'], 'There is no command "keys crate": did you mean "create"?'],
    [['keys', 'updat'], 'There is no command "keys updat": did you mean "update"?'],
    [['tokens', 'revok'], 'There is no command "tokens revok": did you mean "revoke"?'],
    [['accounts', 'colse'], 'There is no command "accounts colse": did you mean "close"?'],
    [['ledger', 'nothing'], 'There is no command "ledger nothing".'],
    [['token'], 'There is no command "token": did you mean "tokens"?'],
    [['audti'], 'There is no command "audti": did you mean "audit"?'],
    [['help', 'kyes'], 'There is no command "kyes": did you mean "keys"?'],
    [['keys', 'list', '--acount', 'a'], '--acount\': did you mean --account?']
  ] as const) t.match(await refused(t, folderFor(t), args), says)
})

await t.test('unknown commands, options and arguments: what it does not know, and the help', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(0) })
  for (const [args, what] of [[['serve'], '"serve"'], [['start', '--port', '80'], '--port'], [['start', 'gateway.yaml'],
    'gateway.yaml'], [['check', '--yaml'], '--yaml']] as const) {
    const said = await refused(t, folder, args)
    t.match(said, what)
    t.match(said, /gateway start \[--config FILE\]/)
    t.match(said, /gateway check \[FILE\] \[--json\]/)
  }
  for (const args of [[], ['help'], ['--help'], ['-h']]) {
    const { code, out } = await command(folder, args)
    t.equal(code, 0)
    t.match(out, /gateway start \[--config FILE\]/)
  }
  const { code, out } = await gateway(folder, ['--version'])
  t.equal(code, 0, 'a real process')
  t.match(out, /^\d+\.\d+\.\d+\n$/)
})

await t.test('check: exit code 0 or 1, for people and as JSON', async (t) => {
  const folder = folderFor(t, { 'gateway.yaml': yaml(0), 'bad.yaml': yaml(0).replace('1000', 'many') })
  const check = async (...args: string[]): Promise<[number, string]> => {
    const { code, out, err } = await (args.length === 0 ? gateway : command)(folder, ['check', ...args])
    t.equal(err, '')
    return [code, out]
  }
  const [good, summary] = await check()
  t.equal(good, 0, 'gateway.yaml of the working folder, by a real process')
  t.match(summary, /gateway\.yaml is valid: 1 model, 1 upstream, /)
  const [bad, problems] = await check('bad.yaml')
  t.equal(bad, 1)
  t.match(problems, /bad\.yaml:13:17 \/models\/0\/max_output /)
  const [goodJson, verdict] = await check('gateway.yaml', '--json')
  t.equal(goodJson, 0)
  t.match(JSON.parse(verdict), { ok: true, problems: [] })
  const [badJson, list] = await check('--json', 'bad.yaml')
  t.equal(badJson, 1)
  t.match(JSON.parse(list), { ok: false,
    problems: [{ file: join(folder, 'bad.yaml'), line: 13, column: 17, path: '/models/0/max_output' }] })
  t.throws(() => statSync(join(folder, 'data')), { code: 'ENOENT' }, 'and it has left nothing behind')
})

await t.test('simulate --help lists every flag and directive; a wrong flag says so', async (t) => {
  const folder = folderFor(t)
  const help = await command(folder, ['simulate', '--help'])
  t.equal(help.code, 0)
  for (const flag of ['--listen', '--delay', '--error-rate', '--cut-after', '--seed']) t.match(help.out, flag)
  for (const name of Object.keys(directives)) t.match(help.out, new RegExp(`^  ${name}\\b`, 'm'))
  const wrong = await command(folder, ['simulate', '--sped', '3'])
  t.equal(wrong.code, 2)
  t.match(wrong.err, /--sped.*\n.*simulate --help/)
})
