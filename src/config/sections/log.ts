// log: what is written, and how it looks.
import { choice, duration, map, type Of, size } from './schema.ts'

export const log = map('What is written to the log.', {
  level: choice(
    'The least important level that is written.',
    ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], 'info'
  ),
  format: choice(
    'How its lines look: "json" for programs, "pretty" for people, or "auto": pretty in a terminal, JSON ' +
    'everywhere else.',
    ['auto', 'json', 'pretty'], 'auto'
  ),
  requests: map(
    'The last requests, in the data folder, for GET /admin/v1/requests: what became of each and of its attempts, ' +
    'never a prompt or an answer. What ends first counts.',
    {
      keep: {
        description: 'How many of this host; of driver memory at most 10000. 0: none, and what was kept is removed.',
        type: 'integer', minimum: 0, maximum: 10_000_000, default: 100_000
      },
      max_age: duration('How long.', '168h', { min: '1m' }),
      max_size: size('How much of the disk.', '256MB', { min: '1MB' })
    },
    { default: {} }
  )
}, { default: {} })

export type LogConfig = Of<typeof log>
export type RequestLogConfig = LogConfig['requests']
export type LogLevel = LogConfig['level']
export type LogFormat = LogConfig['format']
