// The table of the API styles that clients speak.
import type { Style } from '../core/style.ts'
import { chatStyle } from './chat.ts'
import { messagesStyle } from './messages.ts'

export const styles: readonly Style[] = [messagesStyle, chatStyle]

/** The style of errors at addresses that belong to no style. */
export const commonStyle = chatStyle

/** The style of errors at a path, whether or not a route exists (src/README.md#error-shapes). */
export function styleOf (path: string): Style {
  return styles.find((style) => style.matches(path)) ?? commonStyle
}
