// The type of a file by its first bytes. They come from an upstream, so they may be anything.
import fc from 'fast-check'
import t from 'tap'
import { imageType, SNIFFED_BYTES } from '../../src/media/image-type.ts'

const bytes = (text: string): Buffer => Buffer.from(text, 'latin1')

/** The least bytes that show a type. */
const SIGNATURES: Readonly<Record<string, readonly string[]>> = {
  png: ['\x89PNG\r\n\x1a\n'],
  jpg: ['\xff\xd8\xff'],
  gif: ['GIF87a', 'GIF89a'],
  webp: ['RIFF\x01\x02\x03\x04WEBP'],
  avif: ['\x00\x00\x00\x1cftypavif', '\x00\x00\x00\x1cftypavis'],
  svg: ['<svg>', '<svg ', '<SVG\n', '\xef\xbb\xbf<svg\t', ' \r\n<svg>', '<?xml version="1.0"?><svg>',
    '<!-- <html> --><!----><svg>', '<!doctype svg public "-//W3C//DTD SVG 1.1//EN">\n<svg>',
    '<?xml version="1.0"?>\n<!-- a - b -- c -->\n<!DOCTYPE svg>\n<!-- d -->\n<svg>']
}

t.test('each type by its first bytes, and by no fewer', (t) => {
  for (const [extension, signatures] of Object.entries(SIGNATURES)) {
    for (const signature of signatures) {
      const shown = JSON.stringify(signature)
      t.equal(imageType(bytes(signature + 'more'))?.extension, extension, shown)
      for (let length = 0; length < signature.length; length++) {
        t.equal(imageType(bytes(signature.slice(0, length))), undefined, `${shown}, ${length} bytes`)
      }
    }
  }
  t.end()
})

t.test('what only looks like an SVG is none', (t) => {
  for (const text of ['<svgx>', '<svg/>', 'x<svg>', '<html><svg>', '<!doctype html><svg>', '<!-->--<svg>',
    '<!-- <svg>', '<?xml <svg', '<!DOCTYPE svg', '< svg>', `${' '.repeat(SNIFFED_BYTES - 4)}<svg>`]) {
    t.equal(imageType(bytes(text)), undefined, JSON.stringify(text))
  }
  t.end()
})

t.test('N2: parts of a prolog in any order and number end the search', (t) => {
  const parts = ['<!---->', '<!--', '-->', '<?xml', '?>', '>', '<!DOCTYPE svg', ' ', '\n', '\xef\xbb\xbf', '<', '-',
    '<svg', '<svg>']
  for (const part of parts) {
    for (const end of ['', '<', '<svg', '\x00']) {
      const text = part.repeat(Math.ceil(SNIFFED_BYTES / part.length)).slice(0, SNIFFED_BYTES - end.length) + end
      t.equal(imageType(bytes(text)), part === '<svg>' ? imageType(bytes('<svg>')) : undefined,
        `${JSON.stringify(part)} … ${JSON.stringify(end)}`)
    }
  }
  // Whatever the parts: a prolog of whole ones before `<svg>` is an SVG, and one more open part is none.
  const part = fc.constantFrom('<!---->', '<!-- a -->', '<?xml?>', '<!DOCTYPE svg>', ' ', '\n')
  const whole = fc.array(part, { maxLength: 30 })
  fc.assert(fc.property(whole, fc.constantFrom('<!--', '<?xml', '<!doctype svg', '<x>'), (prolog, open) => {
    const text = prolog.join('')
    t.equal(imageType(bytes(`${text}<svg>`))?.extension, 'svg')
    t.equal(imageType(bytes(`${text}${open}`)), undefined)
  }), { numRuns: 500 })
  t.end()
})
