// How upstreams fare as several processes see it: what GET /admin/v1/upstreams tells of a gateway with workers.
import t from 'tap'
import { mergedView } from '../../src/upstream/limits/status.ts'

t.test('what is counted is added up; the worst breaker and the longest wait count', async (t) => {
  const target = { upstream: 'u', model: 'm', breaker: 'closed', running: 1, ended: 10, failed: 1, wait: 0 } as const
  const credential = { upstream: 'u', id: 'a', running: 2, state: 'healthy', wait: 0 } as const
  const unpaid = { ...credential, state: 'cooling_down', reason: 'no_money', wait: 70 } as const
  const merged = mergedView([
    { targets: [target, { ...target, model: 'n' }], credentials: [credential],
      queues: [{ upstream: 'u', running: 3, waiting: 2 }] },
    { targets: [{ ...target, breaker: 'open', failed: 5, wait: 900 }],
      credentials: [unpaid, { ...credential, id: 'b' }],
      queues: [{ upstream: 'v', running: 1, waiting: 0 }, { upstream: 'u', running: 3, waiting: 40 }] },
    { targets: [{ ...target, breaker: 'half_open', running: 0 }], credentials: [], queues: [] }
  ])
  t.strictSame(merged, {
    targets: [{ ...target, breaker: 'open', running: 2, ended: 30, failed: 7, wait: 900 }, { ...target, model: 'n' }],
    credentials: [{ ...unpaid, running: 4 }, { ...credential, id: 'b' }],
    queues: [{ upstream: 'u', running: 6, waiting: 42 }, { upstream: 'v', running: 1, waiting: 0 }]
  })
})
