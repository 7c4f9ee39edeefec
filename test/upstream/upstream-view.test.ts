// How upstreams fare as several processes see it: what GET /admin/v1/upstreams tells of a gateway with workers.
import t from 'tap'
import { mergedView } from '../../src/upstream/limits/status.ts'

t.test('what is counted is added up; the worst breaker and the longest wait count', async (t) => {
  const target = { upstream: 'u', model: 'm', breaker: 'closed', running: 1, ended: 10, failed: 1, wait: 0 } as const
  const credential = { upstream: 'u', id: 'a', running: 2, wait: 0 }
  const merged = mergedView([
    { targets: [target, { ...target, model: 'n' }], credentials: [credential] },
    { targets: [{ ...target, breaker: 'open', failed: 5, wait: 900 }],
      credentials: [{ ...credential, wait: 70 }, { ...credential, id: 'b' }] },
    { targets: [{ ...target, breaker: 'half_open', running: 0 }], credentials: [] }
  ])
  t.strictSame(merged, {
    targets: [{ ...target, breaker: 'open', running: 2, ended: 30, failed: 7, wait: 900 }, { ...target, model: 'n' }],
    credentials: [{ ...credential, running: 4, wait: 70 }, { ...credential, id: 'b' }]
  })
})
