// What supervisors learn of a gateway: that it listens, that its configuration can't be used, and that it is healthy.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { untapped } from '../support/newcomer.ts'
import { folderFor } from '../support/spawned.ts'
import { until } from '../support/until.ts'

const folder = join(packageRoot, 'config/deploy')
const config = `server: { api: { listen: "127.0.0.1:0" }, public: { listen: "127.0.0.1:0" }, admin: { listen: "127.0.0.1:0" } }
store: { driver: memory }
pipeline: [auth]
`

void t.test('systemd and the health check of the image learn where and when a gateway listens', async (t) => {
  const home = folderFor(t)
  const file = join(home, 'gateway.yaml')
  writeFileSync(file, config)
  const messages = join(home, 'messages')
  const address = join(home, 'address')
  writeFileSync(join(home, 'systemd-notify'), `#!/bin/sh\ncat '${address}' > '${messages}.new'\n` +
    `echo "$@" >> '${messages}.new'\nmv '${messages}.new' '${messages}'\n`)
  chmodSync(join(home, 'systemd-notify'), 0o755)
  const env = { ...process.env, PATH: `${home}${delimiter}${process.env['PATH']}`, NOTIFY_SOCKET: '@a-socket',
    GATEWAY_ADDRESS_FILE: address }
  const isHealthy = (): boolean =>
    spawnSync('bash', [join(folder, 'health.sh')], { env, encoding: 'utf8' }).status === 0
  t.notOk(isHealthy(), 'before it is started')
  const [command, args] = untapped(process.execPath,
    [join(packageRoot, 'src/launcher.js'), 'start', '--config', file])
  const child = spawn(command, args, { cwd: home, env, stdio: 'ignore' })
  const ended = once(child, 'exit')
  t.teardown(() => child.kill('SIGKILL'))
  await until(() => existsSync(messages) || child.exitCode !== null)
  t.match(readFileSync(messages, 'utf8'), /^http:\/\/127\.0\.0\.1:\d+\n--ready\n$/)
  t.ok(isHealthy())
  child.kill('SIGTERM')
  t.strictSame(await ended, [0, null])
  t.notOk(isHealthy(), 'after its end')
})

void t.test('a configuration that can not be used ends with the exit code after which systemd does not restart', (t) => {
  const home = folderFor(t)
  const file = join(home, 'gateway.yaml')
  const unit = readFileSync(join(folder, 'model-gateway.service'), 'utf8')
  for (const text of [`${config}nonsense: true\n`, '{', `${config}upstreams: { a: { url: "\${NOT_SET}" } }\n`]) {
    writeFileSync(file, text)
    const [command, args] = untapped(process.execPath,
      [join(packageRoot, 'src/launcher.js'), 'start', '--config', file])
    const { status, stderr } = spawnSync(command, args, { cwd: home, encoding: 'utf8' })
    t.match(stderr, /configuration can't be used/)
    t.match(unit, `RestartPreventExitStatus=${status}\n`)
  }
  // systemctl reload: the lines run in order, and the first that fails ends it.
  const reloads = [...unit.matchAll(/^ExecReload=(.*)$/gm)].map(([, line]) => line!)
  t.match(reloads[0], / src\/launcher\.js check \/etc\/model-gateway\/gateway\.yaml$/)
  const [command, args] = untapped(process.execPath, [join(packageRoot, 'src/launcher.js'), 'check', file])
  t.equal(spawnSync(command, args, { cwd: home }).status, 1)
  t.end()
})
