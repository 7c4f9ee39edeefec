// responses-to-messages: the Responses API on top of messages style. Translates the request on its way down, and the
// answer on its way up; error-normalize shapes errors, billing-meter prices, and schema-validate checks its bodies. At
// the address of chat completions it translates the request alone.
import { isRecord, type Json } from '../../src/base/json.ts'
import { type Bytes, flag, type Milliseconds, size, typed } from '../../src/config/sections/schema.ts'
import { after, type Awaitable, afterWith } from '../../src/base/awaitable.ts'
import { bufferOf } from '../../src/base/pieces.ts'
import { likeRequestId } from '../../src/base/request-id.ts'
import { bodyStep } from '../../src/core/body-step.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { ApiKey, fact, Model } from '../../src/core/facts.ts'
import { definePlugin, type StreamTransformer } from '../../src/core/plugin.ts'
import type { LargeBody } from '../../src/core/large-body.ts'
import type { JsonReply } from '../../src/core/reply.ts'
import { LargeReply, printed, replyChange, replyRead } from '../../src/core/reply-step.ts'
import type { Seals } from '../../src/core/services.ts'
import { GatewayError } from '../../src/errors.ts'
import { styleOfBody } from '../../src/protocols/index.ts'
import { ResponsesOwn, responsesStyle, ResponsesWords } from '../../src/protocols/responses.ts'
import { invalid } from '../../src/translation/reads.ts'
import type { Seal } from './items.ts'
import { mayBeLong } from './echo.ts'
import { Keeper, wantsToKeep } from './keeper.ts'
import { toResponse } from './reply.ts'
import { toMessages } from './request.ts'
import type { Frame } from './response.ts'
import type { ResponseShape } from './shape.ts'
import { recall, type Recalled, refersToKept } from './state.ts'
import { toResponseEvents } from './stream.ts'

/** Present only if this plugin translated the request. Private to it. */
const Asked = fact<{
  /** id, '' where there are no keys */
  readonly account: string
  readonly frame: Frame
  readonly shape: ResponseShape
  /** undefined: no stream was asked for */
  readonly events: StreamTransformer | undefined
  /** undefined: the answer is not kept */
  readonly keeper: Keeper | undefined
}>('responses-to-messages')

interface Options {
  readonly error_event_after_failed?: boolean
  readonly keep?: Milliseconds
  readonly keep_space?: Bytes
}

const SPACE = 32 * 1024 * 1024

/** Translates the request. @param account id, '' where there are no keys @returns what its answer needs to know */
const read = bodyStep('responses-to-messages', (exchange, account: string, recalled: Recalled | undefined) => {
  const { body, stream } = exchange.request
  const { blobs, snapshot: { services: { seals } } } = exchange
  const compacts = isCompaction(exchange)
  if (compacts && stream) throw invalid('stream', 'must be false: a summary comes whole')
  const { shape, body: messages, dropped, words, own } = toMessages(body, { stream, model: exchange.get(Model), blobs,
    recalled, compacts, isLong: mayBeLong(exchange), open: (purpose, sealed) => seals.open(purpose, account, sealed) })
  exchange.set(ResponsesWords, words)
  exchange.set(ResponsesOwn, own)
  exchange.request = { body: messages, stream }
  if (dropped.length > 0) exchange.answerHeaders['x-gateway-dropped-tools'] = dropped.join(', ')
  return shape
})

/**
 * Most bytes, without base64, of a large body that refers to what is kept or is kept itself: the event loop reads it,
 * which takes 25 ms a megabyte at worst (180,000 parts in 6 MB; measured). A million tokens of text.
 */
const MOST_PARSED = 4 * 1024 * 1024

/**
 * Whether the request refers to what is kept, or is to be kept itself.
 * @param mayKeep of its key. @param parsed bytes without base64
 * @throws {GatewayError} request_too_large: it refers, and is too large to be read on the event loop
 */
const needsKept = bodyStep('responses-kept', (exchange, mayKeep: boolean, parsed: number) => {
  const { body } = exchange.request
  if (!refersToKept(body)) return mayKeep && parsed <= MOST_PARSED && wantsToKeep(exchange, body)
  if (parsed <= MOST_PARSED) return true
  throw new GatewayError('request_too_large', {
    message: `A request that refers to stored responses may have ${MOST_PARSED} bytes, without base64. Send the whole ` +
      'conversation as "input", without previous_response_id and references.'
  })
}, { isRead: true })

/** The client's answer. @param now milliseconds since the epoch */
const answer = replyChange('responses-to-messages', (message, exchange, account: string,
  frame: Omit<Frame, 'now'>, now: number, shape: ResponseShape, charged: unknown) => {
  const seal = sealFor(account, exchange.snapshot.services.seals)
  const response = toResponse(message, { ...frame, now: () => now }, shape, seal, charged)
  return isCompaction(exchange) ? compactionOf(response) : response
})

/** As it is kept. */
const print = replyRead('responses-printed', (response) => printed(response))

const notKept = replyChange('responses-not-kept', (response) => ({ ...response, store: false }))

export const responsesToMessages = definePlugin<Options>({
  name: 'responses-to-messages',
  readsInSteps: true,
  schema: {
    properties: {
      error_event_after_failed: flag('Whether an answer that fails in its stream ends with an `error` event behind ' +
        '`response.failed`: for LangChain, which takes the latter alone for an end.', false),
      keep: typed<Milliseconds>({
        description: 'How long answers are kept, sealed, from their last use on, for previous_response_id, references ' +
          'to items, and GET; a day after they were made they end. store: false of a request or of a key wins. ' +
          'Absent: nothing is kept.',
        duration: { min: '1m', max: '24h' }
      }),
      keep_space: size('What an account may keep; what was used longest ago goes first.', '32MB',
        { min: '1MB', max: '10GB' })
    }
  },
  reads: [ApiKey, Model],
  writes: [Asked, ResponsesWords, ResponsesOwn],
  translates: responsesStyle,
  create (
    { error_event_after_failed: hasErrorEvent = false, keep: life = 0, keep_space: space = SPACE }, _config,
    { now, seals, responses }
  ) {
    const frameOf = ({ id, request }: Exchange): Frame => ({
      // The same 24 characters as in the request id: an answer's id leads to its line in the log.
      id: likeRequestId('resp_', id),
      created: Math.floor(now() / 1000),
      model: request.body.model,
      now
    })
    const keeperFor = (exchange: Exchange, body: Json, { id }: Frame): Keeper | undefined => {
      const owner = exchange.find(ApiKey)
      if (life === 0 || owner === undefined || owner.key.store === false) return undefined
      if (!wantsToKeep(exchange, body)) return undefined
      return new Keeper(exchange, { responses, account: owner.account.id, life: { life, space }, id, created: now(),
        body })
    }
    const translate = (exchange: Exchange, account: string, recalled?: Recalled): Awaitable<void> => {
      const { body } = exchange.request
      return after(read(exchange, account, recalled), (shape) => {
        answerAs(shape, exchange, account, body, recalled)
      })
    }
    const answerAs = (
      shape: ResponseShape, exchange: Exchange, account: string, body: Json, recalled: Recalled | undefined
    ): void => {
      const frame = frameOf(exchange)
      const { stream } = exchange.request
      // At the address of another style, that style's translator writes the answer.
      if (exchange.route.style !== responsesStyle) return
      const seal = sealFor(account, seals)
      // A summary stands for itself: its client sends it.
      const isKept = shape.compacts !== true && exchange.large === undefined
      const keeper = isKept ? keeperFor(exchange, body, frame) : undefined
      const told: ResponseShape = keeper === undefined && recalled === undefined ? shape : { ...shape, echo: {
        ...shape.echo, store: keeper !== undefined, previous_response_id: body.previous_response_id ?? null } }
      const keep = keeper === undefined ? undefined : async (response: string) => await keeper.keep(response)
      const events = stream ? toResponseEvents(frame, told, seal, hasErrorEvent, keep) : undefined
      exchange.ownEvents = events
      exchange.set(Asked, { account, frame, shape: told, events, keeper })
    }
    /** Keys and answers are kept. */
    const begin = (exchange: Exchange, account: string): Awaitable<void> => {
      const recalling = recall(exchange, exchange.request.body, { responses, account, life })
      return recalling === undefined ? translate(exchange, account)
        : recalling.then((recalled) => translate(exchange, account, recalled))
    }
    const beginLarge = (exchange: Exchange, large: LargeBody, account: string): Awaitable<void> =>
      after(needsKept(exchange, exchange.get(ApiKey).key.store !== false, large.parsedBytes), (isNeeded) => {
        if (!isNeeded) return translate(exchange, account)
        large.bringHere()
        return begin(exchange, account)
      })
    return {
      onRequest (exchange) {
        if (styleOfBody(exchange.route, exchange.request.body) !== responsesStyle) return
        // What is sealed or kept is the account's; a route without keys has none.
        const account = exchange.find(ApiKey)?.account.id ?? ''
        if (life === 0 || account === '') return translate(exchange, account)
        return exchange.large === undefined ? begin(exchange, account) : beginLarge(exchange, exchange.large, account)
      },

      onReply (reply, exchange) {
        const asked = exchange.find(Asked)
        // A plugin's own answer stays as it is.
        if (
          asked === undefined || reply.kind !== 'json' || !isRecord(reply.body) || reply.body.type !== 'message'
        ) return
        const { account, frame: { id, created, model }, shape, keeper } = asked
        const made = answer(reply.body, exchange, account, { id, created, model }, now(), shape,
          reply.headers['x-gateway-cost-usd'])
        return afterWith(keeper === undefined ? made : keepMade(made, exchange, keeper), withBody, reply)
      },

      onStream: (exchange) => exchange.find(Asked)?.events
    }
  }
})

function sealFor (account: string, seals: Seals): Seal {
  return (text, purpose) => seals.seal(purpose ?? 'reasoning', account, text)
}

function withBody (body: unknown, reply: JsonReply): JsonReply {
  return { ...reply, body }
}

async function keepMade (
  made: Awaitable<Json | LargeReply>, exchange: Exchange, keeper: Keeper
): Promise<Json | LargeReply> {
  return await keep(await made, exchange, keeper)
}

/** Keeps a response. @returns it as its client gets it */
async function keep (response: Json | LargeReply, exchange: Exchange, keeper: Keeper): Promise<Json | LargeReply> {
  const text = response instanceof LargeReply
    ? (await print(response, exchange)).pieces.map(bufferOf)
    : JSON.stringify(response)
  return await keeper.keep(text) ? response : await notKept(response, exchange)
}

/** Whether its address gives summaries alone. */
function isCompaction ({ route: { endpoint } }: Exchange): boolean {
  return endpoint.kind === 'model' && endpoint.compacts === true
}

/** What that address answers, which is no response. */
function compactionOf ({ id, created_at, output, usage }: Json): Json {
  return { id, object: 'response.compaction', created_at, output, usage }
}
