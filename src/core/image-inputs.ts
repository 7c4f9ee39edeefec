// The input images of a request, in all forms in which clients send them (src/README.md#form-names).
import { GatewayError } from '../errors.ts'
import type { Body } from './facts.ts'
import { isGiven, isRecord } from '../base/json.ts'
import type { Blobs } from './large-strings.ts'
import { FIRST_BYTES, Upload } from './upload.ts'

/**
 * An upload of a form; or a link or data URL, which the upstream fetches itself: the gateway fetches no address of a
 * client (src/README.md#no-fetch).
 */
export type InputImage = Upload | { readonly image_url: string }

export interface Inputs {
  readonly images: readonly InputImage[]
  /** masks that mark the part to be changed, by field */
  readonly marks: readonly (readonly [field: string, mark: InputImage])[]
}

const MOST_IMAGES = 16

const MARKS = ['mask', 'markup'] as const

/** The fields of a request that hold images. */
export const inputFields: readonly string[] = ['image', 'images', ...MARKS]

/** @throws {GatewayError} invalid_request: none, too many, or a value that is no image */
export function readInputs (body: Body): Inputs {
  const images = [...listOf(body['image'], 'image'), ...listOf(body['images'], 'images')]
  if (images.length === 0) {
    throw invalid('image',
      'is missing: the image to change. Send it as the file "image" of a form, or in JSON as "images": ' +
      '[{"image_url": "data:image/png;base64,…"}]')
  }
  if (images.length > MOST_IMAGES) {
    throw invalid('image', `must be at most ${MOST_IMAGES} images, not ${images.length}`)
  }
  const marks = MARKS.flatMap((field) => {
    const found = listOf(body[field], field)
    if (found.length > 1) throw invalid(field, 'must be one image')
    return found.map((mark) => [field, mark] as const)
  })
  const all = [...images, ...marks.map(([, mark]) => mark)]
  if (all.some(isUpload) && !all.every(isUpload)) {
    throw invalid('image', 'must be files or links, not both in one request')
  }
  return { images, marks }
}

export function isUpload (image: InputImage): image is Upload {
  return image instanceof Upload
}

function listOf (value: unknown, field: string): readonly InputImage[] {
  if (!isGiven(value) || value === '') return []
  return Array.isArray(value) ? value.map((one, i) => read(one, field, `${field}[${i}]`)) : [read(value, field, field)]
}

/** @param path of a value that is no upload: uploads of a form have no number */
function read (value: unknown, field: string, path: string): InputImage {
  if (value instanceof Upload) {
    if (value.size === 0) throw invalid(field, 'must not be an empty file')
    return value
  }
  let url = value
  let at = path
  if (isRecord(value)) {
    if (isGiven(value['file_id'])) {
      throw invalid(path, 'must be an image: there is no Files API here, so "file_id" names nothing')
    }
    const name = isGiven(value['url']) && !isGiven(value['image_url']) ? 'url' : 'image_url'
    const nested = value[name]
    url = isRecord(nested) ? nested['url'] : nested
    at = isRecord(nested) ? `${path}.${name}.url` : `${path}.${name}`
  }
  if (
    typeof url !== 'string' || !/^(?:data:image\/[\w.+-]{1,40};base64,|https?:\/\/)/i.test(url.slice(0, 100))
  ) throw invalid(at, 'must be a link (https://…) or a data URL (data:image/png;base64,…)')
  return { image_url: url }
}

/**
 * Refuses a text or a PDF that was sent as an image: some vendors make an image all the same, and charge for it. Other
 * bytes pass, because vendors know more types of images than the gateway.
 * @throws {GatewayError} invalid_request
 */
export function checkBytes (image: InputImage, field: string, blobs: Blobs): void {
  const first = isUpload(image) ? image.first : firstOf(image.image_url, blobs)
  if (first === undefined || !/^(?:%PDF-|[^\0-\x08\x0e-\x1a\x1c-\x1f\x7f]+$)/.test(first.toString('latin1'))) return
  throw invalid(field, 'must be an image: its first bytes are those of a text or a PDF')
}

/** The first bytes of a data URL; undefined: it is a link. */
function firstOf (url: string, blobs: Blobs): Buffer | undefined {
  const [, base64] = /^data:[^,]{1,100},(.*)/i.exec(url.slice(0, 2 * FIRST_BYTES)) ?? []
  if (base64 === undefined) return undefined
  const whole = blobs.find(base64)?.[0]?.toString('latin1', 0, FIRST_BYTES) ?? base64.slice(0, FIRST_BYTES)
  return Buffer.from(whole, 'base64')
}

function invalid (param: string, problem: string): GatewayError {
  return new GatewayError('invalid_request', { message: `The field "${param}" ${problem}.`, param })
}
