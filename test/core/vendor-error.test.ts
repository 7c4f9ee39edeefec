// What vendors say when they fail, in their own words, and what it means: for the client, the credential and failover.
import fc from 'fast-check'
import assert from 'node:assert/strict'
import t from 'tap'
import { errorIn, isErrorBody } from '../../src/core/vendor-error.ts'
import { type Shape, shapes } from '../support/error-shapes.ts'

/** Sentences as they were recorded, and reported in the issues of agents and proxies. */
const TOO_LONG: readonly (readonly [vendor: string, body: unknown, status?: number])[] = [
  ['Anthropic', { type: 'error', error: { type: 'invalid_request_error',
    message: 'prompt is too long: 213462 tokens > 200000 maximum' } }],
  ['Anthropic', { type: 'error', error: { type: 'invalid_request_error',
    message: 'input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length' } }],
  ['OpenAI', { error: { message: 'This model\'s maximum context length is 128000 tokens. However, your messages ' +
    'resulted in 130000 tokens. Please reduce the length of the messages.', type: 'invalid_request_error',
    param: 'messages', code: 'context_length_exceeded' } }],
  ['OpenAI Responses', { error: { message: 'Your input exceeds the context window of this model. Please adjust your ' +
    'input and try again.', type: 'invalid_request_error', param: 'input', code: null } }],
  ['Azure', { error: { message: 'too long', code: 'context_length_exceeded' } }],
  ['Google', [{ error: { code: 400, status: 'INVALID_ARGUMENT',
    message: 'The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).' } }]],
  ['Vertex', { error: { code: 400, status: 'INVALID_ARGUMENT', message: 'Unable to submit request because the input ' +
    'token count is 1251952 but model only supports up to 1048576. Reduce the input token count and try again.' } }],
  ['xAI', { code: 'Client specified an invalid argument',
    error: 'This model\'s maximum prompt length is 131072 but the request contains 537812 tokens.' }],
  ['Moonshot', { error: { message: 'Invalid request: Your request exceeded model token limit: 262144 (requested: ' +
    '269030)', type: 'invalid_request_error' } }],
  ['Moonshot', { error: { message: 'Input token length too long', type: 'invalid_request_error' } }],
  ['Zhipu', { error: { code: '1261', message: 'Prompt exceeds max length' } }],
  ['Zhipu, Chinese', { error: { code: '1261', message: 'Prompt 超长' } }],
  ['Zhipu, Chinese, as another code', { error: { code: '1210', message: 'API 调用参数有误，请检查文档。Request 182387 input ' +
    'tokens exceeds the model\'s maximum context length 202750' } }],
  ['DashScope', { code: 'InvalidParameter', message: 'Range of input length should be [1, 6000]', request_id: 'x' }],
  ['DashScope, compatible', { error: { code: 'invalid_parameter_error', param: null, type: 'invalid_request_error',
    message: '<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]' } }],
  ['vLLM', { object: 'error', message: 'This model\'s maximum context length is 16384 tokens. However, you requested ' +
    '19591 tokens (9591 in the messages, 10000 in the completion).', type: 'BadRequestError', param: null, code: 400 }],
  ['vLLM, decoder', { object: 'error', message: 'The decoder prompt (length 10127) is longer than the maximum model ' +
    'length of 8192.', type: 'BadRequestError', code: 400 }],
  ['vLLM, multimodal', { object: 'error', code: 400,
    message: 'The prompt (total length 25938) is too long to fit into the model (context length 4096).' }],
  ['vLLM, new', { error: { message: 'You passed 99073 input tokens and requested 32000 output tokens. However, the ' +
    'model\'s context length is only 131072 tokens, resulting in a maximum input length of 99072 tokens.',
    type: 'BadRequestError', code: 400 } }],
  ['SGLang', { object: 'error', message: 'The input (61709 tokens) is longer than the model\'s context length (40960 ' +
    'tokens).', type: 'BadRequestError', code: 400 }],
  ['SGLang', { object: 'error', code: 400,
    message: 'Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).' }],
  ['TGI', { error_type: 'validation', error: 'Input validation error: `inputs` tokens + `max_new_tokens` must be <= ' +
    '4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`' }, 422],
  ['TGI', { error_type: 'validation', error: 'Input validation error: `inputs` must have less than 4096 tokens. ' +
    'Given: 5000' }, 422],
  ['Together', { error: { type: 'invalid_request_error', message: 'Input validation error: `inputs` tokens + ' +
    '`max_new_tokens` must be <= 32769. Given: 40000 `inputs` tokens and 512 `max_new_tokens`' } }],
  ['Groq', { error: { message: 'Please reduce the length of the messages or completion.',
    type: 'invalid_request_error', code: 'context_length_exceeded' } }],
  ['Groq', { error: { message: 'Request too large for model `llama` in organization `org_x` service tier `on_demand` ' +
    'on tokens per minute (TPM): Limit 6000, Requested 21247, please reduce your message size and try again.',
    type: 'tokens', code: 'rate_limit_exceeded' } }, 413],
  ['Cerebras', { message: 'Please reduce the length of the messages or completion. Current length is 42328 while ' +
    'limit is 40000', type: 'invalid_request_error', param: 'messages', code: 'context_length_exceeded' }],
  ['llama.cpp', { error: { code: 400, type: 'exceed_context_size_error', n_prompt_tokens: 9412, n_ctx: 8192,
    message: 'request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it' } }],
  ['llama.cpp, behind a relay', { detail: '{"error":{"type":"exceed_context_size_error","message":"too big"}}' }],
  ['llama.cpp, old', { error: { code: 500, type: 'server_error',
    message: 'the request exceeds the available context size. try increasing the context size' } }, 500],
  ['LM Studio', { error: 'The number of tokens to keep from the initial prompt is greater than the context length. ' +
    'Try to load the model with a larger context length.' }],
  ['Copilot', { error: { message: 'prompt token count of 391491 exceeds the limit of 128000',
    code: 'model_max_prompt_tokens_exceeded' } }],
  ['Mistral', { object: 'error', type: 'invalid_request_prompt', code: '3051',
    message: 'Prompt contains 300000 tokens, too large for model with 131072 maximum context length' }],
  ['DeepSeek', { error: { message: 'This model\'s maximum context length is 65536 tokens. However, you requested ' +
    '70000 tokens.', type: 'invalid_request_error', code: 'invalid_request_error' } }],
  ['Bedrock', { message: 'Input is too long for requested model.' }],
  ['Bedrock', { __type: 'com.amazon.coral.service#ValidationException',
    message: 'The model returned the following errors: Input Tokens Exceeded: input length 9 exceeds the max' }],
  ['Cohere', { message: 'too many tokens: total number of tokens (prompt and prediction) cannot exceed 4096 - ' +
    'received 6354. Try using a shorter prompt or a smaller max_tokens value.' }],
  ['Fireworks', { error: { object: 'error', type: 'invalid_request_error', code: 'invalid_request_error',
    message: 'The prompt is too long: 300000, model maximum context length: 131071' } }],
  ['SambaNova', { error: { type: 'Error', code: null, message: 'Requested generation length 1 is not possible! The ' +
    'provided prompt is 4098 tokens long, but the maximum supported sequence length is just 4096!' } }],
  ['Ollama', { error: 'prompt too long; exceeded max context length by 4096 tokens' }],
  ['MiniMax', { base_resp: { status_code: 2013, status_msg: 'invalid params, context window exceeds limit' } }],
  ['OpenRouter', { error: { message: 'This endpoint\'s maximum context length is 131072 tokens. However, you ' +
    'requested about 140000 tokens (139000 of text input, 1000 in the output).', code: 400 } }],
  ['OpenRouter, of a supplier', { error: { message: 'Provider returned error', code: 400, metadata: {
    provider_name: 'X', raw: '{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}' } } }],
  ['Perplexity', { error: { message: 'The total length of all messages is too long.', code: 400,
    type: 'too_many_prompt_tokens' } }],
  ['Z.ai', { error: { code: 'model_context_window_exceeded', message: 'The request is too big' } }],
  ['plain text', 'prompt is too long: 9 tokens > 8 maximum']
]

t.test('F3: a prompt that is too long, as each vendor says it', async (t) => {
  for (const [vendor, body, status = 400] of TOO_LONG) {
    t.match(errorIn(body, status), { means: 'context', status: 400 }, vendor)
    t.match(errorIn(body), { means: 'context', status: 400 }, `${vendor}, in a 200`)
  }
})

t.test('F3: what sounds like it and is not', async (t) => {
  const others: readonly (readonly [body: unknown, status: number | undefined])[] = [
    [{ error: { message: 'max_tokens must be less than or equal to `16384`, the maximum value for `max_tokens` is ' +
      'less than the `context_window` for this model' } }, 400],
    [{ error: { message: 'max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens' } }, 400],
    [{ error: { message: 'Rate limit exceeded: too many tokens per minute' } }, 400],
    [{ error: { message: 'Invalid \'user\': string too long. Expected a string with maximum length 64.' } }, 400],
    [{ error: { message: 'unknown field "context_length"' } }, 400]
  ]
  for (const [body, status] of others) t.not(errorIn(body, status).means, 'context', JSON.stringify(body))
  for (const body of [{ message: 'Too many tokens, please wait before trying again.' },
    { message: 'ThrottlingException: Too many tokens, please wait before trying again.' }]) {
    t.match(errorIn(body, 400), { means: 'rate_limit', status: 429 }, 'Bedrock, through a relay')
  }
})

t.test('V16: an unknown model is the operator\'s mistake, in whatever words', async (t) => {
  for (const body of [
    { error: { message: 'google/gemini-2.0:free is not a valid model ID', code: 400 } },
    { error: { message: 'The supported API model names are deepseek-chat or deepseek-reasoner, but you passed x.',
      type: 'invalid_request_error', code: 'invalid_request_error' } },
    { error: { message: 'Model Not Exist', type: 'invalid_request_error' } },
    { code: 'Client specified an invalid argument', error: 'Model not found: grok-9' },
    { object: 'error', message: 'Invalid model: x', type: 'invalid_model', code: '1500' },
    { error: { message: 'Invalid model \'x\'. Permitted models can be found in the documentation.',
      type: 'invalid_model', code: 400 } },
    { error: { message: '400: {\'error\': \'Invalid model name passed in model=Lite\'}', type: 'None', code: '400' } },
    { message: 'The provided model identifier is invalid.' },
    { error: { code: '1211', message: '模型不存在，请检查模型代码。' } },
    { object: 'error', message: 'The model `x` does not exist.', type: 'NotFoundError', code: 404 },
    { message: 'Invalid model. Please select a different model to continue.', reason: 'INVALID_MODEL_ID' },
    { error: { message: 'The model `x` has been decommissioned and is no longer supported.',
      code: 'model_decommissioned' } },
    { error: 'model "llama9" not found, try pulling it first' }
  ]) t.match(errorIn(body, 400), { means: 'setup', status: 404 }, JSON.stringify(body))
  t.match(errorIn({ error: { message: 'Failed to call a function. Please adjust your prompt.',
    type: 'invalid_request_error', code: 'tool_use_failed', failed_generation: '<function=x>' } }, 400),
    { means: 'tool_use', status: 424 })
})

const NO_MONEY: readonly unknown[] = [
  { type: 'error', error: { type: 'invalid_request_error', message: 'Your credit balance is too low to access the ' +
    'Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.' } },
  { error: { message: 'You exceeded your current quota, please check your plan and billing details.',
    type: 'insufficient_quota', param: null, code: 'insufficient_quota' } },
  { error: { message: 'Billing hard limit has been reached', code: 'billing_hard_limit_reached' } },
  { error: { message: 'Your account org-ea6a80cc <ak-f8tyo15z> is suspended due to insufficient balance, please ' +
    'recharge your account or check your plan and billing details', type: 'exceeded_current_quota_error' } },
  { code: 'Arrearage', message: 'Access denied, please make sure your account is in good standing.' },
  { error: { message: 'Insufficient Balance', type: 'unknown_error', code: 'invalid_request_error' } },
  { error: { code: '1113', message: '余额不足或无可用资源包,请充值。' } },
  { code: 'Some resource has been exhausted', error: 'Your team 1b2c-3d has either used all available credits or ' +
    'reached its monthly spending limit. To continue making API requests, please purchase more credits or raise your ' +
    'spending limit.' },
  { error: { message: 'Insufficient Balance (request id: 20260914160932263413297c955d)', code: 'unknown' } },
  { error: { message: 'Your account balance is too low', code: 'insufficient_user_quota' } }
]
const BAD_KEY: readonly unknown[] = [
  [{ error: { code: 400, status: 'INVALID_ARGUMENT', message: 'API key not valid. Please pass a valid API key.',
    details: [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'API_KEY_INVALID' }] } }],
  { error: { code: 400, message: 'API key not valid. Please pass a valid API key.', status: 'Bad Request' } },
  { code: 'Client specified an invalid argument', error: 'Incorrect API key provided: xa***Mk. You can obtain an API ' +
    'key from https://console.x.ai.' },
  { type: 'error', error: { type: 'authentication_error', message: 'invalid x-api-key' } },
  { code: 'InvalidApiKey', message: 'Invalid API-key provided.' }
]

t.test('F1: an account without money and a wrong key, wherever it is said', async (t) => {
  for (const status of [400, 403, 429, undefined]) {
    for (const body of NO_MONEY) {
      t.match(errorIn(body, status), { means: 'no_money', status: 402 }, `${status} ${JSON.stringify(body)}`)
    }
    for (const body of BAD_KEY) {
      t.match(errorIn(body, status), { means: 'bad_key', status: 401 }, `${status} ${JSON.stringify(body)}`)
    }
  }
  t.match(errorIn({ error: { message: 'This request requires more credits, or fewer max_tokens.', code: 402 } }),
    { means: 'no_money', status: 402 }, 'OpenRouter, in a 200')
  t.match(errorIn([{ error: { code: 429, status: 'RESOURCE_EXHAUSTED',
    message: 'You exceeded your current quota, please check your plan and billing details.' } }], 429),
    { status: 429, means: undefined }, 'Google says so of a limit for each minute')
})

t.test('F1: the account of a relay\'s supplier is not ours', async (t) => {
  for (const body of [...NO_MONEY, ...BAD_KEY]) {
    const of = (code: number): unknown => ({ error: { message: 'Provider returned error', code,
      metadata: { raw: JSON.stringify(body), provider_name: 'X' } } })
    t.equal(errorIn(of(429), 429).status, 429)
    t.match(errorIn(of(400), 400).status?.toString(), /^4(?:00|04|29)$/, JSON.stringify(body))
    t.match(errorIn(of(402), 402), { means: 'no_money' }, 'this one is')
  }
})

t.test('F1: no words of a client put a credential aside', async (t) => {
  const words = [...NO_MONEY, ...BAD_KEY].map((body) => errorIn(body).message)
    .concat('Too many tokens, please wait before trying again.', 'insufficient_quota', 'invalid_api_key')
  const quoting: readonly ((said: string) => unknown)[] = [
    (said) => ({ error: { message: `Invalid value: '${said}'. Supported values are: 'a', 'b'.`, param: said } }),
    (said) => ({ type: 'error', error: { type: 'invalid_request_error',
      message: `${said}: Extra inputs are not permitted` } }),
    (said) => ({ error: { message: `tools.0.name: "${said}" should match pattern`, type: 'invalid_request_error' } }),
    (said) => ({ detail: [{ type: 'string_type', loc: ['body', 'messages', 0, said], msg: 'Input should be a string',
      input: { code: said, error: { type: said, message: said } } }] }),
    (said) => ({ error: { message: 'Failed to call a function.', type: 'invalid_request_error',
      failed_generation: said } }),
    (said) => ({ error: { message: 'requires moderation', code: 403, metadata: { reasons: [said], flagged_input: said,
      type: said, code: said } } }),
    (said) => `the prompt was: ${said}`,
    (said) => `<html><title>${said}</title></html>`,
    (said) => ({ message: `${said}\nis not allowed here` }),
    (said) => ({ message: `${said} is not allowed here` }),
    (said) => ({ object: 'error', message: `bad request ${said}`, type: 'BadRequestError', code: 400 })
  ]
  for (const said of words) {
    for (const quote of quoting) {
      for (const status of [400, 422, 429, 500, undefined]) {
        const { means } = errorIn(quote(said), status)
        t.notOk(means === 'no_money' || means === 'bad_key' || means === 'rate_limit' || means === 'forbidden',
          `${status} ${JSON.stringify(quote(said))}: ${means}`)
      }
    }
  }
})

t.test('A6: when to come back, from the body', async (t) => {
  const wait = (body: unknown, status = 429): number | undefined => errorIn(body, status).retryAfter
  const google = (retryDelay: unknown): unknown => [{ error: { code: 429, message: 'x', status: 'RESOURCE_EXHAUSTED',
    details: [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay }] } }]
  t.strictSame(['37s', '0.5s', '37.416s', '0s', '-1s', 'soon', 12].map((delay) => wait(google(delay))),
    [37, 0.5, 37.416, undefined, undefined, undefined, 12])
  t.equal(wait({ error: { message: 'x' }, retry_after: 4 }), 4)
  t.equal(wait({ error: { message: 'x', retry_after: '2.5' } }), 2.5)
  const said = (message: string, status?: number): number | undefined => wait({ error: { message } }, status)
  t.equal(said('Rate limit reached for gpt-5. Please try again in 1.5s. Visit'), 1.5)
  t.equal(said('Please try again in 20ms.'), 0.02)
  t.equal(said('Please try again in 7m12.5s.'), 432.5)
  t.equal(said('please try again after 3 seconds'), 3)
  t.equal(said('Please retry in 55.576865699s.'), 55.576865699)
  t.equal(said('Please try again in a moment.'), undefined)
  t.equal(said('Please try again in 9s', 400), undefined, 'no limit, so maybe a quotation')
})

t.test('A5: what is an error in the place of an answer, and what is none', async (t) => {
  for (const body of [
    { object: 'error', message: 'out of memory', code: 500 }, { object: 'error', message: 'x' },
    { detail: 'gone' }, { detail: [{ msg: 'x' }] },
    { type: 'error' }, { error: 'out of memory' }, { error: { message: 'x' } }, [{ error: { code: 400 } }],
    { errors: [{ message: 'x' }] }, { code: 'InvalidParameter', message: 'x' }, { code: 500, msg: 'x' },
    { message: 'x', type: 'InternalServerException' }, { __type: 'x#ThrottlingException', message: 'x' },
    { error: { message: 'x' }, choices: [{ delta: {} }] }, { status: 'error', message: 'x' },
    { base_resp: { status_code: 1008, status_msg: 'insufficient balance' }, choices: null }
  ]) t.ok(isErrorBody(body), JSON.stringify(body))
  for (const body of [
    {}, [], [[]], null, 'x', 7, { choices: [] }, { choices: [{ delta: {} }], error: null }, { error: {}, choices: [] },
    { choices: [{}], error: '' }, { choices: [{}], error: { code: 0, message: '' } }, { message: 'queued' },
    { status: 'processing', message: 'queued' }, { code: 200, message: 'ok' }, { code: 0, msg: 'success' },
    { type: 'ping' }, { type: 'response.code_interpreter_call_code.done', code: 'print()' },
    { type: 'message_start', message: { id: 'x' } }, { choices: [{ delta: {} }], code: 'x', message: 'x' },
    { content: [{ type: 'text' }], detail: 'x' }, { output: [{}], message: 'x', code: 'y' },
    { data: [{}], detail: 'x' },
    { base_resp: { status_code: 0, status_msg: 'success' }, choices: [{}] }, { usage: { prompt_tokens: 1 } }
  ]) t.notOk(isErrorBody(body), JSON.stringify(body))
})

t.test('F1: a page that quotes a client\'s words puts no credential aside; a stream that is an error does', async (t) => {
  const event = 'data: {"error":{"code":"insufficient_quota","message":"no"}}'
  t.equal(errorIn(`event: error\n${event}\n\n`, 400).means, 'no_money')
  t.equal(errorIn(`\n: working\n${event}\n\n`, 400).means, 'no_money')
  t.equal(errorIn(`The request is wrong:\n${event}\n`, 400).means, undefined)
})

t.test('an error is the same in every shape: its sentence, its meaning, its wait', async () => {
  const sentences = fc.constantFrom(
    ['prompt is too long: 9 tokens > 8 maximum', 'context'], ['Insufficient Balance', 'no_money'],
    ['API key not valid. Please pass a valid API key.', 'bad_key'], ['Model not found: x', 'setup'],
    ['Too many requests, please wait before trying again.', 'rate_limit'],
    ['Your request was rejected as a result of our safety system.', 'policy'], ['top_k is odd', undefined]
  )
  const names = Object.keys(shapes) as Shape[]
  fc.assert(fc.property(fc.constantFrom(...names), fc.constantFrom(400, 422, undefined), sentences, fc.boolean(),
    (name, status, [message, means], isText) => {
      const body = shapes[name](message!, 400)
      const error = errorIn(isText ? JSON.stringify(body) : body, status)
      assert.equal(error.message, message)
      const isOther = name === 'openrouter' && (means === 'no_money' || means === 'bad_key')
      assert.equal(error.means === 'invalid' ? undefined : error.means, isOther ? 'setup' : means)
      assert.ok(isErrorBody(body), name)
    }), { numRuns: 500 })
})

t.test('no body makes it throw, or read without end', async (t) => {
  const statuses = fc.option(fc.integer({ min: 300, max: 599 }), { nil: undefined })
  fc.assert(fc.property(fc.jsonValue({ maxDepth: 12 }), statuses, (body, status) => {
    assert.equal(typeof errorIn(body, status).message, 'string')
    assert.equal(typeof isErrorBody(body), 'boolean')
  }), { numRuns: 1000 })
  let deep: unknown = 'x'
  for (let i = 0; i < 100_000; i++) deep = { error: deep }
  t.equal(errorIn(deep, 400).message, '')
  t.equal(errorIn({ errors: Array.from({ length: 100_000 }, () => ({ message: 'x' })) }, 400).message, 'x')
})
