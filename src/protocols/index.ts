// The table of the API styles that clients speak.
import { isGiven } from '../base/json.ts'
import type { Body } from '../core/facts.ts'
import type { Route } from '../core/route.ts'
import type { Style } from '../core/style.ts'
import { chatStyle } from './chat.ts'
import { messagesStyle } from './messages.ts'
import { responsesStyle } from './responses.ts'

export const styles: readonly Style[] = [messagesStyle, chatStyle, responsesStyle]

/** The style of errors at addresses that belong to no style. */
export const commonStyle = chatStyle

/** The style of errors at a path, whether or not a route exists (src/README.md#error-shapes). */
export function styleOf (path: string): Style {
  return styles.find((style) => style.matches(path)) ?? commonStyle
}

/**
 * The style that a request's body is written in: that of its route, unless the conversation stands where another style
 * has it that is taken there too. Cursor's agents send bodies of the Responses API to the address of chat completions,
 * and read a completion.
 */
export function styleOfBody ({ style, endpoint }: Route, body: Body): Style {
  if (endpoint.kind !== 'model' || endpoint.modality !== 'text' || isGiven(body[style.conversation])) return style
  for (const other of styles) if (other.alsoAt === style && isGiven(body[other.conversation])) return other
  return style
}
