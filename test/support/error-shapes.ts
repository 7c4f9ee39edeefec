// The shapes in which vendors and their proxies send one error.

type Make = (message: string, status: number) => unknown

export const shapes = {
  anthropic: (message) => ({ type: 'error', error: { type: 'some_error', message }, request_id: 'req_x' }),
  openai: (message) => ({ error: { message, type: 'some_error', param: null, code: null } }),
  coded: (message, code) => ({ error: { message, code } }),
  vllm: (message, code) => ({ object: 'error', message, type: 'SomeError', param: null, code }),
  bedrock: (message) => ({ __type: 'com.amazon.x#SomeException', message }),
  dashscope: (message) => ({ code: 'SomeError', message, request_id: 'x' }),
  xai: (message) => ({ code: 'Some sentence of its own', error: message }),
  text: (message) => ({ error: message }),
  fastapi: (message) => ({ detail: message }),
  mistakes: (message) => ({ detail: [{ type: 'some_error', msg: message, input: { secret: 'of the client' } }] }),
  google: (message, code) => [{ error: { code, message, status: 'SOME_STATUS',
    details: [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '37s' }] } }],
  cloudflare: (message) => ({ success: false, errors: [{ code: 7003, message }], messages: [], result: null }),
  zhipu: (message) => ({ error: { code: '9999', message } }),
  openrouter: (message, code) => ({ error: { message: 'Provider returned error', code,
    metadata: { provider_name: 'X', raw: JSON.stringify({ error: { message } }) } }, user_id: 'x' }),
  azure: (message, code) => ({ error: { message, type: null, param: 'prompt', status: code,
    innererror: { code: 'SomeInnerError' } } }),
  relay: (message, code) => ({ error: { message: JSON.stringify({ error: { message } }), code, status: 'Some' } }),
  minimax: (message) => ({ base_resp: { status_code: 9999, status_msg: message }, choices: null })
} satisfies Readonly<Record<string, Make>>

export type Shape = keyof typeof shapes
