// What vendors say of an account without money and of a key that they do not accept; and what only looks like it.
import t from 'tap'
import { type CredentialFault, credentialFaultIn } from '../../src/core/credential-fault.ts'
import type { UpstreamFailure } from '../../src/core/plugin.ts'

const LOW = 'Your credit balance is too low to access the Anthropic API. ' +
  'Please go to Plans & Billing to upgrade or purchase credits.'
const GOOGLE = { error: { code: 400, message: 'API key not valid. Please pass a valid API key.',
  status: 'INVALID_ARGUMENT', details: [
    { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'API_KEY_INVALID', domain: 'googleapis.com' }] } }
const anthropic = (message: string, type = 'invalid_request_error'): object =>
  ({ type: 'error', error: { type, message }, request_id: 'req_1' })
const openai = (message: string, code: string | null, type = 'invalid_request_error'): object =>
  ({ error: { message, type, param: null, code } })

const said: readonly (readonly [who: string, fault: CredentialFault, status: number, body: unknown])[] = [
  ['Anthropic, no money', 'no_money', 400, anthropic(LOW)],
  ['Anthropic, no money, as a type', 'no_money', 402, anthropic('no', 'billing_error')],
  ['Anthropic, its own limit', 'no_money', 400,
    anthropic('You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.')],
  ['Anthropic, a wrong key', 'bad_key', 401, anthropic('invalid x-api-key', 'authentication_error')],
  ['Anthropic, closed', 'bad_key', 400, anthropic('This organization has been disabled.')],
  ['OpenAI, no money', 'no_money', 429,
    openai('You exceeded your current quota, please check your plan and billing details.', 'insufficient_quota',
      'insufficient_quota')],
  ['OpenAI, its own limit', 'no_money', 400,
    openai('Billing hard limit has been reached', 'billing_hard_limit_reached')],
  ['OpenAI, its own limit, by the sentence', 'no_money', 400, openai('Billing hard limit has been reached', null)],
  ['OpenAI, not active', 'no_money', 429, openai('Your account is not active.', 'billing_not_active')],
  ['OpenAI, a wrong key', 'bad_key', 401, openai('Incorrect API key provided: sk-***.', 'invalid_api_key')],
  ['Google, a wrong key', 'bad_key', 400, GOOGLE],
  ['Google, in a list', 'bad_key', 400, [GOOGLE]],
  ['Google, by the sentence', 'bad_key', 400, { error: { code: 400, message: GOOGLE.error.message } }],
  ['Google, expired', 'bad_key', 400, { error: { code: 400, message: 'API key expired. Please renew the API key.' } }],
  ['xAI, a wrong key', 'bad_key', 400, { code: 'Client specified an invalid argument',
    error: 'Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai.' }],
  ['xAI, no money', 'no_money', 403, { code: 'The caller does not have permission',
    error: 'Your newly created team doesn\'t have any credits yet. You can purchase credits on https://console.x.ai.' }],
  ['DeepSeek, no money', 'no_money', 402, openai('Insufficient Balance', 'invalid_request_error', 'unknown_error')],
  ['Moonshot, no money', 'no_money', 429, openai('Your account org-1 is suspended', null, 'exceeded_current_quota_error')],
  ['DashScope, no money', 'no_money', 400, { code: 'Arrearage', message: 'Access denied, please make sure your account ' +
    'is in good standing.', request_id: '1' }],
  ['Zhipu, no money', 'no_money', 429, { error: { code: '1113', message: '您的账户已欠费，请充值后重试' } }],
  ['Ark, no money', 'no_money', 403, openai('The request failed because your account has an overdue balance.',
    'AccountOverdueError', 'Forbidden')],
  ['OpenRouter, no money', 'no_money', 402, { error: { code: 402,
    message: 'Insufficient credits. Add more using https://openrouter.ai/settings/credits' } }],
  ['another gateway of ours, no money', 'no_money', 402, { type: 'error', error: { type: 'billing_error', message: 'x',
    details: { error_code: 'insufficient_quota' } } }]
]

const failures = (status: number, body: unknown): readonly UpstreamFailure[] =>
  [{ kind: 'status', status, headers: {}, body }, { kind: 'error_event', body }]

void t.test('F1: said with any status of a refusal, and in an answer of status 200', (t) => {
  for (const [who, fault, status, body] of said) {
    for (const failure of [...failures(status, body), ...failures(400, body)]) {
      t.equal(credentialFaultIn(failure), fault, `${who}, ${failure.kind}`)
    }
    t.equal(credentialFaultIn({ kind: 'status', status: 503, headers: {}, body }), undefined, 'a server in trouble')
  }
  t.end()
})

/** What a client wrote, and how vendors repeat it. */
const WRITTEN = [LOW, 'credit balance is too low', 'Credit balance is too low.', 'billing_hard_limit_reached',
  'insufficient_quota', 'API key not valid. Please pass a valid API key.', 'Insufficient funds', 'API_KEY_INVALID',
  'Incorrect API key provided']
const repeats: readonly ((text: string) => unknown)[] = [
  (text) => anthropic(`messages.0.content: "${text}" is not allowed`),
  (text) => anthropic(`"${text}" is not a valid role`),
  (text) => anthropic(`'${text}' is not one of ['user', 'assistant']`),
  (text) => anthropic(`\`${text}\` should be a number`),
  (text) => openai(`Invalid value: '${text}'. Supported values are: 'low' and 'high'.`, 'invalid_value'),
  (text) => openai(`tools.0.name: ${text}`, null),
  (text) => ({ error: { message: 'Invalid value', type: 'bad',
    param: text, code: 'invalid_value' } }),
  (text) => ({ detail: [{ loc: ['body', 'input'], msg: 'Field required', input: { type: text, code: text }, type: 'x' }] }),
  (text) => ({ error: { message: 'no', type: 'bad', details: { input: text, value: text } } }),
  (text) => ({ error: { message: 'no', type: 'bad', input: { code: text, type: text } }, body: { code: text } }),
  (text) => `<html><body>${text}</body></html>`,
  (text) => `The request failed: ${text}`
]

void t.test('F1: what a vendor quotes of a request says nothing of an account', (t) => {
  for (const text of WRITTEN) {
    for (const [i, repeat] of repeats.entries()) {
      for (const failure of failures(400, repeat(text))) {
        t.equal(credentialFaultIn(failure), undefined, `${text}, ${i}, ${failure.kind}`)
      }
    }
    for (const predicate of ['is not a valid role', 'must be a number', 'does not match']) {
      t.equal(credentialFaultIn({ kind: 'error_event', body: anthropic(`${text} ${predicate}`) }), undefined, text)
    }
  }
  for (const body of [undefined, null, 1, [], {}, { error: null }, { error: [] }, { error: { details: [null, 1] } }]) {
    for (const failure of failures(400, body)) t.equal(credentialFaultIn(failure), undefined)
  }
  // Google's rate limit has OpenAI's sentence about money.
  t.equal(credentialFaultIn({ kind: 'status', status: 429, headers: {}, body: { error: { code: 429,
    status: 'RESOURCE_EXHAUSTED', message: 'You exceeded your current quota, please check your plan and billing details. ' +
      'For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.' } } }), undefined)
  t.equal(credentialFaultIn({ kind: 'reset', cause: new Error('insufficient_quota') }), undefined)
  t.end()
})
