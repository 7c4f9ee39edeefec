// Holds the fast lane's reader of upstreams' answers to Node's parser, by chance. Exit code 1, with the inputs, where
// they differ.
import { parseArgs } from 'node:util'
import { fuzzLane } from './lane-answers.ts'

const { values } = parseArgs({
  options: {
    inputs: { type: 'string', default: '1000000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    number: { type: 'string' },
    help: { type: 'boolean', default: false }
  }
})

if (values.help) {
  console.log(`node test/fuzz/upstream-lane.ts [--inputs N] [--seed S] [--number I]

  --inputs N   how many (1000000)
  --seed S     of all chance: the same seed makes the same inputs (another one each time)
  --number I   only the input of this number`)
  process.exit(0)
}

const seed = Number(values.seed)
const start = performance.now()
const { counts, wrong } = values.number === undefined
  ? fuzzLane(seed, Number(values.inputs), 0, (done) => { console.log(`${done} inputs`) })
  : fuzzLane(seed, 1, Number(values.number))
console.log(`seed ${seed}, ${((performance.now() - start) / 1000).toFixed(0)} s: ` +
  [...counts].map(([outcome, count]) => `${outcome} ${count}`).join(', '))
console.log(wrong.length === 0 ? 'the lane and Node read all of them alike' : wrong.join('\n'))
process.exit(wrong.length === 0 ? 0 : 1)
