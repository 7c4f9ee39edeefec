// The contract between the core and its plugins: all that a plugin can do.
import type { Awaitable } from '../base/awaitable.ts'
import type { Config, KeyConfig } from '../config/config.ts'
import type { PluginDescriptor } from '../config/plugin-descriptor.ts'
import type { GatewayError } from '../errors.ts'
import type { ErrorReply, JsonReply, Reply } from './reply.ts'
import type { Exchange, Outcome } from './exchange.ts'
import type { Attempt, Fact } from './facts.ts'
import type { Upload } from './upload.ts'
import type { ToldFailure } from './vendor-error.ts'
import type { Route } from './route.ts'
import type { Services } from './services.ts'
import type { SseEvent } from './sse.ts'
import type { Style } from './style.ts'

export interface Plugin<Options = Record<string, unknown>> extends PluginDescriptor {
  readonly reads?: readonly Fact<unknown>[]
  readonly writes?: readonly Fact<unknown>[]
  readonly enforces?: readonly (keyof KeyConfig)[]
  /**
   * true: it reads the body of a request in body steps only (core/body-step.ts), that of a whole answer in reply steps
   * (core/reply-step.ts), or not at all
   */
  readonly readsInSteps?: true
  /** one of the table of styles (protocols/index.ts) */
  readonly translates?: Style
  /** Called once per snapshot of the configuration, synchronously. No I/O. A throw refuses the configuration. */
  create (options: Options, config: Config, services: Services): Hooks
}

/** Every hook may be left out. An async hook that takes longer than `hook_timeout` fails the request. */
export interface Hooks {
  /**
   * Down the list; the head is known, the body is not read yet. Return a Reply to answer, throw a GatewayError to
   * refuse.
   */
  onHead? (exchange: Exchange): Awaitable<Reply | void>
  /** Down the list; the body is parsed. Read, check, replace `exchange.request`, plan; return a Reply to answer. */
  onRequest? (exchange: Exchange): Awaitable<Reply | void>
  /**
   * The hooks for requests of this key on this route, in the place of `onHead` and `onRequest`, once the key is known;
   * a hook that is left out is not called, and with undefined neither is. Called once per key and route, when the key
   * is first used there. A dry run calls `onHead` and `onRequest` themselves.
   */
  perKey? (key: KeyConfig, route: Route): KeyHooks | undefined
  /** Called for each attempt: the returned hooks have fresh state. */
  perAttempt? (attempt: Attempt, exchange: Exchange): AttemptHooks
  /** Up the list; the JSON answer of an upstream or of a plugin, once. Return another to replace it. */
  onReply? (reply: Reply, exchange: Exchange): Awaitable<Reply | void>
  /** Up the list, once per answer that is a stream. Undefined: this plugin leaves the stream alone. */
  onStream? (exchange: Exchange): StreamTransformer | void
  /** From the client's side inward, until one returns: shapes an error for the client. */
  onError? (error: GatewayError, exchange: Exchange, outcome: Outcome): ErrorReply | void
  /**
   * Up the list until one returns: turns an upstream's failure into an error. `retryable` decides whether the next
   * attempt is tried.
   */
  onUpstreamFailure? (failure: UpstreamFailure, exchange: Exchange, upstream: string): GatewayError | void
  /** After the last request of a retired snapshot. */
  close? (): Awaitable<void>
}

/** Replacements of the plugin's own hooks. */
export type KeyHooks = Pick<Hooks, 'onHead' | 'onRequest'>

/** All but the first are synchronous: they run between two bytes of a stream. */
export interface AttemptHooks {
  /** Down the list; may change the request to the upstream. */
  onUpstreamRequest? (request: UpstreamRequest): Awaitable<void>
  /**
   * Up the list; a whole JSON answer in the inner language. A throw fails the attempt. A promise is waited for where a
   * thread has the answer, so only of plugins with `readsInSteps`.
   */
  onUpstreamReply? (reply: JsonReply): Awaitable<void>
  /** Up the list; one event in messages style. A throw fails the attempt, or after the commit cuts the answer. */
  onUpstreamEvent? (event: SseEvent): void
}

/** One event in, none or many out. Synchronous: it runs between two bytes of a stream. A throw cuts the answer. */
export interface StreamTransformer {
  /**
   * Called before each event of the upstream. A promise holds the stream back, as a slow client does, until it is
   * fulfilled: for decisions that need an asynchronous answer. A rejection, or more than `hook_timeout`, cuts the
   * answer.
   */
  ready? (event: SseEvent): Promise<void> | undefined
  event (event: SseEvent): SseEvent | readonly SseEvent[] | void
  /** The stream has ended whole: returns its last events. Not called when the answer was cut. */
  end? (): readonly SseEvent[]
}

/** A file sent with a request, in the field of that name. */
export interface FormFile {
  readonly field: string
  readonly upload: Upload
}

/**
 * The request to an upstream, in its dialect; made from an allow-list, so that no header of the client's gets in by
 * accident.
 */
export interface UpstreamRequest {
  readonly method: string
  path: string
  readonly headers: Record<string, string>
  body: Readonly<Record<string, unknown>>
  /** present: the request is multipart/form-data, and the body's fields are its other fields */
  readonly files?: readonly FormFile[]
}

/** The failures of an attempt. */
export type UpstreamFailure =
  | ToldFailure
  /** `exhausted`: this machine has no descriptor, port or memory for a connection */
  | { readonly kind: 'exhausted' | 'refused' | 'reset' | 'connect_timeout' | 'first_byte_timeout' | 'idle_timeout' | 'total_timeout',
    readonly cause: unknown }
  /** not JSON, not events, or not of the dialect */
  | { readonly kind: 'malformed', readonly cause: unknown }
  /** a call that no client can run, as the model has written it; `isHalf`: its end is missing */
  | { readonly kind: 'unusable', readonly isHalf?: true, readonly cause: unknown }
  /** a whole answer without content; `isBlank`: without a byte */
  | { readonly kind: 'empty', readonly isBlank?: true }
  /** a clean end without the terminal event */
  | { readonly kind: 'incomplete' }

/** Types the options, and erases the type for the list of plugins. */
export function definePlugin<Options> (plugin: Plugin<Options>): Plugin {
  return plugin as unknown as Plugin
}
