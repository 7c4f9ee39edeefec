// What the words of vendors mean: one table of their codes and sentences, each with the vendor that it was seen at.
//
// A sentence may quote the request, so a client could write one. Rows that put a credential aside therefore match
// codes and whole sentences only (`^…$`), which no quotation is. A wrong match of another row harms only the client
// that wrote the words.

export type Meaning =
  /** the account has no money; the key is wrong */
  | 'no_money' | 'bad_key'
  /** the account may not do this */
  | 'forbidden'
  | 'rate_limit' | 'overload'
  /** the prompt is too long for the model */
  | 'context'
  | 'policy' | 'image'
  /** the model wrote a call that the vendor could not read: another try may succeed */
  | 'tool_use'
  /** the operator has to mend it: an unknown model, a plan, an account; the sentence is not for clients */
  | 'setup'
  | 'too_large' | 'invalid' | 'server'

interface Row {
  readonly means: Meaning
  /** of HTTP, as most vendors answer it */
  readonly status: number
  readonly codes: ReadonlySet<string>
  readonly phrases: RegExp | undefined
  /** what a sentence of another meaning has too */
  readonly except: RegExp | undefined
}

/** Joins patterns into one, without regard to case. */
function anyOf (...patterns: readonly RegExp[]): RegExp {
  return new RegExp(patterns.map(({ source }) => source).join('|'), 'i')
}

function row (
  means: Meaning, status: number, codes: readonly string[], phrases?: readonly RegExp[], except?: RegExp
): Row {
  return { means, status, codes: new Set(codes), phrases: phrases && anyOf(...phrases), except }
}

/** In the order in which they are looked for. Numbers are Zhipu's, `status_` with a number is MiniMax's. */
const ROWS: readonly Row[] = [
  row('no_money', 402, [
    'insufficient_quota', 'billing_hard_limit_reached', 'billing_not_active', // OpenAI
    'billing_error', // Anthropic
    'accountoverdueerror', // Volcengine Ark
    'exceeded_current_quota_error', // Moonshot
    'arrearage', 'freetieronly', // DashScope
    'insufficient_user_quota', 'insufficient_balance', 'insufficient_credits', 'insufficient_funds',
    'payment_required', // relays
    '1113', 'status_1008'
  ], [
    /^(?:Your )?credit balance is too low(?: to access the (?:\w+ )?API)?\.?(?: Please go to Plans & Billing(?: to upgrade or purchase credits)?\.)?$/, // Anthropic
    /^You have reached your specified API usage limits\.(?: You will regain access on [\w :-]{1,40}\.)?$/, // Anthropic
    /^Billing hard limit has been reached\.?$/, // OpenAI
    /^Your newly created team doesn't have any credits yet\. You can purchase credits on https:\/\/[\w./-]{1,200}$/, // xAI
    /^Your team [\w-]{1,60} has either used all available credits or reached its monthly spending limit\. To continue making API requests, please purchase more credits or raise your spending limit\.$/, // xAI
    /^Insufficient (?:balance|credits|funds)\.?(?: Add more using https:\/\/[\w./-]{1,200})?$/ // DeepSeek, OpenRouter
  ]),
  row('bad_key', 401, [
    'invalid_api_key', 'account_deactivated', 'incorrect_api_key', // OpenAI
    'authentication_error', // Anthropic
    'api_key_invalid', 'unauthenticated', // Google
    'invalid_authentication_error', 'incorrect_api_key_error', 'access_terminated_error', // Moonshot
    'invalidapikey', // DashScope
    'organization_restricted', // Groq
    'unrecognizedclientexception', 'expiredtokenexception', 'invalidsignatureexception', // Bedrock
    '1000', '1001', '1002', '1003', '1004', '1110', '1111', '1112', '1121', 'status_1004', 'status_2049'
  ], [
    /^This organization has been disabled\.$/, // Anthropic
    /^Your API key was reported as leaked\. Please use another API key\.$/, // Google
    /^API key (?:not valid|not found|expired)\. Please (?:pass a valid|renew the) API key\.$/, // Google
    /^Incorrect API key provided: [\w*.-]{1,200}\. You can (?:find your|obtain an) API key (?:at|from) https:\/\/[\w./-]{1,60}$/, // OpenAI, xAI
    /^(?:invalid|incorrect|expired|missing) (?:x-)?api[ _-]?key\.?$/ // Anthropic, Groq, DashScope
  ]),
  row('context', 400, [
    'context_length_exceeded', // OpenAI
    'model_context_window_exceeded', // Z.ai
    'exceed_context_size_error', // llama.cpp
    'model_max_prompt_tokens_exceeded', // Copilot
    'too_many_prompt_tokens', // Perplexity
    'prompt_too_long', '1261'
  ], [
    /(?:prompt|input) (?:is )?too long|exceeds? context limit/, // Anthropic, Bedrock, Fireworks, Ollama
    /maximum context length (?:is|of)?\b/, // OpenAI, DeepSeek, OpenRouter, vLLM, Zhipu
    /exceeds the context window|context window exceeds/, // OpenAI, MiniMax
    /input token count\b[^.]{0,60}(?:exceeds the maximum|only supports)/, // Google
    /maximum prompt length is \d/, // xAI
    /reduce the length of the (?:messages|(?:input )?prompt)/, // Groq, Cerebras
    /^request too large for model\b/, // Groq
    /prompt token count of \d+ exceeds/, // Copilot
    /exceeded model token limit|input token length too long/, // Moonshot
    /prompt exceeds max length|prompt ?超(?:长|出|过)|输入(?:内容)?(?:超长|过长|长度超)/, // Zhipu
    /range of input length should be/, // DashScope
    /longer than the (?:maximum model length|model'?s context length)|too long to fit into the model/, // vLLM, SGLang
    /context length is only \d|prompt contains at least \d+ input tokens/, // vLLM
    /input length \(?\d+(?: tokens)?\)? exceeds|requested token count exceeds/, // SGLang, LM Studio
    /`?inputs`? (?:tokens \+ `?max_new_tokens`? must be <=|must have less than) ?\d/, // TGI, Together
    /exceeds? the available context size|context size exceeded/, // llama.cpp
    /greater than the context length/, // LM Studio
    /too large for model with \d+ maximum context length/, // Mistral
    /too many tokens: (?:total|size)|total tokens exceeds? the model/, // Cohere
    /exceeded (?:max )?context length|context length exceeded/, // Ollama
    /input tokens exceeds|total length of all messages is too long/, // Perplexity
    /(?:max|maximum number of) input tokens?(?: limit)?\b[^.]{0,30}exceed|exceeds the max(?:imum)? (?:number of )?input token/, // Bedrock
    /maximum supported sequence length is/, // SambaNova
    /(?:input|prompt) (?:tokens|length|size)\b[^.]{0,60}exceed|too many (?:input |prompt )?tokens(?! per|, please)/
  ]),
  row('rate_limit', 429, [
    'rate_limit_error', // Anthropic
    'rate_limit_exceeded', 'slow_down', // OpenAI
    'rate_limit_reached', 'rate_limit_reached_error', // Moonshot
    'resource_exhausted', // Google
    'throttling', 'limit_requests', 'limit_burst_rate', // DashScope
    'throttlingexception', 'servicequotaexceededexception', // Bedrock
    'too_many_requests', 'toomanyrequests', 'rate_limit', '1302', '1303', 'status_1002', 'status_1039'
  ], [
    /^(?:Throttling(?:Exception| error): )?Too many (?:tokens|requests), please wait before trying again\.?$/ // Bedrock
  ]),
  row('policy', 400, [
    'content_policy_violation', 'moderation_blocked', 'content_filter', // OpenAI
    'responsibleaipolicyviolation', // Azure
    'data_inspection_failed', 'datainspectionfailed', // DashScope
    'prohibited_content', 'content_blocked', 'safety', '1301', 'status_1026', 'status_1027'
  ], [
    /content[ _-]?(?:policy|filter|management polic|moderation)|usage (?:polic|guideline)/,
    /(?:safety|moderation) (?:system|polic|filter|guideline)|violat\w{0,5}\b[^.]{0,60}polic|flagged (?:as|for|by)\b/
  ]),
  row('tool_use', 424, ['tool_use_failed', 'modelerrorexception']), // Groq, Bedrock
  row('setup', 404, [
    'model_not_found', 'deploymentnotfound', 'model_not_available', // OpenAI, Azure
    'not_found_error', // Anthropic
    'invalid_model', 'invalid_model_id', // Mistral, Perplexity; relays
    'modelnotfound', 'model_not_supported', 'unsupported_model', 'unknown_model', 'model_decommissioned', // many
    'resourcenotfoundexception', 'not_found', '1211'
  ], [
    /\bmodel:? ?[`'"]?[\w./:-]{1,80}[`'"]? (?:does not exist|(?:is )?not found|has been decommissioned)/, // OpenAI, vLLM, Groq
    /is not a valid model ID|supported API model names are|^model not (?:found|exist)/, // OpenRouter, DeepSeek, xAI
    /^invalid model\b|invalid model name|model identifier is invalid|unknown model/, // Mistral, LiteLLM, Bedrock
    // What rows above match as whole sentences may stand in others: they are not for clients either.
    /credit balance|billing (?:hard )?limit|insufficient (?:quota|funds|balance)/,
    /(?:invalid|incorrect|expired|missing) (?:x-)?api[ _-]?key|api[ _-]?key expired/,
    /api[ _-]?key (?:is |was |has )?(?:not|in)[ -]?(?:valid|found)/,
    /\byour (?:account|project|workspace|organi[sz]ation|plan|subscription)\b|organi[sz]ation must be verified/
  ]),
  row('image', 400, ['image_input_not_supported'], [
    /\b(?:images?|vision|multimodal)\b[^.]{0,60}(?:not supported|unsupported|n't supported|not enabled)/,
    /(?:not|n't) (?:support|accept)\b[^.]{0,40}\b(?:images?|vision|multimodal)\b/,
    /image_url is only supported/
  ], /format|media[ _]type|mime|\bsize\b|dimension|pixel/i),
  row('too_large', 413, ['request_too_large', 'payload_too_large']),
  row('overload', 529, [
    'overloaded_error', 'overloaded', // Anthropic
    'server_is_overloaded', 'engine_overloaded', // OpenAI
    'engine_overloaded_error', // Moonshot
    'unavailable', 'service_unavailable', 'serviceunavailable', 'serviceunavailableexception', '1305' // many
  ], [/\boverloaded\b/]),
  row('forbidden', 403, ['permission_error', 'permission_denied', 'accessdenied', 'accessdeniedexception',
    'access_denied', '1220']),
  row('invalid', 400, ['invalid_request_error', 'invalid_argument', 'invalid_parameter_error', 'invalidparameter',
    'invalid_request', 'invalid_prompt', 'bad_request', 'badrequest', 'badrequesterror', 'bad_request_error',
    'validation', 'validation_error', 'validationexception', 'failed_precondition', 'out_of_range', 'bio_policy',
    'misalignment_policy', 'image_parse_error', 'invalid_image', 'failed_to_download_image', '1210', '1213', '1214', '1215', 'status_2013']),
  row('server', 500, ['api_error', 'server_error', 'internal_error', 'internal_server_error', 'internal',
    'internalerror', 'internalservererror', 'internalserverexception', 'modelstreamerrorexception', 'timeout_error',
    'deadline_exceeded'])
]

const REFUSALS = rowsOf('no_money', 'bad_key', 'rate_limit', 'context', 'policy', 'tool_use', 'setup', 'image',
  'too_large', 'forbidden')
const FAILURES = rowsOf('rate_limit', 'context', 'overload')

/** The rows whose words are believed against a status; against others none are. */
const BELIEVED: Readonly<Record<number, readonly Row[]>> = {
  400: REFUSALS, 422: REFUSALS,
  403: rowsOf('no_money', 'bad_key', 'policy'),
  413: rowsOf('context'),
  429: rowsOf('no_money', 'bad_key'),
  500: FAILURES, 502: FAILURES, 504: FAILURES
}

function rowsOf (...meanings: readonly Meaning[]): readonly Row[] {
  const wanted = new Set(meanings)
  return ROWS.filter(({ means }) => wanted.has(means))
}

/**
 * @param status undefined: nothing says it, so all words are believed
 * @param isOfSupplier of a relay: the account without money is the relay's, and not ours
 */
export function rowFor (
  words: ReadonlySet<string>, message: string, status: number | undefined, isOfSupplier: boolean
): Row | undefined {
  const sentence = message.replace(REQUEST_ID, '')
  const found = (status === undefined ? ROWS : BELIEVED[status])?.find(({ means, codes, phrases, except }) =>
    !(isOfSupplier && OF_ACCOUNT.has(means)) && ([...words].some((word) => codes.has(word)) ||
      (phrases?.test(sentence) === true && except?.test(sentence) !== true)))
  return found ?? (status === 401 || status === 402 ? ROWS.find((row) => row.status === status) : undefined)
}

const OF_ACCOUNT: ReadonlySet<Meaning> = new Set(['no_money', 'bad_key', 'forbidden'])

/** Relays add theirs to the sentence. */
const REQUEST_ID = / \(request id: [\w-]{1,80}\)$/i
