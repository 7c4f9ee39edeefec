// GET and DELETE /v1/responses/{id}, its input items, and POST …/cancel: what responses-to-messages has kept. For every
// account but its own a response does not exist.
import { isRecord, type Json } from '../base/json.ts'
import type { Exchange } from '../core/exchange.ts'
import { ApiKey } from '../core/facts.ts'
import { isResponseId, kindOf, namedInput, outputIn, parseKept, responseOfItem } from '../core/kept-items.ts'
import { Blobs } from '../core/large-strings.ts'
import { json, type JsonReply } from '../core/reply.ts'
import { GatewayError } from '../errors.ts'
import type { KeptResponse } from '../store/responses.ts'
import { idIn, readPage } from './paths.ts'

export async function retrieveResponse (exchange: Exchange): Promise<JsonReply> {
  if (new URLSearchParams(exchange.received.query).get('stream') === 'true') {
    throw new GatewayError('invalid_request', {
      message: '"stream" must be false: what is kept is the whole response, and not its stream.', param: 'stream'
    })
  }
  const { response } = await findOwn(exchange)
  return json(parseKept(response, answerBlobs(exchange)))
}

export async function deleteResponse (exchange: Exchange): Promise<JsonReply> {
  const id = idIn(exchange)
  if (!isResponseId(id) || !await exchange.snapshot.services.responses.drop(exchange.get(ApiKey).account.id, id)) {
    throw notFound()
  }
  return json({ id, object: 'response', deleted: true })
}

/** @throws {GatewayError} always: an answer is given at once, or not at all */
export async function cancelResponse (exchange: Exchange): Promise<never> {
  await findOwn(exchange)
  throw new GatewayError('invalid_request', {
    message: 'Only responses that were created with "background": true can be cancelled, and there are none here.'
  })
}

/** The items of its own request; those that `previous_response_id` leads to are of the response before. */
export async function listInputItems (exchange: Exchange): Promise<JsonReply> {
  const { limit, order, after } = readPage(exchange.received.query)
  const kept = await findOwn(exchange)
  const blobs = answerBlobs(exchange)
  const items = [...namedInput(kept, parseKept(kept.input, blobs))]
  if (order === 'desc') items.reverse()
  const from = after === undefined ? 0 : items.findIndex(({ id }) => id === after) + 1
  if (after !== undefined && from === 0) {
    throw new GatewayError('invalid_request', { message: '"after" names no item of this list.', param: 'after' })
  }
  const page = await Promise.all(items.slice(from, from + limit).map(async (item) =>
    kindOf(item) === 'item_reference' ? await named(exchange, item, blobs) ?? item : item))
  return json({ object: 'list', data: page, first_id: page[0]?.['id'] ?? null, last_id: page.at(-1)?.['id'] ?? null,
    has_more: from + limit < items.length })
}

/** The item that a reference names, if it is still there. */
async function named (exchange: Exchange, { id }: Json, blobs: Blobs): Promise<Json | undefined> {
  const response = responseOfItem(id)
  const kept = response === undefined ? undefined : await find(exchange, response)
  if (kept === undefined) return undefined
  const items = [...outputIn(parseKept(kept.response, blobs)), ...namedInput(kept, parseKept(kept.input, blobs))]
  return items.find((item) => item['id'] === id && isRecord(item))
}

async function find (exchange: Exchange, id: string): Promise<KeptResponse | undefined> {
  return await exchange.snapshot.services.responses.find(exchange.get(ApiKey).account.id, id)
}

/** @throws {GatewayError} not_found: there is none, or it belongs to another account; service_unavailable */
async function findOwn (exchange: Exchange): Promise<KeptResponse> {
  const id = idIn(exchange)
  const kept = isResponseId(id) ? await find(exchange, id) : undefined
  if (kept === undefined) throw notFound()
  return kept
}

function notFound (): GatewayError {
  return new GatewayError('not_found', {
    message: 'There is no such response here: it was not kept (its "store" says so), or it has ended.'
  })
}

/** Base64 of the answer, which stays bytes. */
function answerBlobs (exchange: Exchange): Blobs {
  return exchange.answerBlobs ??= new Blobs()
}
