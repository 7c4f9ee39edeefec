// Ids of requests, and ids of something else that lead to them.
import t from 'tap'
import { createRequestId, isRequestId, likeRequestId, timeOfRequestId } from '../../src/base/request-id.ts'

t.test('ids grow, and say when they were made', (t) => {
  const before = Date.now() * 1000
  const ids = Array.from({ length: 5000 }, createRequestId)
  t.ok(ids.every(isRequestId))
  t.ok(ids.every((id, i) => i === 0 || id > ids[i - 1]!))
  t.ok(timeOfRequestId(ids[0]!)! >= before && timeOfRequestId(ids[0]!)! <= Date.now() * 1000)
  t.end()
})

t.test('an id that leads to a request has its characters behind another prefix', (t) => {
  t.equal(likeRequestId('chatcmpl-', 'req_8DrDs4uwiy2Kbv8sFccQeaZZ'), 'chatcmpl-8DrDs4uwiy2Kbv8sFccQeaZZ')
  t.equal(likeRequestId('chatcmpl-', 'r1'), 'chatcmpl-r1')
  t.equal(likeRequestId('c-', `req_${'x'.repeat(100)}`), `c-${'x'.repeat(100)}`)
  t.end()
})
