// A plugin that fills the memory of the thread that checks the configuration: a gigabyte.
import { join } from 'node:path'
import t from 'tap'
import { loadConfig } from '../../src/config/load/load.ts'
import { pluginsUrl, print } from '../fixtures/config/mistakes.ts'

t.test('a plugin that takes all memory ends only the check', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': 'pipeline:\n  - auth\n  - use: ./mine.ts\n',
    'mine.ts': 'const all: unknown[] = []\nfor (;;) all.push(new Array(1e6).fill({}))\n'
  })
  // a busy machine is slow to give what it takes
  const result = await loadConfig(join(folder, 'gateway.yaml'), { pluginsUrl, env: {}, timer: () => () => {} })
  t.match(print(result as never, folder), [/^gateway\.yaml:1:1 the thread that checks it died: .*memory/])
})
