// log: what is written, and how it looks.
import { choice, map, type Of } from './schema.ts'

export const log = map('What is written to the log.', {
  level: choice(
    'The least important level that is written.',
    ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], 'info'
  ),
  format: choice(
    'How its lines look: "json" for programs, "pretty" for people, or "auto": pretty in a terminal, JSON ' +
    'everywhere else.',
    ['auto', 'json', 'pretty'], 'auto'
  )
}, { default: {} })

export type LogConfig = Of<typeof log>
export type LogLevel = LogConfig['level']
export type LogFormat = LogConfig['format']
