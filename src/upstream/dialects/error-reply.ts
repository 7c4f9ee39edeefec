// Thrown by a dialect when a whole answer, whatever its status, is an error of the upstream.

export class UpstreamErrorBody extends Error {
  readonly body: unknown

  constructor (body: unknown) {
    super('the answer is an error')
    this.body = body
  }
}
