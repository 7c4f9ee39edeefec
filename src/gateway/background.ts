// The services that work in the background of requests, made together from one store.
import { Idempotency } from '../pipeline/idempotency.ts'
import type { GatewayServices } from './services.ts'
import type { Answers } from '../store/tasks.ts'
import { startTimer } from '../base/timer.ts'
import { VideoWatcher, type WatcherOptions } from '../media/video-poller.ts'

/** @param current absent: no task is watched, as in a command that is no server */
export function backgroundServices (
  store: WatcherOptions['tasks'] & Answers,
  { log, metrics, now }: Pick<GatewayServices, 'log' | 'metrics' | 'now'>,
  { timer = startTimer, current = none }: Partial<Pick<WatcherOptions, 'timer' | 'current'>> = {}
): Pick<GatewayServices, 'tasks' | 'videos' | 'idempotency'> {
  return { tasks: store, videos: new VideoWatcher({ tasks: store, log, metrics, now, timer, current }),
    idempotency: new Idempotency(store, now, log) }
}

function none (): never {
  throw new Error('there is no live configuration')
}
