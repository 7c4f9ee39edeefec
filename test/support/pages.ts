// The pages of the repository, for the tests that compare them with the code, and for the one that runs their
// commands.
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../../src/base/package.ts'

export interface Page {
  /** from the package's folder */
  readonly path: string
  readonly text: string
}

/** README.md first, the others by name. */
export function pages (): readonly Page[] {
  const found = globSync('{config,docs,plugins,src,test}/**/*.md', { cwd: packageRoot, exclude: ['**/node_modules/**'] })
  const others = found.map((path) => path.replaceAll('\\', '/')).toSorted()
  return ['README.md', ...others].map((path) => ({ path, text: textOfPage(path) }))
}

/** @param path from the package's folder @throws {Error} there is no such file */
export function textOfPage (path: string): string {
  return readFileSync(join(packageRoot, path), 'utf8')
}

/** What a link can have behind its `#`: headings as GitHub spells them, and the names that a page gives itself. */
export function anchorsOf (text: string): ReadonlySet<string> {
  const prose = withoutCode(text)
  const headings = [...prose.matchAll(/^#{1,6} +(.+)$/gm)]
    .map(([, heading = '']) => heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-'))
  const names = [...prose.matchAll(/<a id="([^"]+)">/g)].map(([, id = '']) => id)
  return new Set([...headings, ...names])
}

/** Without the blocks between fences, in which a `#` is a comment. */
export function withoutCode (text: string): string {
  return text.replace(/^```[^]*?^```/gm, '')
}
