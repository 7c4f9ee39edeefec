// Runs test files one after another in this process: `node test/pack.ts test/money/*.test.ts`. What most of them need,
// the modules of a gateway and the compiled schema of its configuration, is then loaded once. To a file, `import t from
// 'tap'` gives a test of its own, with the file's name: its hooks, time limit and teardown end with it.
import { registerHooks } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Test } from 'tap'

const files = process.argv.splice(2) // which tap would make part of the names of folders
const { default: all } = await import('tap')

/** By the URL of the file. */
const tests = new Map<string, Test>()
Object.assign(globalThis, { [Symbol.for('tap of a file')]: (url: string) => tests.get(url) })
registerHooks({
  resolve (name, context, next) {
    const from = context.parentURL ?? ''
    if (name !== 'tap' || !tests.has(from)) return next(name, context)
    const text = `export default globalThis[Symbol.for('tap of a file')](${JSON.stringify(from)})`
    return { url: `data:text/javascript,${encodeURIComponent(text)}`, shortCircuit: true }
  }
})
for (const file of files) {
  void all.test(file, async (t) => {
    const url = pathToFileURL(resolve(file)).href
    tests.set(url, t)
    await import(url)
  })
}
