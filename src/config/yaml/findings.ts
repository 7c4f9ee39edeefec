// Results of reading a configuration beside its value: mistakes, oddities, secrets.
import type { Problem } from '../problem.ts'
import { problemAt, type Spot } from './position.ts'

export class Findings {
  readonly problems: Problem[] = []
  /** parts that are valid and hardly meant: the causes of problems on their lines */
  readonly oddities: Problem[] = []
  /** texts from secret files: never to be printed */
  readonly secretTexts: string[] = []
  /** false: parts could not be read, so that a search for more mistakes would invent some */
  isWhole = true

  report (spot: Spot, path: string, message: string, hint?: string): void {
    this.problems.push(problemAt(spot, path, message, hint))
  }

  /** Reports a mistake that hides a part of the configuration. */
  fail (spot: Spot, path: string, message: string, hint?: string): void {
    this.report(spot, path, message, hint)
    this.isWhole = false
  }
}
