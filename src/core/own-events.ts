// What the core says in a stream of its own accord, for styles in which that depends on what was said before.
import type { GatewayError } from '../errors.ts'
import type { ErrorReply } from './reply.ts'
import type { SseEvent } from './sse.ts'

/**
 * A stream's ping and its error, in the place of the style's own (`Style.ping`, `Style.errorEvents`): events that are
 * numbered, or that repeat the answer so far. They go to the client as they are, past the transformers of the plugins
 * above, as the style's do.
 */
export interface OwnEvents {
  /** Called before each event of the upstream's. What is made of it may never leave, what was made before it does. */
  mark (): void
  /**
   * What was made since the mark never left, and never will: the answer could not be settled, or a plugin threw. An
   * error follows, and pings before it, if it has to wait.
   */
  takeBack (): void
  /**
   * The events that keep the silent stream open, which may be those that begin it. Called when they are sent.
   * Undefined: the style's ping.
   */
  ping (): readonly SseEvent[] | undefined
  /**
   * The events that end the stream with an error; nothing comes after them.
   * @param error what went wrong
   * @param shaped the error as the plugins have shaped it for this client
   */
  fail (error: GatewayError, shaped: ErrorReply): readonly SseEvent[]
}
