// The vendor's error that says that its own reasoning was not taken back.
import { errorIn } from '../../../core/vendor-error.ts'

/**
 * Whether the vendor could not read reasoning that it had encrypted: of another organization, or of a key that is gone.
 * Some send no code, only the sentence.
 */
export function isUnverified (body: unknown): boolean {
  const { words, message } = errorIn(body)
  return words.has('invalid_encrypted_content') || /encrypted content\b.{0,200}could not be verified/is.test(message)
}
