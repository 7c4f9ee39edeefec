// The secrets of keys: a prefix, which is an option of auth, and 32 letters or digits.
import type { Config } from '../config/config.ts'
import { randomSecret } from '../base/secrets.ts'

export function keyPrefix ({ pipeline }: Pick<Config, 'pipeline'>): string {
  const prefix = pipeline.find(({ use }) => use === 'auth')?.with['prefix']
  return typeof prefix === 'string' ? prefix : 'sk-gw-'
}

export function newKeySecret (config: Pick<Config, 'pipeline'>): string {
  return keyPrefix(config) + randomSecret()
}
