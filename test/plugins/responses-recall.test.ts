// N8: what references cost grows with their number, and not with that of the responses they lead to.
import t from 'tap'
import { recall } from '../../plugins/responses-to-messages/state.ts'
import type { KeptResponse, KeptResponses } from '../../src/store/responses.ts'
import { config, exchange, snapshot } from '../support/exchange.ts'

const RESPONSES = 400
const ITEMS = 25
const uniqueOf = (response: number): string => String(response).padStart(24, 'r')
const idOf = (i: number): string => `msg_${uniqueOf(i % RESPONSES)}_${Math.floor(i / RESPONSES) % ITEMS}`

function keptOf (response: number, text: string): KeptResponse {
  const output = Array.from({ length: ITEMS }, (_, item) => ({ type: 'message', role: 'assistant',
    id: `msg_${uniqueOf(response)}_${item}`, content: [{ type: 'output_text', text }] }))
  const [json, input] = [{ output }, []].map((value) => Buffer.from(JSON.stringify(value))) as [Buffer, Buffer]
  return { id: `resp_${uniqueOf(response)}`, created: 0, previous: null, response: json, input }
}

function search (references: number, text = 'x'): { readonly reads: () => number, readonly found: Promise<unknown[]> } {
  const kept = new Map(Array.from({ length: RESPONSES }, (_, i) => [`resp_${uniqueOf(i)}`, keptOf(i, text)]))
  let reads = 0
  const input = Array.from({ length: references }, (_, i) =>
    ({ type: 'item_reference', get id () { reads++; return idOf(i) } }))
  const responses = { find: async (_account: string, id: string) => await Promise.resolve(kept.get(id)),
    take () {}, give () {} } as unknown as KeptResponses
  const found = recall(exchange(snapshot(config())), { input }, { responses, account: 'acme', life: 1 })!
  return { reads: () => reads, found: found.then((recalled) => recalled.input as unknown[]) }
}

t.test('N8: each of 10,000 references to 400 stored responses is looked at a few times', async (t) => {
  const { reads, found } = search(10_000)
  const items = await found as { readonly id: string }[]
  t.equal(items.length, 10_000)
  t.ok(items.every(({ id }, i) => id === idOf(i)))
  t.ok(reads() <= 5 * 10_000, `${reads()} reads`)
})

t.test('N8: more references are refused, and so are more bytes than a conversation may have', async (t) => {
  await t.rejects(search(10_001).found, { row: 'invalid_request', param: 'input',
    message: /has 10001 references to items, .*at most 10000 are allowed/ })
  await t.rejects(search(10_000, 'x'.repeat(3400)).found, { message: /has become too long/ })
})
