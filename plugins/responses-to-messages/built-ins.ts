// Tools that the API itself describes and the client runs: a shell, patches, a search for tools. The model gets each
// as a function whose input has the fields of the item that the client gets.
import { isRecord, type Json } from '../../src/base/json.ts'
import { functionTool } from '../../src/translation/tools.ts'

type BuiltIn = 'local_shell' | 'shell' | 'apply_patch' | 'tool_search'

const NOTHING: Json = Object.freeze({})
const TEXTS: Json = { type: 'array', items: { type: 'string' } }

/** By their types, which are their names too. */
export const builtIns: Readonly<Record<BuiltIn, (tool: Json, path: string) => Json>> = {
  local_shell: () =>
    made('local_shell', 'Runs a command on the user\'s computer, and returns its output.', {
      command: { ...TEXTS, description: 'The program and its arguments, such as ["bash", "-lc", "ls"].' },
      working_directory: { type: 'string', description: 'Where it runs.' },
      timeout_ms: { type: 'integer', description: 'Milliseconds after which it is ended.' },
      env: { type: 'object', additionalProperties: { type: 'string' }, description: 'Its environment variables.' },
      user: { type: 'string', description: 'As whom it runs.' }
    }, ['command']),
  shell: () =>
    made('shell', 'Runs commands in a shell on the user\'s computer, and returns what each of them prints.', {
      commands: { ...TEXTS, description: 'The command lines.' },
      timeout_ms: { type: 'integer', description: 'Milliseconds after which they are ended.' },
      max_output_length: { type: 'integer', description: 'Characters of their output that are returned at most.' }
    }, ['commands']),
  apply_patch: () =>
    made('apply_patch', 'Creates, changes or deletes one file on the user\'s computer.', {
      type: { type: 'string', enum: ['create_file', 'update_file', 'delete_file'] },
      path: { type: 'string', description: 'The path of the file.' },
      diff: { type: 'string',
        description: 'To create a file: its lines, each behind a "+". To change one: hunks, each behind a line that ' +
          'begins with "@@", of lines that begin with " ", "-" or "+". To delete one: left out.' }
    }, ['type', 'path']),
  tool_search: ({ description, parameters }, path) => functionTool({ name: 'tool_search', description, parameters }, path, NOTHING)
}

function made (name: string, description: string, properties: Json, required: readonly string[]): Json {
  return { name, description, input_schema: { type: 'object', properties, required, additionalProperties: false } }
}

export function isBuiltIn (type: string): type is BuiltIn {
  return Object.hasOwn(builtIns, type)
}

/** Whether the client runs it, and not the vendor. */
export function isHere ({ type, execution, environment }: Json): boolean {
  if (type === 'tool_search') return execution === 'client'
  return type !== 'shell' || !isRecord(environment) || environment.type === 'local'
}
