// The configuration in the admin API: generations and what each has changed, and texts that are judged and compared
// without going live. Whatever is sent, no file of the machine and nothing of its environment comes back.
import { existsSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { BASE, configAdmin as admin } from '../support/config-admin.ts'
import { KEY } from '../support/gateway.ts'
import { until } from '../support/until.ts'

t.test('each configuration that went live is told, with what it has changed, by whom; a refused one with its lines', async (t) => {
  const own = await admin(t)
  const status = async (): Promise<Record<string, unknown>> =>
    (await own.ask('GET', '/config')).body as unknown as Record<string, unknown>
  t.match(await status(), { generation: 1, generations: [{ generation: 1, reason: 'start', changes: [] }] })
  await own.rewrite(BASE.replace('output: 15', 'output: 16').replace('name: Acme', 'name: Acme Ltd'))
  t.match(await status(), { generation: 2, problems: [], generations: [{ generation: 2, reason: 'file', more_changes: 0,
    changes: [
      { path: '/models/m1/channels/premium/price/output', what: 'changed', before: '"15"', after: '"16"' },
      { path: '/accounts/acme/name', what: 'changed', before: '"Acme"', after: '"Acme Ltd"' }
    ] }, { generation: 1 }] })
  await own.rewrite(BASE.replace('output: 15', 'outputs: 15'))
  t.match(await status(), { generation: 2, last_reload: { ok: false },
    problems: [{ path: '/models/0/channels/premium/price', line: Number, column: Number, file: own.file },
      { path: '/models/0/channels/premium/price/outputs', line: BASE.split('\n').findIndex((line) =>
        line.includes('output: 15')) + 1 }] })
  const told = own.live.reloaded()
  writeFileSync(own.file, BASE)
  await told
  t.match((await status())['generations'], [{ generation: 3 }, {}, {}])
  const again = own.live.reloaded()
  own.reload()
  await again
  t.equal(((await status())['generations'] as unknown[]).length, 3, 'nothing to apply is no generation')
  const held = own.live.reloaded()
  writeFileSync(own.file, BASE.replace('output: 15', 'output: 17'))
  own.reload()
  await held
  t.match((await status())['generations'], [{ generation: 4, reason: /sighup|file/ }])
})

t.test('the last 20 are kept', async (t) => {
  const own = await admin(t)
  for (let i = 0; i < 22; i++) await own.rewrite(BASE.replace('output: 15', `output: ${20 + i}`))
  const { generations } = (await own.ask('GET', '/config')).body
  t.strictSame(generations.map(({ generation }) => generation), Array.from({ length: 20 }, (_, i) => 23 - i))
})

t.test('a text is judged as a reload would: mistakes with their lines, what is odd, and nothing goes live', async (t) => {
  const own = await admin(t)
  t.strictSame(await own.check(BASE), { ok: true, problems: [], warnings: [], unread: [], is_cut: false })
  const line = (part: string): number => BASE.split('\n').findIndex((one) => one.includes(part)) + 1
  t.match(await own.check(BASE.replace('kind: text', 'kind: txt').replace('account: acme,', 'account: acm,')), {
    ok: false, problems: [
      { path: '/models/0/kind', line: line('kind: text'), hint: 'did you mean "text"?' },
      { path: '/keys/0/account', line: line('account: acme,'), message: /there is no account "acm"/ }]
  })
  t.match(await own.check(BASE.replace('input: 3,', 'input: 0.000003,')),
    { ok: true, warnings: [{ path: '/models/0/channels/premium/price/input' }] })
  t.match(await own.check('a: [b'), { ok: false, problems: [{ line: 1, message: /not closed/ }] })
  t.match(await own.check(''), { ok: false, problems: [{ message: 'the file is empty' }] })
  t.strictSame(await own.diff(BASE), { ok: true, problems: [], warnings: [], unread: [], is_cut: false, changes: [],
    more_changes: 0 })
  t.match(await own.diff(BASE.replace('output: 15', 'output: 16')), { ok: true, changes: [
    { path: '/models/m1/channels/premium/price/output', what: 'changed', before: '"15"', after: '"16"' }] })
  t.match(await own.diff(BASE.replace('drain_timeout: 5s', 'drain_timeout: 6s')), { ok: true,
    changes: [{ path: '/server/drain_timeout', before: '5000', after: '6000' }] })
  t.match(await own.diff('a: b'), { ok: false, changes: [], problems: [{}, {}] })
  t.equal(own.live.state().generation, 1)
})

t.test('in a thread it is the same', async (t) => {
  const own = await admin(t, BASE, { load: 'thread' })
  t.match(await own.check(BASE), { ok: true })
  t.match(await own.diff(BASE.replace('output: 15', 'output: 16')), { ok: true, changes: [{}] })
  t.match(await own.check(BASE.replace('kind: text', 'kind: txt')), { problems: [{ path: '/models/0/kind' }] })
})

/** The threads that this process starts from now on. */
function startedThreads (t: Test): readonly Worker[] {
  const started: Worker[] = []
  const note = (worker: Worker): void => { started.push(worker) }
  process.on('worker', note)
  t.teardown(() => { process.off('worker', note) })
  return started
}

t.test('a thread that has judged a text judges the next one, until it dies or the gateway ends', async (t) => {
  const own = await admin(t, BASE, { load: 'thread' })
  const started = startedThreads(t)
  const judged = async (): Promise<number> => {
    t.match(await own.check(BASE), { ok: true })
    t.match(await own.diff(BASE.replace('kind: text', 'kind: txt')), { problems: [{ path: '/models/0/kind' }] })
    t.match(await own.diff(BASE.replace('output: 15', 'output: 16')), { ok: true, changes: [{}] })
    return started.length
  }
  t.equal(await judged(), 1)
  await started[0]!.terminate()
  t.equal(await judged(), 2, 'a dead one is followed by another')
  own.live.close()
  await until(() => started[1]!.threadId === -1 || undefined)
})

t.test('a thread that may have loaded a plugin of the user judges one text', async (t) => {
  const text = BASE.replace('[auth,', '[{ use: ./mine.ts }, auth,')
  const own = await admin(t, text, { load: 'thread',
    files: { 'mine.ts': 'export default { name: "mine", create: () => ({}) }\n' } })
  const started = startedThreads(t)
  for (const count of [1, 2]) {
    t.match(await own.check(text), { ok: true, problems: [] })
    t.equal(started.length, count)
  }
})

t.test('no file of the machine is read, nothing of its environment is told, and no plugin is run', async (t) => {
  const secrets = { environment: 'Env1ronment-Secret-9', file: 'F1le-Secret-77777', yaml: 'Y4ml-Secret-8888',
    header: 'upstream-secret-0', key: KEY, admin: 'test-admin-token' }
  const own = await admin(t, BASE.replace('name: Acme,', 'name: "${NAME}",'), {
    env: { ...process.env, HIDDEN: secrets.environment, NAME: 'Named' },
    files: { 'secret.txt': secrets.file,
      'other.yaml': `${secrets.yaml}: ${secrets.yaml}\nlog: { level: ${secrets.yaml} }`,
      'evil.ts': 'import { writeFileSync } from "node:fs"\nwriteFileSync(new URL("ran", import.meta.url), "")\n' +
        'export default { name: "evil", create: () => ({}) }' }
  })
  const folder = path.dirname(own.file)
  const inPlaceOf = (part: string, other: string): string => {
    t.ok(BASE.includes(part), part)
    return BASE.replace(part, other)
  }
  const texts: Readonly<Record<string, string>> = {
    'a name': inPlaceOf('name: Acme,', 'name: "${HIDDEN} ${file:secret.txt}",'),
    'a default': inPlaceOf('name: Acme,', 'name: "${HIDDEN:-x}",'),
    'a choice': inPlaceOf('kind: text', 'kind: "${HIDDEN}"'),
    'a choice from a file': inPlaceOf('kind: text', 'kind: "${file:secret.txt}"'),
    'a number': inPlaceOf('context: 200000', 'context: "${file:secret.txt}"'),
    'a duration': inPlaceOf('drain_timeout: 5s', 'drain_timeout: "${HIDDEN}"'),
    'an id': inPlaceOf('{ id: acme, name', '{ id: "${file:secret.txt}", name'),
    'a plugin': inPlaceOf('[auth,', '["${HIDDEN}", auth,'),
    'an option': inPlaceOf('[auth,', '[{ auth: { prefix: "${HIDDEN}" } },'),
    'a price': inPlaceOf('input: 3,', 'input: "${HIDDEN}",'),
    'a key in its own place': inPlaceOf(`secret: ${KEY}`, 'secret: "${file:secret.txt}"'),
    'an include': `include: [secret.txt]\n${BASE}`,
    'an include of YAML': `include: [other.yaml]\n${BASE}`,
    'an include by its path': `include: ["${folder}/other.yaml", /etc/passwd]\n${BASE}`,
    'an include of a name': `include: ["\${HIDDEN}", "\${file:secret.txt}"]\n${BASE}`,
    'a plugin of somebody': inPlaceOf('[auth,', '[{ use: ./evil.ts }, auth,'),
    'the file itself': `include: [gateway.yaml]\n${BASE}`
  }
  for (const [about, text] of Object.entries(texts)) {
    for (const where of ['/config/check', '/config/diff']) {
      const { status, text: said } = await own.ask('POST', where, JSON.stringify({ text }))
      t.equal(status, 200, about)
      for (const [name, secret] of Object.entries(secrets)) {
        const isTold = said.includes(secret) || said.includes(Buffer.from(secret).toString('base64'))
        if (isTold) t.fail(`${about}: the secret of "${name}" is told: ${said}`)
      }
      if (/root:|evil\.ts.*threw/.test(said)) t.fail(`${about}: ${said}`)
    }
  }
  t.notOk(existsSync(path.join(folder, 'ran')), 'the plugin did not run')
  t.match(await own.check(texts['a choice']!), { ok: true,
    unread: [{ path: '/models/0/kind', message: 'the value of ${HIDDEN} is not looked at here', line: Number }] })
  t.match(await own.check(texts['an option']!), { ok: true, unread: [{ path: '/pipeline/0/with/prefix' }] })
  t.match(await own.check(texts['an include']!), { ok: false,
    problems: [{ path: '/include/0', message: /is not one of the live configuration, and no other is read here/ }] })
  t.match(await own.check(texts['a plugin of somebody']!), { ok: false,
    problems: [{ path: '/pipeline/0/use', message: /is not one of the live configuration, and no other is loaded/ }] })
  const unknown = await own.diff(texts['a default']!)
  t.match(unknown, { ok: true, unread: [{ path: '/accounts/0/name' }] })
  t.strictSame(unknown.changes, [], 'what is not known is no difference')
  const config = (await own.ask('GET', '/config')).text
  for (const secret of [secrets.environment, secrets.key, secrets.header, secrets.admin]) t.notMatch(config, secret)
})

t.test('what the live configuration includes, and the plugins that it names, a text may name too', async (t) => {
  const own = await admin(t, `include: [more.yaml]\n${BASE}`.replace('[auth,', '[{ use: ./mine.ts }, auth,'), {
    files: { 'more.yaml': 'log: { level: warn }\n',
      'mine.ts': 'export default { name: "mine", create: () => ({}) }\n' }
  })
  const same = `include: [more.yaml]\n${BASE}`.replace('[auth,', '[{ use: ./mine.ts }, auth,')
  t.strictSame((await own.diff(same)).changes, [])
  t.match(await own.diff(same.replace('include: [more.yaml]\n', '')), { ok: true,
    changes: [{ path: '/log/level', before: '"warn"', after: '"info"' }] })
})

t.test('a body that is too large, or no text, is refused; many at a time wait', async (t) => {
  const own = await admin(t)
  t.match(await own.ask('POST', '/config/check', JSON.stringify({ text: 'x'.repeat(4 * 1024 * 1024) })),
    { status: 413, body: { error: { code: 'request_too_large' } } })
  t.match(await own.ask('POST', '/config/check', '{}'), { status: 400,
    body: { error: { message: /"text" is missing/ } } })
  t.match(await own.ask('POST', '/config/check', '{"text":1}'), { status: 400 })
  t.match(await own.ask('POST', '/config/check', '{"text":"","file":"/etc/passwd"}'), { status: 400,
    body: { error: { message: /unknown key "file"/ } } })
  t.match(await own.ask('POST', '/config/check', Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d])), { status: 400,
    body: { error: { message: /not JSON in UTF-8/ } } })
  const all = await Promise.all(Array.from({ length: 12 }, async () =>
    (await own.ask('POST', '/config/check', JSON.stringify({ text: BASE }))).status))
  t.strictSame(new Set(all), new Set([200]))
})
