// The dialects of upstreams: each is the folder of its name, whose index.ts exports it as `dialect`. Their table is in
// config/sections/dialects.ts, because a configuration is checked without this code.
import { type Dialect, dialectNames } from '../../config/sections/dialects.ts'
import type { Upstream } from '../../core/upstream.ts'
import type { DialectModule } from './dialect.ts'
import { withClientNames } from './tool-names.ts'

/** as of this file: .ts, or .js in the package */
const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))

async function load (name: Dialect): Promise<[Dialect, DialectModule]> {
  const { dialect } = await import(`./${name}/index${extension}`) as { readonly dialect: DialectModule }
  return [name, withClientNames(dialect)]
}

export const dialects = Object.fromEntries(await Promise.all(dialectNames.map(load))) as
  Readonly<Record<Dialect, DialectModule>>

export function dialectOf ({ config }: Upstream): DialectModule {
  return dialects[config.dialect]
}
