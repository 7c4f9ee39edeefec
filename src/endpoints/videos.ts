// POST, GET and DELETE /v1/videos: tasks that upstreams work on after the request was answered. media/video-poller.ts
// polls their results; here they are created and shown. For every account but its own a task does not exist.
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'
import { Accepted, ApiKey, type Attempt, Model, Variant } from '../core/facts.ts'
import { costOfItems } from '../money/goods.ts'
import { itemPrice, rateOf } from '../money/item-price.ts'
import { json, type JsonReply } from '../core/reply.ts'
import { createRequestId } from '../base/request-id.ts'
import type { Download, Routed } from '../core/endpoint.ts'
import type { Task } from '../store/tasks.ts'
import { ask } from '../upstream/transport/fetch-json.ts'
import { aboutTask, contentPath, createdId } from '../upstream/dialects/videos/index.ts'
import { readAcceptance } from '../upstream/dialects/videos/report.ts'
import { saidIn } from '../core/failed-attempt.ts'
import { secretsOf } from '../core/upstream-secrets.ts'
import { describe, isOver, type Video, videoOf } from '../media/video.ts'
import { upstreamOf } from '../media/video-poller.ts'
import type { UpstreamFailure } from '../core/plugin.ts'
import { readRetryAfter } from '../upstream/limits/retry-after.ts'
import { idIn, readPage } from './paths.ts'

/**
 * Makes a task of an upstream's acceptance, with an id of the gateway's. billing-meter records it with the hold before
 * the answer is written; a kill before that leaves neither task nor charge.
 */
export function acceptVideo (exchange: Exchange, reply: JsonReply, attempt: Attempt): JsonReply {
  const { config, services } = exchange.snapshot
  const { body } = exchange.request
  const variant = exchange.get(Variant)
  const created = services.now()
  const rate = rateOf(variant, itemPrice(attempt.sold))
  const cost = costOfItems(variant, attempt.cost, 0, Number(variant['seconds'] ?? 0))
  const video: Video = {
    status: 'queued',
    progress: 0,
    model: exchange.get(Model).id,
    prompt: String(body['prompt']),
    seconds: variant['seconds'] ?? '',
    size: variant['size'] ?? '',
    channel: attempt.channel,
    upstream: attempt.upstream,
    url: config.upstreams[attempt.upstream]!.url,
    ...(exchange.credential !== undefined && { credential: exchange.credential }),
    upstream_id: createdId(reply.body),
    ...(rate !== undefined && { price_version: rate.version, per_second: rate.perSecond.toString() }),
    ...(cost !== undefined && { cost: cost.toString() })
  }
  const id = `video_${createRequestId().slice('req_'.length)}`
  exchange.set(Accepted, { id, created, text: JSON.stringify(video) })
  const report = readAcceptance(reply.body)
  // A recorded task is watched by its poller. A client that was told of a failure has no video, even if the upstream
  // makes one: that task is cancelled.
  exchange.onFinish(({ kind }) => {
    if (report === undefined || kind === 'failed') services.videos.watch(id)
    else void services.videos.hear(id, report)
  })
  return json(describe({ id, created, request_id: exchange.id }, video))
}

/** The header tells pollers when to ask again (src/README.md#video-states). */
export async function retrieveVideo (exchange: Exchange): Promise<JsonReply> {
  const task = await findOwn(exchange)
  const video = videoOf(task)
  return json(describe(task, video),
    isOver(video) ? {} : { 'openai-poll-after-ms': String(exchange.snapshot.services.videos.pollAfter(task)) })
}

export async function listVideos (exchange: Exchange): Promise<JsonReply> {
  const { limit, order, after } = readPage(exchange.received.query)
  const { account } = exchange.get(ApiKey)
  // One more than the page, to know whether there is another page.
  const found = await exchange.snapshot.services.tasks.tasks(account.id, { limit: limit + 1, order,
    ...(after !== undefined && { after }) })
  if (found === undefined) {
    throw new GatewayError('invalid_request', { message: '"after" names no video of this list.', param: 'after' })
  }
  const page = found.slice(0, limit)
  return json({
    object: 'list',
    data: page.map((task) => describe(task, videoOf(task))),
    first_id: page[0]?.id ?? null,
    last_id: page.at(-1)?.id ?? null,
    has_more: found.length > limit
  })
}

/** Deletes a video that is over: a running task can't be stopped, and would cost as much. */
export async function deleteVideo (exchange: Routed): Promise<JsonReply> {
  const task = await findOwn(exchange)
  const video = videoOf(task)
  if (task.is_open) {
    throw new GatewayError('invalid_state', {
      message: `The video is ${saying(video)}, and can only be deleted when it is completed or has failed.`
    })
  }
  if (!await exchange.snapshot.services.tasks.removeTask(task.id)) throw notFound()
  void deleteFile(exchange, video)
  return json({ id: task.id, object: 'video.deleted', deleted: true })
}

/**
 * Deletes the upstream's copy, in the background: the client's video is gone, and the upstream drops its own in time.
 * Never rejects.
 */
async function deleteFile ({ id, snapshot }: Routed, video: Video): Promise<void> {
  snapshot.lease()
  try {
    const upstream = upstreamOf(snapshot, video)
    if (upstream === undefined || upstream.config.maintenance) return
    const told = await ask(upstream, aboutTask('DELETE', upstream, video.upstream_id), DELETE_MS)
    const failed = 'kind' in told
      ? told.kind
      : told.status >= 300 && told.status !== 404
      ? `status ${told.status}`
      : undefined
    if (failed !== undefined) {
      snapshot.services.log.warn({ request_id: id, upstream: video.upstream, upstream_id: video.upstream_id,
        why: failed,
        said: 'kind' in told ? undefined : saidIn({ kind: 'status', ...told }, secretsOf(upstream.config)) },
        'a deleted video could not be deleted at its upstream')
    }
  } catch (err) {
    snapshot.services.log.error({ request_id: id, err, upstream: video.upstream, upstream_id: video.upstream_id },
      'a deleted video could not be deleted at its upstream')
  } finally {
    snapshot.release()
  }
}

const DELETE_MS = 30_000

/** @throws {GatewayError} not_found always: no upstream known here can do it (src/README.md#video-states) */
export async function remixVideo (exchange: Exchange): Promise<never> {
  await findOwn(exchange)
  throw new GatewayError('not_found', { message: 'The provider of this video can\'t remix it. Create another one.' })
}

const ENDINGS: Readonly<Record<string, string>> = { video: 'mp4', thumbnail: 'webp', spritesheet: 'jpg' }
/** Headers of a client that ask for a part, or for a changed version. */
const ASKED = ['accept', 'range', 'if-range', 'if-match', 'if-none-match', 'if-modified-since', 'if-unmodified-since']

export async function locateVideo (exchange: Exchange): Promise<Download> {
  const { snapshot, received } = exchange
  const task = await findOwn(exchange)
  const video = videoOf(task)
  if (video.error !== undefined) {
    throw new GatewayError('invalid_state', { message: `The video has failed: ${video.error.message}` })
  }
  if (video.status !== 'completed') {
    throw new GatewayError('invalid_state', {
      message: `The video is ${saying(video)}. Ask GET /v1/videos/${task.id} until it is completed.`
    })
  }
  if (snapshot.services.now() >= video.expires!) throw expired()
  const variant = new URLSearchParams(received.query).get('variant') || 'video'
  if (!Object.hasOwn(ENDINGS, variant)) {
    throw new GatewayError('invalid_request', { message: `"variant" must be one of ${Object.keys(ENDINGS).join(', ')}.`,
      param: 'variant' })
  }
  const upstream = upstreamOf(snapshot, video)
  if (upstream === undefined) {
    throw new GatewayError('service_unavailable', {
      message: 'The provider of this video is not reachable through this gateway at the moment.',
      retryAfter: 60
    })
  }
  if (upstream.config.maintenance) {
    throw new GatewayError('maintenance', {
      message: 'The provider of this video is under maintenance. Try again in {wait}.'
    })
  }
  const headers: Record<string, string> = { 'accept-encoding': 'identity' }
  for (const name of ASKED) {
    const value = received.headers[name]
    if (typeof value === 'string') headers[name] = value
  }
  return {
    upstream: video.upstream,
    own: { path: contentPath(upstream, video.upstream_id) + (variant === 'video' ? '' : `?variant=${variant}`), headers,
      ...(video.link !== undefined && variant === 'video' && { link: video.link }),
      ...(video.credential !== undefined && { credential: video.credential }) },
    reply: (bytes) => ({
      ...bytes,
      headers: {
        ...bytes.headers,
        // A type that browsers would execute is not passed on.
        ...(bytes.status !== 304 && { 'content-type': mediaType(bytes.headers['content-type']) }),
        'content-disposition': `attachment; filename="${task.id}.${ENDINGS[variant]}"`,
        'x-content-type-options': 'nosniff',
        'cache-control': 'private'
      }
    }),
    refuse: (error) => fileError(error, snapshot.services.now)
  }
}

function mediaType (said: string | undefined): string {
  return said !== undefined && /^(?:video\/[\w.+-]+|image\/(?:webp|jpeg|png|gif|avif))\s*(?:;|$)/i.test(said)
    ? said
    : 'application/octet-stream'
}

/** The error of a download for its client: the upstream may have deleted the file, or not be ready to give it. */
function fileError (error: GatewayError, now: () => number): GatewayError {
  const { kind, status, headers } = (error.cause ?? {}) as Partial<UpstreamFailure & { readonly kind: 'status' }>
  if (kind !== 'status') return error
  if (status === 404 || status === 410) return expired()
  if (status !== 202) return error
  const wait = readRetryAfter(headers ?? {}, now)
  return new GatewayError('service_unavailable', {
    message: 'The file of this video is not ready at its provider yet. Try again in {wait}.',
    retryAfter: Math.min(60, Math.max(1, Math.ceil(wait ?? NOT_YET_S))),
    cause: error.cause
  })
}

/** Seconds until a file may be ready where the upstream does not say. */
const NOT_YET_S = 5

function expired (): GatewayError {
  return new GatewayError('not_found', { message: 'The file of this video has expired. Create it again.' })
}

function saying ({ status, progress }: Video): string {
  return status === 'queued' ? 'queued' : `in progress (${progress} %)`
}

/** @throws {GatewayError} not_found: the task does not exist, or belongs to another account */
async function findOwn (exchange: Exchange): Promise<Task> {
  const { account } = exchange.get(ApiKey)
  const task = await exchange.snapshot.services.tasks.task(idIn(exchange))
  if (task === undefined || task.account !== account.id) throw notFound()
  return task
}

function notFound (): GatewayError {
  return new GatewayError('not_found', { message: 'There is no such video. GET /v1/videos lists yours.' })
}
