// A video as the store keeps it and as a client reads it: the 13 fields of the API, four statuses, and a progress that
// never goes back.
import type { Json } from '../base/json.ts'
import type { TaskReport, VideoStatus } from '../core/task-report.ts'
import { itemCost } from '../money/item-price.ts'
import { formatUsd, type Nanos } from '../money/nanos.ts'
import type { Task } from '../store/tasks.ts'

/** The state of a video task, opaque to the store. */
export interface Video {
  readonly status: VideoStatus
  /** whole, 0 to 100 */
  readonly progress: number
  /** public id */
  readonly model: string
  readonly prompt: string
  /** ordered; of a completed video, delivered */
  readonly seconds: string
  readonly size: string
  /** public id */
  readonly remix_of?: string
  readonly channel: string
  /** name in `upstreams:`, and its address at that time */
  readonly upstream: string
  readonly url: string
  /** the id of the credential that it was made with; absent: the upstream has only one */
  readonly credential?: string
  /** the task's id at the upstream */
  readonly upstream_id: string
  /** version of the price of the charge */
  readonly price_version?: string
  /** the price of a second, in pico-dollars; absent: a task of an older version, which is charged as it was ordered */
  readonly per_second?: string
  /** what it costs at its upstream if it is completed, in nano-dollars; absent: its target does not say */
  readonly cost?: string
  /** of a completed video: its price, in nano-dollars; absent: a task of an older version */
  readonly charged?: string
  /** milliseconds since the epoch */
  readonly ended?: number
  /** when the upstream deletes the file, milliseconds since the epoch */
  readonly expires?: number
  /** where the file is, as the upstream says, if it is not at the upstream's own address */
  readonly link?: string
  readonly error?: { readonly code: string, readonly message: string }
}

export function videoOf ({ text }: Pick<Task, 'text'>): Video {
  return JSON.parse(text) as Video
}

/** The video after a report. The same object: no news. A video that has ended stays as it is. */
export function advance (video: Video, { status, progress }: TaskReport): Video {
  if (status === 'unheard' || status === 'completed' || status === 'failed' || isOver(video)) return video
  const next = status === 'in_progress' ? status : video.status
  // 100 means "completed", which is reported when it is charged.
  const furthest = next === 'queued' ? 0 : Math.min(99, Math.max(video.progress, Math.floor(progress)))
  return next === video.status && furthest === video.progress ? video : { ...video, status: next, progress: furthest }
}

/** The length and the charge of a delivered video: never more than was ordered and is held. */
export function deliveryOf (
  { seconds: ordered, per_second: perSecond, cost }: Pick<Video, 'seconds' | 'per_second' | 'cost'>,
  held: Nanos,
  delivered: number | undefined
): { readonly seconds: string, readonly nanos: Nanos, readonly cost?: Nanos } {
  const most = Number(ordered)
  const seconds = Math.min(delivered ?? most, most)
  const whole = { seconds: ordered, nanos: held, ...(cost !== undefined && { cost: BigInt(cost) }) }
  if (ordered === '') return { ...whole, seconds: delivered === undefined ? '' : String(delivered) }
  if (perSecond === undefined || seconds === most) return whole
  const nanos = itemCost({ each: 0n, perSecond: BigInt(perSecond) }, 0, seconds)
  return {
    seconds: String(seconds),
    nanos: nanos < held ? nanos : held,
    ...(cost !== undefined && { cost: BigInt(cost) * BigInt(seconds) / BigInt(most) })
  }
}

export function isOver ({ status }: Video): boolean {
  return status === 'completed' || status === 'failed'
}

/** All 13 fields, and the cost of a video that is over. Times are in seconds. */
export function describe (
  { id, created, request_id: requestId }: Pick<Task, 'id' | 'created' | 'request_id'>,
  video: Video
): Readonly<Record<string, unknown>> {
  return {
    id,
    object: 'video',
    model: video.model,
    status: video.status,
    progress: video.progress,
    created_at: seconds(created),
    completed_at: video.status === 'completed' ? seconds(video.ended!) : null,
    expires_at: video.expires === undefined ? null : seconds(video.expires),
    prompt: video.prompt,
    size: video.size,
    seconds: video.seconds,
    remixed_from_video_id: video.remix_of ?? null,
    // A task's error ends like every error.
    error: video.error === undefined
      ? null
      : { code: video.error.code, message: `${video.error.message} Request ID: ${requestId}` },
    ...costOf(video)
  }
}

function costOf ({ status, charged = status === 'failed' ? '0' : undefined }: Video): Json {
  return charged === undefined ? {} : { usage: { cost: Number(formatUsd(BigInt(charged))) } }
}

function seconds (ms: number): number {
  return Math.floor(ms / 1000)
}
