// Loaded into every contender before its own code: answers what the bench asks over standard input (test/bench/
// questions.ts), and ends the process when the benchmark is gone, however that died.
import { isMainThread } from 'node:worker_threads'
import { answerQuestions } from './questions.ts'

// A worker of the gateway ends with its primary, and has no standard input.
if (isMainThread && process.env['GATEWAY_WORKER'] === undefined) {
  const { BENCH_ANSWERS: file } = process.env
  process.stdin.on('end', () => process.exit(1)).on('error', () => process.exit(1))
  if (file === undefined) process.stdin.resume()
  else answerQuestions(file)
  process.stdin.unref()    // a contender that has nothing left to do shall end as it would alone
}
