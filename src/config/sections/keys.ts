// accounts and keys: payers, strong secrets, and limits that take effect.
import { formatUsd, MOST_NANOS, parseUsd } from '../../money/nanos.ts'
import { isTimeZone } from '../../money/calendar.ts'
import { explainUsd } from '../check/keywords.ts'
import { findTree, isMap, type Path, printSpot, type Tree } from '../yaml/position.ts'
import { quote, show } from '../check/messages.ts'
import { nearest, suggest } from '../check/suggest.ts'
import { at, checkUnique, items, providerOf, type Report, type RuleInput, text, texts } from './input.ts'
import { stemOf } from './aliases.ts'
import { checkNetworks } from './networks.ts'
import { choice, flag, id, line, list, map, type Of, tags, usd } from './schema.ts'

const CHANNELS = ['premium', 'cheap'] as const

/** A list that is not empty: an empty one could mean that no value is allowed, or every one. */
function some<const Item extends object> (description: string, items: Item) {
  return list(description, items, { minItems: 1, uniqueItems: true, hint: 'leave it out to allow all' })
}

export const key = map('What a client proves itself with.', {
  id: id('Its name in log and ledger.'),
  account: { description: 'The account that pays.', type: 'string' },
  secret: { description: 'What the client sends: a prefix and 32 letters or digits.', type: 'string', secret: true },
  frozen: flag('true: it is refused like an unknown key.', false),
  usage_limit_usd: usd('What it may spend in total; absent: no limit of its own.'),
  usage_limit_day_usd: usd('What it may spend on a calendar day of its time zone; absent: no limit.'),
  usage_limit_month_usd: usd('What it may spend in a calendar month of its time zone; absent: no limit.'),
  time_zone: { description: 'Where its days and months begin, such as Europe/Berlin; absent: UTC.', type: 'string' },
  rate_limit: {
    description: 'Requests in any 60 seconds; 0: no limit; absent: the default_rpm of its plugin.',
    type: 'integer', minimum: 0, maximum: 1_000_000_000
  },
  concurrency: {
    description: 'Requests at a time; 0: no limit; absent: the default_concurrency of its plugin.',
    type: 'integer', minimum: 0, maximum: 1_000_000
  },
  abandon_limit: {
    description: 'Requests in any 60 seconds that it may abandon before their answers begin; 0: no limit; absent: the ' +
      'default_abandons of its plugin.',
    type: 'integer', minimum: 0, maximum: 1_000_000
  },
  allowed_models: some(
    'The models that it may call; absent: all.',
    {
      description: 'An id, or the beginning of ids with "*" at the end.',
      type: 'string',
      pattern: '^(?:[^*]+\\*?|\\*)$',
      expected: 'an id of a model, or the beginning of one with "*" at the end'
    }
  ),
  allowed_clients: some(
    'The clients that may use it, by what they say of themselves, which can be forged; absent: all.',
    {
      description: 'A well-known client such as claude-code, or a user agent with "*" for any characters.',
      type: 'string', minLength: 1
    }
  ),
  ip_whitelist: some(
    'The network addresses that may use it; absent: all.',
    { description: 'An address, or a network such as 10.0.0.0/8.', type: 'string' }
  ),
  allowed_origins: some(
    'The web pages that may use it from a browser; requests without an Origin are let through; absent: all.',
    {
      description: 'Scheme, host and port of a page.', type: 'string', pattern: '^(?:null|[^*:]*://[^*]*)$',
      expected: 'an origin such as https://app.example.com, without "*"'
    }
  ),
  streaming: flag('false: requests for a stream are refused.', true),
  store: flag('false: no answer of the Responses API is kept for it, whatever its requests say.'),
  routing_mode: choice(
    'Which channel is asked, and which follows when it fails: premium; cheap; auto_cheap and max: cheap, then ' +
    'premium; auto_premium: premium, then cheap. A model that is not sold in cheap is premium in every mode.',
    ['premium', 'cheap', 'auto_cheap', 'max', 'auto_premium'], 'premium'
  ),
  channels: list('The channels that it may use at all.', choice('A channel.', CHANNELS), {
    minItems: 1, uniqueItems: true, default: CHANNELS
  }),
  name: line('For people, such as what it is used for; absent: it has none.', 100),
  tags: tags('The operator\'s own words for it, by which the admin API filters; absent: none.')
}, { required: ['id', 'account', 'secret'] })

export const keys = list('What clients prove themselves with.', key, { default: [] })

export type KeyConfig = Of<typeof key>
export type RoutingMode = KeyConfig['routing_mode']

const KEY_PREFIX = 'sk-gw-'
/** Unknown accounts for which the nearest name is looked for: each is compared with all. */
const MOST_SUGGESTED = 100
export function checkKeys (input: RuleInput, report: Report, warn: Report): void {
  const { value, tree } = input
  const accounts = [...checkUnique(items(value.accounts, 'accounts'), 'id', 'accounts', input, report).keys()]
  for (const { item, path } of items(value.accounts, 'accounts')) {
    const opening = text(item.opening_balance_usd, tree, [...path, 'opening_balance_usd'])
    if (opening === undefined || explainUsd(opening, 9) !== undefined || parseUsd(opening) <= MOST_NANOS) continue
    report([...path, 'opening_balance_usd'],
      `must be at most ${formatUsd(MOST_NANOS)} US dollars: no ledger counts more`)
  }
  const keys = items(value.keys, 'keys')
  checkUnique(keys, 'id', 'keys', input, report)
  const prefix = keyPrefix(input)
  const real = Object.entries(isMap(value.upstreams) ? value.upstreams : {}).find(([, upstream]) =>
    !['simulator:', undefined].includes(at(upstream, 'url') as string | undefined)
  )
  if (keys.length === 0 && real !== undefined) {
    warn(['upstreams', real[0], 'url'],
      'is not the built-in simulator, so the demo key is off; and no keys are declared',
      'add accounts: and keys:, or make them with "gateway accounts create" and "gateway keys create"')
  }
  // What an alias catches is judged by its model, whose own id is the one to allow.
  const models = [...items(value.models, 'models'), ...items(value.aliases, 'aliases')].flatMap(({ item: { id } }) =>
    typeof id === 'string' && stemOf(id) === undefined ? [id] : []
  )
  /** explanations by entry: a thousand keys may name the same model, and to look for the nearest name takes long */
  const explained = new Map<string, Wrong | undefined>()
  /** nearest time zones, by entry */
  const meant = new Map<string, string | undefined>()
  const idle = idleSettings(input)
  const identity = providerOf('identity', input)
  const secrets = new Map<string, Path>()
  const declared = new Set(accounts)
  let unknown = 0
  for (const { item, path } of keys) {
    const account = text(item.account, tree, [...path, 'account'])
    if (account !== undefined && !declared.has(account)) {
      const near = unknown++ < MOST_SUGGESTED ? nearest(account, accounts) : undefined
      report([...path, 'account'], `there is no account ${quote(account)}`,
        near === undefined ? 'add it to accounts:' : `did you mean "${near}"?`)
    }
    const where = [...path, 'secret']
    const secret = text(item.secret, tree, where)
    if (secret !== undefined && prefix !== undefined) {
      // never the secret, nor how much of it is right
      if (!secret.startsWith(prefix) || !/^[A-Za-z0-9]{32}$/.test(secret.slice(prefix.length))) {
        report(where, `must be "${prefix}" and 32 letters or digits`, explainSecret(secret, prefix))
      }
      const other = secrets.get(secret)
      if (other === undefined) secrets.set(secret, where)
      else report(where, `two keys have the same secret; the other is at ${printSpot(findTree(tree, other).tree.at)}`)
    }
    checkTimeZone(item, tree, path, meant, report, warn)
    for (const [setting, plugin] of idle) {
      if (![undefined, 0, true].includes(item[setting] as undefined)) {
        report([...path, setting], `limits nothing: ${plugin}, which looks at it, is not in pipeline:`,
          `add ${plugin} below ${identity}`, true)
      }
    }
    for (const { entry, here } of texts(item.allowed_models, tree, [...path, 'allowed_models'])) {
      if (!explained.has(entry)) explained.set(entry, explainModels(entry, models))
      const wrong = explained.get(entry)
      if (wrong !== undefined) warn(here, wrong.message, wrong.hint)
    }
    checkNetworks(item.ip_whitelist, tree, [...path, 'ip_whitelist'], report)
    checkOrigins(item.allowed_origins, tree, [...path, 'allowed_origins'], report)
    if (Array.isArray(item.channels) && item.channels.length === 1) {
      const [only] = item.channels as readonly unknown[]
      if (
        (item.routing_mode === 'premium' && only === 'cheap') || (item.routing_mode === 'cheap' && only === 'premium')
      ) {
        warn(path,
          `routing_mode ${item.routing_mode} wants another channel than the only one of this key, ${only}: models ` +
          'that both sell are refused',
          `set routing_mode: ${only}, or add the channel ${item.routing_mode}`)
      }
    }
  }
}

function checkTimeZone (
  key: Record<string, unknown>,
  tree: Tree,
  path: Path,
  meant: Map<string, string | undefined>,
  report: Report,
  warn: Report
): void {
  const where = [...path, 'time_zone']
  const zone = text(key.time_zone, tree, where)
  if (zone === undefined) return
  if (!isTimeZone(zone)) {
    if (!meant.has(zone)) meant.set(zone, nearestZone(zone))
    report(where,
      `must be the name of a time zone such as Europe/Berlin, found ${show(zone, findTree(tree, where).tree, false)}`,
      meant.get(zone))
  } else if (key.usage_limit_day_usd === undefined && key.usage_limit_month_usd === undefined) {
    warn(where, 'changes nothing: the key has no limit per day or month',
      'add usage_limit_day_usd or usage_limit_month_usd, or leave time_zone out')
  }
}

/** The zone of a city that was written alone. */
function nearestZone (zone: string): string | undefined {
  const zones = ['UTC', ...Intl.supportedValuesOf('timeZone')]
  const plain = zone.replaceAll(' ', '_')
  const near = zones.find((one) => one.toLowerCase().endsWith(`/${plain.toLowerCase()}`)) ?? nearest(plain, zones)
  return near === undefined ? undefined : `did you mean "${near}"?`
}

/** The prefix of key secrets, an option of the plugin that provides identity; undefined: its value is not known. */
function keyPrefix (input: RuleInput): string | undefined {
  const identity = providerOf('identity', input)
  const found = items(input.value.pipeline, 'pipeline').find(({ item }) => item.use === identity)
  const prefix = at(found?.item, 'with', 'prefix')
  return typeof prefix === 'string' ? text(prefix, input.tree, [...found!.path, 'with', 'prefix']) : KEY_PREFIX
}

function explainSecret (secret: string, prefix: string): string {
  if (secret === '') return 'it is empty'
  if (secret.trim() !== secret) return 'it has a space or line break at one end'
  if (!secret.startsWith(prefix)) return `it does not begin with ${prefix}`
  const { length } = secret.slice(prefix.length)
  return length === 32
    ? 'it holds something else than letters and digits'
    : `it has ${length} characters after ${prefix}`
}

/** Settings of keys that no plugin enforces: the key is without that limit. */
function idleSettings ({ value, plugins }: RuleInput): [setting: string, plugin: string][] {
  if (!Array.isArray(value.pipeline)) return []
  const used = new Set(items(value.pipeline, 'pipeline').map(({ item }) => item.use))
  const by = (isUsed: boolean): [setting: string, plugin: string][] =>
    [...plugins].filter(([use]) => used.has(use) === isUsed)
      .flatMap(([, { name, enforces = [] }]) => enforces.map((setting) => [setting, name] as [string, string]))
  const looked = new Set(by(true).map(([setting]) => setting))
  return by(false).filter(([setting]) => !looked.has(setting))
}

interface Wrong { readonly message: string, readonly hint: string | undefined }

function explainModels (entry: string, models: readonly string[]): Wrong | undefined {
  if (!entry.endsWith('*')) {
    return models.includes(entry)
      ? undefined
      : { message: `there is no model ${quote(entry)}`, hint: suggest(entry, models) }
  }
  const stem = entry.slice(0, -1)
  if (models.some((id) => id.startsWith(stem))) return undefined
  const near = nearest(stem, models.map((id) => id.slice(0, stem.length)))
  return { message: `no model begins with ${quote(stem)}`,
    hint: near === undefined ? suggest(entry, models) : `did you mean "${near}*"?` }
}

/**
 * Checks that origins are in the one spelling that browsers send: they are compared letter by letter, so any other
 * would refuse every browser.
 */
function checkOrigins (list: unknown, tree: Tree, path: Path, report: Report): void {
  for (const { entry, here, shown } of texts(list, tree, path)) {
    const spelled = URL.canParse(entry) ? originOf(new URL(entry)) : undefined
    if (spelled === entry || !entry.includes('://') || entry.includes('*')) continue
    report(here, `must be an origin as browsers send it, such as https://app.example.com, found ${shown}`,
      spelled === undefined ? undefined : `did you mean ${quote(spelled)}?`)
  }
}

/** The origin of extensions and apps too: `URL` knows that of web pages only. */
function originOf ({ origin, protocol, host }: URL): string | undefined {
  return origin !== 'null' ? origin : host === '' ? undefined : `${protocol}//${host}`
}
