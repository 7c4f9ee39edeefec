// Commands in the wrong folder change nothing there, and commands to a running gateway do not wait for its file.
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { NOUNS } from '../../src/commands/admin.ts'
import { freePort } from '../support/free-port.ts'
import { command, yaml } from '../support/gateway-command.ts'
import { folderFor, run } from '../support/spawned.ts'

/** Options that a verb of the table can't be without. */
const NEEDED: Readonly<Record<string, readonly string[]>> = {
  'accounts credit': ['--reference', 'r'], 'accounts debit': ['--reference', 'r'], 'accounts refund': ['--reference', 'r'],
  'keys create': ['--account', 'demo'], 'tokens create': ['--role', 'viewer']
}

/** Every command that has the ledger: all verbs of all nouns, and those that read the store. */
const COMMANDS: readonly (readonly string[])[] = [
  ...Object.entries(NOUNS).flatMap(([noun, verbs]) => Object.entries(verbs).map(([verb, { takes, optional = 0 }]) => {
    const words = takes.slice(0, takes.length - optional).map((name) => name === 'USD' ? '5' : 'x')
    return [noun, ...verb === '' ? [] : [verb], ...words, ...NEEDED[`${noun} ${verb}`] ?? []]
  })),
  ['explain', '--key', 'demo'], ['store', 'backup', 'b'], ['store', 'export', 'e']
]

await t.test('in the wrong folder a command names what it uses, and makes nothing', async (t) => {
  const port = await freePort()
  for (const [files, used] of [
    [{ 'notes.txt': '' }, packageRoot],
    [{ 'gateway.yaml': yaml(port) }, 'gateway.yaml'],
    [{ 'other.yaml': yaml(port) }, 'other.yaml']
  ] as const) {
    const folder = folderFor(t, files)
    const config = 'other.yaml' in files ? ['--config', 'other.yaml'] : []
    for (const args of COMMANDS) {
      const { code, err, out } = await command(folder, [...args, ...config])
      t.equal(code, 1, `${args.join(' ')}: ${out}`)
      // The shipped configuration names port 9090, where somebody's gateway may run.
      if (used === packageRoot && /admin token can't be read/.test(err)) continue
      t.match(err, new RegExp(`There is no ledger in ${folder}/data`), args.join(' '))
      if (args[0] !== 'store') t.ok(err.includes(used), `${args.join(' ')}: ${err}`)
      t.strictSame(readdirSync(folder), Object.keys(files), args.join(' '))
    }
  }
})

/** Ways to break a file that was right, each with what `check` says of it. */
const BREAKS: Readonly<Record<string, (text: string) => string>> = {
  'a key that is not known': (text) => `${text}nonsense: 1\n`,
  'a value of another type': (text) => text.replace('max_output: 1000', 'max_output: many'),
  'an upstream that is not there': (text) => text.replace('upstream: simulator,', 'upstream: nobody,'),
  'a variable that is not set': (text) => text.replace('provider: acme', 'provider: ${NOT_SET_HERE}'),
  'an included file that is not there': (text) => `include: [nowhere.yaml]\n${text}`,
  'a tab': (text) => text.replace('\n  - id: m1', '\n\t- id: m1'),
  'an open quotation mark': (text) => text.replace('provider: acme', 'provider: "acme'),
  'an open bracket': (text) => text.replace('channels: {', 'channels: [{'),
  'a half file': (text) => text.slice(0, text.indexOf('models:') + 3),
  'a token that nobody here knows': (text) =>
    text.replace('server:\n', 'server:\n').replace(/admin: \{ listen: ("[^"]+") \}/,
      'admin: { listen: $1, token: "${NOT_SET_HERE}" }')
}

await t.test('a gateway that runs takes commands while its file is broken', async (t) => {
  const text = yaml(await freePort())
  const folder = folderFor(t, { 'gateway.yaml': text })
  const running = run(t, folder, ['start'])
  const { admin } = await running.urls()
  t.match(await command(folder, ['keys', 'create', 'leaked', '--account', 'demo']), { code: 0, err: '' })
  const states = [['freeze', /frozen/], ['unfreeze', /active/]] as const
  let turn = 0
  for (const [what, broken] of Object.entries(BREAKS)) {
    const now = broken(text)
    t.not(now, text, what)
    writeFileSync(join(folder, 'gateway.yaml'), now)
    t.match(await command(folder, ['check']), { code: 1 }, what)
    const [verb, state] = states[turn++ % 2]!
    const { code, err } = await command(folder, ['keys', verb, 'leaked'])
    t.equal(code, 0, `${what}: ${err}`)
    t.match(err, new RegExp(`gateway.yaml can't be used now.*the gateway that runs at ${admin} is used`), what)
    t.match(await command(folder, ['keys', 'show', 'leaked']), { code: 0, out: state }, what)
    t.match(await command(folder, ['status']), { err: /can't be used now/ }, what)
  }
  // Commands that need the file itself do not go on without it.
  t.match(await command(folder, ['check']), { code: 1 })
  t.match(await command(folder, ['store', 'export', 'e']), { code: 1 })
  running.child.kill('SIGTERM')
  await running.ended
  t.match(await command(folder, ['keys', 'freeze', 'leaked']), { code: 1,
    err: /The configuration can't be used:\n.*gateway\.yaml:\d+:\d+/ }, 'no gateway runs')
})
