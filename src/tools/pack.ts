// Makes the JavaScript that `npm pack` ships, and the lock file that it ships it with. Run by npm only (prepack,
// postpack); not shipped itself. Needed because Node strips no types below node_modules (src/README.md#pinned).
import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../base/package.ts'

const dist = join(packageRoot, 'dist')
const shrinkwrap = join(packageRoot, 'npm-shrinkwrap.json')
const sources = ['src', 'plugins']
const pages = 'src/admin/web/ui'

// An address that the compiler does not rewrite: a worker's file, or an import in a declaration.
const leftAddress = /((?:new URL|import\.meta\.resolve|import|from)\s*(?:\(\s*)?)(['"])(\.{1,2}\/[^'"\n]*)\.ts\2/g

clear()
if (process.argv[2] !== 'clear') {
  compile()
  writeShrinkwrap()
}

function clear (): void {
  rmSync(dist, { recursive: true, force: true })
  rmSync(shrinkwrap, { force: true })
}

function compile (): void {
  mkdirSync(dist)
  const project = join(dist, 'tsconfig.json')
  // Two worlds: what Node runs, and what browsers do.
  for (const { extended, include, exclude, declaration } of [
    { extended: '../tsconfig.json', include: sources.map((folder) => `../${folder}`),
      exclude: ['../src/tools', '../src/launcher.js', `../${pages}`], declaration: true },
    { extended: `../${pages}/tsconfig.json`, include: [`../${pages}`], exclude: [], declaration: false }
  ]) {
    writeFileSync(project, JSON.stringify({
      extends: extended,
      compilerOptions: { noEmit: false, noEmitOnError: true, rootDir: '..', outDir: '.', declaration },
      include,
      exclude
    }))
    // By its path, not by its name: npm's .bin entry is a script on Windows.
    execFileSync(process.execPath,
      [join(packageRoot, 'node_modules', 'typescript', 'bin', 'tsc'), '--project', project], { stdio: 'inherit' })
  }
  rmSync(project)
  for (const path of filesIn(dist)) {
    const text = readFileSync(path, 'utf8')
    writeFileSync(path, text.replace(leftAddress, '$1$2$3.js$2'))
  }
}

/**
 * npm installs a package from a registry with the versions of its shrinkwrap (from a .tgz it takes only the exact ones
 * of package.json; tried, npm 11). Only what runs goes in. Not the Nodes either: npm would install those of all five
 * systems, 700 MB (tried); left out, a .tgz brings the one that fits, a registry none, and the launcher says what to
 * do.
 */
function writeShrinkwrap (): void {
  type Entry = Record<string, unknown>
  const lock = JSON.parse(readFileSync(join(packageRoot, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, Entry>
  }
  const packages = Object.fromEntries(Object.entries(lock.packages)
    .filter(([, entry]) => entry['dev'] !== true && entry['optional'] !== true)
    .map(([path, { devDependencies: _tools, ...entry }]) => [path, entry]))
  writeFileSync(shrinkwrap, JSON.stringify({ ...lock, packages }, null, 2))
}

function filesIn (folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
}
