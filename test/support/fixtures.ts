// The cases of test/fixtures, as files or as what they hold.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { packageRoot } from '../../src/base/package.ts'

interface Fixture {
  readonly name: string
  readonly text: string
}

export function fixtures (folder: string): readonly Fixture[] {
  const root = path.join(packageRoot, 'test/fixtures', folder)
  return readdirSync(root).sort().map((name) => ({ name, text: readFileSync(path.join(root, name), 'utf8') }))
}

export function fixtureCases<Case> (folder: string): readonly Case[] {
  return fixtures(folder).flatMap(({ text }) => JSON.parse(text) as Case[])
}
