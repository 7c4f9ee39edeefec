// Reads gateway.yaml and its included files into one plain value with a position for every part of it. Knows YAML, not
// the schema.
import { basename, dirname, isAbsolute, join, resolve } from 'node:path'
import { isMap as isYamlMap, isScalar, LineCounter } from 'yaml'
import { convert, type Means } from './convert.ts'
import { Findings } from './findings.ts'
import type { Env } from './interpolate.ts'
import { merge } from './merge.ts'
import { parse } from './parse.ts'
import { formatPointer, type Part, type Path, type Spot, type TextFile } from './position.ts'
import type { Problem } from '../problem.ts'
import { type ReadText, textReader } from './read-text.ts'

export interface Source extends Part {
  /** the main file */
  readonly file: TextFile
  readonly problems: Problem[]
  /** parts that are valid and hardly meant: the causes of problems on their lines */
  readonly oddities: readonly Problem[]
  /** false: parts could not be read, so that a search for more mistakes would invent some */
  readonly isWhole: boolean
  /** the files of YAML that were read, absolute */
  readonly files: readonly string[]
  /** JSON pointers of values from secret files */
  readonly secrets: ReadonlySet<string>
  /** texts from secret files: never to be printed */
  readonly secretTexts: readonly string[]
}

/**
 * A text to read in the place of a file's. Who has sent it may be somebody else than who keeps the machine: no
 * environment, no secret file and no other file is read for it.
 */
export interface SentText {
  readonly text: string
  /** the files that it may include, absolute */
  readonly includes: readonly string[]
}

/**
 * @param name the path of the main file, as the operator wrote it
 * @param note called with every file that was asked for
 */
export function readSource (
  name: string,
  env: Env,
  note: (path: string, stamp: string) => void,
  sent?: SentText
): Source {
  const readText = textReader(note)
  const findings = new Findings()
  const reading = new Reading(sent === undefined
    ? { env, readText, findings }
    : { env: undefined, readText: within(sent, resolve(name), readText), findings })
  const { file, text, message } = reading.open(name, resolve(name))
  const { problems, oddities, secretTexts } = findings
  if (text === undefined) {
    problems.push({ file: name, line: 1, column: 1, path: '', message: `the file ${message}` })
    return { file, value: {}, tree: { at: { file, offset: 0 } }, problems, oddities, isWhole: false,
      files: reading.files, secrets: new Set(), secretTexts }
  }
  const part = reading.read(file, text)
  return { file, ...part, problems, oddities, isWhole: findings.isWhole, files: reading.files,
    secrets: findSecrets(part.tree, [], new Set()), secretTexts }
}

function within ({ text, includes }: SentText, main: string, readText: ReadText): ReadText {
  return (path) => {
    if (path === main) return { kind: 'text', text }
    return includes.includes(path)
      ? readText(path)
      : { kind: 'unreadable', message: 'is not one of the live configuration, and no other is read here' }
  }
}

interface Opened {
  readonly file: TextFile
  /** undefined: it can't be read */
  readonly text: string | undefined
  /** the reason */
  readonly message: string
}

class Reading {
  readonly #means: Means
  /** by absolute path: the position of each file's beginning */
  readonly #files = new Map<string, Spot>()

  constructor (means: Means) {
    this.#means = means
  }

  get findings (): Findings { return this.#means.findings }

  get files (): readonly string[] { return [...this.#files.keys()] }

  open (name: string, path: string): Opened {
    const file: TextFile = { name, path, lines: new LineCounter() }
    const read = this.#means.readText(path)
    return read.kind === 'text' ? { file, text: read.text, message: '' } : { file, text: undefined, message: read.message }
  }

  /** Reads one file, with its included files merged in. */
  read (file: TextFile, text: string): Part {
    const start: Spot = { file, offset: 0 }
    const empty: Part = { value: {}, tree: { at: start } }
    this.#files.set(file.path, start)
    const document = parse(file, text, this.findings)
    if (document === undefined) return empty
    const { contents } = document
    if (contents === null || (isScalar(contents) && contents.value === null)) {
      // a writer that truncates first leaves an empty file for a moment: it must not count as "nothing configured"
      this.findings.fail(start, '', 'the file is empty')
      return empty
    }
    if (!isYamlMap(contents)) {
      this.findings.fail({ file, offset: contents.range[0] }, '', 'the file must be a map of keys such as "models:"')
      return empty
    }
    const part = convert(file, contents, this.#means)
    part.tree.at = start
    return this.#include(file, part)
  }

  #include (file: TextFile, part: Part): Part {
    const { include: names, ...own } = part.value as Record<string, unknown>
    const children = new Map(part.tree.children)
    const tree = children.get('include')
    children.delete('include')
    const whole: Part = { value: own, tree: { ...part.tree, children } }
    if (names === undefined || names === null) return whole
    if (!Array.isArray(names) || names.some((entry) => typeof entry !== 'string')) {
      this.findings.fail(tree!.at, '/include', 'must be a list of paths of YAML files',
        'such as: include: [config/models.yaml]')
      return whole
    }
    for (const [index, entry] of (names as string[]).entries()) {
      const included = this.#included(file, entry, tree!.children!.get(String(index))!.at, `/include/${index}`)
      if (included !== undefined) merge(whole, included, [], this.findings)
    }
    return whole
  }

  #included (file: TextFile, entry: string, spot: Spot, pointer: string): Part | undefined {
    const path = resolve(dirname(file.path), entry)
    if (this.#files.has(path)) {
      this.findings.fail(spot, pointer, `${basename(path)} is included twice, or includes itself`)
      return undefined
    }
    const opened = this.open(isAbsolute(entry) ? entry : join(dirname(file.name), entry), path)
    if (opened.text === undefined) {
      this.findings.fail(spot, pointer, `the included file ${opened.message}`)
      return undefined
    }
    return this.read(opened.file, opened.text)
  }
}

function findSecrets (tree: Part['tree'], path: Path, found: Set<string>): Set<string> {
  for (const [name, child] of tree.children ?? []) findSecrets(child, [...path, name], found)
  if (tree.origin?.includes('${file:') === true) found.add(formatPointer(path))
  return found
}
