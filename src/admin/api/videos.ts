// The video tasks of all accounts, as they are: never what was asked for.
import { formatUsd } from '../../money/nanos.ts'
import { videoOf } from '../../media/video.ts'
import type { Task, Tasks } from '../../store/tasks.ts'
import { choice, flag, instant, money, number, object, orNull, page, text, whole } from './answers.ts'
import { type ApiAnswer, type ApiParts, type Call, type Operation, readLimit, readQuery } from './operation.ts'
import { Refusal } from './refusal.ts'

const STATES = ['queued', 'in_progress', 'completed', 'failed'] as const
const QUERY = ['account', 'state', 'after', 'limit']

const video = object('Video', 'A video that was asked for.', {
  id: text('As its client knows it.'),
  request_id: text('The request that asked for it: the reference of its entry.'),
  account: text('Who pays.'),
  key: text('Whose request it was.'),
  model: text('The model.'),
  channel: text('How it was sold.'),
  upstream: text('Who makes it.'),
  upstream_id: text('What that calls it.'),
  credential: orNull(text('The account there; null: there is only one.')),
  status: choice('How far it is.', STATES),
  progress: whole('Percent.'),
  seconds: text('Its length.'),
  size: text('Width and height.'),
  created_at: instant('When it was asked for.'),
  age_s: number('Seconds since then.'),
  ended_at: orNull(instant('When it was over; null: it is not.')),
  is_open: flag('true: it holds money.'),
  held_usd: money('What it holds.'),
  charged_usd: money('What it was charged.'),
  error: orNull(object('VideoError', 'Why it failed.', { code: text('For programs.'), message: text('For people.') }))
})

export function videoOperations ({ services: { tasks, now } }: ApiParts): readonly Operation[] {
  return [{
    method: 'GET',
    path: '/videos',
    name: 'listVideos',
    isCostly: true,
    summary: 'The videos of all accounts, the newest first, with what they hold and what they were charged. Those ' +
      'that are over are forgotten after a time.',
    query: QUERY,
    gives: page(video),
    answer: async (call) => await listVideos(call, tasks, now())
  }]
}

async function listVideos ({ query: sent }: Call, tasks: Pick<Tasks, 'newestTasks'>, now: number): Promise<ApiAnswer> {
  const query = readQuery(sent, QUERY)
  const limit = readLimit(query)
  const [account, state, after] = [query.get('account'), query.get('state'), query.get('after')]
  if (state !== undefined && !STATES.some((one) => one === state)) {
    throw new Refusal('invalid_request', `state must be one of ${STATES.join(', ')}.`)
  }
  if (after !== undefined && !/^\d{15} .+$/s.test(after)) {
    throw new Refusal('invalid_request', 'after must be what `next` gave.')
  }
  const [created, id] = after === undefined ? [] : [Number(after.slice(0, 15)), after.slice(16)]
  const found = await tasks.newestTasks({ ...(account !== undefined && { account }),
    ...(state !== undefined && { status: state }), ...(created !== undefined && { before: { created, id: id! } }),
    limit: limit + 1 })
  const rows = found.slice(0, limit)
  return { status: 200, body: { data: rows.map((task) => view(task, now)),
    next: found.length > limit ? placeOf(rows.at(-1)!) : null } }
}

/** Sorts as text by the time of creation. */
function placeOf ({ created, id }: Task): string {
  return `${String(created).padStart(15, '0')} ${id}`
}

function view (task: Task, now: number): Readonly<Record<string, unknown>> {
  const { id, request_id: requestId, account, key, created, nanos, is_open: isOpen } = task
  const { model, channel, upstream, upstream_id: upstreamId, credential = null, status, progress, seconds, size, ended,
    error } = videoOf(task)
  return {
    id, request_id: requestId, account, key, model, channel, upstream, upstream_id: upstreamId, credential, status,
    progress, seconds, size, created_at: new Date(created).toISOString(), age_s: Math.round((now - created) / 100) / 10,
    ended_at: ended === undefined ? null : new Date(ended).toISOString(), is_open: isOpen,
    held_usd: isOpen ? formatUsd(nanos) : '0', charged_usd: isOpen ? '0' : formatUsd(nanos), error: error ?? null
  }
}
