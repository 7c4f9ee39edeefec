// Images behind links of an upstream: fetched where they may be, and never from an address that is not public, however
// it is spelled (rule no-fetch).
import type { lookup, LookupAddress } from 'node:dns'
import t, { type Test } from 'tap'
import { fetchImage } from '../../src/media/fetch-image.ts'
import { guardedLookup } from '../../src/upstream/transport/public-link.ts'
import { isPublicAddress } from '../../src/base/public-address.ts'
import { picture } from '../../src/simulator/picture.ts'
import { ask, imageGateway } from '../support/image-gateway.ts'
import { raw as send, status, step, upstream } from '../support/upstream.ts'

const png = picture('a cat')

t.test('links of an upstream that are mirrored', async (t) => {
  const { gw, premium } = await imageGateway(t, { options: ', links: mirror' })
  const { status: code, body } = await ask(gw, { model: 'nano', prompt: '[[sim: links]] a cat', n: 3 })
  t.equal(code, 200)
  for (const { url } of body.data!) {
    t.equal(new URL(url!).origin, gw.urls.public)
    t.equal((await fetch(url!)).headers.get('content-type'), 'image/png')
  }
  const fetched = premium.requests.filter(({ method }) => method === 'GET')
  t.equal(fetched.length, 3)
  t.notOk(fetched.some(({ headers }) => 'authorization' in headers || 'x-api-key' in headers || 'cookie' in headers),
    'no credentials go with it')
})

/**
 * Spellings of this machine, of private networks, and of a cloud's metadata; PORT is where something listens that must
 * never be asked.
 */
const FORBIDDEN = [
  'http://127.0.0.1:PORT/',
  'http://localhost:PORT/',
  'http://127.1:PORT/',
  'http://0x7f.1:PORT/',
  'http://2130706433:PORT/',
  'http://0177.0.0.1:PORT/',
  'http://127.0.0.1.:PORT/',
  'http://0.0.0.0:PORT/',
  'http://0:PORT/',
  'http://[::1]:PORT/',
  'http://[::]:PORT/',
  'http://[::ffff:127.0.0.1]:PORT/',
  'http://[::ffff:7f00:1]:PORT/',
  'http://[0:0:0:0:0:ffff:7f00:0001]:PORT/',
  'http://[::127.0.0.1]:PORT/',
  'http://[64:ff9b::7f00:1]:PORT/',
  'http://[64:ff9b:1::7f00:1]:PORT/',
  'http://[2002:7f00:1::]:PORT/',
  'http://[2001:0:7f00:1::]:PORT/',
  'http://[fe80::1]:PORT/',
  'http://[fc00::1]:PORT/',
  'http://[fd00:ec2::254]/',
  'http://169.254.169.254/latest/meta-data/',
  'http://[::ffff:169.254.169.254]/',
  'http://10.0.0.1/',
  'http://172.16.0.1/',
  'http://192.168.0.1/',
  'http://100.64.0.1/',
  'http://198.18.0.1/',
  'http://224.0.0.1/',
  'http://255.255.255.255/',
  'http://user:secret@127.0.0.1:PORT/',
  'file:///etc/passwd',
  'ftp://127.0.0.1/',
  'gopher://127.0.0.1:PORT/',
  '//127.0.0.1:PORT/',
  'nonsense'
]

t.test('links that lead where they may not: never asked for, never charged', async (t) => {
  const inside = await upstream(t, [status(200, { 'content-type': 'image/png' }), send(png)])
  const { gw } = await imageGateway(t, { options: ', links: mirror' })
  const port = new URL(inside.url).port
  for (const link of FORBIDDEN) {
    await t.rejects(bytesOf(link.replace('PORT', port), { trusted: ['http://127.0.0.1:1'] }), { name: 'BadLink' }, link)
  }
  for (const [wants, link] of [['url', FORBIDDEN[0]!], ['url', 'http://[::1]:PORT/'], ['b64_json',
    'http://localhost:PORT/'], ['b64_json', 'http://169.254.169.254/']] as const) {
    const told = await ask(gw, { model: 'nano',
      prompt: `[[sim: link_to=${encodeURIComponent(link.replace('PORT', port))}]] a cat`, response_format: wants })
    t.match(told, { status: 502, body: { error: { code: 'server_error' } }, entries: [], openHolds: 0 },
      `${wants} ${link}`)
    t.notMatch(JSON.stringify(told.body), port, 'and the client hears nothing of it')
  }
  t.equal(inside.requests.length, 0)
})

t.test('a link that is passed on must be one of the web', async (t) => {
  const { gw } = await imageGateway(t)
  for (const link of ['javascript:alert(1)', 'file:///etc/passwd', '//example.com/a.png',
    'data:text/html;base64,PGI+']) {
    t.match(await ask(gw, { model: 'nano', prompt: `[[sim: link_to=${encodeURIComponent(link)}]] a cat` }), {
      status: 502,
      entries: []
    }, link)
  }
  t.match(
    await ask(gw, { model: 'nano',
      prompt: `[[sim: link_to=${encodeURIComponent('https://example.com/a.png')}]] a cat` }),
    { status: 200, body: { data: [{ url: 'https://example.com/a.png' }] } }
  )
  const inline = await ask(gw, { model: 'nano',
    prompt: `[[sim: link_to=${encodeURIComponent(`data:image/png;base64,${png.toString('base64')}`)}]] a cat` })
  t.match(inline, { status: 200, body: { data: [{ url: new RegExp(`^${gw.urls.public}/files/`) }] } },
    'a data URL is base64, and becomes a link')
})

const bytesOf = async (link: string, more: Partial<Parameters<typeof fetchImage>[1]>): Promise<Buffer> =>
  await readAll(fetchImage(link, { trusted: [], signal: AbortSignal.timeout(20_000), ...more }))

async function readAll (bytes: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = []
  for await (const chunk of bytes) all.push(chunk)
  return Buffer.concat(all)
}

async function serve (t: Test, script: Parameters<typeof upstream>[1]): Promise<string> {
  return (await upstream(t, script)).url
}

t.test('redirects are followed as far as each step may be asked', async (t) => {
  const inside = await upstream(t, [status(200), send(png)])
  const vendor = await serve(t, ({ path }) =>
    path === '/here'
      ? [status(200), send(png)]
      : [status(302, { location: path === '/to-here' ? '/here' : path === '/round' ? '/round' : `${inside.url}/` })])
  const trusted = [vendor]
  t.strictSame(await bytesOf(`${vendor}/to-here`, { trusted }), png)
  await t.rejects(bytesOf(`${vendor}/inside`, { trusted }), { message: /leads to 127\.0\.0\.1, which is not public/ })
  await t.rejects(bytesOf(`${vendor}/round`, { trusted }), { message: /redirects too often/ })
  await t.rejects(bytesOf(`${vendor}/here`, {}), { message: /not public/ },
    'only upstreams that the operator has named are trusted')
  t.equal(inside.requests.length, 0)
})

t.test('what is behind a link may be large, slow or broken', async (t) => {
  const vendor = await serve(t, ({ path }) => {
    switch (path) {
      case '/announced':
        return status(200, { 'content-length': String(40 * 1024 * 1024) })
      case '/endless':
        return [status(200), step(async ({ response, gone }) => {
          const left = new Promise((resolve) => {
            gone.addEventListener('abort', resolve)
          })
          while (!gone.aborted) {
            if (!response.write(Buffer.alloc(1024 * 1024))) {
              await Promise.race([left, new Promise((resolve) => {
                response.once('drain', resolve)
              })])
            }
          }
        })]
      case '/silent':
        return step(({ gone }) =>
          new Promise((resolve) => {
            gone.addEventListener('abort', resolve)
          })
        )
      case '/cut':
        return [status(200, { 'content-length': '1000' }), send(png.subarray(0, 10)), step(({ response }) => {
          response.destroy()
        })]
      default:
        return status(404)
    }
  })
  const trusted = [vendor]
  await t.rejects(bytesOf(`${vendor}/announced`, { trusted }), { message: /41943040 bytes/ })
  await t.rejects(bytesOf(`${vendor}/endless`, { trusted }), { message: /more than 33554432 bytes/ })
  await t.rejects(bytesOf(`${vendor}/silent`, { trusted, signal: AbortSignal.timeout(50) }), {
    message: /could not be fetched/
  })
  await t.rejects(bytesOf(`${vendor}/cut`, { trusted }), { message: /could not be fetched/ })
  await t.rejects(bytesOf(`${vendor}/gone`, { trusted }), { message: /status 404/ })
})

t.test('a name is looked up once, and what was checked is what is connected to', async (t) => {
  const answers = (...addresses: readonly string[]): typeof lookup => {
    let asked = 0
    return ((_name: string, options: { all: true }, callback: (error: null, found: LookupAddress[]) => void) => {
      t.equal(asked++, 0, 'once')
      t.equal(options.all, true)
      callback(null, addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })))
    }) as unknown as typeof lookup
  }
  const look = (resolver: typeof lookup, all: boolean): Promise<unknown> =>
    new Promise((resolve, reject) => {
      guardedLookup(resolver)('images.example.com', { all }, (error, found, family) => {
        if (error) reject(error)
        else resolve(all ? found : [found, family])
      })
    })
  t.strictSame(await look(answers('93.184.216.34', '2606:2800:220:1::1'), true), [{ address: '93.184.216.34',
    family: 4 }, { address: '2606:2800:220:1::1', family: 6 }])
  t.strictSame(await look(answers('93.184.216.34'), false), ['93.184.216.34', 4])
  for (const bad of ['127.0.0.1', '::1', '::ffff:10.0.0.1', '169.254.169.254', 'fe80::1%eth0']) {
    await t.rejects(look(answers('93.184.216.34', bad), true), { message: /not public/ }, `${bad} beside a public one`)
    const error = await bytesOf('http://images.example.com/', { resolve: answers(bad) }).then(() => undefined,
      (thrown: unknown) => thrown as Error)
    t.match(error, { name: 'BadLink' })
    t.match([error!.message, String(error!.cause)].join(), /not public/, bad)
  }
  await t.rejects(look(answers(), true), { message: /nowhere/ })
})

t.test('which addresses are public', (t) => {
  for (const address of ['8.8.8.8', '93.184.216.34', '172.15.255.255', '172.32.0.1', '100.63.255.255', '100.128.0.1',
    '2606:2800:220:1::1', '2a00:1450:4001::200e']) { t.ok(isPublicAddress(address), address) }
  for (const address of [
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '100.127.255.255',
    '127.0.0.1',
    '169.254.1.1',
    '172.16.0.1',
    '172.31.255.255',
    '192.0.0.1',
    '192.0.2.1',
    '192.168.1.1',
    '198.18.0.1',
    '198.51.100.1',
    '203.0.113.1',
    '224.0.0.1',
    '240.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:8.8.8.8',
    '::8.8.8.8',
    '64:ff9b::808:808',
    '64:ff9b:1::1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2002:808:808::1',
    '3fff::1',
    'fc00::1',
    'fd12::1',
    'fe80::1',
    'fe80::1%eth0',
    'fec0::1',
    'ff02::1',
    '5f00::1',
    'localhost',
    ''
  ]) { t.notOk(isPublicAddress(address), address) }
  t.end()
})
