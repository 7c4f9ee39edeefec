// What imitations of messages style do not take of a request, or must not get, by the settings of their upstream.
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import type { MessagesConfig, UpstreamConfig } from '../../../config/config.ts'
import { withoutAttribution } from '../../../core/conversation.ts'
import { hashed, userId } from '../user-id.ts'
import { fieldNow, type Removal, withoutFields } from './beta-fields.ts'

/**
 * The fields of the Messages API, with those of its betas. Others may raise a vendor's price, as `models`, `plugins`
 * and `search_parameters` do, or make several answers (src/README.md#allow-list). Fields of the API with a price of
 * their own are refused before (plugins/billing-meter/surcharges.ts).
 */
const FIELDS: ReadonlySet<string> = new Set([
  'model', 'max_tokens', 'messages', 'system', 'metadata', 'stop_sequences', 'stream', 'temperature', 'top_p', 'top_k',
  'thinking', 'tools', 'tool_choice', 'output_config', 'output_format', 'cache_control', 'context_management',
  'diagnostics', 'service_tier', 'speed', 'container', 'inference_geo', 'mcp_servers', 'fallbacks', 'thread',
  'compaction', 'billing_policy',
  // Where Claude is behind a proxy in front of a cloud, these stand in the body.
  'anthropic_version', 'anthropic_beta'
])

/** Anthropic, the clouds that serve its API, and the simulator: they refuse a field that they do not know. */
const HOSTS = ['(?:[\\w-]+\\.)*anthropic\\.com',
  '(?:[\\w-]+-)?aiplatform\\.(?:[\\w-]+\\.rep\\.)?googleapis\\.com',
  '(?:[\\w-]+\\.)?(?:bedrock|aws-external-anthropic)[\\w-]*\\.[\\w-]+\\.' +
    '(?:vpce\\.)?(?:amazonaws\\.com(?:\\.cn)?|api\\.aws)',
  '[\\w-]+\\.services\\.ai\\.azure\\.com']
const REFUSES_UNKNOWN = new RegExp(`^(?:simulator:|https://(?:${HOSTS.join('|')})(?=[:/]|$))`)

/** The fields of a client's body that an upstream gets. Undefined: all. */
export function fieldsFor ({ url, messages }: UpstreamConfig): Pick<ReadonlySet<string>, 'has'> | undefined {
  const more = messages?.fields ?? (REFUSES_UNKNOWN.test(url) ? ['*'] : [])
  if (more.includes('*')) return undefined
  const beginnings = more.flatMap((name) => name.endsWith('*') ? [name.slice(0, -1)] : [])
  const names = new Set([...FIELDS, ...more])
  if (beginnings.length === 0) return names
  return { has: (name) => names.has(name) || beginnings.some((beginning) => name.startsWith(beginning)) }
}

const TTL: Removal = { marks: ['ttl'] }

/**
 * The changed fields of a body.
 * @param changes made so far
 */
export function withinLimits (body: Json, changes: Json, options: MessagesConfig): Json {
  const { user_id: user, cache_ttl: ttl, attribution } = options
  let changed = ttl === false ? withoutFields(body, changes, TTL) : changes
  if (attribution === false) {
    const system = fieldNow('system', body, changed)
    const kept = systemWithout(system)
    if (kept !== system) changed = { ...changed, system: kept }
  }
  return user === undefined || user === 'pass' ? changed : { ...changed, ...metadataOf(body, user) }
}

function metadataOf (body: Json, user: 'hash' | 'drop'): Json {
  const { metadata } = body
  if (!isRecord(metadata) || !isGiven(metadata.user_id)) return {}
  const { user_id: _, ...others } = metadata
  const named = user === 'hash' && userId(body) !== '' ? { ...others, user_id: hashed(userId(body)) } : others
  return { metadata: Object.keys(named).length === 0 ? undefined : named }
}

/** The same value where there is no attribution; undefined: nothing else is in it. */
function systemWithout (system: unknown): unknown {
  if (typeof system === 'string') {
    const kept = withoutAttribution(system)
    return kept === '' && system !== '' ? undefined : kept
  }
  if (!Array.isArray(system)) return system
  let isChanged = false
  const kept = system.flatMap((block: unknown) => {
    const text = isRecord(block) && typeof block.text === 'string' ? withoutAttribution(block.text) : undefined
    if (text === undefined || text === (block as Json).text) return [block]
    isChanged = true
    return text === '' ? [] : [{ ...block as Json, text }]
  })
  return !isChanged ? system : kept.length === 0 ? undefined : kept
}
