// npm run goldens: writes the files that the tests compare with the code (support/goldens.ts). Read the difference
// before it is committed: it is what has changed for operators and clients. Exit code 1 where one can't be written.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../src/base/package.ts'
import { goldens } from './support/goldens.ts'

for (const { path, text } of goldens) {
  const file = join(packageRoot, path)
  const committed = readFileSync(file, 'utf8')
  try {
    const now = await text(committed)
    if (now === committed) continue
    writeFileSync(file, now)
    console.log(`${path}: written`)
  } catch (error) {
    console.error(`${path}: ${(error as Error).message}`)
    process.exitCode = 1
  }
}
