// Which page is shown: what stands behind the "#" of the address.
import { signal } from '@preact/signals'

/** The step of what is made: no id begins so, and one may well be called new. */
export const NEW = '-new'

/** Steps of the address, decoded: of "#/keys/a%2Fb" keys and a/b. */
export const route = signal<readonly string[]>(steps())

addEventListener('hashchange', () => { route.value = steps() })

function steps (): readonly string[] {
  return location.hash.replace(/^#\/?/, '').split('?', 1)[0]!.split('/').filter((step) => step !== '').map((step) => {
    try { return decodeURIComponent(step) } catch { return step }
  })
}

export function to (...steps: readonly string[]): string {
  return `#/${steps.map((step) => encodeURIComponent(step)).join('/')}`
}

export function go (...steps: readonly string[]): void {
  location.hash = to(...steps)
}
