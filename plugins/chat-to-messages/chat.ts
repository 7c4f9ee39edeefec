// The requested shape of the answer.

/** What messages style does not carry. */
export interface AnswerShape {
  readonly hasUsageChunk: boolean
  /** true: the SDKs parse any content, and throw: it must be the answer, or nothing */
  readonly hasSchema: boolean
  /** names of tools whose input is text, not JSON */
  readonly customTools: ReadonlySet<string>
  /** a tool of the gateway's own whose input is the answer: the model has no structured outputs */
  readonly answerTool: string | undefined
}

/** Whether the call of this tool is the answer. */
export function isAnswer (name: unknown, { answerTool }: AnswerShape): boolean {
  return answerTool !== undefined && name === answerTool
}
