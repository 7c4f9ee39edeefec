// What reading the files of a configuration brings beside its value: mistakes, oddities, secrets.
import type { Problem } from '../problem.ts'
import { problemAt, type Spot } from './position.ts'

export class Findings {
  readonly problems: Problem[] = []
  /** what is surely not meant, and may be all the same: of what stands on their lines, these are the cause */
  readonly oddities: Problem[] = []
  /** texts that came out of secret files: never to be printed */
  readonly secretTexts: string[] = []
  /** false: parts of it could not be read, so that looking for more mistakes would only invent some */
  isWhole = true

  report (spot: Spot, path: string, message: string, hint?: string): void {
    this.problems.push(problemAt(spot, path, message, hint))
  }

  /** A mistake that hides a part of the configuration. */
  fail (spot: Spot, path: string, message: string, hint?: string): void {
    this.report(spot, path, message, hint)
    this.isWhole = false
  }
}
