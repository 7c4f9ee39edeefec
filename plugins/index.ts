// The shipped plugins, in the shipped order: the top is nearest the client, the bottom nearest the upstream.
import type { Plugin } from '../src/core/plugin.ts'
import { auth } from './auth.ts'
import { billingMeter } from './billing-meter/index.ts'
import { channelRouter } from './channel-router/index.ts'
import { chatToMessages } from './chat-to-messages/index.ts'
import { errorNormalize } from './error-normalize/index.ts'
import { keyPolicy } from './key-policy/index.ts'
import { rateLimit } from './rate-limit.ts'
import { responsesToMessages } from './responses-to-messages/index.ts'
import { schemaValidate } from './schema-validate/index.ts'

export const plugins: readonly Plugin[] = [auth, keyPolicy, rateLimit, schemaValidate, chatToMessages,
  responsesToMessages, channelRouter, billingMeter, errorNormalize]
