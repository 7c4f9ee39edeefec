// models: names in them must exist, and sold variants must be possible.
import { isMap, type Path } from '../yaml/position.ts'
import { dialectNamed, standardDialect } from './dialects.ts'
import { at, checkUnique, items, type Report, type RuleInput, text } from './input.ts'
import { isSoldByTokens, kinds } from './modalities.ts'
import { channelPrice, checkPriceList, checkUnit, targetCost } from './prices.ts'
import { checkUpstreamName } from './upstreams.ts'
import { checkVariants } from './variants.ts'
import { choice, flag, id, list, maintenance, map, nameOrId, type Of, oneLine, record, word } from './schema.ts'

const channel = map('One way to sell the model.', {
  enabled: flag('false: switched off.', true),
  maintenance: maintenance('true: as if it were not there; where no other may serve, 503 maintenance.'),
  sticky: flag('true: the requests of one conversation go to the same target, whose prompt cache knows it.', false),
  price: channelPrice,
  targets: list('What answers; chosen by weight.', map('A model of an upstream.', {
    upstream: { description: 'A name in upstreams.', type: 'string' },
    model: { description: 'Its name for the model.', type: 'string', minLength: 1 },
    weight: {
      description: 'Its share of the requests; 0: none.',
      type: 'integer', minimum: 0, maximum: 1_000_000, default: 1
    },
    priority: {
      description: 'Targets of a higher number are asked when all of a lower one are out, full, or have failed.',
      type: 'integer', minimum: 0, maximum: 100, default: 0
    },
    cost: targetCost
  }, { required: ['upstream', 'model'] }), { minItems: 1 })
}, { required: ['price', 'targets'] })

const parameter = map('A field of a request.', {
  values: list('What it may be.', word('A value.'), { minItems: 1 }),
  default: word('Of a request that does not name it; absent: it stays unset.'),
  max_pixels: record(
    'Of "resolution": the pixels (width times height) that a value covers. A request that names only a size gets the ' +
    'smallest that covers it.',
    { description: 'Pixels.', type: 'integer', minimum: 1 }, { minProperties: 1 }
  )
}, { required: ['values'] })

const model = map('A model that clients can ask for.', {
  id: id('What clients send as "model".'),
  name: nameOrId('For people; absent: the id.'),
  provider: oneLine('Who made it.'),
  kind: choice('What it gives.', kinds, 'text'),
  created: {
    description: 'Day of its availability.',
    type: 'string',
    pattern: '^\\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\\d|3[01])$',
    expected: 'a day such as 2025-09-29'
  },
  family: { description: 'Models that share limits.', type: 'string', minLength: 1 },
  context: { description: 'Tokens of input that fit.', type: 'integer', minimum: 1 },
  max_output: { description: 'Tokens of output at most.', type: 'integer', minimum: 1 },
  over_max_output: choice(
    'A request for more output than max_output: refuse it, or clamp, which lowers it to max_output (and a thinking ' +
    'budget with it) and says so in the header x-gateway-max-tokens of the answer.',
    ['refuse', 'clamp'], 'refuse'
  ),
  default_max_tokens: {
    description: 'max_tokens of a chat request that names none; absent: the smaller of max_output and 8192.',
    type: 'integer', minimum: 1
  },
  sampling: flag('Whether it takes temperature, top_p and top_k; false: they are left out.', true),
  thinking: choice(
    'How it thinks when a chat request sets reasoning_effort: with a budget of tokens, adaptive (as it sees fit), ' +
    'or none.',
    ['budget', 'adaptive', 'none'], 'none'
  ),
  structured_outputs: flag(
    'Whether it takes a JSON Schema for its answer; false: a tool is forced in its place.', false
  ),
  mid_system: flag(
    'Whether it takes system turns among the messages, as the newest models of messages style do; false: an upstream ' +
    'of that style gets them as text of the user, marked as a reminder of the system.', false
  ),
  auto_cache: flag(
    'Whether a request of the Responses API with a prompt_cache_key, as agents send it, is cached at its provider up ' +
    'to its end: what is written to the cache costs more than input, what is read from it less.', true
  ),
  accepts: list('What a request may hold.', choice('A kind of content.', ['text', 'image']), {
    minItems: 1, uniqueItems: true, default: ['text']
  }),
  maintenance: maintenance('true: 503 maintenance to who asks for it.'),
  parameters: record('Of an image or video model: what a request may choose, by the name of its field.', parameter, {
    propertyNames: {
      pattern: '^[a-z][a-z0-9_]{0,31}$',
      expected: 'the name of a field of a request, such as resolution'
    }
  }),
  channels: map('The ways in which it is sold.', { premium: channel, cheap: channel }, { minProperties: 1 })
}, { required: ['id', 'provider', 'created', 'channels'] })

export const models = list('What can be asked for.', model, { default: [] })

export type ModelConfig = Of<typeof model>
/** The kind of output of a model. */
export type { ModelKind } from './modalities.ts'
export type ChannelConfig = Of<typeof channel>
export type ChannelName = keyof ModelConfig['channels']
export type TargetConfig = ChannelConfig['targets'][number]
/** A parameter of an image or video model, under its name in a request. */
export type ParameterConfig = Of<typeof parameter>

/** @param now milliseconds since the epoch */
export function checkModels (input: RuleInput, now: number, report: Report, warn: Report): void {
  const { value, tree } = input
  const models = items(value.models, 'models')
  checkUnique(models, 'id', 'models', input, report)
  for (const { item, path } of models) {
    const created = text(item.created, tree, [...path, 'created'])
    if (created !== undefined && /^\d{4}-\d{2}-\d{2}$/.test(created) && !isDay(created)) {
      report([...path, 'created'], `there is no such day: ${created}`)
    }
    const accepts = item.accepts
    if (Array.isArray(accepts) && accepts.length > 0 && !accepts.includes('text')) {
      report([...path, 'accepts'], 'must hold text')
    }
    checkTokens(item, path, warn)
    checkOutput(item, path, report, warn)
    checkVariants(item, path, input, report, warn)
    const channels = isMap(item.channels) ? Object.entries(item.channels) : []
    for (const [name, channel] of channels) {
      checkPriceList(at(channel, 'price'), [...path, 'channels', name, 'price'], item.kind, input, now, report, warn)
      if (!isSoldByTokens(item.kind) && at(channel, 'sticky') === true) {
        report([...path, 'channels', name, 'sticky'], 'belongs to text models: there is no conversation', 'remove it',
          true)
      }
      const targets = at(channel, 'targets')
      const list = (Array.isArray(targets) ? targets : []) as readonly unknown[]
      for (const [index, target] of list.entries()) {
        const here = [...path, 'channels', name, 'targets', index]
        checkUpstreamName(text(at(target, 'upstream'), tree, [...here, 'upstream']), [...here, 'upstream'], input, report)
        checkUnit(at(target, 'cost'), [...here, 'cost'], item.kind, input, warn)
      }
      if (item.thinking !== undefined && item.thinking !== 'none' && at(channel, 'sticky') !== true) {
        checkFamilies(list, [...path, 'channels', name, 'targets'], input, warn)
      }
      if (list.length > 0 && list.every((target) => at(target, 'weight') === 0)) {
        report([...path, 'channels', name, 'targets'], 'all weights are 0: no target can be chosen',
          'switch the channel off with "enabled: false"')
      }
    }
    if (channels.length > 0 && channels.every(([, channel]) => at(channel, 'enabled') === false)) {
      warn([...path, 'channels'], 'all channels are switched off: the model cannot be called', undefined, true)
    }
  }
}

/** Warns of targets between which conversations move at every turn, and lose their thoughts each time. */
function checkFamilies (targets: readonly unknown[], path: Path, { value }: RuleInput, warn: Report): void {
  const upstreamOf = (target: unknown): unknown => at(value, 'upstreams', String(at(target, 'upstream')))
  const signing = targets.filter((target) =>
    dialectNamed(at(upstreamOf(target), 'dialect') ?? standardDialect)?.signsThoughts === true
  )
  for (const tier of Map.groupBy(signing, (target) => at(target, 'priority') ?? 0).values()) {
    const declared = tier.map((target) => at(upstreamOf(target), 'thinking_family'))
    const families = new Map(tier.map((target, i) => [declared[i] ?? at(target, 'upstream'), at(target, 'upstream')]))
    const [one, other] = families.values()
    if (other === undefined || !declared.includes(undefined)) continue
    warn(path, `conversations move between ${String(one)} and ${String(other)}, and leave their thoughts behind`,
      'write "sticky: true" beside them; or, if both run models of one vendor, the same "thinking_family" in both')
  }
}

/** No model has so many tokens, of input or of output: it is another unit, or a slip. */
const MOST_TOKENS = 1e8

function checkTokens ({ context, max_output: most }: Record<string, unknown>, path: Path, warn: Report): void {
  const odd = ([['context', context], ['max_output', most]] as const).filter(([, count]) =>
    typeof count === 'number' && count > MOST_TOKENS
  )
  for (const [name, count] of odd) {
    warn([...path, name], `is counted in tokens, and no model has ${String(count)} of them`)
  }
  if (odd.length > 0) return
  if (typeof most === 'number' && typeof context === 'number' && most > context) {
    warn([...path, 'max_output'], `is more than context, ${context}: both are counted in tokens`,
      'what a model writes is a part of its context')
  }
}

function checkOutput (
  { kind, max_output: most, over_max_output: over, default_max_tokens: standard, thinking }: Record<string, unknown>,
  path: Path,
  report: Report,
  warn: Report
): void {
  if (most === undefined && over === 'clamp' && isSoldByTokens(kind)) {
    report([...path, 'over_max_output'], 'lowers nothing: the model has no max_output', 'add "max_output: 64000"', true)
  }
  if (typeof most !== 'number') return
  if (typeof standard === 'number' && standard > most) {
    report([...path, 'default_max_tokens'],
      `must not be more than max_output, ${most}: requests that name none would all be refused`)
  }
  // The vendor's rule: a budget is at least 1024 tokens, and less than max_tokens
  if (thinking === 'budget' && most <= 1024) {
    warn([...path, 'thinking'],
      `a budget has at least 1024 tokens and is less than max_output, ${most}: it never thinks`,
      'write "thinking: none"')
  }
}

function isDay (text: string): boolean {
  const date = new Date(`${text}T00:00:00Z`)
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text)
}
