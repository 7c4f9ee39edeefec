// The models that a key may call, their names, and the channel that it would be charged for first.
import { mayCall } from '../accounts/allowed-models.ts'
import type { ChannelConfig, ModelConfig } from '../config/config.ts'
import { nearest } from '../config/check/suggest.ts'
import type { Exchange } from '../core/exchange.ts'
import { ApiKey } from '../core/facts.ts'
import { channelsFor } from './channels.ts'

/** A model by a name that clients may send: its id, or an alias. */
export interface CatalogEntry {
  readonly id: string
  readonly model: ModelConfig
  /** the channel that the key would be charged for first */
  readonly sold: ChannelConfig
}

/** Models in maintenance included: a client that chooses among them must not forget one meanwhile. */
export function callable (exchange: Exchange): readonly CatalogEntry[] {
  const { snapshot, snapshot: { config: { models, aliases } } } = exchange
  const all = [...models.map((model) => ({ id: model.id, model })),
    ...aliases.filter(({ id }) => snapshot.isAlias(id)).map(({ id }) => ({ id, model: snapshot.modelOf(id)! }))]
  return all.flatMap(({ id, model }) => {
    const sold = soldTo(exchange, model, id)
    return sold === undefined ? [] : [{ id, model, sold }]
  })
}

/**
 * The channel that the key would be charged for first; undefined: it may not call the model. Without auth in the
 * route's pipeline there is no key, and the operator has opened the list.
 * @param asked the name by which the client calls it; of those that an alias catches none counts for `allowed_models`
 */
export function soldTo (exchange: Exchange, model: ModelConfig, asked?: string): ChannelConfig | undefined {
  const apiKey = exchange.find(ApiKey)
  if (apiKey === undefined) return model.channels.premium ?? model.channels.cheap
  const alias = asked !== undefined && exchange.snapshot.isAlias(asked) ? asked : undefined
  if (!mayCall(model, apiKey.key, alias)) return undefined
  const channels = channelsFor(model, apiKey)
  return channels.kind === 'open' ? model.channels[channels.first] : undefined
}

/** Most ids that are compared, letter by letter: a wrong id must stay cheap. */
const COMPARED = 100

/** The nearest id among those that the key may call: agents add a date, people mistype. */
export function nearestModel (exchange: Exchange, id: string): string | undefined {
  const known = callable(exchange).map((named) => named.id)
  return known.filter((other) => id.startsWith(other)).toSorted((a, b) => b.length - a.length)[0] ??
    nearest(id, known.slice(0, COMPARED))
}
