// Errors in the place of an answer, for all dialects: whole ones, whatever their status, and events of a stream.
import { parseOr } from '../../base/json.ts'
import { SseEvent } from '../../core/sse.ts'
import { isErrorBody } from '../../core/vendor-error.ts'

/** Thrown by a dialect when a whole answer is an error of the upstream. */
export class UpstreamErrorBody extends Error {
  readonly body: unknown

  constructor (body: unknown) {
    super('the answer is an error')
    this.body = body
  }
}

/** Thrown by a decoder when a stream has ended by its own mark, and nothing says that the answer is whole. */
export class UnfinishedAnswer extends Error {
  constructor () {
    super('the answer has no end')
  }
}

/** What is wrong with a call. `half`: its input has no end; `tail`: more comes behind that */
export type CallFlaw = 'half' | 'tail' | 'nameless' | 'other'

const FLAWS: Readonly<Record<CallFlaw, string>> = {
  half: 'the arguments of a call are no JSON',
  tail: 'a call goes on behind its end',
  nameless: 'a call has no name',
  other: 'the arguments of a call are no object'
}

/** Thrown by a dialect: the model has written a call that no client can run. A prompt can make it do that. */
export class UnusableCall extends Error {
  readonly code: CallFlaw

  constructor (flaw: CallFlaw) {
    super(FLAWS[flaw])
    this.code = flaw
  }
}

/** The reason why a whole body is no answer. @param what it is not, if it is no error either */
export function noAnswer (body: unknown, what: string): Error {
  return isErrorBody(body) ? new UpstreamErrorBody(body) : new Error(what)
}

/**
 * An event that is an error in the words of any vendor, as an `error` event of messages style. Undefined: it is none.
 * @throws {SyntaxError} its JSON is broken
 */
export function errorEvent (event: SseEvent): SseEvent | undefined {
  if (event.event === 'content_block_delta') return undefined
  const { data } = event
  if (event.event === 'error') return typeof parseOr(data) === 'string' ? SseEvent.of('error', data) : event
  return /^\s*(?:\{|\[\s*\{)/.test(data) && isErrorBody(event.json) ? new SseEvent('error', data) : undefined
}
