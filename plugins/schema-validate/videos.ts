// Limits of video requests beside the model's parameters, which channel-router checks.
import { GatewayError } from '../../src/errors.ts'
import type { Body, Model } from '../../src/core/facts.ts'
import { checkBytes, isUpload } from '../../src/core/image-inputs.ts'
import type { Blobs } from '../../src/core/large-strings.ts'
import { isGiven } from '../../src/base/json.ts'
import { invalid } from './refusal.ts'

const FIELD = 'input_reference'

/** @throws {GatewayError} invalid_request, image_input_not_supported */
export function checkVideoRequest (body: Body, { accepts }: Model, blobs: Blobs): void {
  const reference = body[FIELD]
  if (reference === undefined || reference === null) return
  if (!accepts.includes('image')) {
    throw new GatewayError('image_input_not_supported', {
      message: 'This model makes videos of texts only. Leave out input_reference, or choose a model that takes images.',
      param: FIELD
    })
  }
  if (Array.isArray(reference)) {
    if (reference.length !== 1 || !isUpload(reference[0])) {
      throw invalid(FIELD, 'must be one file', 'Send one image, as a file of a form.')
    }
    checkBytes(reference[0], FIELD, blobs)
    return
  }
  const { image_url: url, file_id: file } = reference as Readonly<Record<string, unknown>>
  // A file of the provider's account, which is not the client's.
  if (isGiven(file)) {
    throw invalid(`${FIELD}.file_id`, 'is not taken here',
      'Send the image itself, as a file of a form or as a data URL in image_url.')
  }
  if (typeof url !== 'string' || !/^(?:https?:\/\/|data:image\/)/i.test(url)) {
    throw invalid(`${FIELD}.image_url`, 'must be an address or a data URL of an image')
  }
  checkBytes({ image_url: url }, `${FIELD}.image_url`, blobs)
}
