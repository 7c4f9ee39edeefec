// The API styles that clients speak: one table, and nothing else.
import type { Style } from '../core/style.ts'
import { chatStyle } from './chat.ts'
import { messagesStyle } from './messages.ts'

export const styles: readonly Style[] = [messagesStyle, chatStyle]

/** How a client reads errors at all addresses that are no style's own. */
export const commonStyle = chatStyle

/** How errors look at a path, whether or not there is anything (src/README.md#error-shapes). */
export function styleOf (path: string): Style {
  return styles.find((style) => style.matches(path)) ?? commonStyle
}
