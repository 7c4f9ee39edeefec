// Which characters a field of HTTP may have.

/** Of a name (RFC 9110 5.6.2). */
export const NAME = 1
/** Of a value (5.5) that is no space. */
export const VISIBLE = 2
/** A space in a value. */
export const SPACE = 4

/** By the character's code, up to 255. */
export const KINDS = Uint8Array.from({ length: 256 }, (_, code) =>
  (/[!#$%&'*+\-.^_`|~0-9A-Za-z]/.test(String.fromCharCode(code)) ? NAME : 0) |
  ((code > 0x20 && code < 0x7F) || code > 0x7F ? VISIBLE : 0) | (code === 0x20 || code === 0x09 ? SPACE : 0))
