// All scripts by name.
import { guard } from './lua/guard.ts'
import { limits } from './lua/limits.ts'
import { money } from './lua/money.ts'
import { records } from './lua/records.ts'
import { responses } from './lua/responses.ts'
import { rollups } from './lua/rollups.ts'
import { tasks } from './lua/tasks.ts'
import { LuaScript } from './script-call.ts'

const bodies = { ...money, ...limits, ...tasks, ...records, ...responses, ...rollups, ...guard }

export type Script = keyof typeof bodies

/** Number of keys per script; one by default, from which an account's other keys are made. */
const KEYS: Readonly<Partial<Record<Script, number>>> = { change: 3, since: 2 }

/** Every script, as a connection knows it. */
export function luaScripts (): Readonly<Record<Script, LuaScript>> {
  return Object.fromEntries(Object.entries(bodies).map(([name, lua]) =>
    [name, new LuaScript(lua, KEYS[name as Script] ?? 1)])) as Record<Script, LuaScript>
}
