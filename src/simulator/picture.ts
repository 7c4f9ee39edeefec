// A picture that follows from a text: a real PNG, small, that any viewer shows.
import { createHash } from 'node:crypto'
import { crc32, deflateSync } from 'node:zlib'

const SIDE = 64
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])

/** @param bytes as many at least: filled up with a chunk that viewers skip */
export function picture (text: string, bytes = 0): Buffer {
  const seed = createHash('sha256').update(text).digest()
  const rows: Buffer[] = []
  for (let y = 0; y < SIDE; y++) {
    const row = Buffer.alloc(1 + SIDE * 3)                    // 0: no filter
    for (let x = 0; x < SIDE; x++) {
      row[1 + x * 3] = (seed[0]! + x * 2) & 255
      row[2 + x * 3] = (seed[1]! + y * 2) & 255
      row[3 + x * 3] = (seed[2]! + (x ^ y) * 3) & 255
    }
    rows.push(row)
  }
  const head = Buffer.alloc(13)
  head.writeUInt32BE(SIDE, 0)
  head.writeUInt32BE(SIDE, 4)
  head.set([8, 2], 8)                                         // 8 bits, RGB
  const image = [SIGNATURE, chunk('IHDR', head), chunk('IDAT', deflateSync(Buffer.concat(rows)))]
  const end = chunk('IEND', Buffer.alloc(0))
  const missing = bytes - image.reduce((sum, { length }) => sum + length, end.length) - 12
  if (missing > 0) image.push(chunk('prVt', Buffer.alloc(missing, seed)))
  return Buffer.concat([...image, end])
}

function chunk (type: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const length = Buffer.alloc(4)
  length.writeUInt32BE(data.length)
  const check = Buffer.alloc(4)
  check.writeUInt32BE(crc32(named))
  return Buffer.concat([length, named, check])
}
