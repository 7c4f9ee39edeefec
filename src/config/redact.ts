// The configuration without secrets: every secret is ***, and an absent one stays visible as absent.
import type { Config } from './config.ts'
import { isMap, parsePointer } from './yaml/position.ts'

const HIDDEN = '***'

/** An empty secret is shown: it is no secret, but a mistake. */
function hide (value: unknown): unknown {
  if (value === '' || value === null || value === undefined) return value
  if (Array.isArray(value)) return value.map(hide)
  if (isMap(value)) return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, hide(child)]))
  return HIDDEN
}

/**
 * @param secrets JSON pointers of further values to hide: options of plugins that are marked, or came from outside the
 * file
 */
export function redact (config: Config, secrets: readonly string[] = []): Config {
  const { token } = config.server.admin
  let shown: Config = {
    ...config,
    server: { ...config.server, admin: { ...config.server.admin, token: hide(token) as string },
      seal_secrets: hide(config.server.seal_secrets) as string[] },
    store: {
      ...config.store,
      ...(config.store.url !== undefined && { url: hide(config.store.url) as string }),
      ...(config.store.cluster !== undefined && { cluster: hide(config.store.cluster) as string[] }),
      ...(config.store.sentinels !== undefined && { sentinels: hide(config.store.sentinels) as string[] })
    },
    upstreams: Object.fromEntries(Object.entries(config.upstreams).map(([name, upstream]) => [name, {
      ...upstream,
      headers: hide(upstream.headers) as Record<string, string>,
      ...(upstream.credentials !== undefined &&
        {
          credentials: upstream.credentials.map(({ id, headers }) => ({
            id,
            headers: hide(headers) as Record<string, string>
          }))
        }),
      ...(upstream.tls?.key !== undefined && { tls: { ...upstream.tls, key: hide(upstream.tls.key) as string } }),
      // the address stays visible, the credentials do not
      ...(upstream.proxy !== undefined && { proxy: upstream.proxy.replace(/^([a-z]+:\/\/).*@/, `$1${HIDDEN}@`) })
    }])),
    keys: config.keys.map((key) => ({ ...key, secret: hide(key.secret) as string }))
  }
  for (const pointer of secrets) shown = hideAt(shown, parsePointer(pointer)) as Config
  return shown
}

function hideAt (value: unknown, [step, ...rest]: readonly string[]): unknown {
  if (step === undefined) return hide(value)
  if (Array.isArray(value)) {
    return value.map((child: unknown, index) => String(index) === step ? hideAt(child, rest) : child)
  }
  if (!isMap(value) || !Object.hasOwn(value, step)) return value
  return { ...value, [step]: hideAt(value[step], rest) }
}
