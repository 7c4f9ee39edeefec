// What count_tokens estimates where no provider counts: right for every kind of content, and no burden to anybody else.
import t from 'tap'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { counted, tokensOf as text } from '../support/tokens.ts'

const hello = { model: 'm1', messages: [{ role: 'user', content: 'Hello there' }] }

const gw = await gateway(t, yaml(['http://127.0.0.1:9']).replace('store:', 'hook_timeout: 2m\nstore:'))

interface Count { readonly status: number, readonly tokens: number, readonly by: string | null }

async function count (body: unknown, { url } = gw): Promise<Count> {
  const response = await fetch(url + '/v1/messages/count_tokens', { method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': KEY },
    body: typeof body === 'string' ? body : JSON.stringify(body) })
  const { input_tokens: tokens = NaN } = await response.json() as { input_tokens?: number }
  return { status: response.status, tokens, by: response.headers.get('x-gateway-count') }
}

void t.test('an estimate is that of what the model reads, and allowances for what is no text', async (t) => {
  const user = (...content: readonly unknown[]): unknown => ({ model: 'm1', messages: [{ role: 'user', content }] })
  const schema = { type: 'object', properties: { city: { type: 'string', minLength: 2 } }, required: ['city'] }
  const schemaText = 'type:object,properties:city:type:string,minLength:2,required:city,'
  const pdf = (bytes: number): unknown => ({
    type: 'document',
    source: { type: 'base64', media_type: 'application/pdf', data: 'A'.repeat(bytes) }
  })
  const cases: Readonly<Record<string, readonly [unknown, number]>> = {
    'text': [hello, 6 + text('Hello there\n')],
    'blocks are read like strings': [user({ type: 'text', text: 'Hello there', cache_control: { type: 'ephemeral' } }),
      6 + text('Hello there\n')],
    'system, and each turn': [
      { model: 'm1', max_tokens: 5, system: [{ type: 'text', text: 'Be brief' }],
        messages: [{ role: 'user', content: 'A' }, { role: 'assistant', content: 'B' }, { role: 'user',
          content: 'C' }] },
      3 + 3 * 3 + text('Be brief\nA\nB\nC\n')
    ],
    'an image by url': [
      user({ type: 'image', source: { type: 'url', url: 'https://example.com/a-long-name-that-is-no-text.png' } }),
      6 + 1600
    ],
    'an image in the body': [
      user({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'A'.repeat(200_000) } }),
      6 + 1600
    ],
    'a document, by its size': [user(pdf(1000)), 6 + 2000],
    'a large document, that stayed bytes': [user(pdf(3 * 65_536)), 6 + 3 * 2000],
    'a document of text': [
      user({ type: 'document', title: 'T', source: { type: 'text', media_type: 'text/plain', data: 'Hello there' } }),
      6 + text('T\nHello there\n')
    ],
    'a document of blocks': [
      user({ type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'Hello there' }] } }),
      6 + text('Hello there\n')
    ],
    'thoughts, not their signature': [{ model: 'm1',
      messages: [{ role: 'assistant',
        content: [{ type: 'thinking', thinking: 'Hello there', signature: 's'.repeat(5000) }, {
          type: 'redacted_thinking',
          data: 'r'.repeat(5000)
        }] }] }, 6 + text('Hello there\n')],
    'a call and its result': [
      { model: 'm1',
        messages: [{ role: 'assistant',
          content: [{ type: 'tool_use', id: 'toolu_1', name: 'weather',
            input: { city: 'Oslo', days: [1, true, null] } }] }, { role: 'user',
          content: [{ type: 'tool_result', tool_use_id: 'toolu_1',
            content: [{ type: 'text', text: 'Rain' }, { type: 'image',
              source: { type: 'url', url: 'https://x' } }] }] }] },
      9 + 1600 + text('weather\ncity:Oslo,days:1,true,null,Rain\n')
    ],
    'tools': [{ ...hello, tools: [{ name: 'weather', input_schema: schema }] },
      6 + 346 + text(`name:weather,input_schema:${schemaText}Hello there\n`)],
    'a tool that the vendor describes': [{ ...hello, tools: [{ type: 'bash_20250124', name: 'bash' }] },
      6 + 346 + 500 + text('type:bash_20250124,name:bash,Hello there\n')],
    'the schema of the answer': [{ ...hello,
      output_config: { effort: 'low', format: { type: 'json_schema', schema } } },
      6 + text(`type:json_schema,schema:${schemaText}Hello there\n`)],
    'nonsense that nobody has checked': [{ model: 'm1', system: 7, tools: 'x',
      messages: [null, 'x', { content: { type: 'text', text: 'x' } }, {
        content: [null, 'x', { type: 'text' }, { type: 'document' }, { __proto__: 1 }]
      }] }, 9 + 2000],
    'no message': [{ model: 'm1', messages: [] }, 3]
  }
  for (const [name, [body, expected]] of Object.entries(cases)) {
    t.match(await count(body), { status: 200, tokens: expected, by: 'estimated' }, name)
  }
  t.equal((await count('{"model":"m1","messages":[{"content":[{"type":"x","__proto__":{"a":"b"}}]}]}')).tokens,
    6 + text('type:x,__proto__:a:b,'), 'a name is a name')
})

void t.test('text is estimated as the model was seen to count it', async (t) => {
  const prose = 'The quick brown fox jumps over the lazy dog. '.repeat(40)
  const own = await gateway(t, yaml(['http://127.0.0.1:9']))
  const asked = { model: 'm1', messages: [{ role: 'user', content: prose }] }
  t.equal((await count(asked, own)).tokens, 6 + text(prose))
  for (let i = 0; i < 100; i++) {
    own.services.tokenRates.learn({ upstream: 'u0', model: 'vendor-m1' }, counted(prose), text(prose) * 2)
  }
  const { tokens } = await count(asked, own)
  t.ok(Math.abs(tokens / (6 + text(prose) * 2) - 1) < 0.02, `${tokens}, of ${text(prose)} at first`)
})

void t.test('a large body gives others their turns, whatever it is made of', async (t) => {
  // A million values in two megabytes: to receive them takes some 100 turns of the loop, to look at them one for each
  // 2,000.
  const values = `{"model":"m1","messages":[{"content":[{"type":"tool_use","input":[${'1,'.repeat(900_000)}1]}]}]}`
  const images = `{"model":"m1","messages":[{"content":[${'{"type":"image"},'.repeat(400_000)}{}]}]}`
  const prose = JSON.stringify({ model: 'm1', messages: [{ content: 'lynx'.repeat(1_250_000) }] })
  for (const [body, tokens] of [[values, 6 + text('1,'.repeat(900_001))], [images, 6 + 400_000 * 1600], [prose,
    6 + text('lynx'.repeat(1_250_000) + '\n')]] as const) {
    let turns = 0
    let isOver = false
    const turn = (): void => { turns++; if (!isOver) setImmediate(turn) }
    setImmediate(turn)
    t.equal((await count(body)).tokens, tokens)
    isOver = true
    t.ok(turns > 190, String(turns))
  }
  const deep = `{"model":"m1","messages":[{"role":"assistant","content":[{"type":"tool_use","name":"n","input":${'['.repeat(55)}"x"${']'.repeat(55)}}]}]}`
  t.equal((await count(deep)).tokens, 6 + text('n\nx,'))
})
