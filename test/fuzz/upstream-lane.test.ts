// The fast lane's reader against Node's parser, short: `node test/fuzz/upstream-lane.ts --inputs 10000000` is longer.
import t from 'tap'
import { fuzzLane, judge, outcomes } from './lane-answers.ts'

t.test('whatever the lane reads, Node reads in the same way', async (t) => {
  const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000)
  const { counts, wrong } = fuzzLane(seed, 40_000)
  t.strictSame(wrong, [], `seed ${seed}`)
  for (const outcome of outcomes) t.ok(counts.get(outcome)! > 200, `${outcome}: ${counts.get(outcome)}`)
})

t.test('answers that are cut at each byte are read alike', async (t) => {
  const head = 'HTTP/1.1 200 OK\r\nx-a: b\r\n'
  for (const answer of [`${head}content-length: 5\r\n\r\nhello`,
    `${head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n0123456789\r\n1\r\n!\r\n0\r\n\r\n`,
    `${head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA;a=b\r\n0123456789\r\n0\r\nx-a: b\r\n\r\n`,
    `${head}transfer-encoding: chunked\r\n\r\n5\r\nhello\nA\r\n0123456789\r\n0\r\n\r\n`]) {
    const bytes = Buffer.from(answer)
    for (let at = 0; at <= bytes.length; at++) for (let to = at; to <= bytes.length; to++) {
      const told = judge([bytes.subarray(0, at), bytes.subarray(at, to), bytes.subarray(to)]
        .filter((piece) => piece.length > 0))
      if (typeof told !== 'string') t.fail(`${JSON.stringify(answer)} ${at} ${to}: ${told.wrong}`)
    }
    t.pass(JSON.stringify(answer))
  }
})
