// Inputs of chance for the reader of the fast lane, compared with node's own parser. Exit code 1 where the reader takes
// what node refuses, or reads it in another way.
import { parseArgs } from 'node:util'
import { LaneFuzz } from './lane-fuzz.ts'

const { values } = parseArgs({
  options: {
    inputs: { type: 'string', default: '1000000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) }
  }
})
const begin = performance.now()
const { inputs, taken, wrong } = new LaneFuzz(Number(values.seed), (line) => { console.log(line) })
  .run(Number(values.inputs))
const seconds = (performance.now() - begin) / 1000
console.log(`seed ${values.seed}: ${inputs} inputs, ${taken} taken by the lane, ${wrong.length} of them wrong, ` +
  `${seconds.toFixed(0)} s`)
process.exit(wrong.length === 0 ? 0 : 1)
