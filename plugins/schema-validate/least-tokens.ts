// A lower bound of a prompt's tokens, without a tokenizer, which a client could use for a denial of service.
import type { Turn } from './requests.ts'

/**
 * Word beginnings (a space, and then something visible) per token. No token of the known vocabularies holds two of
 * them: all 432,000 tokens of r50k, p50k, cl100k and o200k were checked. Two, nevertheless: there is research on tokens
 * of several words, and it saves a third of the tokens, not the half.
 */
const WORDS_PER_TOKEN = 2
/** The longest token of these vocabularies is 128 spaces. A character is at least a byte. */
const CHARACTERS_PER_TOKEN = 128
/** Spaces that are read, in multiples of what fills the context: it bounds the time, whatever the prompt. */
const ENOUGH = 2

/** Roles whose text reaches every model whole: a vendor may let a system message among the others expire. */
const ROLES: ReadonlySet<string> = new Set(['user', 'assistant', 'tool'])

/** Types of texts: blocks of the messages style, parts of the chat style and of the responses style. */
const TEXTS: ReadonlySet<unknown> = new Set(['text', 'input_text', 'output_text'])

/** A lower bound: text that may not reach the model is not counted. */
export function leastTokens (turns: readonly Turn[], context: number): number {
  const count = new WordCount(ENOUGH * WORDS_PER_TOKEN * context)
  for (const { role, content, output } of turns) {
    if (role !== undefined && ROLES.has(role)) count.addContent(content)
    else if (output !== undefined) count.addContent(output)
  }
  return Math.max(Math.ceil(count.words / WORDS_PER_TOKEN), Math.ceil(count.characters / CHARACTERS_PER_TOKEN))
}

class WordCount {
  words = 0
  characters = 0
  #spacesLeft: number

  /** @param spaces most that are read */
  constructor (spaces: number) {
    this.#spacesLeft = spaces
  }

  addContent (content: unknown): void {
    if (typeof content === 'string') this.#addText(content)
    if (!Array.isArray(content)) return
    for (const block of content as readonly { readonly type?: unknown, readonly text?: unknown,
      readonly content?: unknown }[]) {
      if (TEXTS.has(block?.type) && typeof block.text === 'string') this.#addText(block.text)
      else if (block?.type === 'tool_result') this.addContent(block.content)
    }
  }

  #addText (text: string): void {
    this.characters += text.length
    // From space to space: a million take 8 ms, and megabytes without any nearly nothing (measured).
    for (let i = text.indexOf(' '); i !== -1 && this.#spacesLeft > 0; i = text.indexOf(' ', i + 1)) {
      this.#spacesLeft--
      if (isVisible(text.charCodeAt(i + 1))) this.words++     // NaN at the end of the text is not
    }
  }
}

/** Whether a character is certainly visible. White space of any kind is not: there are tokens of nothing else. */
function isVisible (code: number): boolean {
  return (code > 32 && code < 127) || (code >= 0xc0 && code < 0x1680) || (code > 0x3000 && code < 0xd800)
}
