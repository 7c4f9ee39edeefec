// Reads of the log of requests: the last ones of this host, and what became of each of their attempts.
import { hostname } from 'node:os'
import { isRequestId, microsOf } from '../../base/request-id.ts'
import { formatUsd } from '../../money/nanos.ts'
import type { LoggedRequest } from '../../telemetry/requests/line.ts'
import type { RequestReader } from '../../telemetry/requests/request-log.ts'
import type { RequestQuery } from '../../telemetry/requests/search.ts'
import { choice, flag, instant, list, money, number, object, orNull, text, usageAnswer, whole } from './answers.ts'
import { type ApiAnswer, type Call, type Operation, readLimit, readQuery } from './operation.ts'
import { Refusal } from './refusal.ts'

const attempt = object('LoggedAttempt', 'An attempt at a target.', {
  upstream: text('Its name in the configuration.'),
  target: orNull(text('The model there, or the forward route.')),
  credential: orNull(text('The account there; null: the upstream has only one.')),
  status: orNull(whole('Of the upstream\'s answer; null: it gave none.')),
  error: orNull(text('Why it failed, such as "status 404" or "refused: ECONNREFUSED", or the code that the request ' +
    'ended with; null: it answered.')),
  said: orNull(text('What the upstream said about its failure: the first 300 characters, without secrets.'))
})

const request = object('LoggedRequest', 'A request that is over.', {
  request_id: text('As its client has it.'),
  at: instant('When it came.'),
  account: orNull(text('The account; null: no key was known.')),
  key: orNull(text('The key.')),
  model: orNull(text('The model.')),
  route: text('Method and path, as the configuration has them.'),
  style: text('The style of its client, such as messages.'),
  channel: orNull(text('The channel that answered, or was tried last.')),
  stream: orNull(flag('Whether a stream was asked for; null: the body was not read.')),
  status: whole('The status that its client got; 0: none.'),
  code: text('The code of its error; "ok": none.'),
  outcome: choice('How it ended.', ['completed', 'interrupted', 'failed']),
  by: orNull(choice('Who has cut it; null: it was not cut.', ['client', 'upstream', 'gateway'])),
  config_generation: whole('The configuration that it began with.'),
  first_byte_ms: orNull(number('From its arrival to the first byte of its answer.')),
  duration_ms: number('From its arrival to the last byte.'),
  own_ms: number('The gateway\'s own part of that.'),
  queue_ms: number('What it waited for places at upstreams, and until targets recovered.'),
  cost_usd: orNull(money('What it was charged; null: it came to no charge.')),
  usage: orNull(usageAnswer),
  usage_source: orNull(choice('Who has counted.', ['provider', 'estimated'])),
  attempts_begun: whole('How many attempts there were.'),
  attempts: list('The attempts, in their order; of many that failed the first twenty.', attempt)
})

const requestPage = object('LoggedRequestPage', 'A page of the last requests.', {
  data: list('The newest first, by their arrival.', request),
  next: orNull(text('What to send as `after` for the next page; null: this is the last.')),
  host: text('The host that has answered: each has what it has served itself.'),
  keep: whole('How many it keeps at most; 0: none.')
})

const QUERY = ['key', 'account', 'model', 'code', 'status', 'after', 'limit']

export function requestOperations (reader: RequestReader): readonly Operation[] {
  return [
    {
      method: 'GET',
      path: '/requests',
      name: 'listRequests',
      isCostly: true,
      summary:
        'The last requests that this host has served, the newest first. What became of each and of its attempts, and ' +
        'what it cost; never prompts or answers. A request is there about a second after its end.',
      query: QUERY,
      gives: requestPage,
      answer: async (call) => await listed(reader, call)
    },
    {
      method: 'GET',
      path: '/requests/{id}',
      name: 'getRequest',
      isCostly: true,
      summary: 'A request that was served not long ago, by its request id.',
      gives: request,
      answer: async (call) => await shown(reader, call)
    }
  ]
}

async function listed (reader: RequestReader, { query: sent }: Call): Promise<ApiAnswer> {
  const query = readQuery(sent, QUERY)
  const limit = readLimit(query)
  const { status, after, ...names } = Object.fromEntries(query)
  delete names['limit']
  if (status !== undefined && !/^\d{1,3}$/.test(status)) {
    throw new Refusal('invalid_request', 'status must be an HTTP status such as 502; 0: nothing was answered.')
  }
  if (after !== undefined && !isRequestId(after)) {
    throw new Refusal('invalid_request', 'after must be the id of a request, as `next` gave it.')
  }
  const found = await reader.list({ ...names as RequestQuery, ...(status !== undefined && { status: Number(status) }),
    ...(after !== undefined && { before: after }), limit: limit + 1 })
  const rows = found.slice(0, limit)
  return { status: 200, body: { data: rows.map(view), next: found.length > limit ? rows.at(-1)!.request_id : null,
    host: hostname(), keep: reader.keep } }
}

async function shown (reader: RequestReader, { id }: Call): Promise<ApiAnswer> {
  const [found] = isRequestId(id) ? await reader.list({ request_id: id, limit: 1 }) : []
  if (found === undefined) {
    throw new Refusal('not_found', reader.keep === 0
      ? 'Requests are not kept here: log.requests.keep is 0.'
      : `There is no such request among the last ones that ${hostname()} has served (log.requests says how many are ` +
        'kept, and how long). Each host answers for itself.')
  }
  return { status: 200, body: view(found) }
}

function view ({ request_id: id, nanos, begun, attempts, ...request }: LoggedRequest): object {
  return {
    request_id: id,
    at: new Date(microsOf(id) / 1000).toISOString(),
    ...request,
    cost_usd: nanos === null ? null : formatUsd(BigInt(nanos)),
    attempts_begun: begun,
    attempts
  }
}
