// What POST /v1/quote is asked, apart from the body in it: a body step, for that may be large.
import { suggest } from '../config/check/suggest.ts'
import { bodyStep } from '../core/body-step.ts'
import { GatewayError } from '../errors.ts'
import { Body } from '../core/facts.ts'
import { isGiven, isRecord } from '../base/json.ts'

const FIELDS = ['path', 'body']

/** Characters of an address, as many as a head of a request may have. The quote repeats it. */
const LONGEST_PATH = 65_536

export const QUESTION = 'question'

/** @throws {GatewayError} */
export const readQuestion = bodyStep(QUESTION, (exchange): { readonly path: string, readonly hasBody: boolean } => {
  const question = exchange.get(Body)
  const { path, body } = question
  const unknown = Object.keys(question).find((name) => !FIELDS.includes(name))
  if (path === undefined || unknown !== undefined) {
    const name = (unknown ?? '').slice(0, 40)
    const near = suggest(name, FIELDS) ?? ''
    throw new GatewayError('invalid_request', {
      message: 'A quote is asked for with "path" and "body", such as {"path": "/v1/messages", "body": ' +
        `{"model": …}}${path === undefined ? '' : `; there is no field ${JSON.stringify(name)} (${near})`}.`,
      param: path === undefined ? 'path' : name
    })
  }
  if (typeof path !== 'string' || !path.startsWith('/') || path.length > LONGEST_PATH) {
    throw new GatewayError('invalid_request', {
      message: 'path must be the address of the request, such as "/v1/messages".',
      param: 'path'
    })
  }
  if (isGiven(body) && !isRecord(body)) {
    throw new GatewayError('invalid_request', {
      message: 'body must be the JSON object that would be sent to that address.',
      param: 'body'
    })
  }
  return { path, hasBody: isGiven(body) }
}, { isRead: true })
