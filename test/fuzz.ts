// Inputs of chance for a gateway that runs: forms, bodies, heads, what upstreams say, what administrators send, and
// configurations. Exit code 1, with the seed and the file of the input, where the process ends, somebody gets a 500 or
// no answer, a hold stays open, or the ledger is not the sum of its entries.
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { fuzz } from './fuzz/fuzz.ts'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '1' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    only: { type: 'string', multiple: true },
    number: { type: 'string' },
    help: { type: 'boolean', default: false }
  }
})

if (values.help) {
  console.log(`node test/fuzz.ts [--minutes N] [--seed S] [--only KIND]… [--number I]

  --minutes N   how long (1)
  --seed S      of all chance: the same seed makes the same inputs (another one each time)
  --only KIND   forms, bodies, heads, upstreams, habits, stalls, kept, admin, yaml or reloads; more than once (all)
  --number I    only the input of this number, of each kind

The run prints the longest stall of the gateway's event loop. Inputs that ran during a stall of more than 100 ms are
saved as SEED-stall-…; with --number, where nothing else runs, such a stall is an error.`)
  process.exit(0)
}

const seed = Number(values.seed)
const folder = join(tmpdir(), `gateway-fuzz-found-${seed}`)
console.log(`seed ${seed}; inputs that do wrong are saved in ${folder}`)
const { counts, wrong } = await fuzz({
  seed,
  folder,
  stalls: folder,
  ...(values.number === undefined
    ? { ms: Number(values.minutes) * 60_000 }
    : { from: Number(values.number), count: 1 }),
  ...(values.only !== undefined && { only: values.only }),
  say: (line) => { console.log(line) }
})
for (const [kind, each] of counts) console.log(
  `${kind}: ${[...each.values()].reduce((sum, one) => sum + one, 0)} (${[...each].map(([what, count]) => `${what}: ${count}`).join(', ')})`
)
if (wrong.length === 0) console.log(
  `seed ${seed}: nothing went wrong: no crash, no 500, no hold is open, the ledger is right`
)
else console.log(`\n${wrong.length} went wrong:\n${wrong.join('\n')}`)
process.exit(wrong.length === 0 ? 0 : 1)
