// Problems of a configuration, with their places.

export interface Problem {
  readonly file: string
  /** from 1 */
  readonly line: number
  /** from 1 */
  readonly column: number
  /** such as "/models/0/channels/premium/price" */
  readonly path: string
  /** the problem, and what was expected */
  readonly message: string
  /** the remedy, such as "did you mean ...?" */
  readonly hint?: string
}

/** `file:line:column path message (hint)`: one line, in the form that editors and terminals make links of. */
export function formatProblem (problem: Problem): string {
  const hint = problem.hint === undefined ? '' : ` (${problem.hint})`
  return `${problem.file}:${problem.line}:${problem.column} ` +
    `${problem.path === '' ? '' : problem.path + ' '}${problem.message}${hint}`
}

/** A part of the configuration that is valid but can't be used, named by its path; the reload adds its line. */
export class PartError extends Error {
  /** JSON pointer, as in Problem */
  readonly path: string
  readonly hint: string | undefined

  constructor (path: string, message: string, hint?: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = 'PartError'
    this.path = path
    this.hint = hint
  }
}

/** A configuration that can't be used. Nothing has changed because of it. */
export class ConfigError extends Error {
  readonly problems: readonly Problem[]

  constructor (problems: readonly Problem[]) {
    super(problems.map(formatProblem).join('\n'))
    this.name = 'ConfigError'
    this.problems = problems
  }
}

/** In reading order: the main file first, then the others by name, each from top to bottom. */
export function sortProblems (problems: readonly Problem[], main = ''): Problem[] {
  return [...problems].sort((a, b) =>
    Number(b.file === main) - Number(a.file === main) || a.file.localeCompare(b.file) || a.line - b.line ||
    a.column - b.column
  )
}
