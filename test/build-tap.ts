// Prepares tap before its first run after an install: .taprc switches tap's TypeScript plugin off, and tap then has to
// be built anew (3 s), else every test dies in that plugin. Does nothing where that is done.
import { execFileSync } from 'node:child_process'
import { statSync } from 'node:fs'

const built = changedMs('node_modules/@tapjs/test/test-built/package.json')
if (built < Math.max(changedMs('.taprc'), changedMs('node_modules/.package-lock.json'))) {
  // One command line with nothing in it that varies: through the shell, because tap is a .cmd on Windows.
  execFileSync('tap build', { shell: true, stdio: 'inherit' })
}

function changedMs (path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0
}
