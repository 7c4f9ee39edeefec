// The dialect `messages` (Anthropic's Messages API), which is also the inner language. What passes is in
// vendor-limits.ts.
import type { Exchange } from '../../../core/exchange.ts'
import { type Attempt, Model } from '../../../core/facts.ts'
import { askedVersion, DEFAULT_VERSION, messagesStyle } from '../../../protocols/messages.ts'
import type { UpstreamRequest } from '../../../core/plugin.ts'
import { betasOf, requestHeaders } from '../../transport/headers.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { withSentIds } from '../call-ids.ts'
import type { DialectModule } from '../dialect.ts'
import { toMessage } from './reply.ts'
import { sample } from './sample.ts'
import { toEvents } from './stream.ts'
import { isSystemOnly, withoutSystemTurns } from './system-turns.ts'
import { shortNames, withShortNames } from '../tool-names.ts'
import { propertyNames, withClientProperties, withVendorInputs, withVendorProperties } from './property-names.ts'
import { ownThoughts } from './thoughts.ts'
import { type Removal, removalFor, withoutFields } from './beta-fields.ts'
import { withoutEndSpace } from './end-space.ts'
import { fieldsFor, withinLimits } from './vendor-limits.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { withoutSealedThoughts } from '../../../translation/thinking.ts'
import { adaptTools } from '../../../translation/tool-schema.ts'
import { PassedRequest } from '../passed-body.ts'
import { versionedAtEnd } from '../versioned.ts'
import { wholeTurns } from '../whole-turns.ts'

/** The first version that refuses the sampling fields (src/README.md#version-header). */
const NO_SAMPLING_VERSION = '2026-10-21'
const NO_SAMPLING = { temperature: undefined, top_p: undefined, top_k: undefined } as const
/**
 * Beta headers with which a client would get more context than the model is sold with, at a higher price than was held
 * for it. They alone change a price by themselves: all others of that kind want a field of the body too, which is
 * refused (plugins/billing-meter/surcharges.ts).
 */
const LONGER_CONTEXT = /context-\d+m/i
const LONG_CONTEXT = 200_000

export const dialect: DialectModule = withClientProperties({
  encode: (exchange, attempt, upstream) =>
    encode(dataOf(upstream).answer, exchange.request.stream, exchange, attempt, upstream),

  decodeReply: toMessage,

  decodeStream: toEvents,

  sample,

  countTokens: {
    encode: (exchange, attempt, upstream) => encode(dataOf(upstream).count, false, exchange, attempt, upstream),
    decode (body) {
      const tokens = isRecord(body) ? body.input_tokens : undefined
      if (typeof tokens !== 'number' || !Number.isSafeInteger(tokens) || tokens < 0) {
        throw new Error('the answer is no count of tokens')
      }
      return tokens
    }
  }
})

interface UpstreamData {
  readonly answer: string
  readonly count: string
  readonly fields: ReturnType<typeof fieldsFor>
}

/** As with headers: the lane knows a path by its being the same text as before. */
const data = new WeakMap<Upstream, UpstreamData>()

function dataOf (upstream: Upstream): UpstreamData {
  let known = data.get(upstream)
  if (known === undefined) {
    const base = versionedAtEnd(upstream.basePath)
    data.set(upstream, known = { answer: `${base}/messages`, count: `${base}/messages/count_tokens`,
      fields: fieldsFor(upstream.config) })
  }
  return known
}

/** Models that refuse temperature beside top_p: Claude 4.5 and later, as the vendor and clouds name it. */
const VERSION = /claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)/

function takesOneOfBoth (model: string): boolean {
  const [, major = 0, minor = 0] = VERSION.exec(model) ?? []
  return Number(major) * 100 + Number(minor) >= 405
}

function isAny (): boolean {
  return true
}

function isShort (beta: string): boolean {
  return !LONGER_CONTEXT.test(beta)
}

function encode (
  path: string,
  stream: boolean,
  exchange: Exchange,
  attempt: Attempt,
  upstream: Upstream
): UpstreamRequest {
  const { body } = exchange.request
  const configured = upstream.config.headers['anthropic-version']
  // The header of a chat client has another meaning: its request is in the inner language here.
  const asked = exchange.route.style === messagesStyle ? askedVersion(exchange.received.headers) : DEFAULT_VERSION
  const { sampling: takesSampling, context, mid_system: takesSystemTurns } = exchange.get(Model)
  const hasSampling = isGiven(body.temperature) || isGiven(body.top_p) || isGiven(body.top_k)
  // The client's version would make the vendor refuse fields that the gateway accepts in every version.
  const version = configured ?? (hasSampling && asked >= NO_SAMPLING_VERSION ? DEFAULT_VERSION : asked)
  const headers = requestHeaders(upstream, stream)
  // Set, never appended: a doubled version is a 400.
  headers['anthropic-version'] = version
  const isLong = context === undefined || context > LONG_CONTEXT
  const beta = betasOf(upstream.config, exchange.received.headers['anthropic-beta'], isLong ? isAny : isShort)
  if (beta !== '') headers['anthropic-beta'] = beta
  const removal = removalFor(exchange.received.headers['anthropic-beta'], beta)
  const isFolded = !takesSystemTurns || isSystemOnly(body.messages) || removal?.turns !== undefined
  const folded: Json | undefined = isFolded ? withoutSystemTurns(body) : undefined
  const names = shortNames(body)
  const named = names.size === 0 ? undefined : withShortNames(body,
    { tools: body.tools, tool_choice: body.tool_choice, messages: body.messages, ...folded }, names)
  const turns = named?.messages ?? folded?.messages ?? body.messages
  const declared = named?.tools ?? (folded !== undefined && 'tools' in folded ? folded.tools : body.tools)
  const isTranslated = exchange.route.style !== messagesStyle
  const adapted = isTranslated ? adaptTools(declared) : declared
  const properties = isTranslated ? propertyNames(adapted) : undefined
  const tools = properties === undefined ? adapted : withVendorProperties(adapted, properties)
  const whole = wholeTurns(properties === undefined ? turns : withVendorInputs(turns, properties))
  const spoken = isTranslated ? withoutEndSpace(withoutSealedThoughts(whole, body, exchange.get(Model))) : whole
  const messages = withSentIds(spoken, upstream)
  // Field by field: spreads of what is seldom there cost 2 us.
  const changes: Record<string, unknown> = {}
  if (folded !== undefined) Object.assign(changes, folded)
  if (named !== undefined) changes.tool_choice = named.tool_choice
  if (messages !== body.messages) changes.messages = messages
  const thoughts = ownThoughts(messages, body, exchange, upstream)
  if (thoughts !== undefined) Object.assign(changes, thoughts)
  if (isGiven(body.temperature) && isGiven(body.top_p) && takesOneOfBoth(attempt.model)) changes.top_p = undefined
  if (!(takesSampling && version < NO_SAMPLING_VERSION)) Object.assign(changes, NO_SAMPLING)
  if (tools !== body.tools) changes.tools = tools
  changes.model = attempt.model
  const ofBetas = removal === undefined ? changes : withoutFields(body, changes, forModel(removal, exchange.get(Model)))
  const { messages: options } = upstream.config
  return new PassedRequest(path, headers, body, options === undefined ? ofBetas : withinLimits(body, ofBetas, options),
    dataOf(upstream).fields)
}

/** An effort needs no beta at models that think as much as they are told: the gateway itself sends it there. */
function forModel (removal: Removal, { thinking }: Model): Removal {
  if (thinking !== 'adaptive') return removal
  return { ...removal, output: removal.output?.filter((name) => name !== 'effort') ?? [] }
}
