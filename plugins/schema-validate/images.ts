// Limits of image requests beside the model's parameters, which channel-router checks.
import { GatewayError } from '../../src/errors.ts'
import type { Body, Model } from '../../src/core/facts.ts'
import { checkBytes, inputFields, readInputs } from '../../src/core/image-inputs.ts'
import type { Blobs } from '../../src/core/large-strings.ts'
import { invalid } from './refusal.ts'

/** @throws {GatewayError} invalid_request, image_input_not_supported */
export function checkImageRequest (schema: string, body: Body, { accepts }: Model, blobs: Blobs): void {
  if (schema === 'images-edits') {
    if (!accepts.includes('image')) {
      throw new GatewayError('image_input_not_supported', {
        message:
          'This model makes images, and changes none. Use POST /v1/images/generations, ' +
            'or choose a model that takes images.',
        param: 'image'
      })
    }
    const { images, marks } = readInputs(body)
    for (const image of images) checkBytes(image, 'image', blobs)
    for (const [field, mark] of marks) checkBytes(mark, field, blobs)
    return
  }
  const given = inputFields.find((name) => body[name] !== undefined && body[name] !== null)
  if (given !== undefined) throw invalid(given, 'is not taken here', 'To change an image use POST /v1/images/edits.')
}
