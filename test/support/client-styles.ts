// What a client of each style sends, and what it reads of what it gets: for tables that hold for all of them.
import type { ClientEvent } from './billing-client.ts'

type Json = Readonly<Record<string, unknown>>

export const styles = ['messages', 'chat', 'responses'] as const
export type Style = typeof styles[number]

export interface ClientStyle {
  readonly path: string
  /** events of a stream before the first word of a text, and behind its last one */
  readonly opening: number
  readonly closing: number
  /** a body in messages style, as this style says it */
  asking (body: Json): Json
  /** what an event adds to the text */
  textOf (event: ClientEvent): string
  /** of a JSON answer; '': it has none */
  wholeText (body: Json): string
  /** whether the stream says that the answer is whole */
  isEnded (events: readonly ClientEvent[]): boolean
  /** whether the last event is one behind which a failed stream has nothing */
  isFailed (events: readonly ClientEvent[]): boolean
}

interface Choice { readonly delta?: { readonly content?: string | null }, readonly finish_reason?: string | null }

const choiceOf = ({ data }: ClientEvent): Choice | undefined => (data['choices'] as Choice[] | undefined)?.[0]
/** [DONE] is no JSON. */
const isDone = (events: readonly ClientEvent[]): boolean => Object.keys(events.at(-1)?.data ?? { no: 1 }).length === 0

export const clientStyles: Readonly<Record<Style, ClientStyle>> = {
  messages: {
    path: '/v1/messages',
    opening: 2,
    closing: 3,
    asking: (body) => body,
    textOf: ({ data }) => String((data['delta'] as Json | undefined)?.['text'] ?? ''),
    wholeText: (body) => (body['content'] as { text: string }[] | undefined)?.[0]?.text ?? '',
    isEnded: (events) => events.at(-1)?.event === 'message_stop',
    isFailed: (events) => events.at(-1)?.event === 'error'
  },
  chat: {
    path: '/v1/chat/completions',
    opening: 1,
    closing: 3,
    asking: (body) => body['stream'] === true ? { ...body, stream_options: { include_usage: true } } : body,
    textOf: (event) => choiceOf(event)?.delta?.content ?? '',
    wholeText: (body) => (body['choices'] as { message: { content: string } }[] | undefined)?.[0]?.message.content ?? '',
    isEnded: (events) => events.some((event) => (choiceOf(event)?.finish_reason ?? null) !== null) && isDone(events),
    isFailed: isDone
  },
  responses: {
    path: '/v1/responses',
    opening: 4,
    closing: 4,
    asking: ({ messages: input, max_tokens: max_output_tokens, ...others }) => ({ ...others, input,
      max_output_tokens }),
    textOf: ({ event, data }) => event === 'response.output_text.delta' ? String(data['delta']) : '',
    wholeText: (body) =>
      (body['output'] as { content?: { text: string }[] }[] | undefined)?.find(({ content }) => content !== undefined)
        ?.content?.[0]?.text ?? '',
    isEnded: (events) => /^response\.(?:completed|incomplete)$/.test(events.at(-1)?.event ?? ''),
    isFailed: (events) => events.at(-1)?.event === 'response.failed'
  }
}

export interface ToldError {
  readonly code?: string
  readonly details?: { readonly error_code: string }
  readonly charged_usd: string
}

/** The error of an answer of any style, whole or streamed. */
export function toldError (
  { events, body }: { readonly events: readonly ClientEvent[], readonly body: Json | undefined }
): ToldError | undefined {
  return [...events.map(({ data }) => data), body ?? {}]
    .map((data) => (data['error'] ?? (data['response'] as Json | undefined)?.['error'] ?? undefined) as
      | ToldError
      | undefined)
    .find((error) => error !== undefined)
}

export const codeOf = ({ code, details }: ToldError): string => details?.error_code ?? code!
