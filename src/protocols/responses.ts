// The style of the Responses API: errors, headers and limits are those of chat style, the conversation is `input`. And
// what the two translations between it and messages style share: the plugin's for clients, the dialect's for upstreams.
import type { Json } from '../base/json.ts'
import { fact } from '../core/facts.ts'
import { SseEvent } from '../core/sse.ts'
import type { Style } from '../core/style.ts'
import { chatError, chatStyle } from './chat.ts'

export const responsesStyle: Style = {
  ...chatStyle,
  name: 'responses',
  endpoint: { serve: 'responses', match: 'POST /v1/responses', schema: 'responses' },
  matches: (path) => /^\/v1\/responses(?:\/|$)/.test(path),
  // Not null where no field is to blame: @ai-sdk/open-responses would show the name of the status for the sentence.
  errorBody: (error, told) => chatError(error, told, ''),
  // The last resort, without the answer so far: responses-to-messages says what a failure is.
  errorEvents: (body) => [new SseEvent('response.failed', '{"type":"response.failed","sequence_number":0,"response":' +
    `{"id":"resp_failed","object":"response","status":"failed","output":[],"usage":null,${body.slice(1, -1)}}}`)],
  conversation: 'input',
  alsoAt: chatStyle,
  outputLimits: ['max_output_tokens'],
  refusesSockets: true
}

/**
 * What an answer needs to know of the words of a client of this style that messages style has not. Written by
 * responses-to-messages.
 */
export interface ResponsesWords {
  /** its tools by the names that they have in the inner language */
  readonly names: ReadonlyMap<string, ToolName>
  /** for an answer in another style */
  readonly answer: AnswerWords
}

export interface ToolName {
  readonly name: string
  readonly namespace?: string
}

/** Those words, for an upstream that has them. Written by responses-to-messages. */
export interface ResponsesOwn {
  /** its tools by the names that they have in the inner language */
  readonly tools: ReadonlyMap<string, DeclaredTool>
  /** fields of the request, as the last item that changes them says */
  readonly reasoning: unknown
  readonly text: unknown
}
export const ResponsesOwn = fact<ResponsesOwn>('responses-own', { isOfBody: true })

export interface AnswerWords {
  /** the answer must be JSON that fits a schema, or nothing */
  readonly hasSchema: boolean
  /** names of tools whose input is text, not JSON */
  readonly customTools: ReadonlySet<string>
  /** a tool of the gateway's own whose input is the answer */
  readonly answerTool: string | undefined
}
export const ResponsesWords = fact<ResponsesWords>('responses-words')

export interface DeclaredTool {
  readonly name: string
  readonly space: ToolSpace | undefined
  /** as the client sent it */
  readonly declared: Json
}

/** A namespace of tools. */
export interface ToolSpace {
  readonly name: string
  readonly description: string
}
