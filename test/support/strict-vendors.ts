// The vendors that the simulator can be as strict as, as an operator declares them.
import type { DialectOf } from '../../src/config/sections/dialects.ts'
import type { RequestRecord } from '../../src/simulator/request-log.ts'
import { type StrictVendor, strictVendors, type VendorName } from '../../src/simulator/vendors.ts'

export interface Declaration {
  /** the vendor's own name of its model */
  readonly model: string
  /** of the upstream, in YAML */
  readonly options?: string
  /** of the model, in YAML */
  readonly fields?: string
}

export const declarations: Readonly<Record<VendorName, Declaration>> = {
  openai: { model: 'gpt-5.2', options: 'chat: { max_tokens_field: max_completion_tokens }',
    fields: 'sampling: false' },
  openai_responses: { model: 'gpt-5.2', fields: 'sampling: false' },
  anthropic: { model: 'claude-sonnet-4-5' },
  azure: { model: 'gpt-4o' },
  bedrock: { model: 'anthropic.claude-sonnet-4-5-20250929-v1:0' },
  gemini: { model: 'gemini-3-pro' },
  mistral: { model: 'mistral-large-latest', options: 'chat: { include_usage: false, omit: [user], ' +
    'call_ids: nine_signs, after_tool: fold }' },
  deepseek: { model: 'deepseek-reasoner', options: 'chat: { reasoning_field: reasoning_content }' },
  groq: { model: 'openai/gpt-oss-120b' },
  xai: { model: 'grok-4', options: 'chat: { omit: [stop, presence_penalty, frequency_penalty], call_arguments: json }' },
  moonshot: { model: 'kimi-k2' },
  vllm: { model: 'qwen3', options: 'chat: { call_arguments: json }' },
  openrouter: { model: 'openai/gpt-4o' }
}

export const vendorNames = Object.keys(strictVendors) as readonly VendorName[]

export function vendorsOf (api: DialectOf<'text'>): readonly VendorName[] {
  return vendorNames.filter((name) => strictVendors[name].api === api)
}

/** `, KEY: VALUE, …` in YAML: behind other fields of the upstream. */
export const upstreamOptions = (name: VendorName): string => moreOf(declarations[name].options)
/** The same for its model. */
export const modelFields = (name: VendorName): string => moreOf(declarations[name].fields)

const moreOf = (fields: string | undefined): string => fields === undefined ? '' : `, ${fields}`

const ruleNames = new Set(Object.values<StrictVendor>(strictVendors).flatMap(({ rules }) =>
  rules.map(({ name }) => name)))

/** The request broke a rule of its vendor; no fault was injected. */
export function isOwnRefusal ({ refusal = '' }: RequestRecord): boolean {
  return ruleNames.has(refusal.slice(0, refusal.indexOf(': ')))
}
