// Redacts texts of upstreams: keys, hosts and accounts of the operator (src/README.md#leave-nothing).
import { isIP } from 'node:net'

const GONE = '[redacted]'
/** A client needs no more than a sentence; a longer text is cut before the patterns run, which bounds their time. */
const LONGEST_READ = 4000
const LONGEST = 1000

const URL_LIKE = /\b[a-z][a-z0-9+.-]{0,30}:\/\/[^\s"'`<>()]+/gi
const CREDENTIAL = /\b(?:bearer|basic)\s+[\w.~+/=-]{6,}/gi
/** Keys by their prefix, also where the vendor has masked their middle. */
const KEY = /\b(?:sk|pk|rk|gsk|xai|hf|ghp|AIza|AKIA|eyJ)[\w-][\w*.…-]{6,}/g
const EMAIL = /[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}/g
const ACCOUNT = /\b(?:org|proj|acct|wrkspc|req)[_-][A-Za-z0-9_-]{8,}|\buser[_-](?=[A-Za-z]*\d)[A-Za-z0-9]{8,}/g
const HOST =
  /(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,8}(?:com|net|org|io|ai|dev|app|cloud|internal|local|lan|corp|svc|edu|gov|eu|de|cn|uk|us)(?::\d{1,5})?(?![\w-])/gi
const LOCALHOST = /\blocalhost(?::\d{1,5})?\b/gi
const ADDRESS = /[0-9a-f:.]{3,60}/gi
const LONG_TOKEN = /[A-Za-z0-9_+/=-]{32,}/g
/** Ids of the conversation, which are the client's own, and name the block that is wrong. */
const CONVERSATION_ID = /^(?:srv)?toolu_|^(?:call|msg|fc)_/

/**
 * @param secrets known values, such as the upstream's host and credentials, in any form
 * @returns '' if nothing readable is left
 */
export function scrub (text: string, secrets: readonly string[]): string {
  return clip(redact(clip(inOneLine(text), LONGEST_READ), secrets), LONGEST).trim()
}

/** The redacted beginning of a text, which may end within a word. @param length characters */
export function scrubStart (text: string, secrets: readonly string[], length: number): string {
  const line = inOneLine(text)
  const clean = redact(line.slice(0, LONGEST_READ), secrets)
  // What was read may end with half a key.
  const isShort = line.length > LONGEST_READ && clean.length <= length
  return (isShort ? clean.slice(0, clean.lastIndexOf(' ') + 1) : clean).slice(0, length).trim()
}

function inOneLine (text: string): string {
  return text.replace(/\p{Cc}+/gu, ' ')
}

function redact (text: string, secrets: readonly string[]): string {
  let clean = text
  for (const secret of secrets) clean = clean.replaceAll(secret, GONE)
  return clean
    .replace(URL_LIKE, GONE)
    .replace(CREDENTIAL, GONE)
    .replace(KEY, GONE)
    .replace(EMAIL, GONE)
    .replace(ACCOUNT, GONE)
    .replace(HOST, GONE)
    .replace(LOCALHOST, GONE)
    .replace(ADDRESS, (token) => isAddress(token) ? GONE : token)
    .replace(LONG_TOKEN, (token) => isKeyLike(token) ? GONE : token)
}

/** Cuts between words: half a key would not be recognised. */
function clip (text: string, length: number): string {
  return text.length <= length ? text : text.slice(0, Math.max(0, text.lastIndexOf(' ', length - 1))) + '…'
}

/** `std::` alone would be an IPv6 address too. */
function isAddress (token: string): boolean {
  const bare = token.replace(/(?<![.:])[.:]+$/, '')
  return /\d/.test(token) && [token, bare, bare.replace(/:\d{1,5}$/, '')].some((address) => isIP(address) !== 0)
}

/** Whether a word is random letters and digits, and no long_snake_case_name of the API. */
function isKeyLike (token: string): boolean {
  if (CONVERSATION_ID.test(token)) return false
  return /\d/.test(token) && (/^[0-9a-f-]+$/i.test(token) || (/[a-z]/.test(token) && /[A-Z]/.test(token)))
}
