// The watch over open video tasks, by itself. From creation to charge: endpoints/videos.test.ts.
import t from 'tap'
import { VideoWatcher, type WatcherOptions } from '../../src/media/video-poller.ts'
import type { Task } from '../../src/store/tasks.ts'

t.test('a record that cannot be read is told, and costs no other task its watch', async (t) => {
  const task: Task = { id: 'video_good', request_id: 'req_1', account: 'acme', key: 'k', created: 0, nanos: 1n,
    is_open: true, text: '{"upstream":"u1","status":"queued","progress":0}' }
  const open = [{ ...task, id: 'video_bad', text: '{"upstream":' }, task]
  const lines: unknown[] = []
  const watcher = new VideoWatcher({
    tasks: { openTasks: () => open, findOpenTask: (id: string) => open.find((one) => one.id === id) },
    log: { info () {}, warn () {}, error: (fields: unknown) => { lines.push(fields) } },
    current: () => ({ config: { videos: { poll_interval: 1000 } } }),
    timer: () => () => {},
    now: () => 0
  } as unknown as WatcherOptions)
  watcher.start()
  t.equal(watcher.size, 1)
  t.match(lines, [{ task: 'video_bad', request_id: 'req_1', err: SyntaxError }])
  watcher.watch('video_bad')
  t.equal(watcher.size, 1)
  await watcher.close()
})
