// The error of a store that does not answer now. What was sent may or may not have been executed.
export class UnreachableError extends Error {
  override readonly name: string = 'UnreachableError'
}
