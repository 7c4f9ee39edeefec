// The table by ids is a Map, whatever the ids are and in whichever order they come and go.
import fc from 'fast-check'
import t from 'tap'
import { hashOfId, IdTable } from '../../src/base/id-table.ts'

// Ids whose hashes meet: at the last place, whose next one is the first, and in a row.
const meeting = Array.from({ length: 200_000 }, (_, i) => `${i}`).filter((id) => (hashOfId(id) & 1023) >= 1021)
const ids = fc.oneof(fc.constantFrom(...meeting.slice(0, 60)), fc.constantFrom('', 'a', 'b', 'é', 'req_0'), fc.string())
const steps = fc.array(fc.tuple(fc.constantFrom('set', 'set', 'set', 'delete', 'get'), ids), { maxLength: 200 })

t.test('it holds what a Map holds', (t) => {
  fc.assert(fc.property(steps, (all) => {
    const table = new IdTable<number>()
    const map = new Map<string, number>()
    for (const [i, [step, id]] of all.entries()) {
      if (step === 'set') { table.set(id, i); map.set(id, i) }
      if (step === 'delete') {
        t.equal(table.delete(id), map.get(id))
        map.delete(id)
      }
      t.equal(table.get(id), map.get(id))
      t.equal(table.has(id), map.has(id))
      t.equal(table.size, map.size)
    }
    t.ok([...map].every(([id, value]) => table.get(id) === value), 'all that is left is found')
  }), { numRuns: 1000 })
  t.end()
})

t.test('many come, and go in another order', (t) => {
  const table = new IdTable<number>()
  const all = Array.from({ length: 20_000 }, (_, i) => `req_${(i * 7919 % 20_011).toString(36).padStart(9, '0')}`)
  for (const [i, id] of all.entries()) table.set(id, i)
  t.equal(table.size, all.length)
  t.ok(all.every((id, i) => table.get(id) === i))
  const [gone, left] = [all.filter((_, i) => i % 3 !== 0).toReversed(), all.filter((_, i) => i % 3 === 0)]
  t.ok(gone.every((id) => table.delete(id) !== undefined))
  t.ok(gone.every((id) => !table.has(id)) && left.every((id, i) => table.get(id) === 3 * i))
  t.equal(table.size, left.length)
  t.end()
})

t.test('ids of requests are spread', (t) => {
  const places = new Set(Array.from({ length: 1024 }, (_, i) => hashOfId(`req_8DrDs4uwi${i}`) & 4095))
  t.ok(places.size > 800, `${places.size} places of 1024 ids`)
  t.end()
})
