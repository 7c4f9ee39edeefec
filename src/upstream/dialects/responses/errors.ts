// The vendor's errors: in an event, in a response that has failed, and the one that says that its own reasoning was not
// taken back.
import { isRecord, type Json } from '../../../base/json.ts'
import { textIn } from '../json.ts'

/** Codes for faults of the request itself, where only HTTP errors have a type that says so. */
const OF_REQUEST = /^(?:invalid_|bio_policy|misalignment_policy|content_|context_length|image_|empty_image|unsupported_image|failed_to_download)/

/**
 * An error as those of all vendors are read.
 * @param said of a failed response, or a whole `error` event
 */
export function errorOf (said: unknown): Json {
  const own = isRecord(said) ? isRecord(said.error) ? said.error : said : {}
  const { type, code, message, param } = own
  const isTyped = typeof type === 'string' && type !== 'error'
  return {
    error: {
      ...(isTyped ? { type } : OF_REQUEST.test(textIn(code)) && { type: 'invalid_request_error' }),
      code: code ?? null,
      message: textIn(message) || 'The upstream says that the answer has failed.',
      param: param ?? null
    }
  }
}

/**
 * Whether the vendor could not read reasoning that it had encrypted: of another organization, or of a key that is gone.
 * Some send no code, only the sentence.
 */
export function isUnverified (body: unknown): boolean {
  const { code, message } = isRecord(body) && isRecord(body.error) ? body.error : {}
  return code === 'invalid_encrypted_content' || /encrypted content\b.{0,200}could not be verified/is.test(textIn(message))
}
