// The models that a key may call. Read by key-policy and by the lists of models alike, so that the listed models are
// the allowed ones.
import type { KeyConfig, ModelConfig } from '../config/config.ts'

/**
 * An entry is an id, or a prefix of ids with "*" at its end.
 * @param alias by which the model is called, which may be allowed in its place
 */
export function mayCall (
  { id }: Pick<ModelConfig, 'id'>,
  { allowed_models: allowed }: Pick<KeyConfig, 'allowed_models'>,
  alias?: string
): boolean {
  return allowed === undefined ||
    allowed.some((entry) => covers(entry, id) || (alias !== undefined && covers(entry, alias)))
}

function covers (entry: string, id: string): boolean {
  return entry.endsWith('*') ? id.startsWith(entry.slice(0, -1)) : id === entry
}
