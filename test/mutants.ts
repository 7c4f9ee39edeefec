// Changes one thing in a file about money, and runs the tests of its room: they must notice. Each change that no test
// notices is printed with its place; those that change nothing that anybody could see are in mutants/equivalent.ts,
// each with its reason.
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { tryMutants } from './mutants/run.ts'
import { rooms } from './mutants/rooms.ts'

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '150' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string', multiple: true },
    at: { type: 'string', multiple: true },
    jobs: { type: 'string', default: String(availableParallelism()) },
    help: { type: 'boolean', default: false }
  }
})

if (values.help) {
  console.log(`node test/mutants.ts [--count N] [--seed S] [--only ROOM]… [--at FILE:LINE]… [--jobs J]

  --count N        how many changes, spread over the rooms (150)
  --seed S         which (1): the same seed chooses the same, also after an edit of other lines
  --only ROOM      ${rooms.map(({ name }) => name).join(', ')}; more than once (all)
  --at FILE:LINE   all changes of this line alone; more than once
  --jobs J         how many at a time (one for each processor)

Exit code 1 where less than 95 of 100 are noticed.`)
  process.exit(0)
}

const chosen = rooms.filter(({ name }) => values.only === undefined || values.only.includes(name))
const { noticed, survivors } = await tryMutants(chosen, {
  count: Number(values.count),
  seed: Number(values.seed),
  jobs: Number(values.jobs),
  ...(values.at !== undefined && { at: values.at })
}, (line) => {
  console.log(line)
})

const all = noticed + survivors.length
console.log(`\n${noticed} of ${all} changes were noticed.`)
for (const survivor of survivors) console.log(`not noticed: ${survivor}`)
process.exit(all > 0 && noticed >= 0.95 * all ? 0 : 1)
