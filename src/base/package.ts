// Path and version of the package: the one place that finds files shipped beside the code. They are found by walking
// up, because the code runs from src in a checkout and from dist/src in an installed package.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const found = findPackage(dirname(fileURLToPath(import.meta.url)))

export const packageRoot: string = found.root
export const version: string = found.version

function findPackage (folder: string): { readonly root: string, readonly version: string } {
  const manifest = readManifest(join(folder, 'package.json'))
  if (manifest?.name === 'model-gateway') return { root: folder, version: manifest.version }
  const parent = dirname(folder)
  if (parent === folder) throw new Error('the package.json of model-gateway is missing: install the package again')
  return findPackage(parent)
}

function readManifest (path: string): { readonly name?: string, readonly version: string } | undefined {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as { name?: string, version: string }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
