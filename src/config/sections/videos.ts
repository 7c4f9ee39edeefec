// videos: how tasks at upstreams are polled.
import { duration, map, type Of } from './schema.ts'

export const videos = map('How video tasks are watched that upstreams work on.', {
  poll_interval: duration(
    'Between two questions to an upstream about a new task; up to six times as long for an old one.',
    '5s', { min: '10ms', max: '10m' }
  ),
  poll_concurrency: {
    description: 'Questions to an upstream at a time.',
    type: 'integer', minimum: 1, maximum: 1000, default: 20
  },
  max_age: duration(
    'A task of which nobody knows by then what became of it has failed, and costs nothing.', '24h', { max: '72h' }
  ),
  lost_after: duration(
    'A task that its upstream has denied for so long (404, three times at least) is lost: it has failed, and costs ' +
    'nothing.',
    '10m', { max: '72h' }
  ),
  file_life: duration(
    'How long the file of a finished video can be downloaded, unless its upstream says sooner.', '24h'
  ),
  keep: duration('How long after its creation a task that is over is listed.', '480h')
}, { default: {} })

export type VideosConfig = Of<typeof videos>
