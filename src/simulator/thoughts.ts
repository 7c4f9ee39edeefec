// Where thoughts must be in a conversation, and where they may not be: checked as the vendor does, and refused in its
// words.
import { isObject, VendorError } from './dialect.ts'
import { blocksOf, type Block, type Message, type MessagesBody } from './messages-body.ts'

/** @throws {VendorError} */
export function checkThoughts (body: MessagesBody): void {
  const { messages, thinking } = body
  for (const [index, message] of messages.entries()) {
    const blocks = message.role === 'assistant' ? blocksOf(message) : []
    if (blocks.some(isThought) && !isThought(blocks[0])) {
      refuse(`messages.${index}.content.0.type: If an \`assistant\` message contains any thinking blocks, the first ` +
        `block must be \`thinking\` or \`redacted_thinking\`. Found \`${blocks[0]!.type}\`.`)
    }
  }
  const own = answersSinceQuestion(messages)
  const [first, last] = [own.at(0), own.at(-1)]
  if (thinking?.type === 'enabled' && first !== undefined) {
    const [block] = blocksOf(messages[first]!)
    if (!isThought(block)) {
      refuse(`messages.${first}.content.0.type: Expected \`thinking\` or \`redacted_thinking\`, but found ` +
        `\`${block?.type}\`. When \`thinking\` is enabled, a final \`assistant\` message must start with a thinking ` +
        'block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, ' +
        'disable `thinking`.')
    }
  }
  // Without the field some models think, others do not: the model is not known here.
  if (thinking?.type === 'disabled' && last !== undefined) {
    const at = blocksOf(messages[last]!).findIndex(isThought)
    if (at !== -1) {
      refuse(`messages.${last}.content.${at}: When thinking is disabled, an \`assistant\` message in the final ` +
        'position cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request.')
    }
  }
  if (thinking === undefined || thinking.type === 'disabled') checkClearing(body)
}

/** Indexes of the model's turns behind the last turn of the user that is not only results of tools. */
function answersSinceQuestion (messages: readonly Message[]): readonly number[] {
  const question = messages.findLastIndex((message) =>
    message.role === 'user' && !blocksOf(message).some(({ type }) => type === 'tool_result')
  )
  return [...messages.keys()].filter((i) => i > question && messages[i]!.role === 'assistant')
}

function checkClearing ({ context_management: management }: MessagesBody): void {
  const edits: unknown = isObject(management) ? management['edits'] : undefined
  if (!Array.isArray(edits)) return
  const clearing = edits.find((edit) => isObject(edit) && String(edit['type']).startsWith('clear_thinking_'))
  if (!isObject(clearing)) return
  refuse(`\`${String(clearing['type'])}\` strategy requires \`thinking\` to be enabled or adaptive`)
}

function isThought (block: Block | undefined): boolean {
  return block?.type === 'thinking' || block?.type === 'redacted_thinking'
}

function refuse (message: string): never {
  throw new VendorError(400, message)
}
