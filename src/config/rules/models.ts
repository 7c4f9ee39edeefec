// models: what each of them names must exist, and what is sold must be possible.
import { isMap, type Path } from '../place.ts'
import { at, checkUnique, items, type Report, type RuleInput, text } from './input.ts'
import { checkPriceList } from './prices.ts'
import { checkUpstreamName } from './upstreams.ts'
import { checkVariants } from './variants.ts'

/** @param now milliseconds since the epoch */
export function checkModels (input: RuleInput, now: number, report: Report, warn: Report): void {
  const { value, tree } = input
  const models = items(value.models, 'models')
  checkUnique(models, 'id', 'models', input, report)
  for (const { item, path } of models) {
    const created = text(item.created, tree, [...path, 'created'])
    if (created !== undefined && /^\d{4}-\d{2}-\d{2}$/.test(created) && !isDay(created)) report([...path, 'created'], `there is no such day: ${created}`)
    const accepts = item.accepts
    if (Array.isArray(accepts) && accepts.length > 0 && !accepts.includes('text')) report([...path, 'accepts'], 'must hold text')
    checkTokens(item, path, warn)
    checkOutput(item, path, report, warn)
    checkVariants(item, path, input, report, warn)
    const channels = isMap(item.channels) ? Object.entries(item.channels) : []
    for (const [name, channel] of channels) {
      checkPriceList(at(channel, 'price'), [...path, 'channels', name, 'price'], item.kind, input, now, report, warn)
      if (item.kind !== 'text' && at(channel, 'sticky') === true) report([...path, 'channels', name, 'sticky'], 'belongs to text models: there is no conversation', 'remove it', true)
      const targets = at(channel, 'targets')
      const list = (Array.isArray(targets) ? targets : []) as readonly unknown[]
      for (const [index, target] of list.entries()) {
        const here = [...path, 'channels', name, 'targets', index, 'upstream']
        checkUpstreamName(text(at(target, 'upstream'), tree, here), here, input, report)
      }
      if (list.length > 0 && list.every((target) => at(target, 'weight') === 0)) report([...path, 'channels', name, 'targets'], 'all weights are 0: no target can be chosen', 'switch the channel off with "enabled: false"')
    }
    if (channels.length > 0 && channels.every(([, channel]) => at(channel, 'enabled') === false)) {
      warn([...path, 'channels'], 'all channels are switched off: the model cannot be called', undefined, true)
    }
  }
}

/** No model has so many tokens, of input or of output: it is another unit, or a slip. */
const MOST_TOKENS = 1e8

function checkTokens ({ context, max_output: most }: Record<string, unknown>, path: Path, warn: Report): void {
  const odd = ([['context', context], ['max_output', most]] as const).filter(([, count]) => typeof count === 'number' && count > MOST_TOKENS)
  for (const [name, count] of odd) warn([...path, name], `is counted in tokens, and no model has ${String(count)} of them`)
  if (odd.length > 0) return
  if (typeof most === 'number' && typeof context === 'number' && most > context) warn([...path, 'max_output'], `is more than context, ${context}: both are counted in tokens`, 'what a model writes is a part of its context')
}

function checkOutput ({ max_output: most, default_max_tokens: standard, thinking }: Record<string, unknown>, path: Path, report: Report, warn: Report): void {
  if (typeof most !== 'number') return
  if (typeof standard === 'number' && standard > most) report([...path, 'default_max_tokens'], `must not be more than max_output, ${most}: requests that name none would all be refused`)
  // protocol.md K 2.2h: a budget is at least 1024 tokens, and less than max_tokens
  if (thinking === 'budget' && most <= 1024) warn([...path, 'thinking'], `a budget has at least 1024 tokens and is less than max_output, ${most}: it never thinks`, 'write "thinking: none"')
}

function isDay (text: string): boolean {
  const date = new Date(`${text}T00:00:00Z`)
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text)
}
