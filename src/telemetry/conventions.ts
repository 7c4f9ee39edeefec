// Names that are not ours: metrics, labels, values and buckets of OpenTelemetry's conventions for GenAI, as Prometheus
// writes them. What they have no word for, and what we call it, stands here too.
import type { ModelKind } from '../config/config.ts'

export const GEN_AI = {
  duration: 'gen_ai_server_request_duration_seconds',
  firstToken: 'gen_ai_server_time_to_first_token_seconds',
  perToken: 'gen_ai_server_time_per_output_token_seconds',
  tokenUsage: 'gen_ai_client_token_usage'
} as const

export const GEN_AI_LABELS = {
  provider: 'gen_ai_provider_name',
  model: 'gen_ai_request_model',
  operation: 'gen_ai_operation_name',
  tokenType: 'gen_ai_token_type',
  errorType: 'error_type'
} as const

/** `gen_ai.operation.name` by what an address makes; the conventions have no word for images and videos. */
export const OPERATIONS: Readonly<Record<ModelKind, string>> = {
  text: 'chat',
  image: 'image_generation',
  video: 'video_generation'
}

/** Buckets: seconds, and tokens. */
export const DURATION_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
export const FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
export const PER_TOKEN_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
export const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
