// The demo account: play money and a generated key for a new installation. A key from a tutorial must never spend real
// money, so it is unknown as soon as one upstream is not the built-in simulator; its holder is told why.
import type { Config, DemoOff } from '../config/config.ts'
import type { PartWarning } from './reload.ts'
import { keepSecret, keptSecret } from '../base/secrets.ts'
import type { Directory } from '../accounts/directory.ts'
import { digestOf } from '../accounts/digests.ts'
import { keyPrefix, newKeySecret } from '../accounts/key-secret.ts'

export const DEMO = 'demo'

const FILE = 'demo-key'

/** Adds the account and its key, or the reason why there is none. @throws {Error} the data folder can't be written */
export function withDemo (config: Config, folder: string, directory: Directory): Config {
  const off = whyOff(config, directory)
  const prefix = keyPrefix(config)
  if (off === undefined) {
    const secret = keepSecret(folder, FILE, () => newKeySecret(config))
    if (secret.startsWith(prefix)) return withKey(config, secret)
  }
  const secret = keptSecret(folder, FILE)
  if (secret === undefined) return config
  const { path, why } = off ?? { path: '', why: `keys of this gateway begin with "${prefix}" now` }
  return { ...config, demo_off: { sha256: digestOf(secret).toString('hex'), path, why } }
}

/**
 * Warns of a reload that has turned it off. Where no keys are declared at all, a rule of the configuration already
 * reports more.
 */
export function turnedOff (before: Config | undefined, { demo_off: off, keys }: Config): readonly PartWarning[] {
  if (before === undefined || before.demo_off !== undefined || off === undefined || keys.length === 0) return []
  return [{ path: off.path, message: `the demo key is off now, because ${off.why}`, hint: 'use keys of your own' }]
}

function whyOff (
  { upstreams, accounts, keys }: Config,
  directory: Directory
): Pick<DemoOff, 'path' | 'why'> | undefined {
  const real = Object.entries(upstreams).find(([, { url }]) => url !== 'simulator:')
  if (real !== undefined) {
    return { path: `/upstreams/${real[0]}/url`, why: 'not every upstream is the built-in simulator' }
  }
  const isTaken = [...accounts, ...keys].some(({ id }) => id === DEMO) || directory.keptAccount(DEMO) !== undefined ||
    directory.keptKey(DEMO) !== undefined
  return isTaken ? { path: '', why: `another account or key is called "${DEMO}"` } : undefined
}

function withKey (config: Config, secret: string): Config {
  return {
    ...config,
    accounts: [...config.accounts, { id: DEMO, name: 'Demo', opening_balance_usd: '1000', allow_fallback: true,
      suspended: false }],
    keys: [...config.keys, { id: DEMO, account: DEMO, secret, frozen: false, streaming: true, routing_mode: 'premium',
      channels: ['premium', 'cheap'] }]
  }
}
