// A few hundred inputs of each kind of the fuzz: enough that each comes to all that it can.
import t from 'tap'
import { fuzzRun, SEED } from '../support/fuzz-run.ts'

const COUNT = 200

void t.test(`nothing that is sent, answered or configured does harm, seed ${SEED}`, async (t) => {
  const counts = await fuzzRun(t, COUNT)
  for (const [name, what] of [['forms', '200'], ['forms', '400'], ['bodies', '200'], ['bodies', '400'], ['heads',
    '400'], ['upstreams', '200'], ['upstreams', '200 stream'], ['upstreams', '502'], ['admin', '200'], ['admin', '400'],
    ['yaml', 'refused'], ['reloads', 'refused']] as const) {
    t.ok((counts.get(name)!.get(what) ?? 0) > 0, `${name}: some are ${what}`)
  }
})
