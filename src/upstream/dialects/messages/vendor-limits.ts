// What imitations of messages style do not take of a request, by the settings of their upstream.
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import type { MessagesConfig } from '../../../config/config.ts'
import { withoutAttribution } from '../../../core/conversation.ts'
import { hashed, userId } from '../user-id.ts'
import { fieldNow, type Removal, withoutFields } from './beta-fields.ts'

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
