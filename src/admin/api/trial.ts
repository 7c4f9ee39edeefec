// Tries a model: sends one request to the API of this gateway with a key whose secret was given, and passes on what
// comes, as it comes. Beside it what can be tried, and where clients find the API.
import type { IncomingMessage } from 'node:http'
import type { Config, ModelConfig } from '../../config/config.ts'
import { kinds } from '../../config/sections/modalities.ts'
import type { Json } from '../../base/json.ts'
import { membersNamed } from '../../base/json-members.ts'
import { digestOf } from '../../accounts/digests.ts'
import { type Trial, USER_AGENT } from '../own-api.ts'
import { choice, flag, list, named, number, object, orNull, text, whole } from './answers.ts'
import { EVENTS } from './openapi.ts'
import { type ApiAnswer, type ApiParts, type Call, type Operation, REQUEST_LIMIT, type TrialParts } from './operation.ts'
import { Refusal, refuseMistakes } from './refusal.ts'
import { judge, trial } from './schemas.ts'

/** Each has a connection here and one at the API. */
const MOST_AT_A_TIME = 8

/** Headers of the tried answer that are told. */
const TOLD = ['content-type', 'x-request-id', 'retry-after', 'x-gateway-cost-usd', 'x-gateway-max-tokens',
  'x-gateway-ignored-fields']

const tryable = object('Tryable', 'What can be tried, and where.', {
  base_url: text('Where clients find the API: server.api.url, or else where it listens.'),
  user_agent: text('As which client the API is asked when something is tried.'),
  models: list('The models that are sold.', object('TryableModel', 'A model, and what a request may choose.', {
    id: text('What clients send as "model".'),
    name: text('For people.'),
    kind: choice('What it gives.', kinds),
    channels: list('In which it is sold; the routing mode of a key chooses.', text('A channel.')),
    max_output: orNull(whole('Tokens of output at most; null: it is not said.')),
    sampling: flag('Whether it takes a temperature; false: it is left out.'),
    parameters: named('Of an image or video model: the fields that a request may choose.',
      object('TryableParameter', 'A field of a request.', {
        values: list('What it may be.', text('A value.')),
        default: orNull(text('Of a request that does not name it; null: it stays unset.'))
      }))
  }))
})

const event = object('TrialEvent', 'A part of the tried answer.', {
  kind: choice('The first event is the head, the last one the end; between them are pieces of the body.',
    ['head', 'piece', 'end']),
  ms: number('Milliseconds since the request was sent.'),
  status: whole('Of a head.'),
  headers: named('Of a head: those that tell of the request, such as x-request-id.', text('A header.')),
  text: text('Of a piece.'),
  is_whole: flag('Of an end; false: the answer was cut.')
}, ['status', 'headers', 'text', 'is_whole'])

type Event = { readonly kind: 'head', readonly status: number, readonly headers: Readonly<Record<string, string>> } |
  { readonly kind: 'piece', readonly text: string } | { readonly kind: 'end', readonly is_whole: boolean }

interface Wanted extends Omit<Trial, 'json'> {
  readonly key: string
  readonly body: Json
}

export function trialOperations (parts: ApiParts, api: TrialParts): readonly Operation[] {
  const trials = new Trials(parts, api)
  return [
    {
      method: 'GET',
      path: '/try',
      name: 'listTryable',
      summary: 'What can be tried, and where clients find the API.',
      gives: tryable,
      answer: () => ({ status: 200, body: { base_url: api.baseUrl(), user_agent: USER_AGENT,
        models: parts.config().models.flatMap(view) } })
    },
    {
      method: 'POST',
      path: '/try',
      name: 'tryRequest',
      summary: 'Sends a request to the API of this gateway, from this machine, and passes the answer on as server-sent ' +
        'events. It is a request like any other: it takes the secret of the key, and is refused, limited and charged ' +
        'like one. An error of the API is an answer too: its status is in the head.',
      takes: trial,
      gives: event,
      isStream: true,
      refuses: ['not_found', 'busy', 'outcome_unknown'],
      bodyLimit: REQUEST_LIMIT,
      cuts: 'body',
      answer: async (call) => await trials.send(call)
    }
  ]
}

function view (
  { id, name, kind, channels, max_output: most, sampling, parameters = {} }: ModelConfig
): readonly object[] {
  const sold = Object.entries(channels).filter(([, { enabled }]) => enabled).map(([channel]) => channel)
  if (sold.length === 0) return []
  const choices = Object.entries(parameters).map(([field, { values, default: standard }]) =>
    [field, { values, default: standard ?? null }])
  return [{ id, name, kind, channels: sold, max_output: most ?? null, sampling,
    parameters: Object.fromEntries(choices) }]
}

class Trials {
  readonly #config: () => Config
  readonly #directory: ApiParts['services']['directory']
  readonly #api: TrialParts
  readonly #judge = judge(trial)
  #running = 0

  constructor ({ config, services: { directory } }: ApiParts, api: TrialParts) {
    this.#config = config
    this.#directory = directory
    this.#api = api
  }

  /** @throws {Refusal} nothing was sent, or no answer came */
  async send ({ body: sent, cut, by, signal = new AbortController().signal }: Call): Promise<ApiAnswer> {
    const wanted = { ...sent as object }
    this.#judge(wanted)
    const { key, path, secret, body } = wanted as Wanted
    if (!this.#isOf(key, secret)) {
      refuseMistakes([{ path: '/secret', message: `is not that of the key ${key.slice(0, 100)}` }])
    }
    if (this.#running >= MOST_AT_A_TIME) {
      throw new Refusal('busy', `${MOST_AT_A_TIME} requests are being tried already. Try again when one has ended.`,
        { headers: { 'retry-after': '5' } })
    }
    this.#running++
    try {
      const model = cut === undefined ? body['model'] : await modelIn(cut)
      const json = cut ?? Buffer.from(JSON.stringify(body))
      // Before it is sent: nobody spends here without a line that tells who.
      await this.#directory.change(() => ({ audit: { ...by, what: 'key.try', id: key, before: null, after: null,
        request: `POST ${path}`, ...(typeof model === 'string' && { model: model.slice(0, 200) }) } }))
      const begun = performance.now()
      return { status: 200, type: EVENTS, body: this.#pass(await this.#ask({ path, secret, json }, signal), begun) }
    } catch (thrown) {
      this.#running--
      throw thrown
    }
  }

  /** Whether the secret is the key's: also where the API will refuse it, as frozen or expired. @throws {Refusal} */
  #isOf (id: string, secret: string): boolean {
    const declared = this.#config().keys.find((key) => key.id === id)
    const kept = this.#directory.keptKey(id)?.record
    if (declared === undefined && (kept === undefined || kept.deleted_at !== undefined)) {
      throw new Refusal('not_found', `There is no key ${JSON.stringify(id.slice(0, 100))}. GET /admin/v1/keys lists all.`)
    }
    const digest = digestOf(secret)
    return declared === undefined
      ? kept!.secrets.some(({ sha256 }) => sha256 === digest.toString('hex'))
      : digest.equals(digestOf(declared.secret))
  }

  async #ask (asked: Trial, signal: AbortSignal): Promise<IncomingMessage> {
    try {
      return await this.#api.ask(asked, signal)
    } catch (thrown) {
      throw new Refusal('outcome_unknown', 'The API of this gateway did not answer ' +
        `(${(thrown as NodeJS.ErrnoException).code ?? 'no reason'}): whether the request was served, /admin/v1/requests ` +
        'tells.', { headers: { 'retry-after': '2' } })
    }
  }

  async * #pass (response: IncomingMessage, begun: number): AsyncGenerator<Uint8Array> {
    const tell = (one: Event): Uint8Array =>
      Buffer.from(`data: ${JSON.stringify({ ...one, ms: Math.round((performance.now() - begun) * 10) / 10 })}\n\n`)
    try {
      const headers = TOLD.flatMap((name) => {
        const value = response.headers[name]
        return typeof value === 'string' ? [[name, value] as const] : []
      })
      yield tell({ kind: 'head', status: response.statusCode!, headers: Object.fromEntries(headers) })
      const decoder = new TextDecoder()
      try {
        for await (const chunk of response as AsyncIterable<Buffer>) {
          const piece = decoder.decode(chunk, { stream: true })
          if (piece !== '') yield tell({ kind: 'piece', text: piece })
        }
      } catch {
        // Cut: the end says so.
      }
      yield tell({ kind: 'end', is_whole: response.complete })
    } finally {
      this.#running--
      response.destroy()
    }
  }
}

/** Bytes of a name that are worth reading. */
const LONGEST_NAME = 1000

/** Undefined: there is none, or the API will not understand it either. */
async function modelIn (json: Buffer): Promise<unknown> {
  const last = (await membersNamed('model', json)).at(-1)
  if (last === undefined || last.end - last.start > LONGEST_NAME) return undefined
  try {
    return JSON.parse(json.toString('utf8', last.start, last.end))
  } catch {
    return undefined
  }
}
