// Requests that go on from kept responses or name their items: of long chains, of wide responses, and of what names
// others again.
import { type Arena, KEY } from './arena.ts'
import type { Chance } from './chance.ts'
import { request, type Input } from './request.ts'

/** Responses, each of which goes on from the one before. */
const CHAIN = 100
/** Responses with many items; each names all items of the one before too. */
const WIDE = 8
const ITEMS = 1000
const ALL = CHAIN + WIDE

const JSON_TYPE = { 'content-type': 'application/json' }

/** What stands in an input for the own part of the id of a response of the arena: it is as long. */
function standIn (index: number): string {
  return `KEPT${String(index).padStart(20, '0')}`
}

/** Requests that name responses by what stands for their ids. */
export function keptOf (chance: Chance): Input {
  const one = (): string => chance.mostly(0.98, standIn(chance.below(ALL)), ['0'.repeat(24), '', standIn(ALL)])
  // One wrong item is enough for a refusal.
  const isRight = chance.is(0.7)
  const item = (): object => {
    const right = { type: 'item_reference',
      id: `msg_${standIn(CHAIN + chance.below(WIDE))}_i${chance.below(ITEMS)}` }
    return isRight ? right : chance.mostly<object>(0.9, right, [{ type: 'item_reference', id: `msg_${one()}_i0` },
      { type: 'item_reference', id: `fc_${standIn(CHAIN + 1)}_i${chance.below(2 * ITEMS)}` }, { id: 'x' }])
  }
  const line = chance.mostly(0.9, 'POST /v1/responses', [`GET /v1/responses/resp_${one()}`,
    `GET /v1/responses/resp_${one()}/input_items?limit=${chance.below(200)}`, 'POST /v1/responses/input_tokens'])
  if (line.startsWith('GET')) return { send: [request(line, {})] }
  const items = chance.times(chance.is(0.5) ? 1 : 2 ** chance.between(1, 14), item)
  return { send: [request(line, JSON_TYPE, JSON.stringify({
    model: chance.of(['good-text', 'good-chat', 'good-responses']),
    max_output_tokens: 5,
    store: chance.is(0.1),
    stream: chance.is(0.5),
    ...(chance.is(0.6) && { previous_response_id: `resp_${one()}` }),
    input: [{ role: 'user', content: 'x' }, ...items]
  }))] }
}

/** By arena: the own parts of the ids of its kept responses. */
const made = new WeakMap<Arena, Promise<readonly string[]>>()

/** With the ids of the arena's own responses, which are kept at the first call. */
export async function withIds ({ send }: Input, arena: Arena): Promise<Input> {
  let ids = made.get(arena)
  if (ids === undefined) made.set(arena, ids = keep(arena))
  const all = await ids
  return { send: send.map((piece) => Buffer.from(piece.toString('latin1').replace(/KEPT(\d{20})/g, (text, index) =>
    all[Number(index)] ?? text), 'latin1')) }
}

async function keep ({ api }: Arena): Promise<readonly string[]> {
  const ids: string[] = []
  const ask = async (body: object): Promise<void> => {
    const response = await fetch(`${api}/v1/responses`, { method: 'POST',
      headers: { ...JSON_TYPE, authorization: `Bearer ${KEY}` },
      body: JSON.stringify({ model: 'good-text', max_output_tokens: 5, ...body }) })
    const { id } = await response.json() as { readonly id?: string }
    if (id === undefined) throw new Error(`no response is kept: ${response.status}`)
    ids.push(id.slice('resp_'.length))
  }
  for (let i = 0; i < CHAIN; i++) {
    await ask({ input: 'x', ...(i > 0 && { previous_response_id: `resp_${ids[i - 1]!}` }) })
  }
  for (let i = 0; i < WIDE; i++) {
    const own = Array.from({ length: ITEMS }, () => ({ type: 'message', role: 'user', content: 'x' }))
    await ask({ input: i === 0 ? own : [...own, ...own.map((_, at) =>
      ({ type: 'item_reference', id: `msg_${ids.at(-1)!}_i${at}` }))] })
  }
  return ids
}
