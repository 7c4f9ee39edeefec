// A count that begins after its client was told an error: it has no body any more, and takes no other's.
import { createServer } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { listening } from '../support/transport.ts'

const SLOW = (name: string): string => `
export default { name: '${name}', create: () => ({
  perAttempt: () => ({ async onUpstreamRequest () { await new Promise((resolve) => setTimeout(resolve, 700)) } })
}) }
`

t.test('plugins that together take longer than an endpoint may', async (t) => {
  const bodies: string[] = []
  const server = createServer((req, res) => {
    let body = ''
    req.on('data', (chunk: Buffer) => { body += chunk.toString() }).on('end', () => {
      bodies.push(body)
      res.end('{"input_tokens":5}')
    })
  })
  const port = await listening(t, server)
  const gw = await gateway(t, yaml([`http://127.0.0.1:${port}`], 'hook_timeout: 1s\n')
    .replace('dialect: messages,', 'dialect: messages, count_tokens: true,')
    .replace('pipeline: [auth,', 'pipeline: [auth, { use: ./slow.ts }, { use: ./late.ts },'),
  { files: { 'slow.ts': SLOW('slow'), 'late.ts': SLOW('late') } })
  const ask = async (letter: string, model: string): Promise<number> => {
    const answer = await fetch(`${gw.url}/v1/messages/count_tokens`, { method: 'POST',
      headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages: [{ role: 'user', content: [
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: letter.repeat(1_000_000) } }] }] }) })
    await answer.text()
    return answer.status
  }
  t.equal(await ask('A', 'm1'), 500)
  await ask('B', 'none')
  await setTimeout(2000)
  t.notOk(bodies.some((body) => body.includes('BBBB')), `${bodies.length} bodies`)
})
