// Forms as no client would send them: what is around their parts, in the heads of these, and between.
import { picture } from '../../src/simulator/picture.ts'
import { wound, type Chance } from './chance.ts'

export interface Form {
  readonly path: string
  /** its content-type */
  readonly type: string
  readonly body: Buffer
}

const PNG = picture('a cat')
const BOUNDARIES = ['', '-', '--', '----WebKitFormBoundary', 'x'.repeat(70), 'x'.repeat(5000), 'a b', 'a"b',
  '\'()+_,-./:=?', 'é', '\\', '.*', 'B;', 'B=', '\u0001']
const NAMES = ['', 'image[]', 'image[0]', 'image[', 'mask', 'n', 'size', '__proto__', 'constructor', 'toString', 'a"b',
  'a\\', 'é', '\u0000', 'a\r\nb', 'x'.repeat(2000), 'images', 'image_url', 'stream', 'response_format',
  'input_reference', 'seconds', 'user', 'model']
const FILENAMES = ['', 'a.png', '../../etc/passwd', 'a"b.png', 'a\\', 'C:\\a.png', 'é.png', '.', '\u0000', 'a\r\nb',
  'x'.repeat(3000), 'a;b=c', '%00']
const TYPES = ['image/png', 'image/jpeg', 'image/svg+xml', 'text/html', 'text/plain; charset=utf-16',
  'text/plain; charset=nonsense', '', 'a', 'image/png; name="', 'multipart/mixed; boundary=B', 'application/json',
  'x'.repeat(500)]
const HEADS = ['content-transfer-encoding: base64', 'content-transfer-encoding: nonsense', 'content-length: 5',
  'no colon', ': x', ' folded', 'x: ' + 'y'.repeat(9_000), '\u0000: x', 'é: é', 'content-disposition: attachment',
  'Content-Disposition: form-data; name=twice']
const DISPOSITIONS = ['form-data', 'form-data;', 'attachment', '', 'FORM-DATA', 'form-data; ;', 'form-data name="x"',
  'inline', '\u0000', 'form-data; name*=utf-8\'\'x', 'form-data; name="a"; name="b"', '"']
const TEXTS = ['a cat', '', '1', '0', '-1', '11', '1024x1024', 'null', '{}', '[', 'é\u0000', '\ud83c', 'good-image',
  'good-clip', 'nobody', 'data:image/png;base64,AAAA', 'b64_json', 'true', '9'.repeat(400), 'x'.repeat(20_000),
  '--B\r\n', '\r\n--B--']

function parameter (chance: Chance, name: string, value: string): string {
  const quoted = `"${value.replace(/["\\]/g, (sign) => chance.mostly(0.7, `\\${sign}`, [sign, `%22`]))}"`
  return `${chance.mostly(0.95, '; ', [';', ';;', ' ', ';\t'])}${chance.mostly(0.97, name, [`${name}*`, name.toUpperCase(), `${name} `])}=${chance.mostly(0.85, quoted, [value, `"${value}`, `'${value}'`, `utf-8''${encodeURIComponent(value.toWellFormed())}`, '""'])}`
}

function part (chance: Chance, name: string, content: Buffer | string, isFile: boolean): Buffer {
  const own = chance.mostly(0.85, name, NAMES)
  const disposition = chance.mostly(0.92, 'form-data', DISPOSITIONS)
  const filename = chance.mostly(0.97, isFile, [!isFile])
    ? parameter(chance, 'filename', chance.mostly(0.7, 'cat.png', FILENAMES))
    : ''
  const lines = [`content-disposition: ${disposition}${chance.mostly(0.95, parameter(chance, 'name', own), [''])}${filename}${chance.mostly(0.97, '', [parameter(chance, 'filename', 'b.png')])}`]
  if (chance.mostly(0.97, isFile, [!isFile])) lines.push(`content-type: ${chance.mostly(0.8, 'image/png', TYPES)}`)
  for (let left = chance.mostly(0.9, 0, [1, 2, 3, 300]); left > 0; left--) lines.splice(
    chance.below(lines.length + 1), 0, chance.of(HEADS)
  )
  if (chance.mostly(0.98, false, [true])) lines.shift()
  const end = chance.mostly(0.96, '\r\n', ['\n', '\r', '\r\n\r\n', ''])
  const value = typeof content === 'string'
    ? Buffer.from(chance.mostly(0.85, content, TEXTS))
    : chance.mostly(
      0.8,
      content,
      [
        Buffer.alloc(0), content.subarray(0, 20), Buffer.from('<svg/>'), Buffer.from('GIF89a'), Buffer.alloc(20_000, 1),
        Buffer.from('\r\n--B'), wound(chance, content)
      ]
    )
  return Buffer.concat([
    Buffer.from(lines.map((line) => line + end).join('') + chance.mostly(0.97, '\r\n', ['\n', '']), 'latin1'),
    value
  ])
}

export function formOf (all: Chance): Form {
  const chance = all.gentler(all.of([0.2, 0.5, 1]))
  const isVideo = chance.is(0.3)
  const boundary = chance.mostly(0.9, 'B', BOUNDARIES)
  const parts = isVideo
    ? [part(chance, 'model', 'good-clip', false), part(chance, 'prompt', 'a cat', false),
      part(chance, 'seconds', '4', false), part(chance, 'input_reference', PNG, true)]
    : [part(chance, 'model', 'good-image', false), part(chance, 'prompt', 'with a hat', false),
      part(chance, 'image', PNG, true), ...(chance.is(0.3) ? [part(chance, 'mask', PNG, true)] : []),
      ...(chance.is(0.3) ? [part(chance, 'n', '1', false), part(chance, 'size', '512x512', false)] : [])]
  if (chance.mostly(0.9, false, [true])) parts.splice(chance.below(parts.length), 1)
  if (chance.mostly(0.9, false, [true])) {
    parts.push(
      ...chance.times(chance.is(0.1) ? chance.between(10, 300) : chance.between(1, 20), () =>
        chance.is(0.5) ? chance.of(parts) : part(chance, chance.of(NAMES), chance.of(TEXTS), chance.is(0.3)))
    )
  }
  if (chance.is(0.1)) parts.sort(() => chance.below(3) - 1)
  const written = chance.mostly(0.95, boundary, BOUNDARIES)
  const line = (): string => chance.mostly(0.98, '\r\n', ['\n', '\r', '', ' \r\n', '--\r\n'])
  const body = Buffer.concat([
    Buffer.from(chance.mostly(0.95, '', ['preamble\r\n', '\r\n', '\r\n\r\n', '--'])),
    ...parts.flatMap((one) => [
      Buffer.from(`--${chance.mostly(0.99, written, BOUNDARIES)}${line()}`),
      one,
      Buffer.from(line())
    ]),
    Buffer.from(chance.mostly(
      0.9,
      `--${written}--\r\n`,
      [
        '', `--${written}`, `--${written}-`, `--${written}--`, `--${written}--\r\nepilogue`,
        `--${written}--\r\n--${written}\r\n`
      ]
    ))
  ])
  const shown = chance.mostly(
    0.85,
    boundary,
    [`"${boundary}"`, `"${boundary}`, ` ${boundary}`, `${boundary}; charset=utf-8`, `${boundary}; boundary=C`, '']
  )
    .replace(/[\r\n]/g, '')
  const type = `${chance.mostly(0.97, 'multipart/form-data', ['multipart/mixed', 'Multipart/Form-Data', 'multipart/form-data;', 'multipart/'])}; ${chance.mostly(0.98, 'boundary', ['Boundary', 'bound', 'boundary*'])}=${shown}`
  return {
    path: isVideo ? '/v1/videos' : '/v1/images/edits',
    type,
    body: chance.mostly(0.75, false, [true]) ? wound(chance, body) : body
  }
}
